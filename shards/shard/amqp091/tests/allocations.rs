//! Neither what is published nor what is delivered in 0-9-1 needs memory of its own.

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

use super::*;

struct Counting;

thread_local! {
    static COUNT: Cell<u32> = const { Cell::new(0) };
}

// SAFETY: every call is passed on to the system's allocator unchanged.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        COUNT.set(COUNT.get() + 1);
        // SAFETY: the caller's promises are those that `System` asks for.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        // SAFETY: as above.
        unsafe { System.dealloc(pointer, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

fn allocations(work: impl FnOnce()) -> u32 {
    let before = COUNT.get();
    work();
    COUNT.get() - before
}

#[test]
fn a_message_is_stored_and_delivered_without_an_allocation() {
    let headers = table(|headers| {
        headers.pair(short("tenant"), FieldValue::LongString(b"a"));
        headers.pair(short("x-trace"), FieldValue::Int64(7));
    });
    let many = Properties {
        content_type: Some(short("application/json")),
        delivery_mode: Some(2),
        correlation_id: Some(short("1")),
        reply_to: Some(short("answers")),
        message_id: Some(short("2")),
        timestamp: Some(1_700_000_000),
        app_id: Some(short("app")),
        headers: Some(Table::new(&headers)),
        ..Properties::default()
    };
    for properties in [Properties::default(), many] {
        let properties = encoded(&properties);
        let mut bytes = Vec::with_capacity(4096);
        let count = allocations(|| {
            let published = Published::read(PropertyFields::new(&properties)).expect("properties");
            let head = published.write_head(short("orders"), short("new"), 4, &mut bytes);
            bytes.extend_from_slice(b"body");
            head.complete(&mut bytes);
        });
        assert_eq!(count, 0);
        let message = Message::new(bytes, 0).expect("a message");
        let mut translator = Translator::default();
        assert_eq!(
            allocations(|| {
                let basic = translator.basic(&message, addition(0));
                assert_eq!((basic.properties.bytes(), basic.body), (&*properties, b"body".as_slice()));
            }),
            0
        );
    }
}

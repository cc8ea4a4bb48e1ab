//! Does routing a message allocate, and do exchanges take no more memory than they say? Counted, not believed.

#![allow(unsafe_code, reason = "an allocator that counts is an unsafe impl")]

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

use corelane_engine::exchanges::{
    Arguments, Binding, Change, Declaration, End, Exchanges, HeaderReader, HeaderValue, OwnedValue, Property,
    VhostId,
};

struct Counting;

thread_local! {
    static ALLOCATIONS: Cell<u32> = const { Cell::new(0) };
    /// Bytes in use, of what this thread has allocated and freed.
    static IN_USE: Cell<usize> = const { Cell::new(0) };
}

// SAFETY: every call goes to the system's allocator as it came.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        ALLOCATIONS.set(ALLOCATIONS.get() + 1);
        IN_USE.set(IN_USE.get().wrapping_add(layout.size()));
        // SAFETY: the caller's obligations are the same.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        IN_USE.set(IN_USE.get().wrapping_sub(layout.size()));
        // SAFETY: the caller's obligations are the same.
        unsafe { System.dealloc(pointer, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// A message with one header.
struct OneHeader;

impl HeaderReader for OneHeader {
    fn each_header(&self, mut visit: impl FnMut(&str, HeaderValue<&[u8]>)) {
        visit("kind", HeaderValue::Bytes(b"order"));
    }

    fn property(&self, _property: Property) -> Option<HeaderValue<&[u8]>> {
        None
    }

    fn is_delayed(&self) -> bool {
        false
    }
}

fn declare(exchanges: &mut Exchanges<u32>, name: &str, kind: &str) {
    let declaration = Declaration {
        vhost: VhostId(0),
        name: name.into(),
        kind: kind.into(),
        is_durable: true,
        is_auto_delete: false,
        is_internal: false,
        arguments: Arguments::default(),
    };
    exchanges.apply(&Change::Declare(declaration)).expect("a new one");
}

fn bind(exchanges: &mut Exchanges<u32>, source: &str, destination: End<u32>, key: &str) {
    let value = HeaderValue::Bytes(b"order"[..].into());
    bind_with(exchanges, source, destination, key, vec![("kind".into(), value)]);
}

fn bind_with(
    exchanges: &mut Exchanges<u32>,
    source: &str,
    destination: End<u32>,
    key: &str,
    values: Vec<(Box<str>, OwnedValue)>,
) {
    let (source, key) = (source.into(), key.as_bytes().into());
    let arguments = Arguments::new(&[], values);
    let binding = Binding { vhost: VhostId(0), source, destination, key, arguments };
    exchanges.apply(&Change::Bind(binding)).expect("a new one");
}

#[test]
fn a_message_is_routed_without_an_allocation() {
    let mut exchanges = Exchanges::new(7);
    exchanges.apply(&Change::AddVhost("/".into())).expect("a new one");
    declare(&mut exchanges, "all", "fanout");
    let kinds = ["direct", "fanout", "topic", "headers", "x-consistent-hash"];
    for kind in kinds {
        declare(&mut exchanges, kind, kind);
        let end = End::Exchange(kind.into());
        bind(&mut exchanges, "all", end, "");
        for queue in 0..20 {
            let end = End::Queue { queue, name: format!("{queue}").into(), is_durable: true };
            bind(&mut exchanges, kind, end, if kind == "topic" { "#" } else { "1" });
        }
    }
    let mut found = 0;
    let mut route = || {
        found = 0;
        exchanges.route(VhostId(0), "all", &[b"1", b"a.b"], &OneHeader, |_| found += 1)
    };
    assert!(route().is_some());
    let before = ALLOCATIONS.get();
    assert!(before > 0, "the counter counts");
    for _ in 0..100 {
        assert!(route().is_some());
    }
    assert_eq!(ALLOCATIONS.get(), before);
    assert_eq!(found, 20);
}

#[test]
fn exchanges_say_what_memory_they_take() {
    let check =
        |source: &str, key: &dyn Fn(u32) -> String, values: &dyn Fn(u32) -> Vec<(Box<str>, OwnedValue)>| {
            // So many that vectors have just grown.
            let before = IN_USE.get();
            let mut exchanges = Exchanges::new(7);
            exchanges.apply(&Change::AddVhost("/".into())).expect("a new one");
            let empty = exchanges.size();
            for queue in 0..1_100 {
                let end = End::Queue { queue, name: format!("queue-{queue}").into(), is_durable: true };
                bind_with(&mut exchanges, source, end, &key(queue), values(queue));
            }
            let (said, taken) = (exchanges.size(), IN_USE.get().wrapping_sub(before));
            assert!(said >= taken && said <= 5 * taken, "{said} for {taken} by {source}");
            (0..1_100).for_each(|queue| drop(exchanges.apply(&Change::RemoveQueue(queue))));
            assert_eq!(exchanges.size(), empty);
        };
    let none = |_| Vec::new();
    check("amq.fanout", &|_| String::new(), &none);
    check("amq.direct", &|queue| format!("key-{queue}"), &none);
    check("amq.topic", &|queue| format!("orders.{queue}.*"), &none);
    // Each of its words is new.
    let words = |queue: u32| (0..40).map(|word| format!("{queue:x}-{word:x}")).collect::<Vec<_>>().join(".");
    check("amq.topic", &words, &none);
    check("amq.topic", &|queue| format!("{queue}{}", ".".repeat(250)), &none);
    let small =
        |queue: u32| (0..50).map(|n| (format!("{n}").into(), HeaderValue::Integer(queue.into()))).collect();
    check("amq.headers", &|_| String::new(), &small);
}

//! Does reading a message, or settling one, allocate? No: counted, not believed.

#![allow(unsafe_code, reason = "an allocator that counts is an unsafe impl")]

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

use corelane_wire::amqp10::{
    Attach, DeliveryState, Disposition, Encode, Error, Flow, Frame, FrameKind, Header, Map, MapWriter,
    MessageId, Open, Performative, Properties, Property, Role, Sections, Source, Symbols, Target,
    TargetArchetype, Transfer, Value, check_value, write_application_properties, write_data, write_frame,
    write_message_annotations,
};

#[path = "allocations/amqp091.rs"]
mod amqp091;

struct Counting;

thread_local! {
    static ALLOCATIONS: Cell<u32> = const { Cell::new(0) };
}

// SAFETY: every call goes to the system's allocator as it came.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        ALLOCATIONS.set(ALLOCATIONS.get() + 1);
        // SAFETY: the caller's obligations are the same.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        // SAFETY: the caller's obligations are the same.
        unsafe { System.dealloc(pointer, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// How often `work` allocates.
fn allocations(work: impl FnOnce()) -> u32 {
    let before = ALLOCATIONS.get();
    work();
    ALLOCATIONS.get() - before
}

fn message() -> Vec<u8> {
    let mut message = Vec::new();
    Header { durable: true, ttl: Some(1000), ..Header::default() }.encode(&mut message);
    write_message_annotations(&mut message, &[("x-opt-delivery-delay", Value::Ulong(5))]);
    let properties = Properties {
        message_id: Some(MessageId::String("id-1")),
        to: Some("queue://orders"),
        group_id: Some("group"),
        ..Properties::default()
    };
    properties.encode(&mut message);
    write_application_properties(
        &mut message,
        &[("region", Value::String("emea")), ("price", Value::Int(3))],
    );
    write_data(&mut message, &[7; 1024]);
    message
}

fn transfer() -> Transfer<'static> {
    Transfer {
        delivery_id: Some(1),
        delivery_tag: Some(b"tag"),
        message_format: Some(0),
        state: Some(DeliveryState::Transactional { transaction: b"tx", outcome: None }),
        ..Transfer::default()
    }
}

#[test]
fn the_counter_counts() {
    assert_eq!(allocations(|| drop(std::hint::black_box(Box::new(1)))), 1);
}

#[test]
fn reading_a_message_allocates_nothing() {
    let mut frame = Vec::new();
    write_frame(&mut frame, FrameKind::Amqp, 0, &transfer(), &message());
    let read = || {
        let frame = Frame::take(&mut frame.as_slice(), 4096).expect("a frame").expect("complete");
        let (performative, payload) = Performative::decode(frame.body).expect("a transfer");
        assert_eq!(performative, Performative::Transfer(transfer()));
        let sections = Sections::scan(payload).expect("a message");
        let header = sections.header(payload).expect("a header");
        assert_eq!((header.durable, header.ttl), (true, Some(1000)));
        let properties = sections.properties(payload).expect("properties");
        assert_eq!(properties.field(Property::GroupId), Ok(Some(Value::String("group"))));
        assert_eq!(properties.decode().map(|properties| properties.to), Ok(Some("queue://orders")));
        assert_eq!(sections.application_property(payload, "price"), Ok(Some(Value::Int(3))));
        assert_eq!(sections.message_annotation(payload, "x-opt-delivery-delay"), Ok(Some(Value::Ulong(5))));
        assert_eq!(sections.body_values(payload).count(), 1);
        assert_eq!(check_value(sections.body.value(payload)), Ok(()));
    };
    assert_eq!(allocations(read), 0);
}

#[test]
fn reading_any_performative_allocates_nothing() {
    let mut map = Vec::new();
    let mut writer = MapWriter::new(&mut map);
    writer.symbol("product", &"test");
    writer.finish();
    let map = Map::decode(&map).expect("a map");
    let symbols = Symbols::new(&["shared", "global"]);
    let source = Source { address: Some("q"), filter: Some(map), outcomes: symbols, ..Source::default() };
    let attach = Attach {
        source: Some(source),
        target: Some(TargetArchetype::Target(Target { capabilities: symbols, ..Target::default() })),
        properties: Some(map),
        ..Attach::new("link", 0, Role::Sender)
    };
    let disposition = Disposition {
        role: Role::Receiver,
        first: 1,
        last: Some(100),
        settled: true,
        state: Some(DeliveryState::Rejected { error: Some(Error::new("amqp:not-allowed", "no")) }),
        batchable: false,
    };
    for performative in [
        Performative::Open(Open { offered_capabilities: symbols, properties: Some(map), ..Open::default() }),
        Performative::Attach(attach),
        Performative::Flow(Flow { handle: Some(1), link_credit: Some(10), ..Flow::default() }),
        Performative::Transfer(transfer()),
        Performative::Disposition(disposition),
    ] {
        let mut bytes = Vec::new();
        performative.encode(&mut bytes);
        let read = || assert_eq!(Performative::decode(&bytes), Ok((performative, &[][..])));
        assert_eq!(allocations(read), 0, "{performative:?}");
        // Nor does writing, once the buffer is large enough.
        bytes.clear();
        assert_eq!(allocations(|| performative.encode(&mut bytes)), 0, "{performative:?}");
    }
}

#[test]
fn refusing_hostile_bytes_allocates_nothing() {
    let mut huge_counts = Vec::new();
    for code in [0xd0, 0xd1, 0xf0, 0xb0, 0xb1, 0xb3] {
        let mut bytes = vec![0x00, 0x53, 0x77, code];
        bytes.extend_from_slice(&[0x7f, 0xff, 0xff, 0xff, 0x7f, 0xff, 0xff, 0xff, 0x40]);
        huge_counts.push(bytes);
    }
    let zeros = vec![0; 100_000];
    let refuse = || {
        for bytes in huge_counts.iter().chain([&zeros]) {
            assert!(Sections::scan(bytes).is_err());
            assert!(Value::decode(bytes).is_err());
            assert!(check_value(bytes).is_err());
            assert!(Performative::decode(bytes).is_err());
        }
    };
    assert_eq!(allocations(refuse), 0);
}

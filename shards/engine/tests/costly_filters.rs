//! Filters that are as costly as they may be: what they cost a message, and a slice, is bounded.

mod support;

use corelane_engine::selector::Filter;
use corelane_engine::*;
use support::*;

/// A filter of many conditions that no message fits.
fn costly(n: usize) -> Filter {
    let conditions: Vec<String> = (0..400).map(|k| format!("weight + {k} < -{n}")).collect();
    Filter::parse(&conditions.join(" or ")).expect("it is a selector")
}

#[test]
fn the_filters_of_a_queue_are_bounded_together() {
    let mut engine = Engine::<Note>::new(Limits::default());
    let queue = engine.declare_queue(QueueProperties::default());
    let most = Limits::default().filter_nodes_max / costly(0).node_count();
    let mut consumers = Vec::new();
    for n in 0..most {
        let spec = ConsumerSpec { filter: Some(costly(n)), ..ConsumerSpec::new(n as u64) };
        consumers.push(engine.attach_consumer(0, queue, spec).unwrap());
    }
    let spec = ConsumerSpec { filter: Some(costly(most)), ..ConsumerSpec::new(0) };
    assert_eq!(engine.attach_consumer(0, queue, spec.clone()), Err(AttachRefusal::ClassesFull));
    // One more of a filter that is there costs nothing, and another queue has room of its own.
    let same = ConsumerSpec { filter: Some(costly(0)), ..ConsumerSpec::new(0) };
    engine.attach_consumer(0, queue, same).unwrap();
    let other = engine.declare_queue(QueueProperties::default());
    engine.attach_consumer(0, other, spec).unwrap();
    engine.verify();
}

#[test]
fn a_slice_is_bounded_by_what_its_entries_cost() {
    let mut engine = Engine::<Note>::new(Limits::default());
    let queue = engine.declare_queue(QueueProperties::default());
    for id in 0..500 {
        engine.enqueue(0, queue, note(id)).unwrap();
    }
    let mut nodes = 0;
    for n in 0..20 {
        let filter = costly(n);
        nodes += filter.node_count();
        let spec = ConsumerSpec { filter: Some(filter), ..ConsumerSpec::new(0) };
        let consumer = engine.attach_consumer(0, queue, spec).unwrap();
        engine.set_notify_work_desired(0, consumer, Desire::Ready);
    }
    let most = (Limits::default().scan_nodes_max / nodes).max(1) as u64;
    let mut slices = 0;
    loop {
        let before = engine.counters().scanned;
        let more = engine.run_slice(0);
        let looked_at = engine.counters().scanned - before;
        assert!(looked_at <= most, "{looked_at} entries of {nodes} nodes");
        slices += 1;
        if !more {
            break;
        }
    }
    assert_eq!(engine.counters().scanned, 500);
    assert!(slices >= 500 / most);
}

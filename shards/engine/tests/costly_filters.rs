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
    assert_eq!(engine.attach_consumer(0, queue, spec.clone()), Err(AttachRefusal::FiltersFull));
    // One more of a filter that is there costs nothing, and another queue has room of its own.
    let same = ConsumerSpec { filter: Some(costly(0)), ..ConsumerSpec::new(0) };
    engine.attach_consumer(0, queue, same).unwrap();
    let other = engine.declare_queue(QueueProperties::default());
    engine.attach_consumer(0, other, spec).unwrap();
    engine.verify();
}

/// Filters of consumers that are gone make room for others, the one idle for longest first, and none for a filter without hope.
#[test]
fn filters_of_consumers_that_are_gone_keep_nobody_out() {
    let of = |conditions: usize, n: usize| {
        let conditions: Vec<String> = (0..conditions).map(|k| format!("weight + {k} < -{n}")).collect();
        Filter::parse(&conditions.join(" or ")).expect("it is a selector")
    };
    let limits = Limits { filter_nodes_max: 3 * of(10, 0).node_count(), ..Limits::default() };
    let mut engine = Engine::<Note>::new(limits);
    let queue = engine.declare_queue(QueueProperties::default());
    engine.enqueue(0, queue, note(1)).unwrap();
    let attach = |engine: &mut Engine<Note>, filter, mode| {
        let spec = ConsumerSpec { filter: Some(filter), mode, ..ConsumerSpec::new(0) };
        engine.attach_consumer(0, queue, spec)
    };
    attach(&mut engine, of(10, 0), AcquireMode::Acquire).unwrap();
    for n in 1..10 {
        for mode in [AcquireMode::Acquire, AcquireMode::Browse] {
            let consumer = attach(&mut engine, of(10, n), mode).unwrap();
            engine.close_consumer(0, consumer, None);
        }
    }
    engine.verify();
    let scanned = |engine: &mut Engine<Note>| {
        while engine.run_slice(0) {}
        engine.counters().scanned
    };
    let before = scanned(&mut engine);
    let hopeless = attach(&mut engine, of(21, 0), AcquireMode::Acquire);
    assert_eq!(hopeless, Err(AttachRefusal::FiltersFull));
    attach(&mut engine, of(10, 9), AcquireMode::Acquire).unwrap();
    assert_eq!(scanned(&mut engine), before, "the last ones are known still");
    attach(&mut engine, of(10, 1), AcquireMode::Acquire).unwrap();
    assert_eq!(scanned(&mut engine), before + 1, "the first ones had to go");
    assert_eq!(attach(&mut engine, of(10, 2), AcquireMode::Acquire), Err(AttachRefusal::FiltersFull));
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

#[test]
fn work_is_what_was_evaluated() {
    let mut engine = Engine::<Note>::new(Limits::default());
    let queue = engine.declare_queue(QueueProperties::default());
    engine.enqueue(0, queue, note(1)).unwrap();
    assert_eq!(engine.work(), 0, "without filters nothing is");
    let mut nodes = 0;
    for n in 0..5 {
        nodes += costly(n).node_count() as u64;
        let spec = ConsumerSpec { filter: Some(costly(n)), ..ConsumerSpec::new(0) };
        engine.attach_consumer(0, queue, spec).unwrap();
    }
    for n in 0..1000 {
        let filter = Filter::parse(&format!("id = {}", n + 1000)).unwrap();
        engine
            .attach_consumer(0, queue, ConsumerSpec { filter: Some(filter), ..ConsumerSpec::new(0) })
            .unwrap();
    }
    while engine.run_slice(0) {}
    let before = engine.work();
    engine.enqueue(0, queue, note(2)).unwrap();
    assert_eq!(engine.work() - before, nodes, "those that the index rules out cost nothing");
    let before = engine.work();
    engine.enqueue(0, queue, note(1001)).unwrap();
    assert!((nodes + 1..nodes + 10).contains(&(engine.work() - before)), "one more is asked");
}

#[test]
fn what_is_due_is_bounded_by_what_it_costs() {
    let mut bench = Bench::plain().unchecked();
    let until = Some(bench.now + TICK);
    for id in 0..200 {
        bench.put(Publication { held_until: until, ..note(id) });
    }
    let mut nodes = 0;
    for n in 0..20 {
        nodes += costly(n).node_count();
        bench.attach(ConsumerSpec { filter: Some(costly(n)), ..ConsumerSpec::new(0) });
    }
    bench.now += 2 * TICK;
    let most = (Limits::default().scan_nodes_max + nodes) as u64;
    let mut slices = 1;
    loop {
        let before = bench.engine.work();
        let more = bench.engine.handle_timeout(bench.now);
        assert!(bench.engine.work() - before <= most);
        if !more {
            break;
        }
        slices += 1;
    }
    assert_eq!(bench.depth().available, 200);
    assert!(slices > 200 * nodes / (Limits::default().scan_nodes_max + nodes));
}

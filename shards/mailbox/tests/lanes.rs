//! What one thread can show: order, bounds, kinds, and who is rung.

use corelane_mailbox::{Lane, Mailboxes, Port};
use std::sync::Arc;

fn taken<T: Send>(port: &mut Port<T>, per_lane_max: usize) -> Vec<(usize, Lane, T)> {
    let mut mail = Vec::new();
    port.take(per_lane_max, |from, lane, item| mail.push((from, lane, item)));
    mail
}

fn rung<T: Send>(port: &mut Port<T>) -> Vec<usize> {
    let mut rung = Vec::new();
    port.flush(|to| rung.push(to));
    rung
}

#[test]
fn control_is_taken_before_handoffs_and_each_lane_in_order() {
    let mut ports = Mailboxes::new(3, 4);
    ports[0].post(2, Lane::Handoff, "a1");
    ports[1].post(2, Lane::Handoff, "b1");
    ports[0].post(2, Lane::Control, "a2");
    ports[0].post(2, Lane::Handoff, "a3");
    let expected = vec![
        (0, Lane::Control, "a2"),
        (0, Lane::Handoff, "a1"),
        (0, Lane::Handoff, "a3"),
        (1, Lane::Handoff, "b1"),
    ];
    assert_eq!(taken(&mut ports[2], 64), expected);
    assert_eq!(taken(&mut ports[2], 64), vec![]);
}

#[test]
fn a_turn_takes_no_more_than_it_was_told_of_each_lane() {
    let mut ports = Mailboxes::new(3, 8);
    for number in 0..5 {
        ports[0].post(2, Lane::Handoff, number);
        ports[1].post(2, Lane::Handoff, number + 10);
    }
    let numbers = |port: &mut Port<u32>| taken(port, 2).iter().map(|item| item.2).collect::<Vec<_>>();
    assert_eq!(numbers(&mut ports[2]), [0, 1, 10, 11]);
    assert!(ports[2].is_marked() && !ports[2].prepare_sleep(), "nobody sleeps on mail it has seen");
    assert_eq!(numbers(&mut ports[2]), [2, 3, 12, 13]);
    assert_eq!(numbers(&mut ports[2]), [4, 14]);
    assert!(!ports[2].is_marked() && ports[2].prepare_sleep());
}

#[test]
fn a_full_lane_keeps_its_order_and_does_not_hold_up_the_other() {
    let mut ports = Mailboxes::new(2, 2);
    for number in 0..5 {
        ports[0].post(1, Lane::Handoff, number);
    }
    ports[0].post(1, Lane::Control, 100);
    assert_eq!(rung(&mut ports[0]), []);
    assert!(ports[0].prepare_sleep(), "who waits for room may sleep");

    assert_eq!(taken(&mut ports[1], 1).iter().map(|item| item.2).collect::<Vec<_>>(), [100, 0]);
    assert_eq!(rung(&mut ports[1]), [0], "who made room rings");
    ports[0].awake();
    assert_eq!(rung(&mut ports[0]), []);
    // What is posted later stays behind.
    ports[0].post(1, Lane::Handoff, 5);

    let mut received = Vec::new();
    while received.len() < 5 {
        received.extend(taken(&mut ports[1], 1).into_iter().map(|item| item.2));
        rung(&mut ports[1]);
        rung(&mut ports[0]);
    }
    assert_eq!(received, [1, 2, 3, 4, 5]);
    assert!(!ports[0].has_backlog());
}

#[test]
fn only_a_sleeper_is_rung_and_once_a_batch() {
    let mut ports = Mailboxes::new(2, 8);
    ports[0].post(1, Lane::Control, 1);
    assert_eq!(rung(&mut ports[0]), [], "it is awake");
    assert!(!ports[1].prepare_sleep());
    taken(&mut ports[1], 8);
    assert!(ports[1].prepare_sleep());
    ports[0].post(1, Lane::Control, 2);
    ports[0].post(1, Lane::Handoff, 3);
    ports[0].post(1, Lane::Control, 4);
    assert_eq!(rung(&mut ports[0]), [1]);
    ports[0].post(1, Lane::Control, 5);
    assert_eq!(rung(&mut ports[0]), [], "it has been rung and did not look yet");
    ports[1].awake();
    assert_eq!(taken(&mut ports[1], 8).len(), 4);
}

#[test]
fn mail_to_oneself_arrives() {
    let mut ports = Mailboxes::new(1, 1);
    ports[0].post(0, Lane::Control, 1);
    ports[0].post(0, Lane::Control, 2);
    assert_eq!(rung(&mut ports[0]), []);
    assert_eq!(taken(&mut ports[0], 8), [(0, Lane::Control, 1)]);
    rung(&mut ports[0]);
    assert!(!ports[0].prepare_sleep());
    assert_eq!(taken(&mut ports[0], 8), [(0, Lane::Control, 2)]);
}

#[test]
fn more_participants_than_a_word_has_bits() {
    let mut ports = Mailboxes::new(130, 2);
    for from in [0, 63, 64, 129] {
        ports[from].post(128, Lane::Control, from);
    }
    assert_eq!(taken(&mut ports[128], 8).iter().map(|item| item.0).collect::<Vec<_>>(), [0, 63, 64, 129]);
    for to in [0, 63, 64, 129] {
        assert!(ports[to].prepare_sleep());
        ports[128].post(to, Lane::Handoff, 0);
    }
    assert_eq!(rung(&mut ports[128]), [0, 63, 64, 129]);
}

#[test]
fn what_was_not_taken_is_dropped_with_the_ports() {
    let mail = Arc::new(());
    let mut ports = Mailboxes::new(2, 2);
    for _ in 0..5 {
        ports[0].post(1, Lane::Handoff, Arc::clone(&mail));
    }
    drop(ports);
    assert_eq!(Arc::strong_count(&mail), 1);
}

//! Does the ledger see what is wrong, and nothing else?

use super::*;

/// Queue 0, whose dead letters go to queue 1, and queue 2.
fn ledger() -> Ledger {
    let named = |name: &str| Node { name: name.to_owned(), ..Node::default() };
    let mortal = Node { dead_letter: Some(1), deliveries_max: Some(2), ..named("mortal") };
    Ledger::new(vec![mortal, named("dead"), named("plain")])
}

fn confirmed(ledger: &mut Ledger, node: usize) -> Number {
    let number = ledger.send(1, &[node], true, None);
    ledger.answered(number, true);
    number
}

fn deliver(ledger: &mut Ledger, number: Number, node: usize) {
    ledger.deliver(Seen { number, failed: 0, is_first: false }, node).unwrap();
}

/// What is found by what there is: for each node the numbers in it, with deliveries that failed.
fn check(ledger: &mut Ledger, contents: &[&[(Number, u32)]], expect: &[&str]) {
    ledger.lose_all();
    let seen = |(number, failed): &(Number, u32)| Seen { number: *number, failed: *failed, is_first: false };
    let mut contents: Contents = contents.iter().map(|all| all.iter().map(seen).collect()).collect();
    contents.resize(3, Vec::new());
    let faults: Vec<String> = ledger.faults(&contents).iter().map(ToString::to_string).collect();
    assert_eq!(faults.len(), expect.len(), "{faults:?}");
    for (fault, expect) in faults.iter().zip(expect) {
        assert!(fault.contains(expect), "{fault}, expected {expect}");
    }
}

#[test]
fn what_was_confirmed_has_to_be_there_and_what_was_not_may_be() {
    let mut ledger = ledger();
    let asked = ledger.send(1, &[2], true, None);
    let kept = confirmed(&mut ledger, 2);
    check(&mut ledger, &[&[], &[], &[(asked, 0), (kept, 0)]], &[]);
    check(&mut ledger, &[&[], &[], &[(kept, 0)]], &[]);
    check(&mut ledger, &[&[], &[], &[(asked, 0)]], &["lost"]);
    check(&mut ledger, &[&[], &[], &[(kept, 0), (asked, 0)]], &["out of order"]);
    check(&mut ledger, &[&[], &[], &[(kept, 0), (kept, 0)]], &["twice"]);
    check(&mut ledger, &[&[], &[(kept, 0)], &[]], &["where it was not sent", "lost"]);
}

#[test]
fn what_was_there_once_has_to_be_there_again() {
    let mut ledger = ledger();
    let asked = ledger.send(1, &[2], true, None);
    ledger.begin_with(&vec![vec![], vec![], vec![Seen { number: asked, failed: 0, is_first: false }]]);
    check(&mut ledger, &[], &["lost"]);
}

#[test]
fn what_was_refused_or_is_transient_is_not_there() {
    let mut ledger = ledger();
    let refused = ledger.send(1, &[2], true, None);
    ledger.answered(refused, false);
    let transient = ledger.send(1, &[2], false, None);
    ledger.answered(transient, true);
    check(&mut ledger, &[], &[]);
    check(&mut ledger, &[&[], &[], &[(refused, 0), (transient, 0)]], &["was refused", "was transient"]);
    let error = ledger.deliver(Seen { number: refused, failed: 0, is_first: true }, 2).unwrap_err();
    assert!(matches!(error, Fault::Refused(_)));
}

#[test]
fn what_was_accepted_may_come_back_until_that_outlives_a_crash() {
    let mut ledger = ledger();
    let number = confirmed(&mut ledger, 2);
    deliver(&mut ledger, number, 2);
    ledger.settle(number, 2, false);
    check(&mut ledger, &[&[], &[], &[(number, 0)]], &[]);
    check(&mut ledger, &[], &[]);
    assert!(ledger.deliver(Seen { number, failed: 0, is_first: false }, 2).is_err(), "it did not crash");
    ledger.outlives(number, 2, None);
    check(&mut ledger, &[&[], &[], &[(number, 0)]], &["doubled"]);
}

#[test]
fn a_message_has_one_holder_and_says_when_it_had_another() {
    let mut ledger = ledger();
    let number = confirmed(&mut ledger, 2);
    deliver(&mut ledger, number, 2);
    let again = Seen { number, failed: 0, is_first: false };
    assert!(ledger.deliver(again, 2).is_err());
    ledger.give_back(number, 2, None);
    assert!(ledger.deliver(Seen { is_first: true, ..again }, 2).is_err());
    ledger.deliver(again, 2).unwrap();
}

#[test]
fn a_rejected_message_is_in_one_of_two_queues() {
    let mut ledger = ledger();
    let number = confirmed(&mut ledger, 0);
    check(&mut ledger, &[&[], &[(number, 0)]], &["where it was not sent", "lost"]);
    deliver(&mut ledger, number, 0);
    ledger.settle(number, 0, true);
    check(&mut ledger, &[&[(number, 0)]], &[]);
    check(&mut ledger, &[&[], &[(number, 0)]], &[]);
    check(&mut ledger, &[&[(number, 0)], &[(number, 0)]], &["is in mortal and in dead"]);
    check(&mut ledger, &[], &["lost"]);
    deliver(&mut ledger, number, 1);
    ledger.settle(number, 1, false);
    check(&mut ledger, &[], &[]);
}

#[test]
fn deliveries_that_failed_are_counted_and_kill() {
    let mut ledger = ledger();
    let number = confirmed(&mut ledger, 0);
    deliver(&mut ledger, number, 0);
    assert_eq!(ledger.give_back(number, 0, Some(0)), 1);
    check(&mut ledger, &[&[(number, 1)]], &[]);
    check(&mut ledger, &[&[(number, 0)]], &[]);
    check(&mut ledger, &[&[(number, 2)]], &["counts"]);
    ledger.outlives(number, 0, Some(1));
    check(&mut ledger, &[&[(number, 0)]], &["counts"]);
    ledger.deliver(Seen { number, failed: 1, is_first: false }, 0).unwrap();
    ledger.give_back(number, 0, Some(1));
    check(&mut ledger, &[&[], &[(number, 2)]], &[]);
}

#[test]
fn of_what_was_settled_since_nobody_knows_how_often_it_has_failed() {
    // By the failure itself, that was one too many, and after it.
    let mut ledger = ledger();
    let number = confirmed(&mut ledger, 0);
    deliver(&mut ledger, number, 0);
    ledger.give_back(number, 0, Some(0));
    ledger.outlives(number, 0, Some(1));
    ledger.deliver(Seen { number, failed: 1, is_first: false }, 0).unwrap();
    ledger.give_back(number, 0, Some(1));
    ledger.outlives(number, 0, Some(2));
    let other = confirmed(&mut ledger, 2);
    deliver(&mut ledger, other, 2);
    ledger.give_back(other, 2, Some(0));
    ledger.deliver(Seen { number: other, failed: 1, is_first: false }, 2).unwrap();
    ledger.settle(other, 2, false);
    ledger.outlives(other, 2, Some(1));
    check(&mut ledger, &[&[(number, 1)], &[], &[(other, 0)]], &[]);
    check(&mut ledger, &[&[(number, 0)], &[], &[(other, 0)]], &["counts"]);
}

#[test]
fn a_transaction_is_all_or_nothing() {
    for answered in [false, true] {
        let mut ledger = ledger();
        let taken = confirmed(&mut ledger, 0);
        deliver(&mut ledger, taken, 0);
        let transaction = ledger.declare();
        ledger.settle_in(transaction, taken, 0);
        let posted = [1, 2].map(|node| ledger.send(1, &[node], true, Some(transaction)));
        assert!(ledger.deliver(Seen { number: posted[0], failed: 0, is_first: true }, 1).is_err());
        ledger.discharge(transaction, false);
        check(&mut ledger, &[&[], &[(posted[0], 0)], &[(posted[1], 0)]], &[]);
        check(&mut ledger, &[&[], &[(posted[0], 0)]], &["lost"]);
        if answered {
            ledger.end(transaction, true).unwrap();
            check(&mut ledger, &[], &["lost", "lost"]);
        } else {
            check(&mut ledger, &[&[(taken, 0)]], &[]);
            check(&mut ledger, &[&[(taken, 0)], &[(posted[0], 0)], &[(posted[1], 0)]], &["half"]);
            check(&mut ledger, &[], &["lost", "lost"]);
        }
    }
}

#[test]
fn of_a_transaction_that_was_not_committed_nothing_is_there() {
    let mut ledger = ledger();
    let taken = confirmed(&mut ledger, 2);
    deliver(&mut ledger, taken, 2);
    let transaction = ledger.declare();
    ledger.settle_in(transaction, taken, 2);
    let posted = ledger.send(1, &[2], true, Some(transaction));
    check(&mut ledger, &[&[], &[], &[(taken, 0)]], &[]);
    check(&mut ledger, &[&[], &[], &[(taken, 0), (posted, 0)]], &["half"]);
    check(&mut ledger, &[], &["lost"]);
}

#[test]
fn what_was_taken_in_a_transaction_that_is_to_be_rolled_back_may_count_as_failed() {
    let mut ledger = ledger();
    let number = confirmed(&mut ledger, 2);
    deliver(&mut ledger, number, 2);
    let transaction = ledger.declare();
    ledger.settle_in(transaction, number, 2);
    ledger.discharge(transaction, true);
    check(&mut ledger, &[&[], &[], &[(number, 0)]], &[]);
    check(&mut ledger, &[&[], &[], &[(number, 1)]], &[]);
    check(&mut ledger, &[&[], &[], &[(number, 2)]], &["counts"]);
    check(&mut ledger, &[], &["lost"]);
}

#[test]
fn a_dead_letter_that_was_taken_in_a_transaction_may_be_back_where_it_died() {
    let mut ledger = ledger();
    let letter = confirmed(&mut ledger, 0);
    deliver(&mut ledger, letter, 0);
    ledger.settle(letter, 0, true);
    deliver(&mut ledger, letter, 1);
    let other = confirmed(&mut ledger, 2);
    deliver(&mut ledger, other, 2);
    let transaction = ledger.declare();
    ledger.settle_in(transaction, letter, 1);
    ledger.settle_in(transaction, other, 2);
    ledger.discharge(transaction, false);
    check(&mut ledger, &[&[(letter, 0)], &[], &[(other, 0)]], &[]);
    check(&mut ledger, &[], &[]);
    check(&mut ledger, &[&[(letter, 0)]], &["half"]);
}

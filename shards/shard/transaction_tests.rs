//! Does a transaction keep no more than what it is about?

use super::*;

#[test]
fn what_has_an_outcome_is_not_kept_as_acquired() {
    let mut transactions = Transactions::default();
    let number = transactions.declare(LinkId(0), 0).expect("there are few");
    let acquired = Acquired { transaction: number, place: Place(0), acquisition: Acquisition(1) };
    let check = |transactions: &mut Transactions, count| {
        let found = transactions.find(number).expect("it is open");
        assert_eq!(found.acquired_count, count);
        assert!(found.acquired.len() <= 2 * count + ACQUIRED_GONE_MAX + 1, "{}", found.acquired.len());
    };
    for delivery_id in 0..1000 {
        transactions.note_acquired(1, (LinkId(1), delivery_id), acquired);
    }
    check(&mut transactions, 1000);
    for delivery_id in 0..1000 {
        transactions.forget_acquired((LinkId(1), delivery_id)).expect("it was acquired");
    }
    for delivery_id in 1000..100_000 {
        transactions.note_acquired(1, (LinkId(1), delivery_id), acquired);
        check(&mut transactions, 1);
        match delivery_id % 2 {
            0 => transactions.forget_link(LinkId(1), Failure::LinkEnded),
            _ => assert!(transactions.take_acquired((LinkId(1), delivery_id), number).is_some()),
        }
    }
}

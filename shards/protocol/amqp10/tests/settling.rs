//! Outcomes, both ways.

use super::script::{Script, check, check_with, config};
use crate::amqp10::Connection;

const SENT: &str = "header; open; begin; attach receiver; flow h=0 credit=100; !send count=6";
const RECEIVING: &str = "header; open; begin; attach sender; !grant 20";

#[test]
fn our_dispositions_join_into_ranges() {
    let mut script = Script::new(Connection::server(config(), 0));
    script.run(RECEIVING);
    let transfers: String = (0..9).map(|id| format!("transfer id={id} tag={id}; ")).collect();
    script.run(&transfers);
    script.log.clear();
    let state = corelane_wire::amqp10::DeliveryState::Accepted;
    let released = corelane_wire::amqp10::DeliveryState::Released;
    for id in [0, 1, 2, 4, 3] {
        script.connection.settle(crate::amqp10::LinkId(0), id, &state);
    }
    for id in [6, 5, 7] {
        script.connection.settle(crate::amqp10::LinkId(0), id, &released);
    }
    script.run("!settle 8 rejected-why");
    assert_eq!(
        script.log,
        [
            "> disposition receiver 0..2 settled accepted",
            "> disposition receiver 3..4 settled accepted",
            "> disposition receiver 5..7 settled released",
            "> disposition receiver 8 settled rejected x:why"
        ]
    );
}

#[test]
fn s28_what_the_peer_has_settled_is_not_answered() {
    check_with(
        config(),
        RECEIVING,
        "transfer id=0 tag=a settled; !settle 0 accepted; transfer id=1 tag=b; disposition sender first=1 settled
         !settle 1 accepted; transfer id=2 tag=c more; disposition sender first=2 settled; transfer; !settle 2 accepted",
        "* message 0 id=0 size=1 settled; * message 0 id=1 size=1; * message 0 id=2 size=2 settled",
    );
}

#[test]
fn s29_a_range_settles_in_order_and_each_only_once() {
    check_with(
        config(),
        SENT,
        "disposition first=2 settled accepted; disposition first=4 settled released; disposition first=0 last=90 settled accepted
         disposition first=0 last=90 settled accepted; disposition first=5 last=3 settled accepted; disposition first=77 settled",
        "* disposition accepted settled; * outcome l=0 2; * disposition released settled; * outcome l=0 4
         * disposition accepted settled; * outcome l=0 0; * outcome l=0 1; * outcome l=0 3; * outcome l=0 5",
    );
}

#[test]
fn s29_ranges_that_start_below_the_first_delivery() {
    check_with(
        config(),
        SENT,
        "disposition first=4294967290 last=1 settled accepted; disposition first=2147483647 last=2 settled",
        "* disposition accepted settled; * outcome l=0 0; * outcome l=0 1",
    );
}

#[test]
fn s30_s31_every_outcome_reaches_the_caller_as_it_was() {
    check_with(
        config(),
        SENT,
        "disposition first=0 settled rejected; disposition first=1 settled rejected-why; disposition first=2 settled released
         disposition first=3 settled failed; disposition first=4 settled elsewhere; disposition first=5 settled",
        "* disposition rejected settled; * outcome l=0 0; * disposition rejected x:why settled; * outcome l=0 1
         * disposition released settled; * outcome l=0 2; * disposition modified failed settled; * outcome l=0 3
         * disposition modified elsewhere settled; * outcome l=0 4; * disposition settled; * outcome l=0 5",
    );
}

#[test]
fn a_receiver_that_waits_for_us_to_settle() {
    // AMQP 1.0 §2.6.12: the outcome unsettled, then our settlement.
    check_with(
        config(),
        SENT,
        "disposition first=0 last=2 accepted; disposition first=3 rejected-why; disposition first=0 last=3 settled accepted
         disposition first=4 received; disposition first=4; disposition first=4 last=5 failed",
        "* disposition accepted; * outcome l=0 0; * outcome l=0 1; * outcome l=0 2
         > disposition sender 0..2 settled accepted
         * disposition rejected x:why; * outcome l=0 3; > disposition sender 3 settled
         * disposition received; * outcome l=0 4 provisional
         * disposition modified failed; * outcome l=0 4; * outcome l=0 5; > disposition sender 4..5 settled modified failed",
    );
}

#[test]
fn an_outcome_inside_a_transaction_is_provisional() {
    check_with(
        config(),
        SENT,
        "disposition first=0 last=1 transactional; disposition first=2 settled transactional; !settle-sent 0 accepted
         !settle-sent 0 accepted; !settle-sent 1; disposition first=0 last=2 settled accepted",
        "* disposition transactional; * outcome l=0 0 provisional; * outcome l=0 1 provisional
         * disposition transactional settled; * outcome l=0 2
         > disposition sender 0 settled accepted; > disposition sender 1 settled",
    );
}

#[test]
fn second_settles_after_the_peer() {
    check(
        "attach sender rcv=second; !grant 9; transfer id=0 tag=a; transfer id=1 tag=b; transfer id=2 tag=c rcv=first
         !settle 0 accepted; !settle 0 released; transfer id=3 tag=a; detach closed; attach sender; transfer id=4 tag=a
         disposition sender first=0 last=1 settled; !settle 1 accepted; !settle 2 accepted",
        "* attached 0 s=0 l; > attach h=0 receiver l second; > flow h=0 dc=0 credit=9 nii=0 window=100
         * message 0 id=0 size=1; * message 0 id=1 size=1; * message 0 id=2 size=1
         > disposition receiver 0 accepted
         > detach h=0 closed amqp:invalid-field; * detached 0 closed Fault amqp:invalid-field
         * attached 1 s=0 l; > attach h=1 receiver l
         > detach h=1 closed amqp:link:transfer-limit-exceeded; * detached 1 closed Fault amqp:link:transfer-limit-exceeded
         > disposition receiver 2 settled accepted",
    );
}

#[test]
fn second_does_not_wait_for_a_peer_whose_end_is_gone() {
    check(
        "attach sender rcv=second; !grant 9; transfer id=0 tag=a; transfer id=1 tag=b; !settle 0 accepted; detach closed
         !settle 1 accepted; attach sender",
        "* attached 0 s=0 l; > attach h=0 receiver l second; > flow h=0 dc=0 credit=9 nii=0 window=100
         * message 0 id=0 size=1; * message 0 id=1 size=1; > disposition receiver 0 accepted
         > detach h=0 closed; * detached 0 closed Peer; > disposition receiver 1 settled accepted
         * attached 0 s=0 l; > attach h=0 receiver l",
    );
}

#[test]
fn outcomes_of_a_link_that_is_gone_are_nobodys() {
    check_with(
        config(),
        SENT,
        "attach h=1 receiver name=m; flow h=1 credit=9 nii=6; !send l=1 count=2; detach closed
         disposition first=0 last=9 settled accepted; attach receiver; flow h=0 credit=9 nii=8; !send
         disposition first=0 last=9 settled accepted",
        "* attached 1 s=0 m; > attach h=1 sender m; * flow 1 credit=9; > transfer h=1 id=6 size=1; > transfer h=1 id=7 size=1
         > detach h=0 closed; * detached 0 closed Peer; * disposition accepted settled; * outcome l=1 6; * outcome l=1 7
         * attached 0 s=0 l; > attach h=0 sender l; * flow 0 credit=9; > transfer h=0 id=8 size=1
         * disposition accepted settled; * outcome l=0 8",
    );
}

#[test]
fn outcomes_still_count_until_our_detach_is_answered() {
    check_with(
        config(),
        SENT,
        "!detach closed; disposition first=0 last=1 settled accepted; detach closed; disposition first=2 settled accepted",
        "> detach h=0 closed; * disposition accepted settled; * outcome l=0 0; * outcome l=0 1; * detached 0 closed Peer",
    );
}

//! Windows and credit.

use super::script::{check, check_client, check_with, config};
use crate::amqp10::Config;

const SENDING: &str = "header; open; begin; attach receiver";

#[test]
fn s23_drain_is_answered_whatever_there_is() {
    // AMQP 1.0 §2.6.7. Nothing to send; some; no credit in the first place; asked twice.
    let drained = "> flow h=0 dc=10 credit=0 drain nii=0 window=100";
    check_with(
        config(),
        SENDING,
        "flow h=0 credit=10 drain; !drained",
        &format!("* flow 0 credit=10 drain; {drained}"),
    );
    check_with(
        config(),
        SENDING,
        "flow h=0 credit=10 drain; !send count=3; !drained",
        &format!(
            "* flow 0 credit=10 drain; > transfer h=0 id=0 size=1; > transfer h=0 id=1 size=1; > transfer h=0 id=2 size=1
             {drained}"
        ),
    );
    check_with(
        config(),
        SENDING,
        "flow h=0 credit=0 drain; !drained; flow h=0 credit=0 drain; !drained",
        "* flow 0 credit=0 drain; > flow h=0 dc=0 credit=0 drain nii=0 window=100
         * flow 0 credit=0 drain; > flow h=0 dc=0 credit=0 drain nii=0 window=100",
    );
    // Not asked for, or not any more: the credit stays.
    check_with(
        config(),
        SENDING,
        "flow h=0 credit=10 drain; flow h=0 credit=10; !drained; !credit",
        "* flow 0 credit=10 drain; * flow 0 credit=10; = 10",
    );
}

#[test]
fn s23_drain_as_receiver() {
    check_client(
        config(),
        "header; open; !begin; begin remote=0; !attach receiver; attach sender",
        "!grant 10 drain; transfer id=0 tag=a settled; flow h=0 dc=10 credit=0 drain noi=1; !credit
         transfer id=1 tag=b settled",
        "> flow h=0 dc=0 credit=10 drain nii=0 window=100; * message 0 id=0 size=1 settled; * flow 0 credit=0; = 0
         > detach h=0 closed amqp:link:transfer-limit-exceeded
         * detached 0 closed Fault amqp:link:transfer-limit-exceeded",
    );
}

#[test]
fn s25_a_used_up_window_pauses_and_goes_on() {
    check_with(
        config(),
        "header; open; begin window=2; attach receiver",
        "flow h=0 credit=10 window=2; !send count=3; !credit; flow nii=1 window=1; flow nii=2 window=2; !send count=3",
        "* flow 0 credit=10; > transfer h=0 id=0 size=1; > transfer h=0 id=1 size=1; = NoWindow; = 8
         * window 0; > transfer h=0 id=2 size=1; > transfer h=0 id=3 size=1; = NoWindow",
    );
}

#[test]
fn a_window_may_close_before_the_peer_has_our_begin() {
    // AMQP 1.0 §2.5.6: no next-incoming-id means the first of ours.
    check_with(
        config(),
        "header; open; begin window=2; attach receiver",
        "flow h=0 credit=10 early window=2; !send count=2; flow early window=5; !send",
        "* flow 0 credit=10; > transfer h=0 id=0 size=1; > transfer h=0 id=1 size=1; * window 0; > transfer h=0 id=2 size=1",
    );
}

#[test]
fn our_window_is_renewed_at_half_and_only_when_it_is_used() {
    let config = Config { incoming_window: 8, ..config() };
    let transfer = |id: u32| format!("transfer id={id} tag={id} settled; ");
    let message = |id: u32| format!("* message 0 id={id} size=1 settled; ");
    let input: String = (0..9).map(transfer).collect();
    let first: String = (0..4).map(message).collect();
    let second: String = (4..8).map(message).collect();
    check_with(
        config,
        "header; open; begin; attach sender; !grant 100",
        &input,
        &format!("{first} > flow nii=4 window=8; {second} > flow nii=8 window=8; {}", message(8)),
    );
}

#[test]
fn no_flow_is_written_that_nobody_needs() {
    check(
        "begin ch=1; attach sender; attach h=1 receiver name=m; !grant 5; transfer id=0 tag=a",
        "> ch=1 begin remote=1; * begun 1; * attached 0 s=0 l; > attach h=0 receiver l; * attached 1 s=0 m
         > attach h=1 sender m; > flow h=0 dc=0 credit=5 nii=0 window=100; * message 0 id=0 size=1",
    );
}

#[test]
fn s26_credit_is_what_the_receiver_said_last() {
    check_with(
        config(),
        SENDING,
        "flow h=0 credit=1000 dc=0; !send count=2; flow h=0 credit=1000 dc=2 nii=2; flow h=0 credit=1000 dc=1 nii=2
         flow h=0 credit=1 dc=0; flow h=0 credit=0 dc=2 nii=2; !send; flow h=0 credit=4294967295 dc=2 nii=2",
        "* flow 0 credit=1000; > transfer h=0 id=0 size=1; > transfer h=0 id=1 size=1
         * flow 0 credit=1000; * flow 0 credit=999; * flow 0 credit=0; * flow 0 credit=0; = NoCredit
         * flow 0 credit=4294967295",
    );
}

#[test]
fn credit_that_is_taken_back_spares_what_is_in_flight() {
    check(
        "attach sender; !grant 5; transfer id=0 tag=a settled; !grant 0; transfer id=1 tag=b settled
         transfer id=2 tag=c settled; !credit; !grant 2; transfer id=3 tag=d settled; transfer id=4 tag=e settled; !credit
         transfer id=5 tag=f settled",
        "* attached 0 s=0 l; > attach h=0 receiver l; > flow h=0 dc=0 credit=5 nii=0 window=100
         * message 0 id=0 size=1 settled; > flow h=0 dc=1 credit=0 nii=1 window=100; * message 0 id=1 size=1 settled
         * message 0 id=2 size=1 settled; = 0; > flow h=0 dc=3 credit=2 nii=3 window=100
         * message 0 id=3 size=1 settled; * message 0 id=4 size=1 settled; = 0
         > detach h=0 closed amqp:link:transfer-limit-exceeded
         * detached 0 closed Fault amqp:link:transfer-limit-exceeded",
    );
}

#[test]
fn s35_a_pull_leaves_nothing_outstanding() {
    // Credit 1, then a drain when the caller's patience is over: no message can follow the answer.
    check_with(
        config(),
        SENDING,
        "flow h=0 credit=1; flow h=0 credit=1 drain; !drained; !ready; !send; flow h=0 dc=1 credit=1; !send",
        "* flow 0 credit=1; * flow 0 credit=1 drain; > flow h=0 dc=1 credit=0 drain nii=0 window=100; = NoCredit; = NoCredit
         * flow 0 credit=1; > transfer h=0 id=0 size=1",
    );
}

#[test]
fn an_echo_is_answered_once() {
    check_with(
        config(),
        SENDING,
        "!available 7; flow h=0 credit=3 echo; flow echo; flow h=0 credit=3 drain echo; !drained",
        "* flow 0 credit=3 available=7; > flow h=0 dc=0 credit=3 available=7 nii=0 window=100; > flow nii=0 window=100
         * flow 0 credit=3 available=7 drain; > flow h=0 dc=0 credit=3 available=7 drain nii=0 window=100
         > flow h=0 dc=3 credit=0 available=7 drain nii=0 window=100",
    );
}

#[test]
fn a_flow_that_claims_transfers_that_were_not_sent_gives_no_more() {
    check_with(
        config(),
        "header; open; begin window=0; attach receiver",
        "flow h=0 dc=100 credit=2 nii=100 window=2; !send count=3",
        "* flow 0 credit=2; * window 0; > transfer h=0 id=0 size=1; > transfer h=0 id=1 size=1; = NoCredit",
    );
}

//! Messages that a peer gets, and what it says of them.

use super::script::{OPENED, check, check_with, config};

#[test]
fn a_consumer_gets_and_acknowledges() {
    check(
        "consume q=q tag=t; !send l=1 x=e k=q; !send l=1 redelivered size=9000; ack 1; reject 2 requeue",
        "* consume 1 l=1 q=q; > consume-ok tag=t
         > deliver 1 tag=t x=e k=q; > head 1; > body 1
         > deliver 2 tag=t redelivered; > head 9000; > body 4088; > body 412; > body 4088; > body 412
         * accepted; * outcome l=1 0; * released; * outcome l=1 1",
    );
}

/// Two consumers, `a` and `b` (links 1 and 2), with deliveries 1 to 5, taking turns.
const FIVE: &str = "header; start-ok; tune-ok; c.open; open; consume q=q tag=a; consume q=q tag=b
    !send l=1 size=0; !send l=2 size=0; !send l=1 size=0; !send l=2 size=0; !send l=1 size=0";

#[test]
fn outcomes_of_many_come_in_the_order_of_their_tags() {
    check_with(
        config(),
        FIVE,
        "ack 3 multiple; nack 5 multiple requeue",
        "* accepted; * outcome l=1 0; * outcome l=2 1; * outcome l=1 2; * released; * outcome l=2 3; * outcome l=1 4",
    );
    check_with(
        config(),
        FIVE,
        "reject 2; nack 0 multiple; ack 0 multiple",
        "* rejected; * outcome l=2 1; * rejected; * outcome l=1 0; * outcome l=1 2; * outcome l=2 3; * outcome l=1 4",
    );
}

#[test]
fn s25_unknown_tags() {
    for (input, told, tag, by) in [
        ("ack 6", "", "6", "basic.ack"),
        ("ack 0", "", "0", "basic.ack"),
        ("reject 0", "", "0", "basic.reject"),
        ("ack 2; ack 2", "* accepted; * outcome l=2 1;", "2", "basic.ack"),
        ("ack 2; nack 2 multiple", "* accepted; * outcome l=2 1;", "2", "basic.nack"),
        ("nack 18446744073709551615 multiple requeue", "", "18446744073709551615", "basic.nack"),
        ("ack 4294967297", "", "4294967297", "basic.ack"),
    ] {
        check_with(
            config(),
            FIVE,
            input,
            &format!(
                "{told} > channel.close 406 (PRECONDITION_FAILED - unknown delivery tag {tag}) by {by}
                 * detached l=0; * detached l=1; * detached l=2; * ended 1 406"
            ),
        );
    }
    // Tags are the channel's: after a close they begin anew.
    check_with(
        config(),
        FIVE,
        "close; open; ack 3",
        "* detached l=0; * detached l=1; * detached l=2; > channel.close-ok; * ended 1
         > channel.open-ok; * channel 1 l=2
         > channel.close 406 (PRECONDITION_FAILED - unknown delivery tag 3) by basic.ack; * detached l=2; * ended 1 406",
    );
}

#[test]
fn s17_prefetch_of_consumers() {
    // Only those that come later have it.
    check(
        "consume q=q tag=a; qos 2; consume q=q tag=b; qos 1; !send l=1 count=3 size=0; !send l=2 count=3 size=0
         !credit l=2; !credit l=1; ack 4; ack 3 multiple; !credit l=2; !send l=2 size=0; ack 0 multiple",
        "* consume 1 l=1 q=q; > consume-ok tag=a; > qos-ok; * consume 1 l=2 q=q; > consume-ok tag=b; > qos-ok
         > deliver 1 tag=a; > head 0; > deliver 2 tag=a; > head 0; > deliver 3 tag=a; > head 0
         > deliver 4 tag=b; > head 0; > deliver 5 tag=b; > head 0; = NotReady(NoCredit)
         = 0; = 3; * accepted; * outcome l=2 3; * link-flow l=2
         * accepted; * outcome l=1 0; * outcome l=1 1; * outcome l=1 2
         = 1; > deliver 6 tag=b; > head 0
         * accepted; * outcome l=2 4; * outcome l=2 5; * link-flow l=2",
    );
    // Without acknowledgements there is no limit.
    check(
        "qos 1; consume q=q tag=a noack; !send l=1 count=3 size=0; !credit l=1; ack 1",
        "> qos-ok; * consume 1 l=1 q=q; > consume-ok tag=a
         > deliver 1 tag=a; > head 0; > deliver 2 tag=a; > head 0; > deliver 3 tag=a; > head 0; = 4294967295
         > channel.close 406 (PRECONDITION_FAILED - unknown delivery tag 1) by basic.ack
         * detached l=0; * detached l=1; * ended 1 406",
    );
    check(
        "qos 1 size=10; c.close-ok",
        "> connection.close 540 (NOT_IMPLEMENTED - prefetch_size!=0 (10)) by basic.qos; * detached l=0; * ended 1; * closed 540",
    );
}

#[test]
fn s17_prefetch_of_a_channel() {
    // It holds at once, for all together, and beside that of each.
    check(
        "consume q=q tag=a; qos 2; consume q=q tag=b; qos 3 global; !send l=1 count=2 size=0; !send l=2 count=2 size=0
         !ready l=1; ack 1; !ready l=1; !send l=2 size=0; !ready l=2; !ready l=1; qos 4 global; !ready l=2; !ready l=1; qos 0 global; !credit l=1",
        "* consume 1 l=1 q=q; > consume-ok tag=a; > qos-ok; * consume 1 l=2 q=q; > consume-ok tag=b; > qos-ok; * session-flow 1
         > deliver 1 tag=a; > head 0; > deliver 2 tag=a; > head 0; > deliver 3 tag=b; > head 0; = NotReady(NoCredit)
         = NoCredit; * accepted; * outcome l=1 0; * session-flow 1; = Ready
         > deliver 4 tag=b; > head 0; = NoCredit; = NoCredit; > qos-ok; * session-flow 1; = NoCredit; = Ready
         > qos-ok; * session-flow 1; = 5",
    );
    // Consumers to come have none of it, and those without acknowledgements do not wait for the others.
    check(
        "qos 1 global; consume q=q tag=a; consume q=q tag=b noack; !send l=1 size=0; !ready l=1; !ready l=2; qos 0 global; !credit l=1",
        "> qos-ok; * session-flow 1; * consume 1 l=1 q=q; > consume-ok tag=a; * consume 1 l=2 q=q; > consume-ok tag=b
         > deliver 1 tag=a; > head 0; = NoCredit; = Ready; > qos-ok; * session-flow 1; = 7",
    );
    // What is got does not count.
    check(
        "consume q=q tag=a; qos 1 global; !manual; get q=q; !send l=2 size=0; !ready l=1; !send l=1 size=0; ack 1; !ready l=1",
        "* consume 1 l=1 q=q; > consume-ok tag=a; > qos-ok; * session-flow 1; * get 1 l=2 q=q; > get-ok 1 left=5; > head 0
         = Ready; > deliver 2 tag=a; > head 0; * accepted; * outcome l=2 0; = NoCredit",
    );
}

#[test]
fn s32_a_cancelled_consumer_gets_nothing_more() {
    check(
        "consume q=q tag=a; !send l=1 count=2 size=0; cancel tag=a; !ready l=1; !send l=1; consume q=q tag=a; ack 2; ack 1; cancel tag=x",
        "* consume 1 l=1 q=q; > consume-ok tag=a; > deliver 1 tag=a; > head 0; > deliver 2 tag=a; > head 0
         > cancel-ok tag=a; * cancel l=1; = Detached; = NotReady(Detached)
         * consume 1 l=2 q=q; > consume-ok tag=a
         * accepted; * outcome l=1 1; * accepted; * outcome l=1 0; * detached l=1; > cancel-ok tag=x",
    );
    check(
        "consume q=q nowait; cancel tag=amq.ctag-1.1 nowait",
        "* consume 1 l=1 q=q; * cancel l=1; * detached l=1",
    );
}

#[test]
fn s33_a_consumer_whose_queue_is_gone() {
    let before = "header; start-ok cancels; tune-ok; c.open; open; consume q=q tag=a; consume q=q tag=b; !send l=1 size=0";
    check_with(
        config(),
        before,
        "!cancel l=1; !cancel l=1; !cancel l=2; cancel-ok tag=a; !ready l=1; ack 1; !cancel l=1; !cancel l=0",
        "> cancel tag=a; > cancel tag=b; * detached l=2; = Detached; * accepted; * outcome l=1 0; * detached l=1",
    );
    check_with(
        config(),
        &before.replace("cancels", ""),
        "!cancel l=2; !cancel l=1; ack 1",
        "* detached l=2; * accepted; * outcome l=1 0; * detached l=1",
    );
}

#[test]
fn who_deletes_a_queue_is_answered_before_its_consumers_end() {
    let cancels = "header; start-ok cancels; tune-ok; c.open; open; open ch=2; consume q=q tag=a; consume q=q tag=b; consume ch=2 q=q tag=c";
    // Another channel has asked for nothing.
    check_with(
        config(),
        cancels,
        "!manual; delete q=q; !cancel l=2; !cancel l=3; !cancel l=4; !reply removed=7",
        "* request 1 QueueDelete; * detached l=2; * detached l=3; > ch=2 cancel tag=c; * detached l=4
         > queue.delete-ok 7; > cancel tag=a; > cancel tag=b",
    );
    check_with(
        config(),
        cancels,
        "!manual; delete q=q nowait; !cancel l=2; !reply removed=7; !cancel l=3",
        "* request 1 QueueDelete; * detached l=2; > cancel tag=a; > cancel tag=b; * detached l=3",
    );
}

#[test]
fn tags_of_consumers() {
    check(
        "consume q=q; consume q=q tag=amq.ctag-1.3; consume q=q; consume q=q; open ch=2; consume ch=2 q=q tag=amq.ctag-1.3",
        "* consume 1 l=1 q=q; > consume-ok tag=amq.ctag-1.1; * consume 1 l=2 q=q; > consume-ok tag=amq.ctag-1.3
         * consume 1 l=3 q=q; > consume-ok tag=amq.ctag-1.2; * consume 1 l=4 q=q; > consume-ok tag=amq.ctag-1.4
         > ch=2 channel.open-ok; * channel 2 l=5; * consume 2 l=6 q=q; > ch=2 consume-ok tag=amq.ctag-1.3",
    );
    check(
        "consume q=q tag=a; consume q=q tag=a; c.close-ok",
        "* consume 1 l=1 q=q; > consume-ok tag=a
         > connection.close 530 (NOT_ALLOWED - attempt to reuse consumer tag 'a') by basic.consume
         * detached l=0; * detached l=1; * ended 1; * closed 530",
    );
}

#[test]
fn recovering() {
    check_with(
        config(),
        FIVE,
        "ack 2; recover requeue; recover requeue; recover-async requeue; recover; c.close-ok",
        "* accepted; * outcome l=2 1
         > recover-ok; * released; * outcome l=1 0; * outcome l=1 2; * outcome l=2 3; * outcome l=1 4
         > recover-ok
         > connection.close 540 (NOT_IMPLEMENTED - requeue=false) by basic.recover
         * detached l=0; * detached l=1; * detached l=2; * ended 1; * closed 540",
    );
    check_with(config(), FIVE, "cancel tag=a + recover-async requeue",
        "> cancel-ok tag=a; * cancel l=1
         * released; * outcome l=1 0; * outcome l=2 1; * outcome l=1 2; * outcome l=2 3; * outcome l=1 4; * detached l=1");
}

#[test]
fn getting() {
    // One link for a queue, and none is forgotten that has something unsettled.
    check(
        "!manual; get q=a; !ready l=1; !send l=1 size=0; !ready l=1; !send l=1; get q=a noack; !send l=1 size=0; get q=b; !empty l=2; !empty l=2
         ack 1; ack 2; close-ok; !auto; open; get q=a",
        "* get 1 l=1 q=a; = Ready; > get-ok 1 left=5; > head 0; = NoCredit; = NotReady(NoCredit)
         * get 1 l=1 q=a noack; > get-ok 2 left=5; > head 0; * get 1 l=2 q=b; > get-empty
         * accepted; * outcome l=1 0
         > channel.close 406 (PRECONDITION_FAILED - unknown delivery tag 2) by basic.ack
         * detached l=0; * detached l=1; * detached l=2; * ended 1 406
         > channel.open-ok; * channel 1 l=2; * get 1 l=1 q=a; > get-empty",
    );
    check(
        "!manual; get q=0; !send l=1 size=0; !auto; get q=1; get q=2; get q=3; get q=4; get q=5; get q=6; get q=7; get q=8; get q=9; get q=1; get q=0",
        "* get 1 l=1 q=0; > get-ok 1 left=5; > head 0
         * get 1 l=2 q=1; > get-empty; * get 1 l=3 q=2; > get-empty; * get 1 l=4 q=3; > get-empty; * get 1 l=5 q=4; > get-empty
         * get 1 l=6 q=5; > get-empty; * get 1 l=7 q=6; > get-empty; * get 1 l=8 q=7; > get-empty; * get 1 l=9 q=8; > get-empty
         * detached l=2; * get 1 l=2 q=9; > get-empty
         * detached l=3; * get 1 l=3 q=1; > get-empty; * get 1 l=1 q=0; > get-empty",
    );
    check(
        "get",
        "> channel.close 404 (NOT_FOUND - no previously declared queue) by basic.get; * detached l=0; * ended 1 404",
    );
}

#[test]
fn outcomes_within_a_transaction() {
    let told = "* accepted in transaction; * outcome l=1 0; * outcome l=2 3
        * rejected in transaction; * outcome l=2 1; * released in transaction; * outcome l=1 2";
    check_with(
        config(),
        FIVE,
        "tx.select; ack 1; nack 2; nack 3 requeue; ack 4; tx.commit; ack 5; tx.rollback; recover requeue; tx.commit",
        &format!(
            "> tx.select-ok; {told}; * request 1 TxCommit; > tx.commit-ok; * request 1 TxRollback; > tx.rollback-ok
             > recover-ok; * released; * outcome l=1 4; * request 1 TxCommit; > tx.commit-ok"
        ),
    );
    // Said is said, until it is rolled back; and what is said is not recovered.
    check_with(
        config(),
        FIVE,
        "tx.select; ack 4 multiple; recover requeue; tx.rollback; nack 0 multiple; ack 1",
        "> tx.select-ok; > recover-ok; * released; * outcome l=1 4; * request 1 TxRollback; > tx.rollback-ok
         > channel.close 406 (PRECONDITION_FAILED - unknown delivery tag 1) by basic.ack
         * detached l=0; * detached l=1; * detached l=2; * ended 1 406",
    );
    // A consumer has more when it is certain.
    check_with(
        config(),
        &format!("{OPENED}; qos 1; consume q=q tag=a; tx.select; !send l=1 size=0"),
        "ack 1; !ready l=1; tx.commit; !ready l=1",
        "= NoCredit; * accepted in transaction; * outcome l=1 0; * link-flow l=1; * request 1 TxCommit; > tx.commit-ok; = Ready",
    );
}

#[test]
fn a_channel_that_takes_no_content() {
    check(
        "consume q=q tag=a noack; flow off; !ready l=1; !credit l=1; flow on; !ready l=1; flow-ok",
        "* consume 1 l=1 q=q; > consume-ok tag=a; > channel.flow-ok off; * session-flow 1; = NoCredit; = 0
         > channel.flow-ok on; * session-flow 1; = Ready",
    );
}

#[test]
fn properties_that_do_not_fit_the_peers_frames() {
    check(
        "consume q=q tag=a; !send l=1 properties=4077; !send l=1 properties=4076 size=0",
        "* consume 1 l=1 q=q; > consume-ok tag=a; = TooLarge; > deliver 1 tag=a; > head 0",
    );
}

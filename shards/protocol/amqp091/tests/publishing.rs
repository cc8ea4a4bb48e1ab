//! Messages that a peer publishes, and what it hears of them.

use super::script::{OPENED, check, check_with, config};
use crate::amqp091::Config;

#[test]
fn messages_of_one_frame_and_of_several() {
    check(
        "message k=q; message x=e k=q size=0 mandatory; message k=q size=9000; publish k=q; head size=3; body size=3
         publish x=e k=q + head size=0",
        "* message l=0 1 k=q 1 settled; * message l=0 2 x=e k=q 0 settled mandatory
         * message l=0 3 k=q 9000 settled assembled; * message l=0 4 k=q 3 settled assembled
         * message l=0 5 x=e k=q 0 settled",
    );
    // Channels take turns within their messages.
    check(
        "open ch=2; publish k=a; publish ch=2 k=b; head size=4; head ch=2 size=2; body size=2; body ch=2 size=2; body size=2",
        "> ch=2 channel.open-ok; * channel 2 l=1; * message l=1 1 k=b 2 settled assembled
         * message l=0 1 k=a 4 settled assembled",
    );
    check(
        "open ch=2; publish ch=2 k=b + head ch=2 size=2; publish k=a + head size=2 + body ch=2 size=2 + body size=2
         publish ch=2 k=d; publish k=c + head ch=2 size=0 + head size=0",
        "> ch=2 channel.open-ok; * channel 2 l=1; * message l=1 1 k=b 2 settled assembled; * message l=0 1 k=a 2 settled assembled
         * message l=1 2 k=d 0 settled assembled; * message l=0 2 k=c 0 settled assembled",
    );
}

/// What closes the connection while a message is on its way.
#[track_caller]
fn closes(input: &str, code: u16, text: &str, by: &str) {
    check(
        &format!("{input}; c.close-ok"),
        &format!("> connection.close {code} ({text}) by {by}; * detached l=0; * ended 1; * closed {code}"),
    );
}

#[test]
fn frames_of_content_out_of_place() {
    // §4.2.6.
    let no_class = "method 0 of class 0";
    closes("head size=1", 505, "UNEXPECTED_FRAME - a content header that does not belong here", no_class);
    closes("body", 505, "UNEXPECTED_FRAME - a content body that does not belong here", no_class);
    closes("publish; body", 505, "UNEXPECTED_FRAME - a content body that does not belong here", no_class);
    closes("publish + body", 505, "UNEXPECTED_FRAME - a content body that does not belong here", no_class);
    closes(
        "publish; head size=2; head size=2",
        505,
        "UNEXPECTED_FRAME - a content header that does not belong here",
        no_class,
    );
    for input in [
        "publish; ack 1",
        "publish + publish",
        "publish + head size=2 + publish",
        "publish; head size=2; close",
    ] {
        closes(input, 505, "UNEXPECTED_FRAME - expected content, got a method", no_class);
    }
    closes(
        "publish; head size=2; body size=3",
        501,
        "FRAME_ERROR - a body of 3 bytes or more, announced were 2",
        "basic.publish",
    );
    closes(
        "publish + head size=2 + body size=3",
        501,
        "FRAME_ERROR - a body of 3 bytes or more, announced were 2",
        "basic.publish",
    );
    closes(
        "publish; bytes 02 00 01 00 00 00 0e 00 32 00 00 00 00 00 00 00 00 00 00 00 00 ce",
        505,
        "UNEXPECTED_FRAME - content header of class 50",
        "basic.publish",
    );
    closes("message immediate", 540, "NOT_IMPLEMENTED - immediate=true", "basic.publish");
}

#[test]
fn a_body_that_is_too_large_closes_its_channel() {
    for input in
        ["publish + head size=20001", "publish; head size=20001; body size=4000", "message size=20001"]
    {
        check(
            &format!("{input}; message k=ignored; close-ok; open"),
            "> channel.close 406 (PRECONDITION_FAILED - message size 20001 is larger than configured max size 20000) by basic.publish
             * detached l=0; * ended 1 406; > channel.open-ok; * channel 1 l=0",
        );
    }
    let small = Config { max_message_size: 10, ..config() };
    check_with(
        small,
        OPENED,
        "message size=11; close-ok",
        "> channel.close 406 (PRECONDITION_FAILED - message size 11 is larger than configured max size 10) by basic.publish
         * detached l=0; * ended 1 406",
    );
}

#[test]
fn confirms_are_gathered() {
    check("confirm; confirm nowait", "> confirm.select-ok");
    // Tags from the oldest on share a frame, others do not.
    check(
        "message; confirm; message k=a + message k=b + message k=c + message k=d
         !settle 4 accepted + !settle 5 accepted
         !settle 2 accepted + !settle 3 accepted
         message + message + message
         !settle 6 rejected + !settle 7 released + !settle 8 accepted",
        "* message l=0 1 k= 1 settled; > confirm.select-ok
         * message l=0 2 k=a 1; * message l=0 3 k=b 1; * message l=0 4 k=c 1; * message l=0 5 k=d 1
         > ack 3; > ack 4; > ack 2 multiple
         * message l=0 6 k= 1; * message l=0 7 k= 1; * message l=0 8 k= 1
         > nack 6 multiple; > ack 7",
    );
    // What was written one by one is not written again.
    check(
        "confirm; message + message + message; !settle 2 accepted; !settle 2 accepted; !settle 1 accepted + !settle 3 accepted
         !settle 1 accepted + !settle 3 rejected + !settle 4 accepted",
        "> confirm.select-ok; * message l=0 1 k= 1; * message l=0 2 k= 1; * message l=0 3 k= 1
         > ack 2; > ack 3 multiple",
    );
}

#[test]
fn s18_a_message_is_returned_before_it_is_confirmed() {
    check(
        "confirm; message k=a + message k=b mandatory; !settle 1 accepted + !return k=b + !settle 2 accepted",
        "> confirm.select-ok; * message l=0 1 k=a 1; * message l=0 2 k=b 1 mandatory
         > return 312 NO_ROUTE k=b; > head 4; > body 4; > ack 2 multiple",
    );
}

#[test]
fn s23_what_follows_a_message_that_fails_is_passed_over() {
    check(
        "confirm; open ch=2; message k=a + message k=nowhere + message k=c + message k=d + message ch=2 k=e
         !settle 1 accepted; close-ok; open; message k=f",
        "> confirm.select-ok; > ch=2 channel.open-ok; * channel 2 l=1
         * message l=0 1 k=a 1; * message l=0 2 k=nowhere 1
         > channel.close 404 (NOT_FOUND - no exchange) by basic.publish
         * detached l=0; * ended 1 404; * message l=1 1 k=e 1 settled
         > channel.open-ok; * channel 1 l=0; * message l=0 1 k=f 1 settled",
    );
    // Confirms of before are read before the close.
    check(
        "confirm; message k=a; !settle 1 accepted + message k=nowhere",
        "> confirm.select-ok; * message l=0 1 k=a 1; * message l=0 2 k=nowhere 1
         > ack 1; > channel.close 404 (NOT_FOUND - no exchange) by basic.publish; * detached l=0; * ended 1 404",
    );
    for end in ["close", "c.close"] {
        let answer = if end == "close" {
            "> channel.close-ok; * ended 1"
        } else {
            "* ended 1; > connection.close-ok; * closed"
        };
        check(
            &format!("confirm; message k=a; !settle 1 accepted + {end}"),
            &format!("> confirm.select-ok; * message l=0 1 k=a 1; > ack 1; * detached l=0; {answer}"),
        );
    }
}

#[test]
fn a_producer_without_confirms_waits() {
    let message = "message + ";
    check(
        &format!(
            "confirm; {}!full; heartbeat; !full; !settle 2 accepted; !settle 1 accepted; !full; !settle 5 accepted",
            message.repeat(10)
        ),
        "> confirm.select-ok; = false
         * message l=0 1 k= 1; * message l=0 2 k= 1; * message l=0 3 k= 1; * message l=0 4 k= 1
         * message l=0 5 k= 1; * message l=0 6 k= 1; * message l=0 7 k= 1; * message l=0 8 k= 1
         = true; > ack 2; > ack 1; * message l=0 9 k= 1; * message l=0 10 k= 1; = false; > ack 5",
    );
}

#[test]
fn messages_within_a_transaction() {
    check(
        "tx.select; message k=a; tx.commit; message k=b; tx.rollback; message k=c",
        "> tx.select-ok; * message l=0 1 k=a 1 settled in transaction; * request 1 TxCommit; > tx.commit-ok
         * message l=0 2 k=b 1 settled in transaction; * request 1 TxRollback; > tx.rollback-ok
         * message l=0 3 k=c 1 settled in transaction",
    );
    for (input, text, by) in [
        ("tx.select; confirm", "cannot switch from tx to confirm mode", "confirm.select"),
        ("confirm; tx.select", "cannot switch from confirm to tx mode", "tx.select"),
        ("tx.commit", "channel is not transactional", "tx.commit"),
        ("tx.rollback", "channel is not transactional", "tx.rollback"),
    ] {
        let ok = match input.split_once(';') {
            Some(("confirm", _)) => "> confirm.select-ok;",
            Some(_) => "> tx.select-ok;",
            None => "",
        };
        check(
            input,
            &format!(
                "{ok} > channel.close 406 (PRECONDITION_FAILED - {text}) by {by}; * detached l=0; * ended 1 406"
            ),
        );
    }
}

//! Channels: how they open and close, and how they wait for the caller.

use super::script::{check, check_client, check_with, client_config, config};

#[test]
fn a_number_is_used_again() {
    check(
        "close; open; open ch=3; close ch=3 code=541; close-ok; close",
        "* detached l=0; > channel.close-ok; * ended 1; > channel.open-ok; * channel 1 l=0
         > ch=3 channel.open-ok; * channel 3 l=1; * detached l=1; > ch=3 channel.close-ok; * ended 3 541
         * detached l=0; > channel.close-ok; * ended 1",
    );
    // Until close-ok all else is passed over.
    check(
        "ack 7; ack 7; publish; open; declare q=q; head size=3; close-ok; ack 1; c.close-ok",
        "> channel.close 406 (PRECONDITION_FAILED - unknown delivery tag 7) by basic.ack; * detached l=0; * ended 1 406
         > connection.close 504 (CHANNEL_ERROR - expected 'channel.open') by basic.ack; * closed 504",
    );
    // Both close at once; who takes that for the end opens it again at once, or answers late.
    for answer in ["open; close-ok", "close-ok; open"] {
        check(
            &format!("ack 7; close; {answer}; message"),
            "> channel.close 406 (PRECONDITION_FAILED - unknown delivery tag 7) by basic.ack; * detached l=0; * ended 1 406
             > channel.close-ok; > channel.open-ok; * channel 1 l=0; * message l=0 1 k= 1 settled",
        );
    }
}

#[test]
fn frames_on_wrong_channels() {
    for (input, code, text, by) in [
        ("open", 504, "CHANNEL_ERROR - second 'channel.open' seen", "channel.open"),
        ("ack ch=2 1", 504, "CHANNEL_ERROR - expected 'channel.open'", "basic.ack"),
        ("publish ch=2", 504, "CHANNEL_ERROR - expected 'channel.open'", "basic.publish"),
        ("head ch=2", 505, "UNEXPECTED_FRAME - content on a channel that is not open", "method 0 of class 0"),
        ("body ch=0", 505, "UNEXPECTED_FRAME - content on channel 0", "method 0 of class 0"),
        ("open-ok", 503, "COMMAND_INVALID - channel.open-ok is not for this side", "channel.open-ok"),
        ("deliver 1", 503, "COMMAND_INVALID - basic.deliver is not for this side", "basic.deliver"),
        (
            "tune-ok ch=1",
            503,
            "COMMAND_INVALID - connection.tune-ok is not for this side",
            "connection.tune-ok",
        ),
    ] {
        check(
            &format!("{input}; c.close-ok"),
            &format!(
                "> connection.close {code} ({text}) by {by}; * detached l=0; * ended 1; * closed {code}"
            ),
        );
    }
    check("close ch=2; close-ok ch=2", "> ch=2 channel.close-ok");
    check("access", "> access.request-ok");
}

#[test]
fn requests_and_their_answers() {
    check(
        "declare q=q; declare q=q passive; bind q=q x=e k=k; unbind q=q x=e k=k; purge q=q; delete q=q
         x.declare x=e; x.bind x=e; x.unbind x=e; x.delete x=e",
        "* request 1 QueueDeclare; > queue.declare-ok q=q 1 2; * request 1 QueueDeclare; > queue.declare-ok q=q 1 2
         * request 1 QueueBind; > queue.bind-ok; * request 1 QueueUnbind; > queue.unbind-ok
         * request 1 QueuePurge; > queue.purge-ok 3; * request 1 QueueDelete; > queue.delete-ok 3
         * request 1 ExchangeDeclare; > exchange.declare-ok; * request 1 ExchangeBind; > exchange.bind-ok
         * request 1 ExchangeUnbind; > exchange.unbind-ok; * request 1 ExchangeDelete; > exchange.delete-ok",
    );
    check(
        "declare q=q nowait; bind q=q nowait; purge q=q nowait; delete q=q nowait; x.declare nowait; x.delete nowait",
        "* request 1 QueueDeclare; * request 1 QueueBind; * request 1 QueuePurge; * request 1 QueueDelete
         * request 1 ExchangeDeclare; * request 1 ExchangeDelete",
    );
    // An empty name is that of the last declaration.
    check(
        "!manual; !last-queue; declare; !reply q=new; !last-queue; bind; !reply; delete; !fail code=406; close-ok; open; purge",
        "=; * request 1 QueueDeclare; > queue.declare-ok q=new 1 2; = new; * request 1 QueueBind; > queue.bind-ok
         * request 1 QueueDelete; > channel.close 406 (PRECONDITION_FAILED - because) by queue.delete
         * detached l=0; * ended 1 406; > channel.open-ok; * channel 1 l=0
         > channel.close 404 (NOT_FOUND - no previously declared queue) by queue.purge; * detached l=0; * ended 1 404",
    );
    for (input, by) in [
        ("bind", "queue.bind"),
        ("unbind", "queue.unbind"),
        ("purge", "queue.purge"),
        ("delete", "queue.delete"),
        ("consume", "basic.consume"),
    ] {
        check(
            input,
            &format!(
                "> channel.close 404 (NOT_FOUND - no previously declared queue) by {by}; * detached l=0; * ended 1 404"
            ),
        );
    }
}

#[test]
fn what_follows_a_request_waits_for_its_answer() {
    // Nothing overtakes on a channel; others go on.
    check(
        "open ch=2; !manual; declare q=q + message k=a + consume q=q tag=t + message k=b size=1500 frame=500 + ack 3; message ch=2 k=c; !reply q=q
         message k=d; !accept l=2",
        "> ch=2 channel.open-ok; * channel 2 l=1; * request 1 QueueDeclare; * message l=1 1 k=c 1 settled
         > queue.declare-ok q=q 1 2; * message l=0 1 k=a 1 settled assembled; * consume 1 l=2 q=q
         > consume-ok tag=t; * message l=0 2 k=b 1500 settled assembled
         > channel.close 406 (PRECONDITION_FAILED - unknown delivery tag 3) by basic.ack; * detached l=0; * detached l=2; * ended 1 406",
    );
    // A failure takes what waits with it.
    check(
        "!manual; declare q=q + message + close + open; !fail code=405; close-ok; open",
        "* request 1 QueueDeclare; > channel.close 405 (RESOURCE_LOCKED - because) by queue.declare; > channel.close-ok
         * detached l=0; * ended 1 405; > channel.open-ok; * channel 1 l=0",
    );
    // Where messages wait for confirms too, the one does not let the other be forgotten.
    check(
        "confirm; message + message + message + message + message + message + message
         !manual; declare q=q + message k=a + message k=b + ack 0 multiple + declare q=r; !reply q=q; declare q=s
         !settle 1 accepted; !reply q=r",
        "> confirm.select-ok; * message l=0 1 k= 1; * message l=0 2 k= 1; * message l=0 3 k= 1; * message l=0 4 k= 1
         * message l=0 5 k= 1; * message l=0 6 k= 1; * message l=0 7 k= 1; * request 1 QueueDeclare
         > queue.declare-ok q=q 1 2; * message l=0 8 k=a 1 assembled
         > ack 1; * message l=0 9 k=b 1 assembled; * request 1 QueueDeclare
         > queue.declare-ok q=r 1 2; * request 1 QueueDeclare",
    );
    check(
        "confirm; message + message + message + message + message + message + message + message; open ch=2
         !manual; declare q=q + message k=a; !reply q=q; declare ch=2 q=r + message ch=2 k=b; !reply ch=2 q=r; !settle 1 accepted",
        "> confirm.select-ok; * message l=0 1 k= 1; * message l=0 2 k= 1; * message l=0 3 k= 1; * message l=0 4 k= 1
         * message l=0 5 k= 1; * message l=0 6 k= 1; * message l=0 7 k= 1; * message l=0 8 k= 1
         > ch=2 channel.open-ok; * channel 2 l=1; * request 1 QueueDeclare; > queue.declare-ok q=q 1 2
         * request 2 QueueDeclare; > ch=2 queue.declare-ok q=r 1 2; * message l=1 1 k=b 1 settled assembled
         > ack 1; * message l=0 9 k=a 1 assembled",
    );
    check(
        "!manual; declare q=q + declare q=r; !fail code=541; c.close-ok",
        "* request 1 QueueDeclare; > connection.close 541 (INTERNAL_ERROR - because) by queue.declare
         * detached l=0; * ended 1; * closed 541",
    );
}

#[test]
fn a_close_waits_for_what_was_asked_before() {
    check(
        "!manual; declare q=q nowait + message k=a + close; !reply q=q",
        "* request 1 QueueDeclare; * message l=0 1 k=a 1 settled assembled; * detached l=0; > channel.close-ok; * ended 1",
    );
    check(
        "!manual; declare q=q nowait + message k=a + c.close; !full; !reply q=q",
        "* request 1 QueueDeclare; = true; * message l=0 1 k=a 1 settled assembled; * detached l=0; * ended 1
         > connection.close-ok; * closed",
    );
    check(
        "!manual; get q=q + message; !close; c.close-ok",
        "* get 1 l=1 q=q; > connection.close 200 (Normal shutdown) by method 0 of class 0; * detached l=0; * detached l=1; * ended 1
         * closed",
    );
}

#[test]
fn too_much_that_waits_stops_the_input() {
    check(
        "open ch=2; !manual; declare q=q; message k=a size=1990; message ch=2 k=b; !full; message k=c; !reply q=q; !full",
        "> ch=2 channel.open-ok; * channel 2 l=1; * request 1 QueueDeclare; = true
         > queue.declare-ok q=q 1 2; * message l=0 1 k=a 1990 settled assembled; * message l=1 1 k=b 1 settled
         * message l=0 2 k=c 1 settled; = false",
    );
}

#[test]
fn answers_that_nobody_waits_for() {
    check(
        "!reply q=q; !accept l=0; !empty l=0; !fail ch=3 code=404; !settle 1 accepted; !send l=0; !send l=9; !credit l=0; !manual; get q=q; !reply; !accept l=1; !empty l=1",
        "= NotReady(Detached); = NotReady(Detached); = 0; * get 1 l=1 q=q; > get-empty",
    );
}

#[test]
fn channels_of_a_client() {
    let opened = "start; tune; c.open-ok; !open; open-ok; !open; open-ok ch=2";
    check_client(
        client_config(),
        opened,
        "!close-channel; close-ok; !open; open-ok; close code=404; !call; close-ok; !close-channel ch=2 code=541; close ch=2; close-ok ch=2",
        "> channel.close 200 (Normal shutdown) by method 0 of class 0; * ended 1; > channel.open; = Some(1)
         * answered 1 channel.open-ok; > channel.close-ok; * ended 1 404; = false
         > ch=2 channel.close 541 (because) by method 0 of class 0; > ch=2 channel.close-ok; * ended 2",
    );
    check_client(
        client_config(),
        opened,
        "deliver 1 tag=t k=q + head size=2 + body size=2; get-ok 3 k=r + head size=0; return k=s; head size=5000; body size=4000; body size=1000
         !publish k=q size=5000; get-empty; flow off; ack 1; publish; c.close-ok",
        "* Delivered { delivery_tag: 1, redelivered: false } tag=t k=q 2
         * Got { delivery_tag: 3, redelivered: false, message_count: 5 } tag= k=r 0
         * Returned { reply_code: 312 } tag= k=s 5000
         > publish; > head 5000; > body 4088; > body 912; = true
         * answered 1 get-empty; > channel.flow-ok off; * answered 1 channel.flow; * answered 1 ack 1
         > connection.close 503 (COMMAND_INVALID - basic.publish is not for this side) by basic.publish
         * ended 1; * ended 2; * closed 503",
    );
    check_client(
        client_config(),
        "start; tune; c.open-ok; !open",
        "ack 1; c.close-ok",
        "> connection.close 503 (COMMAND_INVALID - expected 'channel.open-ok') by basic.ack; * ended 1; * closed 503",
    );
    let all = "!open; open-ok; !open; !open; !open; !open; !open; !open; !open";
    check_with(config(), "", "header", "> connection.start PLAIN AMQPLAIN");
    check_client(
        client_config(),
        "start; tune; c.open-ok",
        all,
        "> channel.open; = Some(1); * answered 1 channel.open-ok; > ch=2 channel.open; = Some(2); > ch=3 channel.open; = Some(3)
         > ch=4 channel.open; = Some(4); > ch=5 channel.open; = Some(5); > ch=6 channel.open; = Some(6); > ch=7 channel.open; = Some(7)
         = None",
    );
}

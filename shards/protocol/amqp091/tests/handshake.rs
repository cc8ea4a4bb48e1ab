//! From the first byte to open, and to the end.

use super::script::{check, check_client, check_with, client_config, config};
use crate::amqp091::{Config, Login};

#[test]
fn a_client_comes_and_goes() {
    check_with(
        config(),
        "",
        "header; start-ok; tune-ok; c.open; open; c.close; heartbeat",
        "> connection.start PLAIN AMQPLAIN
         * sasl-init PLAIN \\x00u\\x00p; > connection.tune 7 4096 0
         * opened /; > connection.open-ok
         > channel.open-ok; * channel 1 l=0
         * detached l=0; * ended 1; > connection.close-ok; * closed",
    );
    // All at once: what follows an answer of the caller is left in the input until then.
    check_with(
        config(),
        "",
        "header + start-ok + tune-ok + c.open + open + c.close",
        "> connection.start PLAIN AMQPLAIN
         * sasl-init PLAIN \\x00u\\x00p; > connection.tune 7 4096 0
         * opened /; > connection.open-ok
         > channel.open-ok; * channel 1 l=0
         * detached l=0; * ended 1; > connection.close-ok; * closed",
    );
}

#[test]
fn another_protocol_is_answered_by_ours() {
    // §4.2.2: at the first byte that differs.
    for text in ["bytes 41 4d 51 50 00 01 00 00", "text GET", "bytes 41 4d 51 50 01 01 08 00"] {
        check_with(config(), "", text, "> header; * closed 540");
    }
    check_with(config(), "", "text AMQ; text P", "");
    check_client(client_config(), "", "bytes 41 4d 51 50 00 01 00 00", "* closed 540");
}

#[test]
fn logins() {
    let challenged = "> connection.start PLAIN AMQPLAIN; * sasl-init PLAIN -; > connection.secure
        * sasl-response \\x00u\\x00p; > connection.tune 7 4096 0";
    check_with(
        config(),
        "!manual",
        "header; start-ok response=; !challenge; secure-ok; !login ok",
        challenged,
    );
    // A table without its size, as php-amqplib sends it.
    check_with(
        config(),
        "header",
        "start-ok mechanism=AMQPLAIN table",
        "* sasl-init PLAIN \\x00u\\x00p; > connection.tune 7 4096 0",
    );
    check_with(
        config(),
        "header",
        "start-ok mechanism=AMQPLAIN response=x; c.close-ok",
        "> connection.close 502 (SYNTAX_ERROR - a response of AMQPLAIN is a table with LOGIN and PASSWORD) by connection.start-ok
         * closed 502",
    );
    check_with(
        config(),
        "header",
        "start-ok mechanism=SCRAM; c.close-ok",
        "> connection.close 503 (COMMAND_INVALID - unknown authentication mechanism 'SCRAM') by connection.start-ok
         * closed 503",
    );
    let external = Login::Server { mechanisms: vec!["EXTERNAL".into()] };
    check_with(
        Config { login: external, ..config() },
        "header",
        "start-ok mechanism=EXTERNAL response=",
        "* sasl-init EXTERNAL; > connection.tune 7 4096 0",
    );
}

#[test]
fn refused_logins() {
    check_with(
        config(),
        "!manual; header",
        "start-ok; !login",
        "* sasl-init PLAIN \\x00u\\x00p; * closed 403",
    );
    check_with(
        config(),
        "!manual; header",
        "start-ok failures; !login; c.close-ok",
        "* sasl-init PLAIN \\x00u\\x00p
         > connection.close 403 (ACCESS_REFUSED - Login was refused using authentication mechanism PLAIN.) by connection.start-ok
         * closed 403",
    );
    // Challenges come to an end.
    check_with(
        config(),
        "!manual; header; start-ok response=; !challenge; secure-ok; !challenge; secure-ok; !challenge; secure-ok
         !challenge; secure-ok; !challenge; secure-ok; !challenge; secure-ok; !challenge; secure-ok; !challenge; secure-ok",
        "!challenge",
        "* closed 403",
    );
}

#[test]
fn limits_are_negotiated() {
    let login = "header; start-ok";
    for tune_ok in ["tune-ok", "tune-ok frame=4096 channels=7", "tune-ok channels=1 heartbeat=10"] {
        check_with(config(), login, &format!("{tune_ok}; c.open"), "* opened /; > connection.open-ok");
    }
    for (tune_ok, text) in [
        ("frame=4095", "negotiated frame_max = 4095 is lower than the minimum allowed value (4096)"),
        ("frame=4097", "negotiated frame_max = 4097 is higher than the maximum allowed value (4096)"),
        ("channels=8", "negotiated channel_max = 8 is higher than the maximum allowed value (7)"),
    ] {
        check_with(
            config(),
            login,
            &format!("tune-ok {tune_ok}; c.close-ok"),
            &format!("> connection.close 530 (NOT_ALLOWED - {text}) by connection.tune-ok; * closed 530"),
        );
    }
    check_with(
        config(),
        "header; start-ok; tune-ok channels=2; c.open",
        "open ch=65535; open ch=2; open ch=3",
        "> ch=65535 channel.open-ok; * channel 65535 l=0; > ch=2 channel.open-ok; * channel 2 l=1
         > connection.close 530 (NOT_ALLOWED - number of channels opened (2) has reached the negotiated channel_max (2)) by channel.open
         * detached l=1; * ended 2; * detached l=0; * ended 65535",
    );
}

#[test]
fn what_does_not_belong_into_a_handshake() {
    let order = "CHANNEL_ERROR - a method that does not belong here on channel 0";
    for (before, step, by) in [
        ("header", "tune-ok", "connection.tune-ok"),
        ("header; start-ok", "c.open", "connection.open"),
        ("header; start-ok; tune-ok", "start-ok", "connection.start-ok"),
        ("header; start-ok; tune-ok; c.open", "c.open", "connection.open"),
        ("header; start-ok; tune-ok; c.open", "open ch=0", "channel.open"),
        ("header; start-ok; tune-ok; c.open", "ack ch=0", "basic.ack"),
    ] {
        check_with(
            config(),
            before,
            &format!("{step}; c.close-ok"),
            &format!("> connection.close 504 ({order}) by {by}; * closed 504"),
        );
    }
    for before in ["header", "header; start-ok", "header; start-ok; tune-ok"] {
        check_with(
            config(),
            before,
            "open; c.close-ok",
            "> connection.close 505 (UNEXPECTED_FRAME - the connection is not open) by method 0 of class 0
             * closed 505",
        );
    }
    check_with(
        config(),
        "header; start-ok; tune-ok",
        "heartbeat; c.close",
        "> connection.close-ok; * closed",
    );
}

#[test]
fn a_virtual_host_is_refused() {
    check_with(
        config(),
        "!manual; header; start-ok; !login ok; tune-ok",
        "c.open vhost=nope; !close code=530; c.close-ok",
        "* opened nope; > connection.close 530 (NOT_ALLOWED - because) by method 0 of class 0; * closed",
    );
}

#[test]
fn a_close_takes_its_time_at_most() {
    check(
        "!close; publish; heartbeat; ack 7; wait 1999; wait 1",
        "> connection.close 200 (Normal shutdown) by method 0 of class 0; * detached l=0; * ended 1; * closed",
    );
    check(
        "!close code=320; c.close",
        "> connection.close 320 (CONNECTION_FORCED - because) by method 0 of class 0; * detached l=0; * ended 1
         > connection.close-ok; * closed",
    );
    check("!lost; c.close", "* detached l=0; * ended 1; * closed");
}

#[test]
fn frames_that_cannot_be_cut_end_all_reading() {
    for (bytes, text) in [
        ("05 00 00 00 00 00 00 ce", "unknown frame type 5"),
        ("08 00 01 00 00 00 00 ce", "a heartbeat with a payload, or on a channel"),
        ("01 00 01 00 00 0f f9", "frame size 4097 is over the maximum of 4096"),
        ("01 00 01 00 00 00 04 00 14 00 0a 00", "frame ends with 0x00 instead of 0xce"),
    ] {
        check(
            &format!("bytes {bytes}; c.close-ok"),
            &format!(
                "> connection.close 501 (FRAME_ERROR - {text}) by method 0 of class 0
                 * detached l=0; * ended 1; * closed 501"
            ),
        );
    }
    for (bytes, code, text) in [
        (
            "01 00 01 00 00 00 04 00 3c 00 07 ce",
            503,
            "COMMAND_INVALID - method 7 of class 60: unknown method",
        ),
        (
            "01 00 01 00 00 00 05 00 3c 00 50 00 ce",
            501,
            "FRAME_ERROR - basic.ack: a value ends behind the bytes it is part of",
        ),
    ] {
        let by = if code == 503 { "method 7 of class 60" } else { "basic.ack" };
        check(
            &format!("bytes {bytes}; c.close-ok"),
            &format!(
                "> connection.close {code} ({text}) by {by}; * detached l=0; * ended 1; * closed {code}"
            ),
        );
    }
}

#[test]
fn silence() {
    let open = "header; start-ok; tune-ok heartbeat=2; c.open";
    // §4.2.7: twice in each interval we are heard, after two we close.
    check_with(
        config(),
        open,
        "wait 999; wait 1; wait 2000; heartbeat; wait 3999; wait 1; wait 2000",
        "> heartbeat; > heartbeat; > heartbeat; > heartbeat; > heartbeat; > heartbeat
         > connection.close 320 (CONNECTION_FORCED - nothing was received within two heartbeats) by method 0 of class 0
         * closed 320",
    );
    // Any octet counts, and whoever is not listened to is not silent.
    check_with(
        config(),
        open,
        "!reading off; wait 10000; !reading on; bytes 03; wait 3000; bytes 00; wait 3000; bytes 01",
        &["> heartbeat"; 16].join(";"),
    );
    check_with(config(), "header; start-ok; tune-ok heartbeat=0; c.open", "wait 1000000", "");
    let hurried = Config { handshake_timeout_us: Some(1_000_000), ..config() };
    check_with(hurried.clone(), "", "header; wait 999; wait 1; wait 2000", "> connection.start PLAIN AMQPLAIN
        > connection.close 320 (CONNECTION_FORCED - the handshake took too long) by method 0 of class 0; * closed 320");
    check_with(hurried.clone(), "", "text AM; wait 1000", "* closed 320");
    check_with(hurried, "header; start-ok; tune-ok heartbeat=60; wait 500; c.open", "wait 29000", "");
}

#[test]
fn a_client_of_ours() {
    check_client(
        client_config(),
        "",
        "!open; start; secure; tune frame=8192 channels=3 heartbeat=9; c.open-ok; !open; !call; open-ok; !call; !open ; c.close",
        "= None; > connection.start-ok PLAIN \\x00u\\x00p; > connection.secure-ok
         > connection.tune-ok 3 4096 0; > connection.open /; * opened
         > channel.open; = Some(1); = false; * answered 1 channel.open-ok; > tx.select; = true
         > ch=2 channel.open; = Some(2)
         * ended 1; * ended 2; > connection.close-ok; * closed",
    );
    let login = Login::Other { mechanism: "X".into(), response: b"r".as_slice().into() };
    check_client(Config { login, ..config() }, "", "start", "* closed 403");
    let login = Login::AmqPlain { user: "u".into(), password: "p".into() };
    check_client(
        Config { login, ..config() },
        "",
        "start; c.close code=403",
        "> connection.start-ok AMQPLAIN \\x05LOGINS\\x00\\x00\\x00\\x01u\\x08PASSWORDS\\x00\\x00\\x00\\x01p
         > connection.close-ok; * closed 403",
    );
}

#[test]
fn what_is_said_of_publishing_as_a_whole() {
    let told = "header; start-ok blocks; tune-ok; c.open";
    check_with(
        config(),
        told,
        "!blocked memory; !blocked disk; !blocked; !blocked",
        "> connection.blocked memory; > connection.unblocked",
    );
    check_with(config(), "header; start-ok; tune-ok; c.open", "!blocked memory; !blocked", "");
    check("update-secret", "> connection.update-secret-ok");
    check_client(
        client_config(),
        "start; tune; c.open-ok",
        "c.blocked; c.unblocked",
        "* blocked full; * unblocked",
    );
}

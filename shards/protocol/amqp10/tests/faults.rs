//! Each fault of a peer: the error that the specification names, at the smallest scope.

use crate::random::Random;

use super::script::{Script, check, check_new, check_with, config, encode_line, sasl_config};
use crate::amqp10::{Config, Connection};

/// Connection faults: what the peer reads, and then the end.
#[track_caller]
fn closes(input: &str, condition: &str) {
    check(
        &format!("{input}; begin ch=5; close"),
        &format!("> close {condition}; * ended 0; * closed {condition}"),
    );
}

#[test]
fn s59_faults_that_close_the_connection() {
    closes("open", "amqp:illegal-state");
    closes("begin", "amqp:illegal-state");
    closes("transfer ch=3", "amqp:illegal-state");
    closes("end ch=3", "amqp:illegal-state");
    closes("begin ch=1 remote=0", "amqp:invalid-field");
    closes("begin ch=1 remote=5", "amqp:invalid-field");
    // AMQP 1.0 §2.7.1, §2.7.2: above channel-max, above handle-max.
    closes("begin ch=8", "amqp:connection:framing-error");
    closes("attach h=8 sender", "amqp:connection:framing-error");
    closes("sasl-init PLAIN", "amqp:connection:framing-error");
    // A performative without its mandatory fields, an unknown one, one that is cut off.
    closes("bytes 00 00 00 0c 02 00 00 00 00 53 14 45", "amqp:invalid-field");
    closes("bytes 00 00 00 0c 02 00 00 00 00 53 77 45", "amqp:decode-error");
    closes("bytes 00 00 00 0b 02 00 00 00 00 53 14", "amqp:decode-error");
}

#[test]
fn a_frame_that_cannot_be_cut_ends_all_reading() {
    // AMQP 1.0 §2.7.1: too large; §2.3.1: smaller than its header, data offset within the header or behind the end.
    for bytes in [
        "00 00 04 01 02 00 00 00",
        "00 00 00 07 02 00 00 00",
        "00 00 00 08 01 00 00 00",
        "00 00 00 08 03 00 00 00",
        "00 00 00 08 02 07 00 00",
    ] {
        check(
            &format!("bytes {bytes}; close; wait 2000"),
            "> close amqp:connection:framing-error; * ended 0; * closed amqp:connection:framing-error",
        );
    }
}

#[test]
fn frame_before_open() {
    for input in ["begin", "close", "flow"] {
        check_new(
            config(),
            &format!("header; {input}; close"),
            "> header 0; > open us; > close amqp:illegal-state; * closed amqp:illegal-state",
        );
    }
}

/// Session faults: other sessions live on.
#[track_caller]
fn ends(input: &str, condition: &str) {
    check(
        &format!(
            "begin ch=1; {input}; transfer id=9 tag=z; attach h=3 sender name=late; end; begin ch=0; end ch=1"
        ),
        &format!(
            "> ch=1 begin remote=1; * begun 1; > end {condition}; * ended 0 {condition}
             > begin remote=0; * begun 0; > ch=1 end; * ended 1"
        ),
    );
}

#[test]
fn s59_faults_that_end_the_session() {
    // AMQP 1.0 §2.7.4.
    ends("flow h=4", "amqp:session:unattached-handle");
    ends("transfer h=4", "amqp:session:unattached-handle");
    ends("detach h=4", "amqp:session:unattached-handle");
}

#[test]
fn handle_in_use_ends_the_session_with_its_links() {
    check(
        "attach sender name=a; attach sender name=b; end",
        "* attached 0 s=0 a; > attach h=0 receiver a
         > end amqp:session:handle-in-use
         * detached 0 SessionEnded; * ended 0 amqp:session:handle-in-use",
    );
}

#[test]
fn s59_transfers_beyond_the_window_end_the_session() {
    // AMQP 1.0 §2.8.17. A window is renewed when it is half used up, so this peer writes the whole of it in one go.
    let config = Config { incoming_window: 4, ..config() };
    let transfers: String = (0..5).map(|id| format!("transfer id={id} tag={id} settled; ")).collect();
    let mut script = Script::new(Connection::server(config.clone(), 0));
    script.run("header; open; begin; attach sender; !grant 100");
    script.log.clear();
    let mut bytes = Vec::new();
    transfers.split("; ").filter(|line| !line.is_empty()).for_each(|line| encode_line(line, &mut bytes));
    let hex: Vec<String> = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
    script.run(&format!("bytes {}", hex.join(" ")));
    assert_eq!(
        script.log[4..],
        [
            "> end amqp:session:window-violation",
            "* detached 0 SessionEnded",
            "* ended 0 amqp:session:window-violation"
        ]
    );
    // One at a time, the window is open again before it is used up.
    check_with(
        config,
        "header; open; begin; attach sender; !grant 100",
        &transfers,
        "* message 0 id=0 size=1 settled; * message 0 id=1 size=1 settled; > flow nii=2 window=4
         * message 0 id=2 size=1 settled; * message 0 id=3 size=1 settled; > flow nii=4 window=4
         * message 0 id=4 size=1 settled",
    );
}

#[test]
fn s59_faults_that_detach_the_link() {
    // AMQP 1.0 §2.8.18.
    let attached = "* attached 0 s=0 l; > attach h=0 receiver l";
    let after =
        |condition: &str| format!("> detach h=0 closed {condition}; * detached 0 closed Fault {condition}");
    let cases = [
        ("transfer id=0 tag=a", "amqp:link:transfer-limit-exceeded"),
        ("!grant 1; transfer id=0 tag=a settled; transfer id=1 tag=b", "amqp:link:transfer-limit-exceeded"),
        ("!grant 5; transfer id=0 tag=a; transfer id=1 tag=a", "amqp:invalid-field"),
        ("!grant 5; transfer tag=a", "amqp:invalid-field"),
        ("!grant 5; transfer id=0", "amqp:invalid-field"),
        ("!grant 5; transfer id=0 tag=a rcv=second", "amqp:invalid-field"),
        ("!grant 5; transfer id=0 tag=a more; transfer id=1", "amqp:invalid-field"),
    ];
    for (input, condition) in cases {
        let mut script = Script::new(Connection::server(config(), 0));
        script.run("header; open; begin; attach sender");
        assert!(script.log.join("; ").ends_with(attached));
        script.run(&format!("{input}; detach closed; attach sender name=next"));
        let tail = format!("{}; * attached 0 s=0 next; > attach h=0 receiver next", after(condition));
        let log: Vec<String> = script.log.iter().filter(|line| !line.contains("message")).cloned().collect();
        // The unsettled ones of the first link keep its slot, so the next may have another.
        let log = log
            .join("; ")
            .replace("attached 1 s=0", "attached 0 s=0")
            .replace("h=1 receiver", "h=0 receiver");
        assert!(log.ends_with(&tail), "{input}: {log}");
    }
}

#[test]
fn transfer_on_a_link_that_we_send_on() {
    check(
        "attach receiver; transfer id=0 tag=a; detach closed",
        "* attached 0 s=0 l; > attach h=0 sender l
         > detach h=0 closed amqp:not-allowed; * detached 0 closed Fault amqp:not-allowed",
    );
}

#[test]
fn what_is_in_flight_to_a_failed_link_is_passed_over_within_its_credit() {
    check(
        "attach sender; !grant 4; transfer id=0 tag=a size=4001; transfer id=1 tag=b; flow h=0; transfer id=2 tag=c
         transfer id=3 tag=d; detach closed; begin ch=1",
        "* attached 0 s=0 l; > attach h=0 receiver l; > flow h=0 dc=0 credit=4 nii=0 window=100
         > close amqp:connection:framing-error; * detached 0 ConnectionClosed; * ended 0
         * closed amqp:connection:framing-error",
    );
    check(
        "attach sender; !grant 4; transfer id=0 tag=a; transfer id=1 tag=a; transfer id=2 tag=b; flow h=0
         transfer id=3 tag=d; detach closed; begin ch=1",
        "* attached 0 s=0 l; > attach h=0 receiver l; > flow h=0 dc=0 credit=4 nii=0 window=100; * message 0 id=0 size=1
         > detach h=0 closed amqp:invalid-field; * detached 0 closed Fault amqp:invalid-field
         > ch=1 begin remote=1; * begun 1",
    );
    // AMQP 1.0 §2.6.5: beyond that it is an errant link.
    check(
        "attach sender; transfer id=0 tag=a; transfer id=1 tag=b; end",
        "* attached 0 s=0 l; > attach h=0 receiver l
         > detach h=0 closed amqp:link:transfer-limit-exceeded
         * detached 0 closed Fault amqp:link:transfer-limit-exceeded
         > end amqp:session:errant-link; * ended 0 amqp:session:errant-link",
    );
}

#[test]
fn delivery_numbers_ascend() {
    check(
        "attach sender; !grant 5; transfer id=7 tag=a settled; transfer id=7 tag=b settled; end",
        "* attached 0 s=0 l; > attach h=0 receiver l; > flow h=0 dc=0 credit=5 nii=0 window=100
         * message 0 id=7 size=1 settled; > end amqp:invalid-field
         * detached 0 SessionEnded; * ended 0 amqp:invalid-field",
    );
}

#[test]
fn too_many_links() {
    let attaches: String = (0..5).map(|index| format!("attach h={index} sender name=l{index}; ")).collect();
    let attached: String =
        (0..4).map(|i| format!("* attached {i} s=0 l{i}; > attach h={i} receiver l{i}; ")).collect();
    check(
        &format!("{attaches} detach h=4; detach h=0 closed; attach h=0 sender name=again"),
        &format!(
            "{attached} > attach h=4 receiver l4 null; > detach h=4 closed amqp:resource-limit-exceeded
             > detach h=0 closed; * detached 0 closed Peer; * attached 0 s=0 again; > attach h=0 receiver again"
        ),
    );
}

#[test]
fn s59_a_flood_of_attaches_ends_the_session() {
    let config = Config { handle_max: 200, links_max: 0, ..config() };
    let attaches: String = (0..65).map(|index| format!("attach h={index} sender name=l{index}; ")).collect();
    let mut script = Script::new(Connection::server(config, 0));
    script.run("header; open; begin");
    script.run(&attaches);
    let tail = ["> end amqp:resource-limit-exceeded", "* ended 0 amqp:resource-limit-exceeded"];
    assert_eq!(script.log[script.log.len() - 2..], tail);
}

#[test]
fn our_answers_keep_to_the_peers_maxima() {
    // AMQP 1.0 §2.7.1: no channel above the peer's; §2.7.2: no handle above the peer's.
    check_new(
        config(),
        "header; open channel-max=0; begin; begin ch=1; close",
        "> header 0; * opened peer; > open us; > begin remote=0; * begun 0
         > close amqp:resource-limit-exceeded; * ended 0; * closed amqp:resource-limit-exceeded",
    );
    check_with(
        config(),
        "header; open",
        "begin handle-max=0; attach sender name=a; attach h=1 sender name=b; end",
        "> begin remote=0; * begun 0; * attached 0 s=0 a; > attach h=0 receiver a
         > end amqp:resource-limit-exceeded; * detached 0 SessionEnded; * ended 0 amqp:resource-limit-exceeded",
    );
}

#[test]
fn s59_a_flood_of_empty_frames_writes_nothing() {
    check(&"empty; empty ch=3; ".repeat(50), "");
    check_new(config(), "header; empty; open", "> header 0; * opened peer; > open us");
}

#[test]
fn s57_any_bytes_at_any_point_of_the_handshake() {
    // A good handshake up to some byte, then noise: either more bytes are awaited or the connection ends in time, with
    // nothing unbounded on the way. The script reads what is written as frames, so garbage of ours would show.
    let mut handshake = Vec::new();
    for line in
        ["sasl-header", "sasl-init PLAIN", "header", "open", "begin", "attach sender", "transfer id=0 tag=a"]
    {
        encode_line(line, &mut handshake);
    }
    for seed in 0..1000 {
        let mut random = Random(seed);
        let timeout = Some(10_000_000);
        let config = Config { handshake_timeout_us: timeout, idle_timeout_us: timeout, ..sasl_config(true) };
        let mut script = Script::new(Connection::server(config, 0));
        let cut = random.below(handshake.len() as u64 + 1) as usize;
        let noise = (0..random.below(200)).map(|_| random.next() as u8);
        let bytes: Vec<u8> = handshake[..cut].iter().copied().chain(noise).collect();
        for chunk in bytes.chunks(1 + random.below(60) as usize) {
            let hex: Vec<String> = chunk.iter().map(|byte| format!("{byte:02x}")).collect();
            script.run(&format!("bytes {}; !outcome ok", hex.join(" ")));
        }
        script.run("wait 30000");
        assert!(
            script.log.last().is_some_and(|line| line.starts_with("* closed")),
            "seed {seed}: {:?}",
            script.log
        );
        assert!(script.log.len() < 60, "seed {seed}: {:?}", script.log);
    }
}

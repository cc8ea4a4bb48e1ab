//! Deliveries that arrive.

use super::script::{Script, check, check_with, config, encode_line};
use crate::amqp10::{Config, Connection};

const RECEIVING: &str =
    "header; open; begin; attach sender; attach h=1 sender name=m; !grant 20; !grant l=1 20";

#[test]
fn s34_frames_of_two_links_interleave() {
    // AMQP 1.0 §2.7.5: the frames behind the first name nothing but the handle.
    check_with(
        config(),
        RECEIVING,
        "transfer id=0 tag=a size=10 more; transfer h=1 id=1 tag=b size=3 more; transfer size=20 more
         transfer h=1 size=4; transfer id=0 size=30; !settle 0 accepted; !settle l=1 1 accepted",
        "* message 1 id=1 size=7; * message 0 id=0 size=60; > disposition receiver 0 settled accepted
         > disposition receiver 1 settled accepted",
    );
}

#[test]
fn s34_an_aborted_delivery_vanishes_and_gives_its_credit_back() {
    check_with(
        config(),
        "header; open; begin; attach sender; !grant 1",
        "transfer id=0 tag=a more; transfer more; transfer aborted; transfer id=1 tag=a; !settle 1 accepted; !credit",
        "> flow h=0 dc=1 credit=1 nii=3 window=100; * message 0 id=1 size=1; > disposition receiver 1 settled accepted; = 0",
    );
    check_with(
        config(),
        "header; open; begin; attach sender; !grant 1",
        "transfer id=0 tag=a aborted; !credit; transfer id=1 tag=a settled",
        "> flow h=0 dc=1 credit=1 nii=1 window=100; = 1; * message 0 id=1 size=1 settled",
    );
}

#[test]
fn s34_larger_than_the_max_message_size() {
    check_with(
        Config { max_message_size: 100, ..config() },
        RECEIVING,
        "transfer id=0 tag=a size=100; transfer id=1 tag=b size=60 more; transfer size=41 more; transfer h=1 id=2 tag=c
         detach closed",
        "* message 0 id=0 size=100; > detach h=0 closed amqp:link:message-size-exceeded
         * detached 0 closed Fault amqp:link:message-size-exceeded; * message 1 id=2 size=1",
    );
    check_with(
        Config { max_message_size: 100, ..config() },
        RECEIVING,
        "transfer id=0 tag=a size=101; detach closed",
        "> detach h=0 closed amqp:link:message-size-exceeded; * detached 0 closed Fault amqp:link:message-size-exceeded",
    );
}

#[test]
fn who_sends_too_large_a_message_is_told_the_limit() {
    let mut script = Script::new(Connection::server(Config { max_message_size: 100, ..config() }, 0));
    script.run(RECEIVING);
    let mut bytes = Vec::new();
    encode_line("transfer id=0 tag=a size=101", &mut bytes);
    let mut input = &bytes[..];
    while script.connection.receive(0, &mut input).is_some() {}
    let output = String::from_utf8_lossy(script.connection.output()).into_owned();
    assert!(output.contains("a message larger than the max-message-size: 100 bytes"), "{output:?}");
}

#[test]
fn a_link_may_take_less_than_the_others() {
    check(
        "!manual; attach sender; !accept l=0 max=10; !grant 5; transfer id=0 tag=a size=11; detach closed",
        "* attached 0 s=0 l; > attach h=0 receiver l; > flow h=0 dc=0 credit=5 nii=0 window=100
         > detach h=0 closed amqp:link:message-size-exceeded; * detached 0 closed Fault amqp:link:message-size-exceeded",
    );
}

#[test]
fn unfinished_deliveries_are_bounded_together() {
    // assembly_size_max is 6000, max_message_size 4000.
    let more = "transfer size=900 more; ".repeat(3);
    let other = "transfer h=1 size=900 more; ".repeat(3);
    let mut script = Script::new(Connection::server(config(), 0));
    script.run(RECEIVING);
    script.log.clear();
    script.run(&format!(
        "transfer id=0 tag=a size=900 more; {more} transfer h=1 id=1 tag=b size=900 more; {other}"
    ));
    assert_eq!(
        script.log,
        [
            "> detach h=1 closed amqp:resource-limit-exceeded",
            "* detached 1 closed Fault amqp:resource-limit-exceeded"
        ]
    );
    assert_eq!(script.connection.assembly_size(), 3600);
    script.run("transfer size=1; detach closed; detach h=1 closed");
    assert_eq!(script.connection.assembly_size(), 0);
}

#[test]
fn what_is_unfinished_goes_with_its_link() {
    for end in ["detach", "!detach closed", "end", "close", "!lost", "attach h=2 sender"] {
        let mut script = Script::new(Connection::server(config(), 0));
        script.run(RECEIVING);
        script.run("transfer id=0 tag=a size=900 more; transfer id=0 tag=a size=900 more");
        assert_eq!(script.connection.assembly_size(), 1800);
        script.run(end);
        assert_eq!(script.connection.assembly_size(), 0, "{end}");
    }
}

#[test]
fn a_peer_that_never_settles_second_is_stopped() {
    check_with(
        Config { unsettled_max: 2, ..config() },
        "header; open; begin; attach sender rcv=second; !grant 9",
        "transfer id=0 tag=a; !settle 0 accepted; transfer id=1 tag=b; !settle 1 accepted; transfer id=2 tag=c",
        "* message 0 id=0 size=1; > disposition receiver 0 accepted; * message 0 id=1 size=1
         > disposition receiver 1 accepted; > end amqp:resource-limit-exceeded
         * detached 0 SessionEnded; * ended 0 amqp:resource-limit-exceeded",
    );
}

#[test]
fn resumed_deliveries_are_ignored() {
    // AMQP 1.0 §2.7.5: we have none that could be resumed.
    check_with(
        config(),
        "header; open; begin; attach sender; !grant 2",
        "transfer id=0 tag=a resume; transfer id=1 tag=b resume more; transfer size=5; transfer id=2 tag=c settled; !credit",
        "> flow h=0 dc=1 credit=2 nii=1 window=100; > flow h=0 dc=2 credit=2 nii=3 window=100
         * message 0 id=2 size=1 settled; = 1",
    );
}

#[test]
fn settled_on_a_later_frame() {
    check_with(
        config(),
        RECEIVING,
        "transfer id=0 tag=a more; transfer settled; transfer id=1 tag=a settled more; transfer; !settle 0 accepted",
        "* message 0 id=0 size=2 settled; * message 0 id=1 size=2 settled",
    );
}

#[test]
fn a_settled_link_needs_no_flag() {
    check(
        "attach sender snd=settled; !grant 5; transfer id=0 tag=a; transfer id=1 tag=a",
        "* attached 0 s=0 l; > attach h=0 receiver l; > flow h=0 dc=0 credit=5 nii=0 window=100
         * message 0 id=0 size=1 settled; * message 0 id=1 size=1 settled",
    );
}

#[test]
fn messages_of_a_transaction_say_so() {
    check_with(
        config(),
        RECEIVING,
        "transfer id=0 tag=a transactional; transfer id=1 tag=b transactional more; transfer; !settle 0 transactional
         !settle 1 accepted",
        "* message 0 id=0 size=1 transactional; * message 0 id=1 size=2 transactional
         > disposition receiver 0 settled transactional; > disposition receiver 1 settled accepted",
    );
}

#[test]
fn s33_tags_are_per_link() {
    check_with(
        config(),
        RECEIVING,
        "transfer id=0 tag=a; transfer h=1 id=1 tag=a; transfer id=2 tag=a; detach closed; transfer h=1 id=3 tag=b",
        "* message 0 id=0 size=1; * message 1 id=1 size=1; > detach h=0 closed amqp:invalid-field
         * detached 0 closed Fault amqp:invalid-field; * message 1 id=3 size=1",
    );
}

#[test]
fn s33_a_tag_is_free_again_when_its_delivery_is_settled() {
    check_with(
        config(),
        RECEIVING,
        "transfer id=0 tag=a; !settle 0 accepted; transfer id=1 tag=a; !settle 1 accepted
         transfer id=2 tag=b; transfer id=3 tag=a; !settle 3 accepted; transfer id=4 tag=a
         disposition sender first=4 settled; transfer id=5 tag=a; transfer id=6 tag=b",
        "* message 0 id=0 size=1; > disposition receiver 0 settled accepted; * message 0 id=1 size=1
         > disposition receiver 1 settled accepted; * message 0 id=2 size=1; * message 0 id=3 size=1
         > disposition receiver 3 settled accepted; * message 0 id=4 size=1; * message 0 id=5 size=1
         > detach h=0 closed amqp:invalid-field; * detached 0 closed Fault amqp:invalid-field",
    );
}

#[test]
fn s33_the_highest_tag_is_free_again_too() {
    check_with(
        config(),
        RECEIVING,
        "transfer id=0 tag=1; transfer id=1 tag=2; !settle 1 accepted; transfer id=2 tag=2; transfer id=3 tag=2",
        "* message 0 id=0 size=1; * message 0 id=1 size=1; > disposition receiver 1 settled accepted
         * message 0 id=2 size=1; > detach h=0 closed amqp:invalid-field; * detached 0 closed Fault amqp:invalid-field",
    );
}

#[test]
fn s33_tags_in_any_order_are_told_apart() {
    // Ascending tags, then ones that are not: the index by hash must know those of before too.
    for tags in [["5", "6", "2", "5"], ["9", "10", "3", "10"], ["b", "a", "c", "a"], ["", "z", "y", ""]] {
        let mut script = Script::new(Connection::server(config(), 0));
        script.run(RECEIVING);
        for (id, tag) in tags.iter().enumerate() {
            assert!(!script.log.iter().any(|line| line.contains("detach")), "{tags:?}");
            script.run(&format!("transfer id={id} tag={tag}"));
        }
        assert_eq!(script.log.last().unwrap(), "* detached 0 closed Fault amqp:invalid-field", "{tags:?}");
    }
}

#[test]
fn many_frames_at_once_or_byte_by_byte_are_the_same() {
    let mut bytes = Vec::new();
    for line in [
        "transfer id=0 tag=a size=500 more",
        "empty",
        "transfer size=100",
        "flow h=1",
        "transfer h=1 id=1 tag=b",
        "empty ch=9",
        "disposition sender first=0 last=9 settled",
        "transfer id=2 tag=a aborted",
        "detach h=1 closed",
        "end",
    ] {
        encode_line(line, &mut bytes);
    }
    let run = |size: usize| {
        let mut script = Script::new(Connection::server(config(), 0));
        script.run(RECEIVING);
        script.log.clear();
        for chunk in bytes.chunks(size) {
            let hex: Vec<String> = chunk.iter().map(|byte| format!("{byte:02x}")).collect();
            script.run(&format!("bytes {}", hex.join(" ")));
        }
        script.log.retain(|line| !line.starts_with("> flow"));
        script.log
    };
    assert_eq!(run(1), run(usize::MAX));
    assert_eq!(run(7), run(usize::MAX));
    assert_eq!(run(1).len(), 8);
}

#[test]
fn s24_numbers_wrap_on_their_way_in() {
    // Delivery-count, transfer numbers and delivery numbers pass 2^31 and 2^32.
    for start in [0x7fff_fffe_u32, 0xffff_fffe] {
        let ids: Vec<u32> = (0..4).map(|offset| start.wrapping_add(offset)).collect();
        let mut input = String::new();
        let mut expect = String::new();
        for (tag, id) in ids.iter().enumerate() {
            input += &format!("transfer id={id} tag={tag}; ");
            expect += &format!("* message 0 id={id} size=1; ");
        }
        check_with(
            config(),
            &format!("header; open; begin noi={start}; attach sender idc={start}; !grant 4"),
            &format!("{input} disposition sender first={} last={} settled; !grant 1", ids[0], ids[3]),
            &format!(
                "{expect} > flow h=0 dc={} credit=1 nii={} window=100",
                start.wrapping_add(4),
                start.wrapping_add(4)
            ),
        );
    }
}

//! Attaching and detaching, from both sides.

use super::script::{Script, check, check_client, check_with, config, encode_line};
use crate::amqp10::{Connection, LinkId};

#[test]
fn answers_an_attach_with_its_termini() {
    check(
        "attach sender name=a; attach h=1 receiver name=b; attach h=2 sender name=c anonymous",
        "* attached 0 s=0 a; > attach h=0 receiver a; * attached 1 s=0 b; > attach h=1 sender b
         * attached 2 s=0 c; > attach h=2 receiver c anonymous",
    );
    // The peer's handles are its own.
    check("attach h=6 sender name=a", "* attached 0 s=0 a; > attach h=0 receiver a");
    // AMQP 1.0 §2.6.13: nothing is left of an earlier attachment.
    check("attach receiver unsettled", "* attached 0 s=0 l; > attach h=0 sender l unsettled");
    // An unsubscribing client attaches without a source.
    check(
        "attach receiver null; !detach l=0 closed; detach closed",
        "* attached 0 s=0 l; > attach h=0 sender l null; > detach h=0 closed; * detached 0 closed Peer",
    );
}

#[test]
fn an_answer_may_take_its_time() {
    check(
        "!manual; attach receiver; flow h=0 credit=5; flow h=0 credit=7 drain; begin ch=1; !accept l=0",
        "* attached 0 s=0 l; > ch=1 begin remote=1; * begun 1
         > attach h=0 sender l; * flow 0 credit=7 drain",
    );
    check(
        "!manual; attach receiver; detach closed; !accept l=0; !refuse l=0 error=x:y",
        "* attached 0 s=0 l; > attach h=0 sender l null; > detach h=0 closed; * detached 0 closed Peer",
    );
    check(
        "!manual; attach sender; transfer id=0 tag=a; detach closed",
        "* attached 0 s=0 l; > attach h=0 receiver l null
         > detach h=0 closed amqp:link:transfer-limit-exceeded
         * detached 0 closed Fault amqp:link:transfer-limit-exceeded",
    );
}

#[test]
fn refusal_leaves_session_and_other_links() {
    // AMQP 1.0 §2.6.3. proton has its flow on the way already.
    check(
        "!manual; attach receiver; flow h=0 credit=5; !refuse l=0 error=amqp:not-found; flow h=0 credit=6; detach closed
         attach receiver; !accept l=0",
        "* attached 0 s=0 l; > attach h=0 sender l null; > detach h=0 closed amqp:not-found; * detached 0 closed Peer
         * attached 0 s=0 l; > attach h=0 sender l",
    );
}

#[test]
fn a_detach_is_answered_in_kind() {
    // AMQP 1.0 §2.6.6.
    check(
        "attach sender; detach closed; attach sender; detach; attach sender; detach closed error=x:y",
        "* attached 0 s=0 l; > attach h=0 receiver l; > detach h=0 closed; * detached 0 closed Peer
         * attached 0 s=0 l; > attach h=0 receiver l; > detach h=0; * detached 0 Peer
         * attached 0 s=0 l; > attach h=0 receiver l; > detach h=0 closed; * detached 0 closed Peer x:y",
    );
}

#[test]
fn detaching_ourselves() {
    check(
        "attach sender; !grant 5; !detach closed error=amqp:resource-deleted; transfer id=0 tag=a; flow h=0; detach closed",
        "* attached 0 s=0 l; > attach h=0 receiver l; > flow h=0 dc=0 credit=5 nii=0 window=100
         > detach h=0 closed amqp:resource-deleted; * detached 0 closed Peer",
    );
}

#[test]
fn a_transfer_then_a_detach_without_waiting() {
    // The message is stored and its sender told, though its link is gone.
    check(
        "attach sender; !grant 5; transfer id=0 tag=a; detach closed; attach sender; !settle 0 accepted; !settle 0 accepted
         detach closed; attach sender",
        "* attached 0 s=0 l; > attach h=0 receiver l; > flow h=0 dc=0 credit=5 nii=0 window=100
         * message 0 id=0 size=1; > detach h=0 closed; * detached 0 closed Peer
         * attached 1 s=0 l; > attach h=1 receiver l
         > disposition receiver 0 settled accepted
         > detach h=1 closed; * detached 1 closed Peer; * attached 1 s=0 l; > attach h=1 receiver l",
    );
}

#[test]
fn dispositions_come_before_the_detach_and_the_end() {
    let mut script = Script::new(Connection::server(config(), 0));
    script.run("header; open; begin; attach sender; !grant 5");
    script.log.clear();
    let mut bytes = Vec::new();
    encode_line("transfer id=0 tag=a", &mut bytes);
    let mut input = &bytes[..];
    while script.connection.receive(0, &mut input).is_some() {}
    script.connection.settle(LinkId(0), 0, &corelane_wire::amqp10::DeliveryState::Accepted);
    script.run("end; transfer id=9");
    let expect =
        ["* detached 0 SessionEnded", "> disposition receiver 0 settled accepted", "> end", "* ended 0"];
    assert_eq!(script.log[..4], expect);
}

#[test]
fn the_last_attach_of_a_name_has_the_link() {
    // AMQP 1.0 §2.6.1.
    check(
        "begin ch=1; attach receiver name=n; attach ch=1 receiver name=n; detach closed; attach sender name=n",
        "> ch=1 begin remote=1; * begun 1; * attached 0 s=0 n; > attach h=0 sender n
         > detach h=0 closed amqp:link:stolen; * detached 0 closed Stolen amqp:link:stolen
         * attached 1 s=1 n; > ch=1 attach h=0 sender n
         * attached 0 s=0 n; > attach h=0 receiver n",
    );
}

#[test]
fn ending_a_session() {
    check(
        "attach sender; end error=x:y",
        "* attached 0 s=0 l; > attach h=0 receiver l; * detached 0 SessionEnded; > end; * ended 0 x:y",
    );
    // What is on its way when we end is passed over, and nothing of ours follows our end.
    check(
        "attach sender; !grant 1; !end error=x:y; transfer id=0 tag=a; flow h=9; !grant 5; !settle 0 accepted; end",
        "* attached 0 s=0 l; > attach h=0 receiver l; > flow h=0 dc=0 credit=1 nii=0 window=100; > end x:y
         * detached 0 SessionEnded; * ended 0",
    );
}

#[test]
fn nothing_is_written_on_a_channel_behind_its_end() {
    check(
        "attach sender; attach h=1 receiver name=m; !grant 5; flow h=1 credit=5; transfer id=0 tag=a; end
         !settle 0 accepted; !send l=1; !grant 9; !drained l=1; !detach closed; !end",
        "* attached 0 s=0 l; > attach h=0 receiver l; * attached 1 s=0 m; > attach h=1 sender m
         > flow h=0 dc=0 credit=5 nii=0 window=100; * flow 1 credit=5; * message 0 id=0 size=1
         * detached 0 SessionEnded; * detached 1 SessionEnded; > end; * ended 0; = Detached",
    );
}

#[test]
fn channels_are_used_again() {
    check(
        "end; begin; begin ch=4; end; begin ch=6",
        "> end; * ended 0; > begin remote=0; * begun 0; > ch=1 begin remote=4; * begun 1; > end; * ended 0
         > begin remote=6; * begun 0",
    );
}

#[test]
fn attaching_as_a_client() {
    let before = "header; open; !begin; begin remote=0";
    check_client(
        config(),
        before,
        "!attach sender name=a; !attach receiver name=b; !grant l=1 10; attach h=4 receiver name=a max=9
         attach h=5 sender name=b idc=7; !send size=10; flow h=4 credit=1; !send size=10; !send size=9; !credit l=1",
        "> attach h=0 sender a; = Some(0); > attach h=1 receiver b; = Some(1); > flow h=1 credit=10 nii=0 window=100
         * confirmed 0; * confirmed 1; = NoCredit; * flow 0 credit=1; = too large; > transfer h=0 id=0 size=9; = 10",
    );
    // Refused: the answer has no terminus, and the detach says why.
    check_client(
        config(),
        before,
        "!attach receiver name=a; attach sender name=a null; detach closed error=amqp:not-found",
        "> attach h=0 receiver a; = Some(0); * confirmed 0 null; > detach h=0 closed
         * detached 0 closed Peer amqp:not-found",
    );
    // Attached and detached before anything was answered.
    check_client(
        config(),
        before,
        "!attach receiver name=a; !detach closed; attach sender name=a; detach closed; !attach receiver name=a",
        "> attach h=0 receiver a; = Some(0); > detach h=0 closed; * detached 0 closed Peer
         > attach h=0 receiver a; = Some(0)",
    );
    check_client(
        config(),
        "header; open channel-max=0",
        "!attach sender; !begin; !begin; !attach sender; begin remote=0 handle-max=0; !attach sender name=m",
        "= None; > begin; = Some(0); = None; > attach h=0 sender l; = Some(0); * begun 0 ours; = None",
    );
}

#[test]
fn an_answer_larger_than_the_peers_frames_is_a_refusal() {
    let name = "n".repeat(500);
    let short = "n".repeat(470);
    check_with(
        config(),
        "header; open max-frame=512; begin",
        &format!("attach receiver name={short}; detach closed"),
        &format!(
            "* attached 0 s=0 {short}; > attach h=0 sender {short} null; > detach h=0 closed amqp:frame-size-too-small
             * detached 0 closed Peer"
        ),
    );
    check_with(
        config(),
        "header; open max-frame=512; begin",
        &format!("attach receiver name={name}"),
        &format!(
            "* attached 0 s=0 {name}; > end amqp:frame-size-too-small; * detached 0 SessionEnded; * ended 0 amqp:frame-size-too-small"
        ),
    );
}

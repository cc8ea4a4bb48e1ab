//! Deliveries that are sent.

use super::script::{check_with, config};
use crate::amqp10::Config;

const SENDING: &str = "header; open max-frame=512; begin; attach receiver; flow h=0 credit=100";

#[test]
fn a_message_larger_than_the_peers_frames_is_split() {
    // Frames hold 512 bytes, their overhead at most 40.
    check_with(
        config(),
        SENDING,
        "!send size=472; !send size=473; !send size=1000; !send size=0",
        "> transfer h=0 id=0 size=472; > transfer h=0 id=1 size=472 more; > transfer h=0 size=1
         > transfer h=0 id=2 size=472 more; > transfer h=0 size=472 more; > transfer h=0 size=56
         > transfer h=0 id=3 size=0",
    );
}

#[test]
fn links_take_turns_when_a_message_is_large() {
    check_with(
        Config { burst_size_max: 900, ..config() },
        "header; open max-frame=512; begin; attach receiver; attach h=1 receiver name=m; flow h=0 credit=9; flow h=1 credit=9",
        "!send size=2000; !ready; !send; !send l=1; !more 1056; !more 112; !ready; !more 5",
        "> transfer h=0 id=0 size=472 more; > transfer h=0 size=472 more; = written 944; = Busy; = Busy
         > transfer h=1 id=1 size=1; > transfer h=0 size=472 more; > transfer h=0 size=472 more; = written 944
         > transfer h=0 size=112; = Ready; = Ready",
    );
}

#[test]
fn the_window_counts_frames() {
    check_with(
        config(),
        "header; open max-frame=512; begin window=2; attach receiver; flow h=0 credit=9 window=2",
        "!send size=1000; flow nii=2 window=1; !more 56; !ready; flow nii=3 window=1; !ready",
        "> transfer h=0 id=0 size=472 more; > transfer h=0 size=472 more; = written 944; * window 0
         > transfer h=0 size=56; = NoWindow; * window 0; = Ready",
    );
}

#[test]
fn a_delivery_is_taken_back() {
    // AMQP 1.0 §2.7.5: an aborted delivery is settled, and its credit is used.
    let before = "header; open max-frame=512; begin window=2; attach receiver; flow h=0 credit=9 window=2";
    check_with(
        config(),
        before,
        "!send size=1000; flow nii=2 window=2; !abort; !abort; !credit; disposition first=0 settled accepted; !send",
        "> transfer h=0 id=0 size=472 more; > transfer h=0 size=472 more; = written 944; * window 0
         > transfer h=0 id=0 size=0 aborted; = 8; > transfer h=0 id=1 size=1",
    );
    // Without a window the abort waits, as any transfer does.
    check_with(
        config(),
        before,
        "!send size=1000; !abort; !ready; !more 5; flow nii=2 window=1; !ready; flow nii=3 window=1; !ready",
        "> transfer h=0 id=0 size=472 more; > transfer h=0 size=472 more; = written 944; = Busy; = Busy
         > transfer h=0 id=0 size=0 aborted; = NoWindow; * window 0; = Ready",
    );
}

#[test]
fn an_outcome_may_come_before_the_end_of_its_message() {
    check_with(
        config(),
        "header; open max-frame=512; begin window=2; attach receiver; flow h=0 credit=9 window=2",
        "!send size=1000; disposition first=0 settled rejected; flow nii=2 window=1; !more 56",
        "> transfer h=0 id=0 size=472 more; > transfer h=0 size=472 more; = written 944; * disposition rejected settled
         * outcome l=0 0; * window 0; > transfer h=0 size=56",
    );
}

#[test]
fn s27_a_settled_delivery_has_no_outcome() {
    check_with(
        config(),
        "header; open; begin; attach receiver snd=settled; attach h=1 receiver name=m; attach h=2 receiver name=u snd=unsettled
         flow h=0 credit=9; flow h=1 credit=9; flow h=2 credit=9",
        "!send; !send l=1 settled; !send l=2 settled; disposition first=0 last=2 settled accepted",
        "> transfer h=0 id=0 size=1 settled; > transfer h=1 id=1 size=1 settled; > transfer h=2 id=2 size=1
         * disposition accepted settled; * outcome l=2 2",
    );
}

#[test]
fn s24_numbers_wrap_on_their_way_out() {
    for start in [0x7fff_fffe_u32, 0xffff_fffe] {
        let id = |offset: u32| start.wrapping_add(offset);
        check_with(
            Config { serial_first: start, ..config() },
            "header; open; begin; attach receiver; flow h=0 early window=3 credit=4",
            &format!(
                "!send count=4; flow h=0 nii={} window=2 dc={} credit=3; !send count=2; !send
                 disposition first={} last={} settled accepted; flow h=0 nii={} window=9 dc={} credit=9 drain; !drained",
                id(3), id(2), id(0), id(4), id(5), id(5)
            ),
            &format!(
                "> transfer h=0 id={} size=1; > transfer h=0 id={} size=1; > transfer h=0 id={} size=1; = NoWindow
                 * flow 0 credit=2; * window 0; > transfer h=0 id={} size=1; > transfer h=0 id={} size=1; = NoCredit
                 * disposition accepted settled; * outcome l=0 0; * outcome l=0 1; * outcome l=0 2; * outcome l=0 4
                 * outcome l=0 5; * flow 0 credit=9 drain; * window 0
                 > flow h=0 dc={} credit=0 drain nii=0 window=100",
                id(0), id(1), id(2), id(3), id(4), id(14)
            ),
        );
    }
}

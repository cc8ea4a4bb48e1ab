//! Messages that a peer publishes, and what it hears of them.

use super::script::check;

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
}

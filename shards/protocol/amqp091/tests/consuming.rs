//! Messages that a peer gets, and what it says of them.

use super::script::check;

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

//! Messages with values that are none: they are shown, as far as they can be read, and so is what stands before and behind them.

use corelane_sim::{Item, Operator, SenderOptions};

use crate::{name_at, world};

/// Values that are none, or are not to be read: text and a symbol that are no text, a list that counts more than it has, a character
/// and a boolean that are none, a constructor that nobody knows, a map without its last value.
const VALUES: [&[u8]; 7] = [
    b"\xa1\x02\xff\xfe",
    b"\xa3\x02\xff\xfe",
    b"\xd0\0\0\0\x04\x80\0\0\0",
    b"\x73\x00\x11\x00\x00",
    b"\x56\x07",
    b"\xc0\x03\x01\x59\x40",
    b"\xc1\x02\x01\x40",
];

/// A message of one section, and a body if the section is none.
fn message(code: u8, value: &[u8]) -> Vec<u8> {
    let mut bytes = vec![0, 0x53, code];
    bytes.extend_from_slice(value);
    if code < 0x75 {
        bytes.extend_from_slice(b"\0\x53\x77\xa1\x01y");
    }
    bytes
}

/// A map of `good: 1`, a key and a value, and `last: 2`.
fn map(key: &[u8], value: &[u8]) -> Vec<u8> {
    let mut elements = b"\xa1\x04good\x54\x01".to_vec();
    for part in [key, value, b"\xa1\x04last\x54\x02"] {
        elements.extend_from_slice(part);
    }
    let mut bytes = vec![0xc1, elements.len() as u8 + 1, 6];
    bytes.extend(elements);
    bytes
}

/// Sends the message between two that are well-formed; expects of it this under that name.
fn check(sent: &[u8], at: &str, expect: &str) {
    for shards in [1, 2] {
        let mut world = world(shards);
        let mut operator = Operator::new(&mut world, 0);
        let queue = name_at(shards - 1, shards);
        let client = world.connect(0);
        let sender = world.clients[client].attach_sender("s", &queue, &SenderOptions::default());
        world.run();
        for bytes in [&*message(0x77, b"\xa1\x01x"), sent, &*message(0x77, b"\xa1\x01z")] {
            world.clients[client].send_bytes(sender, bytes);
        }
        world.run();
        let answer = operator.ask(&mut world, "PEEK", ("queue", &queue), &[], &[]);
        assert_eq!(answer.status, 200, "{answer:?}");
        assert_eq!(answer.at(&format!("messages.1.{at}")), expect, "{sent:x?}");
        assert_eq!((answer.at("messages.0.body"), answer.at("messages.2.body")), ("x".into(), "z".into()));
        let explained = operator.ask(&mut world, "EXPLAIN", ("queue", &queue), &[], &[]);
        assert_eq!(explained.status, 200, "{explained:?}");
        let place = answer.at("messages.1.place");
        let ids = [("ids", Item::Texts(&[&place]))];
        let deleted = operator.ask(&mut world, "DELETE-MESSAGES", ("queue", &queue), &[], &ids);
        assert_eq!(deleted.at("count"), "1", "{deleted:?}");
    }
}

#[test]
fn a_value_that_cannot_be_read_is_shown_as_such_among_those_that_can() {
    for value in VALUES {
        for (code, section) in [(0x72, "message-annotations"), (0x74, "application-properties")] {
            let sent = message(code, &map(b"\xa1\x01k", value));
            check(&sent, section, "{good: 1, k: (cannot be read), last: 2}");
            let sent = message(code, &map(value, b"\x54\x03"));
            check(&sent, section, "{good: 1, (position 2): 3, last: 2}");
        }
    }
}

#[test]
fn what_stands_behind_a_value_without_an_end_is_not_looked_for() {
    let sent = message(0x74, &map(b"\xa1\x01k", b"\x59"));
    check(&sent, "application-properties", "{good: 1, (position 2 and behind): (cannot be read)}");
}

#[test]
fn properties_and_bodies_that_cannot_be_read_are_shown_as_such() {
    for value in VALUES {
        let mut id = vec![0xc0, value.len() as u8 + 1, 1];
        id.extend_from_slice(value);
        check(&message(0x73, &id), "message-id", "(cannot be read)");
        check(&message(0x77, value), "body", "(cannot be read)");
    }
}

/// Deeper than an answer is looked at.
#[test]
fn what_is_too_deep_counts_as_unreadable() {
    let deep = (0..100).fold(vec![0x40], |inner, _| {
        let mut list = vec![0xd0];
        list.extend_from_slice(&(inner.len() as u32 + 4).to_be_bytes());
        list.extend_from_slice(&1_u32.to_be_bytes());
        list.extend(inner);
        list
    });
    check(&message(0x77, &deep), "body", "(cannot be read)");
}

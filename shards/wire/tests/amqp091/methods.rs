//! Every method as the specification's tables have it, beside what the codec makes of it.

use corelane_wire::amqp091::{DecodeError, Encode, Method, MethodError, MethodId, ReplyCode};
use proptest::collection::vec;
use proptest::prelude::*;

/// Name, class, method, and arguments with the types of the wire; `_` is reserved. From the specification's tables with
/// RabbitMQ's extensions, and the class access from those of 0-9.
const METHODS: &[(&str, u16, u16, &str)] = &[
    (
        "connection.start",
        10,
        10,
        "version-major:octet version-minor:octet server-properties:table mechanisms:longstr locales:longstr",
    ),
    (
        "connection.start-ok",
        10,
        11,
        "client-properties:table mechanism:shortstr response:longstr locale:shortstr",
    ),
    ("connection.secure", 10, 20, "challenge:longstr"),
    ("connection.secure-ok", 10, 21, "response:longstr"),
    ("connection.tune", 10, 30, "channel-max:short frame-max:long heartbeat:short"),
    ("connection.tune-ok", 10, 31, "channel-max:short frame-max:long heartbeat:short"),
    ("connection.open", 10, 40, "virtual-host:shortstr _:shortstr _:bit"),
    ("connection.open-ok", 10, 41, "_:shortstr"),
    ("connection.close", 10, 50, "reply-code:short reply-text:shortstr class-id:short method-id:short"),
    ("connection.close-ok", 10, 51, ""),
    ("connection.blocked", 10, 60, "reason:shortstr"),
    ("connection.unblocked", 10, 61, ""),
    ("connection.update-secret", 10, 70, "new-secret:longstr reason:shortstr"),
    ("connection.update-secret-ok", 10, 71, ""),
    ("channel.open", 20, 10, "_:shortstr"),
    ("channel.open-ok", 20, 11, "_:longstr"),
    ("channel.flow", 20, 20, "active:bit"),
    ("channel.flow-ok", 20, 21, "active:bit"),
    ("channel.close", 20, 40, "reply-code:short reply-text:shortstr class-id:short method-id:short"),
    ("channel.close-ok", 20, 41, ""),
    ("access.request", 30, 10, "realm:shortstr exclusive:bit passive:bit active:bit write:bit read:bit"),
    ("access.request-ok", 30, 11, "ticket:short"),
    (
        "exchange.declare",
        40,
        10,
        "_:short exchange:shortstr type:shortstr passive:bit durable:bit auto-delete:bit internal:bit no-wait:bit arguments:table",
    ),
    ("exchange.declare-ok", 40, 11, ""),
    ("exchange.delete", 40, 20, "_:short exchange:shortstr if-unused:bit no-wait:bit"),
    ("exchange.delete-ok", 40, 21, ""),
    (
        "exchange.bind",
        40,
        30,
        "_:short destination:shortstr source:shortstr routing-key:shortstr no-wait:bit arguments:table",
    ),
    ("exchange.bind-ok", 40, 31, ""),
    (
        "exchange.unbind",
        40,
        40,
        "_:short destination:shortstr source:shortstr routing-key:shortstr no-wait:bit arguments:table",
    ),
    ("exchange.unbind-ok", 40, 51, ""),
    (
        "queue.declare",
        50,
        10,
        "_:short queue:shortstr passive:bit durable:bit exclusive:bit auto-delete:bit no-wait:bit arguments:table",
    ),
    ("queue.declare-ok", 50, 11, "queue:shortstr message-count:long consumer-count:long"),
    (
        "queue.bind",
        50,
        20,
        "_:short queue:shortstr exchange:shortstr routing-key:shortstr no-wait:bit arguments:table",
    ),
    ("queue.bind-ok", 50, 21, ""),
    ("queue.purge", 50, 30, "_:short queue:shortstr no-wait:bit"),
    ("queue.purge-ok", 50, 31, "message-count:long"),
    ("queue.delete", 50, 40, "_:short queue:shortstr if-unused:bit if-empty:bit no-wait:bit"),
    ("queue.delete-ok", 50, 41, "message-count:long"),
    ("queue.unbind", 50, 50, "_:short queue:shortstr exchange:shortstr routing-key:shortstr arguments:table"),
    ("queue.unbind-ok", 50, 51, ""),
    ("basic.qos", 60, 10, "prefetch-size:long prefetch-count:short global:bit"),
    ("basic.qos-ok", 60, 11, ""),
    (
        "basic.consume",
        60,
        20,
        "_:short queue:shortstr consumer-tag:shortstr no-local:bit no-ack:bit exclusive:bit no-wait:bit arguments:table",
    ),
    ("basic.consume-ok", 60, 21, "consumer-tag:shortstr"),
    ("basic.cancel", 60, 30, "consumer-tag:shortstr no-wait:bit"),
    ("basic.cancel-ok", 60, 31, "consumer-tag:shortstr"),
    ("basic.publish", 60, 40, "_:short exchange:shortstr routing-key:shortstr mandatory:bit immediate:bit"),
    ("basic.return", 60, 50, "reply-code:short reply-text:shortstr exchange:shortstr routing-key:shortstr"),
    (
        "basic.deliver",
        60,
        60,
        "consumer-tag:shortstr delivery-tag:longlong redelivered:bit exchange:shortstr routing-key:shortstr",
    ),
    ("basic.get", 60, 70, "_:short queue:shortstr no-ack:bit"),
    (
        "basic.get-ok",
        60,
        71,
        "delivery-tag:longlong redelivered:bit exchange:shortstr routing-key:shortstr message-count:long",
    ),
    ("basic.get-empty", 60, 72, "_:shortstr"),
    ("basic.ack", 60, 80, "delivery-tag:longlong multiple:bit"),
    ("basic.reject", 60, 90, "delivery-tag:longlong requeue:bit"),
    ("basic.recover-async", 60, 100, "requeue:bit"),
    ("basic.recover", 60, 110, "requeue:bit"),
    ("basic.recover-ok", 60, 111, ""),
    ("basic.nack", 60, 120, "delivery-tag:longlong multiple:bit requeue:bit"),
    ("confirm.select", 85, 10, "nowait:bit"),
    ("confirm.select-ok", 85, 11, ""),
    ("tx.select", 90, 10, ""),
    ("tx.select-ok", 90, 11, ""),
    ("tx.commit", 90, 20, ""),
    ("tx.commit-ok", 90, 21, ""),
    ("tx.rollback", 90, 30, ""),
    ("tx.rollback-ok", 90, 31, ""),
];

/// What `#[derive(Debug)]` makes of a method's struct: its name, then each argument with its name.
struct Expected {
    debug: String,
    bytes: Vec<u8>,
    /// Where each argument starts that is not a bit.
    places: Vec<usize>,
}

/// `get-ok` → `GetOk`
fn camel(name: &str) -> String {
    name.split('-').map(|word| word[..1].to_uppercase() + &word[1..]).collect()
}

fn snake(name: &str) -> String {
    match name {
        "type" => "kind".to_owned(),
        "nowait" => "no_wait".to_owned(),
        _ => name.replace('-', "_"),
    }
}

/// The payload of a method frame with values made from `seeds`, and how the method shows.
fn expected((name, class_id, method_id, arguments): (&str, u16, u16, &str), seeds: &[u64]) -> Expected {
    let (class, method) = name.split_once('.').expect("a class");
    let mut bytes = [class_id.to_be_bytes(), method_id.to_be_bytes()].concat();
    let (mut fields, mut places) = (Vec::new(), Vec::new());
    let mut bit = 0;
    for (argument, seed) in arguments.split_whitespace().zip(seeds.iter().cycle()) {
        let (argument, kind) = argument.split_once(':').expect("a type");
        // What is reserved is written as zero.
        let seed = if argument == "_" { 0 } else { *seed };
        let text = if seed == 0 { vec![] } else { seed.to_be_bytes()[(seed % 8) as usize..].to_vec() };
        if kind == "bit" {
            if bit % 8 == 0 {
                bytes.push(0);
            }
            *bytes.last_mut().expect("an octet") |= ((seed & 1) as u8) << (bit % 8);
            bit += 1;
        } else {
            bit = 0;
            places.push(bytes.len());
        }
        let shown = match kind {
            "bit" => format!("{}", seed & 1 == 1),
            "octet" => {
                bytes.push(seed as u8);
                format!("{}", seed as u8)
            }
            "short" => {
                bytes.extend_from_slice(&(seed as u16).to_be_bytes());
                format!("{}", seed as u16)
            }
            "long" => {
                bytes.extend_from_slice(&(seed as u32).to_be_bytes());
                format!("{}", seed as u32)
            }
            "longlong" => {
                bytes.extend_from_slice(&seed.to_be_bytes());
                format!("{seed}")
            }
            "shortstr" => {
                bytes.push(text.len() as u8);
                bytes.extend_from_slice(&text);
                format!("\"{}\"", text.escape_ascii())
            }
            "longstr" => {
                bytes.extend_from_slice(&(text.len() as u32).to_be_bytes());
                bytes.extend_from_slice(&text);
                format!("{text:?}")
            }
            "table" => {
                let pair = [&[text.len() as u8], text.as_slice(), b"B", &[seed as u8]].concat();
                bytes.extend_from_slice(&(pair.len() as u32).to_be_bytes());
                bytes.extend_from_slice(&pair);
                format!("Table({pair:?})")
            }
            _ => panic!("unknown type {kind}"),
        };
        if argument != "_" {
            fields.push(format!("{}: {shown}", snake(argument)));
        }
    }
    let fields = if fields.is_empty() { String::new() } else { format!(" {{ {} }}", fields.join(", ")) };
    let (class, method) = (camel(class), camel(method));
    Expected { debug: format!("{class}({method}({method}{fields}))"), bytes, places }
}

fn encode(method: &Method<'_>) -> Vec<u8> {
    let mut out = Vec::new();
    method.encode(&mut out);
    out
}

proptest! {
    #[test]
    fn every_method_is_read_and_written(seeds in vec(prop_oneof![any::<u64>(), Just(0)], 9)) {
        for row in METHODS {
            let Expected { debug, bytes, places } = expected(*row, &seeds);
            let method = Method::decode(&bytes);
            let shown = method.map(|method| format!("{method:?}"));
            prop_assert_eq!(shown, Ok(debug));
            let method = method.expect("just compared");
            prop_assert_eq!(encode(&method), bytes.as_slice());
            let id = MethodId { class_id: row.1, method_id: row.2 };
            prop_assert_eq!(method.id(), id);
            prop_assert_eq!(id.name(), Some(row.0));
            for end in 4..bytes.len() {
                prop_assert_eq!(
                    Method::decode(&bytes[..end]),
                    Err(MethodError { id, error: DecodeError::Truncated }),
                    "{} cut at {}", row.0, end
                );
            }
            let longer = [bytes.as_slice(), &[0]].concat();
            prop_assert_eq!(
                Method::decode(&longer),
                Err(MethodError { id, error: DecodeError::TrailingBytes })
            );
            // No size is believed.
            for place in places {
                for size in [[0xff; 4], [0x80, 0, 0, 0], [0x7f, 0xff, 0xff, 0xff]] {
                    let mut bytes = bytes.clone();
                    bytes.iter_mut().skip(place).zip(size).for_each(|(byte, size)| *byte = size);
                    let _ = Method::decode(&bytes);
                }
            }
        }
    }
}

#[test]
fn there_are_no_other_methods() {
    for class_id in 0..=200 {
        for method_id in 0..=200 {
            let id = MethodId { class_id, method_id };
            let is_known =
                METHODS.iter().any(|(_, class, method, _)| (*class, *method) == (class_id, method_id));
            assert_eq!(id.name().is_some(), is_known, "{id}");
            let bytes = [class_id.to_be_bytes(), method_id.to_be_bytes()].concat();
            let unknown = MethodError { id, error: DecodeError::UnknownMethod };
            assert_eq!(Method::decode(&bytes) == Err(unknown), !is_known, "{id}");
        }
    }
    let unknown =
        MethodError { id: MethodId { class_id: 60, method_id: 200 }, error: DecodeError::UnknownMethod };
    assert_eq!(unknown.reply_code(), ReplyCode::CommandInvalid);
    assert_eq!(unknown.to_string(), "method 200 of class 60: unknown method");
    for end in 0..4 {
        let error = Method::decode(&[0, 60, 0, 40][..end]).expect_err("no numbers");
        assert_eq!((error.id, error.reply_code().code()), (MethodId::default(), 501));
    }
}

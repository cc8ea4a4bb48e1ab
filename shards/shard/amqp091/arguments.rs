//! How is a queue declared, and what do its `x-` arguments mean?
//!
//! They are properties of that queue alone, which stand above every rule:
//!
//! | argument | property |
//! |---|---|
//! | `x-message-ttl` | `expiration`; 0 is the shortest there is |
//! | `x-expires` | `idle-expiry` |
//! | `x-max-length`, `x-max-length-bytes` | `messages-max`, `bytes-max`; what consumers hold does not count for the first |
//! | the same, 0 | `bytes-max` = 1: nothing stays |
//! | `x-overflow`: `drop-head` (without it, too, where there is a maximum), `reject-publish`, `reject-publish-dlx` | `overflow` |
//! | `x-max-priority`, unless 0 | `priorities` |
//! | `x-single-active-consumer` | `exclusive` |
//! | `x-delivery-limit` | `deliveries-max`, one more: so many deliveries may fail |
//! | `x-dead-letter-exchange`, `x-dead-letter-routing-key` | `dead-letter`: the exchange's address |
//! | `x-queue-type`: `classic`, `quorum` | none: a durable queue is kept |
//!
//! A number that is beyond what the property may be is the nearest that it may be. What was declared is kept with the queue, as long as that is kept: who declares it again has to mean the same. Numbers of different types
//! are the same if their values are. What is refused is refused in RabbitMQ's words.
//!
//! Left out: arguments about how a cluster of RabbitMQ stores a queue are taken and do nothing; names that nobody knows are told to the
//! caller, and do nothing either.

use std::fmt;
use std::fmt::Write as _;

use bytes::Bytes;
use corelane_wire::amqp091::{DecodeError, FieldValue, ReplyCode, ShortStr, Table, TableWriter};

use super::values::type_name;
use crate::address::exchange_address;
use crate::destinations::{DestinationRule, OverflowRule};
use crate::properties;
use crate::vhost::InVhost;

const MESSAGE_TTL: &str = "x-message-ttl";
const EXPIRES: &str = "x-expires";
const MAX_LENGTH: &str = "x-max-length";
const MAX_LENGTH_BYTES: &str = "x-max-length-bytes";
const OVERFLOW: &str = "x-overflow";
const MAX_PRIORITY: &str = "x-max-priority";
const SINGLE_ACTIVE_CONSUMER: &str = "x-single-active-consumer";
const DELIVERY_LIMIT: &str = "x-delivery-limit";
pub(super) const DEAD_LETTER_EXCHANGE: &str = "x-dead-letter-exchange";
const DEAD_LETTER_ROUTING_KEY: &str = "x-dead-letter-routing-key";
const QUEUE_TYPE: &str = "x-queue-type";

/// Those that mean something here, in the order in which they are compared.
const KNOWN: [&str; 11] = [
    EXPIRES,
    MESSAGE_TTL,
    DEAD_LETTER_EXCHANGE,
    DEAD_LETTER_ROUTING_KEY,
    MAX_LENGTH,
    MAX_LENGTH_BYTES,
    MAX_PRIORITY,
    OVERFLOW,
    SINGLE_ACTIVE_CONSUMER,
    DELIVERY_LIMIT,
    QUEUE_TYPE,
];

/// RabbitMQ's, that do nothing here.
const WITHOUT_EFFECT: [&str; 10] = [
    "x-cancel-on-ha-failover",
    "x-dead-letter-strategy",
    "x-max-in-memory-bytes",
    "x-max-in-memory-length",
    "x-queue-leader-locator",
    "x-queue-master-locator",
    "x-queue-mode",
    "x-queue-version",
    "x-quorum-initial-group-size",
    "x-quorum-target-group-size",
];

const CLASSIC: &str = "classic";
const DROP_HEAD: &str = "drop-head";

const MILLISECONDS_MAX: i64 = i64::MAX / 1000;
const PRIORITY_MAX: i64 = 255;

/// A queue as it was declared.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Declared {
    pub(crate) durable: bool,
    pub(crate) auto_delete: bool,
    /// A field table of those that are [`KNOWN`], each once.
    arguments: Box<[u8]>,
}

/// Why a declaration is refused.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Refused {
    /// Its arguments cannot be read. The connection ends.
    Malformed(DecodeError),
    /// The channel ends.
    Precondition(Box<str>),
}

impl Refused {
    pub(crate) fn reply_code(&self) -> ReplyCode {
        match self {
            Refused::Malformed(error) => error.reply_code(),
            Refused::Precondition(_) => ReplyCode::PreconditionFailed,
        }
    }
}

impl fmt::Display for Refused {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Refused::Malformed(error) => error.fmt(f),
            Refused::Precondition(text) => f.write_str(text),
        }
    }
}

impl Declared {
    /// Takes a declaration, if all its arguments make sense. Names that nobody knows are told to `unknown`.
    pub(crate) fn read(
        queue: &str,
        (durable, auto_delete): (bool, bool),
        arguments: Table<'_>,
        mut unknown: impl FnMut(ShortStr<'_>),
    ) -> Result<Self, Refused> {
        let mut known = Vec::new();
        let mut writer = TableWriter::new(&mut known);
        let mut seen = [false; KNOWN.len()];
        for pair in arguments {
            let (name, value) = pair.map_err(Refused::Malformed)?;
            match KNOWN.iter().position(|known| name == *known) {
                Some(index) => {
                    if !std::mem::replace(&mut seen[index], true) {
                        writer.pair(name, value);
                    }
                }
                None if WITHOUT_EFFECT.iter().any(|known| name == *known) => {}
                None => unknown(name),
            }
        }
        let declared = Declared { durable, auto_delete, arguments: known.into() };
        declared.interpret(queue)?;
        Ok(declared)
    }

    /// A durable queue without arguments.
    pub(crate) fn durable() -> Self {
        Declared { durable: true, ..Declared::default() }
    }

    /// One that goes with its consumer.
    pub(crate) fn of_replies() -> Self {
        Declared { auto_delete: true, ..Declared::default() }
    }

    /// The properties that it asks for.
    pub(crate) fn rule(&self) -> DestinationRule {
        self.interpret("").unwrap_or_default()
    }

    /// Whether a queue that was declared so is as it is `asked` for.
    pub(crate) fn check_equivalent(&self, queue: &str, asked: &Declared) -> Result<(), Refused> {
        let flags =
            [("durable", asked.durable, self.durable), ("auto_delete", asked.auto_delete, self.auto_delete)];
        if let Some((name, asked, found)) = flags.into_iter().find(|(_, asked, found)| asked != found) {
            return Err(inequivalent(name, queue, format_args!("'{asked}'"), format_args!("'{found}'")));
        }
        for name in KNOWN {
            let [asked, found] = [asked, self].map(|declared| declared.argument(name).map(Shown));
            match (asked, found) {
                (Some(asked), Some(found)) if !asked.is_same(&found) => {
                    return Err(inequivalent(
                        name,
                        queue,
                        format_args!("'{asked}'"),
                        format_args!("'{found}'"),
                    ));
                }
                (Some(given), None) if !given.is_default(name) => {
                    return Err(inequivalent(name, queue, given.with_type(), "none"));
                }
                (None, Some(given)) if !given.is_default(name) => {
                    return Err(inequivalent(name, queue, "none", given.with_type()));
                }
                _ => {}
            }
        }
        Ok(())
    }

    /// All of it, to be written.
    pub(crate) fn saved(&self) -> Bytes {
        let mut bytes = vec![u8::from(self.durable) | u8::from(self.auto_delete) << 1];
        bytes.extend_from_slice(&self.arguments);
        bytes.into()
    }

    /// None: it makes no sense.
    pub(crate) fn restored(saved: &[u8]) -> Option<Self> {
        let (flags, arguments) = saved.split_first()?;
        let (durable, auto_delete) = (flags & 1 != 0, flags & 2 != 0);
        Declared::read("", (durable, auto_delete), Table::new(arguments), |_| {}).ok()
    }

    fn argument(&self, name: &str) -> Option<FieldValue<'_>> {
        Table::new(&self.arguments).find(name).ok().flatten()
    }

    fn interpret(&self, queue: &str) -> Result<DestinationRule, Refused> {
        let argument = |name| self.argument(name).map(|value| Argument { queue, name, value });
        let number = |name, min, max| argument(name).map(|it| it.number(min, max)).transpose();
        let is_set = |value: bool| value.then_some(true);
        let mut rule =
            DestinationRule { auto_delete: is_set(self.auto_delete), ..DestinationRule::default() };
        rule.idle_expiry_us = number(EXPIRES, 1, MILLISECONDS_MAX)?.map(|after| after * 1000);
        rule.expiration_us = number(MESSAGE_TTL, 0, MILLISECONDS_MAX)?.map(|after| after * 1000);
        rule.messages_max = number(MAX_LENGTH, 0, i64::MAX)?;
        rule.bytes_max = number(MAX_LENGTH_BYTES, 0, i64::MAX)?;
        if [rule.messages_max, rule.bytes_max].contains(&Some(0)) {
            // No message is so small.
            (rule.messages_max, rule.bytes_max) = (None, Some(1));
        }
        rule.held_besides = rule.messages_max.is_some();
        rule.deliveries_max = number(DELIVERY_LIMIT, 0, i64::MAX)?.map(|limit| limit + 1);
        for (name, value) in [
            ("idle-expiry", &mut rule.idle_expiry_us),
            ("expiration", &mut rule.expiration_us),
            ("messages-max", &mut rule.messages_max),
            ("bytes-max", &mut rule.bytes_max),
            ("deliveries-max", &mut rule.deliveries_max),
        ] {
            *value = value.map(|value| properties::clamp(name, value));
        }
        rule.priorities = number(MAX_PRIORITY, 0, PRIORITY_MAX)?.and_then(|max| is_set(max > 0));
        if let Some(single) = argument(SINGLE_ACTIVE_CONSUMER) {
            rule.exclusive = is_set(single.flag()?);
        }
        rule.overflow = match argument(OVERFLOW) {
            Some(overflow) => Some(overflow.overflow()?),
            None => (rule.messages_max.or(rule.bytes_max)).map(|_| OverflowRule::DropOldest),
        };
        if let Some(kind) = argument(QUEUE_TYPE)
            && let kind_name = kind.text()?
            && !matches!(kind_name, CLASSIC | "quorum")
        {
            return Err(kind.invalid(format_args!("\"unsupported queue type '{kind_name}'\"")));
        }
        let exchange = argument(DEAD_LETTER_EXCHANGE).map(|it| it.text()).transpose()?;
        let key = argument(DEAD_LETTER_ROUTING_KEY);
        rule.dead_letter = match (exchange, key) {
            (None, None) => None,
            (Some(exchange), None) => Some(exchange_address(exchange, None).into()),
            (Some(exchange), Some(key)) => Some(exchange_address(exchange, Some(key.text()?)).into()),
            (None, Some(key)) => {
                key.text()?;
                return Err(key.invalid("routing_key_but_no_dlx_defined"));
            }
        };
        Ok(rule)
    }
}

fn inequivalent(name: &str, queue: &str, asked: impl fmt::Display, found: impl fmt::Display) -> Refused {
    let text = format!(
        "inequivalent arg '{name}' for queue {}: received {asked} but current is {found}",
        InVhost(queue)
    );
    Refused::Precondition(text.into())
}

/// A value as texts show it.
struct Shown<'a>(FieldValue<'a>);

impl Shown<'_> {
    fn is_same(&self, other: &Self) -> bool {
        match (self.0.as_integer(), other.0.as_integer()) {
            (Some(one), Some(other)) => one == other,
            (_, _) => self.0 == other.0,
        }
    }

    /// It says what holds without it.
    fn is_default(&self, name: &str) -> bool {
        match (name, self.0.as_str()) {
            (QUEUE_TYPE, Some(kind)) => kind == CLASSIC,
            (_, _) => false,
        }
    }

    fn with_type(&self) -> impl fmt::Display {
        format!("the value '{self}' of type '{}'", type_name(&self.0))
    }
}

impl fmt::Display for Shown<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self.0.as_integer(), self.0) {
            (Some(number), _) => number.fmt(f),
            (None, FieldValue::Boolean(flag)) => flag.fmt(f),
            (None, FieldValue::LongString(text)) => {
                text.utf8_chunks().try_for_each(|chunk| f.write_str(chunk.valid()))
            }
            (None, _) => f.write_char('?'),
        }
    }
}

struct Argument<'a> {
    queue: &'a str,
    name: &'static str,
    value: FieldValue<'a>,
}

impl<'a> Argument<'a> {
    fn number(&self, min: i64, max: i64) -> Result<u64, Refused> {
        let Some(number) = self.value.as_integer() else {
            let given = type_name(&self.value);
            return Err(self.invalid(format_args!("\"expected integer, got {given}\"")));
        };
        match u64::try_from(number) {
            Ok(value) if (min..=max).contains(&number) => Ok(value),
            Ok(0) => Err(self.invalid("{value_zero,0}")),
            Ok(_) if max == PRIORITY_MAX => {
                Err(self.invalid(format_args!("{{max_value_exceeded,{number}}}")))
            }
            Ok(_) => Err(self.invalid(format_args!("{{value_too_big,{number}}}"))),
            Err(_) => Err(self.invalid(format_args!("{{value_negative,{number}}}"))),
        }
    }

    fn flag(&self) -> Result<bool, Refused> {
        match self.value {
            FieldValue::Boolean(flag) => Ok(flag),
            _ => Err(self.unacceptable()),
        }
    }

    fn text(&self) -> Result<&'a str, Refused> {
        self.value.as_str().ok_or_else(|| self.unacceptable())
    }

    fn overflow(&self) -> Result<OverflowRule, Refused> {
        match self.text()? {
            DROP_HEAD => Ok(OverflowRule::DropOldest),
            "reject-publish" => Ok(OverflowRule::Reject),
            "reject-publish-dlx" => Ok(OverflowRule::RejectDeadLetter),
            _ => Err(self.invalid("invalid_overflow")),
        }
    }

    fn unacceptable(&self) -> Refused {
        self.invalid(format_args!("{{unacceptable_type,{}}}", type_name(&self.value)))
    }

    fn invalid(&self, why: impl fmt::Display) -> Refused {
        let Argument { queue, name, .. } = self;
        let text = format!("invalid arg '{name}' for queue {}: {why}", InVhost(queue));
        Refused::Precondition(text.into())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use FieldValue::{Boolean, Int8, Int32, Int64, LongString, Uint16};

    fn declare(pairs: &[(&str, FieldValue<'_>)]) -> Result<Declared, Refused> {
        let mut bytes = Vec::new();
        let mut writer = TableWriter::new(&mut bytes);
        for (name, value) in pairs {
            writer.pair(ShortStr::cut(name), *value);
        }
        Declared::read("q", (true, false), Table::new(&bytes), |_| {})
    }

    #[track_caller]
    fn declared(pairs: &[(&str, FieldValue<'_>)]) -> Declared {
        let declared = declare(pairs).unwrap();
        assert_eq!(Declared::restored(&declared.saved()), Some(declared.clone()));
        declared
    }

    #[track_caller]
    fn check_refused(pairs: &[(&str, FieldValue<'_>)], expect: &str) {
        let refused = declare(pairs).unwrap_err();
        assert_eq!(refused.reply_code(), ReplyCode::PreconditionFailed);
        assert_eq!(refused.to_string(), expect);
    }

    #[test]
    fn arguments_are_properties_of_the_queue() {
        let text = |text: &'static str| LongString(text.as_bytes());
        let rule = declared(&[
            ("x-message-ttl", Int32(60_000)),
            ("x-expires", Uint16(500)),
            ("x-max-length", Int64(10)),
            ("x-overflow", text("reject-publish")),
            ("x-max-priority", Int8(10)),
            ("x-single-active-consumer", Boolean(true)),
            ("x-delivery-limit", Int32(3)),
            ("x-dead-letter-exchange", text("dead/letters")),
            ("x-dead-letter-routing-key", text("k")),
            ("x-queue-type", text("quorum")),
        ])
        .rule();
        let expect = DestinationRule {
            expiration_us: Some(60_000_000),
            idle_expiry_us: Some(500_000),
            messages_max: Some(10),
            held_besides: true,
            overflow: Some(OverflowRule::Reject),
            priorities: Some(true),
            exclusive: Some(true),
            deliveries_max: Some(4),
            dead_letter: Some("/exchanges/dead%2Fletters/k".into()),
            ..DestinationRule::default()
        };
        assert_eq!(rule, expect);
        let bounded = declared(&[("x-max-length-bytes", Int64(1 << 20)), ("x-max-priority", Int8(0))]).rule();
        let expect = DestinationRule {
            bytes_max: Some(1 << 20),
            overflow: Some(OverflowRule::DropOldest),
            ..DestinationRule::default()
        };
        assert_eq!(bounded, expect);
        let dead_letter = |pairs: &[(&str, FieldValue<'_>)]| declared(pairs).rule().dead_letter.unwrap();
        assert_eq!(&*dead_letter(&[("x-dead-letter-exchange", text("a"))]), "/exchanges/a");
        let through_default =
            [("x-dead-letter-exchange", text("")), ("x-dead-letter-routing-key", text("dead"))];
        assert_eq!(&*dead_letter(&through_default), "/exchanges//dead");
        assert_eq!(declared(&[("x-message-ttl", Int32(0))]).rule().expiration_us, Some(1000));
    }

    #[test]
    fn what_is_taken_can_be_said_of_a_queue_again() {
        for number in [0, 1, 2, 60_000, i64::MAX / 1000] {
            let name = |name| ShortStr::cut(name);
            let mut bytes = Vec::new();
            let mut writer = TableWriter::new(&mut bytes);
            for argument in [MESSAGE_TTL, EXPIRES, MAX_LENGTH, MAX_LENGTH_BYTES, DELIVERY_LIMIT] {
                let least = if matches!(argument, MESSAGE_TTL | DELIVERY_LIMIT) { 0 } else { 1 };
                writer.pair(name(argument), Int64(number.max(least)));
            }
            writer.pair(name(DEAD_LETTER_EXCHANGE), LongString(b"amq.topic"));
            writer.pair(name(DEAD_LETTER_ROUTING_KEY), LongString("a.*.\u{e4}/\n".as_bytes()));
            let rule = Declared::read("q", (true, true), Table::new(&bytes), |_| {}).unwrap().rule();
            // Only who declares a queue says this.
            let mut again = DestinationRule { held_besides: rule.held_besides, ..DestinationRule::default() };
            for property in properties::PROPERTIES {
                if let Some(value) = property.read(&rule) {
                    properties::set_for_queue(&mut again, property.name, &value).unwrap();
                }
            }
            assert_eq!(again, rule);
        }
    }

    #[test]
    fn what_makes_no_sense_is_refused() {
        let text = |text: &'static str| LongString(text.as_bytes());
        check_refused(
            &[("x-message-ttl", text("60000"))],
            "invalid arg 'x-message-ttl' for queue 'q' in vhost '/': \"expected integer, got longstr\"",
        );
        check_refused(
            &[("x-expires", Int32(0))],
            "invalid arg 'x-expires' for queue 'q' in vhost '/': {value_zero,0}",
        );
        check_refused(
            &[("x-max-length", Int32(-1))],
            "invalid arg 'x-max-length' for queue 'q' in vhost '/': {value_negative,-1}",
        );
        check_refused(
            &[("x-max-priority", Int32(256))],
            "invalid arg 'x-max-priority' for queue 'q' in vhost '/': {max_value_exceeded,256}",
        );
        check_refused(
            &[("x-expires", Int64(i64::MAX))],
            "invalid arg 'x-expires' for queue 'q' in vhost '/': {value_too_big,9223372036854775807}",
        );
        check_refused(
            &[("x-overflow", text("drop-tail"))],
            "invalid arg 'x-overflow' for queue 'q' in vhost '/': invalid_overflow",
        );
        check_refused(
            &[("x-single-active-consumer", text("true"))],
            "invalid arg 'x-single-active-consumer' for queue 'q' in vhost '/': {unacceptable_type,longstr}",
        );
        check_refused(
            &[("x-dead-letter-routing-key", text("k"))],
            "invalid arg 'x-dead-letter-routing-key' for queue 'q' in vhost '/': routing_key_but_no_dlx_defined",
        );
        check_refused(
            &[("x-queue-type", text("stream"))],
            "invalid arg 'x-queue-type' for queue 'q' in vhost '/': \"unsupported queue type 'stream'\"",
        );
        let malformed = Declared::read("q", (true, false), Table::new(b"\x01a"), |_| {});
        assert!(matches!(malformed, Err(Refused::Malformed(_))), "{malformed:?}");
    }

    #[test]
    fn names_that_nobody_knows_are_told() {
        let mut bytes = Vec::new();
        let mut writer = TableWriter::new(&mut bytes);
        for name in ["x-queue-mode", "x-mesage-ttl"] {
            writer.pair(ShortStr::cut(name), Int32(1));
        }
        let mut unknown = Vec::new();
        let told = |name: ShortStr<'_>| unknown.push(name.to_string());
        let declared = Declared::read("q", (false, true), Table::new(&bytes), told).unwrap();
        assert_eq!(unknown, ["x-mesage-ttl"]);
        assert_eq!(declared, Declared { auto_delete: true, ..Declared::default() });
        assert_eq!(declared.rule().auto_delete, Some(true));
    }

    #[test]
    fn a_queue_that_is_declared_again_has_to_be_the_same() {
        #[track_caller]
        fn check(found: &[(&str, FieldValue<'_>)], asked: &[(&str, FieldValue<'_>)], expect: &str) {
            let found = Declared::restored(&declared(found).saved()).unwrap();
            let result = found.check_equivalent("q", &declared(asked));
            let refused = result.map_err(|refused| refused.to_string()).err().unwrap_or_default();
            assert_eq!(refused, expect);
        }
        check(&[("x-expires", Int8(100))], &[("x-expires", Int64(100))], "");
        check(&[], &[("x-queue-type", LongString(b"classic")), ("x-else", Int8(1))], "");
        check(
            &[("x-message-ttl", Int32(2))],
            &[("x-message-ttl", Int64(1))],
            "inequivalent arg 'x-message-ttl' for queue 'q' in vhost '/': received '1' but current is '2'",
        );
        check(
            &[("x-message-ttl", Int32(2))],
            &[],
            "inequivalent arg 'x-message-ttl' for queue 'q' in vhost '/': received none but current is the value '2' of type 'signedint'",
        );
        check(
            &[],
            &[("x-dead-letter-exchange", LongString(b"d"))],
            "inequivalent arg 'x-dead-letter-exchange' for queue 'q' in vhost '/': received the value 'd' of type 'longstr' but current is none",
        );
        let transient = Declared::default();
        let refused = transient.check_equivalent("pq", &declared(&[])).unwrap_err().to_string();
        let expect =
            "inequivalent arg 'durable' for queue 'pq' in vhost '/': received 'true' but current is 'false'";
        assert_eq!(refused, expect);
    }
}

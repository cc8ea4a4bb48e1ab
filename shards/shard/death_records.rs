//! How often has a message died in which queue, of what?
//!
//! Its annotations say it as RabbitMQ says it (its guide to dead letter exchanges), beside what `dead_letters` says:
//!
//! | annotation | value |
//! |---|---|
//! | `x-opt-deaths` | an array of maps, one for each queue and reason, the last death first |
//! | `x-first-death-queue`, `-reason`, `-exchange` | of the first death of all |
//! | `x-last-death-queue`, `-reason`, `-exchange` | of the last one |
//!
//! A map has `queue`, `reason` (`rejected`, `expired`, `maxlen`, `delivery_limit`, `deleted`), `count`, `first-time`, `last-time`,
//! `exchange` and `routing-keys` (of the first of these deaths) and, of a message that had one, `ttl`.

use corelane_engine::DeadLetterReason;
use corelane_wire::amqp10::{Encode, Map, MapWriter, Raw, Reader, Value};

use crate::amqp091;
use crate::compound::{self, compound};
use crate::limits::{DEATH_KEYS_BYTES_MAX, DEATH_RECORDS_MAX};

const DEATHS: &str = "x-opt-deaths";
const STRING_WIDE: u8 = 0xb1;

/// One more death.
pub(crate) struct Death<'a> {
    pub(crate) queue: &'a str,
    pub(crate) reason: DeadLetterReason,
    /// Microseconds since the epoch.
    pub(crate) at: u64,
    /// Milliseconds; 0: none.
    pub(crate) ttl: u32,
    /// It has died before. What its annotations say then was said here.
    pub(crate) is_again: bool,
}

impl Death<'_> {
    /// Writes the annotations that tell of it, given those that the message has, encoded.
    pub(crate) fn encode(&self, annotations: &[u8], map: &mut MapWriter<'_>) {
        let old = Map::decode(annotations).unwrap_or_default();
        let (exchange, keys) = amqp091::address(annotations, self.queue);
        let exchange = std::str::from_utf8(exchange).unwrap_or_default();
        let reason = reason_name(self.reason);
        let mut deaths = Vec::new();
        self.encode_all(old, exchange, &keys, &mut deaths);
        if let Ok(deaths) = Raw::read(&mut Reader::new(&deaths)) {
            map.symbol(DEATHS, &deaths);
        }
        if !self.is_again {
            map.symbol("x-first-death-queue", &self.queue);
            map.symbol("x-first-death-reason", &reason);
            map.symbol("x-first-death-exchange", &exchange);
        }
        map.symbol("x-last-death-queue", &self.queue);
        map.symbol("x-last-death-reason", &reason);
        map.symbol("x-last-death-exchange", &exchange);
    }

    fn encode_all(&self, old: Map<'_>, exchange: &str, keys: &[&[u8]], out: &mut Vec<u8>) {
        let records: Vec<Map<'_>> = match old.find(DEATHS) {
            Ok(Some(Value::Array(records))) if self.is_again => {
                let maps = records.iter().flatten().filter_map(|record| match record {
                    Value::Map(map) => Some(map),
                    _ => None,
                });
                maps.take(DEATH_RECORDS_MAX).collect()
            }
            _ => Vec::new(),
        };
        let same = records.iter().position(|record| self.is_of(*record));
        compound(out, compound::ARRAY, |out| {
            out.push(compound::MAP);
            let mut encoded = Vec::new();
            match same {
                Some(index) => self.add_to(records[index], &mut encoded),
                None => self.encode_first(exchange, keys, &mut encoded),
            }
            push_map(out, &encoded);
            let mut count = 1;
            let others = records.iter().enumerate().filter(|(index, _)| Some(*index) != same);
            for (_, record) in others.take(DEATH_RECORDS_MAX - 1) {
                encoded.clear();
                record.encode(&mut encoded);
                push_map(out, &encoded);
                count += 1;
            }
            count
        });
    }

    fn at_ms(&self) -> i64 {
        i64::try_from(self.at / 1000).unwrap_or(i64::MAX)
    }

    /// Whether a record is of this queue and reason.
    fn is_of(&self, record: Map<'_>) -> bool {
        let is = |name, text| matches!(record.find(name), Ok(Some(value)) if value.as_str() == Some(text));
        is("queue", self.queue) && is("reason", reason_name(self.reason))
    }

    fn encode_first(&self, exchange: &str, keys: &[&[u8]], out: &mut Vec<u8>) {
        let at = Value::Timestamp(self.at_ms());
        let mut map = MapWriter::new(out);
        map.symbol("queue", &self.queue);
        map.symbol("reason", &Value::Symbol(reason_name(self.reason)));
        map.symbol("count", &1_u64);
        map.symbol("first-time", &at);
        map.symbol("last-time", &at);
        map.symbol("exchange", &exchange);
        let mut array = Vec::new();
        encode_keys(keys, &mut array);
        if let Ok(keys) = Raw::read(&mut Reader::new(&array)) {
            map.symbol("routing-keys", &keys);
        }
        if self.ttl > 0 {
            map.symbol("ttl", &self.ttl);
        }
        map.finish();
    }

    fn add_to(&self, record: Map<'_>, out: &mut Vec<u8>) {
        let mut map = MapWriter::new(out);
        for (name, value) in record.iter().flatten() {
            match name.as_str() {
                Some("count") => {
                    let count = u64::try_from(value.as_i64().unwrap_or(0)).unwrap_or(0);
                    map.pair(&name, &count.saturating_add(1));
                }
                Some("last-time") => map.pair(&name, &Value::Timestamp(self.at_ms())),
                Some(_) | None => map.pair(&name, &value),
            }
        }
        map.finish();
    }
}

/// RabbitMQ's names. It has none for `deleted`: there such messages are gone.
fn reason_name(reason: DeadLetterReason) -> &'static str {
    match reason {
        DeadLetterReason::Rejected => "rejected",
        DeadLetterReason::Expired => "expired",
        DeadLetterReason::DeliveriesMax => "delivery_limit",
        DeadLetterReason::Overflow => "maxlen",
        DeadLetterReason::Deleted => "deleted",
    }
}

fn encode_keys(keys: &[&[u8]], out: &mut Vec<u8>) {
    compound(out, compound::ARRAY, |out| {
        out.push(STRING_WIDE);
        let (mut bytes, mut count) = (0, 0);
        for key in keys {
            let Ok(key) = std::str::from_utf8(key) else { continue };
            bytes += key.len() + size_of::<u32>();
            if bytes > DEATH_KEYS_BYTES_MAX {
                break;
            }
            out.extend_from_slice(&(key.len() as u32).to_be_bytes());
            out.extend_from_slice(key.as_bytes());
            count += 1;
        }
        count
    });
}

/// The data of a map, as an array of maps has it: with a wide size and count.
fn push_map(out: &mut Vec<u8>, encoded: &[u8]) {
    let Ok(map) = Map::decode(encoded) else { return };
    let size = map.elements().len() as u32 + 4;
    out.extend_from_slice(&size.to_be_bytes());
    out.extend_from_slice(&(2 * map.len() as u32).to_be_bytes());
    out.extend_from_slice(map.elements());
}

//! What headers does a 0-9-1 consumer see of a message's annotations, and which annotations are headers?
//!
//! | header | | message annotation |
//! |---|---|---|
//! | `x-…` | ⇄ | the same name, if it is ASCII |
//! | `CC`, an array | ⇄ | `x-cc`, a list |
//! | `x-death`, an array of tables | ← | `x-opt-deaths`, an array of maps ([`crate::death_records`]) |
//! | — | | `x-exchange`, `x-routing-key`, `x-basic-…`: they stand elsewhere in 0-9-1 |
//! | — | | `x-opt-death-…`: `x-death` says it |

use corelane_wire::amqp10::{Map, Value};
use corelane_wire::amqp091::{ArrayWriter, FieldValue, ShortStr, TableWriter};

use super::values::{self, Room, seconds};
use super::{CC, CC_HEADER, DEATHS, EXCHANGE, ROUTING_KEY};
use crate::limits::DEATH_RECORDS_MAX;

/// Whether an annotation says what is no header: what stands elsewhere, and what only the broker says.
fn is_internal(name: &str) -> bool {
    matches!(name, EXCHANGE | ROUTING_KEY | CC | DEATHS | "x-death")
        || name.starts_with("x-basic-")
        || name.starts_with("x-opt-death-")
}

/// The annotation that a header is translated to.
pub(super) fn annotation_of(name: ShortStr<'_>) -> Option<&str> {
    if name == CC_HEADER {
        return Some(CC);
    }
    let name = name.as_str()?;
    (name.starts_with("x-") && name.is_ascii() && !is_internal(name)).then_some(name)
}

/// Writes the pairs of a table of headers, up to a size. The first one that does not fit is the end of what is translated.
#[derive(Debug)]
pub(super) struct Headers<'v> {
    out: &'v mut Vec<u8>,
    bytes_max: usize,
    is_full: bool,
}

impl<'v> Headers<'v> {
    pub(super) fn new(out: &'v mut Vec<u8>, bytes_max: usize) -> Self {
        Headers { out, bytes_max, is_full: false }
    }

    /// A header as it was published.
    pub(super) fn copy(&mut self, name: ShortStr<'_>, value: FieldValue<'_>) {
        TableWriter::new(self.out).pair(name, value);
    }

    /// Writes what `write` writes, or nothing if that does not fit.
    fn write(&mut self, write: impl FnOnce(&mut TableWriter<'_>, &mut Room)) {
        if self.is_full {
            return;
        }
        let start = self.out.len();
        let mut room = Room::new(self.bytes_max.saturating_sub(start));
        write(&mut TableWriter::new(self.out), &mut room);
        if room.is_over() || self.out.len() > self.bytes_max {
            self.out.truncate(start);
            self.is_full = true;
        }
    }

    pub(super) fn value(&mut self, name: &str, value: &Value<'_>) {
        if let Some(name) = ShortStr::new(name.as_bytes()) {
            self.write(|writer, room| values::pair(writer, name, value, room));
        }
    }

    /// What a message annotation says, if it is a header.
    pub(super) fn annotation(&mut self, name: &str, value: &Value<'_>) {
        match (name, value) {
            (CC, value) => self.value(CC_HEADER, value),
            (DEATHS, Value::Array(deaths)) => {
                let deaths = deaths.iter().flatten().take(DEATH_RECORDS_MAX);
                self.write(|writer, _| {
                    writer.array(ShortStr::literal("x-death"), |writer| {
                        for death in deaths {
                            if let Value::Map(death) = death {
                                table_of(writer, death);
                            }
                        }
                    });
                });
            }
            (name, value) if name.starts_with("x-") && !is_internal(name) => self.value(name, value),
            _ => {}
        }
    }
}

/// One entry of `x-death`.
fn table_of(writer: &mut ArrayWriter<'_>, death: Map<'_>) {
    let field = |name| death.find(name).ok().flatten().unwrap_or(Value::Null);
    let text = |name| FieldValue::LongString(super::text_of(&field(name)).unwrap_or_default());
    writer.table(|writer| {
        if let Some(ttl) = field("ttl").as_i64() {
            let ttl = ttl.to_string();
            let name = ShortStr::literal("original-expiration");
            writer.pair(name, FieldValue::LongString(ttl.as_bytes()));
        }
        let count = field("count").as_i64().unwrap_or(0);
        writer.pair(ShortStr::literal("count"), FieldValue::Int64(count));
        writer.pair(ShortStr::literal("reason"), text("reason"));
        writer.pair(ShortStr::literal("queue"), text("queue"));
        if let Value::Timestamp(first) = field("first-time") {
            writer.pair(ShortStr::literal("time"), FieldValue::Timestamp(seconds(first)));
        }
        writer.pair(ShortStr::literal("exchange"), text("exchange"));
        if let Value::Array(keys) = field("routing-keys") {
            writer.array(ShortStr::literal("routing-keys"), |writer| {
                for key in keys.iter().flatten() {
                    writer.value(FieldValue::LongString(super::text_of(&key).unwrap_or_default()));
                }
            });
        }
    });
}

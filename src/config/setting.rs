//! What may a numeric setting be? One definition each, used for flags, variables and the file alike.
//!
//! Invariants: a value that passed is within `min..=max`, or is the setting's word for "none" (0). An error names the
//! value, the reason and what is allowed; the caller adds the place.

use std::fmt;

use corelane_shard::quantity::{duration_us, show_duration, show_size, size_bytes};
use serde::Deserializer;
use serde::de::{self, Visitor};

/// The kind of a setting's number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Unit {
    Count,
    Bytes,
    Microseconds,
}

/// What a setting may be.
#[derive(Clone, Copy, Debug)]
pub struct Setting {
    unit: Unit,
    min: u64,
    max: u64,
    /// A word that means the same as 0, whatever `min` is.
    zero_word: Option<&'static str>,
}

/// Shards of a process.
pub const SHARDS: Setting = Setting::new(Unit::Count, 1, 1024, None);
/// How long a shard polls before it sleeps.
pub const SPIN_US: Setting = Setting::new(Unit::Count, 0, 1_000_000, None);
/// The largest frame accepted. AMQP 1.0 §2.8.19: at least 512 octets.
pub const FRAME_SIZE: Setting = Setting::new(Unit::Bytes, 512, 16 << 20, None);
/// The silence after which a connection is closed.
pub const IDLE_TIMEOUT: Setting = Setting::new(Unit::Microseconds, 200_000, 86_400_000_000, Some("never"));
/// How long a transaction may hold messages.
pub const TRANSACTION_TIMEOUT: Setting =
    Setting::new(Unit::Microseconds, 1_000_000, 86_400_000_000, Some("never"));
/// The largest message accepted.
pub const MESSAGE_SIZE: Setting = Setting::new(Unit::Bytes, 1 << 10, 1 << 30, None);
/// Memory for messages, of the whole process.
pub const MEMORY: Setting = Setting::new(Unit::Bytes, 16 << 20, 1 << 50, None);
/// Bytes of a journal's segment.
pub const SEGMENT_SIZE: Setting = Setting::new(Unit::Bytes, 64 << 10, 1 << 30, None);

/// Room on the disk that is left to others.
pub const DISK_FREE_MIN: Setting = Setting::new(Unit::Bytes, 0, 1 << 50, None);

impl Setting {
    const fn new(unit: Unit, min: u64, max: u64, zero_word: Option<&'static str>) -> Self {
        Setting { unit, min, max, zero_word }
    }

    /// The value of a flag or a variable.
    pub fn parse(&self, text: &str) -> Result<u64, String> {
        if self.zero_word == Some(text) {
            return Ok(0);
        }
        let value = match self.unit {
            Unit::Count => text.parse().map_err(|_| format!("not a whole number; allowed: {self}"))?,
            Unit::Bytes => size_bytes(text).map_err(|error| error.to_string())?,
            Unit::Microseconds => duration_us(text).map_err(|error| error.to_string())?,
        };
        self.check(value)
    }

    /// The value at a place in the file.
    pub fn read<'de, D: Deserializer<'de>>(&self, deserializer: D) -> Result<u64, D::Error> {
        deserializer.deserialize_any(*self)
    }

    fn check(&self, value: u64) -> Result<u64, String> {
        let none = value == 0 && self.zero_word.is_some();
        if none || (self.min..=self.max).contains(&value) {
            return Ok(value);
        }
        Err(format!("{} is out of range; allowed: {self}", self.show(value)))
    }

    fn show(&self, value: u64) -> String {
        match self.unit {
            Unit::Count => value.to_string(),
            Unit::Bytes => show_size(value),
            Unit::Microseconds => show_duration(value),
        }
    }
}

/// What is allowed, in words.
impl fmt::Display for Setting {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{} to {}", self.show(self.min), self.show(self.max))?;
        match self.zero_word {
            Some(word) => write!(formatter, ", or 0 or {word:?} for none"),
            None => Ok(()),
        }
    }
}

impl Visitor<'_> for Setting {
    type Value = u64;

    fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let kind = match self.unit {
            Unit::Count => "a whole number",
            Unit::Bytes => "a size such as \"64KiB\"",
            Unit::Microseconds => "a duration such as \"500ms\"",
        };
        write!(formatter, "{kind}; allowed: {self}")
    }

    fn visit_i64<E: de::Error>(self, value: i64) -> Result<u64, E> {
        match u64::try_from(value) {
            Ok(value) => self.visit_u64(value),
            Err(_) => Err(E::custom(format!("{value} is out of range; allowed: {self}"))),
        }
    }

    fn visit_u64<E: de::Error>(self, value: u64) -> Result<u64, E> {
        if self.unit == Unit::Microseconds && value != 0 {
            return Err(E::custom(format!("a duration needs its unit, as in \"{value}ms\" or \"{value}s\"")));
        }
        self.check(value).map_err(E::custom)
    }

    fn visit_str<E: de::Error>(self, text: &str) -> Result<u64, E> {
        if self.unit == Unit::Count {
            return Err(E::invalid_type(de::Unexpected::Str(text), &self));
        }
        self.parse(text).map_err(|reason| E::custom(format!("{text:?}: {reason}")))
    }
}

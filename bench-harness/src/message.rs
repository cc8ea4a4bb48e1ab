//! What is in a message? A body of the asked size: run and sequence number, the time of sending, and a pattern.
//!
//! `body = word(run 16 bits, producer 8, sequence 40) · word(time of sending in ns, 0: not timed) · pattern`. So the
//! consumer knows its own messages from those of others, counts what came twice or never, and sees a body that changed.

use corelane_wire::amqp10::{
    Encode, Header, Properties, Value, write_application_properties, write_data_head,
};
use corelane_wire::amqp091;
use corelane_wire::amqp091::{FieldValue, ShortStr, Table, TableWriter};

/// The smallest body: both words.
pub const BODY_BYTES_MIN: usize = 16;
/// Producers that can be told apart.
pub const PRODUCERS_MAX: usize = 1 << 8;
/// Bodies up to this size are compared with the pattern always, larger ones now and then.
const ALWAYS_COMPARED_BYTES_MAX: usize = 4 << 10;
/// How often larger bodies are compared.
const COMPARE_EVERY: u64 = 64;

const PRODUCER_SHIFT: u32 = 40;
const RUN_SHIFT: u32 = 48;
const SEQUENCE_MASK: u64 = (1 << PRODUCER_SHIFT) - 1;

/// What tells one message from another.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stamp {
    pub producer: u8,
    pub sequence: u64,
    /// By the generator's clock; 0: this message is not timed.
    pub sent_ns: u64,
}

/// RabbitMQ's `delivery_mode` of a message that is to be kept.
const PERSISTENT: u8 = 2;

/// A whole message, stamped anew for each sending.
pub struct Template {
    /// As 1.0 encodes it; its end is the body.
    bytes: Vec<u8>,
    body: usize,
    /// As 0-9-1 encodes what stands before the body.
    properties: Vec<u8>,
    /// The routing key, if it is not the channel's.
    key: Option<Box<[u8]>>,
    run: u16,
    producer: u8,
}

/// What a message says about itself.
#[derive(Clone, Copy, Debug, Default)]
pub struct Extras<'a> {
    pub durable: bool,
    /// Where it goes: the address, and the routing key that is the same.
    pub to: Option<(&'a str, &'a str)>,
    pub reply_to: Option<&'a str>,
    /// An application property, or header.
    pub property: Option<(&'a str, &'a str)>,
}

impl Extras<'_> {
    fn encode(&self, bytes: &mut Vec<u8>) {
        if self.durable {
            Header { durable: true, ..Header::default() }.encode(bytes);
        }
        if self.to.is_some() || self.reply_to.is_some() {
            let to = self.to.map(|(address, _)| address);
            Properties { to, reply_to: self.reply_to, ..Properties::default() }.encode(bytes);
        }
        if let Some((name, value)) = self.property {
            write_application_properties(bytes, &[(name, Value::String(value))]);
        }
    }

    fn encode_amqp091(&self) -> Vec<u8> {
        let mut headers = Vec::new();
        if let Some((name, value)) = self.property {
            let name = ShortStr::new(name.as_bytes()).unwrap_or_default();
            TableWriter::new(&mut headers).pair(name, FieldValue::LongString(value.as_bytes()));
        }
        let properties = amqp091::Properties {
            delivery_mode: self.durable.then_some(PERSISTENT),
            reply_to: self.reply_to.and_then(|name| ShortStr::new(name.as_bytes())),
            headers: self.property.is_some().then(|| Table::new(&headers)),
            ..Default::default()
        };
        let mut bytes = Vec::new();
        properties.encode(&mut bytes);
        bytes
    }
}

impl Template {
    /// A message with one data section of `size` bytes, at least [`BODY_BYTES_MIN`].
    pub fn new(size: usize, run: u16, producer: u8) -> Template {
        Template::with(&Extras::default(), size, run, producer)
    }

    /// The same, of a message that is to be kept.
    pub fn durable(size: usize, run: u16, producer: u8) -> Template {
        Template::with(&Extras { durable: true, ..Extras::default() }, size, run, producer)
    }

    /// The same, of a message that says more about itself.
    pub fn with(extras: &Extras<'_>, size: usize, run: u16, producer: u8) -> Template {
        assert!(size >= BODY_BYTES_MIN, "the stamp needs its room");
        let mut bytes = Vec::with_capacity(size + 32);
        extras.encode(&mut bytes);
        write_data_head(&mut bytes, size);
        let body = bytes.len();
        bytes.extend((0..size).map(pattern));
        let key = extras.to.map(|(_, key)| key.as_bytes().into());
        Template { bytes, body, properties: extras.encode_amqp091(), key, run, producer }
    }

    /// Writes the two words.
    #[inline]
    pub fn stamp(&mut self, sequence: u64, sent_ns: u64) {
        let name = u64::from(self.run) << RUN_SHIFT | u64::from(self.producer) << PRODUCER_SHIFT;
        let name = name | (sequence & SEQUENCE_MASK);
        self.bytes[self.body..self.body + 8].copy_from_slice(&name.to_be_bytes());
        self.bytes[self.body + 8..self.body + 16].copy_from_slice(&sent_ns.to_be_bytes());
    }

    /// The message as 1.0 encodes it.
    #[inline]
    pub fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    #[inline]
    pub fn body(&self) -> &[u8] {
        &self.bytes[self.body..]
    }

    /// Of 0-9-1, if it is not the channel's.
    #[inline]
    pub fn key(&self) -> Option<&[u8]> {
        self.key.as_deref()
    }

    /// What 0-9-1 has before the body.
    #[inline]
    pub fn properties(&self) -> &[u8] {
        &self.properties
    }
}

/// Reads messages of one run.
pub struct Reader {
    size: usize,
    run: u16,
    pattern: Vec<u8>,
}

/// What an arrived message is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Arrival {
    Own(Stamp),
    /// Of this run, but not as it was sent.
    Changed,
    /// Not of this run: the queue is not ours alone.
    Foreign,
}

impl Reader {
    pub fn new(size: usize, run: u16) -> Reader {
        Reader { size, run, pattern: (BODY_BYTES_MIN..size).map(pattern).collect() }
    }

    /// Finds the stamp in an encoded message. The body is its end: we send no footer, and a broker adds none.
    #[inline]
    pub fn read(&self, message: &[u8]) -> Arrival {
        let Some(body) = message.len().checked_sub(self.size).map(|start| &message[start..]) else {
            return Arrival::Foreign;
        };
        let Some((name, rest)) = body.split_first_chunk::<8>() else { return Arrival::Foreign };
        let Some((sent_ns, rest)) = rest.split_first_chunk::<8>() else { return Arrival::Foreign };
        let name = u64::from_be_bytes(*name);
        if name >> RUN_SHIFT != u64::from(self.run) {
            return Arrival::Foreign;
        }
        let sequence = name & SEQUENCE_MASK;
        let is_compared = self.size <= ALWAYS_COMPARED_BYTES_MAX || sequence.is_multiple_of(COMPARE_EVERY);
        if is_compared && rest != self.pattern {
            return Arrival::Changed;
        }
        let producer = (name >> PRODUCER_SHIFT) as u8;
        Arrival::Own(Stamp { producer, sequence, sent_ns: u64::from_be_bytes(*sent_ns) })
    }
}

/// Without a period that a buffer's size would hide.
fn pattern(index: usize) -> u8 {
    (index.wrapping_mul(31) ^ (index >> 8)) as u8
}

#[cfg(test)]
mod tests {
    use super::*;
    use corelane_wire::amqp10::{BodyKind, Sections};

    #[test]
    fn a_stamp_is_read_back() {
        for size in [16, 17, 100, 255, 256, 70_000] {
            let mut template = Template::new(size, 0xABCD, 7);
            template.stamp(SEQUENCE_MASK, 123);
            let sections = Sections::scan(template.bytes()).unwrap();
            assert_eq!(sections.body_kind, Some(BodyKind::Data));
            let stamp = Stamp { producer: 7, sequence: SEQUENCE_MASK, sent_ns: 123 };
            assert_eq!(Reader::new(size, 0xABCD).read(template.bytes()), Arrival::Own(stamp));
            // A broker may put a header in front.
            let mut delivered = Vec::new();
            Header { delivery_count: 1, ..Header::default() }.encode(&mut delivered);
            delivered.extend_from_slice(template.bytes());
            assert_eq!(Reader::new(size, 0xABCD).read(&delivered), Arrival::Own(stamp));
        }
    }

    #[test]
    fn a_durable_message_says_so() {
        let mut template = Template::durable(100, 1, 2);
        template.stamp(5, 6);
        let sections = Sections::scan(template.bytes()).unwrap();
        assert!(sections.header(template.bytes()).unwrap().durable);
        let stamp = Stamp { producer: 2, sequence: 5, sent_ns: 6 };
        assert_eq!(Reader::new(100, 1).read(template.bytes()), Arrival::Own(stamp));
    }

    #[test]
    fn strangers_and_changes_are_seen() {
        let mut template = Template::new(100, 1, 0);
        template.stamp(5, 0);
        let reader = Reader::new(100, 1);
        assert_eq!(Reader::new(100, 2).read(template.bytes()), Arrival::Foreign);
        assert_eq!(reader.read(&[]), Arrival::Foreign);
        assert_eq!(reader.read(&template.bytes()[..99]), Arrival::Foreign);
        let mut changed = template.bytes().to_vec();
        *changed.last_mut().unwrap() ^= 1;
        assert_eq!(reader.read(&changed), Arrival::Changed);
    }
}

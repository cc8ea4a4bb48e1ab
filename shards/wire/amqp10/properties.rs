//! What do a message's header (§3.2.1) and properties (§3.2.4) say?

use super::composite::{Field, Fields, Timestamp};
use super::descriptor::{HEADER, PROPERTIES};
use super::encode::{Encode, ListWriter, fixed};
use super::error::DecodeError;
use super::piece::Piece;
use super::reader::Reader;
use super::value::{List, Value};

/// Most bytes of an encoded header: descriptor and list 6, two booleans, a ubyte, two uints.
const HEADER_SIZE_MAX: usize = 24;

/// How a message is to be delivered (§3.2.1). The only section whose fields intermediaries change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Header {
    pub durable: bool,
    /// Default 4.
    pub priority: u8,
    /// Milliseconds.
    pub ttl: Option<u32>,
    pub first_acquirer: bool,
    pub delivery_count: u32,
}

impl Default for Header {
    fn default() -> Self {
        Self { durable: false, priority: 4, ttl: None, first_acquirer: false, delivery_count: 0 }
    }
}

impl Header {
    /// Reads the section's value: the list behind its descriptor.
    #[inline]
    pub fn decode(value: &[u8]) -> Result<Self, DecodeError> {
        let mut fields = Fields::read(&mut Reader::new(value), "header")?;
        let header = Self {
            durable: fields.or("header.durable", false)?,
            priority: fields.or("header.priority", 4)?,
            ttl: fields.optional("header.ttl")?,
            first_acquirer: fields.or("header.first-acquirer", false)?,
            delivery_count: fields.or("header.delivery-count", 0)?,
        };
        fields.finish()?;
        Ok(header)
    }
}

/// The whole section, descriptor included.
impl Encode for Header {
    #[inline]
    fn encode(&self, out: &mut Vec<u8>) {
        // Trailing defaults are left out.
        let count = match self {
            Header { delivery_count: 1.., .. } => 5,
            Header { first_acquirer: true, .. } => 4,
            Header { ttl: Some(_), .. } => 3,
            Header { priority, .. } if *priority != 4 => 2,
            Header { durable, .. } => u8::from(*durable),
        };
        if count == 0 {
            return out.extend_from_slice(&[0, 0x53, HEADER, 0x45]);
        }
        let flag = |is: bool| if is { 0x41 } else { 0x40 };
        let mut piece = Piece::<HEADER_SIZE_MAX>::new();
        let list = piece.begin_list(HEADER, count);
        piece.put([flag(self.durable)]);
        if count >= 2 {
            match self.priority {
                4 => piece.put([0x40]),
                priority => piece.put([0x50, priority]),
            }
        }
        if count >= 3 {
            match self.ttl {
                Some(ttl) => piece.put_uint(ttl),
                None => piece.put([0x40]),
            }
        }
        if count >= 4 {
            piece.put([flag(self.first_acquirer)]);
        }
        if count >= 5 {
            piece.put_uint(self.delivery_count);
        }
        piece.finish_list(list);
        piece.append(out);
    }
}

/// The kinds of message identifiers (§3.2.11 to §3.2.14).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MessageId<'a> {
    Ulong(u64),
    Uuid([u8; 16]),
    Binary(&'a [u8]),
    String(&'a str),
}

impl<'a> Field<'a> for MessageId<'a> {
    fn read(reader: &mut Reader<'a>, field: &'static str) -> Result<Self, DecodeError> {
        let code = reader.peek().unwrap_or(0);
        Ok(match Value::read(reader)? {
            Value::Ulong(id) => Self::Ulong(id),
            Value::Uuid(id) => Self::Uuid(id),
            Value::Binary(id) => Self::Binary(id),
            Value::String(id) => Self::String(id),
            _ => return Err(DecodeError::WrongType { field, code }),
        })
    }
}

impl Encode for MessageId<'_> {
    fn encode(&self, out: &mut Vec<u8>) {
        match *self {
            Self::Ulong(id) => id.encode(out),
            Self::Uuid(id) => fixed(out, 0x98, id),
            Self::Binary(id) => id.encode(out),
            Self::String(id) => id.encode(out),
        }
    }
}

/// All properties of a message (§3.2.4).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Properties<'a> {
    pub message_id: Option<MessageId<'a>>,
    pub user_id: Option<&'a [u8]>,
    pub to: Option<&'a str>,
    pub subject: Option<&'a str>,
    pub reply_to: Option<&'a str>,
    pub correlation_id: Option<MessageId<'a>>,
    pub content_type: Option<&'a str>,
    pub content_encoding: Option<&'a str>,
    /// Milliseconds since the Unix epoch.
    pub absolute_expiry_time: Option<i64>,
    /// Milliseconds since the Unix epoch.
    pub creation_time: Option<i64>,
    pub group_id: Option<&'a str>,
    pub group_sequence: Option<u32>,
    pub reply_to_group_id: Option<&'a str>,
}

/// A field of the properties by its index in the list.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Property {
    MessageId,
    UserId,
    To,
    Subject,
    ReplyTo,
    CorrelationId,
    ContentType,
    ContentEncoding,
    AbsoluteExpiryTime,
    CreationTime,
    GroupId,
    GroupSequence,
    ReplyToGroupId,
}

/// The properties still encoded, for reading one or two of them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PropertyFields<'a>(List<'a>);

impl<'a> PropertyFields<'a> {
    /// Takes the section's value: the list behind its descriptor. Its fields are not looked at.
    #[inline]
    pub fn new(value: &'a [u8]) -> Result<Self, DecodeError> {
        let mut reader = Reader::new(value);
        match reader.byte()? {
            0x45 => Ok(Self::default()),
            0xc0 => List::read_data(false, &mut reader).map(Self),
            0xd0 => List::read_data(true, &mut reader).map(Self),
            code => Err(DecodeError::WrongType { field: "properties", code }),
        }
    }

    /// Reads one field, passing over those before it; `None` if it is null or left out.
    pub fn field(&self, property: Property) -> Result<Option<Value<'a>>, DecodeError> {
        let index = property as usize;
        if index >= self.0.len() {
            return Ok(None);
        }
        let mut reader = Reader::new(self.0.elements());
        for _ in 0..index {
            reader.skip_value()?;
        }
        match Value::read(&mut reader)? {
            Value::Null => Ok(None),
            value => Ok(Some(value)),
        }
    }

    /// Reads and checks all fields.
    pub fn decode(&self) -> Result<Properties<'a>, DecodeError> {
        let mut fields = Fields::new(self.0, "properties");
        let properties = Properties {
            message_id: fields.optional("properties.message-id")?,
            user_id: fields.optional("properties.user-id")?,
            to: fields.optional("properties.to")?,
            subject: fields.optional("properties.subject")?,
            reply_to: fields.optional("properties.reply-to")?,
            correlation_id: fields.optional("properties.correlation-id")?,
            content_type: fields.symbol("properties.content-type")?,
            content_encoding: fields.symbol("properties.content-encoding")?,
            absolute_expiry_time: timestamp(&mut fields, "properties.absolute-expiry-time")?,
            creation_time: timestamp(&mut fields, "properties.creation-time")?,
            group_id: fields.optional("properties.group-id")?,
            group_sequence: fields.optional("properties.group-sequence")?,
            reply_to_group_id: fields.optional("properties.reply-to-group-id")?,
        };
        fields.finish()?;
        Ok(properties)
    }
}

fn timestamp(fields: &mut Fields<'_>, field: &'static str) -> Result<Option<i64>, DecodeError> {
    Ok(fields.optional::<Timestamp>(field)?.map(|timestamp| timestamp.0))
}

/// The whole section, descriptor included.
impl Encode for Properties<'_> {
    fn encode(&self, out: &mut Vec<u8>) {
        let mut list = ListWriter::described(out, PROPERTIES);
        list.optional(&self.message_id);
        list.optional(&self.user_id);
        list.optional(&self.to);
        list.optional(&self.subject);
        list.optional(&self.reply_to);
        list.optional(&self.correlation_id);
        list.symbol(self.content_type);
        list.symbol(self.content_encoding);
        list.optional(&self.absolute_expiry_time.map(Value::Timestamp));
        list.optional(&self.creation_time.map(Value::Timestamp));
        list.optional(&self.group_id);
        list.optional(&self.group_sequence);
        list.optional(&self.reply_to_group_id);
        list.finish_fields();
    }
}

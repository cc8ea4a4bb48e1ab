//! What does a method frame say?

use std::fmt;

use super::class::Arguments;
use super::encode::Encode;
use super::error::{DecodeError, MethodError};
use super::methods::{access, basic, channel, confirm, connection, exchange, queue, tx};
use super::reader::Reader;

/// The numbers of a class and one of its methods.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct MethodId {
    pub class_id: u16,
    pub method_id: u16,
}

impl MethodId {
    /// The name in the specification, `basic.publish`; `None` if it has no such method.
    pub fn name(self) -> Option<&'static str> {
        let name = match self.class_id {
            connection::CLASS_ID => connection::name,
            channel::CLASS_ID => channel::name,
            access::CLASS_ID => access::name,
            exchange::CLASS_ID => exchange::name,
            queue::CLASS_ID => queue::name,
            basic::CLASS_ID => basic::name,
            confirm::CLASS_ID => confirm::name,
            tx::CLASS_ID => tx::name,
            _ => return None,
        };
        name(self.method_id)
    }
}

impl fmt::Display for MethodId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.name() {
            Some(name) => f.write_str(name),
            None => write!(f, "method {} of class {}", self.method_id, self.class_id),
        }
    }
}

/// The payload of a method frame (§2.3.5.1): a method of one of the classes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Method<'a> {
    Connection(connection::Method<'a>),
    Channel(channel::Method<'a>),
    Access(access::Method<'a>),
    Exchange(exchange::Method<'a>),
    Queue(queue::Method<'a>),
    Basic(basic::Method<'a>),
    Confirm(confirm::Method),
    Tx(tx::Method),
}

impl<'a> Method<'a> {
    /// Reads a method frame's payload to its last byte. Tables in it are checked all the way down.
    #[inline]
    pub fn decode(payload: &'a [u8]) -> Result<Self, MethodError> {
        let mut reader = Reader::new(payload);
        let Ok([a, b, c, d]) = reader.fixed() else {
            return Err(MethodError { id: MethodId::default(), error: DecodeError::Truncated });
        };
        let id = MethodId { class_id: u16::from_be_bytes([a, b]), method_id: u16::from_be_bytes([c, d]) };
        Self::read(id, Arguments::new(reader)).map_err(|error| MethodError { id, error })
    }

    #[inline]
    fn read(id: MethodId, mut arguments: Arguments<'a>) -> Result<Self, DecodeError> {
        let from = &mut arguments;
        let method = match id.class_id {
            basic::CLASS_ID => Self::Basic(basic::Method::read(id.method_id, from)?),
            connection::CLASS_ID => Self::Connection(connection::Method::read(id.method_id, from)?),
            channel::CLASS_ID => Self::Channel(channel::Method::read(id.method_id, from)?),
            access::CLASS_ID => Self::Access(access::Method::read(id.method_id, from)?),
            exchange::CLASS_ID => Self::Exchange(exchange::Method::read(id.method_id, from)?),
            queue::CLASS_ID => Self::Queue(queue::Method::read(id.method_id, from)?),
            confirm::CLASS_ID => Self::Confirm(confirm::Method::read(id.method_id, from)?),
            tx::CLASS_ID => Self::Tx(tx::Method::read(id.method_id, from)?),
            _ => return Err(DecodeError::UnknownMethod),
        };
        arguments.finish()?;
        Ok(method)
    }

    pub fn id(&self) -> MethodId {
        match self {
            Self::Connection(method) => method.id(),
            Self::Channel(method) => method.id(),
            Self::Access(method) => method.id(),
            Self::Exchange(method) => method.id(),
            Self::Queue(method) => method.id(),
            Self::Basic(method) => method.id(),
            Self::Confirm(method) => method.id(),
            Self::Tx(method) => method.id(),
        }
    }

    /// Whether a content header and a body follow (§4.2.6).
    pub fn has_content(&self) -> bool {
        matches!(
            self,
            Self::Basic(
                basic::Method::Publish(_)
                    | basic::Method::Return(_)
                    | basic::Method::Deliver(_)
                    | basic::Method::GetOk(_)
            )
        )
    }
}

impl Encode for Method<'_> {
    #[inline]
    fn encode(&self, out: &mut Vec<u8>) {
        match self {
            Self::Connection(method) => method.encode(out),
            Self::Channel(method) => method.encode(out),
            Self::Access(method) => method.encode(out),
            Self::Exchange(method) => method.encode(out),
            Self::Queue(method) => method.encode(out),
            Self::Basic(method) => method.encode(out),
            Self::Confirm(method) => method.encode(out),
            Self::Tx(method) => method.encode(out),
        }
    }
}

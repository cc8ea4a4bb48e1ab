//! How is an answer written? As a message to the request's `reply-to`, with a status and a body.

use std::borrow::Cow;

use corelane_wire::amqp10::{MapSection, MapWriter, Properties, Value, write_amqp_value};

use super::data::{Data, Pairs};
use super::kinds::Kind;
use super::request::Envelope;
use crate::vhost;

/// How it went, by the codes of HTTP, as the draft has it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Status {
    Ok = 200,
    Created = 201,
    NoContent = 204,
    BadRequest = 400,
    Forbidden = 403,
    NotFound = 404,
    Conflict = 409,
    NotImplemented = 501,
    /// The broker has no room for it.
    Unavailable = 503,
    /// A shard did not answer in time.
    Timeout = 504,
}

impl Status {
    /// What it means where nothing more is to be said.
    fn words(self) -> &'static str {
        match self {
            Status::Ok => "OK",
            Status::Created => "Created",
            Status::NoContent => "No Content",
            Status::BadRequest => "Bad Request",
            Status::Forbidden => "Forbidden",
            Status::NotFound => "Not Found",
            Status::Conflict => "Conflict",
            Status::NotImplemented => "Not Implemented",
            Status::Unavailable => "Service Unavailable",
            Status::Timeout => "Gateway Timeout",
        }
    }
}

/// Why a request cannot be served.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Fault {
    pub status: Status,
    pub why: String,
}

impl Fault {
    pub(crate) fn bad(why: impl Into<String>) -> Fault {
        Fault { status: Status::BadRequest, why: why.into() }
    }

    pub(crate) fn unknown(kind: Kind, name: &str) -> Fault {
        Fault {
            status: Status::NotFound,
            why: format!("there is no {} {:?}", kind.word(), vhost::plain(name)),
        }
    }
}

/// What is answered.
#[derive(Clone, Debug)]
pub(crate) struct Reply {
    pub(crate) status: Status,
    pub(crate) description: Cow<'static, str>,
    /// Application properties beside the status.
    pub(crate) properties: Pairs,
    pub(crate) body: Data,
}

impl Reply {
    pub(crate) fn new(status: Status, body: Data) -> Reply {
        Reply { status, description: status.words().into(), properties: Pairs::new(), body }
    }
}

impl From<Fault> for Reply {
    fn from(fault: Fault) -> Self {
        let body = Data::Map(Pairs::new());
        Reply { status: fault.status, description: fault.why.into(), properties: Pairs::new(), body }
    }
}

/// The answer's encoding, all sections.
pub(crate) fn encode(envelope: &Envelope, reply: &Reply) -> Vec<u8> {
    let mut bytes = Vec::new();
    write_properties(&mut bytes, envelope);
    let mut properties = MapWriter::section(&mut bytes, MapSection::ApplicationProperties);
    properties.pair(&"statusCode", &(reply.status as i32));
    properties.pair(&"statusDescription", &&*reply.description);
    for (key, value) in &reply.properties {
        properties.pair(&&**key, value);
    }
    properties.finish();
    write_amqp_value(&mut bytes, &reply.body);
    bytes
}

fn write_properties(bytes: &mut Vec<u8>, envelope: &Envelope) {
    use corelane_wire::amqp10::{Encode, MessageId};
    let correlation_id = match &envelope.correlation_id {
        Data::Encoded(encoded) => match Value::decode(encoded) {
            Ok(Value::Ulong(id)) => Some(MessageId::Ulong(id)),
            Ok(Value::Uuid(id)) => Some(MessageId::Uuid(id)),
            Ok(Value::Binary(id)) => Some(MessageId::Binary(id)),
            Ok(Value::String(id)) => Some(MessageId::String(id)),
            Ok(_) | Err(_) => None,
        },
        _ => None,
    };
    Properties { to: Some(&envelope.reply_to), correlation_id, ..Properties::default() }.encode(bytes);
}

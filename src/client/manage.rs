//! Asking the broker's management node: one request at a time, each with its answer (AMQP Management 1.0, working draft).
//!
//! Invariants: an answer is the one to the request that was sent last (by its correlation-id); a status that is no success is
//! an error that says what the broker said.
//! Left out: what the operations mean, which the commands know.

use corelane_protocol::amqp10::{AttachRequest, LinkId, Outgoing, Progress, Token};
use corelane_wire::amqp10::{
    DecodeError, DeliveryState, MapWriter, MessageId, Properties, ReceiverSettleMode, Sections,
    SenderSettleMode, Source, Symbols, Target, TargetArchetype, Value, write_amqp_value,
    write_application_properties,
};
use serde_json::Value as Json;

use super::{ANSWER_US_MAX, Client, ClientError, Fate, Notice};

/// The management node's address.
const ADDRESS: &str = "$management";
/// What our answers are addressed to: the name of the link that takes them.
const ANSWERS: &str = "answers";
/// How long the broker may take for a request, unless said otherwise.
const REQUEST_US_MAX: u64 = 10_000_000;
/// Values within values of an answer that are read.
const NESTING_MAX: usize = 16;

/// A conversation with the management node.
pub struct Manager<'a> {
    client: &'a mut Client,
    sender: LinkId,
    receiver: LinkId,
    requests: u64,
    wait_us: u64,
}

/// What is asked for.
#[derive(Clone, Debug, Default)]
pub struct Request<'a> {
    pub operation: &'a str,
    /// `queue`, for one; empty: the node itself is asked.
    pub kind: &'a str,
    /// The entity; empty for none.
    pub name: &'a str,
    pub properties: Vec<(&'a str, Value<'a>)>,
    /// The body's pairs. Values that are lists of strings are given as such.
    pub body: Vec<(&'a str, Argument<'a>)>,
}

/// A value in a request's body.
#[derive(Clone, Debug)]
pub enum Argument<'a> {
    Value(Value<'a>),
    Texts(Vec<String>),
    /// A map of texts, numbers and flags.
    Table(serde_json::Map<String, Json>),
}

/// A successful answer.
#[derive(Clone, Debug, PartialEq)]
pub struct Response {
    pub status: i64,
    /// Where to go on, if there is more.
    pub next: Option<String>,
    pub body: Json,
}

impl Client {
    /// Opens the way to the management node and back.
    pub fn manage(&mut self) -> Result<Manager<'_>, ClientError> {
        let session = self.session()?;
        let mut request = AttachRequest {
            name: ANSWERS,
            source: Some(Source { address: Some(ADDRESS), ..Source::default() }),
            target: Some(TargetArchetype::Target(Target { address: Some(ANSWERS), ..Target::default() })),
            sender_settle_mode: SenderSettleMode::Settled,
            receiver_settle_mode: ReceiverSettleMode::First,
            max_message_size: None,
            desired_capabilities: Symbols::default(),
            properties: None,
        };
        let no_link = ClientError::NoAnswer { url: self.url.clone(), awaited: "a free link" };
        let receiver = self.connection.attach_receiver(session, &request);
        let Some(receiver) = receiver else { return Err(no_link) };
        self.wait_attached(ADDRESS, receiver)?;
        request.source = Some(Source::default());
        request.target =
            Some(TargetArchetype::Target(Target { address: Some(ADDRESS), ..Target::default() }));
        request.sender_settle_mode = SenderSettleMode::Unsettled;
        let Some(sender) = self.connection.attach_sender(session, &request) else { return Err(no_link) };
        self.wait_attached(ADDRESS, sender)?;
        Ok(Manager { client: self, sender, receiver, requests: 0, wait_us: REQUEST_US_MAX })
    }
}

impl Manager<'_> {
    /// Waits so long for each answer.
    #[must_use]
    pub fn waiting(self, wait_us: u64) -> Self {
        Manager { wait_us, ..self }
    }

    /// Asks, and waits for the answer.
    pub fn ask(&mut self, request: &Request<'_>) -> Result<Response, ClientError> {
        self.requests += 1;
        self.client.connection.grant_credit(self.receiver, 1, false);
        let bytes = encode(request, self.requests);
        self.send(&bytes)?;
        let deadline = self.client.now().saturating_add(self.wait_us);
        loop {
            let Some(notice) = self.client.next_notice(Some(deadline))? else {
                return Err(ClientError::Unanswered { url: self.client.url.clone(), wait_us: self.wait_us });
            };
            match notice {
                Notice::Message { link, delivery_id, settled, bytes } if link == self.receiver => {
                    if !settled {
                        self.client.connection.settle(link, delivery_id, &DeliveryState::Accepted);
                    }
                    match read(&bytes, self.requests) {
                        Ok(Some(answer)) => return answer,
                        // The answer to a request that was given up.
                        Ok(None) => self.client.connection.grant_credit(self.receiver, 1, false),
                        Err(_) => return Err(ClientError::Unreadable),
                    }
                }
                other => self.take_notice(other)?,
            }
        }
    }

    fn send(&mut self, bytes: &[u8]) -> Result<(), ClientError> {
        let outgoing = Outgoing {
            token: Token(self.requests, 0),
            settled: false,
            message_format: 0,
            head: bytes,
            rest: &[],
        };
        let mut written = 0;
        loop {
            let progress = if written == 0 {
                self.client.connection.send(self.sender, &outgoing)
            } else {
                self.client.connection.send_more(self.sender, &bytes[written..])
            };
            match progress {
                Progress::Complete { .. } => return self.client.flush(),
                Progress::Partial { written: more, .. } => written += more,
                Progress::TooLarge => {
                    let size_max = self.client.connection.message_size_max(self.sender);
                    return Err(ClientError::MessageTooLarge { size_max });
                }
                Progress::NotReady(_) => {}
            }
            let deadline = self.client.now() + ANSWER_US_MAX;
            match self.client.next_notice(Some(deadline))? {
                Some(notice) => self.take_notice(notice)?,
                None => return Err(self.no_answer("room for a request")),
            }
        }
    }

    fn take_notice(&self, notice: Notice) -> Result<(), ClientError> {
        match notice {
            Notice::Detached { reason, .. } | Notice::Disposed(Fate::Rejected(reason)) => {
                Err(ClientError::LinkEnded { address: ADDRESS.to_owned(), reason })
            }
            Notice::Ended(reason) => Err(ClientError::SessionEnded { reason }),
            Notice::Closed(reason) => Err(self.client.closed(reason)),
            Notice::Opened
            | Notice::SessionBegun
            | Notice::Attached(_)
            | Notice::Credit { .. }
            | Notice::WindowOpened
            | Notice::Message { .. }
            | Notice::Disposed(_) => Ok(()),
        }
    }

    fn no_answer(&self, awaited: &'static str) -> ClientError {
        ClientError::NoAnswer { url: self.client.url.clone(), awaited }
    }
}

/// All sections of a request.
fn encode(request: &Request<'_>, number: u64) -> Vec<u8> {
    use corelane_wire::amqp10::Encode;
    let mut bytes = Vec::new();
    Properties {
        message_id: Some(MessageId::Ulong(number)),
        to: Some(ADDRESS),
        reply_to: Some(ANSWERS),
        ..Properties::default()
    }
    .encode(&mut bytes);
    let kind = if request.kind.is_empty() { "org.amqp.management" } else { request.kind };
    let mut properties = vec![("operation", Value::String(request.operation)), ("type", Value::String(kind))];
    if !request.name.is_empty() {
        properties.push(("name", Value::String(request.name)));
    }
    properties.extend_from_slice(&request.properties);
    write_application_properties(&mut bytes, &properties);
    let mut body = Vec::new();
    let mut map = MapWriter::new(&mut body);
    for (key, argument) in &request.body {
        let mut encoded = Vec::new();
        match argument {
            Argument::Value(value) => map.pair(key, value),
            Argument::Texts(texts) => {
                let mut list = corelane_wire::amqp10::ListWriter::new(&mut encoded);
                for text in texts {
                    list.field(&text.as_str());
                }
                list.finish();
                if let Ok(list) = Value::decode(&encoded) {
                    map.pair(key, &list);
                }
            }
            Argument::Table(table) => {
                let mut members = MapWriter::new(&mut encoded);
                for (name, member) in table {
                    members.pair(&name.as_str(), &from_json(member));
                }
                members.finish();
                if let Ok(table) = Value::decode(&encoded) {
                    map.pair(key, &table);
                }
            }
        }
    }
    map.finish();
    if let Ok(map) = Value::decode(&body) {
        write_amqp_value(&mut bytes, &map);
    }
    bytes
}

/// A text, number or flag; all else is null.
fn from_json(json: &Json) -> Value<'_> {
    match json {
        Json::String(text) => Value::String(text),
        Json::Bool(flag) => Value::Boolean(*flag),
        Json::Number(number) => match (number.as_i64(), number.as_f64()) {
            (Some(integer), _) => Value::Long(integer),
            (None, Some(float)) => Value::Double(float),
            (None, None) => Value::Null,
        },
        Json::Null | Json::Array(_) | Json::Object(_) => Value::Null,
    }
}

/// Reads an answer; none: it is that to another request.
fn read(bytes: &[u8], number: u64) -> Result<Option<Result<Response, ClientError>>, DecodeError> {
    let sections = Sections::scan(bytes)?;
    let properties = sections.properties(bytes)?.decode()?;
    if properties.correlation_id != Some(MessageId::Ulong(number)) {
        return Ok(None);
    }
    let text = |key| -> Result<Option<String>, DecodeError> {
        let value = sections.application_property(bytes, key)?;
        Ok(value.and_then(|value| value.as_str().map(str::to_owned)))
    };
    let status = sections.application_property(bytes, "statusCode")?;
    let status = status.and_then(|value| value.as_i64()).unwrap_or_default();
    if !(200..300).contains(&status) {
        let description = text("statusDescription")?.unwrap_or_default();
        return Ok(Some(Err(ClientError::Managed { status, description })));
    }
    let body = match sections.body_values(bytes).next() {
        Some(value) => to_json(&value?, 0)?,
        None => Json::Null,
    };
    Ok(Some(Ok(Response { status, next: text("next")?, body })))
}

/// An AMQP value as JSON has it: bytes that are no text in hexadecimal, times in milliseconds.
fn to_json(value: &Value<'_>, depth: usize) -> Result<Json, DecodeError> {
    if depth > NESTING_MAX {
        return Ok(Json::Null);
    }
    Ok(match value {
        Value::Null => Json::Null,
        Value::Boolean(value) => Json::from(*value),
        Value::Float(value) => Json::from(*value),
        Value::Double(value) => Json::from(*value),
        Value::Ulong(value) => Json::from(*value),
        Value::Timestamp(value) => Json::from(*value),
        Value::String(text) | Value::Symbol(text) => Json::from(*text),
        Value::Binary(bytes) => match std::str::from_utf8(bytes) {
            Ok(text) => Json::from(text),
            Err(_) => Json::from(bytes.iter().map(|byte| format!("{byte:02x}")).collect::<String>()),
        },
        Value::List(list) => {
            let items = list.iter().map(|item| to_json(&item?, depth + 1));
            Json::Array(items.collect::<Result<_, _>>()?)
        }
        Value::Array(array) => {
            let items = array.iter().map(|item| to_json(&item?, depth + 1));
            Json::Array(items.collect::<Result<_, _>>()?)
        }
        Value::Map(map) => {
            let pair = |pair: Result<(Value<'_>, Value<'_>), DecodeError>| {
                let (key, value) = pair?;
                let key = match key.as_str() {
                    Some(key) => key.to_owned(),
                    None => super::show::show_value(&key),
                };
                Ok((key, to_json(&value, depth + 1)?))
            };
            Json::Object(map.iter().map(pair).collect::<Result<_, DecodeError>>()?)
        }
        other => match other.as_i64() {
            Some(number) => Json::from(number),
            None => Json::from(super::show::show_value(other)),
        },
    })
}

#[cfg(test)]
mod tests {
    use corelane_wire::amqp10::Encode;

    use super::*;

    fn answer(number: u64, status: i32, description: &str) -> Vec<u8> {
        let mut bytes = Vec::new();
        let correlation_id = Some(MessageId::Ulong(number));
        Properties { correlation_id, ..Properties::default() }.encode(&mut bytes);
        let properties =
            [("statusCode", Value::Int(status)), ("statusDescription", Value::String(description))];
        write_application_properties(&mut bytes, &properties);
        write_amqp_value(&mut bytes, &Value::Binary(&[0xff, 0]));
        bytes
    }

    #[test]
    fn answers_are_told_apart() {
        assert!(read(&answer(7, 200, "OK"), 8).unwrap().is_none());
        let good = read(&answer(7, 200, "OK"), 7).unwrap().unwrap().unwrap();
        assert_eq!(good, Response { status: 200, next: None, body: Json::from("ff00") });
        let bad = read(&answer(7, 404, "there is no queue \"x\""), 7).unwrap().unwrap().unwrap_err();
        assert_eq!(bad.to_string(), "the broker says: there is no queue \"x\" (404)");
        assert!(read(&[1, 2, 3], 7).is_err());
    }

    #[test]
    fn a_request_reads_as_it_was_meant() {
        let request = Request {
            operation: "MOVE",
            kind: "queue",
            name: "a",
            properties: vec![("count", Value::Uint(3))],
            body: vec![
                ("to", Argument::Value(Value::String("b"))),
                ("ids", Argument::Texts(vec!["1".to_owned(), "2".to_owned()])),
                (
                    "delay",
                    Argument::Table(
                        [("min".to_owned(), Json::from("1s")), ("n".to_owned(), Json::from(2))]
                            .into_iter()
                            .collect(),
                    ),
                ),
            ],
        };
        let bytes = encode(&request, 5);
        let sections = Sections::scan(&bytes).unwrap();
        assert_eq!(sections.properties(&bytes).unwrap().decode().unwrap().reply_to, Some(ANSWERS));
        let property = |key| sections.application_property(&bytes, key).unwrap();
        assert_eq!(property("operation"), Some(Value::String("MOVE")));
        assert_eq!(property("count"), Some(Value::Uint(3)));
        let body = sections.body_values(&bytes).next().unwrap().unwrap();
        assert_eq!(
            to_json(&body, 0).unwrap().to_string(),
            r#"{"delay":{"min":"1s","n":2},"ids":["1","2"],"to":"b"}"#
        );
    }
}

//! Sending messages: as many as the broker gives credit for, each accounted for by its outcome.
//!
//! Invariant: `accepted + rejected + released + modified + unknown = sent` when it returns without an error.

use corelane_protocol::amqp10::{AttachRequest, LinkId, Outgoing, Progress, SendReadiness, Token};
use corelane_wire::amqp10::{
    Encode, Header, MessageId, Properties, ReceiverSettleMode, SenderSettleMode, Source, Symbols, Target,
    TargetArchetype, Value, write_amqp_value, write_application_properties, write_data,
    write_message_annotations,
};

use super::{ANSWER_US_MAX, Client, ClientError, Fate, Notice, Reason};

/// Bytes that are gathered before they are sent.
const OUTPUT_BYTES: usize = 64 << 10;

/// How long the broker may give no credit until the user is told.
const WAIT_TOLD_US: u64 = 1_000_000;

/// How messages are to be treated.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct SendOptions {
    pub durable: bool,
    pub priority: Option<u8>,
    pub ttl_ms: Option<u32>,
    /// How long the queue holds them back.
    pub delay_ms: Option<u64>,
    pub group_id: Option<String>,
    /// Application properties.
    pub properties: Vec<(String, PropertyValue)>,
}

/// The value of an application property.
#[derive(Clone, Debug, PartialEq)]
pub enum PropertyValue {
    Text(String),
    Integer(i64),
    Float(f64),
    Boolean(bool),
}

impl PropertyValue {
    fn to_amqp(&self) -> Value<'_> {
        match self {
            PropertyValue::Text(text) => Value::String(text),
            PropertyValue::Integer(number) => Value::Long(*number),
            PropertyValue::Float(number) => Value::Double(*number),
            PropertyValue::Boolean(value) => Value::Boolean(*value),
        }
    }
}

/// What is in a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TextMessage<'a> {
    /// An amqp-value section with a string.
    Text(&'a str),
    /// A data section.
    Data(&'a [u8]),
    /// A data section of so many bytes, which are made when it is known that the broker takes them.
    Pattern(u64),
}

/// What became of the messages.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SendReport {
    pub accepted: u64,
    pub rejected: u64,
    pub released: u64,
    pub modified: u64,
    pub unknown: u64,
    /// The first reason that was given for a rejection.
    pub reason: Option<Reason>,
}

impl SendReport {
    pub fn total(&self) -> u64 {
        self.accepted + self.rejected + self.released + self.modified + self.unknown
    }

    fn count(&mut self, fate: Fate) {
        match fate {
            Fate::Accepted => self.accepted += 1,
            Fate::Rejected(reason) => {
                self.rejected += 1;
                self.reason.get_or_insert(reason);
            }
            Fate::Released => self.released += 1,
            Fate::Modified => self.modified += 1,
            Fate::Unknown => self.unknown += 1,
        }
    }
}

impl Client {
    /// Sends one message `count` times and waits until all are settled.
    pub fn send(
        &mut self,
        address: &str,
        message: TextMessage<'_>,
        count: u64,
        options: &SendOptions,
    ) -> Result<SendReport, ClientError> {
        self.send_telling(address, message, count, options, |_| {})
    }

    /// The same, telling once if for a while nothing can be sent because the broker gives no credit: how many were sent by then.
    pub fn send_telling(
        &mut self,
        address: &str,
        message: TextMessage<'_>,
        count: u64,
        options: &SendOptions,
        mut waits: impl FnMut(u64),
    ) -> Result<SendReport, ClientError> {
        let link = self.attach_sender(address)?;
        let size_max = self.connection.message_size_max(link);
        let pattern;
        let message = match message {
            TextMessage::Pattern(size) if size_max.is_some_and(|size_max| size > size_max) => {
                return Err(ClientError::MessageTooLarge { size_max });
            }
            TextMessage::Pattern(size) => {
                pattern = pattern_of(size);
                TextMessage::Data(&pattern)
            }
            TextMessage::Text(_) | TextMessage::Data(_) => message,
        };
        let mut report = SendReport::default();
        let mut sent = 0;
        let mut bytes = Vec::new();
        // When the user is told that there is no credit.
        let (mut tell_at, mut told) = (None, false);
        while report.total() < count {
            while sent < count && self.connection.can_send(link) == SendReadiness::Ready {
                sent += 1;
                tell_at = None;
                bytes.clear();
                encode(&mut bytes, message, sent, options);
                self.send_whole(address, link, sent, &bytes, &mut report)?;
            }
            // Waiting for credit may take long: the queue may be full. Answers to what was sent may not.
            let deadline = (sent > report.total()).then(|| self.now() + ANSWER_US_MAX);
            if sent < count && !told {
                tell_at.get_or_insert_with(|| self.now() + WAIT_TOLD_US);
            }
            match self.next_notice([deadline, tell_at].into_iter().flatten().min())? {
                Some(notice) => self.take_notice(address, link, notice, &mut report)?,
                None if tell_at.is_some_and(|at| at <= self.now()) => {
                    waits(sent);
                    (tell_at, told) = (None, true);
                }
                None => return Err(ClientError::NoAnswer { url: self.url.clone(), awaited: "an outcome" }),
            }
        }
        self.connection.detach(link, true, None);
        self.flush()?;
        Ok(report)
    }

    fn attach_sender(&mut self, address: &str) -> Result<LinkId, ClientError> {
        let session = self.session()?;
        let name = format!("send-{address}");
        let request = AttachRequest {
            name: &name,
            source: Some(Source::default()),
            target: Some(TargetArchetype::Target(Target { address: Some(address), ..Target::default() })),
            sender_settle_mode: SenderSettleMode::Unsettled,
            receiver_settle_mode: ReceiverSettleMode::First,
            max_message_size: None,
            desired_capabilities: Symbols::default(),
            properties: None,
        };
        let link = self.connection.attach_sender(session, &request);
        let link = link.ok_or(ClientError::NoAnswer { url: self.url.clone(), awaited: "a free link" })?;
        self.wait_attached(address, link)?;
        Ok(link)
    }

    /// Waits for the answer to an attach, and where it was refused for the reason.
    pub(super) fn wait_attached(&mut self, address: &str, link: LinkId) -> Result<(), ClientError> {
        self.wait_for(
            "its attach",
            |notice| matches!(notice, Notice::Attached(attached) if *attached == link),
        )?;
        // AMQP 1.0 §2.6.3: a refusal is an attach without terminus, and a detach that follows at once.
        let refused = |notice: &Notice| match notice {
            Notice::Detached { link: detached, reason } if *detached == link => Some(reason.clone()),
            _ => None,
        };
        match self.notices.iter().find_map(refused) {
            Some(reason) => Err(ClientError::LinkEnded { address: address.to_owned(), reason }),
            None => Ok(()),
        }
    }

    /// Sends a message to its last byte, waiting for the session's window as often as needed.
    fn send_whole(
        &mut self,
        address: &str,
        link: LinkId,
        number: u64,
        bytes: &[u8],
        report: &mut SendReport,
    ) -> Result<(), ClientError> {
        let outgoing =
            Outgoing { token: Token(number, 0), settled: false, message_format: 0, head: bytes, rest: &[] };
        let mut progress = self.connection.send(link, &outgoing);
        let mut rest = bytes;
        loop {
            match progress {
                Progress::Complete { settled, .. } => {
                    if settled {
                        report.count(Fate::Accepted);
                    }
                    // Small messages go out together; waiting for anything sends them off, too.
                    return if self.connection.output().len() < OUTPUT_BYTES { Ok(()) } else { self.flush() };
                }
                Progress::Partial { written, .. } => {
                    rest = &rest[written..];
                    self.flush()?;
                    if written == 0 {
                        match self.next_notice(Some(self.now() + ANSWER_US_MAX))? {
                            Some(notice) => self.take_notice(address, link, notice, report)?,
                            None => {
                                let awaited = "room in its window";
                                return Err(ClientError::NoAnswer { url: self.url.clone(), awaited });
                            }
                        }
                    }
                }
                Progress::TooLarge => {
                    return Err(ClientError::MessageTooLarge {
                        size_max: self.connection.message_size_max(link),
                    });
                }
                Progress::NotReady(_) => {
                    return Err(ClientError::NoAnswer {
                        url: self.url.clone(),
                        awaited: "a link to send on",
                    });
                }
            }
            progress = self.connection.send_more(link, rest);
        }
    }

    fn take_notice(
        &mut self,
        address: &str,
        link: LinkId,
        notice: Notice,
        report: &mut SendReport,
    ) -> Result<(), ClientError> {
        match notice {
            Notice::Disposed(fate) => report.count(fate),
            Notice::Detached { link: detached, reason } if detached == link => {
                return Err(ClientError::LinkEnded { address: address.to_owned(), reason });
            }
            Notice::Ended(reason) => return Err(ClientError::SessionEnded { reason }),
            Notice::Closed(reason) => return Err(self.closed(reason)),
            Notice::Opened
            | Notice::SessionBegun
            | Notice::Attached(_)
            | Notice::Credit { .. }
            | Notice::WindowOpened
            | Notice::Message { .. }
            | Notice::Detached { .. } => {}
        }
        Ok(())
    }
}

/// Writes one message, all its sections.
fn encode(bytes: &mut Vec<u8>, message: TextMessage<'_>, number: u64, options: &SendOptions) {
    let header = Header {
        durable: options.durable,
        priority: options.priority.unwrap_or(Header::default().priority),
        ttl: options.ttl_ms,
        ..Header::default()
    };
    if header != Header::default() {
        header.encode(bytes);
    }
    if let Some(delay_ms) = options.delay_ms {
        write_message_annotations(bytes, &[("x-opt-delivery-delay", Value::Ulong(delay_ms))]);
    }
    let properties = Properties {
        message_id: Some(MessageId::Ulong(number)),
        content_type: match message {
            TextMessage::Text(_) => None,
            TextMessage::Data(_) | TextMessage::Pattern(_) => Some("application/octet-stream"),
        },
        group_id: options.group_id.as_deref(),
        ..Properties::default()
    };
    properties.encode(bytes);
    if !options.properties.is_empty() {
        let pairs: Vec<(&str, Value<'_>)> =
            options.properties.iter().map(|(key, value)| (key.as_str(), value.to_amqp())).collect();
        write_application_properties(bytes, &pairs);
    }
    match message {
        TextMessage::Text(text) => write_amqp_value(bytes, &text),
        TextMessage::Data(data) => write_data(bytes, data),
        TextMessage::Pattern(size) => write_data(bytes, &pattern_of(size)),
    }
}

/// A body of that size that is text and shows where it was cut.
fn pattern_of(size: u64) -> Vec<u8> {
    (b'a'..=b'z').cycle().take(size as usize).collect()
}

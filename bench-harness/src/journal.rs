//! How much does the broker write? It says so itself, when it is asked over its management node.
//!
//! A broker without such a node is not asked: then nothing is known.

use corelane_protocol::amqp10::{Event, LinkId, Outgoing, SendReadiness, Token};
use corelane_wire::amqp10::{
    DeliveryState, Encode, MapWriter, Properties, Sections, Value, write_application_properties,
};

use crate::client::ANSWER_US_MAX;
use crate::client::amqp10::{Client10, End, pass};
use crate::clock::Clock;
use crate::error::BenchError;
use crate::url::Url;

/// The broker's node for questions.
const ADDRESS: &str = "$management";

/// What was written so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Written {
    pub writes: u64,
    pub bytes: u64,
}

/// What was written for what was sent.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct JournalUse {
    /// Each is synced once.
    pub writes: u64,
    pub bytes: u64,
    pub messages: u64,
    pub message_bytes: u64,
}

impl JournalUse {
    pub fn syncs_per_message(&self) -> Option<f64> {
        (self.messages > 0).then(|| self.writes as f64 / self.messages as f64)
    }

    /// Bytes written for one received.
    pub fn bytes_per_byte(&self) -> Option<f64> {
        (self.message_bytes > 0).then(|| self.bytes as f64 / self.message_bytes as f64)
    }

    /// Bytes written for one message.
    pub fn bytes_per_message(&self) -> Option<f64> {
        (self.messages > 0).then(|| self.bytes as f64 / self.messages as f64)
    }

    /// Bytes of the usual write.
    pub fn write_bytes(&self) -> Option<usize> {
        (self.writes > 0).then(|| (self.bytes / self.writes) as usize)
    }

    pub fn messages_per_write(&self) -> f64 {
        self.messages as f64 / self.writes.max(1) as f64
    }
}

/// A connection for questions.
pub struct Journals {
    asked: Option<Asked>,
    clock: Clock,
}

struct Asked {
    client: Client10,
    requests: LinkId,
    /// What the link is called that answers come by.
    answers: String,
}

impl Journals {
    pub fn connect(url: &Url, clock: Clock) -> Result<Journals, BenchError> {
        let connected = Client10::connect(url, clock).and_then(|mut client| {
            let link = client.attach(ADDRESS, End::Receiver, false)?;
            let answers = client.last_name();
            client.connection.grant_credit(link, 10, false);
            let requests = client.attach(ADDRESS, End::Sender, false)?;
            Ok(Asked { client, requests, answers })
        });
        match connected {
            Ok(asked) => Ok(Journals { asked: Some(asked), clock }),
            // It has no such node, or does not speak 1.0.
            Err(
                BenchError::QueueRefused { .. }
                | BenchError::Closed { .. }
                | BenchError::Broken { .. }
                | BenchError::LoginRefused { .. },
            ) => Ok(Journals { asked: None, clock }),
            Err(error) => Err(error),
        }
    }

    /// Of a broker whose counters we do not know how to ask for.
    pub fn none(clock: Clock) -> Journals {
        Journals { asked: None, clock }
    }

    /// What the first shard has written so far. `None`: it is not known.
    pub fn read(&mut self) -> Result<Option<Written>, BenchError> {
        let Some(Asked { client, requests, answers }) = &mut self.asked else { return Ok(None) };
        let request = request(answers);
        let (mut is_sent, mut answer) = (false, None);
        let deadline = self.clock.now_us() + ANSWER_US_MAX;
        while answer.is_none() {
            if !is_sent && client.connection.can_send(*requests) == SendReadiness::Ready {
                let token = Token::default();
                let outgoing =
                    Outgoing { token, settled: false, message_format: 0, head: &[], rest: &request };
                client.connection.send(*requests, &outgoing);
                is_sent = true;
            }
            client.flush()?;
            client.receive(|connection, event| match event {
                Event::Message(message) => {
                    answer = Some(written(message.payload.bytes()));
                    connection.settle(message.link, message.delivery_id, &DeliveryState::Accepted);
                    connection.grant_credit(message.link, 10, false);
                    Ok(())
                }
                Event::Disposition { .. } => {
                    while connection.poll_outcome().is_some() {}
                    Ok(())
                }
                event => pass("the broker", &event),
            })?;
            if self.clock.now_us() > deadline {
                return Err(BenchError::NoAnswer { peer: client.peer().to_owned(), awaited: "its counters" });
            }
        }
        client.flush()?;
        Ok(answer.flatten())
    }

    pub fn close(self) {
        if let Some(asked) = self.asked {
            asked.client.close();
        }
    }
}

fn request(reply_to: &str) -> Vec<u8> {
    let mut bytes = Vec::new();
    Properties { reply_to: Some(reply_to), ..Properties::default() }.encode(&mut bytes);
    let text = |text| Value::String(text);
    let properties = [("operation", text("READ")), ("type", text("shard")), ("name", text("0"))];
    write_application_properties(&mut bytes, &properties);
    // AMQP 1.0 §3.2.8: an amqp-value section, with an empty map.
    bytes.extend_from_slice(&[0x00, 0x53, 0x77]);
    MapWriter::new(&mut bytes).finish();
    bytes
}

fn written(answer: &[u8]) -> Option<Written> {
    let sections = Sections::scan(answer).ok()?;
    let Some(Ok(Value::Map(map))) = sections.body_values(answer).next() else { return None };
    let mut written = [None, None];
    for (key, value) in map.iter().flatten() {
        let known = ["journal-writes", "journal-bytes"].iter().position(|name| key.as_str() == Some(name));
        if let Some(index) = known {
            written[index] = value.as_i64().map(i64::cast_unsigned);
        }
    }
    let [writes, bytes] = written;
    Some(Written { writes: writes?, bytes: bytes? })
}

#[cfg(test)]
mod tests {
    use super::*;
    use corelane_wire::amqp10::write_amqp_value;

    #[test]
    fn an_answer_is_read() {
        let mut map = Vec::new();
        let mut writer = MapWriter::new(&mut map);
        writer.pair(&"name", &Value::String("0"));
        writer.pair(&"journal-bytes", &Value::Ulong(8192));
        writer.pair(&"journal-writes", &Value::Ulong(2));
        writer.finish();
        let mut answer = Vec::new();
        write_amqp_value(&mut answer, &Value::decode(&map).unwrap());
        assert_eq!(written(&answer), Some(Written { writes: 2, bytes: 8192 }));
        assert_eq!(written(b""), None);
    }

    #[test]
    fn what_was_written_for_what_was_sent() {
        let used = JournalUse { writes: 10, bytes: 81_920, messages: 100, message_bytes: 40_960 };
        assert_eq!((used.syncs_per_message(), used.bytes_per_byte()), (Some(0.1), Some(2.0)));
        assert_eq!((used.write_bytes(), used.messages_per_write()), (Some(8192), 10.0));
        assert_eq!(JournalUse::default().syncs_per_message(), None);
    }
}

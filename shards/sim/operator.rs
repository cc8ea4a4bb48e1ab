//! How does an operator talk to the broker? Requests to the management node, and what is read in the answers.

use corelane_protocol::amqp10::LinkId;
use corelane_wire::amqp10::{
    Encode, ListWriter, MapWriter, MessageId, Properties, Raw, Reader, Sections, Value, check_value,
    write_amqp_value, write_application_properties,
};

use crate::client::{ReceiverOptions, SenderOptions};
use crate::world::World;

/// A client with a link to the management node and one back.
#[derive(Debug)]
pub struct Operator {
    pub client: usize,
    pub sender: LinkId,
    pub receiver: LinkId,
    requests: u64,
    read: usize,
}

/// An answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Answer {
    pub number: u64,
    pub status: i64,
    pub description: String,
    /// Application properties and body, written close to JSON.
    pub properties: String,
    pub body: String,
    bytes: Vec<u8>,
}

/// A value of a request.
#[derive(Clone, Debug)]
pub enum Item<'a> {
    Value(Value<'a>),
    Texts(&'a [&'a str]),
}

impl Operator {
    /// Connects to this shard.
    pub fn new(world: &mut World, shard: usize) -> Operator {
        Operator::within(world, shard, "/")
    }

    /// The same, in this virtual host.
    pub fn within(world: &mut World, shard: usize, vhost: &str) -> Operator {
        let client = world.connect_in(shard, vhost);
        let operator = Operator::attach(world, client);
        world.run();
        operator
    }

    /// The same; nothing is waited for.
    pub(crate) fn open(world: &mut World, shard: usize) -> Operator {
        let client = world.open(shard);
        Operator::attach(world, client)
    }

    fn attach(world: &mut World, client: usize) -> Operator {
        let receiver =
            world.clients[client].attach_receiver("answers", "$management", &ReceiverOptions::default());
        let sender =
            world.clients[client].attach_sender("requests", "$management", &SenderOptions::default());
        world.clients[client].accepts = true;
        world.clients[client].credit(receiver, 1_000_000);
        Operator { client, sender, receiver, requests: 0, read: 0 }
    }

    /// Sends a request; returns its number.
    pub fn send(
        &mut self,
        world: &mut World,
        operation: &str,
        (kind, name): (&str, &str),
        properties: &[(&str, Value<'_>)],
        body: &[(&str, Item<'_>)],
    ) -> u64 {
        self.requests += 1;
        let mut all = vec![("operation", Value::String(operation)), ("type", Value::String(kind))];
        if !name.is_empty() {
            all.push(("name", Value::String(name)));
        }
        all.extend_from_slice(properties);
        let bytes = request("answers", self.requests, &all, body);
        world.clients[self.client].send_bytes(self.sender, &bytes);
        self.requests
    }

    /// Sends a request and runs until its answer is there.
    pub fn ask(
        &mut self,
        world: &mut World,
        operation: &str,
        entity: (&str, &str),
        properties: &[(&str, Value<'_>)],
        body: &[(&str, Item<'_>)],
    ) -> Answer {
        let number = self.send(world, operation, entity, properties, body);
        world.run();
        let answers = self.answers(world);
        answers.into_iter().find(|answer| answer.number == number).expect("each request is answered")
    }

    /// Those that have come since it was last asked.
    pub fn answers(&mut self, world: &World) -> Vec<Answer> {
        let received = &world.clients[self.client].received;
        let new = received[self.read..].iter().filter(|received| received.link == self.receiver);
        let answers = new.map(|received| Answer::read(&received.bytes)).collect();
        self.read = received.len();
        answers
    }
}

/// A request's encoding.
pub fn request(
    reply_to: &str,
    number: u64,
    properties: &[(&str, Value<'_>)],
    body: &[(&str, Item<'_>)],
) -> Vec<u8> {
    let mut bytes = Vec::new();
    let message_id = Some(MessageId::Ulong(number));
    Properties { message_id, reply_to: Some(reply_to), ..Properties::default() }.encode(&mut bytes);
    write_application_properties(&mut bytes, properties);
    let mut encoded = Vec::new();
    let mut map = MapWriter::new(&mut encoded);
    for (key, item) in body {
        match item {
            Item::Value(value) => map.pair(key, value),
            Item::Texts(texts) => {
                let mut list_bytes = Vec::new();
                let mut list = ListWriter::new(&mut list_bytes);
                texts.iter().for_each(|text| list.field(text));
                list.finish();
                map.pair(key, &Raw::read(&mut Reader::new(&list_bytes)).expect("a list"));
            }
        }
    }
    map.finish();
    write_amqp_value(&mut bytes, &Raw::read(&mut Reader::new(&encoded)).expect("a map"));
    bytes
}

impl Answer {
    pub fn read(bytes: &[u8]) -> Answer {
        let sections = Sections::scan(bytes).expect("the broker sends whole messages");
        let properties = sections.properties(bytes).and_then(|fields| fields.decode()).expect("properties");
        let number = match properties.correlation_id {
            Some(MessageId::Ulong(number)) => number,
            other => panic!("an answer to {other:?}"),
        };
        let application = sections.application_properties.map(bytes).expect("application properties");
        let property = |key| application.find(key).expect("readable").unwrap_or(Value::Null);
        for section in [sections.application_properties, sections.body] {
            assert_eq!(
                check_value(section.bytes(bytes)),
                Ok(()),
                "an answer is well-formed, whatever it shows"
            );
        }
        let body = sections.body_values(bytes).next().expect("a body").expect("readable");
        Answer {
            number,
            status: property("statusCode").as_i64().expect("a status"),
            description: property("statusDescription").as_str().unwrap_or_default().to_owned(),
            properties: text(&Value::Map(application)),
            body: text(&body),
            bytes: bytes.to_vec(),
        }
    }

    /// A value of the body, written close to JSON: keys and indices with dots between them.
    pub fn at(&self, path: &str) -> String {
        let sections = Sections::scan(&self.bytes).expect("scanned before");
        let mut value = sections.body_values(&self.bytes).next().expect("a body").expect("readable");
        for step in path.split('.') {
            value = match value {
                Value::Map(map) => map.find(step).expect("readable").unwrap_or(Value::Null),
                Value::List(list) => match step.parse::<usize>() {
                    Ok(index) => list.iter().nth(index).map_or(Value::Null, |item| item.expect("readable")),
                    Err(_) => Value::Null,
                },
                _ => Value::Null,
            };
        }
        text(&value)
    }

    /// An application property, as text.
    pub fn property(&self, key: &str) -> Option<String> {
        let sections = Sections::scan(&self.bytes).expect("scanned before");
        let value = sections.application_property(&self.bytes, key).expect("readable")?;
        Some(text(&value))
    }
}

fn text(value: &Value<'_>) -> String {
    match value {
        Value::Null => "null".to_owned(),
        Value::Boolean(value) => value.to_string(),
        Value::Double(value) => value.to_string(),
        Value::String(text) | Value::Symbol(text) => (*text).to_owned(),
        Value::Binary(bytes) => String::from_utf8_lossy(bytes).into_owned(),
        Value::List(list) => {
            let items: Vec<String> = list.iter().map(|item| text(&item.expect("readable"))).collect();
            format!("[{}]", items.join(", "))
        }
        Value::Map(map) => {
            let pair = |pair: Result<(Value<'_>, Value<'_>), _>| {
                let (key, value): (Value<'_>, Value<'_>) = pair.expect("readable");
                format!("{}: {}", text(&key), text(&value))
            };
            format!("{{{}}}", map.iter().map(pair).collect::<Vec<_>>().join(", "))
        }
        other => other.as_i64().map_or_else(|| format!("{other:?}"), |number| number.to_string()),
    }
}

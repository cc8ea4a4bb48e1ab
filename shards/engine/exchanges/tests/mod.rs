//! Rules by table, and random topologies against a model that knows lists only.

mod model;
mod rules;

use super::*;

/// A value as tests write it.
type Value = HeaderValue<&'static [u8]>;

fn text(text: &'static str) -> Value {
    HeaderValue::Bytes(text.as_bytes())
}

fn arguments(values: &[(&str, Value)]) -> Arguments {
    Arguments::new(&[], values.iter().map(|(name, value)| ((*name).into(), owned(value))).collect())
}

fn owned(value: &Value) -> OwnedValue {
    match *value {
        HeaderValue::Void => HeaderValue::Void,
        HeaderValue::Boolean(value) => HeaderValue::Boolean(value),
        HeaderValue::Integer(value) => HeaderValue::Integer(value),
        HeaderValue::Float(value) => HeaderValue::Float(value),
        HeaderValue::Decimal { scale, value } => HeaderValue::Decimal { scale, value },
        HeaderValue::Bytes(bytes) => HeaderValue::Bytes(bytes.into()),
        HeaderValue::Array(bytes) => HeaderValue::Array(bytes.into()),
        HeaderValue::Table(bytes) => HeaderValue::Table(bytes.into()),
    }
}

/// What a message tells of itself.
#[derive(Clone, Debug, Default)]
struct Told {
    headers: Vec<(&'static str, Value)>,
    message_id: Option<&'static str>,
    is_delayed: bool,
}

impl HeaderReader for Told {
    fn each_header(&self, mut visit: impl FnMut(&str, HeaderValue<&[u8]>)) {
        self.headers.iter().for_each(|(name, value)| visit(name, *value));
    }

    fn property(&self, property: Property) -> Option<HeaderValue<&[u8]>> {
        let message_id = self.message_id.map(text);
        message_id.filter(|_| property == Property::MessageId)
    }

    fn is_delayed(&self) -> bool {
        self.is_delayed
    }
}

fn declaration(kind: &str, name: &str) -> Declaration {
    Declaration {
        vhost: VhostId(0),
        name: name.into(),
        kind: kind.into(),
        is_durable: true,
        is_auto_delete: false,
        is_internal: false,
        arguments: Arguments::default(),
    }
}

/// `queue:7` or the name of an exchange. Queues with odd numbers are durable.
fn end(name: &str) -> End<u32> {
    match name.strip_prefix("queue:") {
        Some(number) => {
            let queue = number.parse().expect("a number");
            End::Queue { queue, name: number.into(), is_durable: queue % 2 == 1 }
        }
        None => End::Exchange(name.into()),
    }
}

fn binding(source: &str, destination: &str, key: &str, values: &[(&str, Value)]) -> Binding<u32> {
    Binding {
        vhost: VhostId(0),
        source: source.into(),
        destination: end(destination),
        key: key.as_bytes().into(),
        arguments: arguments(values),
    }
}

/// How tests name a binding's destination.
fn end_name(end: &End<u32>) -> String {
    match end {
        End::Queue { queue, .. } => format!("queue:{queue}"),
        End::Exchange(name) => name.to_string(),
    }
}

impl Exchanges<u32> {
    /// With one virtual host.
    fn started() -> Self {
        let mut exchanges = Exchanges::new(7);
        assert!(exchanges.apply(&Change::AddVhost("/".into())).expect("a new one").is_changed);
        exchanges
    }

    fn change(&mut self, change: Change<u32>) -> Applied<u32> {
        let applied = self.apply(&change).unwrap_or_else(|refusal| panic!("{change:?}: {refusal}"));
        self.verify();
        applied
    }

    /// Where a message with these keys, `|` between them, goes: `7` for a queue, a name for an exchange that holds it back.
    fn routed(&mut self, exchange: &str, keys: &str, told: &Told) -> Vec<String> {
        let mut routed = Vec::new();
        let keys: Vec<&[u8]> = keys.split('|').map(str::as_bytes).collect();
        let by = self.route(VhostId(0), exchange, &keys, told, |found| {
            routed.push(match found {
                Found::Queue(queue) => queue.to_string(),
                Found::Delayed(name) => name.to_string(),
            });
        });
        assert!(by.is_some() || routed.is_empty());
        routed.sort();
        assert!(routed.is_sorted_by(|one, other| one < other), "each once: {routed:?}");
        routed
    }
}

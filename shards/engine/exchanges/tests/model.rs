//! Random topologies against a model: lists of exchanges and bindings, and matchers that look at all of them.

use std::collections::{BTreeMap, BTreeSet};

use super::super::consistent_hash::{self, Share};
use super::*;

#[derive(Clone, Debug)]
struct ModelExchange {
    kind: &'static str,
    is_delayed: bool,
    is_durable: bool,
    is_auto_delete: bool,
    alternate: Option<&'static str>,
    hash_on: Option<&'static str>,
}

#[derive(Clone, Debug, PartialEq)]
struct ModelBinding {
    source: String,
    destination: String,
    key: String,
    values: Vec<(&'static str, Value)>,
}

#[derive(Default)]
struct Model {
    exchanges: BTreeMap<String, ModelExchange>,
    bindings: Vec<ModelBinding>,
}

struct Chance(u64);

impl Chance {
    fn below(&mut self, bound: usize) -> usize {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut bits = self.0;
        bits = (bits ^ (bits >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        bits = (bits ^ (bits >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        ((bits ^ (bits >> 31)) >> 11) as usize % bound
    }

    fn of<T: Copy>(&mut self, all: &[T]) -> T {
        all[self.below(all.len())]
    }
}

const NAMES: [&str; 6] = ["a", "b", "c", "d", "e", "f"];
const QUEUES: [&str; 5] = ["queue:0", "queue:1", "queue:2", "queue:3", "queue:4"];
const KINDS: [&str; 5] = ["direct", "fanout", "topic", "headers", "x-consistent-hash"];
const HEADERS: [&str; 4] = ["p", "q", "r", "x-s"];

fn topic_matches(pattern: &[&str], topic: &[&str]) -> bool {
    match (pattern, topic) {
        ([], _) => topic.is_empty(),
        (["#", rest @ ..], _) => (0..=topic.len()).any(|from| topic_matches(rest, &topic[from..])),
        (["*", rest @ ..], [_, topic @ ..]) => topic_matches(rest, topic),
        ([word, rest @ ..], [first, topic @ ..]) => word == first && topic_matches(rest, topic),
        (_, []) => false,
    }
}

fn words(text: &str) -> Vec<&str> {
    if text.is_empty() { Vec::new() } else { text.split('.').collect() }
}

/// By the types' meaning.
fn same(one: Value, other: Value) -> bool {
    match (one, other) {
        (HeaderValue::Integer(one), HeaderValue::Float(other))
        | (HeaderValue::Float(other), HeaderValue::Integer(one)) => one as f64 == other,
        (HeaderValue::Integer(one), HeaderValue::Integer(other)) => one == other,
        (HeaderValue::Float(one), HeaderValue::Float(other)) => one == other,
        (HeaderValue::Boolean(one), HeaderValue::Boolean(other)) => one == other,
        (HeaderValue::Bytes(one), HeaderValue::Bytes(other)) => one == other,
        (HeaderValue::Void, HeaderValue::Void) => true,
        _ => false,
    }
}

fn headers_match(values: &[(&'static str, Value)], told: &Told) -> bool {
    let how = values.iter().find(|(name, _)| *name == "x-match").and_then(|(_, value)| value.as_str());
    let how = how.map_or("all".to_owned(), str::to_owned);
    let counts = |name: &str| name != "x-match" && (how.ends_with("with-x") || !name.starts_with("x-"));
    let is_met = |(wanted, value): &(&str, Value)| {
        let there = told.headers.iter().find(|(name, _)| name == wanted);
        there.is_some_and(|(_, there)| matches!(value, HeaderValue::Void) || same(*value, *there))
    };
    let mut wanted = values.iter().filter(|(name, _)| counts(name));
    if how.starts_with("any") { wanted.any(is_met) } else { wanted.all(is_met) }
}

impl Model {
    /// The destinations of a message by the bindings from one exchange.
    fn destinations(&self, name: &str, keys: &[&str], told: &Told) -> Vec<String> {
        let exchange = &self.exchanges[name];
        let from: Vec<&ModelBinding> =
            self.bindings.iter().filter(|binding| binding.source == name).collect();
        if exchange.kind == "x-consistent-hash" {
            let shares = from.iter().enumerate().map(|(index, binding)| {
                let (index, name) = (index as u32, &binding.destination);
                let (destination, name) = match name.strip_prefix("queue:") {
                    Some(name) => (Destination::Queue(index), name),
                    None => (Destination::Exchange(index), &**name),
                };
                Share::new(index, destination, name, binding.key.parse().expect("a weight"))
            });
            let shares: Vec<Share> = shares.collect();
            let value = match exchange.hash_on {
                None => HeaderValue::Bytes(keys[0].as_bytes()),
                Some("message_id") => told.message_id.map_or(HeaderValue::Void, text),
                Some(header) => {
                    let there = told.headers.iter().find(|(name, _)| *name == header);
                    there.map_or(HeaderValue::Void, |(_, value)| *value)
                }
            };
            let drawn = consistent_hash::draw(&shares, &value);
            return drawn.into_iter().map(|drawn| from[index_of(drawn)].destination.clone()).collect();
        }
        let is_match = |binding: &&&ModelBinding| match exchange.kind {
            "direct" => keys.iter().any(|key| binding.key == *key),
            "fanout" => true,
            "topic" => keys.iter().any(|key| topic_matches(&words(&binding.key), &words(key))),
            "headers" => headers_match(&binding.values, told),
            other => unreachable!("{other}"),
        };
        from.iter().filter(is_match).map(|binding| binding.destination.clone()).collect()
    }

    fn route(
        &self,
        name: &str,
        keys: &[&str],
        told: &Told,
        seen: &mut BTreeSet<String>,
        to: &mut BTreeSet<String>,
    ) {
        let Some(exchange) = self.exchanges.get(name) else { return };
        if !seen.insert(name.to_owned()) {
            return;
        }
        if exchange.is_delayed && told.is_delayed {
            to.insert(name.to_owned());
            return;
        }
        let destinations = self.destinations(name, keys, told);
        if let (true, Some(alternate)) = (destinations.is_empty(), exchange.alternate) {
            self.route(alternate, keys, told, seen, to);
        }
        for destination in destinations {
            match destination.strip_prefix("queue:") {
                Some(queue) => drop(to.insert(queue.to_owned())),
                None => self.route(&destination, keys, told, seen, to),
            }
        }
    }

    /// Ends bindings and what ends with them; what is gone.
    fn unbind(&mut self, ends: impl Fn(&ModelBinding) -> bool) {
        let (gone, left) = std::mem::take(&mut self.bindings).into_iter().partition(|binding| ends(binding));
        self.bindings = left;
        for binding in gone {
            let exchange = self.exchanges.get(&binding.source);
            let is_last = self.bindings.iter().all(|other| other.source != binding.source);
            if is_last && exchange.is_some_and(|exchange| exchange.is_auto_delete) {
                self.delete(&binding.source);
            }
        }
    }

    fn delete(&mut self, name: &str) {
        self.exchanges.remove(name);
        self.unbind(|binding| binding.source == name || binding.destination == name);
    }

    fn shown(&self) -> (Vec<String>, Vec<String>) {
        let exchanges = self.exchanges.keys().cloned().collect();
        let is_durable = |end: &str| match end.strip_prefix("queue:") {
            Some(number) => number.parse::<u32>().expect("a number") % 2 == 1,
            None => self.exchanges[end].is_durable,
        };
        let show = |binding: &ModelBinding| {
            let is_durable = is_durable(&binding.source) && is_durable(&binding.destination);
            show(
                &binding.source,
                &binding.destination,
                binding.key.as_bytes(),
                &arguments(&binding.values),
                is_durable,
            )
        };
        let mut bindings: Vec<String> = self.bindings.iter().map(show).collect();
        bindings.sort();
        (exchanges, bindings)
    }
}

fn index_of(destination: Destination) -> usize {
    let (Destination::Queue(index) | Destination::Exchange(index)) = destination;
    index as usize
}

fn show(source: &str, destination: &str, key: &[u8], arguments: &Arguments, is_durable: bool) -> String {
    format!("{source} {destination} {} {:?} {is_durable}", key.escape_ascii(), arguments.values())
}

fn show_binding((binding, is_durable): &(Binding<u32>, bool)) -> String {
    let Binding { source, destination, key, arguments, .. } = binding;
    show(source, &end_name(destination), key, arguments, *is_durable)
}

impl Exchanges<u32> {
    /// What is there besides what always is.
    fn shown(&self) -> (Vec<String>, Vec<String>) {
        let exchanges = (0..self.exchange_index_end()).filter_map(|index| self.exchange_at(index));
        let named = exchanges.map(|exchange| exchange.name.to_string());
        let mut exchanges: Vec<String> = named.filter(|name| !name.starts_with("amq.")).collect();
        exchanges.sort();
        let bindings = (0..self.binding_index_end()).filter_map(|index| self.binding_at(index));
        let mut bindings: Vec<String> = bindings.map(|binding| show_binding(&binding)).collect();
        bindings.sort();
        (exchanges, bindings)
    }
}

/// What a random life is made of.
struct Life {
    chance: Chance,
    model: Model,
    exchanges: Exchanges<u32>,
}

impl Life {
    fn value(&mut self) -> Value {
        let integer = self.chance.below(3) as i128;
        match self.chance.below(6) {
            0 => HeaderValue::Void,
            1 => HeaderValue::Float(integer as f64),
            2 => HeaderValue::Boolean(integer == 1),
            3 => text(["0", "1", "2"][integer as usize]),
            4 => HeaderValue::Float(0.5),
            _ => HeaderValue::Integer(integer),
        }
    }

    fn key(&mut self, all: &[&str]) -> String {
        let words: Vec<&str> = (0..self.chance.below(5)).map(|_| self.chance.of(all)).collect();
        words.join(".")
    }

    /// Values under some names, each name once.
    fn values(&mut self) -> Vec<(&'static str, Value)> {
        let some: Vec<&str> = HEADERS.into_iter().filter(|_| self.chance.below(2) == 0).collect();
        some.into_iter().map(|name| (name, self.value())).collect()
    }

    fn told(&mut self) -> Told {
        let headers = self.values();
        let message_id = [None, Some("1"), Some("2"), Some("3")][self.chance.below(4)];
        Told { headers, message_id, is_delayed: self.chance.below(3) == 0 }
    }

    fn binding(&mut self) -> ModelBinding {
        if self.chance.below(2) == 0 && !self.model.bindings.is_empty() {
            let at = self.chance.below(self.model.bindings.len());
            return self.model.bindings[at].clone();
        }
        let source = self.chance.of(&NAMES).to_owned();
        let destination = if self.chance.below(3) == 0 { &NAMES[..] } else { &QUEUES };
        let destination = self.chance.of(destination).to_owned();
        let kind = self.model.exchanges.get(&source).map_or("fanout", |exchange| exchange.kind);
        let key = match kind {
            "x-consistent-hash" => self.chance.of(&["1", "2", "7"]).to_owned(),
            "topic" => self.key(&["a", "b", "*", "#", ">"]),
            _ => self.key(&["a", "b"]),
        };
        let mut values = if kind == "headers" { self.values() } else { Vec::new() };
        if kind == "headers" && self.chance.below(4) > 0 {
            values.push(("x-match", text(self.chance.of(&["all", "any", "all-with-x", "any-with-x"]))));
        }
        ModelBinding { source, destination, key, values }
    }

    fn declare(&mut self) {
        let name = self.chance.of(&NAMES);
        let exchange = ModelExchange {
            kind: self.chance.of(&KINDS),
            is_delayed: self.chance.below(6) == 0,
            is_durable: self.chance.below(2) == 0,
            is_auto_delete: self.chance.below(2) == 0,
            alternate: [None, None, Some(self.chance.of(&NAMES))][self.chance.below(3)],
            hash_on: [None, Some("p"), Some("message_id")][self.chance.below(3)],
        };
        let mut declared =
            declaration(if exchange.is_delayed { "x-delayed-message" } else { exchange.kind }, name);
        let mut values = Vec::new();
        if exchange.is_delayed {
            values.push(("x-delayed-type", text(exchange.kind)));
        }
        values.extend(exchange.alternate.map(|alternate| ("alternate-exchange", text(alternate))));
        values.extend(match exchange.hash_on {
            None => None,
            Some("message_id") => Some(("hash-property", text("message_id"))),
            Some(header) => Some(("hash-header", text(header))),
        });
        declared.arguments = arguments(&values);
        declared.is_durable = exchange.is_durable;
        declared.is_auto_delete = exchange.is_auto_delete;
        let is_known = self.model.exchanges.contains_key(name);
        match self.exchanges.apply(&Change::Declare(declared)) {
            Ok(applied) => assert_eq!(applied.is_changed, !is_known),
            Err(Refusal::Inequivalent { .. }) => assert!(is_known),
            Err(refusal) => panic!("{refusal}"),
        }
        if !is_known {
            self.model.exchanges.insert(name.to_owned(), exchange);
        }
    }

    fn bind(&mut self, is_bind: bool) {
        let bound = self.binding();
        let asked = binding(&bound.source, &bound.destination, &bound.key, &bound.values);
        let is_there = |end: &String| end.starts_with("queue:") || self.model.exchanges.contains_key(end);
        let are_there = is_there(&bound.source) && is_there(&bound.destination);
        let equal = |other: &ModelBinding| {
            (&other.source, &other.destination, &other.key) == (&bound.source, &bound.destination, &bound.key)
                && arguments(&other.values) == arguments(&bound.values)
        };
        let is_known = self.model.bindings.iter().any(equal);
        if !is_bind {
            self.ended(Change::Unbind(asked), |model| model.unbind(equal));
            return;
        }
        match self.exchanges.apply(&Change::Bind(asked)) {
            Ok(applied) => {
                assert!(are_there);
                assert_eq!(applied.is_changed, !is_known);
            }
            Err(Refusal::NoExchange(_)) => assert!(!are_there),
            Err(refusal) => panic!("{refusal}"),
        }
        if are_there && !is_known {
            self.model.bindings.push(bound);
        }
    }

    fn delete(&mut self) {
        let (name, if_unused) = (self.chance.of(&NAMES), self.chance.below(2) == 0);
        let is_used = self.model.bindings.iter().any(|binding| binding.source == name);
        let change = Change::Delete { vhost: VhostId(0), exchange: name.into(), if_unused };
        if if_unused && is_used {
            assert!(matches!(self.exchanges.apply(&change), Err(Refusal::InUse(_))));
        } else {
            self.ended(change, |model| model.delete(name));
        }
    }

    fn step(&mut self) {
        match self.chance.below(16) {
            0..4 => self.declare(),
            4..11 => self.bind(true),
            11..13 => self.bind(false),
            13 => self.delete(),
            _ => {
                let queue = self.chance.of(&QUEUES);
                let number = queue["queue:".len()..].parse().expect("a number");
                self.ended(Change::RemoveQueue(number), |model| {
                    model.unbind(|binding| binding.destination == queue);
                });
            }
        }
        self.exchanges.verify();
        assert_eq!(self.exchanges.shown(), self.model.shown());
    }

    /// A change that ends something: what is said to be gone is gone, and nothing else is.
    fn ended(&mut self, change: Change<u32>, end: impl FnOnce(&mut Model)) {
        let (mut exchanges, mut bindings) = self.model.shown();
        let applied = self.exchanges.apply(&change).unwrap_or_else(|refusal| panic!("{change:?}: {refusal}"));
        end(&mut self.model);
        assert_eq!(applied.is_changed, !applied.exchanges.is_empty() || !applied.bindings.is_empty());
        for exchange in &applied.exchanges {
            exchanges.remove(exchanges.binary_search(&exchange.name.to_string()).expect("it was there"));
        }
        for binding in &applied.bindings {
            bindings.remove(bindings.binary_search(&show_binding(binding)).expect("it was there"));
        }
        assert_eq!((exchanges, bindings), self.model.shown());
    }

    fn publish(&mut self) {
        let name = self.chance.of(&NAMES);
        let mut key = self.key(&["a", "b", "c", ">"]);
        if self.chance.below(4) == 0 {
            key = format!("{key}|{}", self.key(&["a", "b"]));
        }
        let keys: Vec<&str> = key.split('|').collect();
        let told = self.told();
        let mut to = BTreeSet::new();
        self.model.route(name, &keys, &told, &mut BTreeSet::new(), &mut to);
        let routed = self.exchanges.routed(name, &key, &told);
        let bindings = &self.model.bindings;
        assert_eq!(routed, to.into_iter().collect::<Vec<_>>(), "{name} {key} {told:?} by {bindings:?}");
    }
}

fn live(seed: u64) {
    let mut life = Life { chance: Chance(seed), model: Model::default(), exchanges: Exchanges::started() };
    for _ in 0..30 {
        life.step();
        (0..3).for_each(|_| life.publish());
    }
    // What is listed makes the same again, with other hashes.
    let mut again = Exchanges::new(seed + 1);
    again.change(Change::AddVhost("/".into()));
    for index in 0..life.exchanges.exchange_index_end() {
        let declared = life.exchanges.exchange_at(index).cloned();
        declared.into_iter().for_each(|declared| drop(again.change(Change::Declare(declared))));
    }
    for index in 0..life.exchanges.binding_index_end() {
        let bound = life.exchanges.binding_at(index);
        bound.into_iter().for_each(|(bound, _)| drop(again.change(Change::Bind(bound))));
    }
    assert_eq!(again.shown(), life.exchanges.shown());
    life.exchanges = again;
    (0..10).for_each(|_| life.publish());
}

#[test]
fn random_topologies_agree_with_the_model() {
    (0..2_000).for_each(live);
}

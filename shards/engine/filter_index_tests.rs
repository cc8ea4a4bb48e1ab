//! The filter index against evaluating every filter, and what it costs by count of reads.

use std::cell::Cell;

use proptest::prelude::*;

use super::*;

/// A message of a few properties that counts how often it is read.
#[derive(Default)]
struct Sample {
    fields: Vec<(&'static str, Value<'static>)>,
    reads: Cell<u32>,
}

impl Sample {
    fn new(fields: &[(&'static str, Value<'static>)]) -> Self {
        Sample { fields: fields.to_vec(), reads: Cell::new(0) }
    }
}

impl Fields for Sample {
    fn field(&self, field: &Field) -> Value<'_> {
        self.reads.set(self.reads.get() + 1);
        let known = self.fields.iter().find(|(name, _)| *name == field.name());
        known.map_or(Value::Null, |(_, value)| *value)
    }
}

struct Fixture {
    index: FilterIndex<u32>,
    filters: Vec<Option<(Filter, IndexSlot)>>,
}

impl Fixture {
    fn new(selectors: &[&str]) -> Self {
        let mut fixture = Fixture { index: FilterIndex::new(7), filters: Vec::new() };
        for selector in selectors {
            fixture.add(selector);
        }
        fixture.index.verify();
        fixture
    }

    fn add(&mut self, selector: &str) -> u32 {
        let filter = Filter::parse(selector).unwrap_or_else(|error| panic!("{selector}: {error}"));
        let class = self.filters.len() as u32;
        let slot = self.index.insert(class, &filter);
        self.filters.push(Some((filter, slot)));
        class
    }

    fn remove(&mut self, class: u32) {
        let (_, slot) = self.filters[class as usize].take().expect("there");
        assert_eq!(self.index.remove(slot), class);
    }

    fn candidates(&self, message: &Sample) -> Vec<u32> {
        let mut found = Vec::new();
        self.index.candidates(message, |class| found.push(class));
        let count = found.len();
        found.sort_unstable();
        found.dedup();
        assert_eq!(found.len(), count, "a class twice");
        found
    }

    /// Every filter that matches is a candidate, so the candidates whose filters match are all that match.
    fn check_against_all(&self, message: &Sample) {
        let candidates = self.candidates(message);
        for (class, entry) in self.filters.iter().enumerate() {
            let Some((filter, _)) = entry else {
                assert!(!candidates.contains(&(class as u32)), "{class} was removed");
                continue;
            };
            let found = candidates.contains(&(class as u32));
            assert!(found || !filter.matches(message), "{filter} matches {:?}", message.fields);
        }
    }

    fn tables(&self) -> Vec<Vec<&str>> {
        let tables = self.index.tables.iter().flatten();
        tables.map(|table| table.names.iter().map(Field::name).collect()).collect()
    }
}

#[test]
fn a_filter_is_a_candidate_for_its_key_only() {
    let fixture = Fixture::new(&[
        "color = 'red'",
        "color = 'blue'",
        "color IN ('red', 'green', 'red') AND weight > 3",
        "weight = 1 AND color = 'red'",
        "'red' = color AND 1.0 = weight AND size IS NULL",
        "weight > 3",
        "fragile",
        "color = 'red' OR weight = 1",
        "NOT (color = 'red')",
        "color NOT IN ('red')",
    ]);
    let always = [5, 7, 8, 9];
    let check = |fields: &[(&'static str, Value<'static>)], expected: &[u32]| {
        let message = Sample::new(fields);
        let mut expected = [expected, &always].concat();
        expected.sort_unstable();
        assert_eq!(fixture.candidates(&message), expected, "{fields:?}");
        fixture.check_against_all(&message);
    };
    check(&[], &[]);
    check(&[("color", Value::String("red"))], &[0, 2]);
    check(&[("color", Value::String("green"))], &[2]);
    check(&[("color", Value::String("red")), ("weight", Value::Unsigned(1))], &[0, 2, 3, 4]);
    check(&[("color", Value::Int(1)), ("weight", Value::String("red"))], &[]);
    check(&[("fragile", Value::Bool(true))], &[6]);
    check(&[("fragile", Value::Bool(false))], &[]);
    check(&[("fragile", Value::Opaque), ("color", Value::Float(f64::NAN))], &[]);
    assert_eq!(fixture.tables(), [vec!["color"], vec!["color", "weight"], vec!["fragile"]]);
}

#[test]
fn numbers_are_one_key_by_exact_value() {
    let fixture = Fixture::new(&[
        "n = 1",
        "n = 1.0",
        "n = 1L",
        "n IN (1, 1.0, 1e0)",
        "n = 9007199254740993",
        "n = '1'",
    ]);
    let candidates = |value| fixture.candidates(&Sample::new(&[("n", value)]));
    for one in [Value::Int(1), Value::Unsigned(1), Value::Float(1.0)] {
        assert_eq!(candidates(one), [0, 1, 2, 3]);
    }
    assert_eq!(candidates(Value::Int(9_007_199_254_740_993)), [4]);
    assert_eq!(candidates(Value::Float(9_007_199_254_740_992.0)), []);
    assert_eq!(candidates(Value::String("1")), [5]);
    assert_eq!(fixture.index.buckets.count(), 3);
}

#[test]
fn zero_has_one_key_whatever_its_sign() {
    let fixture = Fixture::new(&["n = 0", "n = -0.0"]);
    assert_eq!(fixture.candidates(&Sample::new(&[("n", Value::Float(-0.0))])), [0, 1]);
    assert_eq!(fixture.candidates(&Sample::new(&[("n", Value::Int(0))])), [0, 1]);
}

#[test]
fn what_changes_on_redelivery_is_not_filed() {
    let fixture = Fixture::new(&[
        "JMSRedelivered",
        "JMSXDeliveryCount = 2",
        "JMSRedelivered = FALSE AND JMSType = 'a'",
    ]);
    assert_eq!(fixture.tables(), [["JMSType"]]);
    assert_eq!(fixture.candidates(&Sample::default()), [0, 1]);
    assert_eq!(fixture.candidates(&Sample::new(&[("JMSType", Value::String("a"))])), [0, 1, 2]);
}

#[test]
fn long_lists_are_evaluated_unless_another_name_narrows_them() {
    let list = (0..200).map(|n| n.to_string()).collect::<Vec<_>>().join(", ");
    let square = (0..12).map(|n| n.to_string()).collect::<Vec<_>>().join(", ");
    let fixture = Fixture::new(&[
        &format!("n IN ({list})"),
        &format!("n IN ({list}) AND color = 'red'"),
        &format!("a IN ({square}) AND b IN ({square}) AND color = 'red'"),
    ]);
    assert_eq!(fixture.tables(), [vec!["color"], vec!["a", "color"]]);
    assert_eq!(fixture.candidates(&Sample::default()), [0]);
    let red = Sample::new(&[("color", Value::String("red")), ("a", Value::Int(11)), ("b", Value::Int(3))]);
    assert_eq!(fixture.candidates(&red), [0, 1, 2]);
    assert_eq!(fixture.index.postings.count(), 1 + 1 + 12);
}

#[test]
fn past_the_last_table_filters_are_filed_by_fewer_names() {
    let mut fixture = Fixture::new(&[]);
    for table in 0..TABLES_MAX {
        fixture.add(&format!("n{table} = 1"));
    }
    let narrowed = fixture.add("n3 = 1 AND other = 2");
    let evaluated = fixture.add("other = 2");
    fixture.index.verify();
    assert_eq!(fixture.tables().len(), TABLES_MAX);
    assert_eq!(fixture.candidates(&Sample::new(&[("n3", Value::Int(1))])), [3, narrowed, evaluated]);
    assert_eq!(fixture.candidates(&Sample::new(&[("n4", Value::Int(1))])), [4, evaluated]);

    // A table that nobody needs any more makes room.
    fixture.remove(5);
    let filed = fixture.add("other = 3");
    fixture.index.verify();
    assert_eq!(fixture.candidates(&Sample::new(&[("other", Value::Int(3))])), [evaluated, filed]);
}

#[test]
fn s10_filters_that_do_not_match_cost_nothing() {
    let mut fixture = Fixture::new(&[]);
    for consumer in 0..10_000 {
        fixture.add(&format!("consumer = 'c{consumer}' AND weight < {consumer}"));
    }
    // Nobody's message, and one of one consumer: each is one read and one look-up.
    for (consumer, candidates) in [("orphan", vec![]), ("c4711", vec![4711])] {
        let message = Sample::new(&[("consumer", Value::String(consumer))]);
        assert_eq!(fixture.candidates(&message), candidates);
        assert_eq!(message.reads.get(), 1);
    }
    assert_eq!(fixture.tables().len(), 1);
}

#[test]
fn s70_classes_come_and_go_by_the_thousand() {
    let mut fixture = Fixture::new(&["JMSCorrelationID = 'stays'"]);
    for round in 0..20_u32 {
        let classes: Vec<u32> =
            (0..1_000).map(|reply| fixture.add(&format!("JMSCorrelationID = 'r{round}-{reply}'"))).collect();
        fixture.index.verify();
        let message = Sample::new(&[("JMSCorrelationID", Value::String("r7-500"))]);
        let expected: &[u32] = if round == 7 { &classes[500..=500] } else { &[] };
        assert_eq!(fixture.candidates(&message), expected);
        assert_eq!(message.reads.get(), 1);
        // In an order that is neither first come first gone nor its reverse.
        for step in 0..1_000 {
            fixture.remove(classes[step * 619 % 1_000]);
        }
    }
    fixture.index.verify();
    assert_eq!((fixture.index.postings.count(), fixture.index.buckets.count()), (1, 1));
    fixture.remove(0);
    assert_eq!(fixture.tables(), Vec::<Vec<&str>>::new());
}

#[test]
fn ten_thousand_classes_of_one_key_are_removed_one_by_one() {
    let mut fixture = Fixture::new(&[]);
    for n in 0..10_000 {
        fixture.add(&format!("color = 'red' AND n > {n}"));
    }
    let red = Sample::new(&[("color", Value::String("red"))]);
    assert_eq!(fixture.candidates(&red).len(), 10_000);
    for step in 0..10_000 {
        fixture.remove(step * 7_919 % 10_000);
    }
    fixture.index.verify();
    assert_eq!(fixture.candidates(&red), []);
    assert_eq!(red.reads.get(), 1);
}

fn literals() -> impl Strategy<Value = &'static str> {
    prop::sample::select(vec![
        "1", "1.0", "2", "0", "-0.0", "-3", "1.5", "'x'", "'y'", "'1'", "TRUE", "FALSE", "1e300",
    ])
}

fn names() -> impl Strategy<Value = &'static str> {
    prop::sample::select(vec!["a", "b", "c", "d", "JMSType", "JMSRedelivered"])
}

fn operands() -> impl Strategy<Value = String> {
    prop_oneof![
        4 => (names(), literals()).prop_map(|(name, literal)| format!("{name} = {literal}")),
        1 => (names(), literals()).prop_map(|(name, literal)| format!("{literal} = {name}")),
        2 => (names(), prop::collection::vec(literals(), 1..5))
            .prop_map(|(name, list)| format!("{name} IN ({})", list.join(", "))),
        1 => (names(), literals()).prop_map(|(name, literal)| format!("{name} <> {literal}")),
        1 => names().prop_map(str::to_owned),
        1 => names().prop_map(|name| format!("{name} IS NULL")),
        1 => names().prop_map(|name| format!("{name} > 0")),
        1 => (names(), names(), literals()).prop_map(|(a, b, literal)| format!("({a} = {literal} OR {b} = {literal})")),
        1 => (names(), names(), literals()).prop_map(|(a, b, literal)| format!("({a} = {literal} AND {b} = {literal})")),
    ]
}

fn selectors() -> impl Strategy<Value = String> {
    prop::collection::vec(operands(), 1..5).prop_map(|operands| operands.join(" AND "))
}

fn values() -> impl Strategy<Value = Value<'static>> {
    prop::sample::select(vec![
        Value::Null,
        Value::Opaque,
        Value::Bool(true),
        Value::Bool(false),
        Value::Int(0),
        Value::Int(1),
        Value::Int(-3),
        Value::Unsigned(1),
        Value::Unsigned(2),
        Value::Unsigned((-3_i64) as u64),
        Value::Float(1.0),
        Value::Float(1.5),
        Value::Float(-0.0),
        Value::Float(1e300),
        Value::Float(f64::NAN),
        Value::String("x"),
        Value::String("y"),
        Value::String("1"),
    ])
}

fn messages() -> impl Strategy<Value = Sample> {
    let names = ["a", "b", "c", "d", "JMSType", "JMSRedelivered"];
    prop::collection::vec(values(), names.len())
        .prop_map(move |values| Sample::new(&names.into_iter().zip(values).collect::<Vec<_>>()))
}

impl std::fmt::Debug for Sample {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.fields.fmt(f)
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, ..ProptestConfig::default() })]

    #[test]
    fn agrees_with_evaluating_every_filter(
        selectors in prop::collection::vec(selectors(), 1..60),
        messages in prop::collection::vec(messages(), 1..20),
        removed in prop::collection::vec(any::<prop::sample::Index>(), 0..40),
    ) {
        let mut fixture = Fixture::new(&[]);
        for selector in &selectors {
            fixture.add(selector);
        }
        fixture.index.verify();
        for message in &messages {
            fixture.check_against_all(message);
        }
        for index in removed {
            let class = index.index(selectors.len());
            if fixture.filters[class].is_some() {
                fixture.remove(class as u32);
            }
        }
        fixture.add(&selectors[0]);
        fixture.index.verify();
        for message in &messages {
            fixture.check_against_all(message);
        }
    }
}

//! What filters demand, by a table of selectors.

use super::*;

fn keys(selector: &str) -> Option<Vec<(String, Vec<String>)>> {
    let filter = Filter::parse(selector).expect("a good selector");
    let keys = filter.equality_keys()?;
    assert_eq!(keys.count(), keys.columns.iter().map(|(_, values)| values.len()).product::<usize>());
    let column = |(field, values): &(&Field, Vec<Value<'_>>)| {
        (field.name().to_owned(), values.iter().map(|value| format!("{value:?}")).collect())
    };
    Some(keys.columns.iter().map(column).collect())
}

fn check(selector: &str, expected: &[(&str, &[&str])]) {
    let expected: Vec<(String, Vec<String>)> = expected
        .iter()
        .map(|(name, values)| (name.to_string(), values.iter().map(|value| value.to_string()).collect()))
        .collect();
    assert_eq!(keys(selector).unwrap_or_default(), expected, "{selector}");
}

#[test]
fn demands() {
    check("a = 1", &[("a", &["Int(1)"])]);
    check("1 = a", &[("a", &["Int(1)"])]);
    check("a", &[("a", &["Bool(true)"])]);
    check("a IN (1, 1.0, 'x', 1)", &[("a", &["Int(1)", "String(\"x\")"])]);
    check("b = 1 AND (a = 2 AND c > 3)", &[("a", &["Int(2)"]), ("b", &["Int(1)"])]);
    check("a IN (1, 2) AND a = 1 AND a IN (2, 3)", &[("a", &["Int(1)"])]);
}

#[test]
fn no_demands() {
    for selector in [
        "a <> 1",
        "NOT (a = 1)",
        "NOT a",
        "a = b",
        "a + 0 = 1",
        "a NOT IN (1)",
        "a = 1 OR b = 2",
        "a IS NULL",
        "(a = 1) = TRUE",
        "a LIKE 'x'",
        "a BETWEEN 1 AND 1",
        "JMSRedelivered = FALSE",
        "JMSXDeliveryCount = 1",
    ] {
        check(selector, &[]);
    }
}

#[test]
fn bounds() {
    let list = |count: usize| (0..count).map(|n| n.to_string()).collect::<Vec<_>>().join(",");
    assert!(keys(&format!("a IN ({})", list(KEYS_MAX))).is_some());
    assert!(keys(&format!("a IN ({})", list(KEYS_MAX + 1))).is_none());
    assert!(keys(&format!("a IN ({})", list(3_000))).is_none());
    let names =
        |selector: &str| keys(selector).map(|columns| columns.into_iter().map(|(name, _)| name).collect());
    let expected = |names: &[&str]| Some(names.iter().map(|name| name.to_string()).collect::<Vec<_>>());
    assert_eq!(names(&format!("a IN ({}) AND b = 1", list(KEYS_MAX + 1))), expected(&["b"]));
    assert_eq!(names(&format!("a IN ({0}) AND b IN ({0})", list(11))), expected(&["a", "b"]));
    assert_eq!(names(&format!("a IN ({0}) AND b IN ({0})", list(12))), expected(&["a"]));
    assert_eq!(names("e = 1 AND d = 1 AND c = 1 AND b = 1 AND a IN (1, 2)"), expected(&["b", "c", "d", "e"]));
}

#[test]
fn every_combination_is_a_key_once() {
    let filter = Filter::parse("a IN (1, 2) AND b IN (1, 2, 3) AND c = 4").expect("a good selector");
    let keys = filter.equality_keys().expect("demands");
    let mut all: Vec<String> =
        (0..keys.count()).map(|index| format!("{:?}", keys.key(index).collect::<Vec<_>>())).collect();
    all.sort_unstable();
    all.dedup();
    assert_eq!(all.len(), 6);
}

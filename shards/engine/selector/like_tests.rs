//! Patterns against the definition of LIKE, and against the clock.

use std::time::Duration;

use proptest::prelude::*;

use super::*;

/// Straight from the definition, in time and memory of text times pattern.
fn naive(pattern: &[(char, bool)], text: &[char]) -> bool {
    // `reached[n]`: the pattern so far fits the first n characters.
    let mut reached = vec![false; text.len() + 1];
    reached[0] = true;
    for (symbol, special) in pattern {
        let mut next = vec![false; text.len() + 1];
        if *special && *symbol == '%' {
            let first = reached.iter().position(|fits| *fits).unwrap_or(text.len() + 1);
            next.iter_mut().skip(first).for_each(|fits| *fits = true);
        } else {
            for (index, character) in text.iter().enumerate() {
                next[index + 1] = reached[index] && (*special || symbol == character);
            }
        }
        reached = next;
    }
    reached[text.len()]
}

fn symbols(pattern: &str, escape: Option<char>) -> Vec<(char, bool)> {
    let mut characters = pattern.chars();
    let mut symbols = Vec::new();
    while let Some(character) = characters.next() {
        if Some(character) == escape {
            symbols.push((characters.next().expect("no dangling escape"), false));
        } else {
            symbols.push((character, matches!(character, '%' | '_')));
        }
    }
    symbols
}

fn check(pattern: &str, escape: Option<char>, text: &str, expected: bool) {
    let parsed = Pattern::parse(pattern, escape).expect("a good pattern");
    assert_eq!(parsed.matches(text), expected, "{text:?} LIKE {pattern:?} ESCAPE {escape:?}");
    let text: Vec<char> = text.chars().collect();
    assert_eq!(naive(&symbols(pattern, escape), &text), expected, "the oracle");
}

#[test]
fn patterns() {
    for (pattern, text, expected) in [
        ("", "", true),
        ("", "a", false),
        ("%", "", true),
        ("%%", "abc", true),
        ("_", "ä", true),
        ("_", "😀", true),
        ("_", "e\u{301}", false),
        ("12%3", "123", true),
        ("12%3", "12993", true),
        ("12%3", "1234", false),
        ("l_se", "lose", true),
        ("l_se", "loose", false),
        ("%ab%ab%", "ab", false),
        ("%ab%ab%", "abab", true),
        ("%ab%ab%", "xabyabz", true),
        ("ab%ab", "ab", false),
        ("ab%ab", "aab", false),
        ("%a_c%", "abac", false),
        ("%a_c%", "aabcc", true),
        ("%a_a_b%", "xaaaaab", true),
        ("%_a%", "a", false),
        ("%_a%", "ba", true),
        ("%a_%", "a", false),
        ("%a_%", "ab", true),
        ("%_%_%", "a", false),
        ("%_%_%", "ab", true),
        ("_%_", "a", false),
        ("_%_", "ab", true),
        ("%_", "", false),
        ("%ß_", "größe", true),
        ("a%_b%__c", "axxbxxc", true),
        ("a%_b%__c", "axbxc", false),
    ] {
        check(pattern, None, text, expected);
    }
}

#[test]
fn escapes() {
    check("\\_%", Some('\\'), "_foo", true);
    check("\\_%", Some('\\'), "bar", false);
    check("50!%", Some('!'), "50%", true);
    check("50!%", Some('!'), "500", false);
    check("!!%", Some('!'), "!x", true);
    check("!a", Some('!'), "a", true);
    check("%%a", Some('%'), "%a", true);
    check("__a", Some('_'), "_a", true);
    check("__a", Some('_'), "xa", false);
    assert_eq!(Pattern::parse("a!", Some('!')), Err(PatternFault::DanglingEscape));
}

#[test]
fn long_searches() {
    let middle = format!("a{}b", "_".repeat(62));
    check(&format!("%{middle}%"), None, &format!("a{}b", "a".repeat(70)), true);
    check(&format!("%{middle}%"), None, &format!("a{}b", "b".repeat(61)), false);
    assert_eq!(Pattern::parse(&format!("%_{middle}_%"), None).map(|_| ()), Ok(()));
    assert_eq!(Pattern::parse(&format!("%a_{middle}%"), None), Err(PatternFault::SearchTooLong));
    // At the ends, and without a `_`, there is no such limit.
    for pattern in [format!("a_{middle}%"), format!("%a_{middle}"), format!("%{}%", "a".repeat(1_000))] {
        assert!(Pattern::parse(&pattern, None).is_ok());
    }
}

#[test]
#[allow(clippy::disallowed_methods, clippy::disallowed_types, reason = "the test is about time")]
fn hostile_patterns_take_linear_time() {
    let text = "a".repeat(1_000_000);
    let patterns = [
        format!("%{}b", "a%".repeat(2_000)),
        format!("%{}b%", "a".repeat(4_000)),
        format!("%{}%", "a%_".repeat(1_000) + "b"),
        format!("%a{}b%", "_a".repeat(31)),
        format!("{}%b", "_".repeat(4_000)),
    ];
    let start = std::time::Instant::now();
    for pattern in &patterns {
        assert!(!Pattern::parse(pattern, None).expect("good").matches(&text));
    }
    // 5 MB: some 10 ms when optimised. One with backtracking would not end in the age of the universe.
    assert!(start.elapsed() < Duration::from_secs(10), "{:?}", start.elapsed());
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 2_000, ..ProptestConfig::default() })]

    #[test]
    fn agrees_with_the_definition(pattern in "[ab%_!é]{0,12}", text in "[abé%_!]{0,16}", escape in any::<bool>()) {
        let escape = escape.then_some('!');
        match Pattern::parse(&pattern, escape) {
            Ok(parsed) => {
                let characters: Vec<char> = text.chars().collect();
                prop_assert_eq!(parsed.matches(&text), naive(&symbols(&pattern, escape), &characters));
            }
            Err(fault) => {
                prop_assert_eq!(fault, PatternFault::DanglingEscape);
                prop_assert!(pattern.ends_with('!'));
            }
        }
    }
}

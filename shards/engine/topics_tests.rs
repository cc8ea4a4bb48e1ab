//! Patterns by table, at random against a matcher that tries everything, and what they may cost.

use std::collections::{BTreeMap, BTreeSet};

use super::{NONE, PATTERN_WORDS_MAX, ROOT, Step, TopicTrie, is_pattern_valid};

fn found(trie: &mut TopicTrie<u32>, topic: &str) -> BTreeSet<u32> {
    let mut found = BTreeSet::new();
    trie.matches(topic, |value| assert!(found.insert(*value), "{value} is named once for {topic}"));
    found
}

/// By the words' meaning, the slow way.
fn naive(pattern: &[&str], topic: &[&str]) -> bool {
    match (pattern, topic) {
        ([], _) => topic.is_empty(),
        ([">"], _) => !topic.is_empty(),
        (["#", rest @ ..], _) => (0..=topic.len()).any(|from| naive(rest, &topic[from..])),
        (["*", rest @ ..], [_, topic @ ..]) => naive(rest, topic),
        ([word, rest @ ..], [first, topic @ ..]) => word == first && naive(rest, topic),
        (_, []) => false,
    }
}

fn split(text: &str) -> Vec<&str> {
    if text.is_empty() { Vec::new() } else { text.split('.').collect() }
}

impl TopicTrie<u32> {
    /// Recounts what is kept.
    fn verify(&self) {
        let mut words = BTreeMap::new();
        let mut standing = BTreeMap::new();
        let mut children = BTreeMap::new();
        let mut edges = 0;
        for (index, node) in self.nodes.iter() {
            assert!(index == ROOT || !node.is_empty(), "an empty node is removed");
            let parent = (index != ROOT).then(|| &self.nodes[node.parent]);
            match (node.step, parent) {
                (Step::Root, None) => {}
                (Step::One, Some(parent)) => assert_eq!(parent.one, index),
                (Step::Many, Some(parent)) => {
                    assert_eq!(parent.many, index);
                    assert_eq!((node.one, node.many), (NONE, NONE), "the normal form");
                }
                (Step::Word(word), Some(_)) => {
                    edges += 1;
                    *children.entry(node.parent).or_insert(0) += 1;
                    *words.entry(word).or_insert(0) += 1;
                    assert_eq!(self.find_child(node.parent, word), Some(index));
                }
                (Step::Root, Some(_)) | (_, None) => panic!("one root"),
            }
            for (value, count) in &node.values {
                assert!(*count > 0);
                *standing.entry(*value).or_insert(0) += 1;
            }
        }
        let parents = self.nodes.iter().filter(|(_, node)| node.children > 0);
        assert_eq!(children, parents.map(|(index, node)| (index, node.children)).collect());
        assert_eq!(edges, self.edges.len());
        assert_eq!(words, self.words.iter().map(|(index, word)| (index, word.edges)).collect());
        assert_eq!(standing, self.values.iter().map(|(index, value)| (index, value.nodes)).collect());
        assert_eq!(self.words.count(), self.word_table.len());
        assert_eq!(self.values.count(), self.value_table.len());
    }
}

#[test]
fn patterns_match_by_words() {
    let check = |pattern: &str, topics: &[(&str, bool)]| {
        let mut trie = TopicTrie::new(7);
        trie.insert(pattern, 1);
        for (topic, expected) in topics {
            assert_eq!(!found(&mut trie, topic).is_empty(), *expected, "{pattern} for {topic:?}");
        }
        assert!(trie.remove(pattern, &1));
        trie.verify();
        assert!(trie.is_empty());
    };
    check("a.b", &[("a.b", true), ("a", false), ("a.b.c", false), ("a.c", false), ("", false)]);
    check("a.*", &[("a.b", true), ("a", false), ("a.b.c", false), ("b.a", false)]);
    check("*.b", &[("a.b", true), ("b", false), ("b.b", true), ("a.b.b", false)]);
    check("a.>", &[("a", false), ("a.b", true), ("a.b.c", true), ("b.a", false)]);
    check(">", &[("a", true), ("a.b", true), ("", false)]);
    check("#", &[("a", true), ("a.b.c", true), ("", true)]);
    check("a.#", &[("a", true), ("a.b.c", true), ("b", false)]);
    check("#.b", &[("b", true), ("a.b", true), ("a.b.b", true), ("b.a", false)]);
    check("a.#.b", &[("a.b", true), ("a.x.y.b", true), ("a.b.b", true), ("a", false), ("a.b.c", false)]);
    check("#.a.#.a.#", &[("a", false), ("a.a", true), ("b.a.b.a.b", true), ("a.b", false)]);
    check("#.*.#", &[("", false), ("a", true), ("a.b", true)]);
    check("#.>", &[("", false), ("a", true), ("a.b", true)]);
    check("*.#.*", &[("a", false), ("a.b", true), ("a.b.c", true)]);
    check("a.>.b", &[("a.>.b", true), ("a.x.b", false)]);
    check("a.b>", &[("a.b>", true), ("a.b", false)]);
    check("", &[("", true), ("a", false)]);
}

#[test]
fn keys_of_bindings_know_two_wildcards_and_any_bytes() {
    let check = |key: &[u8], topic: &[u8], expected: bool| {
        let mut trie = TopicTrie::of_binding_keys(7);
        trie.insert(key, 1);
        trie.verify();
        let mut count = 0;
        trie.matches(topic, |_| count += 1);
        assert_eq!(count == 1, expected, "{key:?} for {topic:?}");
        assert!(trie.remove(key, &1) && trie.is_empty());
        trie.insert(key, 1);
        trie.matches(topic, |_| count += 1);
        assert_eq!(count == 2, expected, "the same after all was removed");
    };
    check(b"a.>", b"a.b", false);
    check(b"a.>", b"a.>", true);
    check(b">", b"a", false);
    check(b"a.#", b"a", true);
    check(b"#", b"", true);
    check(b"*", b"", false);
    check(b"*.*", b".", true);
    check(b"a..b", b"a..b", true);
    check(b"a.*.b", b"a..b", true);
    check(b"\xff.*", b"\xff.\xfe", true);
    check(b"\xff.*", b"\xfe.\xfe", false);
}

#[test]
fn what_is_a_pattern() {
    for pattern in ["a", "a.b", "*", "#", ">", "a.*.b", "#.a.#", "a.>", "ä.ö"] {
        assert!(is_pattern_valid(pattern), "{pattern}");
    }
    for pattern in ["", ".", "a.", ".a", "a..b", "a*", "#a", "a.>.b", ">.a", "a.b>"] {
        assert!(!is_pattern_valid(pattern), "{pattern}");
    }
    assert!(is_pattern_valid(&vec!["a"; PATTERN_WORDS_MAX].join(".")));
    assert!(!is_pattern_valid(&vec!["a"; PATTERN_WORDS_MAX + 1].join(".")));
}

#[test]
fn a_value_under_several_patterns_is_named_once_and_removed_as_often_as_inserted() {
    let mut trie = TopicTrie::new(7);
    for pattern in ["a.>", "a.*.#", "a.b", "#", "a.b"] {
        trie.insert(pattern, 1);
    }
    trie.insert("a.*", 2);
    trie.verify();
    assert_eq!(found(&mut trie, "a.b"), BTreeSet::from([1, 2]));
    assert!(!trie.remove("a.b", &2) && !trie.remove("a.c", &1) && !trie.remove("a.b.#", &1));
    for pattern in ["#", "a.b", "a.b", "a.>"] {
        assert!(trie.remove(pattern, &1));
        trie.verify();
        assert_eq!(found(&mut trie, "a.b"), BTreeSet::from([1, 2]), "after {pattern}");
    }
    assert!(trie.remove("a.*.#", &1));
    assert_eq!(found(&mut trie, "a.b"), BTreeSet::from([2]));
    assert!(!trie.remove("a.>", &1));
}

#[test]
fn random_patterns_agree_with_the_naive_matcher() {
    let mut state = 0x9e37_79b9_7f4a_7c15_u64;
    let mut below = |bound: usize| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        (state >> 11) as usize % bound
    };
    for life in 0..300 {
        let mut trie = TopicTrie::new(life);
        let mut standing: Vec<(String, u32)> = Vec::new();
        for _ in 0..60 {
            if below(3) > 0 || standing.is_empty() {
                let words: Vec<&str> =
                    (0..below(7)).map(|_| ["a", "b", "c", "*", "#", "#"][below(6)]).collect();
                let mut pattern = words.join(".");
                if below(4) == 0 {
                    pattern = if pattern.is_empty() { ">".into() } else { pattern + ".>" };
                }
                let value = below(6) as u32;
                trie.insert(&pattern, value);
                standing.push((pattern, value));
            } else {
                let (pattern, value) = standing.swap_remove(below(standing.len()));
                assert!(trie.remove(&pattern, &value));
            }
            trie.verify();
            for _ in 0..4 {
                let words: Vec<&str> = (0..below(7)).map(|_| ["a", "b", "c", "d"][below(4)]).collect();
                let topic = words.join(".");
                let expected = standing
                    .iter()
                    .filter(|(pattern, _)| naive(&split(pattern), &split(&topic)))
                    .map(|(_, value)| *value);
                assert_eq!(found(&mut trie, &topic), expected.collect(), "{topic} in {standing:?}");
            }
        }
        for (pattern, value) in standing {
            assert!(trie.remove(&pattern, &value));
        }
        trie.verify();
        assert!(trie.is_empty() && trie.nodes.count() == 1 && trie.words.count() == 0);
    }
}

#[test]
fn the_work_for_a_topic_is_bounded_whatever_the_patterns() {
    // To a matcher that tries, each of these costs more than there are atoms.
    let hostile = vec!["#.a"; PATTERN_WORDS_MAX / 2].join(".");
    let miss = format!("{}.b", vec!["a"; 100].join("."));
    let mut trie = TopicTrie::new(7);
    trie.insert(&hostile, 1);
    assert!(found(&mut trie, &miss).is_empty());
    let bound = 2 * trie.nodes.count() as u64 * 102;
    assert!(trie.take_work() <= bound);
    assert_eq!(trie.take_work(), 0);

    // Wildcards in a row are one.
    trie.insert(format!("{}.a", vec!["#"; 100].join(".")), 2);
    trie.take_work();
    assert_eq!(found(&mut trie, "a"), BTreeSet::from([2]));
    assert!(trie.take_work() < 20);
}

#[test]
fn the_work_for_a_topic_does_not_grow_with_patterns_that_are_elsewhere() {
    let mut trie = TopicTrie::new(7);
    for index in 0..10_000 {
        trie.insert(format!("orders.{index}.new"), index);
        trie.insert(format!("orders.{index}.*"), index);
    }
    assert_eq!(found(&mut trie, "orders.77.new"), BTreeSet::from([77]));
    assert!(trie.take_work() <= 8);
}

#[test]
fn memory_is_given_back() {
    let mut trie = TopicTrie::new(7);
    for index in 0..10_000 {
        trie.insert(format!("orders.{index}.new"), index);
    }
    assert!(trie.word_table.capacity() >= 10_000);
    for index in 1..10_000 {
        assert!(trie.remove(format!("orders.{index}.new"), &index));
    }
    trie.verify();
    assert_eq!((trie.nodes.count(), trie.words.count(), trie.values.count()), (4, 3, 1));
    assert!(trie.word_table.capacity() + trie.edges.capacity() + trie.value_table.capacity() < 100);
    assert!(trie.remove("orders.0.new", &0));
    assert_eq!(trie.word_table.capacity() + trie.edges.capacity() + trie.value_table.capacity(), 0);
}

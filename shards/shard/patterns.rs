//! Which names does a pattern stand for, and which of many patterns stand for a name?
//!
//! A pattern is words separated by dots: `*` stands for one word, a last `>` for one or more. Many patterns lie in a tree, word by
//! word, so that who asks for those of a name is led to them and never looks at the others:
//! work ≤ words of the name × its branches (the word itself, and `*`), whatever else is in the tree. What is asked for a pattern
//! takes as long as there are patterns that have names in common with it.
//!
//! Left out: what is said of the names (`destinations`), and the patterns of subscribers, which have `#`, too (the engine's topics).

use std::collections::BTreeMap;
use std::ops::ControlFlow;
use std::str::Split;

/// Patterns, each with a number.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct PatternTree {
    /// The first is the root. A child stands behind its parent.
    nodes: Vec<Node>,
}

#[derive(Clone, Debug, Default, PartialEq)]
struct Node {
    words: BTreeMap<Box<str>, usize>,
    /// The child by `*`.
    any: Option<usize>,
    /// Patterns that end here.
    here: Vec<usize>,
    /// Patterns that go on with `>` and end with it.
    below: Vec<usize>,
}

impl PatternTree {
    pub(crate) fn new<'a>(patterns: impl IntoIterator<Item = (usize, &'a str)>) -> PatternTree {
        let mut tree = PatternTree { nodes: vec![Node::default()] };
        for (number, pattern) in patterns {
            tree.insert(number, pattern);
        }
        tree
    }

    fn insert(&mut self, number: usize, pattern: &str) {
        let mut at = 0;
        for word in pattern.split('.') {
            if word == ">" {
                self.nodes[at].below.push(number);
                return;
            }
            let next = self.nodes.len();
            let node = &mut self.nodes[at];
            at = match word {
                "*" => *node.any.get_or_insert(next),
                word => *node.words.entry(word.into()).or_insert(next),
            };
            if at == next {
                self.nodes.push(Node::default());
            }
        }
        self.nodes[at].here.push(number);
    }

    /// The numbers of those for which [`pattern_matches`] holds, in no order.
    pub(crate) fn matching(&self, name: &str, mut each: impl FnMut(usize)) {
        self.match_words(0, name.split('.'), &mut each);
    }

    fn match_words(&self, at: usize, mut words: Split<'_, char>, each: &mut impl FnMut(usize)) {
        count_step();
        let node = &self.nodes[at];
        let Some(word) = words.next() else { return node.here.iter().copied().for_each(each) };
        node.below.iter().copied().for_each(&mut *each);
        if let Some(any) = node.any.filter(|_| word != ">") {
            self.match_words(any, words.clone(), each);
        }
        if let Some(next) = node.words.get(word) {
            self.match_words(*next, words, each);
        }
    }

    /// The numbers of those that have names in [`common`] with this pattern, in their order.
    pub(crate) fn meeting(&self, pattern: &str) -> Vec<usize> {
        let mut found = Vec::new();
        let _ = self.meet(0, pattern.split('.'), &mut |numbers: &[usize]| {
            found.extend_from_slice(numbers);
            ControlFlow::Continue(())
        });
        found.sort_unstable();
        found
    }

    /// Whether there are such.
    pub(crate) fn meets(&self, pattern: &str) -> bool {
        let mut any = |numbers: &[usize]| match numbers {
            [] => ControlFlow::Continue(()),
            [..] => ControlFlow::Break(()),
        };
        self.meet(0, pattern.split('.'), &mut any).is_break()
    }

    fn meet(
        &self,
        at: usize,
        mut words: Split<'_, char>,
        each: &mut impl FnMut(&[usize]) -> ControlFlow<()>,
    ) -> ControlFlow<()> {
        count_step();
        let node = &self.nodes[at];
        let Some(word) = words.next() else { return each(&node.here) };
        each(&node.below)?;
        match word {
            ">" => {
                for child in node.words.values().chain(&node.any) {
                    each(&self.nodes[*child].here)?;
                    // Whatever follows there has one more word at least.
                    self.meet(*child, ">".split('.'), each)?;
                }
            }
            "*" => {
                for child in node.words.values().chain(&node.any) {
                    self.meet(*child, words.clone(), each)?;
                }
            }
            word => {
                for child in node.words.get(word).into_iter().chain(&node.any) {
                    self.meet(*child, words.clone(), each)?;
                }
            }
        }
        ControlFlow::Continue(())
    }
}

/// Whether all names that match `name` (which may be a pattern itself) match `pattern`.
pub(crate) fn pattern_matches(pattern: &str, name: &str) -> bool {
    count_step();
    let mut words = name.split('.');
    for part in pattern.split('.') {
        match (part, words.next()) {
            (">", Some(_)) => return true,
            ("*", Some(word)) if word != ">" => {}
            (part, Some(word)) if part == word => {}
            (_, _) => return false,
        }
    }
    words.next().is_none()
}

/// The names that two patterns have in common, as a pattern.
pub(crate) fn common(a: &str, b: &str) -> Option<String> {
    count_step();
    let (mut left, mut right) = (a.split('.'), b.split('.'));
    let mut words = Vec::new();
    loop {
        match (left.next(), right.next()) {
            (None, None) => return Some(words.join(".")),
            (Some(">"), Some(word)) => {
                words.push(word);
                words.extend(right);
                return Some(words.join("."));
            }
            (Some(word), Some(">")) => {
                words.push(word);
                words.extend(left);
                return Some(words.join("."));
            }
            (Some("*"), Some(word)) | (Some(word), Some("*")) => words.push(word),
            (Some(word), Some(other)) if word == other => words.push(word),
            (_, _) => return None,
        }
    }
}

#[cfg(not(test))]
fn count_step() {}

#[cfg(test)]
use tests::count_step;

#[cfg(test)]
pub(crate) mod tests {
    use std::cell::Cell;

    use super::*;

    thread_local! {
        static STEPS: Cell<u64> = const { Cell::new(0) };
    }

    pub(super) fn count_step() {
        STEPS.set(STEPS.get() + 1);
    }

    /// Patterns and places of trees that are looked at meanwhile.
    pub(crate) fn steps_of(work: impl FnOnce()) -> u64 {
        let before = STEPS.get();
        work();
        STEPS.get() - before
    }

    #[test]
    fn wildcards_match_words() {
        let check =
            |pattern, name, expect| assert_eq!(pattern_matches(pattern, name), expect, "{pattern} {name}");
        check("orders", "orders", true);
        check("orders", "orders.eu", false);
        check("orders.*", "orders.eu", true);
        check("orders.*", "orders", false);
        check("orders.*", "orders.eu.de", false);
        check("orders.>", "orders.eu.de", true);
        check("orders.>", "orders", false);
        check("*.eu", "orders.eu", true);
        check(">", "anything.at.all", true);
        check("orders*", "orders1", false);
    }

    #[test]
    fn patterns_meet() {
        let check = |a, b, expect: Option<&str>| {
            assert_eq!(common(a, b).as_deref(), expect, "{a} {b}");
            assert_eq!(common(b, a).as_deref(), expect, "{b} {a}");
        };
        check("a.b", "a.b", Some("a.b"));
        check("a.b", "a.c", None);
        check("a.*", "*.b", Some("a.b"));
        check("a.>", "*.b", Some("a.b"));
        check("a.>", "a", None);
        check("a.>", "*.*.c", Some("a.*.c"));
        check(">", "a.>", Some("a.>"));
        check("*", ">", Some("*"));
    }

    /// All patterns of up to three words, of two and of wildcards.
    fn all() -> Vec<String> {
        let mut patterns: Vec<String> = ["a", "b", "*"].map(String::from).into();
        let mut longer = patterns.clone();
        for _ in 0..2 {
            longer = longer
                .iter()
                .flat_map(|start| ["a", "b", "*"].map(|word| format!("{start}.{word}")))
                .collect();
            patterns.extend(longer.iter().cloned());
        }
        let open: Vec<String> = patterns.iter().map(|start| format!("{start}.>")).collect();
        patterns.extend(open);
        patterns.push(">".to_owned());
        patterns
    }

    #[test]
    fn a_tree_finds_what_one_by_one_is_found() {
        let patterns = all();
        let tree = PatternTree::new(patterns.iter().map(String::as_str).enumerate());
        let those = |is_one: &dyn Fn(&str) -> bool| -> Vec<usize> {
            (0..patterns.len()).filter(|number| is_one(&patterns[*number])).collect()
        };
        for name in &patterns {
            let mut found = Vec::new();
            tree.matching(name, |number| found.push(number));
            found.sort_unstable();
            assert_eq!(found, those(&|pattern| pattern_matches(pattern, name)), "{name}");
            let meeting = those(&|pattern| common(pattern, name).is_some());
            assert_eq!(tree.meeting(name), meeting, "{name}");
            assert!(tree.meets(name));
        }
        let tree = PatternTree::new([(0, "a.b"), (1, "c.>")]);
        for (pattern, expect) in
            [("*.b", true), ("*.d", true), ("a.d", false), ("c", false), (">", true), ("b.>", false)]
        {
            assert_eq!(tree.meets(pattern), expect, "{pattern}");
        }
    }

    #[test]
    fn what_does_not_match_is_not_looked_at() {
        let patterns: Vec<String> = (0..1000).map(|n| format!("{n}.*.x")).chain(all()).collect();
        let tree = PatternTree::new(patterns.iter().map(String::as_str).enumerate());
        assert!(steps_of(|| tree.matching("7.b.x", |_| ())) < 20);
        assert!(steps_of(|| assert_eq!(tree.meeting("a.b.c.d").len(), 11)) < 30);
        assert_eq!(steps_of(|| assert!(tree.meets(">"))), 1);
    }
}

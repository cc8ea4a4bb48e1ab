//! Which patterns does a topic match?
//!
//! Topics and patterns are words between dots (none at all when the text is empty). In a pattern `*` stands for exactly one
//! word, `#` for any number of them, none included, and a last `>` for one or more. Patterns lie in a tree, word by word, and a
//! topic is followed through it on all branches at once, one word after the other:
//!
//! - a pattern is kept in its normal form: `>` is `*.#`, and in a run of wildcards the `*` come first and are followed by one `#`
//!   if there was any; so no `#` follows a wildcard's `#`, and equal languages of wildcards share a node;
//! - after each word the branches are nodes that differ from one another: nodes visited ≤ nodes × (words + 1), whatever the
//!   patterns; a topic's words are hashed once each;
//! - a node exists ⟺ it has a value or a child, or is the root; a word ⟺ an edge has it; a value ⟺ a node has it.
//!
//! Where patterns are the keys of bindings ([`TopicTrie::of_binding_keys`]) a `>` is a word like any other, and words may be any bytes.
//!
//! Left out: what values stand for, and what is allowed as a name.

use std::hash::{BuildHasher, Hash};
use std::iter::Peekable;

use foldhash::quality::FixedState;
use hashbrown::HashTable;

use crate::slots::{NONE, Slots, take_out};

/// Words of a pattern. One with more is not valid: the work for a topic grows with them.
pub const PATTERN_WORDS_MAX: usize = 128;

/// Patterns with values. A value may stand under several patterns; a topic that matches more than one of them finds it once.
pub struct TopicTrie<T> {
    hasher: FixedState,
    /// A last `>` stands for one word or more.
    has_tails: bool,
    words: Slots<Word>,
    word_table: HashTable<u32>,
    nodes: Slots<Node>,
    /// Children by parent and word.
    edges: HashTable<u32>,
    values: Slots<Value<T>>,
    value_table: HashTable<u32>,
    /// The branches of the topic in hand before and after a word; kept for their memory.
    active: Vec<u32>,
    reached: Vec<u32>,
    /// Rises with every word and every topic.
    round: u64,
    work: u64,
}

/// A word of patterns, by which edges are named.
struct Word {
    text: Box<[u8]>,
    hash: u64,
    edges: u32,
}

struct Node {
    parent: u32,
    step: Step,
    /// Children by words.
    children: u32,
    /// The child by `*`, and by `#`.
    one: u32,
    many: u32,
    /// Value, and how often it was inserted here.
    values: Vec<(u32, u32)>,
    /// The round in which it was reached last.
    round: u64,
}

/// What leads to a node from its parent.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Step {
    Root,
    Word(u32),
    One,
    Many,
}

struct Value<T> {
    value: T,
    hash: u64,
    nodes: u32,
    round: u64,
}

const ROOT: u32 = 0;

/// Whether a text is a pattern: words that are not empty, at most [`PATTERN_WORDS_MAX`], wildcards only as words of their own, and
/// `>` only as the last.
pub fn is_pattern_valid(pattern: &str) -> bool {
    let count = pattern.split('.').count();
    let is_valid = |(index, word): (usize, &str)| match word {
        "" => false,
        "*" | "#" => true,
        ">" => index + 1 == count,
        _ => !word.contains(['*', '#', '>']),
    };
    count <= PATTERN_WORDS_MAX && pattern.split('.').enumerate().all(is_valid)
}

impl<T: Copy + Eq + Hash> TopicTrie<T> {
    /// One without patterns. `seed` decides where words lie, so that a peer who chooses them cannot choose collisions.
    pub fn new(seed: u64) -> Self {
        let mut nodes = Slots::new();
        nodes.insert(Node::new(NONE, Step::Root));
        TopicTrie {
            hasher: FixedState::with_seed(seed),
            has_tails: true,
            words: Slots::new(),
            word_table: HashTable::new(),
            nodes,
            edges: HashTable::new(),
            values: Slots::new(),
            value_table: HashTable::new(),
            active: Vec::new(),
            reached: Vec::new(),
            round: 0,
            work: 0,
        }
    }

    /// The same for keys of bindings (AMQP 0-9-1 §3.1.3.3): `*` and `#` are the only wildcards.
    pub fn of_binding_keys(seed: u64) -> Self {
        TopicTrie { has_tails: false, ..TopicTrie::new(seed) }
    }

    /// Adds a value under a pattern. What is inserted several times, under equal patterns, is to be removed as often.
    pub fn insert(&mut self, pattern: impl AsRef<[u8]>, value: T) {
        let mut node = ROOT;
        for step in normal_form(pattern.as_ref(), self.has_tails) {
            node = match step {
                Part::One => self.wildcard(node, Step::One),
                Part::Many => self.wildcard(node, Step::Many),
                Part::Word(text) => self.child(node, text),
            };
        }
        let value = self.intern_value(value);
        let values = &mut self.nodes[node].values;
        match values.iter_mut().find(|(known, _)| *known == value) {
            Some((_, count)) => *count += 1,
            None => {
                values.push((value, 1));
                self.values[value].nodes += 1;
            }
        }
    }

    /// Takes one insertion of a value under a pattern back. False: there was none.
    pub fn remove(&mut self, pattern: impl AsRef<[u8]>, value: &T) -> bool {
        let (Some(node), Some(value)) = (self.find(pattern.as_ref()), self.find_value(value)) else {
            return false;
        };
        let values = &mut self.nodes[node].values;
        let Some(position) = values.iter().position(|(known, _)| *known == value) else {
            return false;
        };
        self.work += position as u64 + 1;
        values[position].1 -= 1;
        if values[position].1 == 0 {
            values.swap_remove(position);
            if values.len() < values.capacity() / 4 {
                values.shrink_to_fit();
            }
            self.release_value(value);
            self.prune(node);
        }
        true
    }

    /// Names each value under the patterns that a topic matches, once.
    pub fn matches(&mut self, topic: impl AsRef<[u8]>, mut found: impl FnMut(&T)) {
        self.round += 1;
        self.reached.clear();
        self.reach(ROOT);
        std::mem::swap(&mut self.active, &mut self.reached);
        for text in words(topic.as_ref()) {
            if self.active.is_empty() {
                return;
            }
            self.round += 1;
            self.follow(text);
        }
        self.round += 1;
        for node in &self.active {
            for (value, _) in &self.nodes[*node].values {
                self.work += 1;
                let value = &mut self.values[*value];
                if std::mem::replace(&mut value.round, self.round) != self.round {
                    found(&value.value);
                }
            }
        }
    }

    /// Whether no pattern has a value.
    pub fn is_empty(&self) -> bool {
        self.values.count() == 0
    }

    /// Nodes and values visited since this was asked last: what topics and removals have cost.
    pub fn take_work(&mut self) -> u64 {
        std::mem::take(&mut self.work)
    }

    /// Takes all branches on by one word.
    fn follow(&mut self, text: &[u8]) {
        let word = self.find_word(text);
        let active = std::mem::take(&mut self.active);
        self.reached.clear();
        for node in &active {
            let state = &self.nodes[*node];
            let (one, word) = (state.one, word.filter(|_| state.children > 0));
            if state.step == Step::Many {
                self.reach(*node);
            }
            if let Some(child) = word.and_then(|word| self.find_child(*node, word)) {
                self.reach(child);
            }
            if one != NONE {
                self.reach(one);
            }
        }
        self.active = std::mem::replace(&mut self.reached, active);
    }

    /// A branch has come to a node, and without a further word to its child by `#`.
    fn reach(&mut self, node: u32) {
        self.work += 1;
        let state = &mut self.nodes[node];
        if std::mem::replace(&mut state.round, self.round) == self.round {
            return;
        }
        self.reached.push(node);
        let many = state.many;
        if many != NONE {
            self.reach(many);
        }
    }

    fn find(&self, pattern: &[u8]) -> Option<u32> {
        normal_form(pattern, self.has_tails).try_fold(ROOT, |node, step| {
            let child = match step {
                Part::One => self.nodes[node].one,
                Part::Many => self.nodes[node].many,
                Part::Word(text) => self.find_child(node, self.find_word(text)?)?,
            };
            (child != NONE).then_some(child)
        })
    }

    /// The child by a wildcard, made when it is new.
    fn wildcard(&mut self, node: u32, step: Step) -> u32 {
        let slot = |node: &mut Node| if step == Step::One { node.one } else { node.many };
        let known = slot(&mut self.nodes[node]);
        if known != NONE {
            return known;
        }
        let child = self.nodes.insert(Node::new(node, step));
        let state = &mut self.nodes[node];
        match step {
            Step::One => state.one = child,
            Step::Many => state.many = child,
            Step::Root | Step::Word(_) => unreachable!("only wildcards lead here"),
        }
        child
    }

    /// The child by a word, made when it is new.
    fn child(&mut self, node: u32, text: &[u8]) -> u32 {
        let word = self.intern_word(text);
        if let Some(child) = self.find_child(node, word) {
            return child;
        }
        self.words[word].edges += 1;
        self.nodes[node].children += 1;
        let child = self.nodes.insert(Node::new(node, Step::Word(word)));
        let (hash, nodes, hasher) = (self.edge_hash(node, word), &self.nodes, &self.hasher);
        self.edges.insert_unique(hash, child, |child| match nodes[*child].step {
            Step::Word(word) => hasher.hash_one((nodes[*child].parent, word)),
            Step::Root | Step::One | Step::Many => unreachable!("only words have edges"),
        });
        child
    }

    fn find_child(&self, node: u32, word: u32) -> Option<u32> {
        let is_it =
            |child: &u32| self.nodes[*child].parent == node && self.nodes[*child].step == Step::Word(word);
        self.edges.find(self.edge_hash(node, word), is_it).copied()
    }

    fn edge_hash(&self, node: u32, word: u32) -> u64 {
        self.hasher.hash_one((node, word))
    }

    fn find_word(&self, text: &[u8]) -> Option<u32> {
        let hash = self.hasher.hash_one(text);
        self.word_table.find(hash, |word| &*self.words[*word].text == text).copied()
    }

    /// The word of this text. A new one has no edge yet.
    fn intern_word(&mut self, text: &[u8]) -> u32 {
        self.find_word(text).unwrap_or_else(|| {
            let hash = self.hasher.hash_one(text);
            let word = self.words.insert(Word { text: text.into(), hash, edges: 0 });
            let words = &self.words;
            self.word_table.insert_unique(hash, word, |word| words[*word].hash);
            word
        })
    }

    fn find_value(&self, value: &T) -> Option<u32> {
        let hash = self.hasher.hash_one(value);
        self.value_table.find(hash, |index| self.values[*index].value == *value).copied()
    }

    /// The place of a value. A new one stands nowhere yet.
    fn intern_value(&mut self, value: T) -> u32 {
        self.find_value(&value).unwrap_or_else(|| {
            let hash = self.hasher.hash_one(value);
            let index = self.values.insert(Value { value, hash, nodes: 0, round: 0 });
            let values = &self.values;
            self.value_table.insert_unique(hash, index, |index| values[*index].hash);
            index
        })
    }

    /// A value stands under one pattern less.
    fn release_value(&mut self, index: u32) {
        self.values[index].nodes -= 1;
        if self.values[index].nodes == 0 {
            let value = self.values.remove(index);
            let values = &self.values;
            take_out(&mut self.value_table, value.hash, index, |index| values[*index].hash);
        }
    }

    /// Removes a node if nothing is left in it, and those above it that are empty then.
    fn prune(&mut self, mut node: u32) {
        while node != ROOT && self.nodes[node].is_empty() {
            let Node { parent, step, .. } = self.nodes[node];
            match step {
                Step::Root => unreachable!("the root stays"),
                Step::One => self.nodes[parent].one = NONE,
                Step::Many => self.nodes[parent].many = NONE,
                Step::Word(word) => self.remove_edge(node, parent, word),
            }
            self.nodes.remove(node);
            node = parent;
        }
        if self.is_empty() {
            // What all the patterns that there were needed is given back.
            let before = std::mem::replace(self, TopicTrie::new(0));
            (self.hasher, self.has_tails, self.work) = (before.hasher, before.has_tails, before.work);
        }
    }

    fn remove_edge(&mut self, node: u32, parent: u32, word: u32) {
        let hash = self.edge_hash(parent, word);
        let (nodes, hasher) = (&self.nodes, &self.hasher);
        take_out(&mut self.edges, hash, node, |child| match nodes[*child].step {
            Step::Word(word) => hasher.hash_one((nodes[*child].parent, word)),
            Step::Root | Step::One | Step::Many => unreachable!("only words have edges"),
        });
        self.nodes[parent].children -= 1;
        self.words[word].edges -= 1;
        if self.words[word].edges == 0 {
            let removed = self.words.remove(word);
            let words = &self.words;
            take_out(&mut self.word_table, removed.hash, word, |word| words[*word].hash);
        }
    }
}

impl Node {
    fn new(parent: u32, step: Step) -> Self {
        Node { parent, step, children: 0, one: NONE, many: NONE, values: Vec::new(), round: 0 }
    }

    fn is_empty(&self) -> bool {
        self.children == 0 && self.one == NONE && self.many == NONE && self.values.is_empty()
    }
}

/// The words of a topic or pattern; an empty text has none.
fn words(text: &[u8]) -> impl Iterator<Item = &[u8]> {
    text.split(|byte| *byte == b'.').filter(move |_| !text.is_empty())
}

/// One word of a pattern.
#[derive(Clone, Copy)]
enum Part<'a> {
    Word(&'a [u8]),
    One,
    Many,
}

/// A pattern's words in normal form.
struct NormalForm<'a, W: Iterator<Item = &'a [u8]>> {
    words: Peekable<W>,
    /// A `#` was met in the run of wildcards at hand.
    many: bool,
    /// A `>` is to come at the end.
    tail: bool,
}

fn normal_form(pattern: &[u8], has_tails: bool) -> NormalForm<'_, impl Iterator<Item = &[u8]>> {
    let (rest, tail) = match pattern.strip_suffix(b">").filter(|_| has_tails) {
        Some(b"") => (&b""[..], true),
        Some(rest) => rest.strip_suffix(b".").map_or((pattern, false), |rest| (rest, true)),
        None => (pattern, false),
    };
    NormalForm { words: words(rest).peekable(), many: false, tail }
}

impl<'a, W: Iterator<Item = &'a [u8]>> Iterator for NormalForm<'a, W> {
    type Item = Part<'a>;

    fn next(&mut self) -> Option<Part<'a>> {
        while self.words.next_if_eq(&&b"#"[..]).is_some() {
            self.many = true;
        }
        if self.words.next_if_eq(&&b"*"[..]).is_some() {
            return Some(Part::One);
        }
        if self.words.peek().is_none() && std::mem::take(&mut self.tail) {
            self.many = true;
            return Some(Part::One);
        }
        if std::mem::take(&mut self.many) {
            return Some(Part::Many);
        }
        self.words.next().map(Part::Word)
    }
}

#[cfg(test)]
#[path = "topics_tests.rs"]
mod tests;

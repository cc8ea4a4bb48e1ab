//! What was the broker told and what has it said, and does what is there after a crash agree with it?
//!
//! Clients note what they say before they send it, and what they hear when they have heard it. Of each message, and of each copy of it (one
//! for each node that it goes to), is known what may be there after a start, and what must be:
//!
//! - what the broker has accepted is there, unless a consumer has settled it;
//! - what a consumer has settled is gone for good, once the broker has answered for what the consumer said later;
//! - what was refused, was transient, or belongs to a transaction that was not committed is not there;
//! - of a transaction all is there or nothing, and all if its commit was answered;
//! - in each node what one sender has sent is in the order in which it was sent.
//!
//! A message that was delivered and not yet accepted by the broker may be lost: deliveries do not wait for the disk.
//! What has been there after one start has to be there after the next.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};

use crate::fault::Fault;
use crate::nodes::Node;

/// A message's number; later ones are larger.
pub type Number = u64;

/// Messages that are in order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Stream {
    sender: u64,
    in_transaction: bool,
}

/// How a consumer has settled a copy.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Settled {
    #[default]
    No,
    /// In a transaction.
    In(u64),
    /// It goes where dead letters go.
    Dead,
    /// Accepted, or rejected where nothing becomes of that.
    Gone,
    /// And that outlives a crash.
    ForGood,
}

/// A copy of a message in one node.
#[derive(Clone, Debug, Default)]
struct Copy {
    node: usize,
    delivered: u32,
    settled: Settled,
    is_held: bool,
    /// It has died, or not.
    may_be_dead: bool,
    /// Deliveries that failed: so many at most, and so many that it outlives a crash.
    failed: u32,
    failed_for_good: u32,
}

#[derive(Clone, Debug)]
struct Sent {
    /// Who has sent it, and whether in a transaction: those come to their places when it commits. None: it has died elsewhere.
    stream: Option<(u64, bool)>,
    to: Vec<usize>,
    durable: bool,
    answer: Option<bool>,
    transaction: Option<u64>,
    copies: Vec<Copy>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fate {
    Open,
    /// Asked for, and not answered.
    Commit,
    Committed,
    RolledBack,
}

#[derive(Clone, Debug)]
struct Transaction {
    fate: Fate,
    posts: Vec<Number>,
    accepts: Vec<(Number, usize)>,
}

/// A message that is there, or arrives.
#[derive(Clone, Copy, Debug)]
pub struct Seen {
    pub number: Number,
    /// Deliveries that failed, as its header says.
    pub failed: u32,
    /// Nobody had it before, as its header says.
    pub is_first: bool,
}

/// What there is in each node, in order.
pub type Contents = Vec<Vec<Seen>>;

#[derive(Clone, Copy, Debug, Default)]
pub struct Counts {
    pub sent: u64,
    pub confirmed: u64,
    pub refused: u64,
    pub delivered: u64,
    pub redelivered: u64,
    pub committed: u64,
    pub rolled_back: u64,
    /// Copies that had to be there after a crash, and were.
    pub kept: u64,
}

#[derive(Debug)]
pub struct Ledger {
    nodes: Vec<Node>,
    messages: HashMap<Number, Sent>,
    transactions: HashMap<u64, Transaction>,
    /// Copies that are not settled.
    depths: Vec<usize>,
    last: Number,
    pub counts: Counts,
}

impl Sent {
    fn copy(&self, node: usize) -> Option<&Copy> {
        self.copies.iter().find(|copy| copy.node == node)
    }

    fn copy_mut(&mut self, node: usize) -> &mut Copy {
        let index = self.copies.iter().position(|copy| copy.node == node).unwrap_or_else(|| {
            self.copies.push(Copy { node, ..Copy::default() });
            self.copies.len() - 1
        });
        &mut self.copies[index]
    }

    fn settled(&self, node: usize) -> Settled {
        self.copy(node).map_or(Settled::No, |copy| copy.settled)
    }
}

/// What clients say.
impl Ledger {
    pub fn new(nodes: Vec<Node>) -> Self {
        let depths = vec![0; nodes.len()];
        let (messages, transactions) = (HashMap::new(), HashMap::new());
        Ledger { nodes, messages, transactions, depths, last: 0, counts: Counts::default() }
    }

    /// A message is about to be sent.
    pub fn send(&mut self, stream: u64, to: &[usize], durable: bool, transaction: Option<u64>) -> Number {
        self.last += 1;
        self.counts.sent += 1;
        if let Some(transaction) = transaction.and_then(|name| self.transactions.get_mut(&name)) {
            transaction.posts.push(self.last);
        }
        to.iter().for_each(|node| self.depths[*node] += 1);
        let (to, copies) = (to.to_vec(), Vec::new());
        let stream = Some((stream, transaction.is_some()));
        let sent = Sent { stream, to, durable, answer: None, transaction, copies };
        self.messages.insert(self.last, sent);
        self.last
    }

    /// Unsettled messages in a node, about.
    pub fn depth(&self, node: usize) -> usize {
        self.depths[node]
    }

    /// What a message of a node is in order with.
    pub fn stream_of(&self, number: Number, node: usize) -> Option<Stream> {
        let sent = self.messages.get(&number).filter(|sent| sent.to.contains(&node))?;
        let (sender, in_transaction) = sent.stream?;
        Some(Stream { sender, in_transaction })
    }

    pub fn declare(&mut self) -> u64 {
        self.last += 1;
        let transaction = Transaction { fate: Fate::Open, posts: Vec::new(), accepts: Vec::new() };
        self.transactions.insert(self.last, transaction);
        self.last
    }

    /// A consumer is about to accept or reject a delivery.
    pub fn settle(&mut self, number: Number, node: usize, is_rejected: bool) {
        let is_dead = is_rejected && self.nodes[node].dead_letter.is_some();
        self.end_hold(number, node, if is_dead { Settled::Dead } else { Settled::Gone });
    }

    pub fn settle_in(&mut self, transaction: u64, number: Number, node: usize) {
        self.end_hold(number, node, Settled::In(transaction));
        if let Some(sent) = self.messages.get_mut(&number) {
            let max = self.nodes[node].deliveries_max;
            let copy = sent.copy_mut(node);
            // If it is rolled back it may count as a delivery that failed.
            copy.failed += 1;
            copy.may_be_dead |= max.is_some_and(|max| copy.failed >= max);
        }
        if let Some(transaction) = self.transactions.get_mut(&transaction) {
            transaction.accepts.push((number, node));
        }
    }

    /// A consumer is about to give a delivery back. `count`: its deliveries that had failed before, if this one has, too. How many that
    /// are now.
    pub fn give_back(&mut self, number: Number, node: usize, failed_before: Option<u32>) -> u32 {
        let max = self.nodes[node].deliveries_max;
        let Some(sent) = self.messages.get_mut(&number) else { return 0 };
        let copy = sent.copy_mut(node);
        copy.is_held = false;
        let Some(before) = failed_before else { return 0 };
        let failed = before + 1;
        copy.failed = copy.failed.max(failed);
        if max.is_some_and(|max| failed >= max) {
            copy.settled = Settled::Dead;
            self.depths[node] = self.depths[node].saturating_sub(1);
        }
        failed
    }

    /// A transaction is about to be ended.
    pub fn discharge(&mut self, transaction: u64, fail: bool) {
        if let Some(transaction) = self.transactions.get_mut(&transaction) {
            transaction.fate = if fail { Fate::RolledBack } else { Fate::Commit };
        }
    }

    fn end_hold(&mut self, number: Number, node: usize, settled: Settled) {
        self.depths[node] = self.depths[node].saturating_sub(1);
        let Some(sent) = self.messages.get_mut(&number) else { return };
        let copy = sent.copy_mut(node);
        copy.is_held = false;
        copy.settled = settled;
    }
}

/// What clients hear.
impl Ledger {
    /// The broker has said what became of a message.
    pub fn answered(&mut self, number: Number, accepted: bool) {
        let count = if accepted { &mut self.counts.confirmed } else { &mut self.counts.refused };
        *count += 1;
        if let Some(sent) = self.messages.get_mut(&number) {
            sent.answer = Some(accepted);
            if !accepted {
                sent.to.iter().for_each(|node| self.depths[*node] = self.depths[*node].saturating_sub(1));
            }
        }
    }

    /// What was settled like this outlives a crash. `failed`: so many deliveries that had failed do.
    pub fn outlives(&mut self, number: Number, node: usize, failed: Option<u32>) {
        let Some(sent) = self.messages.get_mut(&number) else { return };
        let copy = sent.copy_mut(node);
        match failed {
            // How it came back is written as long as it is there. It may have been settled since, and that not be synced.
            Some(_) if copy.settled != Settled::No => return,
            Some(failed) => copy.failed_for_good = copy.failed_for_good.max(failed),
            None if copy.settled == Settled::Gone => copy.settled = Settled::ForGood,
            None => return,
        }
        self.forget_if_over(number);
    }

    /// What is gone for good everywhere is not known any more.
    fn forget_if_over(&mut self, number: Number) {
        let Some(sent) = self.messages.get(&number) else { return };
        // One that has died may be where it died again: it leaves that place after it has come to the other.
        if sent.to.iter().all(|node| sent.settled(*node) == Settled::ForGood) {
            self.messages.remove(&number);
        }
    }

    /// A message arrives at a client.
    pub fn deliver(&mut self, seen: Seen, node: usize) -> Result<(), Fault> {
        let Seen { number, failed, is_first } = seen;
        let what = format!("message {number} of {}", self.nodes[node].name);
        let Some(sent) = self.messages.get(&number) else {
            return Err(Fault::Doubled(format!(
                "{what} is delivered and was settled for good, or not there"
            )));
        };
        let fate = sent.transaction.and_then(|name| self.transactions.get(&name)).map(|it| it.fate);
        if matches!(fate, Some(Fate::Open | Fate::RolledBack)) {
            return Err(Fault::Half(format!("{what} is delivered and its transaction is {fate:?}")));
        }
        if sent.answer == Some(false) {
            return Err(Fault::Refused(format!("{what} is delivered and was refused")));
        }
        if !sent.may_be_at(&self.nodes, node) {
            return Err(Fault::Doubled(format!("{what} is delivered where it was not sent: {sent:?}")));
        }
        self.end_failed_commit(number, node);
        let after_sync = self.nodes[node].after_sync;
        let Some(sent) = self.messages.get_mut(&number) else { return Ok(()) };
        let is_sent_there = sent.to.contains(&node);
        let copy = sent.copy_mut(node);
        if copy.settled != Settled::No {
            return Err(Fault::Doubled(format!("{what} is delivered and was settled: {copy:?}")));
        }
        if copy.is_held {
            return Err(Fault::Doubled(format!("{what} is delivered to two at a time")));
        }
        if is_first && copy.delivered > 0 {
            return Err(Fault::Doubled(format!("{what} is delivered again and does not say so")));
        }
        let is_counted = is_sent_there && !(copy.failed_for_good..=copy.failed).contains(&failed);
        if is_counted {
            let text = format!("{what} says that it has failed {failed} times: {copy:?}");
            return Err(Fault::Counts(text));
        }
        self.counts.delivered += 1;
        self.counts.redelivered += u64::from(copy.delivered > 0);
        copy.is_held = true;
        copy.delivered += 1;
        if after_sync && sent.durable {
            sent.answer = Some(true);
        }
        Ok(())
    }

    /// What comes back was settled in a transaction whose commit is not answered yet: it has failed, and never succeeds.
    fn end_failed_commit(&mut self, number: Number, node: usize) {
        let settled = self.messages.get(&number).map_or(Settled::No, |sent| sent.settled(node));
        if let Settled::In(transaction) = settled
            && matches!(self.fate(transaction), Fate::Commit | Fate::RolledBack)
        {
            self.ended(transaction, false);
        }
    }

    fn fate(&self, transaction: u64) -> Fate {
        self.transactions.get(&transaction).map_or(Fate::RolledBack, |transaction| transaction.fate)
    }

    /// A transaction's end is answered.
    pub fn end(&mut self, transaction: u64, committed: bool) -> Result<(), Fault> {
        let count = if committed { &mut self.counts.committed } else { &mut self.counts.rolled_back };
        *count += 1;
        if committed && self.fate(transaction) != Fate::Commit {
            return Err(Fault::Half(format!(
                "transaction {transaction} is committed, and some of it came back"
            )));
        }
        self.ended(transaction, committed);
        Ok(())
    }

    fn ended(&mut self, name: u64, committed: bool) {
        let Some(transaction) = self.transactions.get_mut(&name) else { return };
        transaction.fate = if committed { Fate::Committed } else { Fate::RolledBack };
        let accepts = std::mem::take(&mut transaction.accepts);
        let posts = if committed { std::mem::take(&mut transaction.posts) } else { Vec::new() };
        for (number, node) in accepts {
            let Some(sent) = self.messages.get_mut(&number) else { continue };
            let copy = sent.copy_mut(node);
            if copy.settled == Settled::In(name) {
                copy.settled = if committed { Settled::ForGood } else { Settled::No };
                self.depths[node] += usize::from(!committed);
                self.forget_if_over(number);
            }
        }
        for number in posts {
            if let Some(sent) = self.messages.get_mut(&number) {
                sent.answer = Some(true);
                sent.transaction = None;
                self.forget_if_over(number);
            }
        }
    }
}

impl Sent {
    /// Whether it may be in a node: it was sent there, or may have died on its way there.
    fn may_be_at(&self, nodes: &[Node], node: usize) -> bool {
        let has_died = |from: &usize| nodes[*from].dead_letter == Some(node) && self.may_have_died(*from);
        self.to.contains(&node) || self.to.iter().any(has_died)
    }

    fn may_have_died(&self, node: usize) -> bool {
        self.copy(node).is_some_and(|copy| copy.may_be_dead || copy.settled == Settled::Dead)
    }
}

/// After a crash.
impl Ledger {
    /// The broker has gone, and everyone with it.
    pub fn lose_all(&mut self) {
        let open: Vec<u64> =
            self.transactions.iter().filter(|(_, it)| it.fate == Fate::Open).map(|(name, _)| *name).collect();
        open.into_iter().for_each(|name| self.ended(name, false));
        for copy in self.messages.values_mut().flat_map(|sent| &mut sent.copies) {
            copy.is_held = false;
        }
    }

    /// Everything that is wrong with what is there.
    pub fn faults(&self, contents: &Contents) -> Vec<Fault> {
        let mut faults = Vec::new();
        let there = self.places(contents, &mut faults);
        let committed = self.decide(&there, &mut faults);
        for (node, messages) in contents.iter().enumerate() {
            for seen in messages {
                self.check_there(*seen, node, &committed, &mut faults);
            }
            self.check_order(node, messages, &mut faults);
        }
        for (number, sent) in &self.messages {
            for node in &sent.to {
                if self.must_be_there(sent, *node, &committed) && !self.is_there(*number, sent, *node, &there)
                {
                    let name = &self.nodes[*node].name;
                    faults.push(Fault::Lost(format!("message {number} of {name} is lost: {sent:?}")));
                }
            }
        }
        faults
    }

    /// Where everything is that is there.
    fn places(&self, contents: &Contents, faults: &mut Vec<Fault>) -> HashSet<(Number, usize)> {
        let mut there = HashSet::new();
        for (node, messages) in contents.iter().enumerate() {
            for seen in messages {
                if !there.insert((seen.number, node)) {
                    let (number, name) = (seen.number, &self.nodes[node].name);
                    faults.push(Fault::Doubled(format!("message {number} is in {name} twice")));
                }
            }
        }
        for (number, node) in &there {
            if let Some(dead) = self.nodes[*node].dead_letter
                && there.contains(&(*number, dead))
            {
                let (from, to) = (&self.nodes[*node].name, &self.nodes[dead].name);
                faults.push(Fault::Doubled(format!("message {number} is in {from} and in {to}")));
            }
        }
        there
    }

    fn check_there(&self, seen: Seen, node: usize, committed: &BTreeSet<u64>, faults: &mut Vec<Fault>) {
        let what = format!("message {} of {}", seen.number, self.nodes[node].name);
        let Some(sent) = self.messages.get(&seen.number) else {
            return faults
                .push(Fault::Doubled(format!("{what} is there and was settled for good, or never there")));
        };
        if !sent.durable {
            faults.push(Fault::Other(format!("{what} is there and was transient")));
        }
        if sent.answer == Some(false) {
            faults.push(Fault::Refused(format!("{what} is there and was refused")));
        }
        if let Some(transaction) = sent.transaction
            && !committed.contains(&transaction)
        {
            let fate = self.fate(transaction);
            faults.push(Fault::Half(format!("{what} is there and its transaction is not: {fate:?}")));
        }
        if !sent.may_be_at(&self.nodes, node) {
            faults.push(Fault::Doubled(format!("{what} is where it was not sent: {sent:?}")));
        }
        if sent.settled(node) == Settled::ForGood {
            faults.push(Fault::Doubled(format!("{what} is there and was settled for good")));
        }
        let (said, least) = sent.copy(node).map_or((0, 0), |copy| (copy.failed, copy.failed_for_good));
        if sent.to.contains(&node) && (seen.failed < least || seen.failed > said) {
            let text = format!("{what} says that it has failed {} times, not {least} to {said}", seen.failed);
            faults.push(Fault::Counts(text));
        }
    }

    fn check_order(&self, node: usize, messages: &[Seen], faults: &mut Vec<Fault>) {
        let mut last: BTreeMap<Stream, Number> = BTreeMap::new();
        for Seen { number, .. } in messages {
            let Some(stream) = self.stream_of(*number, node) else { continue };
            if let Some(before) = last.insert(stream, *number).filter(|before| before > number) {
                let name = &self.nodes[node].name;
                faults.push(Fault::Order(format!("message {number} of {name} stands behind {before}")));
            }
        }
    }

    /// Those transactions that are committed: by an answer, or by what is there.
    fn decide(&self, there: &HashSet<(Number, usize)>, faults: &mut Vec<Fault>) -> BTreeSet<u64> {
        let mut committed = BTreeSet::new();
        for (name, Transaction { fate, posts, accepts }) in &self.transactions {
            if *fate != Fate::Commit {
                continue;
            }
            let is_posted = |number: &Number| {
                let sent = self.messages.get(number);
                sent.is_some_and(|sent| sent.to.iter().any(|node| self.is_there(*number, sent, *node, there)))
            };
            let is_gone = |(number, node): &(Number, usize)| {
                let sent = self.messages.get(number);
                let is_kept = sent.is_none_or(|sent| sent.durable && sent.answer == Some(true));
                is_kept && !self.is_back(*number, *node, there)
            };
            let posted = posts.iter().any(is_posted);
            let gone = accepts.iter().any(is_gone);
            let back = accepts.iter().any(|(number, node)| self.is_back(*number, *node, there));
            if (posted || gone) && back {
                let text = format!(
                    "{name}: posted {posts:?}, of which there {posted}; settled {accepts:?}, of which gone {gone}"
                );
                faults.push(Fault::Half(format!("transaction {text} and back {back}")));
            }
            if posted || gone {
                committed.insert(*name);
            }
        }
        committed
    }

    /// Whether what was settled is there again: a dead letter also where it died.
    fn is_back(&self, number: Number, node: usize, there: &HashSet<(Number, usize)>) -> bool {
        let Some(sent) = self.messages.get(&number) else { return false };
        let has_died =
            |from: &&usize| self.nodes[**from].dead_letter == Some(node) && sent.may_have_died(**from);
        there.contains(&(number, node))
            || sent.to.iter().filter(has_died).any(|from| there.contains(&(number, *from)))
    }

    /// Whether a copy is where it was sent, or where it died on its way, or was taken there.
    fn is_there(&self, number: Number, sent: &Sent, node: usize, there: &HashSet<(Number, usize)>) -> bool {
        there.contains(&(number, node))
            || self.nodes[node]
                .dead_letter
                .filter(|_| sent.may_have_died(node))
                .is_some_and(|dead| there.contains(&(number, dead)) || sent.settled(dead) != Settled::No)
    }

    fn must_be_there(&self, sent: &Sent, node: usize, committed: &BTreeSet<u64>) -> bool {
        let is_kept = match (sent.answer, sent.transaction) {
            (Some(answer), _) => answer,
            (None, Some(transaction)) => committed.contains(&transaction),
            (None, None) => false,
        };
        let is_open = match sent.settled(node) {
            Settled::No | Settled::Dead => true,
            Settled::In(transaction) => {
                !committed.contains(&transaction) && self.fate(transaction) != Fate::Commit
            }
            Settled::Gone | Settled::ForGood => false,
        };
        sent.durable && is_kept && is_open
    }

    /// From here on what is there counts, and nothing else.
    pub fn begin_with(&mut self, contents: &Contents) {
        let mut messages: HashMap<Number, Sent> = HashMap::new();
        self.depths.iter_mut().for_each(|depth| *depth = 0);
        for (node, seen) in
            contents.iter().enumerate().flat_map(|(node, all)| all.iter().map(move |seen| (node, seen)))
        {
            let Some(known) = self.messages.get(&seen.number) else { continue };
            self.counts.kept += u64::from(known.answer == Some(true));
            let stream = known.stream.filter(|_| known.to.contains(&node));
            let empty = || Sent {
                stream,
                to: Vec::new(),
                durable: known.durable,
                answer: Some(true),
                transaction: None,
                copies: Vec::new(),
            };
            let sent = messages.entry(seen.number).or_insert_with(empty);
            let delivered = known.copy(node).map_or(0, |copy| copy.delivered);
            let (failed, failed_for_good) = (seen.failed, seen.failed);
            sent.copies.push(Copy { node, delivered, failed, failed_for_good, ..Copy::default() });
            sent.to.push(node);
            self.depths[node] += 1;
        }
        self.messages = messages;
        self.transactions.clear();
    }
}

#[cfg(test)]
#[path = "ledger_tests.rs"]
mod tests;

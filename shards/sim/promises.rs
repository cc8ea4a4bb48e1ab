//! What has the broker promised, and does it hold after a crash?
//!
//! Every message has its number as its body. Of each copy of it (one for each queue that it goes to) is known what clients have said and
//! heard, and from that what may be there after a start, and what must be:
//!
//! - what was accepted by the broker is there, unless a consumer has settled it, or its time is over;
//! - what a consumer has settled is gone for good, once all that was said is synced;
//! - what was refused, was transient, or belongs to a transaction that was not committed is not there;
//! - of a transaction all is there or nothing, and all if its commit was answered;
//! - in each queue what one sender has sent is in the order in which it was sent.
//!
//! A message that was delivered and not yet accepted by the broker may be lost; deliveries do not wait for the disk.

use std::collections::{BTreeMap, BTreeSet};

/// A message, and what became of it.
#[derive(Clone, Debug)]
pub(crate) struct Sent {
    /// The queues that it goes to.
    pub(crate) to: Vec<usize>,
    /// Who has sent it, and with which priority: those of one stream are in order.
    pub(crate) stream: (usize, u8),
    pub(crate) durable: bool,
    pub(crate) answer: Option<bool>,
    pub(crate) expires_at: Option<u64>,
    pub(crate) transaction: Option<usize>,
    /// The broker has crashed since, before it answered.
    pub(crate) is_past: bool,
}

/// How a consumer has settled a copy.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Settled {
    #[default]
    No,
    /// In a transaction.
    In(usize),
    Rejected,
    Accepted,
    /// And that is synced.
    ForGood,
}

#[derive(Clone, Debug, Default)]
pub(crate) struct Copy {
    pub(crate) delivered: u32,
    pub(crate) settled: Settled,
    /// Deliveries that failed: said, and said and synced.
    pub(crate) failed: u32,
    pub(crate) failed_for_good: u32,
    pub(crate) is_held: bool,
    /// The broker may not have heard how it was settled.
    pub(crate) is_unheard: bool,
    /// An operator may have deleted it.
    pub(crate) may_be_deleted: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fate {
    Open,
    /// Asked for, and not answered.
    Commit,
    Committed,
    RolledBack,
}

#[derive(Clone, Debug)]
pub(crate) struct Transaction {
    pub(crate) fate: Fate,
    pub(crate) posts: Vec<usize>,
    pub(crate) accepts: Vec<(usize, usize)>,
}

/// A queue, or a durable subscription.
#[derive(Clone, Debug)]
pub(crate) struct Node {
    pub(crate) name: String,
    /// Where what is rejected or expires goes.
    pub(crate) dead_letter: Option<usize>,
    /// Where an operator may have moved its messages.
    pub(crate) moved_to: Option<usize>,
    /// Nobody gets a durable message before it is synced.
    pub(crate) waits: bool,
    /// Requests to delete its messages that are not answered: what was there before, or comes meanwhile, may be gone.
    pub(crate) purges: u32,
}

impl Node {
    pub(crate) fn new(name: String) -> Self {
        Node { name, dead_letter: None, moved_to: None, waits: false, purges: 0 }
    }
}

/// What is in a queue: number, failed deliveries.
pub(crate) type Contents = Vec<Vec<(usize, u32)>>;

#[derive(Clone, Debug, Default)]
pub(crate) struct Promises {
    pub(crate) nodes: Vec<Node>,
    pub(crate) messages: Vec<Sent>,
    pub(crate) copies: BTreeMap<(usize, usize), Copy>,
    pub(crate) transactions: Vec<Transaction>,
    pub(crate) deliveries: u64,
    /// Copies that had to be there after a crash, and were.
    pub(crate) kept: u64,
}

impl Promises {
    fn copy(&self, message: usize, node: usize) -> Option<&Copy> {
        self.copies.get(&(message, node))
    }

    fn settled(&self, message: usize, node: usize) -> Settled {
        self.copy(message, node).map_or(Settled::No, |copy| copy.settled)
    }

    /// Whether a message is of a transaction that has not been committed, or of one of which nobody knows yet.
    fn is_unseen(&self, message: usize) -> bool {
        let fate = self.messages[message].transaction.map(|transaction| self.transactions[transaction].fate);
        fate.is_some_and(|fate| matches!(fate, Fate::Open | Fate::RolledBack))
    }

    /// A message arrives at a client.
    pub(crate) fn deliver(
        &mut self,
        (now, is_sound): (u64, bool),
        (message, node): (usize, usize),
        first: bool,
        failed: u32,
    ) {
        self.deliveries += 1;
        let what = format!("{message} of {}", self.nodes[node].name);
        assert!(!self.is_unseen(message), "{what} is delivered before it is committed");
        let sent = &self.messages[message];
        assert!(!sent.is_past || sent.durable, "{what} is delivered after a crash and was transient");
        assert!(self.may_be_at(now, message, node), "{what} is delivered from a queue where it cannot be");
        // A commit that is not answered yet may have failed; then it never succeeds.
        if let Settled::In(transaction) = self.settled(message, node)
            && self.transactions[transaction].fate == Fate::Commit
        {
            self.ended(transaction, false);
        }
        let sent = &mut self.messages[message];
        if self.nodes[node].waits && is_sound && sent.durable && sent.transaction.is_none() {
            // It would not have been shown before it was kept.
            let is_alone = sent.to == [node] && !sent.is_past;
            sent.answer = sent.answer.or(is_alone.then_some(true));
        }
        let copy = self.copies.entry((message, node)).or_default();
        let is_back = std::mem::take(&mut copy.is_unheard) || copy.settled == Settled::Rejected;
        assert!(is_back || copy.settled == Settled::No, "{what} is delivered and settled: {copy:?}");
        assert!(!copy.is_held, "{what} is delivered twice");
        assert!(!first || copy.delivered == 0, "{what} is delivered again and does not say so");
        assert!(
            failed >= copy.failed_for_good,
            "{what} has failed {} times, not {failed}",
            copy.failed_for_good
        );
        copy.settled = Settled::No;
        copy.failed = failed;
        copy.is_held = true;
        copy.delivered += 1;
    }

    /// Whether a message may be in a queue at all: it was sent there, or has died on its way there.
    fn may_be_at(&self, now: u64, message: usize, node: usize) -> bool {
        let sent = &self.messages[message];
        sent.to.contains(&node) || sent.to.iter().any(|from| self.leads_to(now, message, *from) == Some(node))
    }

    /// Where a message may have gone from a queue: what has died, or what an operator moves.
    fn leads_to(&self, now: u64, message: usize, from: usize) -> Option<usize> {
        let node = &self.nodes[from];
        node.moved_to.or(node.dead_letter.filter(|_| self.may_have_died(now, message, from)))
    }

    fn may_have_died(&self, now: u64, message: usize, node: usize) -> bool {
        let is_over = self.messages[message].expires_at.is_some_and(|at| at <= now);
        is_over || self.copy(message, node).is_some_and(|copy| copy.settled == Settled::Rejected)
    }

    /// All that was said is synced.
    pub(crate) fn all_synced(&mut self) {
        for ((_, node), copy) in &mut self.copies {
            if copy.is_unheard {
                continue;
            }
            copy.failed_for_good = copy.failed;
            let is_gone = copy.settled == Settled::Accepted
                || (copy.settled == Settled::Rejected && self.nodes[*node].dead_letter.is_none());
            if is_gone {
                copy.settled = Settled::ForGood;
            }
        }
    }

    /// A transaction's end is answered.
    pub(crate) fn ended(&mut self, transaction: usize, committed: bool) {
        let state = &mut self.transactions[transaction];
        assert!(state.fate != Fate::RolledBack || !committed, "what was rolled back is committed");
        if state.fate == Fate::RolledBack {
            return;
        }
        state.fate = if committed { Fate::Committed } else { Fate::RolledBack };
        for key in self.transactions[transaction].accepts.clone() {
            let copy = self.copies.entry(key).or_default();
            copy.settled = if committed { Settled::ForGood } else { Settled::No };
            copy.is_held = false;
        }
        if committed {
            for post in self.transactions[transaction].posts.clone() {
                self.messages[post].answer.get_or_insert(true);
            }
        }
    }

    /// Everyone has gone, as the broker has. On disks that are not sound it may not have been written that it had started.
    pub(crate) fn all_lost(&mut self, is_sound: bool) {
        // What was asked for and not answered is done by now, or never.
        self.nodes.iter_mut().for_each(|node| node.purges = 0);
        for copy in self.copies.values_mut() {
            (copy.is_held, copy.is_unheard) = (false, false);
            if !is_sound {
                copy.delivered = 0;
            }
        }
        for message in &mut self.messages {
            message.is_past = true;
        }
        for transaction in 0..self.transactions.len() {
            if self.transactions[transaction].fate == Fate::Open {
                self.ended(transaction, false);
            }
        }
    }

    /// What is there after a start is what may and must be there. `clean`: the broker had stopped in order.
    pub(crate) fn check(&mut self, now: u64, contents: &Contents, may_lack: usize) {
        let there: BTreeSet<(usize, usize)> = contents
            .iter()
            .enumerate()
            .flat_map(|(node, messages)| messages.iter().map(move |(message, _)| (*message, node)))
            .collect();
        assert_eq!(
            there.len(),
            contents.iter().map(Vec::len).sum::<usize>(),
            "nothing is there twice: {contents:?}"
        );
        self.decide(now, &there);
        for (message, node) in &there {
            let is_half = self.onward(*node).is_some_and(|to| there.contains(&(*message, to)));
            assert!(!is_half, "{message} is where it was, {}, and where it went", self.nodes[*node].name);
            self.check_there(now, *message, *node);
        }
        for (node, messages) in contents.iter().enumerate() {
            self.check_order(node, messages);
            for (message, failed) in messages {
                if let Some(copy) = self.copy(*message, node) {
                    let least = copy.failed_for_good;
                    assert!(
                        *failed >= least,
                        "{message} of {} has failed {least} times, not {failed}",
                        self.nodes[node].name
                    );
                }
            }
        }
        let mut lacks = Vec::new();
        for message in 0..self.messages.len() {
            for node in self.messages[message].to.clone() {
                if self.must_be_there(now, message, node) {
                    let is_there =
                        there.contains(&(message, node)) || self.has_gone_on(&there, now, message, node);
                    if is_there {
                        self.kept += 1;
                    } else {
                        lacks.push((message, node));
                    }
                }
            }
        }
        let known = |message: usize| {
            let copies = self.copies.range((message, 0)..(message + 1, 0)).collect::<Vec<_>>();
            format!("{message}: {:?} {copies:?}", self.messages[message])
        };
        let lost = || lacks.iter().map(|(message, _)| known(*message)).collect::<Vec<_>>();
        assert!(
            lacks.len() <= may_lack,
            "these are lost (number, queue): {lacks:?} of {:?}: {:?}",
            self.nodes,
            lost()
        );
        for (message, node) in lacks {
            self.copies.entry((message, node)).or_default().settled = Settled::ForGood;
        }
        self.forget_lost(&there);
    }

    fn onward(&self, node: usize) -> Option<usize> {
        self.nodes[node].moved_to.or(self.nodes[node].dead_letter)
    }

    /// An operator asks that all messages of a queue be deleted, or has an answer.
    pub(crate) fn purging(&mut self, node: usize) {
        self.nodes[node].purges += 1;
        for message in 0..self.messages.len() {
            if self.messages[message].to.contains(&node) || self.copies.contains_key(&(message, node)) {
                self.copies.entry((message, node)).or_default().may_be_deleted = true;
            }
        }
    }

    /// What is in a queue for certain and can be had by everyone: nobody has had it, nor will before it is asked for.
    pub(crate) fn surely_at(&self, node: usize) -> Vec<usize> {
        let is_sure = |message: &usize| {
            let sent = &self.messages[*message];
            let copy = self.copy(*message, node);
            sent.to == [node]
                && sent.answer == Some(true)
                && (sent.expires_at, sent.transaction) == (None, None)
                // One that is not kept may be hidden behind others that are.
                && (sent.durable || !sent.is_past && !self.nodes[node].waits)
                && copy.is_none_or(|copy| {
                    (copy.delivered, copy.settled) == (0, Settled::No) && !copy.may_be_deleted
                })
        };
        (0..self.messages.len()).filter(is_sure).collect()
    }

    /// It has gone on, and is where it went, or was taken there.
    fn has_gone_on(&self, there: &BTreeSet<(usize, usize)>, now: u64, message: usize, node: usize) -> bool {
        let Some(to) = self.leads_to(now, message, node) else { return false };
        let taken =
            matches!(self.settled(message, to), Settled::Accepted | Settled::ForGood | Settled::Rejected);
        let is_deleted = self.copy(message, to).is_some_and(|copy| copy.may_be_deleted);
        there.contains(&(message, to)) || taken || is_deleted
    }

    fn must_be_there(&self, now: u64, message: usize, node: usize) -> bool {
        let sent = &self.messages[message];
        let is_over = sent.expires_at.is_some_and(|at| at <= now) && self.nodes[node].dead_letter.is_none();
        let is_settled = match self.settled(message, node) {
            Settled::No => false,
            Settled::Rejected => self.nodes[node].dead_letter.is_none(),
            Settled::In(_) | Settled::Accepted | Settled::ForGood => true,
        };
        let is_deleted = self.copy(message, node).is_some_and(|copy| copy.may_be_deleted);
        sent.durable && sent.answer == Some(true) && !is_over && !is_settled && !is_deleted
    }

    fn check_there(&self, now: u64, message: usize, node: usize) {
        let what = format!("{message} of {}", self.nodes[node].name);
        let sent = &self.messages[message];
        assert!(sent.durable, "{what} is there and was transient");
        assert!(sent.answer != Some(false) || sent.to.len() > 1, "{what} is there and was refused");
        assert!(!self.is_unseen(message), "{what} is there and was not committed");
        assert!(self.may_be_at(now, message, node), "{what} is there and cannot be");
        assert!(self.settled(message, node) != Settled::ForGood, "{what} is there and was settled for good");
    }

    fn check_order(&self, node: usize, messages: &[(usize, u32)]) {
        let mut last: BTreeMap<(usize, u8), usize> = BTreeMap::new();
        for (message, _) in messages.iter().filter(|(message, _)| self.messages[*message].to.contains(&node))
        {
            // Those of a transaction take their places when it is committed.
            if self.messages[*message].transaction.is_some() {
                continue;
            }
            let before = last.insert(self.messages[*message].stream, *message);
            assert!(
                before < Some(*message),
                "{message} stands behind {before:?} in {}",
                self.nodes[node].name
            );
        }
    }

    /// Of transactions whose end was not answered, what is there says whether they were committed.
    fn decide(&mut self, now: u64, there: &BTreeSet<(usize, usize)>) {
        for transaction in 0..self.transactions.len() {
            let Transaction { fate, posts, accepts, .. } = &self.transactions[transaction];
            if *fate != Fate::Commit {
                continue;
            }
            // It may have died meanwhile.
            let is_there =
                |message: &usize| there.range((*message, 0)..=(*message, usize::MAX)).next().is_some();
            let is_gone = |(message, node): &(usize, usize)| {
                let sent = &self.messages[*message];
                let is_over = sent.expires_at.is_some_and(|at| at <= now);
                // If it is back, it may be gone all the same, but a dead letter is where it goes, or where it died.
                let is_deleted = self.copy(*message, *node).is_some_and(|copy| copy.may_be_deleted);
                let has_ended = match self.onward(*node) {
                    _ if is_deleted => true,
                    _ if !sent.to.contains(node) => {
                        sent.to.iter().any(|from| there.contains(&(*message, *from)))
                    }
                    Some(_) => {
                        self.has_gone_on(there, now, *message, *node)
                            || is_over && self.nodes[*node].dead_letter.is_none()
                    }
                    None => is_over,
                };
                sent.durable && sent.answer == Some(true) && !has_ended && !there.contains(&(*message, *node))
            };
            let posted = posts.iter().any(is_there);
            let back = accepts.iter().any(|accept| there.contains(accept));
            let gone = accepts.iter().any(is_gone);
            let half = (posted || gone) && back;
            assert!(
                !half,
                "transaction {transaction} is half done: posted {posted}, {accepts:?} of which some are back"
            );
            let committed = posted || gone;
            self.ended(transaction, committed);
        }
    }

    /// What was not promised and is not there is lost, which is as if it had never been sent.
    fn forget_lost(&mut self, there: &BTreeSet<(usize, usize)>) {
        for (key, copy) in &mut self.copies {
            // A dead letter that is where it died comes anew.
            if !there.contains(key)
                && !self.messages[key.0].to.contains(&key.1)
                && copy.settled != Settled::ForGood
            {
                *copy = Copy::default();
            }
            // Settled, and that was not synced: it is there again, and may be settled again.
            if there.contains(key)
                && matches!(copy.settled, Settled::Accepted | Settled::Rejected | Settled::In(_))
            {
                copy.settled = Settled::No;
            }
            // It was not, as nobody does that any more.
            copy.may_be_deleted &= !there.contains(key);
            // It was not synced either.
            copy.failed = copy.failed_for_good;
        }
        for message in 0..self.messages.len() {
            for node in self.messages[message].to.clone() {
                let is_onward = self.onward(node).is_some_and(|to| there.contains(&(message, to)));
                if !there.contains(&(message, node)) && !is_onward {
                    self.copies.entry((message, node)).or_default().settled = Settled::ForGood;
                }
            }
        }
    }
}

//! What do the clients of a workload do inside transactions, and what may then be seen of it?
//!
//! A transaction is all or nothing. What was posted in it is seen by nobody before it is discharged, and by nobody at all if it is
//! rolled back; what was settled in it stays out of sight until it has ended, and comes back only if it is rolled back, or if its
//! outcome says so; what was acquired in it is its consumer's still if it commits. How a transaction ended whose answer nobody has
//! heard is told by the first thing that is seen of it, and all else has to agree.
//!
//! It commits if it is asked to, but for what one of its queues refused, and for deliveries that had gone back before.

use std::collections::BTreeMap;

use corelane_protocol::amqp10::LinkId;

use crate::noting::Noted;
use crate::oracle::{Consumer, Fate, Oracle, Settling};
use crate::random::Random;
use crate::workload::{Use, Workload};
use crate::world::World;

/// Transactions of one client that are open or asked for.
const OPEN_MAX: usize = 3;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum End {
    Open,
    /// Its client has asked for it.
    Asked {
        fail: bool,
    },
    Committed,
    RolledBack,
    /// It may have committed, and nobody has heard of it.
    Unknown,
}

/// A transaction, as its client knows it.
#[derive(Debug)]
pub(crate) struct Transaction {
    peer: usize,
    /// What the broker calls it.
    number: u32,
    end: End,
    /// Whether it committed, by what has been seen of it.
    seen: Option<bool>,
    posted: Vec<usize>,
    /// Consumer, message, and what was said of it.
    retired: Vec<(usize, usize, Settling)>,
    /// Deliveries that were sent in it: consumer, message and delivery id.
    acquired: Vec<(usize, usize, u32)>,
    noted: Vec<Noted>,
    /// A queue may refuse what is posted, or a delivery may have gone back before it was settled.
    may_fail: bool,
    /// A queue has refused what was posted.
    was_refused: bool,
}

/// What a client waits for on its coordinator's link.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Request {
    Declare,
    Discharge(usize),
    /// The link was ended, and no answer means anything.
    Forgotten,
}

/// The transactions of a client.
#[derive(Debug, Default)]
pub(crate) struct Dealings {
    /// By token.
    requests: BTreeMap<u64, Request>,
    open: Vec<usize>,
}

impl Dealings {
    /// A transaction for the next piece of work, if it is to be inside one.
    pub(crate) fn draw(&self, random: &mut Random) -> Option<usize> {
        (!self.open.is_empty() && !random.one_in(3)).then(|| self.open[random.below(self.open.len())])
    }

    /// Every request was answered.
    pub(crate) fn is_idle(&self) -> bool {
        self.open.is_empty() && self.requests.values().all(|request| *request == Request::Forgotten)
    }

    /// The broker has answered. False: this was no request.
    pub(crate) fn answered(
        &mut self,
        oracle: &mut Oracle,
        peer: usize,
        (token, outcome): (u64, &str),
    ) -> bool {
        match self.requests.remove(&token) {
            None => return false,
            Some(Request::Forgotten) => {}
            Some(Request::Declare) => {
                let number = outcome.strip_prefix("declared ").and_then(|number| number.parse().ok());
                let number = number.unwrap_or_else(|| panic!("a declare was answered {outcome}"));
                self.open.push(oracle.declared(peer, number));
            }
            Some(Request::Discharge(transaction)) => oracle.discharged(transaction, outcome),
        }
        true
    }

    /// The connection is gone, or the coordinator's link: nobody hears what becomes of what is under way.
    pub(crate) fn abandon(&mut self, oracle: &mut Oracle) {
        for transaction in self.open.drain(..) {
            oracle.abandoned(transaction);
        }
        for request in self.requests.values_mut() {
            if let Request::Discharge(transaction) = *request {
                oracle.abandoned(transaction);
            }
            *request = Request::Forgotten;
        }
    }
}

impl Transaction {
    pub(crate) fn noted(&mut self, may_fail: bool, noted: Noted) {
        self.may_fail |= may_fail;
        self.noted.push(noted);
    }

    pub(crate) fn find_noted(&self, delivery_id: u32, consumer: usize) -> Option<Noted> {
        self.noted.iter().rfind(|(index, _, id, _)| (*index, *id) == (consumer, delivery_id)).copied()
    }
}

impl Workload {
    fn coordinator(&self, peer: usize) -> Option<LinkId> {
        let mut links = self.peers[peer].links.iter();
        links.find(|(_, used)| **used == Use::Coordinator).map(|(link, _)| LinkId(*link))
    }

    /// A client asks for one more transaction.
    pub(crate) fn declare(&mut self, world: &mut World, index: usize) {
        let coordinator = match self.coordinator(index) {
            Some(coordinator) => coordinator,
            None if self.has_link_left(index) => {
                let name = self.link_name();
                let peer = &mut self.peers[index];
                let link = world.clients[peer.client].attach_coordinator(&name, &[]);
                peer.links.insert(link.0, Use::Coordinator);
                link
            }
            None => return,
        };
        let peer = &mut self.peers[index];
        if peer.dealings.open.len() + peer.dealings.requests.len() < OPEN_MAX {
            let token = world.clients[peer.client].declare(coordinator);
            peer.dealings.requests.insert(token, Request::Declare);
        }
    }

    /// A client ends one of its transactions.
    pub(crate) fn discharge(
        &mut self,
        world: &mut World,
        oracle: &mut Oracle,
        random: &mut Random,
        index: usize,
    ) {
        let Some(coordinator) = self.coordinator(index) else { return };
        let peer = &mut self.peers[index];
        if peer.dealings.open.is_empty() {
            return;
        }
        let chosen = random.below(peer.dealings.open.len());
        let transaction = peer.dealings.open[chosen];
        let client = &mut world.clients[peer.client];
        let posts =
            peer.waiting.iter().filter(|(_, (number, _))| oracle.posted_in(*number) == Some(transaction));
        let unwritten: Vec<u64> =
            posts.map(|(token, _)| *token).filter(|token| client.is_waiting(*token)).collect();
        if unwritten.iter().any(|token| client.is_cut(*token)) {
            // AMQP 1.0 §4.4.2: it must not end between the parts of a message.
            return;
        }
        // What waits for credit comes after the end.
        let fail = random.one_in(3) || !unwritten.is_empty();
        let token = client.discharge(coordinator, oracle.transaction_number(transaction), fail);
        oracle.discharging(transaction, fail);
        peer.dealings.open.swap_remove(chosen);
        peer.dealings.requests.insert(token, Request::Discharge(transaction));
    }

    /// Messages of an open transaction that a client has yet to write to this link.
    pub(crate) fn has_unwritten_posts(
        &self,
        world: &World,
        oracle: &Oracle,
        index: usize,
        of: usize,
    ) -> bool {
        let peer = &self.peers[index];
        peer.waiting.iter().any(|(token, (number, stream))| {
            *stream == of
                && oracle.posted_in(*number).is_some()
                && world.clients[peer.client].is_waiting(*token)
        })
    }

    /// Every transaction of a client ends.
    pub(crate) fn end_dealings(
        &mut self,
        world: &mut World,
        oracle: &mut Oracle,
        random: &mut Random,
        peer: usize,
    ) {
        let Some(coordinator) = self.coordinator(peer) else { return };
        for _ in 0..OPEN_MAX {
            self.discharge(world, oracle, random, peer);
        }
        let peer = &mut self.peers[peer];
        if !peer.dealings.open.is_empty() {
            world.clients[peer.client].detach(coordinator);
            peer.links.insert(coordinator.0, Use::Ending);
            peer.dealings.abandon(oracle);
        }
    }
}

impl Oracle {
    fn declared(&mut self, peer: usize, number: u32) -> usize {
        self.transactions.push(Transaction {
            peer,
            number,
            end: End::Open,
            seen: None,
            posted: Vec::new(),
            retired: Vec::new(),
            acquired: Vec::new(),
            noted: Vec::new(),
            may_fail: false,
            was_refused: false,
        });
        self.transactions.len() - 1
    }

    /// What the broker calls it.
    pub(crate) fn transaction_number(&self, transaction: usize) -> u32 {
        self.transactions[transaction].number
    }

    pub(crate) fn is_open(&self, transaction: usize) -> bool {
        self.transactions[transaction].end == End::Open
    }

    pub(crate) fn posted_in(&self, number: usize) -> Option<usize> {
        self.messages[number].posted_in
    }

    /// A message is part of a transaction.
    pub(crate) fn posted(&mut self, transaction: usize, number: usize) {
        let message = &mut self.messages[number];
        message.posted_in = Some(transaction);
        let queue = &self.queues[message.sent.queue];
        let may_fail = queue.refuses.covers(number) || queue.goes;
        let transaction = &mut self.transactions[transaction];
        transaction.posted.push(number);
        transaction.may_fail |= may_fail;
    }

    /// What the broker said of a message that is part of a transaction. False: it was refused.
    pub(crate) fn post_answered(
        &mut self,
        (transaction, number): (usize, usize),
        outcome: &str,
        is_gone: bool,
    ) -> bool {
        let may_refuse = self.queues[self.messages[number].sent.queue].refuses.covers(number);
        let transaction = &mut self.transactions[transaction];
        transaction.may_fail |= may_refuse;
        match outcome.split_once(" in ").map_or(outcome, |(outcome, _)| outcome) {
            "accepted" => true,
            "rejected amqp:resource-limit-exceeded" if transaction.may_fail => {
                transaction.was_refused = true;
                false
            }
            _ if is_gone => {
                transaction.was_refused = true;
                false
            }
            // It came after the end.
            "rejected amqp:transaction:unknown-id" if transaction.seen == Some(false) => false,
            other => panic!("a message of {transaction:?} was answered {other:?}"),
        }
    }

    /// A queue that transactions have to do with has gone.
    pub(crate) fn may_fail(&mut self, queue: usize) {
        let (messages, consumers) = (&self.messages, &self.consumers);
        for transaction in self.transactions.iter_mut() {
            transaction.may_fail |= transaction.posted.iter().any(|it| messages[*it].sent.queue == queue)
                || transaction.retired.iter().any(|(consumer, ..)| consumers[*consumer].queue == queue);
        }
    }

    /// Whether a message was stored for certain, if the broker has said yes to it.
    pub(crate) fn is_committed(&self, number: usize) -> bool {
        self.messages[number].posted_in.is_none_or(|it| self.transactions[it].end == End::Committed)
    }

    /// A consumer ends a delivery inside a transaction: the `held` one at this position.
    pub(crate) fn settled_in(
        &mut self,
        (index, position): (usize, usize),
        outcome: Settling,
        transaction: usize,
    ) {
        let may_fail = self.may_lose_hold(index);
        let consumer = &mut self.consumers[index];
        let (number, delivery_id) = consumer.held.remove(position);
        consumer.acquired.remove(&delivery_id);
        self.retired((index, number), outcome, transaction);
        self.transactions[transaction].may_fail |= may_fail;
    }

    /// Whether a consumer's deliveries may be others' by now.
    pub(crate) fn may_lose_hold(&self, index: usize) -> bool {
        let consumer = &self.consumers[index];
        let queue = &self.queues[consumer.queue];
        // A subscription's consumer may lose its place to another.
        consumer.is_loose || queue.goes || queue.subscription().is_some()
    }

    /// The link of a consumer has ended that had named an outcome in a transaction.
    pub(crate) fn fails_or_retires(
        &mut self,
        delivery: (usize, usize),
        outcome: Settling,
        transaction: usize,
    ) {
        self.transactions[transaction].may_fail = true;
        if !self.is_open(transaction) {
            self.retired(delivery, outcome, transaction);
        }
    }

    fn retired(&mut self, (consumer, number): (usize, usize), outcome: Settling, transaction: usize) {
        let message = &mut self.messages[number];
        message.holder = None;
        message.acquired_in = None;
        // When it is rolled back, or for what it says.
        message.failed_max += 1;
        message.may_have_ended |= outcome.is_end();
        message.fate = Fate::Retired { transaction, outcome };
        let may_fail = message.is_loose;
        let transaction = &mut self.transactions[transaction];
        transaction.retired.push((consumer, number, outcome));
        transaction.may_fail |= may_fail;
    }

    /// The transaction that a delivery says to be sent in.
    fn transaction_of(&self, consumer: usize, number: u32) -> usize {
        let peer = self.consumers[consumer].peer;
        let found = self.transactions.iter().rposition(|it| it.peer == peer && it.number == number);
        found.unwrap_or_else(|| panic!("consumer {consumer} is sent something in no transaction {number}"))
    }

    /// Whether a delivery was sent in a transaction that may have been rolled back by now.
    pub(crate) fn may_be_adrift(&self, consumer: usize, in_transaction: u32) -> bool {
        let transaction = &self.transactions[self.transaction_of(consumer, in_transaction)];
        !matches!(transaction.end, End::Open | End::Committed)
    }

    /// Whether a delivery was sent in a transaction that has ended since, and has gone back with it.
    pub(crate) fn is_adrift(
        &mut self,
        consumer: usize,
        number: usize,
        in_transaction: u32,
        is_overtaken: bool,
    ) -> bool {
        let transaction = self.transaction_of(consumer, in_transaction);
        match self.transactions[transaction].end {
            End::Open | End::Committed => false,
            End::RolledBack | End::Asked { fail: true } => true,
            End::Unknown => {
                self.messages[number].is_loose = true;
                self.consumers[consumer].is_loose = true;
                true
            }
            End::Asked { fail: false } => {
                let message = &self.messages[number];
                if message.is_loose {
                    return false;
                }
                let is_held = message.holder.is_some_and(|holder| {
                    let holder = &self.consumers[holder];
                    holder.held.iter().any(|it| it.0 == number && self.is_surely_held(holder, *it))
                });
                let is_over = match message.fate {
                    Fate::Ending { .. } | Fate::Ended { .. } => true,
                    // Otherwise that may have gone back before this was sent.
                    Fate::Retired { transaction: other, .. } => other != transaction && self.is_open(other),
                    Fate::Open | Fate::Unsure => false,
                };
                let has_died = message.is_dead && message.sent.queue == self.consumers[consumer].queue;
                let is_with_others = is_overtaken || is_held || is_over || has_died;
                if is_with_others {
                    self.saw(transaction, false);
                }
                is_with_others
            }
        }
    }

    /// A delivery was sent in a transaction.
    pub(crate) fn acquired(&mut self, delivery: (usize, usize, u32), in_transaction: u32) {
        let (consumer, number, delivery_id) = delivery;
        let transaction = self.transaction_of(consumer, in_transaction);
        match self.transactions[transaction].end {
            End::Open | End::Asked { .. } if self.consumers[consumer].presettled => {
                self.retired((consumer, number), Settling::Accepted, transaction);
            }
            End::Open | End::Asked { .. } => {
                self.messages[number].acquired_in = Some(transaction);
                self.consumers[consumer].acquired.insert(delivery_id, transaction);
                self.transactions[transaction].acquired.push(delivery);
            }
            End::Committed | End::RolledBack | End::Unknown => {}
        }
    }

    fn discharging(&mut self, transaction: usize, fail: bool) {
        let transaction = &mut self.transactions[transaction];
        transaction.end = End::Asked { fail };
        if fail {
            transaction.seen = Some(false);
        }
    }

    fn discharged(&mut self, index: usize, outcome: &str) {
        let transaction = &self.transactions[index];
        let retired = transaction.retired.iter().map(|(_, number, _)| number);
        let mut settled = retired.chain(transaction.noted.iter().map(|(_, number, ..)| number));
        let has_late = settled.any(|number| self.messages[*number].is_loose);
        let committed = match (outcome, transaction.end) {
            ("accepted", End::Asked { fail }) => !fail,
            ("rejected amqp:transaction:rollback", End::Asked { fail: false })
                if transaction.may_fail || has_late =>
            {
                false
            }
            _ => panic!("{transaction:?} was answered {outcome}"),
        };
        assert!(!committed || !transaction.was_refused, "{transaction:?} committed without its messages");
        self.saw(index, committed);
        self.conclude(index, committed);
    }

    fn abandoned(&mut self, index: usize) {
        let transaction = &mut self.transactions[index];
        if transaction.end != (End::Asked { fail: false }) {
            // What is said of these before the broker has ended it waits for that, and goes with their links.
            for (_, number, ..) in transaction.noted.clone() {
                self.messages[number].is_loose = true;
            }
            self.conclude(index, false);
            return;
        }
        transaction.end = End::Unknown;
        let seen = transaction.seen;
        for (_, number, _) in
            transaction.retired.iter().filter(|(_, _, outcome)| *outcome == Settling::NotHere)
        {
            // Its consumer may be there still, and may be sent it again or not.
            self.messages[*number].is_loose = true;
        }
        let (noted, acquired) = (transaction.noted.clone(), std::mem::take(&mut transaction.acquired));
        for noted @ (consumer, number, delivery_id, outcome) in noted {
            if self.consumers[consumer].noted.get(&delivery_id) == Some(&index) {
                self.messages[number].is_loose = true;
                self.messages[number].was_accepted |= outcome.is_end();
                // It may hold it still.
                self.consumers[consumer].is_loose = true;
                self.note_ends(index, noted, false);
            }
        }
        for delivery in acquired {
            if self.acquisition_ends(index, delivery, false) {
                self.messages[delivery.1].is_loose = true;
                // It may hold it still.
                self.consumers[delivery.0].is_loose = true;
            }
        }
        if let Some(committed) = seen {
            self.conclude(index, committed);
        }
    }

    /// Something has been seen that says how a transaction ended.
    pub(crate) fn saw(&mut self, index: usize, committed: bool) {
        let transaction = &mut self.transactions[index];
        let retired = || transaction.retired.iter().map(|(_, number, _)| &self.messages[*number]);
        assert_ne!(
            transaction.end,
            End::Open,
            "something of it was seen before its end: {transaction:?} {:?}",
            retired().collect::<Vec<_>>()
        );
        assert_ne!(transaction.seen, Some(!committed), "seen in halves: {committed}, {transaction:?}");
        transaction.seen = Some(committed);
        if transaction.end == End::Unknown {
            self.conclude(index, committed);
        }
    }

    fn conclude(&mut self, index: usize, committed: bool) {
        let transaction = &mut self.transactions[index];
        transaction.seen = Some(committed);
        transaction.end = if committed { End::Committed } else { End::RolledBack };
        let (retired, acquired) = (transaction.retired.clone(), std::mem::take(&mut transaction.acquired));
        for noted in transaction.noted.clone() {
            self.note_ends(index, noted, committed);
        }
        for (consumer, number, outcome) in retired {
            if committed && outcome == Settling::NotHere {
                self.consumers[consumer].refused.insert(number);
            }
            let message = &mut self.messages[number];
            let Fate::Retired { transaction, outcome } = message.fate else { continue };
            if transaction == index {
                message.fate = match outcome {
                    Settling::Accepted | Settling::Rejected if committed => {
                        let accepted = outcome == Settling::Accepted;
                        message.was_accepted |= accepted;
                        Fate::Ended { accepted }
                    }
                    Settling::Accepted
                    | Settling::Rejected
                    | Settling::Released
                    | Settling::Failed
                    | Settling::NotHere => Fate::Open,
                };
            }
        }
        for delivery in acquired {
            self.acquisition_ends(index, delivery, committed);
        }
    }

    /// The transaction in which a delivery was sent has ended: it is its consumer's now, or was never. False: it had an outcome.
    fn acquisition_ends(
        &mut self,
        transaction: usize,
        (consumer, number, delivery_id): (usize, usize, u32),
        committed: bool,
    ) -> bool {
        let (holder, message) = (&mut self.consumers[consumer], &mut self.messages[number]);
        if holder.acquired.get(&delivery_id) != Some(&transaction) {
            return false;
        }
        holder.acquired.remove(&delivery_id);
        message.acquired_in = message.acquired_in.filter(|it| *it != transaction);
        if !committed {
            holder.held.retain(|(_, held)| *held != delivery_id);
            message.holder = message.holder.filter(|it| *it != consumer);
        }
        true
    }

    /// A message has come: what it was posted in has committed, and what it was settled or acquired in before may say why it comes.
    pub(crate) fn judge_transactions(&mut self, index: usize, number: usize, sent_in: Option<u32>) {
        if sent_in.is_some_and(|it| self.may_be_adrift(index, it)) && self.waits_for_end(number) {
            // Either that was rolled back, or what this was sent in, whose delivery is older then.
            let message = &mut self.messages[number];
            message.is_loose = true;
            message.was_accepted |= message.may_have_ended;
        }
        let message = &self.messages[number];
        if message.is_loose {
            return;
        }
        self.judge_noted(number);
        let message = &self.messages[number];
        if message.is_loose {
            return;
        }
        if let (Some(transaction), Some(holder)) = (message.acquired_in, message.holder) {
            self.saw(transaction, false);
            let delivery = self.consumers[holder].held.iter().find(|(held, _)| *held == number).copied();
            if let Some((_, delivery_id)) = delivery {
                self.acquisition_ends(transaction, (holder, number, delivery_id), false);
            }
        }
        let Fate::Retired { transaction, outcome } = self.messages[number].fate else { return };
        if matches!(outcome, Settling::Accepted | Settling::Rejected) {
            self.saw(transaction, false);
        }
        assert!(!self.is_open(transaction), "{number} came while it is retired");
        self.messages[number].fate = Fate::Open;
    }

    /// Whether a message is part of a transaction that was asked to end, and of which nobody has heard since.
    fn waits_for_end(&self, number: usize) -> bool {
        let message = &self.messages[number];
        let retired_in = match message.fate {
            Fate::Retired { transaction, .. } => Some(transaction),
            Fate::Open | Fate::Ending { .. } | Fate::Ended { .. } | Fate::Unsure => None,
        };
        let noted_in = self.noted_of(number).map(|(transaction, _)| transaction);
        let all = [retired_in, noted_in, message.acquired_in];
        all.into_iter().flatten().any(|it| matches!(self.transactions[it].end, End::Asked { .. }))
    }

    /// Whether a consumer holds this delivery for certain: not one that goes back with a transaction that may have ended.
    pub(crate) fn is_surely_held(&self, consumer: &Consumer, (number, delivery_id): (usize, u32)) -> bool {
        if self.messages[number].is_loose {
            return false;
        }
        consumer.waits_for(delivery_id).is_none_or(|transaction| self.is_open(transaction))
    }

    /// Whether a rejection inside a transaction may have been applied.
    pub(crate) fn may_have_rejected(&self, number: usize) -> bool {
        if let Some((transaction, (.., Settling::Rejected))) = self.noted_of(number) {
            return !self.is_open(transaction);
        }
        match self.messages[number].fate {
            Fate::Retired { transaction, outcome: Settling::Rejected } => !self.is_open(transaction),
            Fate::Retired { .. } | Fate::Open | Fate::Ending { .. } | Fate::Ended { .. } | Fate::Unsure => {
                false
            }
        }
    }

    /// Of a transaction of which nothing is known in the end, everything posted or everything retired was seen again.
    pub(crate) fn check_whole(&self) {
        for transaction in &self.transactions {
            assert!(!matches!(transaction.end, End::Asked { .. }), "{transaction:?} is not answered");
            if transaction.end != End::Unknown {
                continue;
            }
            let stays = |number: &&usize| {
                let message = &self.messages[**number];
                let queue = &self.queues[message.sent.queue];
                let may_be_removed = self.may_be_removed(**number);
                !(may_be_removed
                    || message.is_loose
                    || queue.replaces
                    || queue.may_lose(**number, &message.sent))
            };
            let is_queued = |number: &&usize| self.queues[self.messages[**number].sent.queue].is_queue();
            let lost = transaction.posted.iter().filter(stays).find(is_queued);
            let retired = transaction.retired.iter().map(|(_, number, _)| number);
            let taken = retired.filter(stays).filter(is_queued).find(|number| {
                matches!(self.messages[**number].fate, Fate::Retired { outcome: Settling::Accepted, .. })
            });
            assert!(
                lost.is_none() || taken.is_none(),
                "{lost:?} and {taken:?} say two things: {transaction:?}"
            );
        }
    }
}

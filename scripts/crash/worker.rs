//! What does a client do all the time? It sends, receives, settles, and works in transactions, by chance, until the broker is gone.
//!
//! What it says is noted before it is sent, what it hears when it is heard, to the last byte that the broker has sent.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use corelane_protocol::amqp10::{LinkId, Token, TransactionId};
use corelane_wire::amqp10::{DeliveryState, Modified};

use crate::barrier::Barrier;
use crate::client::{Answer, Client, Gone, Happening, Mode, PATIENCE};
use crate::fault::Fault;
use crate::ledger::{Ledger, Number, Stream};
use crate::message;
use crate::nodes::{Node, TOPIC};
use crate::random::Random;

/// Unsettled messages in a node above which nobody sends to it.
const DEPTH_MAX: usize = 1500;
/// How long a client waits for news when it has nothing to do.
const WAIT: Duration = Duration::from_millis(1);
/// Messages and outcomes of a transaction.
const STEPS_MAX: usize = 8;

/// What a token is about.
const OF_MESSAGE: u64 = 0;
const OF_DECLARE: u64 = 1;
const OF_DISCHARGE: u64 = 2;

/// What all clients share.
pub struct Shared {
    pub address: SocketAddr,
    pub nodes: Vec<Node>,
    pub ledger: Mutex<Ledger>,
    /// The broker is being killed: from now on connections may break.
    pub is_over: AtomicBool,
    pub fault: Mutex<Option<Fault>>,
}

/// What a client does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// Sends, with so many unanswered.
    Produce {
        window: usize,
    },
    Consume,
    /// Receives from this subscription.
    Subscribe {
        node: usize,
    },
    Transact,
}

struct Receiving {
    link: LinkId,
    node: usize,
    /// The last message of each sender that nobody had before.
    last: HashMap<Stream, Number>,
    held: Vec<Held>,
    barrier: Barrier,
    credit: u32,
    is_ending: bool,
}

#[derive(Clone, Copy, Debug)]
struct Held {
    number: Number,
    delivery: u32,
    /// Deliveries that had failed before.
    failed: u32,
}

enum Transacting {
    Idle,
    Declaring,
    Active { id: TransactionId, name: u64, steps: usize },
    Ending { name: u64, fail: bool },
}

pub struct Worker<'a> {
    shared: &'a Shared,
    client: Client,
    role: Role,
    random: Random,
    /// Names what it sends.
    stream: u64,
    senders: Vec<(Option<usize>, LinkId)>,
    receivers: Vec<Receiving>,
    coordinator: Option<LinkId>,
    transacting: Transacting,
    unanswered: usize,
    links: u64,
}

impl Shared {
    pub fn ledger(&self) -> MutexGuard<'_, Ledger> {
        self.ledger.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The first fault counts.
    pub fn note(&self, fault: Fault) {
        self.fault.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert(fault);
    }

    pub fn has_fault(&self) -> bool {
        self.fault.lock().unwrap_or_else(PoisonError::into_inner).is_some()
    }

    fn is_over(&self) -> bool {
        self.is_over.load(Ordering::SeqCst)
    }
}

/// Works until the broker is gone.
pub fn work(shared: &Shared, role: Role, stream: u64, seed: u64) {
    let container = match role {
        Role::Subscribe { node } => shared.nodes[node].name.clone(),
        Role::Produce { .. } | Role::Consume | Role::Transact => format!("crash-{stream}"),
    };
    let result = Client::connect(shared.address, &container).map_err(Stop::Gone).and_then(|client| {
        Worker {
            shared,
            client,
            role,
            random: Random::new(seed),
            stream,
            senders: Vec::new(),
            receivers: Vec::new(),
            coordinator: None,
            transacting: Transacting::Idle,
            unanswered: 0,
            links: 0,
        }
        .run()
    });
    match result {
        Ok(()) => {}
        Err(Stop::Gone(_)) if shared.is_over() => {}
        Err(Stop::Gone(Gone(reason))) => shared.note(Fault::Broker(format!("to a {role:?}: {reason}"))),
        Err(Stop::Fault(fault)) => shared.note(fault),
    }
}

enum Stop {
    Gone(Gone),
    Fault(Fault),
}

impl From<Gone> for Stop {
    fn from(gone: Gone) -> Self {
        Stop::Gone(gone)
    }
}

impl From<Fault> for Stop {
    fn from(fault: Fault) -> Self {
        Stop::Fault(fault)
    }
}

impl Worker<'_> {
    fn run(mut self) -> Result<(), Stop> {
        self.attach()?;
        let mut over_since = None;
        loop {
            match self.shared.is_over() {
                false => self.act()?,
                // What the broker said before it went counts; it does not say anything after that.
                true => {
                    let since = *over_since.get_or_insert_with(Instant::now);
                    if since.elapsed() > PATIENCE {
                        return Err(Gone("the socket of a dead broker does not end".to_owned()).into());
                    }
                }
            }
            let mut wait = WAIT;
            while let Some(happening) = self.client.next(wait)? {
                self.hear(happening)?;
                if self.client.is_up_to_date() {
                    break;
                }
                wait = Duration::ZERO;
            }
        }
    }

    fn attach(&mut self) -> Result<(), Stop> {
        match self.role {
            Role::Produce { .. } => {}
            Role::Subscribe { node } => self.attach_receiver(node)?,
            Role::Consume => {
                for _ in 0..1 + self.random.below(6) {
                    self.attach_anywhere()?;
                }
            }
            Role::Transact => {
                self.coordinator = Some(self.client.attach_coordinator("coordinator")?);
                for _ in 0..2 {
                    self.attach_anywhere()?;
                }
            }
        }
        Ok(())
    }

    fn attach_anywhere(&mut self) -> Result<(), Stop> {
        let queues = self.shared.nodes.iter().filter(|node| !node.is_subscription).count();
        let node = self.random.below(queues);
        self.attach_receiver(node)
    }

    fn attach_receiver(&mut self, node: usize) -> Result<(), Stop> {
        let name = &self.shared.nodes[node].name;
        self.links += 1;
        let link = match self.role {
            Role::Subscribe { .. } => self.client.attach_receiver(name, TOPIC, Mode::Subscribe)?,
            Role::Produce { .. } | Role::Consume | Role::Transact => {
                let link = format!("receiver{}", self.links);
                self.client.attach_receiver(&link, name, Mode::Acquire)?
            }
        };
        let (last, held, barrier) = (HashMap::new(), Vec::new(), Barrier::default());
        let credit = self.random.of(&[1, 10, 100]);
        self.receivers.push(Receiving { link, node, last, held, barrier, credit, is_ending: false });
        Ok(())
    }

    /// A link to a node, or to the topic.
    fn sender(&mut self, to: Option<usize>) -> Result<LinkId, Stop> {
        if let Some((_, link)) = self.senders.iter().find(|(node, _)| *node == to) {
            return Ok(*link);
        }
        let address = to.map_or(TOPIC, |node| &self.shared.nodes[node].name);
        self.links += 1;
        let link = self.client.attach_sender(&format!("sender{}", self.links), address)?;
        self.senders.push((to, link));
        Ok(link)
    }
}

/// What it says.
impl Worker<'_> {
    fn act(&mut self) -> Result<(), Stop> {
        match self.role {
            Role::Produce { window } => while self.unanswered < window && self.send_somewhere()? {},
            Role::Consume | Role::Subscribe { .. } => {
                self.receive()?;
                if self.role == Role::Consume && self.random.one_in(100) {
                    self.change_links()?;
                }
            }
            Role::Transact => {
                self.transact()?;
                self.receive()?;
            }
        }
        Ok(())
    }

    /// Sends a message. False: it cannot for now.
    fn send_somewhere(&mut self) -> Result<bool, Stop> {
        let to = self.draw_target();
        let durable = !self.random.one_in(12);
        Ok(self.send(to, durable, None)?.is_some() && !self.random.one_in(40))
    }

    fn draw_target(&mut self) -> Option<usize> {
        let nodes = &self.shared.nodes;
        let targets: Vec<usize> = (0..nodes.len())
            .filter(|node| !nodes[*node].is_subscription && !nodes[*node].is_dead_end)
            .collect();
        match self.random.below(targets.len() + 2) {
            index if index < targets.len() => Some(targets[index]),
            _ => None,
        }
    }

    fn send(
        &mut self,
        to: Option<usize>,
        durable: bool,
        transaction: Option<(TransactionId, u64)>,
    ) -> Result<Option<Number>, Stop> {
        let link = self.sender(to)?;
        if !self.client.can_send(link) {
            return Ok(None);
        }
        let nodes = &self.shared.nodes;
        let nodes: Vec<usize> = match to {
            Some(node) => vec![node],
            None => (0..nodes.len()).filter(|node| nodes[*node].is_subscription).collect(),
        };
        let mut ledger = self.shared.ledger();
        if nodes.iter().any(|node| ledger.depth(*node) > DEPTH_MAX) {
            return Ok(None);
        }
        let number = ledger.send(self.stream, &nodes, durable, transaction.map(|(_, name)| name));
        drop(ledger);
        let size = match self.random.below(200) {
            0 => 100_000 + self.random.below(200_000),
            1..5 => self.random.below(20_000),
            _ => self.random.below(400),
        };
        let bytes = message::write(number, size, durable);
        self.client.send(link, Token(number, OF_MESSAGE), bytes, transaction.map(|(id, _)| id));
        self.unanswered += usize::from(transaction.is_none());
        Ok(Some(number))
    }

    /// Gives credit, and settles some of what it has.
    fn receive(&mut self) -> Result<(), Stop> {
        for index in 0..self.receivers.len() {
            let Receiving { link, node, credit, is_ending, .. } = self.receivers[index];
            if is_ending {
                continue;
            }
            if self.client.credit_left(link) <= credit / 2 {
                self.client.credit(link, credit);
            }
            while self.receivers[index].held.len() > self.random.below(30) {
                self.settle(index);
            }
            self.ask(index, node)?;
        }
        Ok(())
    }

    fn settle(&mut self, index: usize) {
        let receiver = &mut self.receivers[index];
        let (link, node) = (receiver.link, receiver.node);
        let at = self.random.below(receiver.held.len());
        let held = match self.random.one_in(3) {
            true => receiver.held.swap_remove(at),
            false => receiver.held.remove(0),
        };
        let Held { number, delivery, failed } = held;
        let mut ledger = self.shared.ledger();
        let is_crowded = ledger.depth(node) > DEPTH_MAX / 2;
        let state = match self.random.below(if is_crowded { 60 } else { 100 }) {
            0..60 => DeliveryState::Accepted,
            60..80 => DeliveryState::Released,
            80..92 => DeliveryState::Modified(Modified { delivery_failed: true, ..Modified::default() }),
            _ => DeliveryState::Rejected { error: None },
        };
        match state {
            DeliveryState::Released => {
                ledger.give_back(number, node, None);
            }
            DeliveryState::Modified(_) => {
                let failed = ledger.give_back(number, node, Some(failed));
                receiver.barrier.note(number, Some(failed));
            }
            state => {
                ledger.settle(number, node, matches!(state, DeliveryState::Rejected { .. }));
                receiver.barrier.note(number, None);
            }
        }
        drop(ledger);
        self.client.settle(link, delivery, &state);
    }

    /// Sends a message after what was settled: when it is answered for, so is that.
    fn ask(&mut self, index: usize, node: usize) -> Result<(), Stop> {
        let nodes = &self.shared.nodes;
        if !self.receivers[index].barrier.is_due()
            || nodes[node].is_dead_end
            || nodes[node].messages_max.is_some()
        {
            return Ok(());
        }
        let to = Some(node).filter(|node| !nodes[*node].is_subscription);
        self.client.end_settlements();
        if let Some(number) = self.send(to, true, None)? {
            self.receivers[index].barrier.asked(number);
        }
        Ok(())
    }

    /// Asks for the last of what a queue has for it.
    fn change_links(&mut self) -> Result<(), Stop> {
        let index = self.random.below(self.receivers.len());
        let receiver = &mut self.receivers[index];
        if !receiver.is_ending {
            receiver.is_ending = true;
            self.client.drain(receiver.link, receiver.credit);
        }
        Ok(())
    }

    /// Leaves a queue and goes to another. Everything is given back before: what is not counts as a delivery that failed.
    fn leave(&mut self, link: LinkId) -> Result<(), Stop> {
        let Some(receiver) = self.receivers.iter_mut().find(|receiver| receiver.link == link) else {
            return Ok(());
        };
        for held in std::mem::take(&mut receiver.held) {
            self.shared.ledger().give_back(held.number, receiver.node, None);
            self.client.settle(link, held.delivery, &DeliveryState::Released);
        }
        self.client.detach(link, true);
        self.attach_anywhere()
    }

    fn transact(&mut self) -> Result<(), Stop> {
        let Some(coordinator) = self.coordinator else { return Ok(()) };
        match self.transacting {
            Transacting::Idle if self.client.can_send(coordinator) => {
                self.client.declare(coordinator, Token(0, OF_DECLARE));
                self.transacting = Transacting::Declaring;
            }
            Transacting::Active { id, name, steps: 0 } if self.client.can_send(coordinator) => {
                let fail = self.random.one_in(5);
                self.shared.ledger().discharge(name, fail);
                self.client.discharge(coordinator, Token(name, OF_DISCHARGE), &id, fail);
                self.transacting = Transacting::Ending { name, fail };
            }
            Transacting::Active { id, name, steps } if steps > 0 => {
                self.step_in(id, name)?;
                self.transacting = Transacting::Active { id, name, steps: steps - 1 };
            }
            Transacting::Idle
            | Transacting::Active { .. }
            | Transacting::Declaring
            | Transacting::Ending { .. } => {}
        }
        Ok(())
    }

    /// A message or an outcome in a transaction.
    fn step_in(&mut self, id: TransactionId, name: u64) -> Result<(), Stop> {
        let index = self.random.below(self.receivers.len());
        let receiver = &mut self.receivers[index];
        match receiver.held.pop() {
            Some(Held { number, delivery, .. }) if !receiver.is_ending && self.random.one_in(2) => {
                self.shared.ledger().settle_in(name, number, receiver.node);
                self.client.settle_in(receiver.link, delivery, &id);
            }
            other => {
                receiver.held.extend(other);
                let to = self.draw_target();
                if to.is_none_or(|node| self.shared.nodes[node].messages_max.is_none()) {
                    self.send(to, true, Some((id, name)))?;
                }
            }
        }
        Ok(())
    }
}

/// What it hears.
impl Worker<'_> {
    fn hear(&mut self, happening: Happening) -> Result<(), Stop> {
        match happening {
            Happening::Answered { token: Token(number, OF_MESSAGE), answer } => match answer {
                Answer::Provisional => {}
                answer => self.answered(number, answer == Answer::Accepted),
            },
            Happening::Answered { token: Token(_, OF_DECLARE), answer } => {
                self.transacting = match answer {
                    Answer::Declared(id) => {
                        let (name, steps) =
                            (self.shared.ledger().declare(), 1 + self.random.below(STEPS_MAX));
                        Transacting::Active { id, name, steps }
                    }
                    Answer::Accepted | Answer::Refused | Answer::Provisional => Transacting::Idle,
                };
            }
            Happening::Answered { answer, .. } => {
                if let Transacting::Ending { name, fail } = self.transacting {
                    self.shared.ledger().end(name, !fail && answer == Answer::Accepted)?;
                    self.transacting = Transacting::Idle;
                }
            }
            Happening::Message { link, delivery, bytes } => self.receive_message(link, delivery, &bytes)?,
            Happening::Detached { link, error } => {
                let index = self.receivers.iter().position(|receiver| receiver.link == link);
                match (index, error) {
                    (Some(index), None) if self.receivers[index].is_ending => {
                        self.receivers.remove(index);
                    }
                    (_, error) if !self.shared.is_over() => {
                        return Err(
                            Fault::Broker(format!("a link of a {:?} ends: {error:?}", self.role)).into()
                        );
                    }
                    (_, _) => {}
                }
            }
            Happening::Drained(link) => self.leave(link)?,
            Happening::Opened | Happening::Attached => {}
        }
        Ok(())
    }

    fn answered(&mut self, number: Number, accepted: bool) {
        self.unanswered -= 1;
        let mut ledger = self.shared.ledger();
        ledger.answered(number, accepted);
        for receiver in &mut self.receivers {
            for (number, failed) in receiver.barrier.answered(number, accepted) {
                ledger.outlives(number, receiver.node, failed);
            }
        }
    }

    fn receive_message(&mut self, link: LinkId, delivery: u32, bytes: &[u8]) -> Result<(), Stop> {
        let seen = message::read(bytes)?;
        let Some(receiver) = self.receivers.iter_mut().find(|receiver| receiver.link == link) else {
            return Ok(());
        };
        let mut ledger = self.shared.ledger();
        ledger.deliver(seen, receiver.node)?;
        if seen.is_first
            && let Some(stream) = ledger.stream_of(seen.number, receiver.node)
            && let Some(before) =
                receiver.last.insert(stream, seen.number).filter(|before| *before > seen.number)
        {
            let name = &self.shared.nodes[receiver.node].name;
            let text = format!("message {} of {name} is delivered after {before}", seen.number);
            return Err(Fault::Order(text).into());
        }
        receiver.held.push(Held { number: seen.number, delivery, failed: seen.failed });
        Ok(())
    }
}

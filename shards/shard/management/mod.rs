//! How is the broker managed by messages? The node `$management`, which every shard has (AMQP Management 1.0, working draft).
//!
//! A request is served by the shard of its connection. `request` reads it, `plan` knows which shards are to be asked what,
//! `question` is what travels between them, the modules named for kinds of things answer, `reply` writes the answer, which goes
//! to the request's `reply-to` like any other message. A request's delivery is accepted when it has been taken.
//!
//! Invariants:
//! - at most one question of a request is on its way; a shard that does not answer it in time is named in the request's answer;
//! - of a connection at most [`REQUESTS_MAX`] requests are being served, and as long as one is, it does not move;
//! - what moves, copies or deletes messages is carried to its end, whoever waits for it, unless the broker stops; any other request ends
//!   with its connection;
//! - a link to the node has credit for [`REQUEST_CREDIT`] less what is being served of it;
//! - of a queue whose messages are being moved to another shard none is moved, copied or deleted by another request;
//! - a request inside a transaction is refused, and the transaction cannot commit.
//!
//! Left out: what properties queues have (`properties`), what users are (`rights`).

mod connections;
mod consumers;
pub(crate) mod data;
mod exchanges;
mod explain;
mod following;
mod kinds;
mod list;
mod messages;
mod plan;
mod question;
mod queues;
mod reply;
mod request;
mod shards;
mod show;
mod subscriptions;
mod topics;

use std::collections::VecDeque;

use corelane_engine::QueueId;
use corelane_mailbox::Lane;
use corelane_protocol::amqp10::LinkId;
use corelane_wire::amqp10::{DeliveryState, Error};
use hashbrown::HashMap;

use crate::Shard;
use crate::address::{Address, has_wildcards, is_topic_name};
use crate::event::ConnectionSlot;
use crate::limits::{
    ANSWERS_UNREAD_BYTES_MAX, QUESTION_TIMEOUT_US, QUESTIONS_PER_TURN_MAX, REQUESTS_MAX, REQUESTS_SHARD_MAX,
};
use crate::mail::{Answered, LinkRef, Mail, PublishOutcome, Query};
use crate::message::Message;
use crate::publish::{Delivery, renew_credit};
use crate::rights::{Object, Right};
use crate::vhost;
pub(crate) use data::Data;
use plan::{Layout, Plan, Step, Sweeping};
pub(crate) use question::{Answer, Question};
pub(crate) use queues::{decode_overrides, overrides};
use reply::Reply;
pub(crate) use reply::{Fault, Status};
use request::Envelope;
pub(crate) use request::connection_name;

/// The node's address.
pub(crate) const ADDRESS: &str = "$management";

/// The requests of a shard's connections.
#[derive(Debug, Default)]
pub(crate) struct Management {
    requests: HashMap<u64, Request>,
    next_request: u64,
    /// Requests whose next question is for this shard itself.
    ready: VecDeque<(u64, Question)>,
    /// Questions that wait for messages that are not in memory.
    reading: Vec<Unread>,
    /// When to look whether a question was answered: the request and the question's number. The earliest first.
    deadlines: VecDeque<(u64, u64, u32)>,
    /// Queues of this shard whose messages are on their way to another one, and who moves them: a shard, and its request.
    moving: HashMap<Box<str>, Asker>,
}

/// A question that waits.
#[derive(Debug)]
enum Unread {
    Here { number: u64, question: Question },
    Elsewhere { from: usize, query: Query },
}

/// Whose question it is: a shard, and its request.
pub(crate) type Asker = (usize, u64);

#[derive(Debug)]
struct Request {
    link: LinkRef,
    envelope: Envelope,
    plan: Plan,
    /// Who was asked last, and how many questions came before.
    asked: usize,
    questions: u32,
    /// It was given up, and is kept for the sake of messages that are in two queues.
    is_answered: bool,
}

/// Why a request is not taken: condition and description.
type Rejection = (&'static str, &'static str);

const NO_REPLY_TO: Rejection =
    ("amqp:precondition-failed", "a request needs a reply-to: the address of a queue of yours");
const LOST_REPLY: Rejection = (
    "amqp:precondition-failed",
    "the request's reply-to can take no answer: it is neither a queue's name, nor a link of this connection from $management",
);
const NOT_PERMITTED: Rejection =
    ("amqp:unauthorized-access", "the user has no permission to write to the request's reply-to");
const TOO_MANY: Rejection =
    ("amqp:resource-limit-exceeded", "too many requests are being served; wait for answers");
const UNREAD: Rejection =
    ("amqp:resource-limit-exceeded", "the answers to earlier requests wait to be read at your reply-to");

const NO_MEMORY: Rejection = (
    "amqp:resource-limit-exceeded",
    "there is no memory for an answer; read the answers that wait, or messages",
);

impl Management {
    /// Whether messages are in two queues, or hidden, until an answer comes.
    pub(crate) fn is_between(&self) -> bool {
        self.requests.values().filter_map(|request| request.plan.sweeping()).any(Sweeping::is_between)
    }

    pub(crate) fn next_deadline(&self) -> Option<u64> {
        self.deadlines.front().map(|(deadline, ..)| *deadline)
    }
}

impl Shard {
    /// Requests for the management node that are not answered yet.
    pub fn requests_in_service(&self) -> usize {
        self.management.requests.len()
    }

    /// A message for the node.
    pub(crate) fn on_management_request(
        &mut self,
        now: u64,
        slot: ConnectionSlot,
        delivery: Delivery,
        message: Message,
    ) {
        let Delivery { link, delivery_id, settled, transaction } = delivery;
        if transaction.is_some() {
            // What a request does is done when it is answered, and no roll-back takes it back.
            self.counters.requests_refused += 1;
            self.buffers.give(message.into_bytes());
            self.answer(slot, delivery, PublishOutcome::NotTransactional);
            return;
        }
        let taken = self.take_request(now, slot, link, &message);
        self.buffers.give(message.into_bytes());
        let Some(connection) = self.connections.get_mut(slot) else { return };
        if !settled {
            let state = match taken {
                Ok(()) => DeliveryState::Accepted,
                Err((condition, description)) => {
                    DeliveryState::Rejected { error: Some(Error::new(condition, description)) }
                }
            };
            connection.protocol.settle(link, delivery_id, &state);
        }
        if taken.is_err() {
            self.counters.requests_refused += 1;
            renew_credit(connection, link);
        }
        self.touch(slot);
    }

    /// Whether more than this waits to be read in a queue.
    pub(crate) fn is_unread(&self, queue: QueueId, bytes_max: u64) -> bool {
        self.engine.depth(queue).is_some_and(|depth| depth.bytes > bytes_max)
    }

    fn take_request(
        &mut self,
        now: u64,
        slot: ConnectionSlot,
        link: LinkId,
        message: &Message,
    ) -> Result<(), Rejection> {
        let Some(connection) = self.connections.get_mut(slot) else { return Ok(()) };
        let mut envelope = Envelope::read(message.bytes(), connection.vhost()).ok_or(NO_REPLY_TO)?;
        envelope.queue = connection.answers_at(&envelope.reply_to).map(Into::into);
        let to = &*envelope.address();
        // An answer is a message of who asks.
        let name = Address::resolve(to);
        if let (None, Address::Name(name) | Address::Queue(name)) = (&envelope.queue, &name)
            && self.check_right(slot, Right::Write, Object::Queue, name).is_err()
        {
            return Err(NOT_PERMITTED);
        }
        let is_lost = envelope.queue.is_none()
            && match Address::resolve(to) {
                Address::Name(name) | Address::Queue(name) => has_wildcards(&name),
                Address::Topic(name) => !is_topic_name(&name),
                Address::Exchange { .. } | Address::Unsupported | Address::Invalid => true,
            };
        if vhost::plain(to) == ADDRESS || is_lost {
            return Err(LOST_REPLY);
        }
        if self.queues.find(to).is_some_and(|queue| self.is_unread(queue, ANSWERS_UNREAD_BYTES_MAX)) {
            return Err(UNREAD);
        }
        if self.has_no_memory_for_answers() {
            return Err(NO_MEMORY);
        }
        let rights = self.connections.get_mut(slot).and_then(|connection| connection.rights.as_deref());
        let may_change = rights.is_none_or(|rights| rights.is_administrator);
        let full = self.management.requests.len() >= REQUESTS_SHARD_MAX;
        let Some(connection) = self.connections.get_mut(slot) else { return Ok(()) };
        if full || connection.requests >= REQUESTS_MAX {
            return Err(TOO_MANY);
        }
        let id = connection.id;
        let Some(producer) = connection.producer_mut(link) else { return Ok(()) };
        producer.unanswered += 1;
        let link = LinkRef { connection: id, link, attachment: producer.attachment };
        connection.requests += 1;
        connection.unanswered += 1;
        self.counters.requests += 1;
        let number = self.management.next_request;
        self.management.next_request += 1;
        let (plan, step) =
            match request::parse(message.bytes(), &self.destinations, &envelope.vhost, may_change) {
                Ok(command) => {
                    let layout = Layout { shards: self.shards, home: &|name| self.home_of(name) };
                    plan::start(command, &layout)
                }
                Err(fault) => (Plan::One, Step::Done(fault.into())),
            };
        let request = Request { link, envelope, plan, asked: self.index, questions: 0, is_answered: false };
        self.management.requests.insert(number, request);
        self.take_step(now, number, step);
        Ok(())
    }

    fn take_step(&mut self, now: u64, number: u64, step: Step) {
        match step {
            Step::Done(reply) => self.conclude(now, number, &reply),
            Step::Ask(to, question) => {
                let Some(request) = self.management.requests.get_mut(&number) else { return };
                request.asked = to;
                request.questions += 1;
                if to == self.index {
                    self.management.ready.push_back((number, question));
                } else {
                    let deadline = (now + QUESTION_TIMEOUT_US, number, request.questions);
                    self.management.deadlines.push_back(deadline);
                    let query = Query { request: number, number: request.questions, question };
                    self.post(to, Lane::Control, Mail::Query(Box::new(query)));
                }
            }
        }
    }

    /// Another shard has answered.
    pub(crate) fn on_answered(&mut self, now: u64, from: usize, answered: Answered) {
        let Answered { request: number, number: question, answer } = answered;
        // One that comes too late finds its request gone, or asking something else.
        match self.management.requests.get(&number) {
            Some(request) if request.asked == from && request.questions == question => {
                self.take_answer(now, number, answer)
            }
            Some(_) | None => self.counters.mail_dropped += 1,
        }
    }

    pub(crate) fn take_answer(&mut self, now: u64, number: u64, answer: Answer) {
        let Some(mut request) = self.management.requests.remove(&number) else { return };
        let is_left = self.connections.slot_of(request.link.connection).is_none()
            && (self.is_stopping() || request.plan.sweeping().is_none());
        if (is_left || request.is_answered) && !request.plan.is_halfway() {
            if !request.is_answered {
                self.warn_of_unheard(now, &request, "the broker stops before all are");
            }
            self.end_move(number, &request.plan);
            return;
        }
        let layout = Layout { shards: self.shards, home: &|name| self.home_of(name) };
        let step = request.plan.take(answer, &layout);
        self.management.requests.insert(number, request);
        self.take_step(now, number, step);
    }

    /// Answers this shard's own questions, so many a turn. True if there are more.
    pub(crate) fn run_management(&mut self, now: u64) -> bool {
        for _ in 0..QUESTIONS_PER_TURN_MAX {
            let Some((number, mut question)) = self.management.ready.pop_front() else { break };
            if self.waits_for_bodies(&mut question) {
                self.management.reading.push(Unread::Here { number, question });
                continue;
            }
            let mark = self.said();
            let answer = self.answer_question(now, (self.index, number), question);
            let mark = answer.waits_since(mark);
            self.take_answer_kept(now, mark, number, answer);
        }
        !self.management.ready.is_empty()
    }

    /// Something was read: questions that wait for that are looked at again.
    pub(crate) fn resume_questions(&mut self, now: u64) {
        for unread in std::mem::take(&mut self.management.reading) {
            match unread {
                Unread::Here { number, question } => self.management.ready.push_back((number, question)),
                Unread::Elsewhere { from, query } => self.on_query(now, from, query),
            }
        }
    }

    /// Gives up on shards that have not answered.
    pub(crate) fn end_questions(&mut self, now: u64) {
        while let Some((_, number, question)) =
            self.management.deadlines.pop_front_if(|(deadline, ..)| *deadline <= now)
        {
            let is_asking =
                |request: &mut Request| request.questions == question && request.asked != self.index;
            let asking = self.management.requests.get_mut(&number).is_some_and(is_asking);
            let Some(mut request) = asking.then(|| self.management.requests.remove(&number)).flatten() else {
                continue;
            };
            let layout = Layout { shards: self.shards, home: &|name| self.home_of(name) };
            let is_halfway = request.plan.is_halfway();
            let step = request.plan.give_up(request.asked, &layout);
            self.counters.questions_unanswered += 1;
            match step {
                Step::Done(reply) if is_halfway && !request.is_answered => {
                    self.say(now, &request, &reply);
                    request.is_answered = true;
                    self.management.requests.insert(number, request);
                }
                step => {
                    self.management.requests.insert(number, request);
                    self.take_step(now, number, step);
                }
            }
        }
    }

    fn conclude(&mut self, now: u64, number: u64, reply: &Reply) {
        let Some(request) = self.management.requests.remove(&number) else { return };
        self.end_move(number, &request.plan);
        if !request.is_answered {
            self.say(now, &request, reply);
        }
    }

    /// The request has ended: others may move, copy and delete what is in its queue again.
    fn end_move(&mut self, number: u64, plan: &Plan) {
        let layout = Layout { shards: self.shards, home: &|name| self.home_of(name) };
        let Some(queue) = plan.moved_elsewhere(&layout) else { return };
        let home = self.home_of(queue);
        if home == self.index {
            self.on_move_ended((home, number), queue);
        } else {
            // Behind the last question, if that is still on its way.
            self.post(home, Lane::Control, Mail::MoveEnded { request: number, queue: queue.into() });
        }
    }

    pub(crate) fn on_move_ended(&mut self, asker: Asker, queue: &str) {
        if self.management.moving.get(queue) == Some(&asker) {
            self.management.moving.remove(queue);
        }
    }

    fn say(&mut self, now: u64, request: &Request, reply: &Reply) {
        let Request { link, envelope, .. } = request;
        let slot = self.slot_of(link.connection);
        if slot.is_none() {
            self.warn_of_unheard(now, request, &format!("{} {}", reply.status as u16, reply.description));
        }
        // What belongs to a link has gone with its connection; a queue that has a name takes the answer.
        if slot.is_none() && envelope.queue.is_some() {
            return;
        }
        let bytes = reply::encode(envelope, reply);
        if let Ok(mut message) = Message::new(bytes, 0) {
            message.is_answer = true;
            // Where it cannot be stored it is dropped, and counted there.
            self.route_internal(now, &envelope.address(), None, message);
        }
        let Some(slot) = slot else { return };
        let Some(connection) = self.connections.get_mut(slot) else { return };
        connection.requests -= 1;
        connection.unanswered -= 1;
        if let Some(producer) = connection.producer_mut(link.link)
            && producer.attachment == link.attachment
        {
            producer.unanswered -= 1;
            renew_credit(connection, link.link);
            self.touch(slot);
            self.release_detached(slot, link.link);
        }
    }

    /// Whoever runs the broker hears how it ended: messages have been moved, copied or deleted, and who has asked for it has gone.
    fn warn_of_unheard(&mut self, now: u64, request: &Request, end: &str) {
        let Some(sweeping) = request.plan.sweeping() else { return };
        self.unheard_warnings.warn(now, &mut self.effects, |more| {
            format!(
                "{sweeping}, for a client that has gone: {end} ({more} other requests since this was last said)"
            )
        });
    }
}

//! What is there to know of a connection, and how does an operator end one?

use corelane_protocol::amqp10::LinkId;

use super::data::{Data, Pairs};
use super::kinds::Kind;
use super::question::Answer;
use super::reply::{Fault, Status};
use super::request::connection_name;
use crate::Shard;
use crate::connection::{Connection, Hold, Link};
use crate::mail::ConnectionId;
use crate::transaction::{OldestTransaction, OpenTransactions};

/// A connection, and the shard that it lives on.
pub(crate) struct ConnectionView<'a> {
    pub(crate) now: u64,
    pub(crate) shard: usize,
    pub(crate) connection: &'a mut Connection,
}

/// How an attribute is read.
type Read = fn(&mut ConnectionView<'_>) -> Data;

/// The attributes of a connection, in order.
pub(crate) const ATTRIBUTES: &[(&str, Read)] = &[
    ("name", |view| connection_name(view.connection.id).into()),
    ("identity", |view| connection_name(view.connection.id).into()),
    ("type", |_| Kind::Connection.type_name().into()),
    ("shard", |view| view.shard.into()),
    ("container-id", |view| view.connection.container.to_string().into()),
    ("user", |view| view.connection.user.as_ref().map(|user| user.to_string()).into()),
    ("peer", |view| view.connection.peer.address.map(|address| address.to_string()).into()),
    ("loopback", |view| view.connection.peer.loopback.into()),
    ("producers", |view| links(view, |link| matches!(link, Link::Producer(_))).into()),
    ("consumers", |view| links(view, |link| matches!(link, Link::Consumer(_))).into()),
    ("unsettled", |view| {
        let consumers = view.connection.links.iter().flatten().map(|link| match link {
            Link::Consumer(consumer) => u64::from(consumer.unsettled),
            _ => 0,
        });
        consumers.sum::<u64>().into()
    }),
    ("unsent-bytes", |view| view.connection.unsent_bytes().into()),
    ("unread-bytes", |view| view.connection.waiting_input.len().into()),
    ("unanswered", |view| view.connection.unanswered.into()),
    ("transactions", |view| open_transactions(view).count.into()),
    ("oldest-transaction-us", |view| {
        oldest_transaction(view).map(|oldest| view.now.saturating_sub(oldest.began)).into()
    }),
    ("oldest-transaction-messages", |view| oldest_transaction(view).map(|oldest| oldest.messages).into()),
    ("oldest-transaction-outcomes", |view| oldest_transaction(view).map(|oldest| oldest.outcomes).into()),
    ("waits-for", |view| waits_for(view.connection).into()),
];

fn links(view: &ConnectionView<'_>, is_meant: impl Fn(&Link) -> bool) -> usize {
    view.connection.links.iter().flatten().filter(|link| is_meant(link)).count()
}

fn open_transactions(view: &ConnectionView<'_>) -> OpenTransactions {
    let transactions = view.connection.transactions.as_deref();
    transactions.map(|transactions| transactions.open_ones()).unwrap_or_default()
}

/// The one that has had work for longest.
fn oldest_transaction(view: &ConnectionView<'_>) -> Option<OldestTransaction> {
    open_transactions(view).oldest
}

/// Why what the peer sends is not read, what it is sent is not taken, or what else holds it up.
fn waits_for(connection: &Connection) -> Option<String> {
    match connection.hold {
        Some(Hold::Credentials) => Some("its credentials are being checked".to_owned()),
        Some(Hold::Move { to, .. }) => Some(format!("it moves to shard {to}")),
        Some(Hold::Lane { to }) => Some(format!("too many messages for shard {to} are on their way")),
        Some(Hold::Answers { .. }) => Some("too many of its messages are not answered".to_owned()),
        Some(Hold::Turn) => Some("others have their turn first".to_owned()),
        Some(Hold::Alarm) => Some("a shard is low on memory, or on disk".to_owned()),
        Some(Hold::Output) => Some("its client does not read what it is sent".to_owned()),
        None if connection.output_blocked => Some("its client reads slowly".to_owned()),
        None => waits_for_room(connection),
    }
}

/// Its links that have no credit because a queue they send to is full.
fn waits_for_room(connection: &Connection) -> Option<String> {
    let mut waiting = connection.links.iter().enumerate().filter_map(|(index, link)| match link {
        Some(Link::Producer(producer)) => Some((LinkId(index as u32), &producer.waits_for.first()?.1)),
        _ => None,
    });
    let (link, queue) = waiting.next()?;
    let link = connection.protocol.link_name(link).unwrap_or_default();
    let others = match waiting.count() {
        0 => String::new(),
        1 => "; another link waits likewise".to_owned(),
        more => format!("; {more} other links wait likewise"),
    };
    Some(format!("room in the full queue {queue:?} that link {link:?} sends to{others}"))
}

impl Shard {
    pub(crate) fn read_connection(&mut self, now: u64, id: ConnectionId) -> Answer {
        let shard = self.index;
        let Some(connection) = self.slot_of(id).and_then(|slot| self.connections.get_mut(slot)) else {
            return Answer::Refused(Fault::unknown(Kind::Connection, &connection_name(id)));
        };
        let mut view = ConnectionView { now, shard, connection };
        let pairs: Pairs = ATTRIBUTES.iter().map(|(name, read)| ((*name).into(), read(&mut view))).collect();
        Answer::ok(pairs)
    }

    /// Closes a connection with `amqp:connection:forced`.
    pub(crate) fn close_by_operator(&mut self, now: u64, id: ConnectionId) -> Answer {
        match self.slot_of(id) {
            Some(slot) => {
                self.close_forced(now, slot, "an operator has closed the connection");
                Answer::Said { status: Status::NoContent, body: Data::Map(Pairs::new()) }
            }
            None => Answer::Refused(Fault::unknown(Kind::Connection, &connection_name(id))),
        }
    }
}

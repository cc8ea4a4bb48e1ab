//! What is one core's share of the broker? Connections, queues, and the bridges between them, as one synchronous state.
//!
//! [`Shard::apply`] takes events, effects come out; the driver under `src/` does the rest. A message's way through this room:
//! `incoming` parses it, `publish` puts it into its queue (or hands it off to the queue's home), `deliver` writes it to the
//! consumer whose turn it is, `settle` hears what became of it. `attach` binds links to queues, `rehome` moves a connection to
//! its consumers' shard, `target` serves consumers whose connections stay elsewhere. Inside a transaction, `coordinator` hears its
//! requests, `transaction` leads it to its end, `retiring` takes its outcomes, and `participant` does a home's part of it.
//!
//! What a connection has to do with queues goes through `protocol`, whichever version of AMQP it speaks. The channels of 0-9-1, and its
//! messages as sections of 1.0, are in `amqp091`; `exchange_routes` says which queues an exchange leads to.
//!
//! Left out: threads, clocks, files and sockets; which frame means what (`protocol`); who is next (`engine`).

mod address;
mod amqp091;
mod attach;
mod attach_topic;
mod backup;
mod body;
mod buffers;
mod compound;
mod connection;
mod connections;
pub mod contradictions;
mod coordinator;
mod counters;
mod dead_letter_paths;
mod dead_letters;
mod death_records;
mod defining;
mod deliver;
mod destinations;
mod durability;
mod effect;
mod event;
mod exchange_routes;
mod failure;
mod fan_out;
mod forward;
mod home;
mod incoming;
mod kept;
pub mod limits;
mod mail;
mod management;
mod memory;
mod message;
mod participant;
mod parts;
mod patterns;
mod peers;
mod policies;
mod producers;
pub mod properties;
mod protocol;
mod publish;
pub mod quantity;
mod queues;
mod rehome;
mod retiring;
mod rights;
mod settle;
mod shard;
mod statistics;
mod subscription;
mod target;
mod topology;
mod transaction;
mod turn;
mod vhost;
mod warnings;

pub use address::is_plain_name;
pub use backup::{BackupMail, BackupRefusal, Barrier, Image, ImageSegment};
pub use corelane_mailbox::Lane;
pub use counters::Counters;
pub use defining::{BindingDefinition, Definitions, ExchangeDefinition, QueueDefinition};
pub use destinations::{
    DestinationRule, Destinations, DispatchRule, OverflowRule, PREFETCH_INHERITED, PREFETCH_INHERITED_TOPIC,
    PrefetchRule, RedeliveryRule,
};
pub use durability::{Decisions, RestoreSummary};
pub use effect::Effect;
pub use event::{ConnectionSlot, Event, Peer, Socket};
pub use home::{definition_home, home_shard, queue_home};
pub use mail::{Adopted, ConnectionId, Mail, SaslReply, SaslStep};
pub use message::Message;
pub use policies::Policy;
pub use protocol::Offers;
pub use rights::{Permission, Rights};
pub use shard::{SHARDS_STAY, Shard, ShardConfig, Turn};
pub use vhost::is_vhost_name;

//! What is there to know of exchanges of 0-9-1, and of what is bound to them?
//!
//! Every shard has all of them; the one that puts their changes in order is asked. Clients of 0-9-1 make and delete them; an operator
//! may delete an exchange, with all that is bound to it. When that is answered the shard of who has asked has it no more; others hear of
//! it by mail that is on its way.

use corelane_engine::exchanges::{Binding, Change, Declaration, End, RESERVED_PREFIX, Refusal};

use super::data::{Data, Pairs, pairs};
use super::kinds::Kind;
use super::question::Answer;
use super::reply::{Fault, Status};
use crate::Shard;
use crate::connection::QueueAt;
use crate::topology::{self, COORDINATOR};
use crate::vhost;

/// How an attribute is read of one of these.
type Read<T> = fn(&T) -> Data;

/// The attributes of an exchange, in order.
pub(crate) const ATTRIBUTES: &[(&str, Read<Declaration>)] = &[
    ("name", |exchange| exchange.name.to_string().into()),
    ("identity", |exchange| exchange.name.to_string().into()),
    ("type", |_| Kind::Exchange.type_name().into()),
    ("exchange-type", |exchange| exchange.kind.to_string().into()),
    ("durable", |exchange| exchange.is_durable.into()),
    ("auto-delete", |exchange| exchange.is_auto_delete.into()),
    ("internal", |exchange| exchange.is_internal.into()),
];

/// A binding, and whether it outlives a restart.
pub(crate) type Bound = (Binding<QueueAt>, bool);

/// The attributes of a binding, in order.
pub(crate) const BINDING_ATTRIBUTES: &[(&str, Read<Bound>)] = &[
    ("name", |(binding, _)| format!("{} > {}", binding.source, destination(binding)).into()),
    ("type", |_| Kind::Binding.type_name().into()),
    ("source", |(binding, _)| binding.source.to_string().into()),
    ("destination", |(binding, _)| destination(binding).to_owned().into()),
    ("destination-type", |(binding, _)| match binding.destination {
        End::Queue { .. } => Kind::Queue.word().into(),
        End::Exchange(_) => Kind::Exchange.word().into(),
    }),
    ("routing-key", |(binding, _)| String::from_utf8_lossy(&binding.key).into_owned().into()),
    ("arguments", |(binding, _)| binding.arguments.values().len().into()),
    ("durable", |(_, is_durable)| (*is_durable).into()),
];

/// The name of what a binding leads to, within its virtual host.
pub(crate) fn destination(binding: &Binding<QueueAt>) -> &str {
    match &binding.destination {
        End::Queue { name, .. } => vhost::plain(name),
        End::Exchange(name) => name,
    }
}

impl Shard {
    pub(crate) fn read_exchange(&self, name: &str) -> Result<Answer, Fault> {
        let exchange = self.known_exchange(name)?;
        let pairs = ATTRIBUTES.iter().flat_map(|(known, read)| pairs![*known => read(exchange)]);
        Ok(Answer::ok(pairs.collect()))
    }

    pub(crate) fn delete_named_exchange(&mut self, now: u64, name: &str) -> Result<Answer, Fault> {
        let Declaration { vhost, name: exchange, is_durable, .. } = self.known_exchange(name)?.clone();
        if exchange.starts_with(RESERVED_PREFIX) {
            return Err(Fault::bad(format!("the exchange {exchange:?} is always there")));
        }
        if is_durable && self.takes_nothing() {
            return Err(Fault { status: Status::Unavailable, why: topology::NotMade::Disk.to_string() });
        }
        let change = Box::new(Change::Delete { vhost, exchange, if_unused: false });
        self.propose(now, topology::Change::Exchanges { change, uid: None }, None);
        Ok(Answer::Said { status: Status::NoContent, body: Data::Map(Pairs::new()) })
    }

    fn known_exchange(&self, name: &str) -> Result<&Declaration, Fault> {
        let (vhost, plain) = self.topology.place(name);
        self.topology.exchanges().check_exists(vhost, plain).map_err(|refusal| match refusal {
            Refusal::DefaultExchange => Fault::bad("the default exchange leads to each queue by its name"),
            _ => Fault::unknown(Kind::Exchange, name),
        })
    }

    /// Above the indices of all exchanges that this shard lists.
    pub(crate) fn exchange_index_end(&self) -> u32 {
        if self.index == COORDINATOR { self.topology.exchanges().exchange_index_end() as u32 } else { 0 }
    }

    /// The same of bindings.
    pub(crate) fn binding_index_end(&self) -> u32 {
        if self.index == COORDINATOR { self.topology.exchanges().binding_index_end() as u32 } else { 0 }
    }

    /// The exchange of an index, with its virtual host.
    pub(crate) fn exchange_at(&self, index: u32) -> Option<(&str, &Declaration)> {
        let declaration = self.topology.exchanges().exchange_at(index as usize)?;
        Some((self.topology.vhost_name(declaration.vhost), declaration))
    }

    /// The binding of an index, with its virtual host.
    pub(crate) fn binding_at(&self, index: u32) -> Option<(&str, Bound)> {
        let bound = self.topology.exchanges().binding_at(index as usize)?;
        Some((self.topology.vhost_name(bound.0.vhost), bound))
    }
}

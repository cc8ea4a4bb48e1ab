//! What is declared when the broker starts, before it is ready?
//!
//! Exchanges, queues and bindings that the process was given. They are made as a channel would make them, once all that the journal had is
//! there again: what is there and equal stays, what differs stays too and is warned about, and nothing is deleted.
//!
//! The coordinator makes the exchanges and hands on to the other shards, which find them behind its deltas; each makes the queues that
//! live there, and binds them.
//!
//! Invariant: a shard with definitions is not ready before it has made its part of them on all shards.

use std::sync::Arc;

use corelane_engine::exchanges::{Binding, Change as ExchangeChange, Declaration, End};
use corelane_wire::amqp091::Table;

use crate::Shard;
use crate::amqp091::arguments_of;
use crate::connection::QueueAt;
use crate::effect::Effect;
use crate::topology::{COORDINATOR, Change, Then, TopologyStep};
use crate::vhost::{self, InVhost};

/// What is to be there. Names are plain ones, arguments encoded field tables.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Definitions {
    pub exchanges: Vec<ExchangeDefinition>,
    pub queues: Vec<QueueDefinition>,
    pub bindings: Vec<BindingDefinition>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ExchangeDefinition {
    pub vhost: Box<str>,
    pub name: Box<str>,
    /// The type's name.
    pub kind: Box<str>,
    pub durable: bool,
    pub auto_delete: bool,
    pub internal: bool,
    pub arguments: Vec<u8>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct QueueDefinition {
    pub vhost: Box<str>,
    pub name: Box<str>,
    pub durable: bool,
    pub auto_delete: bool,
    pub arguments: Vec<u8>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BindingDefinition {
    pub vhost: Box<str>,
    pub source: Box<str>,
    /// Of a queue, else of an exchange.
    pub to_queue: bool,
    pub destination: Box<str>,
    pub key: Box<[u8]>,
    pub arguments: Vec<u8>,
}

/// How far a shard has come.
#[derive(Debug)]
pub(crate) struct Defining {
    definitions: Arc<Definitions>,
    /// The coordinator has made its part.
    may_begin: bool,
    has_begun: bool,
    /// What is not so on all shards yet.
    proposed: usize,
}

impl Defining {
    pub(crate) fn new(definitions: Arc<Definitions>) -> Self {
        Defining { definitions, may_begin: false, has_begun: false, proposed: 0 }
    }
}

impl Shard {
    /// The coordinator has made the exchanges.
    pub(crate) fn on_define(&mut self) {
        if let Some(defining) = &mut self.defining {
            defining.may_begin = true;
        }
    }

    /// Makes what is this shard's, if its time has come.
    pub(crate) fn run_definitions(&mut self, now: u64) {
        if self.defining.is_none() || !self.is_restored() {
            return;
        }
        let is_coordinator = self.index == COORDINATOR;
        let Some(defining) = &mut self.defining else { return };
        if !defining.has_begun && (defining.may_begin || is_coordinator) {
            defining.has_begun = true;
            let definitions = defining.definitions.clone();
            if is_coordinator {
                self.define_exchanges(now, &definitions);
                for shard in (0..self.shards).filter(|shard| *shard != COORDINATOR) {
                    self.post_topology(shard, TopologyStep::Define);
                }
            }
            self.define_queues(now, &definitions);
        }
        if self.defining.as_ref().is_some_and(|defining| defining.has_begun && defining.proposed == 0) {
            self.defining = None;
        }
    }

    /// A part of it is there, or was refused.
    pub(crate) fn on_defined(&mut self, what: &str, refused: Option<String>) {
        if let Some(defining) = &mut self.defining {
            defining.proposed -= 1;
        }
        if let Some(why) = refused {
            self.warn_of_definition(what, &why);
        }
    }

    fn warn_of_definition(&mut self, what: &str, why: &str) {
        let text = format!("definitions: {what} is not as it is defined: {why}");
        self.effects.push(Effect::Warn { text });
    }

    fn define_change(
        &mut self,
        now: u64,
        what: String,
        change: Option<ExchangeChange<QueueAt>>,
        uid: Option<u64>,
    ) {
        let Some(change) = change else {
            return self.warn_of_definition(&what, "its arguments cannot be read");
        };
        if let Some(defining) = &mut self.defining {
            defining.proposed += 1;
        }
        let change = Change::Exchanges { change: Box::new(change), uid };
        self.propose(now, change, Some(Then::Defined(what.into())));
    }

    fn define_exchanges(&mut self, now: u64, definitions: &Definitions) {
        for it in &definitions.exchanges {
            let known = vhost::within(&it.vhost, &*it.name);
            let declare = |arguments| {
                ExchangeChange::Declare(Declaration {
                    vhost: self.topology.place(&known).0,
                    name: (&*it.name).into(),
                    kind: (&*it.kind).into(),
                    is_durable: it.durable,
                    is_auto_delete: it.auto_delete,
                    is_internal: it.internal,
                    arguments,
                })
            };
            let change = arguments_of(Table::new(&it.arguments)).ok().map(declare);
            self.define_change(now, format!("exchange {}", InVhost(&known)), change, None);
        }
        for it in definitions.bindings.iter().filter(|it| !it.to_queue) {
            self.define_binding(now, it, End::Exchange((&*it.destination).into()), None);
        }
    }

    fn define_queues(&mut self, now: u64, definitions: &Definitions) {
        for it in &definitions.queues {
            let name = vhost::within(&it.vhost, &*it.name);
            if self.home_of(&name) != self.index {
                continue;
            }
            if let Err(fault) = self.define_queue(now, &name, it) {
                self.warn_of_definition(&format!("queue {}", InVhost(&name)), &fault.text);
            }
        }
        for it in definitions.bindings.iter().filter(|it| it.to_queue) {
            let name = vhost::within(&it.vhost, &*it.destination);
            if self.home_of(&name) != self.index {
                continue;
            }
            let Some(queue) = self.queues.find(&name) else {
                let what = format!("a binding of queue {}", InVhost(&name));
                self.warn_of_definition(&what, "there is no such queue");
                continue;
            };
            let is_durable = self.note_binding(queue);
            let at = QueueAt { shard: self.index, queue };
            let end = End::Queue { queue: at, name: (&*name).into(), is_durable };
            self.define_binding(now, it, end, self.queues.uid(queue));
        }
    }

    fn define_binding(
        &mut self,
        now: u64,
        it: &BindingDefinition,
        destination: End<QueueAt>,
        uid: Option<u64>,
    ) {
        let source = vhost::within(&it.vhost, &*it.source);
        let (vhost, _) = self.topology.place(&source);
        let bind = |arguments| {
            let (source, key) = ((&*it.source).into(), (&*it.key).into());
            ExchangeChange::Bind(Binding { vhost, source, destination, key, arguments })
        };
        let change = arguments_of(Table::new(&it.arguments)).ok().map(bind);
        let what = format!("the binding of {:?} to exchange {}", it.destination, InVhost(&source));
        self.define_change(now, what, change, uid);
    }
}

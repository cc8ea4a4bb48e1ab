//! What can change, and what follows?

use std::sync::Arc;

use super::Arguments;

/// A virtual host, by the order in which they came to be. Never given out again.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct VhostId(pub u32);

/// What is to be so in all replicas.
#[derive(Clone, Debug)]
pub enum Change<Q> {
    /// With the exchanges that are always there.
    AddVhost(Arc<str>),
    /// With all that is in it.
    RemoveVhost(VhostId),
    Declare(Declaration),
    Delete {
        vhost: VhostId,
        exchange: Arc<str>,
        if_unused: bool,
    },
    Bind(Binding<Q>),
    Unbind(Binding<Q>),
    /// The queue is gone, and its bindings with it.
    RemoveQueue(Q),
}

/// An exchange as it is asked for.
#[derive(Clone, Debug)]
pub struct Declaration {
    pub vhost: VhostId,
    pub name: Arc<str>,
    /// The type's name.
    pub kind: Arc<str>,
    pub is_durable: bool,
    /// Deleted with the last binding from it.
    pub is_auto_delete: bool,
    /// Only exchanges publish to it.
    pub is_internal: bool,
    pub arguments: Arguments,
}

/// A binding is its source, destination, key and arguments: one that is equal in all four is the same.
#[derive(Clone, Debug)]
pub struct Binding<Q> {
    pub vhost: VhostId,
    pub source: Arc<str>,
    pub destination: End<Q>,
    pub key: Arc<[u8]>,
    pub arguments: Arguments,
}

/// What a binding leads to.
#[derive(Clone, Debug)]
pub enum End<Q> {
    /// It is known by `queue`; what is said with its first binding holds for all.
    Queue {
        queue: Q,
        name: Arc<str>,
        is_durable: bool,
    },
    Exchange(Arc<str>),
}

/// What followed on a change.
#[derive(Debug)]
pub struct Applied<Q> {
    /// False: it was so already.
    pub is_changed: bool,
    /// Exchanges that are gone, the one that was named included.
    pub exchanges: Vec<Declaration>,
    /// Bindings that are gone, the one that was named included, and whether each was durable.
    pub bindings: Vec<(Binding<Q>, bool)>,
}

impl<Q> Applied<Q> {
    pub(super) fn unchanged() -> Self {
        Applied { is_changed: false, exchanges: Vec::new(), bindings: Vec::new() }
    }

    pub(super) fn changed() -> Self {
        Applied { is_changed: true, ..Applied::unchanged() }
    }
}

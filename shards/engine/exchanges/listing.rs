//! What is there?
//!
//! An index stays the same while what is there does, so that a listing can pause between two. Exchanges come before what is bound to
//! them: told again in this order, as changes, they make what is there.

use std::hash::Hash;

use super::{Binding, Bound, Declaration, Destination, End, Exchanges, VhostId};

impl<Q: Copy + Eq + Hash> Exchanges<Q> {
    pub fn exchange_count(&self) -> usize {
        self.exchanges.count()
    }

    pub fn binding_count(&self) -> usize {
        self.bindings.count()
    }

    /// Bytes that all of it takes, about. It is peers who choose names, keys and arguments, so this is to be bounded.
    pub fn size(&self) -> usize {
        self.size
    }

    /// Above the indices of all exchanges.
    pub fn exchange_index_end(&self) -> usize {
        self.exchanges.index_end() as usize
    }

    pub fn exchange_at(&self, index: usize) -> Option<&Declaration> {
        let index = u32::try_from(index).ok().filter(|index| self.exchanges.is_taken(*index))?;
        Some(&self.exchanges[index].declaration)
    }

    /// Above the indices of all bindings.
    pub fn binding_index_end(&self) -> usize {
        self.bindings.index_end() as usize
    }

    /// A binding, and whether it is durable.
    pub fn binding_at(&self, index: usize) -> Option<(Binding<Q>, bool)> {
        let index = u32::try_from(index).ok().filter(|index| self.bindings.is_taken(*index))?;
        Some(self.view(&self.bindings[index]))
    }

    /// The exchanges that outlive a restart. Those that are always there are among them.
    pub fn durable_exchanges(&self) -> impl Iterator<Item = &Declaration> {
        let all = self.exchanges.iter().map(|(_, exchange)| &exchange.declaration);
        all.filter(|declaration| declaration.is_durable)
    }

    /// The bindings that outlive a restart.
    pub fn durable_bindings(&self) -> impl Iterator<Item = Binding<Q>> {
        let all = self.bindings.iter().map(|(_, bound)| self.view(bound));
        all.filter(|(_, is_durable)| *is_durable).map(|(binding, _)| binding)
    }

    /// The bindings from an exchange.
    pub fn bindings_from(&self, vhost: VhostId, exchange: &str) -> impl Iterator<Item = (Binding<Q>, bool)> {
        let exchange = self.find(vhost, exchange).map(|index| &self.exchanges[index]);
        let from = exchange.map_or(&[][..], |exchange| &exchange.from);
        from.iter().map(|index| self.view(&self.bindings[*index]))
    }

    /// The bindings to an exchange.
    pub fn bindings_to(&self, vhost: VhostId, exchange: &str) -> impl Iterator<Item = (Binding<Q>, bool)> {
        let exchange = self.find(vhost, exchange).map(|index| &self.exchanges[index]);
        let to = exchange.map_or(&[][..], |exchange| &exchange.to);
        to.iter().map(|index| self.view(&self.bindings[*index]))
    }

    /// The bindings to a queue.
    pub fn bindings_to_queue(&self, queue: Q) -> impl Iterator<Item = (Binding<Q>, bool)> {
        let queue = self.find_queue(queue).map(|index| &self.queues[index]);
        let to = queue.map_or(&[][..], |queue| &queue.to);
        to.iter().map(|index| self.view(&self.bindings[*index]))
    }

    fn view(&self, bound: &Bound) -> (Binding<Q>, bool) {
        let source = &self.exchanges[bound.source].declaration;
        let (destination, is_durable) = match bound.destination {
            Destination::Queue(index) => {
                let queue = &self.queues[index];
                let (name, is_durable) = (queue.name.clone(), queue.is_durable);
                (End::Queue { queue: queue.queue, name, is_durable }, is_durable)
            }
            Destination::Exchange(index) => {
                let declaration = &self.exchanges[index].declaration;
                (End::Exchange(declaration.name.clone()), declaration.is_durable)
            }
        };
        let (key, arguments) = (bound.key.clone(), bound.arguments.clone());
        let binding =
            Binding { vhost: source.vhost, source: source.name.clone(), destination, key, arguments };
        (binding, source.is_durable && is_durable)
    }
}

//! How does a message of the broker's own making (a dead letter, a moved message, an answer of management) get into its queue?
//!
//! As a producer's does, but nobody waits for what becomes of it. To a queue elsewhere it goes as [`Mail::Forward`], against a
//! window of its own: who makes many of them asks [`may_route`](Shard::may_route) first, and waits.

use corelane_engine::Origin;
use corelane_mailbox::Lane;

use crate::Shard;
use crate::address::Address;
use crate::mail::{ForwardedMessage, Mail, PublishOutcome, Refusal};
use crate::message::Message;
use crate::publish::Arrival;

impl Shard {
    /// Whether there is room on the way to this address. What is routed nevertheless goes, too.
    pub(crate) fn may_route(&self, address: &str) -> bool {
        match Address::parse(address) {
            Address::Queue(name) => {
                let home = self.home_of(&name);
                home == self.index || self.peers.may_forward(home)
            }
            Address::Unsupported | Address::Invalid => true,
        }
    }

    /// Puts a message into the queue of this address, here or elsewhere. A message that cannot be stored is dropped and counted;
    /// it is an error only if that is known at once.
    pub(crate) fn route_internal(
        &mut self,
        now: u64,
        address: &str,
        message: Message,
    ) -> Result<(), PublishOutcome> {
        let Address::Queue(name) = Address::parse(address) else {
            self.buffers.give(message.into_bytes());
            self.counters.count_forward_refused(PublishOutcome::NoAddress);
            return Err(PublishOutcome::NoAddress);
        };
        let home = self.home_of(&name);
        if home == self.index {
            return self.store_internal(now, &name, message);
        }
        self.counters.messages_forwarded += 1;
        let message = ForwardedMessage { queue: name.into(), message };
        self.peers.forward(&mut self.effects, home, message);
        Ok(())
    }

    pub(crate) fn on_forward(&mut self, now: u64, from: usize, messages: Vec<ForwardedMessage>) {
        let count = messages.len();
        let mut bytes = 0;
        for ForwardedMessage { queue, message } in messages {
            bytes += message.memory();
            // Counted where it fails; nobody waits for it.
            let _ = self.store_internal(now, &queue, message);
        }
        self.post(from, Lane::Control, Mail::Forwarded { count, bytes });
    }

    fn store_internal(&mut self, now: u64, name: &str, message: Message) -> Result<(), PublishOutcome> {
        let outcome = match self.find_or_create(now, name) {
            Ok(queue) => {
                let origin = Origin(0);
                let arrival = Arrival { message, origin, user: None, producer: None, transaction: None };
                self.store(now, queue, arrival)
            }
            Err(refusal) => {
                self.buffers.give(message.into_bytes());
                match refusal {
                    Refusal::NotFound | Refusal::InvalidFilter => PublishOutcome::NoQueue,
                    Refusal::ResourceLimit => PublishOutcome::Full,
                }
            }
        };
        if outcome == PublishOutcome::Stored {
            return Ok(());
        }
        self.counters.count_forward_refused(outcome);
        Err(outcome)
    }
}

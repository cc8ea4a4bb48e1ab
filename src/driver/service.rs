//! What does a pump drive?
//!
//! A shard; or something that takes the same events and asks for the same effects, like the yardsticks in `baseline`.

use corelane_shard::{ConnectionSlot, Effect, Event, Shard, Socket, Turn};

/// The owner of all connections of a core. Its methods are those of [`Shard`], where they are explained.
pub trait Service {
    fn apply(&mut self, now: u64, event: Event<'_>);
    fn finish_turn(&mut self, now: u64) -> Turn;
    fn take_effects(&mut self, into: &mut Vec<Effect>);
    fn take_output(&mut self, connection: ConnectionSlot) -> Vec<u8>;
    fn release(&mut self, connection: ConnectionSlot, socket: Socket) -> bool;
}

impl Service for Shard {
    fn apply(&mut self, now: u64, event: Event<'_>) {
        Shard::apply(self, now, event);
    }

    fn finish_turn(&mut self, now: u64) -> Turn {
        Shard::finish_turn(self, now)
    }

    fn take_effects(&mut self, into: &mut Vec<Effect>) {
        Shard::take_effects(self, into);
    }

    fn take_output(&mut self, connection: ConnectionSlot) -> Vec<u8> {
        Shard::take_output(self, connection)
    }

    fn release(&mut self, connection: ConnectionSlot, socket: Socket) -> bool {
        Shard::release(self, connection, socket)
    }
}

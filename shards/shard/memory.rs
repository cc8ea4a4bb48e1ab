//! How much memory do this shard's messages take, and is there room for more?
//!
//! Counted are the messages in queues, each with its entry; a body that several entries share is counted once. Apart from them stand
//! messages of which frames are still to come. A message that is in the journal only counts as its entry; what of that is read again may
//! go beyond the limit, by a part of it ([`READ_SHARE`](crate::limits::READ_SHARE)). What travels to another shard is counted there when it is stored.

use corelane_engine::Stored;

use crate::Shard;
use crate::connection::Connection;
use crate::event::ConnectionSlot;
use crate::limits::{ANSWERS_MEMORY_MAX, ASSEMBLY_SHARE, READ_SHARE};
use crate::message::Message;

/// Memory of an entry whose message is not in memory.
pub(crate) const AWAY_BYTES: u64 = 64;

impl Shard {
    /// Up to where memory may be used for this message. Whoever asks why the memory is full gets an answer although it is.
    fn memory_max_for(&self, message: &Message) -> u64 {
        if message.is_answer { self.memory_max.saturating_add(ANSWERS_MEMORY_MAX) } else { self.memory_max }
    }

    /// The same as [`Self::take_memory`]. A message that the broker has already, in another queue, may have been read for that.
    #[inline]
    pub(crate) fn take_memory_for(&mut self, message: &Message, is_new: bool) -> bool {
        if is_new || self.durability.is_none() {
            return self.take_memory(message);
        }
        let memory_max = self.memory_max_for(message).saturating_add(self.memory_max / READ_SHARE);
        let fits = self.memory_used + message.memory() <= memory_max;
        self.memory_used += if fits { message.memory() } else { 0 };
        fits
    }

    /// Whether messages that are read to be written elsewhere had better wait until more is written.
    pub(crate) fn is_short_of_memory(&self) -> bool {
        self.memory_used > self.memory_max / 4 * 3
    }

    /// Whether the memory of answers is used up, too.
    pub(crate) fn has_no_memory_for_answers(&self) -> bool {
        self.memory_used >= self.memory_max.saturating_add(ANSWERS_MEMORY_MAX)
    }

    /// What messages may take more than they do.
    pub(crate) fn memory_left(&self) -> u64 {
        self.memory_max.saturating_sub(self.memory_used)
    }

    /// Accounts for an entry that is about to be enqueued; false if there is no room for it.
    pub(crate) fn take_memory(&mut self, message: &Message) -> bool {
        let memory = message.memory();
        let fits = self.memory_used + memory <= self.memory_max_for(message);
        self.memory_used += if fits { memory } else { 0 };
        fits
    }

    /// An entry has left its queue for good, or was not enqueued after all.
    pub(crate) fn forget(&mut self, message: Message) {
        self.memory_used -= message.memory();
        self.dissolve(message);
    }

    /// The same, wherever its message is.
    pub(crate) fn forget_stored(&mut self, stored: Stored<Message>) {
        match stored {
            Stored::Here(message) => self.forget(message),
            Stored::Away(_) => self.memory_used -= AWAY_BYTES,
        }
    }

    /// An entry has left its queue and goes elsewhere: the message, as it can travel.
    pub(crate) fn taken_out(&mut self, message: Message) -> Message {
        self.memory_used -= message.memory();
        let (message, freed) = message.taken_out();
        self.memory_used -= freed;
        message
    }

    /// An entry that shared its body, and is still counted, has it alone from now on.
    pub(crate) fn alone(&mut self, message: Message) -> Message {
        let message = self.taken_out(message);
        self.memory_used += message.memory();
        message
    }

    /// Makes the message one that several entries of this shard can have, and accounts for its body. What it was if there is no room.
    pub(crate) fn share(&mut self, message: Message) -> Result<Message, Message> {
        let memory = message.body_memory();
        if self.memory_used + memory > self.memory_max_for(&message) {
            return Err(message);
        }
        self.memory_used += memory;
        Ok(message.shared())
    }

    /// Gives up a message that is no entry.
    pub(crate) fn dissolve(&mut self, message: Message) {
        let (freed, bytes) = message.dissolved(&mut self.buffers);
        self.memory_used -= freed;
        if let Some(bytes) = bytes {
            self.buffers.give(bytes);
        }
    }

    /// What messages in parts may take. It is memory apart: a message for a full queue is refused when it is whole, and its link goes on.
    /// One that is as large as any may be has room, if there are no others.
    fn assembly_max(&self) -> u64 {
        let largest = self.message_size_max().min(self.memory_max);
        (self.memory_max / ASSEMBLY_SHARE).max(largest)
    }

    /// Lets a connection join no more of messages in parts than there is memory for.
    pub(crate) fn bound_assembly(&mut self, slot: ConnectionSlot) {
        let free = self.assembly_max().saturating_sub(self.memory_assembled);
        if let Some(connection) = self.connections.get_mut(slot) {
            let size_max = connection.assembled + usize::try_from(free).unwrap_or(usize::MAX / 2);
            connection.protocol.bound_assembly(size_max);
        }
    }

    /// What a connection that leaves has of them is another shard's business.
    pub(crate) fn forget_assembly(&mut self, connection: &mut Connection) {
        self.memory_assembled -= std::mem::take(&mut connection.assembled) as u64;
    }

    /// Accounts for what a connection has of messages in parts.
    pub(crate) fn count_assembly(&mut self, slot: ConnectionSlot) {
        let Some(connection) = self.connections.get_mut(slot) else { return };
        let assembled = if connection.closing { 0 } else { connection.protocol.assembled_size() };
        let before = std::mem::replace(&mut connection.assembled, assembled);
        self.memory_assembled = self.memory_assembled - before as u64 + assembled as u64;
    }
}

//! What is on its way to each other shard, and how much may be?
//!
//! Messages, deliveries and settlements gather per target shard during a turn and leave as one mail each. Handoffs are sent
//! against a window: at most [`HANDOFF_WINDOW`] of them, and [`HANDOFF_WINDOW_BYTES`], to one shard are unanswered (but for the one
//! that reaches it); beyond it the publishing connections are
//! held and served again in the order in which they came to a stop. Control mail keeps its order with the settlements before it.

use std::collections::VecDeque;

use corelane_mailbox::Lane;

use crate::effect::Effect;
use crate::event::ConnectionSlot;
use crate::limits::{
    FORWARD_WINDOW, FORWARD_WINDOW_BYTES, HANDOFF_BATCH_MAX, HANDOFF_WINDOW, HANDOFF_WINDOW_BYTES,
};
use crate::mail::{ForwardedMessage, Handoff, HandoffMessage, Mail, RemoteDelivery, Renewal, Settlement};

/// Vectors of each kind kept for reuse.
const SPARE_MAX: usize = 64;

/// The other shards.
#[derive(Debug)]
pub(crate) struct Peers {
    peers: Vec<PeerShard>,
    /// Peers with something gathered, each once.
    gathered: Vec<usize>,
    /// Each comes back with its answers.
    spare_handoffs: Vec<Handoff>,
    spare_deliveries: Vec<Vec<RemoteDelivery>>,
    spare_settlements: Vec<Vec<Settlement>>,
}

#[derive(Debug, Default)]
struct PeerShard {
    unanswered: usize,
    unanswered_bytes: u64,
    held: VecDeque<ConnectionSlot>,
    forwards_unanswered: usize,
    forwards_unanswered_bytes: u64,
    handoff: Handoff,
    forwards: Vec<ForwardedMessage>,
    deliveries: Vec<RemoteDelivery>,
    settlements: Vec<Settlement>,
    renewals: Vec<Renewal>,
    is_gathered: bool,
}

impl Peers {
    pub(crate) fn new(shards: usize) -> Self {
        Peers {
            peers: (0..shards).map(|_| PeerShard::default()).collect(),
            gathered: Vec::new(),
            spare_handoffs: Vec::new(),
            spare_deliveries: Vec::new(),
            spare_settlements: Vec::new(),
        }
    }

    pub(crate) fn has_room(&self, to: usize) -> bool {
        let peer = &self.peers[to];
        peer.unanswered < HANDOFF_WINDOW && peer.unanswered_bytes < HANDOFF_WINDOW_BYTES
    }

    pub(crate) fn hand_off(&mut self, effects: &mut Vec<Effect>, to: usize, message: HandoffMessage) {
        self.note_handed_off(to, message.message.memory());
        let peer = &mut self.peers[to];
        peer.handoff.messages.push(message);
        let full = peer.handoff.messages.len() >= HANDOFF_BATCH_MAX;
        self.gathered(to);
        if full {
            self.post_messages(effects, to);
        }
    }

    /// One more message of so many bytes is unanswered.
    pub(crate) fn note_handed_off(&mut self, to: usize, bytes: u64) {
        let peer = &mut self.peers[to];
        peer.unanswered += 1;
        peer.unanswered_bytes += bytes;
    }

    /// Whether a message of the broker's own making may go there now. Who goes on nevertheless makes the window larger.
    pub(crate) fn may_forward(&self, to: usize) -> bool {
        let peer = &self.peers[to];
        peer.forwards_unanswered < FORWARD_WINDOW && peer.forwards_unanswered_bytes < FORWARD_WINDOW_BYTES
    }

    pub(crate) fn forward(&mut self, effects: &mut Vec<Effect>, to: usize, message: ForwardedMessage) {
        let peer = &mut self.peers[to];
        peer.forwards_unanswered += 1;
        peer.forwards_unanswered_bytes += message.message.memory();
        peer.forwards.push(message);
        let full = peer.forwards.len() >= HANDOFF_BATCH_MAX;
        self.gathered(to);
        if full {
            self.post_messages(effects, to);
        }
    }

    pub(crate) fn forwards_answered(&mut self, to: usize, count: usize, bytes: u64) {
        let peer = &mut self.peers[to];
        peer.forwards_unanswered -= count;
        peer.forwards_unanswered_bytes -= bytes;
    }

    pub(crate) fn deliver(&mut self, effects: &mut Vec<Effect>, to: usize, delivery: RemoteDelivery) {
        self.peers[to].deliveries.push(delivery);
        let full = self.peers[to].deliveries.len() >= HANDOFF_BATCH_MAX;
        self.gathered(to);
        if full {
            self.post_messages(effects, to);
        }
    }

    pub(crate) fn settle(&mut self, to: usize, settlement: Settlement) {
        self.peers[to].settlements.push(settlement);
        self.gathered(to);
    }

    pub(crate) fn renew(&mut self, to: usize, renewal: Renewal) {
        self.peers[to].renewals.push(renewal);
        self.gathered(to);
    }

    /// Mail that must not overtake the deliveries before it.
    pub(crate) fn behind_deliveries(&mut self, effects: &mut Vec<Effect>, to: usize, mail: Mail) {
        self.post_messages(effects, to);
        effects.push(Effect::Post { to, lane: Lane::Handoff, mail });
    }

    /// Control mail that must not overtake the settlements before it.
    pub(crate) fn control(&mut self, effects: &mut Vec<Effect>, to: usize, mail: Mail) {
        self.post_settlements(effects, to);
        effects.push(Effect::Post { to, lane: Lane::Control, mail });
    }

    /// Posts all that has gathered.
    pub(crate) fn post_batches(&mut self, effects: &mut Vec<Effect>) {
        let mut gathered = std::mem::take(&mut self.gathered);
        for to in gathered.drain(..) {
            self.peers[to].is_gathered = false;
            self.post_settlements(effects, to);
            self.post_messages(effects, to);
            // One that was settled since is renewed in vain.
            if !self.peers[to].renewals.is_empty() {
                let mail = Mail::Renew(std::mem::take(&mut self.peers[to].renewals));
                effects.push(Effect::Post { to, lane: Lane::Control, mail });
            }
        }
        self.gathered = gathered;
    }

    /// `count` handoffs of so many bytes were answered.
    pub(crate) fn answered(&mut self, to: usize, count: usize, bytes: u64) {
        let peer = &mut self.peers[to];
        assert!(
            peer.unanswered >= count && peer.unanswered_bytes >= bytes,
            "what is answered was handed off"
        );
        peer.unanswered -= count;
        peer.unanswered_bytes -= bytes;
    }

    pub(crate) fn hold(&mut self, to: usize, connection: ConnectionSlot) {
        self.peers[to].held.push_back(connection);
    }

    /// The next held connection, while there is room.
    pub(crate) fn next_held(&mut self, to: usize) -> Option<ConnectionSlot> {
        if self.has_room(to) { self.peers[to].held.pop_front() } else { None }
    }

    pub(crate) fn reuse_handoff(&mut self, emptied: Handoff) {
        debug_assert!(emptied.messages.is_empty() && emptied.answers.is_empty());
        if self.spare_handoffs.len() < SPARE_MAX && emptied.messages.capacity() <= 2 * HANDOFF_BATCH_MAX {
            self.spare_handoffs.push(emptied);
        }
    }

    pub(crate) fn reuse_deliveries(&mut self, emptied: Vec<RemoteDelivery>) {
        keep(&mut self.spare_deliveries, emptied);
    }

    pub(crate) fn reuse_settlements(&mut self, emptied: Vec<Settlement>) {
        keep(&mut self.spare_settlements, emptied);
    }

    fn gathered(&mut self, to: usize) {
        if !self.peers[to].is_gathered {
            self.peers[to].is_gathered = true;
            self.gathered.push(to);
        }
    }

    fn post_settlements(&mut self, effects: &mut Vec<Effect>, to: usize) {
        if !self.peers[to].settlements.is_empty() {
            let fresh = self.spare_settlements.pop().unwrap_or_default();
            let full = std::mem::replace(&mut self.peers[to].settlements, fresh);
            effects.push(Effect::Post { to, lane: Lane::Control, mail: Mail::Settle(full) });
        }
    }

    fn post_messages(&mut self, effects: &mut Vec<Effect>, to: usize) {
        if !self.peers[to].handoff.messages.is_empty() {
            let fresh = self.spare_handoffs.pop().unwrap_or_default();
            let full = std::mem::replace(&mut self.peers[to].handoff, fresh);
            effects.push(Effect::Post { to, lane: Lane::Handoff, mail: Mail::Handoff(full) });
        }
        if !self.peers[to].forwards.is_empty() {
            let full = std::mem::take(&mut self.peers[to].forwards);
            effects.push(Effect::Post { to, lane: Lane::Handoff, mail: Mail::Forward(full) });
        }
        if !self.peers[to].deliveries.is_empty() {
            let fresh = self.spare_deliveries.pop().unwrap_or_default();
            let full = std::mem::replace(&mut self.peers[to].deliveries, fresh);
            effects.push(Effect::Post { to, lane: Lane::Handoff, mail: Mail::Deliver(full) });
        }
    }
}

fn keep<T>(spare: &mut Vec<Vec<T>>, emptied: Vec<T>) {
    debug_assert!(emptied.is_empty());
    if spare.len() < SPARE_MAX && emptied.capacity() <= 2 * HANDOFF_BATCH_MAX {
        spare.push(emptied);
    }
}

#[cfg(test)]
mod tests {
    use corelane_protocol::amqp10::LinkId;

    use super::*;
    use crate::mail::{ConnectionId, HandoffTarget, LinkRef};
    use crate::message::Message;

    fn posted(peers: &mut Peers) -> Handoff {
        let link = LinkRef { connection: ConnectionId(1), link: LinkId(0), attachment: 1 };
        let message = Message::new(vec![0x00, 0x53, 0x75, 0xa0, 0x00], 0).expect("an empty data section");
        let target = HandoffTarget::Name("orders".into());
        let mut effects = Vec::new();
        peers.hand_off(
            &mut effects,
            1,
            HandoffMessage {
                link,
                delivery_id: 0,
                settled: false,
                user: None,
                transaction: None,
                target,
                message,
            },
        );
        peers.post_batches(&mut effects);
        match effects.pop() {
            Some(Effect::Post { mail: Mail::Handoff(handoff), .. }) => handoff,
            other => panic!("expected one handoff, found {other:?}"),
        }
    }

    #[test]
    fn what_a_handoff_travels_in_comes_back_and_goes_out_again() {
        let mut peers = Peers::new(2);
        let mut used = Vec::new();
        for _ in 0..6 {
            let mut handoff = posted(&mut peers);
            used.push(handoff.messages.as_ptr());
            handoff.messages.clear();
            peers.reuse_handoff(handoff);
        }
        // One is always being filled.
        assert_eq!(used[2..], [used[0], used[1], used[0], used[1]]);
    }
}

//! What is known of one session, and how does it begin and end?
//!
//! `incoming_window ≤ configured incoming window`: what the peer may still send; any flow we write renews it.
//! `remote_incoming_window`: what we may still send. Both count transfer frames, not bytes or messages (§2.5.6).

use corelane_wire::amqp10::{Begin, End, Error};
use slab::Slab;

use crate::ids::SessionId;
use crate::serial;
use crate::unsettled::Unsettled;

use super::connection::{Connection, Queued};
use super::event::{DetachCause, ErrorSpec, Event};
use super::fault::{self, Failure, Fault};
use super::link::{DetachSent, Detached, LinkState};
use super::settlement::{Arrived, Run, Sent};

/// What we say we could send. We have nothing to say about that, so it is the largest number that every peer takes.
const OUTGOING_WINDOW: u32 = i32::MAX as u32;

/// Marks an unused place in a table of slots.
pub(super) const NO_LINK: u32 = u32::MAX;

/// Marks an unused channel.
pub(super) const NO_SESSION: u16 = u16::MAX;

#[derive(Debug)]
pub(super) struct Session {
    pub(super) state: SessionState,
    /// The channel of the frames we read, from the peer's begin to its end.
    pub(super) remote_channel: Option<u16>,
    pub(super) remote_handle_max: u32,

    pub(super) next_outgoing_id: u32,
    pub(super) remote_incoming_window: u32,
    pub(super) next_delivery_id: u32,
    pub(super) sent: Unsettled<Sent>,
    /// Entries of `sent` whose links are gone.
    pub(super) sent_orphans: usize,
    /// Links with an abort that waits for the window.
    pub(super) aborts_due: Vec<u32>,

    pub(super) next_incoming_id: u32,
    pub(super) incoming_window: u32,
    pub(super) last_delivery_id: Option<u32>,
    pub(super) arrived: Unsettled<Arrived>,

    /// Our handles, and the slots of all links of this session.
    pub(super) local_handles: Slab<u32>,
    /// Slots by the peer's handles.
    pub(super) remote_handles: Vec<u32>,
    /// Links that we attached and the peer has not.
    pub(super) attaching: usize,

    /// Dispositions that wait for `finish_turn` to become one frame.
    pub(super) run_as_receiver: Option<Run>,
    pub(super) run_as_sender: Option<Run>,
    pub(super) flow_due: bool,
    /// It stands in the connection's list for `finish_turn`.
    pub(super) dirty: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum SessionState {
    /// Our begin is written, the peer's has not come.
    BeginSent,
    Mapped,
    /// Our end is written, the peer's has not come: all else it sends is passed over. `told`: the caller knows.
    EndSent {
        told: bool,
    },
}

impl Session {
    fn new(serial_first: u32, incoming_window: u32) -> Self {
        Self {
            state: SessionState::BeginSent,
            remote_channel: None,
            remote_handle_max: u32::MAX,
            next_outgoing_id: serial_first,
            remote_incoming_window: 0,
            next_delivery_id: serial_first,
            sent: Unsettled::new(),
            sent_orphans: 0,
            aborts_due: Vec::new(),
            next_incoming_id: 0,
            incoming_window,
            last_delivery_id: None,
            arrived: Unsettled::new(),
            local_handles: Slab::new(),
            remote_handles: Vec::new(),
            attaching: 0,
            run_as_receiver: None,
            run_as_sender: None,
            flow_due: false,
            dirty: false,
        }
    }

    fn begin_received(&mut self, channel: u16, begin: &Begin<'_>) {
        self.remote_channel = Some(channel);
        self.remote_handle_max = begin.handle_max;
        self.next_incoming_id = begin.next_outgoing_id;
        self.remote_incoming_window = begin.incoming_window;
        if self.state == SessionState::BeginSent {
            self.state = SessionState::Mapped;
        }
    }

    /// The slot of the link with this handle of the peer.
    #[inline]
    pub(super) fn link_of(&self, handle: u32) -> Option<usize> {
        let slot = *self.remote_handles.get(handle as usize)?;
        (slot != NO_LINK).then_some(slot as usize)
    }

    /// The caller keeps `handle` within the negotiated maximum, which bounds the table.
    pub(super) fn map_handle(&mut self, handle: u32, slot: usize) {
        let index = handle as usize;
        if self.remote_handles.len() <= index {
            self.remote_handles.resize(index + 1, NO_LINK);
        }
        self.remote_handles[index] = slot as u32;
    }

    /// Takes over the peer's view of our window; whether it was used up and is open now.
    pub(super) fn window_received(&mut self, next_incoming_id: Option<u32>, window: u32, first: u32) -> bool {
        // AMQP 1.0 §2.5.6: a peer that has not seen our begin counts from our first transfer number.
        let seen = next_incoming_id.unwrap_or(first);
        let closed = self.remote_incoming_window == 0;
        self.remote_incoming_window = serial::remaining(seen, window, self.next_outgoing_id);
        closed && self.remote_incoming_window > 0
    }

    #[inline]
    pub(super) fn transfer_sent(&mut self) {
        self.remote_incoming_window -= 1;
        self.next_outgoing_id = self.next_outgoing_id.wrapping_add(1);
    }

    pub(super) fn outgoing_window(&self) -> u32 {
        OUTGOING_WINDOW
    }
}

impl Connection {
    /// Begins a session. `None`: the connection is not open for it, or no channel is left.
    pub fn begin(&mut self) -> Option<SessionId> {
        if !self.may_send() {
            return None;
        }
        let slot = self.insert_session()?;
        self.write_begin(slot, None);
        Some(SessionId(slot as u32))
    }

    /// Ends a session with all its links. [`Ended`](Event::Ended) follows with the peer's answer.
    pub fn end(&mut self, session: SessionId, error: Option<ErrorSpec<'_>>) {
        let slot = session.slot();
        let Some(entry) = self.sessions.get(slot) else { return };
        if let SessionState::EndSent { .. } = entry.state {
            return;
        }
        self.write_runs(slot);
        self.write_end(slot, error.map(ErrorSpec::into_error));
        self.sessions[slot].state = SessionState::EndSent { told: false };
        self.suspend_links(slot);
    }

    pub(super) fn handle_begin<'a>(
        &mut self,
        channel: u16,
        begin: &Begin<'a>,
    ) -> Result<Option<Event<'a>>, Failure> {
        // AMQP 1.0 §2.7.1: a channel above the announced maximum is a framing error.
        if channel > self.config.channel_max {
            return Err(fault::CHANNEL_TOO_HIGH.on_connection());
        }
        if self.session_of(channel).is_some() {
            return Err(fault::CHANNEL_IN_USE.on_connection());
        }
        let (slot, ours) = match begin.remote_channel {
            Some(local) => {
                let slot = usize::from(local);
                let awaited = self.sessions.get(slot).is_some_and(|session| session.remote_channel.is_none());
                if !awaited {
                    return Err(fault::REMOTE_CHANNEL_UNKNOWN.on_connection());
                }
                (slot, true)
            }
            None => (self.insert_session().ok_or(fault::CHANNELS_EXHAUSTED.on_connection())?, false),
        };
        let index = usize::from(channel);
        if self.channels.len() <= index {
            self.channels.resize(index + 1, NO_SESSION);
        }
        self.channels[index] = slot as u16;
        self.sessions[slot].begin_received(channel, begin);
        if !ours {
            self.write_begin(slot, Some(channel));
        }
        // The caller ended it before the answer came: it hears of the end.
        if self.sessions[slot].state != SessionState::Mapped {
            return Ok(None);
        }
        Ok(Some(Event::SessionBegun { session: SessionId(slot as u32), ours }))
    }

    /// The peer's end. Its links were told of before.
    pub(super) fn handle_end<'a>(&mut self, slot: usize, end: &End<'a>) -> Option<Event<'a>> {
        let told = match self.sessions[slot].state {
            SessionState::BeginSent | SessionState::Mapped => {
                self.write_runs(slot);
                self.write_end(slot, None);
                false
            }
            SessionState::EndSent { told } => told,
        };
        self.remove_session(slot);
        (!told).then_some(Event::Ended { session: SessionId(slot as u32), error: end.error })
    }

    /// Ends a session for a fault of the peer.
    pub(super) fn fail_session(&mut self, slot: usize, fault: Fault) {
        if self.sessions[slot].state != SessionState::Mapped {
            return;
        }
        self.write_runs(slot);
        self.write_end(slot, Some(fault.to_error()));
        self.retire_links(slot, DetachCause::SessionEnded);
        self.sessions[slot].state = SessionState::EndSent { told: true };
        self.queue.push_back(Queued::Ended { session: slot, fault: Some(fault) });
    }

    /// Whether a link of this session is still to be told of.
    pub(super) fn has_links(&self, slot: usize) -> bool {
        !self.sessions[slot].local_handles.is_empty()
    }

    /// Tells of all links of a session. Those that were told of before are freed now, the others with their event.
    pub(super) fn retire_links(&mut self, slot: usize, cause: DetachCause) {
        let links: Vec<usize> = self.links_of(slot).collect();
        for &link in &links {
            self.retire_link(link, cause);
        }
        let session = &mut self.sessions[slot];
        session.sent = Unsettled::new();
        session.sent_orphans = 0;
        session.arrived = Unsettled::new();
        session.remote_handles = Vec::new();
        session.aborts_due = Vec::new();
        session.attaching = 0;
        for link in links {
            self.reap_link(link);
        }
    }

    fn retire_link(&mut self, slot: usize, cause: DetachCause) {
        self.discard_partial(slot);
        let link = &mut self.links[slot];
        let told = match link.state {
            LinkState::AttachSent
            | LinkState::AttachReceived { .. }
            | LinkState::Attached
            | LinkState::DetachSent(DetachSent::Asked)
            | LinkState::Detached(Detached::Untold) => false,
            LinkState::DetachSent(DetachSent::Fault) => {
                link.state = LinkState::Detached(Detached::Told);
                true
            }
            LinkState::Detached(Detached::Queued | Detached::Told) => true,
        };
        link.forget_deliveries();
        link.initiated = false;
        link.remote_handle = None;
        if !told {
            link.state = LinkState::Detached(Detached::Queued);
            self.queue.push_back(Queued::Detached { link: slot, closed: false, cause, fault: None });
        }
    }

    /// Marks all links of a session that the caller ended; they are told of with the peer's answer.
    pub(super) fn suspend_links(&mut self, slot: usize) {
        let links: Vec<usize> = self.links_of(slot).collect();
        for link in links {
            let link = &mut self.links[link];
            match link.state {
                LinkState::AttachSent
                | LinkState::AttachReceived { .. }
                | LinkState::Attached
                | LinkState::DetachSent(DetachSent::Asked) => {
                    link.state = LinkState::Detached(Detached::Untold)
                }
                LinkState::DetachSent(DetachSent::Fault) | LinkState::Detached(_) => {}
            }
        }
    }

    fn links_of(&self, slot: usize) -> impl Iterator<Item = usize> {
        self.sessions[slot].local_handles.iter().map(|(_, &link)| link as usize)
    }

    pub(super) fn remove_session(&mut self, slot: usize) {
        debug_assert!(!self.has_links(slot), "links were retired");
        let session = self.sessions.remove(slot);
        if let Some(channel) = session.remote_channel {
            self.channels[usize::from(channel)] = NO_SESSION;
        }
    }

    #[inline]
    pub(super) fn session_of(&self, channel: u16) -> Option<usize> {
        let slot = *self.channels.get(usize::from(channel))?;
        (slot != NO_SESSION).then_some(usize::from(slot))
    }

    /// Notes that `finish_turn` has something to write for this session.
    #[inline]
    pub(super) fn mark_dirty(&mut self, slot: usize) {
        let session = &mut self.sessions[slot];
        if !session.dirty {
            session.dirty = true;
            self.dirty.push(slot as u32);
        }
    }

    /// A session in a free slot, whose number is our channel.
    fn insert_session(&mut self) -> Option<usize> {
        // AMQP 1.0 §2.7.1: neither side uses a channel above the other's maximum; and ours bounds what we hold.
        let channel_max = self.config.channel_max.min(self.peer.channel_max).min(NO_SESSION - 1);
        if self.sessions.vacant_key() > usize::from(channel_max) {
            return None;
        }
        Some(self.sessions.insert(Session::new(self.config.serial_first, self.config.incoming_window)))
    }

    fn write_begin(&mut self, slot: usize, remote_channel: Option<u16>) {
        let session = &self.sessions[slot];
        let begin = Begin {
            remote_channel,
            next_outgoing_id: session.next_outgoing_id,
            incoming_window: session.incoming_window,
            outgoing_window: session.outgoing_window(),
            handle_max: self.config.handle_max,
            ..Begin::default()
        };
        self.write(slot, &begin);
    }

    fn write_end(&mut self, slot: usize, error: Option<Error<'_>>) {
        self.write(slot, &End { error });
    }
}

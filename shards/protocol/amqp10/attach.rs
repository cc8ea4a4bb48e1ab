//! How does a link come to be attached, and how does it end?
//!
//! A link whose slot is taken stands in its session's `local_handles`. Its name stands in `names` from its first frame
//! until it can no longer be stolen.

use corelane_wire::amqp10::{
    Attach, Detach, Encode, Error, FrameKind, Map, Performative, Role, Source, Symbols, TargetArchetype,
    begin_frame, finish_frame,
};

use crate::ids::{LinkId, SessionId};

use super::connection::{Connection, Queued, Step};
use super::event::{AttachAnswer, AttachRequest, DetachCause, ErrorSpec, Event};
use super::fault::{self, Failure, Fault};
use super::limits::LINKS_REFUSED_MAX;
use super::link::{DetachSent, Detached, Epoch, Link, LinkEnd, LinkState, Receiver, Sender};
use super::session::{NO_LINK, SessionState};

impl Connection {
    /// Attaches a link that we send on. `None`: the session is not begun, or no handle is left.
    pub fn attach_sender(&mut self, session: SessionId, request: &AttachRequest<'_>) -> Option<LinkId> {
        let end = LinkEnd::Sender(Sender::new(self.config.serial_first));
        self.attach(session, request, end)
    }

    /// Attaches a link that we receive on. `None`: the session is not begun, or no handle is left.
    pub fn attach_receiver(&mut self, session: SessionId, request: &AttachRequest<'_>) -> Option<LinkId> {
        let size_max = request.max_message_size.unwrap_or(self.config.max_message_size);
        self.attach(session, request, LinkEnd::Receiver(Receiver::new(0, size_max)))
    }

    /// The attach that waits for our answer.
    pub fn pending_attach(&self, link: LinkId) -> Option<Attach<'_>> {
        match &self.links.get(link.slot())?.state {
            LinkState::AttachReceived { body, .. } => decode_attach(body),
            LinkState::AttachSent
            | LinkState::Attached
            | LinkState::DetachSent(_)
            | LinkState::Detached(_) => None,
        }
    }

    /// Answers a peer's attach: the link may be used from here on.
    pub fn accept_attach(&mut self, link: LinkId, answer: &AttachAnswer<'_>) {
        let slot = link.slot();
        let Some((body, flow)) = self.take_pending(slot) else { return };
        let Some(asked) = decode_attach(&body) else { return };
        let link = &mut self.links[slot];
        let session = link.session;
        link.sender_settle_mode = answer.sender_settle_mode.unwrap_or(asked.snd_settle_mode);
        link.receiver_settle_mode = answer.receiver_settle_mode.unwrap_or(asked.rcv_settle_mode);
        if let LinkEnd::Receiver(receiver) = &mut link.end {
            receiver.max_message_size = answer.max_message_size.unwrap_or(self.config.max_message_size);
        }
        let reply = Attach {
            snd_settle_mode: link.sender_settle_mode,
            rcv_settle_mode: link.receiver_settle_mode,
            source: answer.source.or(asked.source.map(|source| answer_source(source, answer))),
            target: asked.target.map(|target| answer_target(target, answer)),
            // AMQP 1.0 §2.6.13: we hold no delivery of an earlier attachment.
            unsettled: asked.unsettled.map(|_| Map::default()),
            offered_capabilities: answer.offered_capabilities,
            properties: answer.properties,
            ..link.attach()
        };
        if write_bounded(&mut self.output, self.peer.max_frame_size, session, &reply) {
            self.links[slot].state = LinkState::Attached;
            if flow {
                self.queue.push_back(Queued::LinkFlow { link: slot });
            }
        } else {
            self.refuse(slot, fault::FRAME_TOO_SMALL.to_error());
        }
    }

    /// Answers a peer's attach without a terminus of ours, and detaches (§2.6.3). [`Detached`](Event::Detached) follows.
    pub fn refuse_attach(&mut self, link: LinkId, error: ErrorSpec<'_>) {
        if self.take_pending(link.slot()).is_some() {
            self.refuse(link.slot(), error.into_error());
        }
    }

    /// Detaches a link, closing it or not. [`Detached`](Event::Detached) follows with the peer's answer.
    pub fn detach(&mut self, link: LinkId, closed: bool, error: Option<ErrorSpec<'_>>) {
        let slot = link.slot();
        let Some(entry) = self.links.get(slot) else { return };
        let error = error.map(ErrorSpec::into_error);
        match entry.state {
            LinkState::AttachReceived { .. } => {
                self.take_pending(slot);
                self.refuse(slot, error.unwrap_or(fault::REFUSED.to_error()));
            }
            LinkState::Attached | LinkState::AttachSent => {
                self.write_runs(entry.session);
                self.write_detach(slot, closed, error);
                self.discard_partial(slot);
                self.unname(slot);
                self.links[slot].state = LinkState::DetachSent(DetachSent::Asked);
            }
            LinkState::DetachSent(_) | LinkState::Detached(_) => {}
        }
    }

    pub(super) fn handle_attach<'a>(
        &mut self,
        session: usize,
        attach: &Attach<'a>,
        body: &'a [u8],
    ) -> Result<Step<'a>, Failure> {
        // AMQP 1.0 §2.7.2: a handle above the announced maximum is a framing error.
        if attach.handle > self.config.handle_max {
            return Err(fault::HANDLE_TOO_HIGH.on_connection());
        }
        // AMQP 1.0 §2.7.3: the handle must not be used for other open links.
        if self.sessions[session].link_of(attach.handle).is_some() {
            return Err(fault::HANDLE_IN_USE.on_session(session));
        }
        if let Some(slot) = self.find_attaching(session, attach) {
            return Ok(self.confirm_attach(session, slot, attach).into());
        }
        // AMQP 1.0 §2.6.1: the link is where it was attached last.
        if let Some(old) = self.find_named(attach.name, ours(attach.role)) {
            self.fail_link(old, fault::STOLEN, DetachCause::Stolen);
            return Ok(Step::Later);
        }
        if self.links.len() >= self.config.links_max + LINKS_REFUSED_MAX {
            return Err(fault::LINKS_REFUSED.on_session(session));
        }
        let full = self.links.len() >= self.config.links_max;
        let end = match attach.role {
            Role::Sender => {
                // A sender that leaves the count out starts at zero.
                let count = attach.initial_delivery_count.unwrap_or(0);
                LinkEnd::Receiver(Receiver::new(count, self.config.max_message_size))
            }
            Role::Receiver => {
                let mut sender = Sender::new(self.config.serial_first);
                sender.max_message_size = attach.max_message_size.unwrap_or(0);
                LinkEnd::Sender(sender)
            }
        };
        let state = LinkState::AttachReceived { body: body.into(), flow: false };
        let slot = self
            .insert_link(session, attach.name, state, end)
            .ok_or(fault::HANDLES_EXHAUSTED.on_session(session))?;
        self.links[slot].remote_handle = Some(attach.handle);
        self.sessions[session].map_handle(attach.handle, slot);
        if full {
            self.take_pending(slot);
            self.refuse(slot, fault::LINKS.to_error());
            if let LinkState::DetachSent(sent) = &mut self.links[slot].state {
                *sent = DetachSent::Fault;
            }
            return Ok(Step::Again);
        }
        Ok(Step::Event(Event::Attached {
            link: LinkId(slot as u32),
            session: SessionId(session as u32),
            attach: Box::new(*attach),
        }))
    }

    pub(super) fn handle_detach<'a>(
        &mut self,
        session: usize,
        detach: &Detach<'a>,
    ) -> Result<Option<Event<'a>>, Failure> {
        let slot = self.sessions[session]
            .link_of(detach.handle)
            .ok_or(fault::HANDLE_UNATTACHED.on_session(session))?;
        self.sessions[session].map_handle(detach.handle, NO_LINK as usize);
        self.links[slot].remote_handle = None;
        self.discard_partial(slot);
        let mut told = false;
        match self.links[slot].state {
            LinkState::Attached => {
                self.write_runs(session);
                // AMQP 1.0 §2.6.6: a closing detach is answered by a closing one.
                self.write_detach(slot, detach.closed, None);
            }
            LinkState::AttachReceived { .. } => {
                if !self.write_null_attach(slot) {
                    return Ok(None);
                }
                self.write_detach(slot, true, None);
            }
            LinkState::DetachSent(DetachSent::Asked) => {}
            LinkState::DetachSent(DetachSent::Fault) => told = true,
            // Unreachable while the handle is mapped; nothing is left to be answered.
            LinkState::AttachSent | LinkState::Detached(_) => told = true,
        }
        self.unname(slot);
        self.orphan_sent(slot);
        self.links[slot].state = LinkState::Detached(Detached::Told);
        self.forget_answered(slot);
        self.reap_link(slot);
        let Detach { closed, error, .. } = *detach;
        Ok((!told).then_some(Event::Detached {
            link: LinkId(slot as u32),
            closed,
            cause: DetachCause::Peer,
            error,
        }))
    }

    /// Ends a link for a fault of the peer. The caller is told at once, the peer's detach is awaited.
    pub(super) fn fail_link(&mut self, slot: usize, fault: Fault, cause: DetachCause) {
        let link = &self.links[slot];
        let session = link.session;
        match link.state {
            LinkState::AttachReceived { .. } => {
                self.take_pending(slot);
                if !self.write_null_attach(slot) {
                    return;
                }
            }
            LinkState::Attached | LinkState::AttachSent => self.write_runs(session),
            LinkState::DetachSent(_) | LinkState::Detached(_) => return,
        }
        match &self.links[slot].end {
            LinkEnd::Receiver(receiver) if fault == fault::MESSAGE_SIZE => {
                let description = format!("{}: {} bytes", fault.description, receiver.max_message_size);
                self.write_detach(slot, true, Some(Error::new(fault.condition, &description)));
            }
            LinkEnd::Receiver(_) | LinkEnd::Sender(_) => {
                self.write_detach(slot, true, Some(fault.to_error()))
            }
        }
        self.discard_partial(slot);
        self.unname(slot);
        self.links[slot].state = LinkState::DetachSent(DetachSent::Fault);
        self.queue.push_back(Queued::Detached { link: slot, closed: true, cause, fault: Some(fault) });
    }

    /// Frees a link's slot when nothing can name it any more.
    pub(super) fn reap_link(&mut self, slot: usize) {
        let Some(link) = self.links.get(slot) else { return };
        if link.state != LinkState::Detached(Detached::Told) || link.received_unsettled() > 0 {
            return;
        }
        self.unname(slot);
        let link = self.links.remove(slot);
        if let Some(session) = self.sessions.get_mut(link.session) {
            session.local_handles.try_remove(link.local_handle as usize);
        }
    }

    fn attach(&mut self, session: SessionId, request: &AttachRequest<'_>, end: LinkEnd) -> Option<LinkId> {
        let session = session.slot();
        // AMQP 1.0 §2.5.1: behind our begin an attach may be pipelined.
        match self.sessions.get(session)?.state {
            SessionState::BeginSent | SessionState::Mapped if self.may_send() => {}
            SessionState::BeginSent | SessionState::Mapped | SessionState::EndSent { .. } => return None,
        }
        let slot = self.insert_link(session, request.name, LinkState::AttachSent, end)?;
        let link = &mut self.links[slot];
        link.sender_settle_mode = request.sender_settle_mode;
        link.receiver_settle_mode = request.receiver_settle_mode;
        let attach = Attach {
            snd_settle_mode: request.sender_settle_mode,
            rcv_settle_mode: request.receiver_settle_mode,
            source: request.source,
            target: request.target,
            desired_capabilities: request.desired_capabilities,
            properties: request.properties,
            ..link.attach()
        };
        self.sessions[session].attaching += 1;
        let start = begin_frame(&mut self.output, FrameKind::Amqp, session as u16);
        attach.encode(&mut self.output);
        finish_frame(&mut self.output, start);
        Some(LinkId(slot as u32))
    }

    /// The link of ours that this attach answers.
    fn find_attaching(&self, session: usize, attach: &Attach<'_>) -> Option<usize> {
        let session = &self.sessions[session];
        if session.attaching == 0 {
            return None;
        }
        let answers = |link: &Link| {
            let waits = match link.state {
                LinkState::AttachSent | LinkState::DetachSent(_) => {
                    link.initiated && link.remote_handle.is_none()
                }
                LinkState::AttachReceived { .. } | LinkState::Attached | LinkState::Detached(_) => false,
            };
            waits && link.role() == ours(attach.role) && *link.name == *attach.name
        };
        let mut slots = session.local_handles.iter().map(|(_, &slot)| slot as usize);
        slots.find(|&slot| answers(&self.links[slot]))
    }

    fn confirm_attach<'a>(&mut self, session: usize, slot: usize, attach: &Attach<'a>) -> Option<Event<'a>> {
        let link = &mut self.links[slot];
        link.initiated = false;
        link.remote_handle = Some(attach.handle);
        link.sender_settle_mode = attach.snd_settle_mode;
        link.receiver_settle_mode = attach.rcv_settle_mode;
        match &mut link.end {
            LinkEnd::Sender(sender) => sender.max_message_size = attach.max_message_size.unwrap_or(0),
            LinkEnd::Receiver(receiver) => receiver.confirmed(attach.initial_delivery_count.unwrap_or(0)),
        }
        let entry = &mut self.sessions[session];
        entry.attaching -= 1;
        entry.map_handle(attach.handle, slot);
        // The caller detached it before the answer came: it hears of the detach.
        if link.state != LinkState::AttachSent {
            return None;
        }
        link.state = LinkState::Attached;
        Some(Event::AttachConfirmed { link: LinkId(slot as u32), attach: Box::new(*attach) })
    }

    fn insert_link(&mut self, session: usize, name: &str, state: LinkState, end: LinkEnd) -> Option<usize> {
        let entry = &mut self.sessions[session];
        let handle_max = entry.remote_handle_max.min(NO_LINK - 1);
        if entry.local_handles.vacant_key() > handle_max as usize {
            return None;
        }
        let slot = self.links.vacant_key();
        let local_handle = entry.local_handles.insert(slot as u32) as u32;
        self.epoch = self.epoch.wrapping_add(1).max(1);
        let link = Link {
            epoch: Epoch::new(self.epoch).unwrap_or(Epoch::MIN),
            session,
            initiated: state == LinkState::AttachSent,
            state,
            name: name.into(),
            sender_settle_mode: Default::default(),
            receiver_settle_mode: Default::default(),
            local_handle,
            remote_handle: None,
            echo_due: false,
            end,
        };
        self.links.insert(link);
        let links = &self.links;
        self.names.insert_unique(hash_name(name), slot as u32, |&slot| hash_name(&links[slot as usize].name));
        Some(slot)
    }

    /// The link with this name whose end on our side has this role, if it can be stolen.
    fn find_named(&self, name: &str, role: Role) -> Option<usize> {
        let same = |slot: &u32| {
            let link = &self.links[*slot as usize];
            let stealable = match link.state {
                LinkState::AttachSent | LinkState::AttachReceived { .. } | LinkState::Attached => true,
                LinkState::DetachSent(_) | LinkState::Detached(_) => false,
            };
            stealable && link.role() == role && *link.name == *name
        };
        self.names.find(hash_name(name), same).map(|&slot| slot as usize)
    }

    pub(super) fn unname(&mut self, slot: usize) {
        let hash = hash_name(&self.links[slot].name);
        if let Ok(entry) = self.names.find_entry(hash, |&named| named as usize == slot) {
            entry.remove();
        }
    }

    /// The frame body of an attach that waits for our answer, and whether a flow came behind it.
    fn take_pending(&mut self, slot: usize) -> Option<(Box<[u8]>, bool)> {
        let link = self.links.get_mut(slot)?;
        match &mut link.state {
            LinkState::AttachReceived { body, flow } => Some((std::mem::take(body), *flow)),
            LinkState::AttachSent
            | LinkState::Attached
            | LinkState::DetachSent(_)
            | LinkState::Detached(_) => None,
        }
    }

    /// AMQP 1.0 §2.6.3: an attach without terminus, then the detach that says why.
    fn refuse(&mut self, slot: usize, error: Error<'_>) {
        if self.write_null_attach(slot) {
            self.write_detach(slot, true, Some(error));
            self.unname(slot);
            self.links[slot].state = LinkState::DetachSent(DetachSent::Asked);
        }
    }

    /// `false`: the session is ended, since only a name longer than the peer's own frames does not fit one.
    fn write_null_attach(&mut self, slot: usize) -> bool {
        let link = &self.links[slot];
        let session = link.session;
        let fits = write_bounded(&mut self.output, self.peer.max_frame_size, session, &link.attach());
        if !fits {
            self.fail_session(session, fault::FRAME_TOO_SMALL);
        }
        fits
    }

    pub(super) fn write_detach(&mut self, slot: usize, closed: bool, error: Option<Error<'_>>) {
        let link = &self.links[slot];
        let (session, handle) = (link.session, link.local_handle);
        if self.is_writable(session) {
            self.write(session, &Detach { handle, closed, error });
        }
    }
}

impl Link {
    /// What every attach of ours for this link says.
    fn attach(&self) -> Attach<'_> {
        let mut attach = Attach::new(&self.name, self.local_handle, self.role());
        match &self.end {
            LinkEnd::Sender(sender) => attach.initial_delivery_count = Some(sender.delivery_count_first),
            LinkEnd::Receiver(receiver) => {
                attach.max_message_size =
                    (receiver.max_message_size > 0).then_some(receiver.max_message_size);
            }
        }
        attach
    }
}

/// Our role on a link where the peer has this one.
fn ours(theirs: Role) -> Role {
    match theirs {
        Role::Sender => Role::Receiver,
        Role::Receiver => Role::Sender,
    }
}

fn decode_attach(body: &[u8]) -> Option<Attach<'_>> {
    match Performative::decode(body) {
        Ok((Performative::Attach(attach), _)) => Some(attach),
        Ok(_) | Err(_) => None,
    }
}

fn answer_source<'a>(asked: Source<'a>, answer: &AttachAnswer<'a>) -> Source<'a> {
    Source {
        address: answer.source_address.or(asked.address),
        filter: answer.filter.or(asked.filter),
        distribution_mode: answer.distribution_mode.or(asked.distribution_mode),
        outcomes: answer.outcomes.or(asked.outcomes),
        capabilities: answer.source_capabilities.or(asked.capabilities),
        ..asked
    }
}

fn answer_target<'a>(asked: TargetArchetype<'a>, answer: &AttachAnswer<'a>) -> TargetArchetype<'a> {
    match asked {
        TargetArchetype::Target(mut target) => {
            target.address = answer.target_address.or(target.address);
            target.capabilities = answer.target_capabilities.or(target.capabilities);
            TargetArchetype::Target(target)
        }
        TargetArchetype::Coordinator(mut coordinator) => {
            let capabilities: Symbols<'a> = coordinator.capabilities;
            coordinator.capabilities = answer.target_capabilities.or(capabilities);
            TargetArchetype::Coordinator(coordinator)
        }
    }
}

/// Writes a frame unless it is larger than the peer takes.
fn write_bounded(out: &mut Vec<u8>, size_max: u32, session: usize, performative: &impl Encode) -> bool {
    let start = begin_frame(out, FrameKind::Amqp, session as u16);
    performative.encode(out);
    if out.len() - start > size_max as usize {
        out.truncate(start);
        return false;
    }
    finish_frame(out, start);
    true
}

/// FNV-1a. A peer that seeks collisions slows down its own attaches, and `links_max` bounds by how much.
fn hash_name(name: &str) -> u64 {
    let step = |hash: u64, &byte: &u8| (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3);
    name.as_bytes().iter().fold(0xcbf2_9ce4_8422_2325, step)
}

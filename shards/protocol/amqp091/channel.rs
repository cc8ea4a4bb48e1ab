//! What is known of one channel, how does it open and close, and what do its methods ask for?
//!
//! Between our close and the peer's close-ok all else on the channel is passed over (§1.4.2.5), so its number is free only then.

use corelane_wire::amqp091::{
    Frame, FrameKind, Method, MethodId, ReplyCode, ShortStr, access, basic, channel, confirm, queue, tx,
};

use super::confirms::Confirms;
use super::connection::{Connection, Queued, Side, Step, error_of};
use super::content::Incoming;
use super::event::{ErrorSpec, Event, Outcome};
use super::fault::{self, Fault};
use super::limits::UNSETTLED_SPAN_MAX;
use super::link::LinkEnd;
use super::parked::Parked;
use super::settlement::Sent;
use crate::ids::{LinkId, SessionId};
use crate::unsettled::Unsettled;

#[derive(Debug)]
pub(super) struct Channel {
    pub(super) state: ChannelState,
    /// The link of what is published; of no meaning for a client.
    pub(super) publisher: u32,
    /// Slots of all its links.
    pub(super) links: Vec<u32>,
    /// What the caller has yet to answer.
    pub(super) pending: Option<Pending>,
    pub(super) parked: Parked,
    /// Frames that tell of the ends of consumers, and wait for the answer to a deletion that the channel has asked for.
    pub(super) cancels: Vec<u8>,
    /// A message of which frames are still to come.
    pub(super) incoming: Option<Incoming>,
    pub(super) mode: Mode,
    /// Messages that have come.
    pub(super) published: u64,
    pub(super) confirms: Confirms,
    /// It stands in the connection's list for `finish_turn`.
    pub(super) dirty: bool,

    pub(super) sent: Unsettled<Sent>,
    pub(super) delivery_tag_next: u64,
    /// Entries of `sent` with an outcome that waits for the commit.
    pub(super) sent_within: usize,
    /// Of the consumers to come; 0: no limit.
    pub(super) prefetch: u16,
    /// Of all consumers together; 0: no limit.
    pub(super) prefetch_all: u16,
    /// Entries of `sent` that consumers got.
    pub(super) consumers_unsettled: usize,
    /// The peer takes content.
    pub(super) flow: bool,
    /// The queue that was declared last; empty: none was.
    pub(super) last_queue: Vec<u8>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ChannelState {
    /// Client: the server has not answered our open.
    OpenSent,
    Open,
    /// Our close is written, the peer's close-ok has not come.
    CloseSent,
    /// The same, but the peer has closed too: some then take a channel to be closed at once.
    CloseCrossed,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Mode {
    Plain,
    /// Messages are confirmed.
    Confirm,
    /// Messages and outcomes wait for a commit.
    Transaction,
}

/// What the caller has yet to answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Pending {
    pub(super) method: MethodId,
    pub(super) no_wait: bool,
    pub(super) kind: PendingKind,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum PendingKind {
    Request,
    /// A consume or get on this link.
    Link(u32),
}

impl Channel {
    fn new(state: ChannelState) -> Self {
        Self {
            state,
            publisher: u32::MAX,
            links: Vec::new(),
            pending: None,
            parked: Parked::default(),
            cancels: Vec::new(),
            incoming: None,
            mode: Mode::Plain,
            published: 0,
            confirms: Confirms::default(),
            dirty: false,
            sent: Unsettled::new(),
            delivery_tag_next: 1,
            sent_within: 0,
            prefetch: 0,
            prefetch_all: 0,
            consumers_unsettled: 0,
            flow: true,
            last_queue: Vec::new(),
        }
    }

    /// May it have one more unsettled delivery?
    #[inline]
    pub(super) fn has_room(&self, unsettled_max: usize) -> bool {
        let span =
            self.sent.first_id().map_or(0, |first| (self.delivery_tag_next as u32).wrapping_sub(first));
        self.sent.count() < unsettled_max && u64::from(span) < UNSETTLED_SPAN_MAX
    }

    /// It has asked for a queue to be deleted, and is not answered.
    pub(super) fn deletes(&self) -> bool {
        self.pending.is_some_and(|pending| pending.method == queue::Delete::ID)
    }

    pub(super) fn is_closing(&self) -> bool {
        matches!(self.state, ChannelState::CloseSent | ChannelState::CloseCrossed)
    }
}

impl Connection {
    /// Closes a channel for what the peer did, as the code demands, or the whole connection. The peer reads which method it was:
    /// the one that waits for an answer, else a publish.
    pub fn fail(&mut self, session: SessionId, error: ErrorSpec<'_>) {
        let number = session.0 as u16;
        let Some(channel) = self.channel(number).filter(|channel| !channel.is_closing()) else { return };
        let method = channel.pending.map_or(basic::Publish::ID, |pending| pending.method);
        self.fail_at(number, Fault::of(error).by(method));
    }

    /// The queue that was declared last on a channel: what requests mean that leave the name out. Empty: none was.
    pub fn last_queue(&self, session: SessionId) -> ShortStr<'_> {
        let queue = self.channel(session.0 as u16).map_or(&[][..], |channel| &channel.last_queue);
        ShortStr::new(queue).unwrap_or_default()
    }

    #[inline]
    pub(super) fn channel(&self, number: u16) -> Option<&Channel> {
        self.channels.get(number)
    }

    #[inline]
    pub(super) fn channel_mut(&mut self, number: u16) -> Option<&mut Channel> {
        self.channels.get_mut(number)
    }

    #[inline]
    pub(super) fn handle_channel_frame<'a>(
        &mut self,
        frame: &Frame<'a>,
        rest: &mut &'a [u8],
    ) -> Result<Step<'a>, Fault> {
        let number = frame.channel;
        let Some(channel) = self.channel(number) else { return self.handle_unopened(frame) };
        match channel.state {
            ChannelState::Open => {}
            ChannelState::OpenSent => return self.handle_opening(frame),
            ChannelState::CloseSent | ChannelState::CloseCrossed => return self.handle_closing(frame),
        }
        match frame.kind {
            FrameKind::Method if channel.incoming.is_some() => {
                Err(fault::unexpected_frame("expected content, got a method"))
            }
            FrameKind::Method => {
                let method = Method::decode(frame.payload)?;
                let done = match self.side {
                    Side::Server => self.handle_as_server(number, &method, rest),
                    Side::Client => self.handle_as_client(number, &method, rest),
                };
                done.map_err(|fault| fault.by(method.id()))
            }
            FrameKind::Header => self.handle_header(number, frame.payload),
            FrameKind::Body => self.handle_body(number, frame.payload),
            FrameKind::Heartbeat => Err(fault::unexpected_frame("a heartbeat belongs on channel 0")),
        }
    }

    #[inline]
    fn handle_as_server<'a>(
        &mut self,
        number: u16,
        method: &Method<'a>,
        rest: &mut &'a [u8],
    ) -> Result<Step<'a>, Fault> {
        use basic::Method as Basic;
        match *method {
            Method::Basic(Basic::Publish(publish)) => self.handle_publish(number, publish, rest),
            Method::Basic(Basic::Ack(ack)) => {
                self.handle_outcome(number, ack.delivery_tag, ack.multiple, Outcome::Accepted)
            }
            Method::Basic(Basic::Nack(nack)) => {
                self.handle_outcome(number, nack.delivery_tag, nack.multiple, unwanted(nack.requeue))
            }
            Method::Basic(Basic::Reject(reject)) => {
                self.handle_outcome(number, reject.delivery_tag, false, unwanted(reject.requeue))
            }
            Method::Basic(Basic::Get(get)) => self.handle_get(number, &get),
            Method::Basic(Basic::Consume(consume)) => self.handle_consume(number, consume),
            Method::Basic(Basic::Cancel(cancel)) => self.handle_cancel(number, &cancel),
            // What a client says to our cancel.
            Method::Basic(Basic::CancelOk(_)) => Ok(Step::Again),
            Method::Basic(Basic::Qos(qos)) => self.handle_qos(number, qos),
            Method::Basic(Basic::Recover(recover)) => self.handle_recover(number, recover.requeue, true),
            Method::Basic(Basic::RecoverAsync(recover)) => {
                self.handle_recover(number, recover.requeue, false)
            }
            Method::Exchange(request) => self.handle_exchange_request(number, request),
            Method::Queue(request) => self.handle_queue_request(number, request),
            Method::Confirm(confirm::Method::Select(select)) => self.handle_confirm_select(number, select),
            Method::Tx(request) => self.handle_tx(number, request),
            Method::Channel(request) => self.handle_channel_method(number, &request),
            Method::Access(access::Method::Request(_)) => {
                self.write(number, &access::RequestOk { ticket: 1 });
                Ok(Step::Again)
            }
            Method::Basic(_) | Method::Confirm(_) | Method::Access(_) | Method::Connection(_) => {
                Err(not_for_server(method.id()))
            }
        }
    }

    fn handle_channel_method<'a>(
        &mut self,
        number: u16,
        method: &channel::Method<'a>,
    ) -> Result<Step<'a>, Fault> {
        match method {
            channel::Method::Open(_) => {
                Err(Fault::new(ReplyCode::ChannelError, "second 'channel.open' seen"))
            }
            channel::Method::Close(close) => Ok(self.handle_channel_close(number, close)),
            channel::Method::Flow(flow) => {
                if let Some(channel) = self.channel_mut(number) {
                    channel.flow = flow.active;
                }
                self.write(number, &channel::FlowOk { active: flow.active });
                Ok(Step::Event(Event::SessionFlow { session: SessionId(number.into()) }))
            }
            // Answers to what we did not ask any more are harmless.
            channel::Method::CloseOk(_) | channel::Method::FlowOk(_) => Ok(Step::Again),
            channel::Method::OpenOk(_) => Err(not_for_server(method.id())),
        }
    }

    /// The peer's close of a channel: it has all of the channel's confirms, and close-ok, when the caller is told.
    pub(super) fn handle_channel_close<'a>(&mut self, number: u16, close: &channel::Close<'a>) -> Step<'a> {
        if self.channel(number).is_some_and(|channel| !channel.links.is_empty()) {
            self.write_confirms_of(number);
            self.retire_links(number);
            return Step::Later;
        }
        self.retire_channel(number);
        self.write(number, &channel::CloseOk {});
        self.channels.remove(number);
        let error = error_of(close.reply_code, close.reply_text);
        Step::Event(Event::Ended { session: SessionId(number.into()), error })
    }

    fn handle_qos<'a>(&mut self, number: u16, qos: basic::Qos) -> Result<Step<'a>, Fault> {
        if qos.prefetch_size != 0 {
            let text = format!("prefetch_size!=0 ({})", qos.prefetch_size);
            return Err(Fault::new(ReplyCode::NotImplemented, text));
        }
        self.write(number, &basic::QosOk {});
        let Some(channel) = self.channel_mut(number) else { return Ok(Step::Again) };
        if !qos.global {
            channel.prefetch = qos.prefetch_count;
            return Ok(Step::Again);
        }
        channel.prefetch_all = qos.prefetch_count;
        Ok(Step::Event(Event::SessionFlow { session: SessionId(number.into()) }))
    }

    fn handle_confirm_select<'a>(&mut self, number: u16, select: confirm::Select) -> Result<Step<'a>, Fault> {
        let Some(channel) = self.channel_mut(number) else { return Ok(Step::Again) };
        match channel.mode {
            Mode::Transaction => {
                let text = "cannot switch from tx to confirm mode";
                return Err(Fault::new(ReplyCode::PreconditionFailed, text));
            }
            Mode::Plain => {
                channel.mode = Mode::Confirm;
                channel.confirms = Confirms::behind(channel.published);
            }
            Mode::Confirm => {}
        }
        if !select.no_wait {
            self.write(number, &confirm::SelectOk {});
        }
        Ok(Step::Again)
    }

    fn handle_tx<'a>(&mut self, number: u16, method: tx::Method) -> Result<Step<'a>, Fault> {
        let Some(channel) = self.channel_mut(number) else { return Ok(Step::Again) };
        let mode = channel.mode;
        match method {
            tx::Method::Select(_) => {
                if mode == Mode::Confirm {
                    let text = "cannot switch from confirm to tx mode";
                    return Err(Fault::new(ReplyCode::PreconditionFailed, text));
                }
                channel.mode = Mode::Transaction;
                self.write(number, &tx::SelectOk {});
                Ok(Step::Again)
            }
            tx::Method::Commit(_) | tx::Method::Rollback(_) if mode != Mode::Transaction => {
                Err(Fault::new(ReplyCode::PreconditionFailed, "channel is not transactional"))
            }
            tx::Method::Commit(_) => Ok(self.commit(number)),
            tx::Method::Rollback(_) => Ok(self.roll_back(number)),
            tx::Method::SelectOk(_) | tx::Method::CommitOk(_) | tx::Method::RollbackOk(_) => {
                Err(not_for_server(method.id()))
            }
        }
    }

    /// A frame on a channel that is not open.
    fn handle_unopened<'a>(&mut self, frame: &Frame<'a>) -> Result<Step<'a>, Fault> {
        let number = frame.channel;
        let method = match frame.kind {
            FrameKind::Method => Method::decode(frame.payload)?,
            FrameKind::Header | FrameKind::Body | FrameKind::Heartbeat => {
                return Err(fault::unexpected_frame("content on a channel that is not open"));
            }
        };
        match method {
            Method::Channel(channel::Method::Open(_)) if self.side == Side::Server => self.open(number),
            // What crosses with the end of a channel.
            Method::Channel(channel::Method::CloseOk(_)) => Ok(Step::Again),
            Method::Channel(channel::Method::Close(_)) if self.side == Side::Server => {
                self.write(number, &channel::CloseOk {});
                Ok(Step::Again)
            }
            other => Err(Fault::new(ReplyCode::ChannelError, "expected 'channel.open'").by(other.id())),
        }
    }

    fn open<'a>(&mut self, number: u16) -> Result<Step<'a>, Fault> {
        // It is how many there are that counts, whatever their numbers are.
        let (count, channel_max) = (self.channels.count(), self.peer.channel_max);
        if count >= usize::from(channel_max) {
            let text = format!(
                "number of channels opened ({count}) has reached the negotiated channel_max ({channel_max})"
            );
            return Err(Fault::new(ReplyCode::NotAllowed, text).by(channel::Open::ID));
        }
        if self.links.len() >= self.config.links_max {
            return Err(fault::links().by(channel::Open::ID));
        }
        self.insert_channel(number, ChannelState::Open);
        let publisher = self.insert_link(number, LinkEnd::Publisher) as u32;
        if let Some(channel) = self.channel_mut(number) {
            channel.publisher = publisher;
        }
        self.write(number, &channel::OpenOk {});
        let session = SessionId(number.into());
        Ok(Step::Event(Event::ChannelOpened { session, publisher: LinkId(publisher) }))
    }

    pub(super) fn insert_channel(&mut self, number: u16, state: ChannelState) {
        self.channels.insert(number, Channel::new(state));
    }

    /// Looks for close-ok among what the peer sent before it saw our close.
    fn handle_closing<'a>(&mut self, frame: &Frame<'a>) -> Result<Step<'a>, Fault> {
        let number = frame.channel;
        if frame.kind != FrameKind::Method {
            return Ok(Step::Again);
        }
        let Ok(Method::Channel(method)) = Method::decode(frame.payload) else { return Ok(Step::Again) };
        match method {
            channel::Method::CloseOk(_) => {
                self.channels.remove(number);
                if self.side == Side::Client {
                    let session = SessionId(number.into());
                    return Ok(Step::Event(Event::Ended { session, error: None }));
                }
                Ok(Step::Again)
            }
            channel::Method::Close(_) => {
                self.write(number, &channel::CloseOk {});
                if let Some(channel) = self.channel_mut(number) {
                    channel.state = ChannelState::CloseCrossed;
                }
                Ok(Step::Again)
            }
            channel::Method::Open(_)
                if self.side == Side::Server
                    && self.channel(number).is_some_and(|it| it.state == ChannelState::CloseCrossed) =>
            {
                self.channels.remove(number);
                self.open(number)
            }
            channel::Method::Open(_)
            | channel::Method::OpenOk(_)
            | channel::Method::Flow(_)
            | channel::Method::FlowOk(_) => Ok(Step::Again),
        }
    }

    /// Closes a channel for a fault of the peer, and tells of its end.
    #[cold]
    pub(super) fn fail_channel(&mut self, number: u16, fault: Fault) {
        self.write_confirms_of(number);
        let text = fault.reply_text();
        let close = channel::Close {
            reply_code: fault.code.code(),
            reply_text: ShortStr::cut(&text),
            class_id: fault.method.class_id,
            method_id: fault.method.method_id,
        };
        self.write(number, &close);
        // The peer's own close may be among what waits and goes: it wants its answer.
        let has_crossed = self.channel(number).is_some_and(|channel| channel.parked.has_close());
        self.retire_channel(number);
        if has_crossed {
            self.write(number, &channel::CloseOk {});
        }
        if let Some(channel) = self.channel_mut(number) {
            channel.state = if has_crossed { ChannelState::CloseCrossed } else { ChannelState::CloseSent };
        }
        self.queue.push_back(Queued::Ended { session: number, error: Some(fault) });
    }

    /// Tells of all links of a channel, and forgets what was on it and what waits there.
    pub(super) fn retire_channel(&mut self, number: u16) {
        self.retire_links(number);
        let Some(channel) = self.channel_mut(number) else { return };
        channel.pending = None;
        channel.cancels = Vec::new();
        let parked = std::mem::take(&mut channel.parked);
        self.parked_size -= parked.size();
    }

    fn retire_links(&mut self, number: u16) {
        let Some(channel) = self.channel_mut(number) else { return };
        let links = std::mem::take(&mut channel.links);
        let incoming = channel.incoming.take();
        channel.sent = Unsettled::new();
        channel.sent_within = 0;
        channel.consumers_unsettled = 0;
        channel.confirms = Confirms::default();
        if let Some(incoming) = incoming {
            self.discard_incoming(incoming);
        }
        for link in links {
            self.links[link as usize].unsettled = 0;
            self.tell_detached(link as usize);
        }
    }
}

/// What a refusal means.
#[inline]
fn unwanted(requeue: bool) -> Outcome {
    if requeue { Outcome::Released } else { Outcome::Rejected }
}

#[cold]
pub(super) fn not_for_server(method: MethodId) -> Fault {
    Fault::new(ReplyCode::CommandInvalid, format!("{method} is not for this side")).by(method)
}

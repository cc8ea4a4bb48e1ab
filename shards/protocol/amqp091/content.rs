//! How do frames of content become messages (§4.2.6)?
//!
//! A message whose frames stand one behind the other in the input, and that has one body frame at most, is handed out as slices of
//! it. Otherwise what came is copied until the last frame is there. `assembly.size` is the sum of the bodies that have come in part.

use corelane_wire::amqp091::{ContentHeader, Frame, FrameKind, MethodId, ReplyCode, ShortStr, basic};

use super::channel::Mode;
use super::connection::{Connection, Step};
use super::event::{Delivery, DeliveryKind, Event, Head, HeadBytes, Message};
use super::fault::{self, Fault};
use super::limits::{ASSEMBLY_RESERVE_MAX, SPARE_BUFFER_SIZE_MAX, SPARE_BUFFERS_MAX, UNSETTLED_SPAN_MAX};
use crate::delivery::Payload;
use crate::ids::{LinkId, SessionId};

/// Messages of several frames.
#[derive(Debug)]
pub(super) struct Assembly {
    pub(super) size: usize,
    /// The caller's own bound.
    size_max: usize,
    spare: Vec<Vec<u8>>,
}

impl Default for Assembly {
    fn default() -> Self {
        Self { size: 0, size_max: usize::MAX, spare: Vec::new() }
    }
}

/// A message of which frames are still to come.
#[derive(Debug)]
pub(super) struct Incoming {
    kind: ContentKind,
    head: Vec<u8>,
    sizes: [u8; 3],
    /// `None`: its header has not come.
    body_size: Option<u64>,
    body: Vec<u8>,
}

impl Incoming {
    pub(super) fn body(&self) -> &[u8] {
        &self.body
    }
}

/// What is to become of the content.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ContentKind {
    Published { mandatory: bool },
    Received(DeliveryKind),
}

/// What a method with content says of it.
#[derive(Clone, Copy, Debug)]
pub(super) struct ContentMethod<'a> {
    pub(super) kind: ContentKind,
    pub(super) exchange: ShortStr<'a>,
    pub(super) routing_key: ShortStr<'a>,
    pub(super) tag: ShortStr<'a>,
}

impl ContentKind {
    fn method(self) -> MethodId {
        match self {
            Self::Published { .. } => basic::Publish::ID,
            Self::Received(DeliveryKind::Delivered { .. }) => basic::Deliver::ID,
            Self::Received(DeliveryKind::Got { .. }) => basic::GetOk::ID,
            Self::Received(DeliveryKind::Returned { .. }) => basic::Return::ID,
        }
    }
}

impl Connection {
    /// Bytes of messages of which frames are still to come.
    #[inline]
    pub fn assembled_size(&self) -> usize {
        self.assembly.size
    }

    /// How large [`assembled_size`](Self::assembled_size) may become from now on, if that is less than what is configured: the
    /// channel that goes above is closed.
    #[inline]
    pub fn bound_assembly(&mut self, size_max: usize) {
        self.assembly.size_max = size_max;
    }

    /// Takes back the buffer of [`Payload::Assembled`].
    pub fn recycle(&mut self, mut buffer: Vec<u8>) {
        if self.assembly.spare.len() < SPARE_BUFFERS_MAX && buffer.capacity() <= SPARE_BUFFER_SIZE_MAX {
            buffer.clear();
            self.assembly.spare.push(buffer);
        }
    }

    /// Takes back what stood before a message's body.
    #[inline]
    pub fn recycle_head(&mut self, head: Head<'_>) {
        match head.0 {
            HeadBytes::Slice { .. } => {}
            HeadBytes::Copied { bytes, .. } => self.recycle(bytes),
        }
    }

    #[inline]
    pub(super) fn handle_publish<'a>(
        &mut self,
        number: u16,
        publish: basic::Publish<'a>,
        rest: &mut &'a [u8],
    ) -> Result<Step<'a>, Fault> {
        if publish.immediate {
            return Err(Fault::new(ReplyCode::NotImplemented, "immediate=true"));
        }
        let unconfirmed_max = self.config.unconfirmed_max;
        if self.channel(number).is_some_and(|channel| !channel.may_publish(unconfirmed_max)) {
            return Ok(Step::Stalled);
        }
        let method = ContentMethod {
            kind: ContentKind::Published { mandatory: publish.mandatory },
            exchange: publish.exchange,
            routing_key: publish.routing_key,
            tag: ShortStr::EMPTY,
        };
        self.handle_content(number, &method, rest)
    }

    /// A method with content, whose other frames may be there already.
    #[inline]
    pub(super) fn handle_content<'a>(
        &mut self,
        number: u16,
        method: &ContentMethod<'a>,
        rest: &mut &'a [u8],
    ) -> Result<Step<'a>, Fault> {
        let Some((header, payload, behind)) = self.look_ahead(number, rest) else {
            return Ok(self.await_content(number, method));
        };
        self.check_body_size(&header)?;
        *rest = behind;
        let head = Head(HeadBytes::Slice {
            exchange: method.exchange,
            routing_key: method.routing_key,
            tag: method.tag,
            properties: header.properties.bytes(),
        });
        Ok(Step::Event(self.content_event(number, method.kind, head, Payload::Slice(payload))))
    }

    /// The header and the only body frame, if they come next.
    #[inline]
    fn look_ahead<'a>(
        &self,
        number: u16,
        rest: &&'a [u8],
    ) -> Option<(ContentHeader<'a>, &'a [u8], &'a [u8])> {
        let mut ahead = *rest;
        let frame_max = self.peer.frame_max;
        let frame = Frame::take(&mut ahead, frame_max).ok()??;
        if frame.channel != number || frame.kind != FrameKind::Header {
            return None;
        }
        let header = ContentHeader::decode(frame.payload).ok()?;
        if header.body_size == 0 {
            return Some((header, &[], ahead));
        }
        let frame = Frame::take(&mut ahead, frame_max).ok()??;
        let is_whole = frame.channel == number
            && frame.kind == FrameKind::Body
            && frame.payload.len() as u64 == header.body_size;
        is_whole.then_some((header, frame.payload, ahead))
    }

    fn await_content<'a>(&mut self, number: u16, method: &ContentMethod<'_>) -> Step<'a> {
        let mut head = self.assembly.spare.pop().unwrap_or_default();
        let mut sizes = [0; 3];
        for (size, part) in sizes.iter_mut().zip([method.exchange, method.routing_key, method.tag]) {
            head.extend_from_slice(part.as_bytes());
            *size = part.len() as u8;
        }
        let incoming = Incoming { kind: method.kind, head, sizes, body_size: None, body: Vec::new() };
        if let Some(channel) = self.channel_mut(number) {
            channel.incoming = Some(incoming);
        }
        Step::Again
    }

    pub(super) fn handle_header<'a>(&mut self, number: u16, payload: &[u8]) -> Result<Step<'a>, Fault> {
        let waiting = self.channel_mut(number).and_then(|channel| channel.incoming.take());
        let Some(mut incoming) = waiting.filter(|incoming| incoming.body_size.is_none()) else {
            return Err(fault::unexpected_frame("a content header that does not belong here"));
        };
        let method = incoming.kind.method();
        let checked = ContentHeader::decode(payload).map_err(Fault::from);
        let checked = checked.and_then(|header| self.check_body_size(&header).map(|()| header));
        let header = match checked {
            Ok(header) => header,
            Err(fault) => {
                self.discard_incoming(incoming);
                return Err(fault.by(method));
            }
        };
        incoming.head.extend_from_slice(header.properties.bytes());
        incoming.body_size = Some(header.body_size);
        if header.body_size <= SPARE_BUFFER_SIZE_MAX as u64 {
            incoming.body = self.assembly.spare.pop().unwrap_or_default();
        }
        if header.body_size == 0 {
            return Ok(Step::Event(self.complete(number, incoming)));
        }
        if let Some(channel) = self.channel_mut(number) {
            channel.incoming = Some(incoming);
        }
        Ok(Step::Again)
    }

    pub(super) fn handle_body<'a>(&mut self, number: u16, payload: &[u8]) -> Result<Step<'a>, Fault> {
        let size_max = self.config.assembly_size_max.min(self.assembly.size_max);
        let is_too_much = self.assembly.size.saturating_add(payload.len()) > size_max;
        let waiting = self.channel_mut(number).and_then(|channel| channel.incoming.as_mut());
        let Some((incoming, body_size)) = waiting.and_then(|incoming| {
            let body_size = incoming.body_size?;
            Some((incoming, body_size))
        }) else {
            return Err(fault::unexpected_frame("a content body that does not belong here"));
        };
        let method = incoming.kind.method();
        let size = incoming.body.len() + payload.len();
        if size as u64 > body_size {
            let text = format!("a body of {size} bytes or more, announced were {body_size}");
            return Err(Fault::new(ReplyCode::FrameError, text).by(method));
        }
        if is_too_much {
            let text = "more bytes of unfinished messages than there is memory for";
            return Err(Fault::new(ReplyCode::ContentTooLarge, text).by(method));
        }
        incoming.append(payload, body_size);
        self.assembly.size += payload.len();
        if (size as u64) < body_size {
            return Ok(Step::Again);
        }
        let Some(incoming) = self.channel_mut(number).and_then(|channel| channel.incoming.take()) else {
            return Ok(Step::Again);
        };
        Ok(Step::Event(self.complete(number, incoming)))
    }

    pub(super) fn discard_incoming(&mut self, incoming: Incoming) {
        self.assembly.size -= incoming.body.len();
        self.recycle(incoming.head);
        self.recycle(incoming.body);
    }

    fn complete<'a>(&mut self, number: u16, incoming: Incoming) -> Event<'a> {
        let Incoming { kind, head, sizes, body, .. } = incoming;
        self.assembly.size -= body.len();
        let head = Head(HeadBytes::Copied { bytes: head, sizes });
        self.content_event(number, kind, head, Payload::Assembled(body))
    }

    #[inline]
    fn content_event<'a>(
        &mut self,
        number: u16,
        kind: ContentKind,
        head: Head<'a>,
        payload: Payload<'a>,
    ) -> Event<'a> {
        let session = SessionId(number.into());
        let mandatory = match kind {
            ContentKind::Published { mandatory } => mandatory,
            ContentKind::Received(kind) => {
                return Event::Delivery(Delivery { session, kind, head, payload });
            }
        };
        let (mut link, mut delivery_id, mut mode) = (LinkId(u32::MAX), 0, Mode::Plain);
        if let Some(channel) = self.channel_mut(number) {
            channel.published += 1;
            mode = channel.mode;
            delivery_id = channel.published as u32;
            link = LinkId(channel.publisher);
            if mode == Mode::Confirm {
                channel.confirms.await_one();
            }
        }
        Event::Message(Message {
            link,
            delivery_id,
            settled: mode != Mode::Confirm,
            mandatory,
            transaction: mode == Mode::Transaction,
            head,
            payload,
        })
    }

    #[inline]
    fn check_body_size(&self, header: &ContentHeader<'_>) -> Result<(), Fault> {
        if header.body_size > self.config.max_message_size {
            let (size, max) = (header.body_size, self.config.max_message_size);
            let text = format!("message size {size} is larger than configured max size {max}");
            return Err(Fault::new(ReplyCode::PreconditionFailed, text).by(basic::Publish::ID));
        }
        Ok(())
    }
}

impl Incoming {
    /// Room is taken for what has come and not for what was announced, but never for more than that.
    fn append(&mut self, payload: &[u8], body_size: u64) {
        let needed = self.body.len() + payload.len();
        if needed > self.body.capacity() {
            let wanted = (2 * self.body.capacity()).max(ASSEMBLY_RESERVE_MAX).max(needed);
            let room = usize::try_from(body_size).map_or(wanted, |body_size| wanted.min(body_size));
            self.body.reserve_exact(room.max(needed) - self.body.len());
        }
        self.body.extend_from_slice(payload);
    }
}

const _: () = assert!(UNSETTLED_SPAN_MAX <= i32::MAX as u64, "spans can be compared");

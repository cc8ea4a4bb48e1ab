//! What does a client ask, and what does it hear?
//!
//! A client is thin: what it calls is written as it is, and what the server says is handed on. It keeps no record of consumers,
//! deliveries or confirms, which its caller can count by tags.

use corelane_wire::amqp091::{Encode, Method, ReplyCode, ShortStr, basic, channel};

use super::channel::{ChannelState, not_for_server};
use super::connection::{Connection, Side, Step};
use super::content::{ContentKind, ContentMethod};
use super::event::{DeliveryKind, ErrorSpec, Event};
use super::fault::{self, Fault};
use crate::ids::SessionId;
use corelane_wire::amqp091::{Frame, FrameKind};

impl Connection {
    /// Client: opens a channel. [`Answered`](Event::Answered) with `open-ok` follows, and calls may be made then. `None`: the
    /// connection is not open, or no number is left.
    pub fn open_channel(&mut self) -> Option<SessionId> {
        if !self.may_send() || self.side != Side::Client {
            return None;
        }
        let number = (1..=self.peer.channel_max).find(|&number| self.channel(number).is_none())?;
        self.insert_channel(number, ChannelState::OpenSent);
        self.write(number, &channel::Open {});
        Some(SessionId(number.into()))
    }

    /// Client: closes a channel. [`Ended`](Event::Ended) follows with the server's answer.
    pub fn close_channel(&mut self, session: SessionId, error: Option<ErrorSpec<'_>>) {
        if !self.is_usable(session) {
            return;
        }
        let number = session.0 as u16;
        let (reply_code, text) = match error {
            Some(error) => (error.reply_code.code(), error.text),
            None => (ReplyCode::ReplySuccess.code(), "Normal shutdown"),
        };
        let reply_text = ShortStr::cut(text);
        self.write(number, &channel::Close { reply_code, reply_text, ..Default::default() });
        self.retire_channel(number);
        if let Some(channel) = self.channel_mut(number) {
            channel.state = ChannelState::CloseSent;
        }
    }

    /// Client: writes a method without content on a channel; its answer, if it has one, follows as
    /// [`Answered`](Event::Answered). False: the channel is not open.
    #[inline]
    pub fn call(&mut self, session: SessionId, method: &impl Encode) -> bool {
        let is_usable = self.is_usable(session);
        if is_usable {
            self.write(session.0 as u16, method);
        }
        is_usable
    }

    #[inline]
    pub(super) fn is_usable(&self, session: SessionId) -> bool {
        self.side == Side::Client
            && self.may_send()
            && self.channel(session.0 as u16).is_some_and(|channel| channel.state == ChannelState::Open)
    }

    /// A frame before the server has answered our open.
    pub(super) fn handle_opening<'a>(&mut self, frame: &Frame<'a>) -> Result<Step<'a>, Fault> {
        if frame.kind != FrameKind::Method {
            return Err(fault::unexpected_frame("content on a channel that is not open"));
        }
        let number = frame.channel;
        let method = Method::decode(frame.payload)?;
        match method {
            Method::Channel(channel::Method::OpenOk(_)) => {
                if let Some(channel) = self.channel_mut(number) {
                    channel.state = ChannelState::Open;
                }
                let session = SessionId(number.into());
                Ok(Step::Event(Event::Answered { session, method }))
            }
            Method::Channel(channel::Method::Close(close)) => Ok(self.handle_channel_close(number, &close)),
            other => Err(Fault::new(ReplyCode::CommandInvalid, "expected 'channel.open-ok'").by(other.id())),
        }
    }

    #[inline]
    pub(super) fn handle_as_client<'a>(
        &mut self,
        number: u16,
        method: &Method<'a>,
        rest: &mut &'a [u8],
    ) -> Result<Step<'a>, Fault> {
        let session = SessionId(number.into());
        let content = match *method {
            Method::Basic(basic::Method::Deliver(deliver)) => {
                let basic::Deliver { consumer_tag, delivery_tag, redelivered, exchange, routing_key } =
                    deliver;
                let kind = DeliveryKind::Delivered { delivery_tag, redelivered };
                (kind, exchange, routing_key, consumer_tag)
            }
            Method::Basic(basic::Method::GetOk(got)) => {
                let basic::GetOk { delivery_tag, redelivered, exchange, routing_key, message_count } = got;
                let kind = DeliveryKind::Got { delivery_tag, redelivered, message_count };
                (kind, exchange, routing_key, ShortStr::EMPTY)
            }
            Method::Basic(basic::Method::Return(returned)) => {
                let basic::Return { reply_code, exchange, routing_key, .. } = returned;
                (DeliveryKind::Returned { reply_code }, exchange, routing_key, ShortStr::EMPTY)
            }
            Method::Basic(basic::Method::Publish(_)) => return Err(not_for_server(method.id())),
            Method::Channel(channel::Method::Close(close)) => {
                return Ok(self.handle_channel_close(number, &close));
            }
            // What crosses with the end of a channel.
            Method::Channel(channel::Method::CloseOk(_)) => return Ok(Step::Again),
            Method::Channel(channel::Method::Flow(flow)) => {
                self.write(number, &channel::FlowOk { active: flow.active });
                return Ok(Step::Event(Event::Answered { session, method: *method }));
            }
            _ => return Ok(Step::Event(Event::Answered { session, method: *method })),
        };
        let (kind, exchange, routing_key, tag) = content;
        let method = ContentMethod { kind: ContentKind::Received(kind), exchange, routing_key, tag };
        self.handle_content(number, &method, rest)
    }
}

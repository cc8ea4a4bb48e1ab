//! How do messages become frames, and when may they?
//!
//! A consumer is limited by its own prefetch and by that of its channel (RabbitMQ's meaning of `global`), unless it needs no
//! acknowledgements; a get takes one message, whatever the limits are.

use corelane_wire::amqp091::{
    FRAME_EMPTY_SIZE, basic, begin_content_header, finish_frame, write_body, write_content_header,
    write_method,
};
use corelane_wire::amqp091::{ReplyCode, ShortStr};

use super::channel::Channel;
use super::connection::Connection;
use super::event::{Outgoing, Publication};
use super::link::{Consumer, ConsumerState, Link, LinkEnd};
use super::settlement::{Mark, Sent};
use crate::delivery::{Progress, SendReadiness};
use crate::ids::{LinkId, SessionId};

/// Bytes of a header frame before its properties, and behind them.
const HEADER_OVERHEAD: usize = FRAME_EMPTY_SIZE as usize + 12;

impl Connection {
    /// May a message be sent on this link now?
    #[inline]
    pub fn can_send(&self, link: LinkId) -> SendReadiness {
        match self.live_link(link) {
            Some(link) => match self.channel(link.channel) {
                Some(channel) => readiness(channel, link, self.config.unsettled_max),
                None => SendReadiness::Detached,
            },
            None => SendReadiness::Detached,
        }
    }

    /// How many messages may be sent on this link now, as long as nothing is sent on others of its channel.
    pub fn credit(&self, link: LinkId) -> u32 {
        let Some(link) = self.live_link(link) else { return 0 };
        let Some(channel) = self.channel(link.channel) else { return 0 };
        if readiness(channel, link, self.config.unsettled_max) != SendReadiness::Ready {
            return 0;
        }
        let left = |limit: u16, used: usize| match limit {
            0 => usize::MAX,
            limit => usize::from(limit).saturating_sub(used),
        };
        let credit = match &link.end {
            LinkEnd::Publisher => 0,
            LinkEnd::Getter(_) => 1,
            LinkEnd::Consumer(Consumer { no_ack: true, .. }) => usize::MAX,
            LinkEnd::Consumer(consumer) => left(consumer.prefetch, link.unsettled)
                .min(left(channel.prefetch_all, channel.consumers_unsettled))
                .min(self.config.unsettled_max.saturating_sub(channel.sent.count())),
        };
        u32::try_from(credit).unwrap_or(u32::MAX)
    }

    /// Writes a message to a consumer, or as the answer to a get. `TooLarge`: its properties do not fit the peer's frames.
    #[inline]
    pub fn send(&mut self, link: LinkId, message: &Outgoing<'_>) -> Progress {
        let readiness = self.can_send(link);
        if readiness != SendReadiness::Ready {
            return Progress::NotReady(readiness);
        }
        let slot = link.slot();
        let frame_max = self.peer.frame_max;
        if message.properties.bytes().len() + HEADER_OVERHEAD > frame_max as usize {
            return Progress::TooLarge;
        }
        let entry = &mut self.links[slot];
        let number = entry.channel;
        let Some(channel) = self.channels.get_mut(number) else {
            return Progress::NotReady(SendReadiness::Detached);
        };
        let delivery_tag = channel.delivery_tag_next;
        channel.delivery_tag_next += 1;
        let Outgoing { redelivered, exchange, routing_key, message_count, .. } = *message;
        let out = &mut self.output;
        let (settled, is_answer) = match &mut entry.end {
            LinkEnd::Consumer(consumer) => {
                let consumer_tag = ShortStr::new(&consumer.tag).unwrap_or_default();
                let deliver =
                    basic::Deliver { consumer_tag, delivery_tag, redelivered, exchange, routing_key };
                write_method(out, number, &deliver);
                channel.consumers_unsettled += usize::from(!consumer.no_ack);
                (consumer.no_ack, false)
            }
            LinkEnd::Getter(getter) => {
                let get_ok = basic::GetOk { delivery_tag, redelivered, exchange, routing_key, message_count };
                write_method(out, number, &get_ok);
                (getter.asked.take().unwrap_or(true), true)
            }
            LinkEnd::Publisher => return Progress::NotReady(SendReadiness::Detached),
        };
        let body_size: usize = message.body.iter().map(|piece| piece.len()).sum();
        let start = begin_content_header(out, number, body_size as u64);
        out.extend_from_slice(message.properties.bytes());
        finish_frame(out, start);
        for piece in message.body {
            write_body(out, number, piece, frame_max);
        }
        let delivery_id = delivery_tag as u32;
        if !settled {
            let sent = Sent { token: message.token, link: slot as u32, mark: Mark::Unsettled };
            channel.sent.push(delivery_id, sent);
            entry.unsettled += 1;
        }
        if is_answer {
            self.take_pending(number);
        }
        Progress::Complete { delivery_id, settled }
    }

    /// Server: gives a message back to who published it on this link, since it went nowhere. The peer reads it before what
    /// [`settle`](Self::settle) says next. False: the channel is closed, or the properties do not fit the peer's frames.
    pub fn return_message(&mut self, link: LinkId, code: ReplyCode, message: &Publication<'_>) -> bool {
        let Some(number) = self.live_link(link).map(|link| link.channel) else { return false };
        let returned = basic::Return {
            reply_code: code.code(),
            reply_text: ShortStr::literal(code.name()),
            exchange: message.exchange,
            routing_key: message.routing_key,
        };
        self.write_content(number, &returned, message)
    }

    /// Client: publishes a message. False: the channel is not open, or the properties do not fit the peer's frames.
    pub fn publish(&mut self, session: SessionId, mandatory: bool, message: &Publication<'_>) -> bool {
        let number = session.0 as u16;
        if !self.is_usable(session) {
            return false;
        }
        let publish = basic::Publish {
            exchange: message.exchange,
            routing_key: message.routing_key,
            mandatory,
            immediate: false,
        };
        self.write_content(number, &publish, message)
    }

    fn write_content(
        &mut self,
        number: u16,
        method: &impl corelane_wire::amqp091::Encode,
        message: &Publication<'_>,
    ) -> bool {
        let frame_max = self.peer.frame_max;
        if message.properties.bytes().len() + HEADER_OVERHEAD > frame_max as usize {
            return false;
        }
        let out = &mut self.output;
        let body_size: usize = message.body.iter().map(|piece| piece.len()).sum();
        write_method(out, number, method);
        write_content_header(out, number, body_size as u64, message.properties);
        for piece in message.body {
            write_body(out, number, piece, frame_max);
        }
        true
    }
}

#[inline]
fn readiness(channel: &Channel, link: &Link, unsettled_max: usize) -> SendReadiness {
    match &link.end {
        LinkEnd::Publisher => SendReadiness::Detached,
        LinkEnd::Getter(getter) if getter.asked.is_some() => SendReadiness::Ready,
        LinkEnd::Getter(_) => SendReadiness::NoCredit,
        LinkEnd::Consumer(consumer) if consumer.state != ConsumerState::Active => SendReadiness::Detached,
        LinkEnd::Consumer(_) if !channel.flow => SendReadiness::NoCredit,
        LinkEnd::Consumer(Consumer { no_ack: true, .. }) => SendReadiness::Ready,
        LinkEnd::Consumer(consumer) => {
            let is_used_up = |limit: u16, used: usize| limit > 0 && used >= usize::from(limit);
            if is_used_up(consumer.prefetch, link.unsettled)
                || is_used_up(channel.prefetch_all, channel.consumers_unsettled)
                || !channel.has_room(unsettled_max)
            {
                SendReadiness::NoCredit
            } else {
                SendReadiness::Ready
            }
        }
    }
}

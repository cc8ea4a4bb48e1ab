//! What are the bytes in front of a delivery's payload?
//!
//! Nearly every transfer that a sender of many messages writes says the same few things: these have a form of their own, which is
//! the bytes that [`Transfer`](super::Transfer) has for the same fields. The tag is the delivery's number.

use super::descriptor::TRANSFER;
use super::piece::Piece;

/// Most bytes of it: frame header 8, descriptor and list 6, handle, number and format 5 each, tag 6, a boolean.
const SIZE_MAX: usize = 40;

/// The frame header and the transfer of a delivery that is one frame (§2.7.5).
#[derive(Clone, Copy, Debug)]
pub struct DeliveryHead {
    pub channel: u16,
    pub handle: u32,
    pub delivery_id: u32,
    pub message_format: u32,
    pub settled: bool,
}

impl DeliveryHead {
    /// Appends it, with room for a payload of so many bytes; [`finish_frame`](super::finish_frame) is for when that is there. Returns
    /// the frame's start.
    #[inline]
    pub fn append(&self, out: &mut Vec<u8>, payload_size: usize) -> usize {
        let [high, low] = self.channel.to_be_bytes();
        let [a, b, c, d] = self.delivery_id.to_be_bytes();
        let mut piece = Piece::<SIZE_MAX>::new();
        piece.put([0, 0, 0, 0, 2, 0, high, low]);
        let list = piece.begin_list(TRANSFER, 4 + u8::from(self.settled));
        piece.put_uint(self.handle);
        piece.put_uint(self.delivery_id);
        piece.put([0xa0, 4, a, b, c, d]);
        piece.put_uint(self.message_format);
        if self.settled {
            piece.put([0x41]);
        }
        piece.finish_list(list);
        let start = out.len();
        out.reserve(SIZE_MAX + payload_size);
        piece.append(out);
        start
    }
}

#[cfg(test)]
mod tests {
    use super::super::{Encode, FrameKind, Transfer, begin_frame, finish_frame};
    use super::*;

    #[test]
    fn the_bytes_are_those_of_the_transfer() {
        let numbers = [0, 1, 0xff, 0x100, u32::MAX];
        for (handle, delivery_id, message_format) in
            numbers.iter().flat_map(|a| numbers.iter().flat_map(|b| numbers.map(|c| (*a, *b, c))))
        {
            for settled in [false, true] {
                let head = DeliveryHead { channel: 0x1234, handle, delivery_id, message_format, settled };
                let (mut short, mut long) = (vec![7; 3], vec![7; 3]);
                let start = head.append(&mut short, 100);
                finish_frame(&mut short, start);
                assert!(short.capacity() >= short.len() + 100);
                let start = begin_frame(&mut long, FrameKind::Amqp, head.channel);
                let transfer = Transfer {
                    handle,
                    delivery_id: Some(delivery_id),
                    delivery_tag: Some(&delivery_id.to_be_bytes()),
                    message_format: Some(message_format),
                    settled: settled.then_some(true),
                    ..Transfer::default()
                };
                transfer.encode(&mut long);
                finish_frame(&mut long, start);
                assert_eq!(short, long, "{head:?}");
            }
        }
    }
}

//! What do AMQP 0-9-1 bytes mean?
//!
//! Four layers, each usable alone: [`Frame`] (§4.2.3) cuts the stream behind the
//! [`ProtocolHeader`](super::amqp10::ProtocolHeader) that all versions share, [`Method`] and [`ContentHeader`] read a frame's
//! payload, [`PropertyFields`] and [`Properties`] a message's properties, and [`Table`] walks what is in a field table.
//! Decoding never allocates. Tables and properties stay encoded and are walked lazily. Encoding appends to a `Vec<u8>`.
//!
//! Left out: what the values demand of the receiver. That is the protocol's business.

mod check;
mod class;
mod content;
mod encode;
mod error;
mod frame;
mod limits;
mod method;
mod methods;
mod properties;
mod reader;
mod reply_code;
mod short_str;
mod table;

pub use check::check_table;
pub use content::{ContentHeader, begin_content_header, write_body, write_content_header};
pub use encode::{ArrayWriter, Encode, TableWriter};
pub use error::{DecodeError, FrameError, MethodError};
pub use frame::{Frame, FrameHeader, FrameKind, HEARTBEAT, begin_frame, finish_frame, write_method};
pub use limits::*;
pub use method::{Method, MethodId};
pub use methods::{access, basic, channel, confirm, connection, exchange, queue, tx};
pub use properties::{Properties, PropertyFields};
pub use reply_code::ReplyCode;
pub use short_str::ShortStr;
pub use table::{Array, ArrayIter, FieldValue, Table, TableIter};

//! What do AMQP 1.0 bytes mean?
//!
//! Four layers, each usable alone: [`Frame`] (§2.3) cuts the stream, [`Performative`] and [`SaslPerformative`] read a
//! frame's body, [`Sections`] finds the parts of a message in the payload, and [`Value`] walks anything typed.
//! Decoding never allocates. Compound values, maps and `multiple` fields stay encoded and are walked lazily.
//! Encoding appends to a `Vec<u8>` with the smallest encodings and leaves trailing nulls out.
//!
//! Left out: what the values demand of the receiver. That is the protocol's business.

mod check;
mod composite;
pub mod condition;
mod delivery_head;
mod delivery_state;
mod descriptor;
mod encode;
mod error;
mod frame;
mod limits;
mod message;
mod performative;
mod piece;
mod properties;
mod reader;
mod sasl;
mod sections;
mod symbols;
mod terminus;
mod transaction;
mod value;

pub use check::check_value;
pub use delivery_head::DeliveryHead;
pub use delivery_state::{DeliveryState, Error, Modified, Outcome, Received};
pub use descriptor::Descriptor;
pub use encode::{DescribedAs, Encode, ListWriter, MapSection, MapWriter};
pub use error::{DecodeError, FrameError};
pub use frame::{
    Frame, FrameHeader, FrameKind, ProtocolHeader, ProtocolId, begin_frame, finish_frame, write_frame,
};
pub use limits::*;
pub use message::{
    write_amqp_sequence, write_amqp_value, write_application_properties, write_data, write_data_head,
    write_delivery_annotations, write_footer, write_message_annotations,
};
pub use performative::{
    Attach, Begin, Close, Detach, Disposition, End, Flow, Open, Performative, ReceiverSettleMode, Role,
    SenderSettleMode, Transfer,
};
pub use properties::{Header, MessageId, Properties, Property, PropertyFields};
pub use reader::Reader;
pub use sasl::{
    SaslChallenge, SaslCode, SaslInit, SaslMechanisms, SaslOutcome, SaslPerformative, SaslResponse,
};
pub use sections::{BodyKind, BodyValues, Section, Sections};
pub use symbols::{Symbols, SymbolsIter};
pub use terminus::{
    Coordinator, DistributionMode, ExpiryPolicy, LifetimePolicy, Source, Target, TargetArchetype,
    TerminusDurability,
};
pub use transaction::{Declare, Discharge, TransactionRequest};
pub use value::{Array, ArrayIter, Described, List, ListIter, Map, MapIter, Raw, Value};

//! What does an AMQP frame say?
//!
//! One struct for each performative of §2.7, its fields in the specification's order. Absent fields that have a default
//! there have it here; others are `None`. Decoding borrows, and allocates nothing for any of them.

use super::composite::{Field, Fields};
use super::delivery_state::{DeliveryState, Error};
use super::descriptor::{self, ATTACH, BEGIN, CLOSE, DETACH, DISPOSITION, END, FLOW, OPEN, TRANSFER};
use super::encode::{Encode, ListWriter};
use super::error::DecodeError;
use super::limits::DELIVERY_TAG_SIZE_MAX;
use super::reader::Reader;
use super::symbols::Symbols;
use super::terminus::{Source, TargetArchetype};
use super::value::Map;

/// Which end of a link the sender of the frame is (§2.8.1).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    Sender,
    Receiver,
}

/// How the sender will settle (§2.8.2).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum SenderSettleMode {
    Unsettled,
    Settled,
    #[default]
    Mixed,
}

/// When the receiver will settle (§2.8.3).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ReceiverSettleMode {
    #[default]
    First,
    Second,
}

/// §2.7.1
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Open<'a> {
    pub container_id: &'a str,
    pub hostname: Option<&'a str>,
    /// Bytes; default 4294967295.
    pub max_frame_size: u32,
    /// Default 65535.
    pub channel_max: u16,
    /// Milliseconds.
    pub idle_time_out: Option<u32>,
    pub outgoing_locales: Symbols<'a>,
    pub incoming_locales: Symbols<'a>,
    pub offered_capabilities: Symbols<'a>,
    pub desired_capabilities: Symbols<'a>,
    pub properties: Option<Map<'a>>,
}

impl Default for Open<'_> {
    fn default() -> Self {
        Self {
            container_id: "",
            hostname: None,
            max_frame_size: u32::MAX,
            channel_max: u16::MAX,
            idle_time_out: None,
            outgoing_locales: Symbols::default(),
            incoming_locales: Symbols::default(),
            offered_capabilities: Symbols::default(),
            desired_capabilities: Symbols::default(),
            properties: None,
        }
    }
}

/// §2.7.2
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Begin<'a> {
    /// The channel of the begin that this one answers.
    pub remote_channel: Option<u16>,
    pub next_outgoing_id: u32,
    pub incoming_window: u32,
    pub outgoing_window: u32,
    /// Default 4294967295.
    pub handle_max: u32,
    pub offered_capabilities: Symbols<'a>,
    pub desired_capabilities: Symbols<'a>,
    pub properties: Option<Map<'a>>,
}

impl Default for Begin<'_> {
    fn default() -> Self {
        Self {
            remote_channel: None,
            next_outgoing_id: 0,
            incoming_window: 0,
            outgoing_window: 0,
            handle_max: u32::MAX,
            offered_capabilities: Symbols::default(),
            desired_capabilities: Symbols::default(),
            properties: None,
        }
    }
}

/// §2.7.3
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Attach<'a> {
    pub name: &'a str,
    pub handle: u32,
    pub role: Role,
    pub snd_settle_mode: SenderSettleMode,
    pub rcv_settle_mode: ReceiverSettleMode,
    pub source: Option<Source<'a>>,
    pub target: Option<TargetArchetype<'a>>,
    /// Delivery tags and their states.
    pub unsettled: Option<Map<'a>>,
    pub incomplete_unsettled: bool,
    /// Mandatory when the role is sender; checking that is the protocol's.
    pub initial_delivery_count: Option<u32>,
    /// Bytes; absent and 0 are no limit.
    pub max_message_size: Option<u64>,
    pub offered_capabilities: Symbols<'a>,
    pub desired_capabilities: Symbols<'a>,
    pub properties: Option<Map<'a>>,
}

impl<'a> Attach<'a> {
    /// An attach with nothing in it that need not be.
    pub fn new(name: &'a str, handle: u32, role: Role) -> Self {
        Self {
            name,
            handle,
            role,
            snd_settle_mode: SenderSettleMode::default(),
            rcv_settle_mode: ReceiverSettleMode::default(),
            source: None,
            target: None,
            unsettled: None,
            incomplete_unsettled: false,
            initial_delivery_count: None,
            max_message_size: None,
            offered_capabilities: Symbols::default(),
            desired_capabilities: Symbols::default(),
            properties: None,
        }
    }
}

/// §2.7.4
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Flow<'a> {
    pub next_incoming_id: Option<u32>,
    pub incoming_window: u32,
    pub next_outgoing_id: u32,
    pub outgoing_window: u32,
    /// Absent: the flow is of the session only.
    pub handle: Option<u32>,
    pub delivery_count: Option<u32>,
    pub link_credit: Option<u32>,
    pub available: Option<u32>,
    pub drain: bool,
    pub echo: bool,
    pub properties: Option<Map<'a>>,
}

/// §2.7.5
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Transfer<'a> {
    pub handle: u32,
    pub delivery_id: Option<u32>,
    /// At most 32 bytes.
    pub delivery_tag: Option<&'a [u8]>,
    pub message_format: Option<u32>,
    pub settled: Option<bool>,
    pub more: bool,
    pub rcv_settle_mode: Option<ReceiverSettleMode>,
    pub state: Option<DeliveryState<'a>>,
    pub resume: bool,
    pub aborted: bool,
    pub batchable: bool,
}

/// §2.7.6
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Disposition<'a> {
    pub role: Role,
    pub first: u32,
    /// Absent: the same as `first`.
    pub last: Option<u32>,
    pub settled: bool,
    pub state: Option<DeliveryState<'a>>,
    pub batchable: bool,
}

/// §2.7.7
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Detach<'a> {
    pub handle: u32,
    pub closed: bool,
    pub error: Option<Error<'a>>,
}

/// §2.7.8
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct End<'a> {
    pub error: Option<Error<'a>>,
}

/// §2.7.9
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Close<'a> {
    pub error: Option<Error<'a>>,
}

/// The body of an AMQP frame (§2.3.2), save its payload.
#[derive(Clone, Copy, Debug, PartialEq)]
#[allow(clippy::large_enum_variant)] // Borrowed, short-lived and never stored: boxing would allocate.
pub enum Performative<'a> {
    Open(Open<'a>),
    Begin(Begin<'a>),
    Attach(Attach<'a>),
    Flow(Flow<'a>),
    Transfer(Transfer<'a>),
    Disposition(Disposition<'a>),
    Detach(Detach<'a>),
    End(End<'a>),
    Close(Close<'a>),
}

impl<'a> Performative<'a> {
    /// Reads a frame's body: the performative, and the payload behind it. Only a transfer's payload means something.
    #[inline]
    pub fn decode(body: &'a [u8]) -> Result<(Self, &'a [u8]), DecodeError> {
        const EXPECTED: &str = "a performative";
        let mut reader = Reader::new(body);
        let code = descriptor::read_code(&mut reader, EXPECTED)?;
        let unexpected = DecodeError::UnexpectedDescriptor { expected: EXPECTED, code };
        let Some(Ok(code)) = code.map(u8::try_from) else { return Err(unexpected) };
        let performative = match code {
            TRANSFER => {
                let mut transfer = Transfer::default();
                transfer.read(&mut reader)?;
                Self::Transfer(transfer)
            }
            DISPOSITION => Self::Disposition(Disposition::read(&mut reader)?),
            FLOW => Self::Flow(Flow::read(&mut reader)?),
            OPEN => Self::Open(Open::read(&mut reader)?),
            BEGIN => Self::Begin(Begin::read(&mut reader)?),
            ATTACH => Self::Attach(Attach::read(&mut reader)?),
            DETACH => Self::Detach(Detach::read(&mut reader)?),
            END => Self::End(End::read(&mut reader)?),
            CLOSE => Self::Close(Close::read(&mut reader)?),
            _ => return Err(unexpected),
        };
        Ok((performative, reader.rest()))
    }
}

impl<'a> Open<'a> {
    fn read(reader: &mut Reader<'a>) -> Result<Self, DecodeError> {
        let mut fields = Fields::read(reader, "open")?;
        let open = Self {
            container_id: fields.mandatory("open.container-id")?,
            hostname: fields.optional("open.hostname")?,
            max_frame_size: fields.or("open.max-frame-size", u32::MAX)?,
            channel_max: fields.or("open.channel-max", u16::MAX)?,
            idle_time_out: fields.optional("open.idle-time-out")?,
            outgoing_locales: fields.symbols("open.outgoing-locales")?,
            incoming_locales: fields.symbols("open.incoming-locales")?,
            offered_capabilities: fields.symbols("open.offered-capabilities")?,
            desired_capabilities: fields.symbols("open.desired-capabilities")?,
            properties: fields.optional("open.properties")?,
        };
        fields.finish()?;
        Ok(open)
    }
}

impl<'a> Begin<'a> {
    fn read(reader: &mut Reader<'a>) -> Result<Self, DecodeError> {
        let mut fields = Fields::read(reader, "begin")?;
        let begin = Self {
            remote_channel: fields.optional("begin.remote-channel")?,
            next_outgoing_id: fields.mandatory("begin.next-outgoing-id")?,
            incoming_window: fields.mandatory("begin.incoming-window")?,
            outgoing_window: fields.mandatory("begin.outgoing-window")?,
            handle_max: fields.or("begin.handle-max", u32::MAX)?,
            offered_capabilities: fields.symbols("begin.offered-capabilities")?,
            desired_capabilities: fields.symbols("begin.desired-capabilities")?,
            properties: fields.optional("begin.properties")?,
        };
        fields.finish()?;
        Ok(begin)
    }
}

impl<'a> Attach<'a> {
    fn read(reader: &mut Reader<'a>) -> Result<Self, DecodeError> {
        let mut fields = Fields::read(reader, "attach")?;
        let attach = Self {
            name: fields.mandatory("attach.name")?,
            handle: fields.mandatory("attach.handle")?,
            role: fields.mandatory("attach.role")?,
            snd_settle_mode: fields.or("attach.snd-settle-mode", SenderSettleMode::Mixed)?,
            rcv_settle_mode: fields.or("attach.rcv-settle-mode", ReceiverSettleMode::First)?,
            source: fields.optional("attach.source")?,
            target: fields.optional("attach.target")?,
            unsettled: fields.optional("attach.unsettled")?,
            incomplete_unsettled: fields.or("attach.incomplete-unsettled", false)?,
            initial_delivery_count: fields.optional("attach.initial-delivery-count")?,
            max_message_size: fields.optional("attach.max-message-size")?,
            offered_capabilities: fields.symbols("attach.offered-capabilities")?,
            desired_capabilities: fields.symbols("attach.desired-capabilities")?,
            properties: fields.optional("attach.properties")?,
        };
        fields.finish()?;
        Ok(attach)
    }
}

impl<'a> Flow<'a> {
    #[inline]
    fn read(reader: &mut Reader<'a>) -> Result<Self, DecodeError> {
        let mut fields = Fields::read(reader, "flow")?;
        let flow = Self {
            next_incoming_id: fields.optional("flow.next-incoming-id")?,
            incoming_window: fields.mandatory("flow.incoming-window")?,
            next_outgoing_id: fields.mandatory("flow.next-outgoing-id")?,
            outgoing_window: fields.mandatory("flow.outgoing-window")?,
            handle: fields.optional("flow.handle")?,
            delivery_count: fields.optional("flow.delivery-count")?,
            link_credit: fields.optional("flow.link-credit")?,
            available: fields.optional("flow.available")?,
            drain: fields.or("flow.drain", false)?,
            echo: fields.or("flow.echo", false)?,
            properties: fields.optional("flow.properties")?,
        };
        fields.finish()?;
        Ok(flow)
    }
}

impl<'a> Transfer<'a> {
    /// Reads a frame's body if it is a transfer, as nearly all are, and returns the payload behind it. Read in place, which must hold
    /// nothing yet: a transfer is large, and moving it costs as much as reading it.
    #[inline]
    pub fn decode(&mut self, body: &'a [u8]) -> Result<Option<&'a [u8]>, DecodeError> {
        debug_assert!(*self == Transfer::default(), "fields that are left out keep what they hold");
        let [0, 0x53, TRANSFER, list @ ..] = body else { return Ok(None) };
        let mut reader = Reader::new(list);
        self.read(&mut reader)?;
        Ok(Some(reader.rest()))
    }

    #[inline]
    fn read(&mut self, reader: &mut Reader<'a>) -> Result<(), DecodeError> {
        let mut fields = Fields::read(reader, "transfer")?;
        self.handle = fields.mandatory("transfer.handle")?;
        self.delivery_id = fields.optional("transfer.delivery-id")?;
        self.delivery_tag = fields.optional("transfer.delivery-tag")?;
        self.message_format = fields.optional("transfer.message-format")?;
        self.settled = fields.optional("transfer.settled")?;
        self.more = fields.or("transfer.more", false)?;
        // §2.8.7: up to 32 octets of binary data.
        if self.delivery_tag.is_some_and(|tag| tag.len() > DELIVERY_TAG_SIZE_MAX) {
            return Err(DecodeError::InvalidField { field: "transfer.delivery-tag" });
        }
        if fields.are_left() {
            self.read_rare(&mut fields)?;
        }
        fields.finish()
    }

    /// Reads the fields that few transfers have.
    fn read_rare(&mut self, fields: &mut Fields<'a>) -> Result<(), DecodeError> {
        self.rcv_settle_mode = fields.optional("transfer.rcv-settle-mode")?;
        self.state = fields.optional("transfer.state")?;
        self.resume = fields.or("transfer.resume", false)?;
        self.aborted = fields.or("transfer.aborted", false)?;
        self.batchable = fields.or("transfer.batchable", false)?;
        Ok(())
    }
}

impl<'a> Disposition<'a> {
    #[inline]
    fn read(reader: &mut Reader<'a>) -> Result<Self, DecodeError> {
        let mut fields = Fields::read(reader, "disposition")?;
        let disposition = Self {
            role: fields.mandatory("disposition.role")?,
            first: fields.mandatory("disposition.first")?,
            last: fields.optional("disposition.last")?,
            settled: fields.or("disposition.settled", false)?,
            state: fields.optional("disposition.state")?,
            batchable: fields.or("disposition.batchable", false)?,
        };
        fields.finish()?;
        Ok(disposition)
    }
}

impl<'a> Detach<'a> {
    fn read(reader: &mut Reader<'a>) -> Result<Self, DecodeError> {
        let mut fields = Fields::read(reader, "detach")?;
        let detach = Self {
            handle: fields.mandatory("detach.handle")?,
            closed: fields.or("detach.closed", false)?,
            error: fields.optional("detach.error")?,
        };
        fields.finish()?;
        Ok(detach)
    }
}

impl<'a> End<'a> {
    fn read(reader: &mut Reader<'a>) -> Result<Self, DecodeError> {
        let mut fields = Fields::read(reader, "end")?;
        let end = Self { error: fields.optional("end.error")? };
        fields.finish()?;
        Ok(end)
    }
}

impl<'a> Close<'a> {
    fn read(reader: &mut Reader<'a>) -> Result<Self, DecodeError> {
        let mut fields = Fields::read(reader, "close")?;
        let close = Self { error: fields.optional("close.error")? };
        fields.finish()?;
        Ok(close)
    }
}

impl<'a> Field<'a> for Role {
    #[inline]
    fn read(reader: &mut Reader<'a>, field: &'static str) -> Result<Self, DecodeError> {
        Ok(if bool::read(reader, field)? { Self::Receiver } else { Self::Sender })
    }
}

impl<'a> Field<'a> for SenderSettleMode {
    #[inline]
    fn read(reader: &mut Reader<'a>, field: &'static str) -> Result<Self, DecodeError> {
        match u8::read(reader, field)? {
            0 => Ok(Self::Unsettled),
            1 => Ok(Self::Settled),
            2 => Ok(Self::Mixed),
            _ => Err(DecodeError::InvalidField { field }),
        }
    }
}

impl<'a> Field<'a> for ReceiverSettleMode {
    #[inline]
    fn read(reader: &mut Reader<'a>, field: &'static str) -> Result<Self, DecodeError> {
        match u8::read(reader, field)? {
            0 => Ok(Self::First),
            1 => Ok(Self::Second),
            _ => Err(DecodeError::InvalidField { field }),
        }
    }
}

impl Encode for Role {
    #[inline]
    fn encode(&self, out: &mut Vec<u8>) {
        (*self == Self::Receiver).encode(out);
    }
}

impl Encode for SenderSettleMode {
    fn encode(&self, out: &mut Vec<u8>) {
        (*self as u8).encode(out);
    }
}

impl Encode for ReceiverSettleMode {
    #[inline]
    fn encode(&self, out: &mut Vec<u8>) {
        (*self as u8).encode(out);
    }
}

impl Encode for Performative<'_> {
    fn encode(&self, out: &mut Vec<u8>) {
        match self {
            Self::Open(open) => open.encode(out),
            Self::Begin(begin) => begin.encode(out),
            Self::Attach(attach) => attach.encode(out),
            Self::Flow(flow) => flow.encode(out),
            Self::Transfer(transfer) => transfer.encode(out),
            Self::Disposition(disposition) => disposition.encode(out),
            Self::Detach(detach) => detach.encode(out),
            Self::End(end) => end.encode(out),
            Self::Close(close) => close.encode(out),
        }
    }
}

impl Encode for Open<'_> {
    fn encode(&self, out: &mut Vec<u8>) {
        let mut list = ListWriter::described(out, OPEN);
        list.field(&self.container_id);
        list.optional(&self.hostname);
        list.unless(self.max_frame_size, u32::MAX);
        list.unless(self.channel_max, u16::MAX);
        list.optional(&self.idle_time_out);
        list.symbols(self.outgoing_locales);
        list.symbols(self.incoming_locales);
        list.symbols(self.offered_capabilities);
        list.symbols(self.desired_capabilities);
        list.optional(&self.properties);
        list.finish_fields();
    }
}

impl Encode for Begin<'_> {
    fn encode(&self, out: &mut Vec<u8>) {
        let mut list = ListWriter::described(out, BEGIN);
        list.optional(&self.remote_channel);
        list.field(&self.next_outgoing_id);
        list.field(&self.incoming_window);
        list.field(&self.outgoing_window);
        list.unless(self.handle_max, u32::MAX);
        list.symbols(self.offered_capabilities);
        list.symbols(self.desired_capabilities);
        list.optional(&self.properties);
        list.finish_fields();
    }
}

impl Encode for Attach<'_> {
    fn encode(&self, out: &mut Vec<u8>) {
        let mut list = ListWriter::described(out, ATTACH);
        list.field(&self.name);
        list.field(&self.handle);
        list.field(&self.role);
        list.unless(self.snd_settle_mode, SenderSettleMode::Mixed);
        list.unless(self.rcv_settle_mode, ReceiverSettleMode::First);
        list.optional(&self.source);
        list.optional(&self.target);
        list.optional(&self.unsettled);
        list.unless(self.incomplete_unsettled, false);
        list.optional(&self.initial_delivery_count);
        list.optional(&self.max_message_size);
        list.symbols(self.offered_capabilities);
        list.symbols(self.desired_capabilities);
        list.optional(&self.properties);
        list.finish_fields();
    }
}

impl Encode for Flow<'_> {
    #[inline]
    fn encode(&self, out: &mut Vec<u8>) {
        let mut list = ListWriter::described(out, FLOW);
        list.optional(&self.next_incoming_id);
        list.field(&self.incoming_window);
        list.field(&self.next_outgoing_id);
        list.field(&self.outgoing_window);
        list.optional(&self.handle);
        list.optional(&self.delivery_count);
        list.optional(&self.link_credit);
        list.optional(&self.available);
        list.unless(self.drain, false);
        list.unless(self.echo, false);
        list.optional(&self.properties);
        list.finish_fields();
    }
}

impl Encode for Transfer<'_> {
    #[inline]
    fn encode(&self, out: &mut Vec<u8>) {
        let mut list = ListWriter::described(out, TRANSFER);
        list.field(&self.handle);
        list.optional(&self.delivery_id);
        list.optional(&self.delivery_tag);
        list.optional(&self.message_format);
        list.optional(&self.settled);
        list.unless(self.more, false);
        list.optional(&self.rcv_settle_mode);
        list.optional(&self.state);
        list.unless(self.resume, false);
        list.unless(self.aborted, false);
        list.unless(self.batchable, false);
        list.finish_fields();
    }
}

impl Encode for Disposition<'_> {
    #[inline]
    fn encode(&self, out: &mut Vec<u8>) {
        let mut list = ListWriter::described(out, DISPOSITION);
        list.field(&self.role);
        list.field(&self.first);
        list.optional(&self.last);
        list.unless(self.settled, false);
        list.optional(&self.state);
        list.unless(self.batchable, false);
        list.finish_fields();
    }
}

impl Encode for Detach<'_> {
    fn encode(&self, out: &mut Vec<u8>) {
        let mut list = ListWriter::described(out, DETACH);
        list.field(&self.handle);
        list.unless(self.closed, false);
        list.optional(&self.error);
        list.finish_fields();
    }
}

impl Encode for End<'_> {
    fn encode(&self, out: &mut Vec<u8>) {
        let mut list = ListWriter::described(out, END);
        list.optional(&self.error);
        list.finish_fields();
    }
}

impl Encode for Close<'_> {
    fn encode(&self, out: &mut Vec<u8>) {
        let mut list = ListWriter::described(out, CLOSE);
        list.optional(&self.error);
        list.finish_fields();
    }
}

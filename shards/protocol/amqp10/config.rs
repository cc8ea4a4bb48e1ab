//! What does one side of a connection offer and take?

/// What one side offers and takes. Shared by all connections of a listener, so it is passed as `Arc`.
#[derive(Clone, Debug)]
pub struct Config {
    pub container_id: Box<str>,
    /// A client's: the virtual host it asks for (§2.7.1).
    pub hostname: Option<Box<str>>,
    /// Largest frame in bytes that we take; at least 512 is used (§2.7.1). What we send follows the peer's.
    pub max_frame_size: u32,
    /// Highest channel number that we take. A peer above it ends its connection with a framing error (§2.7.1).
    pub channel_max: u16,
    /// Highest handle that we take. A peer above it ends its connection with a framing error (§2.7.2).
    pub handle_max: u32,
    /// Links of the whole connection. A peer's further attach is refused.
    pub links_max: usize,
    /// Without a byte from the peer for this long the connection is closed; we announce half of it (§2.4.5). `None`: the
    /// peer may be silent for ever.
    pub idle_timeout_us: Option<u64>,
    /// From the first byte to the peer's open. Then the connection is closed.
    pub handshake_timeout_us: Option<u64>,
    /// How long we wait for the peer's close after ours, so that ours is read before the socket goes.
    pub close_timeout_us: u64,
    /// Transfer frames that we take on a session before we renew its window (§2.5.6).
    pub incoming_window: u32,
    /// Largest message in bytes that we receive and announce on a link unless it is attached with another; 0: any.
    pub max_message_size: u64,
    /// Received deliveries of a session that are unsettled at one time. Credit bounds them first; a peer that is to settle
    /// after us (receiver settle mode second) and does not, ends its session here.
    pub unsettled_max: usize,
    /// Bytes of all multi-frame deliveries that are being joined at one time. The link that goes above is detached.
    pub assembly_size_max: usize,
    /// Bytes that one call of [`send`](super::Connection::send) writes at most, unless one frame is larger. The rest is
    /// a matter for the next call, so that links take turns.
    pub burst_size_max: usize,
    pub offered_capabilities: Vec<Box<str>>,
    pub desired_capabilities: Vec<Box<str>>,
    /// Properties of our open: an encoded map, or empty.
    pub properties: Vec<u8>,
    pub sasl: Sasl,
    /// First transfer number, delivery number and delivery-count that we use. Zero, but for tests of the wrap.
    pub serial_first: u32,
}

/// How do peers know each other?
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Sasl {
    /// No SASL layer. A server asks with its own header for the plain protocol if it meets one.
    #[default]
    Absent,
    /// A server: SASL with these mechanisms; without SASL only if it is not `required`.
    Server { mechanisms: Vec<Box<str>>, required: bool },
    /// A client: a name for the trace, usually empty (RFC 4505).
    Anonymous { trace: Box<str> },
    /// A client: RFC 4616.
    Plain { user: Box<str>, password: Box<str> },
    /// A client: RFC 4422 appendix A, with the identity to act as, usually empty.
    External { identity: Box<str> },
    /// A client: the caller answers [`SaslMechanisms`](super::Event::SaslMechanisms) by
    /// [`sasl_init`](super::Connection::sasl_init), each [`SaslChallenge`](super::Event::SaslChallenge) by
    /// [`sasl_respond`](super::Connection::sasl_respond), and may look at [`SaslOutcome`](super::Event::SaslOutcome).
    Caller,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            container_id: "corelane".into(),
            hostname: None,
            max_frame_size: 65_536,
            channel_max: 255,
            handle_max: 1023,
            links_max: 4096,
            idle_timeout_us: Some(120_000_000),
            handshake_timeout_us: Some(10_000_000),
            close_timeout_us: 2_000_000,
            incoming_window: 2048,
            max_message_size: 128 << 20,
            unsettled_max: 65_536,
            assembly_size_max: 256 << 20,
            burst_size_max: 256 << 10,
            offered_capabilities: Vec::new(),
            desired_capabilities: Vec::new(),
            properties: Vec::new(),
            sasl: Sasl::Absent,
            serial_first: 0,
        }
    }
}

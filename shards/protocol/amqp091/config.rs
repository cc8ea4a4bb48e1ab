//! What does one side of a connection offer and take?

/// What one side offers and takes. Shared by all connections of a listener, so it is passed as `Arc`.
#[derive(Clone, Debug)]
pub struct Config {
    /// Properties of our start or start-ok: names and texts.
    pub properties: Vec<(Box<str>, Box<str>)>,
    pub login: Login,
    /// A client's: the virtual host that it asks for.
    pub virtual_host: Box<str>,
    /// Largest frame in bytes that we take; at least 4096 is used. A peer that chooses less gets less.
    pub frame_max: u32,
    /// Channels that may be open at one time, whatever their numbers are. A peer that opens more ends its connection.
    pub channel_max: u16,
    /// Seconds between a peer's heartbeats that we propose; 0: none. A client decides.
    pub heartbeat: u16,
    /// From the first byte to the peer's open. Then the connection is closed.
    pub handshake_timeout_us: Option<u64>,
    /// How long we wait for the peer's close-ok after our close, so that ours is read before the socket goes.
    pub close_timeout_us: u64,
    /// Consumers, channels and queues that are got from, of the whole connection. A peer that wants more ends its connection.
    pub links_max: usize,
    /// Largest body in bytes that we receive. A larger one closes its channel.
    pub max_message_size: u64,
    /// Deliveries of a channel without an acknowledgement at one time. Its consumers wait there, whatever their prefetch
    /// is; a peer's `get` beyond it finds nothing.
    pub unsettled_max: usize,
    /// Messages of a channel that wait for their confirm at one time. No more input is taken until some are settled.
    pub unconfirmed_max: usize,
    /// Bytes of all bodies of several frames that are being joined at one time. The channel that goes above is closed.
    pub assembly_size_max: usize,
    /// Bytes of frames that wait inside for answers of the caller on their channels. No more input is taken until some
    /// are answered.
    pub parked_size_max: usize,
}

/// How do peers know each other?
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Login {
    /// A server offers these mechanisms; with `PLAIN`, offer `AMQPLAIN` too, which some clients prefer: the caller meets both as
    /// `PLAIN`.
    Server { mechanisms: Vec<Box<str>> },
    /// A client: RFC 4616.
    Plain { user: Box<str>, password: Box<str> },
    /// A client: the same, written as a table.
    AmqPlain { user: Box<str>, password: Box<str> },
    /// A client: a mechanism that needs one response at most.
    Other { mechanism: Box<str>, response: Box<[u8]> },
}

impl Default for Config {
    fn default() -> Self {
        Self {
            properties: Vec::new(),
            login: Login::Server { mechanisms: vec!["PLAIN".into(), "AMQPLAIN".into()] },
            virtual_host: "/".into(),
            frame_max: 131_072,
            channel_max: 2047,
            heartbeat: 60,
            handshake_timeout_us: Some(10_000_000),
            close_timeout_us: 2_000_000,
            links_max: 16_384,
            max_message_size: 128 << 20,
            unsettled_max: 1 << 20,
            unconfirmed_max: 1 << 16,
            assembly_size_max: 256 << 20,
            parked_size_max: 1 << 20,
        }
    }
}

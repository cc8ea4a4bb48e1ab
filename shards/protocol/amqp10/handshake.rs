//! How do the two sides agree on protocol, and open and close the connection?
//!
//! AMQP 1.0 §2.2: a server answers a header that it does not take with the one it takes, and closes.

use corelane_wire::amqp10::{
    Close, Error, FRAME_SIZE_MIN_MAX, FrameKind, Map, Open, ProtocolHeader, Symbols, write_frame,
};

use super::config::Sasl;
use super::connection::{Connection, Phase, Side, Step};
use super::event::Event;
use super::fault::{self, Failure};
use super::limits::IDLE_TIME_OUT_MIN;
use super::sasl::SaslState;

/// Every header starts like this.
const MAGIC: &[u8] = b"AMQP";

impl Connection {
    /// Answers the peer's open with ours.
    pub fn accept_open(&mut self) {
        if self.phase == Phase::OpenReceived {
            self.write_open();
            self.phase = Phase::Open;
        }
    }

    pub(super) fn start_client(&mut self) {
        if self.config.sasl == Sasl::Absent {
            self.write_header(ProtocolHeader::AMQP);
            self.write_open();
        } else {
            self.write_header(ProtocolHeader::SASL);
        }
    }

    pub(super) fn step_header<'a>(&mut self, input: &mut &'a [u8], sasl_done: bool) -> Step<'a> {
        // What cannot become a header any more is answered at once.
        let known = input.len().min(MAGIC.len());
        if input[..known] != MAGIC[..known] {
            return self.refuse_header(sasl_done);
        }
        let Some((bytes, rest)) = input.split_first_chunk::<{ ProtocolHeader::SIZE }>() else {
            return Step::Wait;
        };
        let Some(header) = ProtocolHeader::parse(bytes) else { return self.refuse_header(sasl_done) };
        match self.side {
            Side::Server => self.take_header_as_server(header, sasl_done),
            Side::Client => self.take_header_as_client(header, sasl_done),
        };
        if self.phase == (Phase::Header { sasl_done }) {
            return self.refuse_header(sasl_done);
        }
        *input = rest;
        Step::Again
    }

    /// Leaves the phase as it is if this is no header we take.
    fn take_header_as_server(&mut self, header: ProtocolHeader, sasl_done: bool) {
        if header == ProtocolHeader::SASL && !sasl_done {
            if let Sasl::Server { .. } = self.config.sasl {
                self.write_header(ProtocolHeader::SASL);
                self.write_mechanisms();
                self.phase = Phase::Sasl(SaslState::Init);
            }
        } else if header == ProtocolHeader::AMQP && (sasl_done || !self.requires_sasl()) {
            self.write_header(ProtocolHeader::AMQP);
            self.phase = Phase::Opening;
        }
    }

    fn take_header_as_client(&mut self, header: ProtocolHeader, sasl_done: bool) {
        let plain = sasl_done || self.config.sasl == Sasl::Absent;
        if plain && header == ProtocolHeader::AMQP {
            self.phase = Phase::Opening;
        } else if !plain && header == ProtocolHeader::SASL {
            self.phase = Phase::Sasl(SaslState::Mechanisms);
        }
    }

    #[cold]
    fn refuse_header<'a>(&mut self, sasl_done: bool) -> Step<'a> {
        if self.side == Side::Server {
            let ours =
                if self.requires_sasl() && !sasl_done { ProtocolHeader::SASL } else { ProtocolHeader::AMQP };
            self.write_header(ours);
        }
        self.fail_connection(fault::HEADER, fault::HEADER.description);
        Step::Again
    }

    fn requires_sasl(&self) -> bool {
        matches!(self.config.sasl, Sasl::Server { required: true, .. })
    }

    /// The SASL layer is left; a client goes on at once.
    pub(super) fn finish_sasl(&mut self) {
        self.phase = Phase::Header { sasl_done: true };
        if self.side == Side::Client {
            self.write_header(ProtocolHeader::AMQP);
            self.write_open();
        }
    }

    pub(super) fn handle_open<'a>(&mut self, open: Open<'a>) -> Result<Event<'a>, Failure> {
        // AMQP 1.0 §2.4.5: a timeout that we do not support is answered by a close that says why. 0 is none.
        if open.idle_time_out.is_some_and(|milliseconds| (1..IDLE_TIME_OUT_MIN).contains(&milliseconds)) {
            return Err(fault::IDLE_TIME_OUT_TOO_SHORT.on_connection());
        }
        // We write no larger frames than we would take, so that links take turns on a fast connection too.
        self.peer.max_frame_size =
            open.max_frame_size.min(self.config.max_frame_size).max(FRAME_SIZE_MIN_MAX);
        self.peer.channel_max = open.channel_max;
        // AMQP 1.0 §2.4.5: the peer closes when it has heard nothing for this long; 0 and absent are never.
        let peer_us =
            open.idle_time_out.filter(|&milliseconds| milliseconds > 0).map(|ms| u64::from(ms) * 1000);
        let keep_alive_us = peer_us.map(|timeout| timeout / 2);
        self.timers.opened(self.now, self.config.idle_timeout_us, keep_alive_us);
        self.phase = match self.side {
            Side::Server => Phase::OpenReceived,
            Side::Client => Phase::Open,
        };
        Ok(Event::Opened(Box::new(open)))
    }

    fn write_header(&mut self, header: ProtocolHeader) {
        self.output.extend_from_slice(&header.bytes());
    }

    fn write_open(&mut self) {
        let config = self.config.clone();
        let offered: Vec<&str> = config.offered_capabilities.iter().map(|each| &**each).collect();
        let desired: Vec<&str> = config.desired_capabilities.iter().map(|each| &**each).collect();
        let open = Open {
            container_id: &config.container_id,
            hostname: config.hostname.as_deref(),
            max_frame_size: config.max_frame_size.max(FRAME_SIZE_MIN_MAX),
            channel_max: config.channel_max,
            // AMQP 1.0 §2.4.5: half of the real limit, so that a peer that is just in time is never cut off.
            idle_time_out: config
                .idle_timeout_us
                .map(|limit| u32::try_from(limit / 2000).unwrap_or(u32::MAX).max(1)),
            offered_capabilities: Symbols::new(&offered),
            desired_capabilities: Symbols::new(&desired),
            properties: Map::decode(&config.properties).ok(),
            ..Open::default()
        };
        write_frame(&mut self.output, FrameKind::Amqp, 0, &open, &[]);
        self.open_sent = true;
    }

    /// AMQP 1.0 §2.4.3: a close follows an open, so a server that has not opened does so now.
    pub(super) fn write_close(&mut self, error: Option<Error<'_>>) {
        if !self.open_sent {
            self.write_open();
        }
        write_frame(&mut self.output, FrameKind::Amqp, 0, &Close { error }, &[]);
    }
}

//! Who is the peer? The exchange of §5.3, as server or as client.
//!
//! A server's mechanisms are the caller's matter: it is told what the client says and answers. A client of `Caller` is
//! told what the server says; the other mechanisms need no caller. Whatever else a peer sends here, empty frames
//! included, ends the connection: there are no keep-alives in this layer.

use corelane_wire::amqp10::{
    Frame, FrameKind, SaslChallenge, SaslCode, SaslInit, SaslMechanisms, SaslOutcome, SaslPerformative,
    SaslResponse, Symbols, write_frame,
};

use super::config::Sasl;
use super::connection::{Connection, Phase, Side, Step};
use super::event::Event;
use super::fault;
use super::limits::SASL_ROUNDS_MAX;

/// What the exchange waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum SaslState {
    /// Server: the client chooses a mechanism.
    Init,
    /// Server: the client answers the challenge of this round.
    Response { round: u32 },
    /// Both: the caller must answer first. The rounds so far.
    Caller { round: u32 },
    /// Client: the server names its mechanisms.
    Mechanisms,
    /// Client: the server challenges or decides.
    Outcome { round: u32 },
}

impl Connection {
    /// Server: asks the client for more.
    pub fn sasl_challenge(&mut self, challenge: &[u8]) {
        let Phase::Sasl(SaslState::Caller { round }) = self.phase else { return };
        self.write_sasl(&SaslPerformative::Challenge(SaslChallenge { challenge }));
        self.phase = Phase::Sasl(SaslState::Response { round: round + 1 });
    }

    /// Server: decides. Anything but `Ok` ends the connection.
    pub fn sasl_outcome(&mut self, code: SaslCode, additional_data: Option<&[u8]>) {
        let Phase::Sasl(SaslState::Caller { .. }) = self.phase else { return };
        self.write_sasl(&SaslPerformative::Outcome(SaslOutcome { code, additional_data }));
        if code == SaslCode::Ok {
            self.finish_sasl();
        } else {
            self.fail_connection(fault::SASL, fault::SASL.description);
        }
    }

    /// Client: chooses a mechanism.
    pub fn sasl_init(&mut self, mechanism: &str, initial_response: Option<&[u8]>) {
        let Phase::Sasl(SaslState::Caller { round }) = self.phase else { return };
        self.write_init(mechanism, initial_response);
        self.phase = Phase::Sasl(SaslState::Outcome { round });
    }

    /// Client: answers a challenge.
    pub fn sasl_respond(&mut self, response: &[u8]) {
        let Phase::Sasl(SaslState::Caller { round }) = self.phase else { return };
        self.write_sasl(&SaslPerformative::Response(SaslResponse { response }));
        self.phase = Phase::Sasl(SaslState::Outcome { round });
    }

    pub(super) fn step_sasl<'a>(&mut self, input: &mut &'a [u8], state: SaslState) -> Step<'a> {
        if let SaslState::Caller { .. } = state {
            return Step::Wait;
        }
        let size_max = self.frame_before_open_max().max(corelane_wire::amqp10::FRAME_SIZE_MIN_MAX);
        let frame = match Frame::take(input, size_max) {
            Ok(Some(frame)) => frame,
            Ok(None) => return Step::Wait,
            Err(_) => return self.fail_sasl(),
        };
        if frame.kind != FrameKind::Sasl {
            return self.fail_sasl();
        }
        let Ok(performative) = SaslPerformative::decode(frame.body) else { return self.fail_sasl() };
        let event = match (state, performative) {
            (SaslState::Init, SaslPerformative::Init(init)) => self.handle_init(&init),
            (SaslState::Response { round }, SaslPerformative::Response(response)) => {
                self.phase = Phase::Sasl(SaslState::Caller { round });
                Some(Event::SaslResponse(response.response))
            }
            (SaslState::Mechanisms, SaslPerformative::Mechanisms(mechanisms)) => {
                self.handle_mechanisms(&mechanisms)
            }
            (SaslState::Outcome { round }, SaslPerformative::Challenge(challenge)) => {
                self.handle_challenge(&challenge, round)
            }
            (SaslState::Outcome { .. }, SaslPerformative::Outcome(outcome)) => {
                Some(self.handle_outcome(&outcome))
            }
            (_, _) => None,
        };
        match event {
            Some(event) => Step::Event(event),
            None if self.phase == Phase::Sasl(state) => self.fail_sasl(),
            None => Step::Again,
        }
    }

    fn handle_init<'a>(&mut self, init: &SaslInit<'a>) -> Option<Event<'a>> {
        let Sasl::Server { mechanisms, .. } = &self.config.sasl else { return None };
        // AMQP 1.0 §5.3.2: a mechanism that was not offered ends the connection.
        if !mechanisms.iter().any(|offered| **offered == *init.mechanism) {
            return None;
        }
        self.phase = Phase::Sasl(SaslState::Caller { round: 0 });
        let SaslInit { mechanism, initial_response, hostname } = *init;
        Some(Event::SaslInit { mechanism, initial_response, hostname })
    }

    fn handle_mechanisms<'a>(&mut self, offered: &SaslMechanisms<'a>) -> Option<Event<'a>> {
        let config = self.config.clone();
        let (mechanism, response): (&str, Vec<u8>) = match &config.sasl {
            Sasl::Caller => {
                self.phase = Phase::Sasl(SaslState::Caller { round: 0 });
                return Some(Event::SaslMechanisms(offered.mechanisms));
            }
            Sasl::Anonymous { trace } => ("ANONYMOUS", trace.as_bytes().to_vec()),
            Sasl::Plain { user, password } => ("PLAIN", format!("\0{user}\0{password}").into_bytes()),
            Sasl::External { identity } => ("EXTERNAL", identity.as_bytes().to_vec()),
            Sasl::Absent | Sasl::Server { .. } => return None,
        };
        if !offered.mechanisms.contains(mechanism) {
            return None;
        }
        self.write_init(mechanism, Some(&response));
        self.phase = Phase::Sasl(SaslState::Outcome { round: 0 });
        None
    }

    fn handle_challenge<'a>(&mut self, challenge: &SaslChallenge<'a>, round: u32) -> Option<Event<'a>> {
        if self.config.sasl != Sasl::Caller || round >= SASL_ROUNDS_MAX {
            return None;
        }
        self.phase = Phase::Sasl(SaslState::Caller { round: round + 1 });
        Some(Event::SaslChallenge(challenge.challenge))
    }

    fn handle_outcome<'a>(&mut self, outcome: &SaslOutcome<'a>) -> Event<'a> {
        if outcome.code == SaslCode::Ok {
            self.finish_sasl();
        } else {
            self.fail_connection(fault::SASL, fault::SASL.description);
        }
        Event::SaslOutcome { code: outcome.code, additional_data: outcome.additional_data }
    }

    pub(super) fn write_mechanisms(&mut self) {
        let config = self.config.clone();
        let Sasl::Server { mechanisms, .. } = &config.sasl else { return };
        let mechanisms: Vec<&str> = mechanisms.iter().map(|each| &**each).collect();
        self.write_sasl(&SaslPerformative::Mechanisms(SaslMechanisms {
            mechanisms: Symbols::new(&mechanisms),
        }));
    }

    fn write_init(&mut self, mechanism: &str, initial_response: Option<&[u8]>) {
        let config = self.config.clone();
        let hostname = config.hostname.as_deref();
        self.write_sasl(&SaslPerformative::Init(SaslInit { mechanism, initial_response, hostname }));
    }

    fn write_sasl(&mut self, performative: &SaslPerformative<'_>) {
        write_frame(&mut self.output, FrameKind::Sasl, 0, performative, &[]);
    }

    /// AMQP 1.0 §5.3.3.6: a server says that it failed, a client has nothing to say.
    #[cold]
    fn fail_sasl<'a>(&mut self) -> Step<'a> {
        if self.side == Side::Server {
            let outcome = SaslOutcome { code: SaslCode::Auth, additional_data: None };
            self.write_sasl(&SaslPerformative::Outcome(outcome));
        }
        self.fail_connection(fault::SASL, fault::SASL.description);
        Step::Again
    }
}

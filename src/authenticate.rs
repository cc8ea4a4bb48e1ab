//! Who is this client? SASL exchanges, carried on for the shards by the control thread, because an iterated hash
//! takes milliseconds.
//!
//! Invariants: at most `EXCHANGES_MAX` exchanges are open and at most `REFUSALS_MAX` refusals are held back; each step
//! gets exactly one answer, unless its connection ended; a refusal is answered `REFUSAL_DELAY_US` late, whatever its
//! reason, an acceptance at once. Unknown users and wrong passwords look and cost the same.
//! Left out: what rights mean (`corelane_shard`), and how the answers travel (`control`).

mod access;
mod exchange;
mod source;
mod verifiers;

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use corelane_shard::{ConnectionId, Peer, SaslReply, SaslStep};
use subtle::ConstantTimeEq;

pub use access::{ANONYMOUS, AccessRules, GUEST, PLAIN, SCRAM};
use exchange::{Claim, Exchange, Fault, Step};
pub use source::UsersSource;
use verifiers::{Remembered, Verifiers};

use crate::definitions::DefinedUser;
use crate::users::Users;

/// Open exchanges. When full, the oldest is refused: an honest one takes milliseconds.
pub const EXCHANGES_MAX: usize = 1024;
/// Refusals held back. When full, the oldest goes out early.
pub const REFUSALS_MAX: usize = 4096;
/// How long an exchange may take.
pub const EXCHANGE_US_MAX: u64 = 30_000_000;
/// How late a refusal is answered, so that guessing is slow.
pub const REFUSAL_DELAY_US: u64 = 500_000;

/// Who does not say who it is has the grants of a user of this name.
pub const ANONYMOUS_USER: &str = "anonymous";

/// Why a client was refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum RefusalReason {
    /// A mechanism that was not offered to it.
    Mechanism,
    /// Not what the mechanism's specification says.
    Malformed,
    /// An unknown user or a wrong password.
    Credentials,
    /// It took too long.
    Slow,
    /// Too many exchanges at a time, and this was the oldest.
    Crowded,
}

/// Answers that are due.
#[derive(Debug, PartialEq, Eq)]
pub struct Reply {
    /// The participant that asked.
    pub shard: usize,
    pub connection: ConnectionId,
    pub reply: SaslReply,
}

/// All exchanges of the process.
pub struct Authenticator {
    rules: AccessRules,
    source: Option<UsersSource>,
    secret: [u8; 32],
    verifiers: Arc<Verifiers>,
    defined: Arc<BTreeMap<String, DefinedUser>>,
    remembered: Remembered,
    exchanges: BTreeMap<ConnectionId, Open>,
    due: VecDeque<Reply>,
    /// With the time at which each is due, which rises.
    held_back: VecDeque<(u64, Reply)>,
    accepted_count: u64,
    refused_counts: BTreeMap<RefusalReason, u64>,
}

struct Open {
    shard: usize,
    who: Who,
    started_at: u64,
    exchange: Exchange,
}

/// Who tries to get in, for the log of refusals.
#[derive(Clone, Default)]
struct Who {
    peer: Option<Peer>,
    /// The user that it says it is.
    user: Option<String>,
}

impl Authenticator {
    /// `source`: the users file, when there is one. `secret`: random bytes, new for each process.
    /// `defined`: users that are known otherwise.
    pub fn new(
        allow_anonymous: bool,
        source: Option<UsersSource>,
        defined: BTreeMap<String, DefinedUser>,
        secret: [u8; 32],
    ) -> Authenticator {
        let users = source.as_ref().map_or_else(Users::default, |source| source.users().clone());
        let defined = Arc::new(defined);
        Authenticator {
            rules: AccessRules {
                has_users: source.is_some(),
                has_hashes: !defined.is_empty(),
                allow_anonymous,
            },
            source,
            secret,
            verifiers: Arc::new(Verifiers::new(users, defined.clone(), secret)),
            defined,
            remembered: Remembered::default(),
            exchanges: BTreeMap::new(),
            due: VecDeque::new(),
            held_back: VecDeque::new(),
            accepted_count: 0,
            refused_counts: BTreeMap::new(),
        }
    }

    /// A step of a client's exchange, from a shard.
    pub fn handle_step(&mut self, now: u64, shard: usize, connection: ConnectionId, step: SaslStep) {
        match step {
            SaslStep::Start { mechanism, initial_response, peer } => {
                self.start(now, shard, connection, &mechanism, peer);
                // AMQP 1.0 §5.3.3.3: without an initial response the server asks for it with an empty challenge.
                // ANONYMOUS has nothing more to say.
                match initial_response {
                    Some(message) => self.advance(now, shard, connection, &message),
                    None if mechanism == ANONYMOUS => self.advance(now, shard, connection, &[]),
                    None if self.exchanges.contains_key(&connection) => {
                        let reply = SaslReply::Challenge(Vec::new());
                        self.due.push_back(Reply { shard, connection, reply });
                    }
                    None => {}
                }
            }
            SaslStep::Response(message) => {
                if !self.exchanges.contains_key(&connection) && !self.is_refused(connection) {
                    self.refuse(now, shard, connection, &Who::default(), RefusalReason::Malformed);
                }
                self.advance(now, shard, connection, &message);
            }
            SaslStep::Abandon => {
                self.exchanges.remove(&connection);
                self.held_back.retain(|(_, reply)| reply.connection != connection);
            }
        }
    }

    /// Ends what took too long and lets go what was held back.
    pub fn handle_timeout(&mut self, now: u64) {
        while let Some(connection) = self.oldest().filter(|oldest| oldest.1 + EXCHANGE_US_MAX <= now) {
            self.end(now, connection.0, RefusalReason::Slow);
        }
        while self.held_back.front().is_some_and(|(due_at, _)| *due_at <= now) {
            self.due.extend(self.held_back.pop_front().map(|(_, reply)| reply));
        }
    }

    /// An answer that is due.
    pub fn poll_reply(&mut self) -> Option<Reply> {
        self.due.pop_front()
    }

    /// When to call `handle_timeout`.
    pub fn next_deadline(&self) -> Option<u64> {
        let slow = self.oldest().map(|(_, started_at)| started_at + EXCHANGE_US_MAX);
        let held_back = self.held_back.front().map(|(due_at, _)| *due_at);
        slow.into_iter().chain(held_back).min()
    }

    /// What clients are offered.
    pub fn rules(&self) -> AccessRules {
        self.rules
    }

    pub fn accepted_count(&self) -> u64 {
        self.accepted_count
    }

    pub fn refused_count(&self, reason: RefusalReason) -> u64 {
        self.refused_counts.get(&reason).copied().unwrap_or(0)
    }

    /// Opens an exchange, or refuses.
    fn start(&mut self, now: u64, shard: usize, connection: ConnectionId, mechanism: &str, peer: Peer) {
        self.refresh_users(now);
        self.exchanges.remove(&connection);
        let who = Who { peer: Some(peer), user: None };
        let offered = self.rules.mechanisms(peer.loopback).contains(&mechanism);
        let exchange = offered.then(|| Exchange::new(mechanism, Arc::clone(&self.verifiers))).flatten();
        let Some(exchange) = exchange else {
            return self.refuse(now, shard, connection, &who, RefusalReason::Mechanism);
        };
        if self.exchanges.len() >= EXCHANGES_MAX
            && let Some((oldest, _)) = self.oldest()
        {
            self.end(now, oldest, RefusalReason::Crowded);
        }
        self.exchanges.insert(connection, Open { shard, who, started_at: now, exchange });
    }

    /// Gives an open exchange a message of its client.
    fn advance(&mut self, now: u64, shard: usize, connection: ConnectionId, message: &[u8]) {
        let Some(open) = self.exchanges.get_mut(&connection) else { return };
        if open.who.user.is_none() {
            open.who.user = open.exchange.user_named(message);
        }
        let step = open.exchange.step(message);
        if let Step::Challenge(challenge) = step {
            return self.due.push_back(Reply { shard, connection, reply: SaslReply::Challenge(challenge) });
        }
        let Some(Open { who, .. }) = self.exchanges.remove(&connection) else { return };
        let loopback = who.peer.is_some_and(|peer| peer.loopback);
        match step {
            Step::Challenge(_) => {}
            Step::Failed(Fault::Malformed) => {
                self.refuse(now, shard, connection, &who, RefusalReason::Malformed);
            }
            Step::Failed(Fault::NotProved) => {
                self.refuse(now, shard, connection, &who, RefusalReason::Credentials);
            }
            Step::Claimed(claim, additional) => {
                let is_named = claim != Claim::Anonymous;
                match self.check(claim, loopback) {
                    Some(user) => {
                        self.accepted_count += 1;
                        tracing::debug!(connection = connection.0, user, "authenticated");
                        let user = is_named.then_some(user);
                        let rights = self.verifiers.rights(user.as_deref().unwrap_or(ANONYMOUS_USER));
                        let reply = SaslReply::Accepted { user, rights, additional };
                        self.due.push_back(Reply { shard, connection, reply });
                    }
                    None => self.refuse(now, shard, connection, &who, RefusalReason::Credentials),
                }
            }
        }
    }

    /// The user that a claim makes of a client.
    fn check(&mut self, claim: Claim, loopback: bool) -> Option<String> {
        match claim {
            Claim::Anonymous => self.rules.anonymous(loopback).then(|| ANONYMOUS_USER.to_owned()),
            Claim::Proved { name } => Some(name),
            Claim::Password { name, password } if self.rules.has_users || self.rules.has_hashes => {
                self.verifiers.accepts(&name, &password, &mut self.remembered).then_some(name)
            }
            Claim::Password { name, password } => {
                let right: bool = password.ct_eq(GUEST.as_bytes()).into();
                (self.rules.guest(loopback) && name == GUEST && right).then_some(name)
            }
        }
    }

    fn end(&mut self, now: u64, connection: ConnectionId, reason: RefusalReason) {
        if let Some(open) = self.exchanges.remove(&connection) {
            self.refuse(now, open.shard, connection, &open.who, reason);
        }
    }

    fn refuse(&mut self, now: u64, shard: usize, connection: ConnectionId, who: &Who, reason: RefusalReason) {
        *self.refused_counts.entry(reason).or_default() += 1;
        let address = who.peer.and_then(|peer| peer.address).map(tracing::field::display);
        // Quoted: a name may hold anything.
        let user = who.user.as_deref().map(tracing::field::debug);
        tracing::info!(connection = connection.0, address, user, ?reason, "authentication refused");
        if self.held_back.len() >= REFUSALS_MAX {
            self.due.extend(self.held_back.pop_front().map(|(_, reply)| reply));
        }
        let reply = Reply { shard, connection, reply: SaslReply::Refused };
        self.held_back.push_back((now + REFUSAL_DELAY_US, reply));
    }

    fn is_refused(&self, connection: ConnectionId) -> bool {
        self.held_back.iter().any(|(_, reply)| reply.connection == connection)
    }

    fn oldest(&self) -> Option<(ConnectionId, u64)> {
        let by_age = self.exchanges.iter().map(|(connection, open)| (*connection, open.started_at));
        by_age.min_by_key(|(_, started_at)| *started_at)
    }

    /// Takes over a users file that has changed. One that cannot be read changes nothing.
    fn refresh_users(&mut self, now: u64) {
        let Some(source) = &mut self.source else { return };
        match source.refresh(now) {
            Ok(false) => {}
            Ok(true) => {
                tracing::info!(users = source.users().count(), "the users file was read again");
                self.verifiers =
                    Arc::new(Verifiers::new(source.users().clone(), self.defined.clone(), self.secret));
            }
            Err(error) => {
                tracing::warn!(%error, "the users file changed and cannot be used; the old users stay")
            }
        }
    }
}

#[cfg(test)]
#[path = "authenticate/authenticate_tests.rs"]
mod tests;

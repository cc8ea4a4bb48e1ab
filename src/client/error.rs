//! Why could the client not do it? Each message says what to do about it.

use std::fmt;
use std::io;

use super::url::Url;

/// Why the client gave up.
#[derive(Debug)]
pub enum ClientError {
    /// No connection.
    Unreachable { url: Url, error: io::Error },
    /// The connection broke.
    Broken { url: Url, error: io::Error },
    /// The broker, or something else that listens there, closed the connection without a word.
    ClosedSilently { url: Url },
    /// Nobody answered in time.
    NoAnswer { url: Url, awaited: &'static str },
    /// A request to the management node is not answered in time.
    Unanswered { url: Url, wait_us: u64 },
    /// None of the ways in that the broker offers is open to us.
    NoMechanism { offered: Vec<String>, has_credentials: bool },
    /// A wrong name or password.
    Refused { user: Option<String> },
    /// The broker could not prove that it knows our password.
    ImpostorBroker,
    /// The user's name or password cannot be sent.
    UnfitCredentials,
    /// The broker ended the connection with an error.
    ConnectionClosed { reason: Reason },
    /// The broker ended the session with an error.
    SessionEnded { reason: Reason },
    /// The broker refused or ended the link to an address.
    LinkEnded { address: String, reason: Reason },
    /// The message is larger than the broker takes at this address.
    MessageTooLarge { size_max: Option<u64> },
    /// A message that cannot be read.
    Unreadable,
    /// The management node has not done what it was asked to.
    Managed { status: i64, description: String },
}

/// An error that the broker told.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Reason {
    /// Empty: none was given.
    pub condition: String,
    pub description: String,
}

impl Reason {
    pub(super) fn new(error: Option<corelane_wire::amqp10::Error<'_>>) -> Reason {
        error.map_or_else(Reason::default, |error| Reason {
            condition: error.condition.to_owned(),
            description: error.description.unwrap_or_default().to_owned(),
        })
    }
}

impl fmt::Display for Reason {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self.condition.as_str(), self.description.as_str()) {
            ("", _) => formatter.write_str("no reason was given"),
            (condition, "") => formatter.write_str(condition),
            (condition, description) => write!(formatter, "{description} ({condition})"),
        }
    }
}

impl fmt::Display for ClientError {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ClientError::Unreachable { url, error } => write!(
                formatter,
                "cannot connect to {url}: {error}. Is the broker running there? Start one with `corelane serve`, or say \
                 where it is with --url amqp://HOST:PORT"
            ),
            ClientError::Broken { url, error } => {
                write!(formatter, "the connection to {url} broke: {error}. Try again")
            }
            ClientError::ClosedSilently { url } => write!(
                formatter,
                "{url} closed the connection without a reason. Does an AMQP 1.0 broker listen there?"
            ),
            ClientError::NoAnswer { url, awaited } => write!(
                formatter,
                "{url} did not answer in time ({awaited}). Does an AMQP 1.0 broker listen there?"
            ),
            ClientError::Unanswered { url, wait_us } => write!(
                formatter,
                "no answer from the management node of {url} within {} s. It may have done what it was asked for, or still be at \
                 it (messages are moved, copied and deleted to the end, which its log tells), or be overloaded; --timeout says \
                 how long to wait",
                *wait_us as f64 / 1e6
            ),
            ClientError::NoMechanism { offered, has_credentials } => {
                let offered = if offered.is_empty() { "nothing".to_owned() } else { offered.join(", ") };
                let advice = if *has_credentials {
                    "None of these works with a password; leave the user out of --url"
                } else {
                    "Say who you are with --url amqp://USER:PASSWORD@HOST:PORT"
                };
                write!(formatter, "the broker offers {offered} to log in. {advice}")
            }
            ClientError::Refused { user: Some(user) } => write!(
                formatter,
                "the broker refused user {user:?}: unknown, or the password is wrong. Check --url; \
                 `corelane user list` shows the users of a file"
            ),
            ClientError::Refused { user: None } => formatter.write_str(
                "the broker refuses anonymous clients. Say who you are with --url amqp://USER:PASSWORD@HOST:PORT",
            ),
            ClientError::ImpostorBroker => formatter.write_str(
                "the broker could not prove that it knows this user's password; it may be an impostor. Check --url",
            ),
            ClientError::UnfitCredentials => {
                formatter.write_str("the name or the password holds characters that cannot be used (RFC 4013)")
            }
            ClientError::ConnectionClosed { reason } => {
                write!(formatter, "the broker closed the connection: {reason}")
            }
            ClientError::SessionEnded { reason } => write!(formatter, "the broker ended the session: {reason}"),
            ClientError::LinkEnded { address, reason } if reason.condition == "amqp:not-found" => {
                write!(formatter, "{address:?} does not exist: {reason}{}", advice_on(address))
            }
            ClientError::LinkEnded { address, reason } => {
                write!(formatter, "the broker ended the link to {address:?}: {reason}")
            }
            ClientError::MessageTooLarge { size_max } => {
                let limit = size_max.map_or(String::new(), |size| format!(" (at most {size} bytes)"));
                write!(formatter, "the message is larger than the broker takes{limit}; see --max-message-size")
            }
            ClientError::Managed { status, description } => {
                write!(formatter, "the broker says: {description} ({status})")
            }
            ClientError::Unreadable => formatter.write_str("a message that arrived cannot be read"),
        }
    }
}

/// What to do where there is no such queue; none is called as a pattern.
fn advice_on(address: &str) -> &'static str {
    let is_pattern = address.contains(['*', '>', '#']);
    if is_pattern { "" } else { ". Check the name, or make it first: corelane queue create" }
}

impl std::error::Error for ClientError {}

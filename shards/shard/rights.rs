//! What may a user do, in which virtual host?
//!
//! As RabbitMQ has it: a regular expression each for configuring, writing and reading, which the name of a queue, a topic or an exchange
//! has to match somewhere; an empty one matches nothing. The default exchange is called `amq.default` in this.
//!
//! | | configure | write | read |
//! |---|---|---|---|
//! | declare, delete, and to make on first use | the queue or exchange | | |
//! | declare with a dead letter exchange, an alternate exchange | | that one | the queue, the exchange |
//! | publish, attach as a sender | | the exchange; the queue or topic that is named | |
//! | bind, unbind | | the destination | the source |
//! | consume, get, purge, attach as a receiver | | | the queue or topic |
//!
//! They hold as they were when the user logged in. A user without any is not restricted: which ones that are is decided where
//! users are known.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use regex::{Regex, RegexBuilder};

use crate::Shard;
use crate::amqp091::ChannelFault;
use crate::attach::Refused;
use crate::event::ConnectionSlot;
use crate::limits::PERMISSION_BYTES_MAX;
use crate::vhost::{self, InVhost};
use corelane_wire::amqp091::ReplyCode;

/// What texts call who has not said who it is.
pub(crate) const NOBODY: &str = "anonymous";

/// What texts call the default exchange.
const DEFAULT_EXCHANGE: &str = "amq.default";

/// What a user may be wanted to have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Right {
    Configure,
    Write,
    Read,
}

/// What a right is to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Object {
    Queue,
    Topic,
    Exchange,
}

/// What a user may do in one virtual host.
#[derive(Debug)]
pub struct Permission {
    configure: Regex,
    write: Regex,
    read: Regex,
}

/// What a user may do.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Rights {
    pub permissions: BTreeMap<Box<str>, Arc<Permission>>,
    /// It manages what there is.
    pub is_administrator: bool,
    /// It may say that others have sent its messages.
    pub is_impersonator: bool,
}

/// Nobody may do that.
#[derive(Debug)]
pub(crate) struct Denied(String);

impl PartialEq for Permission {
    fn eq(&self, other: &Self) -> bool {
        let patterns =
            |it: &Permission| [&it.configure, &it.write, &it.read].map(|regex| regex.as_str().to_owned());
        patterns(self) == patterns(other)
    }
}

impl Eq for Permission {}

impl Permission {
    /// Patterns of names: to configure, to write, to read. What is wrong with one is said.
    pub fn new([configure, write, read]: [&str; 3]) -> Result<Permission, String> {
        Ok(Permission { configure: pattern(configure)?, write: pattern(write)?, read: pattern(read)? })
    }

    fn allows(&self, right: Right, name: &str) -> bool {
        match right {
            Right::Configure => self.configure.is_match(name),
            Right::Write => self.write.is_match(name),
            Right::Read => self.read.is_match(name),
        }
    }
}

fn pattern(text: &str) -> Result<Regex, String> {
    // Nothing, as in RabbitMQ.
    let text = if text.is_empty() { "^$" } else { text };
    let built = RegexBuilder::new(text).size_limit(PERMISSION_BYTES_MAX).build();
    built.map_err(|error| format!("{text:?} is not a regular expression: {error}"))
}

impl fmt::Display for Right {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Right::Configure => "configure",
            Right::Write => "write",
            Right::Read => "read",
        })
    }
}

impl fmt::Display for Object {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Object::Queue => "queue",
            Object::Topic => "topic",
            Object::Exchange => "exchange",
        })
    }
}

impl From<Denied> for ChannelFault {
    fn from(denied: Denied) -> Self {
        ChannelFault::new(ReplyCode::AccessRefused, denied.0)
    }
}

impl From<Denied> for Refused {
    fn from(denied: Denied) -> Self {
        Refused::new("amqp:unauthorized-access", denied.0)
    }
}

impl Shard {
    /// Whether a connection's user has a right to the thing of this name.
    pub(crate) fn check_right(
        &mut self,
        slot: ConnectionSlot,
        right: Right,
        object: Object,
        name: &str,
    ) -> Result<(), Denied> {
        let Some(connection) = self.connections.get_mut(slot) else { return Ok(()) };
        let Some(permission) = connection.permission.as_deref() else { return Ok(()) };
        let (vhost, plain) = vhost::parts(name);
        let plain = if object == Object::Exchange && plain.is_empty() { DEFAULT_EXCHANGE } else { plain };
        if permission.allows(right, plain) {
            return Ok(());
        }
        let user = connection.user.as_deref().unwrap_or(NOBODY);
        let name = vhost::within(vhost, plain);
        Err(Denied(format!("{right} access to {object} {} refused for user '{user}'", InVhost(&name))))
    }

    /// Whether it may make what is not there.
    pub(crate) fn may_configure(&mut self, slot: ConnectionSlot, name: &str) -> bool {
        self.check_right(slot, Right::Configure, Object::Queue, name).is_ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns_match_anywhere_and_an_empty_one_matches_nothing() {
        let permission = Permission::new(["^a", "b", ""]).unwrap();
        for (right, name, expect) in [
            (Right::Configure, "ab", true),
            (Right::Configure, "ba", false),
            (Right::Write, "abc", true),
            (Right::Write, "a", false),
            (Right::Read, "a", false),
            (Right::Read, "b", false),
        ] {
            assert_eq!(permission.allows(right, name), expect, "{right} {name}");
        }
        assert!(Permission::new(["(", "", ""]).unwrap_err().contains("is not a regular expression"));
        assert!(Permission::new(["", "(a{1000}){1000}", ""]).is_err(), "its size is bounded");
    }
}

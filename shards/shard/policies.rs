//! What do policies say about queues, by patterns of their names?
//!
//! Of those of a virtual host whose pattern matches a queue's name, the one of the highest priority holds, and of several of that the
//! first. It stands above the rules for destinations and below how the queue was declared.

use corelane_wire::amqp091::Table;
use regex::{Regex, RegexBuilder};

use crate::amqp091::Declared;
use crate::destinations::DestinationRule;
use crate::limits::PERMISSION_BYTES_MAX;
use crate::vhost;

/// One policy.
#[derive(Clone, Debug)]
pub struct Policy {
    vhost: Box<str>,
    pattern: Regex,
    priority: i64,
    rule: DestinationRule,
}

impl PartialEq for Policy {
    fn eq(&self, other: &Self) -> bool {
        let parts = |it: &Policy| (it.vhost.clone(), it.pattern.as_str().to_owned(), it.priority);
        parts(self) == parts(other) && self.rule == other.rule
    }
}

impl Policy {
    /// `arguments`: an encoded table of a queue's arguments, which say what holds. Names that nobody knows are told to `unknown`.
    pub fn new(
        vhost: &str,
        pattern: &str,
        priority: i64,
        arguments: &[u8],
        mut unknown: impl FnMut(&str),
    ) -> Result<Policy, String> {
        let built = RegexBuilder::new(pattern).size_limit(PERMISSION_BYTES_MAX).build();
        let pattern = built.map_err(|error| format!("{pattern:?} is not a regular expression: {error}"))?;
        let declared = Declared::read("", (true, false), Table::new(arguments), |name| {
            unknown(name.as_str().unwrap_or_default());
        });
        let rule = declared.map_err(|refused| refused.to_string())?.rule();
        let rule = DestinationRule { auto_delete: None, ..rule };
        Ok(Policy { vhost: vhost.into(), pattern, priority, rule })
    }
}

/// The policy that holds for the queue of this name.
pub(crate) fn policy_of<'a>(policies: &'a [Policy], name: &str) -> Option<&'a DestinationRule> {
    let (vhost, plain) = vhost::parts(name);
    let mut found: Option<&Policy> = None;
    for policy in policies.iter().filter(|it| *it.vhost == *vhost && it.pattern.is_match(plain)) {
        if found.is_none_or(|found| found.priority < policy.priority) {
            found = Some(policy);
        }
    }
    found.map(|policy| &policy.rule)
}

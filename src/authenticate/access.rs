//! Which ways in are open, and to whom? The one place that knows the defaults for loopback.
//!
//! Invariant: with a users file, nobody comes in without a verifier, unless anonymous clients were allowed in so many
//! words.

/// The mechanism of a verifier.
pub const SCRAM: &str = "SCRAM-SHA-256";
/// A password in the clear.
pub const PLAIN: &str = "PLAIN";
/// Nobody in particular.
pub const ANONYMOUS: &str = "ANONYMOUS";

/// The user and the password that nearly every client tries on its own machine.
pub const GUEST: &str = "guest";

/// The rules of this process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AccessRules {
    /// There is a users file.
    pub has_users: bool,
    /// There are users whose passwords are known by hashes that are good for PLAIN alone.
    pub has_hashes: bool,
    /// Anonymous clients are welcome from everywhere.
    pub allow_anonymous: bool,
}

impl AccessRules {
    /// What is offered to a client, strongest first.
    pub fn mechanisms(self, loopback: bool) -> &'static [&'static str] {
        if self.has_hashes {
            return if self.anonymous(loopback) { &[PLAIN, ANONYMOUS] } else { &[PLAIN] };
        }
        match (self.has_users, self.guest(loopback), self.anonymous(loopback)) {
            (true, _, true) => &[SCRAM, PLAIN, ANONYMOUS],
            (true, _, false) => &[SCRAM, PLAIN],
            (false, true, true) => &[PLAIN, ANONYMOUS],
            (false, true, false) => &[PLAIN],
            (false, false, true) => &[ANONYMOUS],
            (false, false, false) => &[],
        }
    }

    /// A client may say nothing about itself: ANONYMOUS, or no SASL at all.
    pub fn anonymous(self, loopback: bool) -> bool {
        self.allow_anonymous || self.guest(loopback)
    }

    /// The user guest with the password guest is known.
    pub fn guest(self, loopback: bool) -> bool {
        loopback && !self.has_users && !self.has_hashes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_may_come_in() {
        let check = |has_users, allow_anonymous, loopback, expected: &str| {
            let rules = AccessRules { has_users, has_hashes: false, allow_anonymous };
            assert_eq!(rules.mechanisms(loopback).join(" "), expected, "{rules:?} loopback {loopback}");
            assert_eq!(rules.anonymous(loopback), expected.contains(ANONYMOUS));
        };
        check(false, false, true, "PLAIN ANONYMOUS");
        check(false, false, false, "");
        check(false, true, true, "PLAIN ANONYMOUS");
        check(false, true, false, "ANONYMOUS");
        check(true, false, true, "SCRAM-SHA-256 PLAIN");
        check(true, false, false, "SCRAM-SHA-256 PLAIN");
        check(true, true, true, "SCRAM-SHA-256 PLAIN ANONYMOUS");
        check(true, true, false, "SCRAM-SHA-256 PLAIN ANONYMOUS");
        for has_users in [false, true] {
            let rules = AccessRules { has_users, has_hashes: true, allow_anonymous: false };
            assert_eq!(rules.mechanisms(true), [PLAIN]);
            assert!(!rules.guest(true));
        }
    }
}

//! Who are the users? A file of SCRAM-SHA-256 verifiers, one a line, kept by `corelane user`.
//!
//! A line is `NAME SCRAM-SHA-256$ITERATIONS:SALT$STORED-KEY:SERVER-KEY` (RFC 5803's content; the three values in base64).
//! From a verifier no password can be read, but guesses can be tried, so the file has mode 0600.
//!
//! Invariants: a file on disk is always complete (it is replaced by rename, writers hold a lock on its folder); names are
//! unique, prepared as RFC 4013 (SASLprep) says, and hold no white space; no password is ever written.
//! Further lines say what a user may do (`grants`). Left out: the exchange with a client (`authenticate`).

mod file;
mod grants;
mod verifier;

use std::collections::BTreeMap;
use std::fmt;

use corelane_shard::Rights;

pub use file::{FileStamp, UsersFileError, load, load_or_empty, update};
pub use grants::{Grants, Tag};
pub use verifier::{ITERATIONS, KEY_BYTES, Verifier, VerifierError, fill_random};

/// Bytes of a user's name at most.
pub const NAME_BYTES_MAX: usize = 255;
/// Bytes of a password at most; a longer one is refused rather than cut.
pub const PASSWORD_BYTES_MAX: usize = 1024;
/// Users of a file at most.
pub const USERS_MAX: usize = 100_000;

/// The users and their verifiers.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Users {
    verifiers: BTreeMap<String, Verifier>,
    /// Of those that have any.
    grants: BTreeMap<String, Grants>,
    /// Somebody was granted something once: each may do what is granted alone, also when nothing is any more.
    is_restricted: bool,
}

/// Why a name or a password cannot be used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CredentialError {
    NameEmpty,
    NameTooLong,
    NameCharacter,
    PasswordEmpty,
    PasswordTooLong,
    PasswordCharacter,
}

impl fmt::Display for CredentialError {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            CredentialError::NameEmpty => formatter.write_str("a user's name must not be empty"),
            CredentialError::NameTooLong => {
                write!(formatter, "a user's name has at most {NAME_BYTES_MAX} bytes")
            }
            CredentialError::NameCharacter => formatter
                .write_str("a user's name must not hold white space, control characters or a leading #"),
            CredentialError::PasswordEmpty => formatter.write_str("a password must not be empty"),
            CredentialError::PasswordTooLong => {
                write!(formatter, "a password has at most {PASSWORD_BYTES_MAX} bytes")
            }
            CredentialError::PasswordCharacter => {
                formatter.write_str("a password must not hold control characters (RFC 4013)")
            }
        }
    }
}

impl std::error::Error for CredentialError {}

impl Users {
    /// The verifier of a prepared name.
    pub fn verifier(&self, name: &str) -> Option<&Verifier> {
        self.verifiers.get(name)
    }

    /// Adds a user or replaces its verifier; tells whether the name was there.
    pub fn insert(&mut self, name: String, verifier: Verifier) -> bool {
        self.verifiers.insert(name, verifier).is_some()
    }

    /// Removes a user; tells whether it was there.
    pub fn remove(&mut self, name: &str) -> bool {
        self.grants.remove(name);
        self.verifiers.remove(name).is_some()
    }

    /// What a user may do; none: everything, since nobody was granted anything.
    pub fn rights(&self, name: &str) -> Option<Rights> {
        self.is_restricted.then(|| self.grants.get(name).map(Grants::rights).unwrap_or_default())
    }

    pub fn grants(&self, name: &str) -> Option<&Grants> {
        self.grants.get(name)
    }

    /// Changes the grants of a user.
    pub fn change_grants<T>(&mut self, name: &str, change: impl FnOnce(&mut Grants) -> T) -> T {
        let mut grants = self.grants.remove(name).unwrap_or_default();
        let result = change(&mut grants);
        if !grants.is_empty() {
            self.is_restricted = true;
            self.grants.insert(name.to_owned(), grants);
        }
        result
    }

    /// In order of their names.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.verifiers.keys().map(String::as_str)
    }

    pub fn count(&self) -> usize {
        self.verifiers.len()
    }
}

/// A user's name as it is stored and compared. RFC 4013: SASLprep.
pub fn prepare_name(name: &str) -> Result<String, CredentialError> {
    let prepared = stringprep::saslprep(name).map_err(|_| CredentialError::NameCharacter)?;
    if prepared.is_empty() {
        return Err(CredentialError::NameEmpty);
    }
    if prepared.len() > NAME_BYTES_MAX {
        return Err(CredentialError::NameTooLong);
    }
    let unfit = |c: char| c.is_whitespace() || c.is_control();
    if prepared.starts_with('#') || prepared.contains(unfit) {
        return Err(CredentialError::NameCharacter);
    }
    Ok(prepared.into_owned())
}

/// A password as it is hashed. RFC 5802 §2.2: Normalize(password) is SASLprep.
pub fn prepare_password(password: &str) -> Result<String, CredentialError> {
    if password.len() > PASSWORD_BYTES_MAX {
        return Err(CredentialError::PasswordTooLong);
    }
    let prepared = stringprep::saslprep(password).map_err(|_| CredentialError::PasswordCharacter)?;
    if prepared.is_empty() {
        return Err(CredentialError::PasswordEmpty);
    }
    Ok(prepared.into_owned())
}

#[cfg(test)]
#[path = "users/users_tests.rs"]
mod tests;

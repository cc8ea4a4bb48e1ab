//! How is a password checked without being known? RFC 5802 §3: a salted, iterated hash, and two keys made from it.
//!
//! `SaltedPassword = Hi(password, salt, iterations)`; `StoredKey = H(HMAC(SaltedPassword, "Client Key"))`;
//! `ServerKey = HMAC(SaltedPassword, "Server Key")`.
//!
//! Invariants: iterations are at least what RFC 7677 §4 asks (4096); keys have 32 bytes; comparisons take the same time
//! wherever the first difference is.

use std::fmt;
use std::str::FromStr;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use rsasl::mechanisms::scram::tools::{derive_keys, hash_password};
use sha2::{Digest, Sha256};
use subtle::ConstantTimeEq;

/// Bytes of SHA-256's digest.
pub const KEY_BYTES: usize = 32;
/// Bytes of the salt of a new verifier.
const SALT_BYTES: usize = 24;
/// Iterations of a new verifier: some milliseconds to check, for us and for whoever guesses.
pub const ITERATIONS: u32 = 16_384;

/// RFC 7677 §4: at least 4096.
const ITERATIONS_MIN: u32 = 4096;
/// More would let a line of the file stop the thread that checks for seconds.
const ITERATIONS_MAX: u32 = 1_000_000;
/// Bytes of a salt that is read.
const SALT_BYTES_MAX: usize = 256;
const MECHANISM: &str = "SCRAM-SHA-256";

/// What is stored of a password.
#[derive(Clone, PartialEq, Eq)]
pub struct Verifier {
    pub iterations: u32,
    pub salt: Vec<u8>,
    pub stored_key: [u8; KEY_BYTES],
    pub server_key: [u8; KEY_BYTES],
}

/// Why a text is not a verifier.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum VerifierError {
    Shape,
    Mechanism,
    Iterations,
    Base64,
    KeySize,
}

impl fmt::Display for VerifierError {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            VerifierError::Shape => {
                write!(formatter, "expected {MECHANISM}$ITERATIONS:SALT$STORED-KEY:SERVER-KEY after the name")
            }
            VerifierError::Mechanism => write!(formatter, "only {MECHANISM} verifiers are known"),
            VerifierError::Iterations => {
                write!(formatter, "iterations must be a number from {ITERATIONS_MIN} to {ITERATIONS_MAX}")
            }
            VerifierError::Base64 => formatter.write_str("salt and keys must be base64"),
            VerifierError::KeySize => {
                write!(formatter, "each key must have {KEY_BYTES} bytes, the salt 1 to {SALT_BYTES_MAX}")
            }
        }
    }
}

impl std::error::Error for VerifierError {}

impl Verifier {
    /// The verifier of a prepared password.
    pub fn new(password: &str, salt: &[u8], iterations: u32) -> Verifier {
        let (stored_key, server_key) = keys(password.as_bytes(), salt, iterations);
        Verifier { iterations, salt: salt.to_vec(), stored_key, server_key }
    }

    /// The verifier of a prepared password, with a salt that nobody can foretell.
    pub fn with_random_salt(password: &str, iterations: u32) -> std::io::Result<Verifier> {
        let mut salt = [0; SALT_BYTES];
        fill_random(&mut salt)?;
        Ok(Verifier::new(password, &salt, iterations))
    }

    /// Whether this is the prepared password. Costs `iterations` hashes.
    pub fn accepts(&self, password: &[u8]) -> bool {
        let (stored_key, _) = keys(password, &self.salt, self.iterations);
        stored_key.ct_eq(&self.stored_key).into()
    }
}

/// The verifier as it stands in the file.
impl fmt::Display for Verifier {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            formatter,
            "{MECHANISM}${}:{}${}:{}",
            self.iterations,
            STANDARD.encode(&self.salt),
            STANDARD.encode(self.stored_key),
            STANDARD.encode(self.server_key)
        )
    }
}

impl FromStr for Verifier {
    type Err = VerifierError;

    fn from_str(text: &str) -> Result<Self, VerifierError> {
        let (mechanism, rest) = text.split_once('$').ok_or(VerifierError::Shape)?;
        if mechanism != MECHANISM {
            return Err(VerifierError::Mechanism);
        }
        let (hashing, keys) = rest.split_once('$').ok_or(VerifierError::Shape)?;
        let (iterations, salt) = hashing.split_once(':').ok_or(VerifierError::Shape)?;
        let (stored_key, server_key) = keys.split_once(':').ok_or(VerifierError::Shape)?;
        let iterations = iterations.parse().map_err(|_| VerifierError::Iterations)?;
        if !(ITERATIONS_MIN..=ITERATIONS_MAX).contains(&iterations) {
            return Err(VerifierError::Iterations);
        }
        let salt = STANDARD.decode(salt).map_err(|_| VerifierError::Base64)?;
        if salt.is_empty() || salt.len() > SALT_BYTES_MAX {
            return Err(VerifierError::KeySize);
        }
        Ok(Verifier { iterations, salt, stored_key: key(stored_key)?, server_key: key(server_key)? })
    }
}

/// Keys stay out of logs and panics.
impl fmt::Debug for Verifier {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("Verifier").field("iterations", &self.iterations).finish_non_exhaustive()
    }
}

/// Random bytes from the kernel.
pub fn fill_random(mut bytes: &mut [u8]) -> std::io::Result<()> {
    while !bytes.is_empty() {
        let count = rustix::rand::getrandom(&mut *bytes, rustix::rand::GetRandomFlags::empty())?;
        bytes = &mut bytes[count..];
    }
    Ok(())
}

/// StoredKey and ServerKey.
fn keys(password: &[u8], salt: &[u8], iterations: u32) -> ([u8; KEY_BYTES], [u8; KEY_BYTES]) {
    let mut salted = Default::default();
    hash_password::<Sha256>(password, iterations, salt, &mut salted);
    let (client_key, server_key) = derive_keys::<Sha256>(&salted);
    (Sha256::digest(client_key).into(), server_key.into())
}

fn key(text: &str) -> Result<[u8; KEY_BYTES], VerifierError> {
    let bytes = STANDARD.decode(text).map_err(|_| VerifierError::Base64)?;
    bytes.try_into().map_err(|_| VerifierError::KeySize)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// RFC 7677 §3: user `user`, password `pencil`; the proof and the signature there follow from these keys.
    #[test]
    fn keys_are_those_of_the_specification() {
        let salt = STANDARD.decode("W22ZaJ0SNY7soEsUEjb6gQ==").unwrap();
        let verifier = Verifier::new("pencil", &salt, 4096);
        assert_eq!(STANDARD.encode(verifier.stored_key), "WG5d8oPm3OtcPnkdi4Uo7BkeZkBFzpcXkuLmtbsT4qY=");
        assert_eq!(STANDARD.encode(verifier.server_key), "wfPLwcE6nTWhTAmQ7tl2KeoiWGPlZqQxSrmfPwDl2dU=");
        assert!(verifier.accepts(b"pencil"));
        assert!(!verifier.accepts(b"pencils"));
    }

    #[test]
    fn what_is_written_reads_back() {
        let verifier = Verifier::with_random_salt("secret", 4096).unwrap();
        let text = verifier.to_string();
        assert!(!text.contains("secret"));
        assert!(!text.contains(char::is_whitespace));
        assert_eq!(text.parse(), Ok(verifier));
    }

    #[test]
    fn what_is_not_a_verifier_is_told() {
        let key = STANDARD.encode([7; KEY_BYTES]);
        let check = |text: String, expected: VerifierError| {
            assert_eq!(text.parse::<Verifier>(), Err(expected), "{text:?}");
        };
        check(String::new(), VerifierError::Shape);
        check("secret".to_owned(), VerifierError::Shape);
        check(format!("SCRAM-SHA-1$4096:c2FsdA==${key}:{key}"), VerifierError::Mechanism);
        check(format!("SCRAM-SHA-256$c2FsdA==${key}:{key}"), VerifierError::Shape);
        check(format!("SCRAM-SHA-256$4096:c2FsdA==${key}"), VerifierError::Shape);
        check(format!("SCRAM-SHA-256$1:c2FsdA==${key}:{key}"), VerifierError::Iterations);
        check(format!("SCRAM-SHA-256$99999999:c2FsdA==${key}:{key}"), VerifierError::Iterations);
        check(format!("SCRAM-SHA-256$4096:salt!${key}:{key}"), VerifierError::Base64);
        check(format!("SCRAM-SHA-256$4096:${key}:{key}"), VerifierError::KeySize);
        check(format!("SCRAM-SHA-256$4096:c2FsdA==$c2FsdA==:{key}"), VerifierError::KeySize);
    }
}

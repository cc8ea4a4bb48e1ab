//! How does RabbitMQ keep a password? As base64 of four bytes of salt, and the digest of salt and password.

use std::fmt;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use md5::Md5;
use sha2::{Digest, Sha256, Sha512};
use subtle::ConstantTimeEq;

const SALT_BYTES: usize = 4;

/// What is kept of a password.
#[derive(Clone, PartialEq, Eq)]
pub struct PasswordHash {
    algorithm: Algorithm,
    salt: [u8; SALT_BYTES],
    digest: Vec<u8>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Algorithm {
    Sha256,
    Sha512,
    Md5,
}

impl Algorithm {
    fn digest(self, salt: &[u8], password: &[u8]) -> Vec<u8> {
        match self {
            Algorithm::Sha256 => Sha256::new().chain_update(salt).chain_update(password).finalize().to_vec(),
            Algorithm::Sha512 => Sha512::new().chain_update(salt).chain_update(password).finalize().to_vec(),
            Algorithm::Md5 => Md5::new().chain_update(salt).chain_update(password).finalize().to_vec(),
        }
    }
}

impl PasswordHash {
    /// Reads `password_hash` and `hashing_algorithm`, which was MD5 when it was not said yet.
    pub(super) fn read(text: &str, algorithm: Option<&str>) -> Result<PasswordHash, String> {
        let algorithm = match algorithm {
            Some("rabbit_password_hashing_sha256") => Algorithm::Sha256,
            Some("rabbit_password_hashing_sha512") => Algorithm::Sha512,
            Some("rabbit_password_hashing_md5") | None => Algorithm::Md5,
            Some(other) => return Err(format!("the hashing_algorithm {other:?} is not known")),
        };
        let bytes = STANDARD.decode(text).map_err(|_| "password_hash is not base64".to_owned())?;
        match bytes.split_first_chunk() {
            Some((salt, digest)) if digest.len() == algorithm.digest(&[], &[]).len() => {
                Ok(PasswordHash { algorithm, salt: *salt, digest: digest.to_vec() })
            }
            Some(_) | None => Err("password_hash is not of the length that its algorithm has".to_owned()),
        }
    }

    pub fn accepts(&self, password: &[u8]) -> bool {
        self.algorithm.digest(&self.salt, password).ct_eq(&self.digest).into()
    }
}

/// Hashes stay out of logs and panics.
impl fmt::Debug for PasswordHash {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("PasswordHash").field("algorithm", &self.algorithm).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// RabbitMQ's documentation of its password hashes: `test12` with the salt 908DC60A.
    #[test]
    fn hashes_are_those_of_rabbitmq() {
        let hash = PasswordHash::read(
            "kI3GCqW5JLMJa4iX1lo7X4D6XbYqlLgxIs30+P6tENUV2POR",
            Some("rabbit_password_hashing_sha256"),
        );
        let hash = hash.unwrap();
        assert!(hash.accepts(b"test12"));
        assert!(!hash.accepts(b"test1"));
    }

    #[test]
    fn each_algorithm_knows_its_password() {
        for (name, algorithm) in [
            (None, Algorithm::Md5),
            (Some("rabbit_password_hashing_md5"), Algorithm::Md5),
            (Some("rabbit_password_hashing_sha256"), Algorithm::Sha256),
            (Some("rabbit_password_hashing_sha512"), Algorithm::Sha512),
        ] {
            let mut bytes = b"salt".to_vec();
            bytes.extend(algorithm.digest(b"salt", b"open sesame"));
            let hash = PasswordHash::read(&STANDARD.encode(bytes), name).unwrap();
            assert!(hash.accepts(b"open sesame") && !hash.accepts(b"open sesam"));
        }
        let check = |text: &str, algorithm, part: &str| {
            let error = PasswordHash::read(text, algorithm).unwrap_err();
            assert!(error.contains(part), "{error}");
        };
        check("c2FsdA==", None, "length");
        check("!", None, "base64");
        check("c2FsdA==", Some("mine"), "not known");
    }
}

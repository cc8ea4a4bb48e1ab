//! What is a name checked against? The users' verifiers; for everyone else one that nothing satisfies.
//!
//! Invariants: an unknown name gets the same made-up verifier each time, so neither the answer nor the time it takes
//! tells whether a user exists; a password that was right once is recognised by a keyed digest, so that clients that
//! come back by the thousand cost no iterated hash each.

use std::collections::BTreeMap;
use std::sync::Arc;

use corelane_shard::Rights;
use sha2::{Digest, Sha256};
use subtle::ConstantTimeEq;

use crate::definitions::DefinedUser;
use crate::users::{ITERATIONS, KEY_BYTES, Users, Verifier};

/// Digests of right passwords that are kept. When full, all are forgotten.
const REMEMBERED_MAX: usize = 4096;

/// The users of this process, and what is said about those it does not have.
pub(super) struct Verifiers {
    users: Users,
    defined: Arc<BTreeMap<String, DefinedUser>>,
    secret: [u8; KEY_BYTES],
    iterations: u32,
}

/// Digests of passwords that were right.
#[derive(Default)]
pub(super) struct Remembered {
    digests: BTreeMap<String, [u8; KEY_BYTES]>,
}

impl Verifiers {
    pub(super) fn new(
        users: Users,
        defined: Arc<BTreeMap<String, DefinedUser>>,
        secret: [u8; KEY_BYTES],
    ) -> Verifiers {
        let known = users.names().next().and_then(|name| users.verifier(name));
        let iterations = known.map_or(ITERATIONS, |verifier| verifier.iterations);
        Verifiers { users, defined, secret, iterations }
    }

    /// The verifier of a name, made up for an unknown one.
    pub(super) fn of(&self, name: &str) -> Verifier {
        match self.users.verifier(name) {
            Some(verifier) => verifier.clone(),
            None => self.made_up(name),
        }
    }

    /// Whether this is the user's password.
    pub(super) fn accepts(&self, name: &str, password: &[u8], remembered: &mut Remembered) -> bool {
        let Some(verifier) = self.users.verifier(name) else {
            if let Some(hash) = self.defined.get(name).and_then(|user| user.hash.as_ref()) {
                return hash.accepts(password);
            }
            let _ = self.made_up(name).accepts(password);
            return false;
        };
        let digest = self.digest(&[b"password", &verifier.stored_key, password]);
        if remembered.digests.get(name).is_some_and(|known| known.ct_eq(&digest).into()) {
            return true;
        }
        let right = verifier.accepts(password);
        if right {
            if remembered.digests.len() >= REMEMBERED_MAX {
                remembered.digests.clear();
            }
            remembered.digests.insert(name.to_owned(), digest);
        }
        right
    }

    /// What a user may do; none: everything.
    pub(super) fn rights(&self, name: &str) -> Option<Arc<Rights>> {
        let defined = || self.defined.get(name).filter(|_| self.users.verifier(name).is_none());
        defined().map(|user| user.grants.rights()).or_else(|| self.users.rights(name)).map(Arc::new)
    }

    fn made_up(&self, name: &str) -> Verifier {
        let salt = self.digest(&[b"salt", name.as_bytes()]);
        Verifier {
            iterations: self.iterations,
            salt: salt[..24].to_vec(),
            stored_key: self.digest(&[b"stored", name.as_bytes()]),
            server_key: self.digest(&[b"server", name.as_bytes()]),
        }
    }

    fn digest(&self, parts: &[&[u8]]) -> [u8; KEY_BYTES] {
        let mut digest = Sha256::new_with_prefix(self.secret);
        for part in parts {
            digest.update((part.len() as u64).to_le_bytes());
            digest.update(part);
        }
        digest.finalize().into()
    }
}

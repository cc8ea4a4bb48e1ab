//! Where is the message of an entry?
//!
//! In memory, or where its owner has put it, which is opaque here. Who has a `&M` has the message; everything that may meet an entry
//! whose message is not in memory says so by this type.

/// A message, or where it is instead of in memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stored<M> {
    Here(M),
    Away(Away),
}

/// Where a message is that is not in memory, as its owner knows it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Away(pub [u32; 3]);

impl<M> Stored<M> {
    /// The message, if it is in memory.
    pub fn here(self) -> Option<M> {
        match self {
            Stored::Here(message) => Some(message),
            Stored::Away(_) => None,
        }
    }

    /// Where it is, if it is not in memory.
    pub fn away(&self) -> Option<Away> {
        match self {
            Stored::Here(_) => None,
            Stored::Away(away) => Some(*away),
        }
    }

    pub fn as_ref(&self) -> Stored<&M> {
        match self {
            Stored::Here(message) => Stored::Here(message),
            Stored::Away(away) => Stored::Away(*away),
        }
    }

    pub(crate) fn as_mut(&mut self) -> Stored<&mut M> {
        match self {
            Stored::Here(message) => Stored::Here(message),
            Stored::Away(away) => Stored::Away(*away),
        }
    }
}

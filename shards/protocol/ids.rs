//! How are sessions, links and deliveries named towards the caller, whichever version the peer speaks?

/// A session of one connection; with 0-9-1, a channel. Used again only after the event that says that it is over.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SessionId(pub u32);

/// A link of one connection. Used again only after `Detached` was returned for it and every delivery received on it is
/// settled, or its session has ended. A caller that settles late forgets what it holds of a link when its id
/// is attached again.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct LinkId(pub u32);

impl SessionId {
    #[inline]
    pub(crate) fn slot(self) -> usize {
        self.0 as usize
    }
}

impl LinkId {
    #[inline]
    pub(crate) fn slot(self) -> usize {
        self.0 as usize
    }
}

/// What the caller wants back with the outcome of a delivery it sent.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Token(pub u64, pub u64);

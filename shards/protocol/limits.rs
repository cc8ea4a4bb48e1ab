//! How much of anything does a connection take, whichever version its peer speaks?

/// Places for unsettled deliveries that a session keeps, however few are unsettled. Above that, what a burst needed is
/// given back when less than a quarter is used.
pub(crate) const UNSETTLED_KEPT_MAX: usize = 1024;

//! Which classes might want this message?

//! Whatever is written is read back the same, and whatever is read is no cause for panic.

//! Which of two serial numbers comes first, when they wrap at 2^32?
//!
//! AMQP 1.0 §2.8.10: sequence numbers follow RFC 1982 with 32 bits. Window and credit sizes are plain numbers, and a
//! sum of serial and size is a serial; a peer may name sizes above 2^31, so what is left of one is computed in 64 bits.

/// How far `later` is ahead of `earlier`: negative if it is behind.
#[inline]
pub(crate) fn distance(earlier: u32, later: u32) -> i32 {
    later.wrapping_sub(earlier) as i32
}

/// What is left of `size`, counted by the peer from `seen`, for us who are at `now` (§2.5.6, §2.6.7). A peer that
/// claims to have seen more than there was is taken to be at `now`.
#[inline]
pub(crate) fn remaining(seen: u32, size: u32, now: u32) -> u32 {
    let passed = distance(seen, now).max(0) as u32;
    size.saturating_sub(passed)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_compare_across_the_wrap() {
        // RFC 1982 §3.2.
        assert_eq!(distance(0, 1), 1);
        assert_eq!(distance(u32::MAX, 0), 1);
        assert_eq!(distance(0, u32::MAX), -1);
        assert_eq!(distance(0x7fff_ffff, 0x8000_0000), 1);
        assert_eq!(distance(0xffff_fff0, 0x10), 0x20);
    }

    #[test]
    fn what_is_left_of_a_window_is_never_negative() {
        assert_eq!(remaining(0, 10, 4), 6);
        assert_eq!(remaining(0, 10, 14), 0);
        assert_eq!(remaining(u32::MAX - 1, 10, 3), 5);
        assert_eq!(remaining(7, u32::MAX, 9), u32::MAX - 2);
        assert_eq!(remaining(9, 5, 7), 5, "the peer names a transfer that was not sent");
    }
}

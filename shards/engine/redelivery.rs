//! How long does a message wait that comes back as failed?

/// `min_us` after the first failure, `multiplier_permille` thousandths of the wait before after each further one, and never
/// more than `max_us`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RedeliveryDelay {
    pub min_us: u64,
    pub multiplier_permille: u32,
    pub max_us: u64,
}

impl RedeliveryDelay {
    /// The same wait every time.
    pub fn constant(delay_us: u64) -> Self {
        RedeliveryDelay { min_us: delay_us, multiplier_permille: 1000, max_us: delay_us }
    }

    /// The wait after so many failures.
    pub(crate) fn after(&self, failures: u32) -> u64 {
        let factor = power(self.multiplier_permille, failures.saturating_sub(1));
        let delay = scaled(u128::from(self.min_us), factor);
        u64::try_from(delay).unwrap_or(u64::MAX).min(self.max_us)
    }
}

/// 1, in the fixed point that powers are computed in: the same on every machine.
const ONE: u128 = 1 << 32;

/// So many thousandths, to a power.
fn power(permille: u32, mut exponent: u32) -> u128 {
    let mut square = (u128::from(permille) * ONE + 500) / 1000;
    let mut power = ONE;
    while exponent > 0 {
        if exponent & 1 == 1 {
            power = scaled(power, square);
        }
        square = scaled(square, square);
        exponent >>= 1;
    }
    power
}

/// A number times a factor. What does not fit stays at about the highest number there is.
fn scaled(number: u128, factor: u128) -> u128 {
    number.saturating_mul(factor).saturating_add(ONE / 2) / ONE
}

#[cfg(test)]
mod tests {
    use super::RedeliveryDelay;

    fn waits(min_us: u64, multiplier_permille: u32, max_us: u64, failures: &[u32]) -> Vec<u64> {
        let delay = RedeliveryDelay { min_us, multiplier_permille, max_us };
        failures.iter().map(|count| delay.after(*count)).collect()
    }

    #[test]
    fn waits_grow_to_their_maximum() {
        assert_eq!(waits(100, 2000, 1000, &[1, 2, 3, 4, 5, 6]), [100, 200, 400, 800, 1000, 1000]);
        assert_eq!(waits(1000, 1500, 10_000, &[1, 2, 3, 7]), [1000, 1500, 2250, 10_000]);
        assert_eq!(waits(1_000_000, 1100, u64::MAX, &[2, 3, 4]), [1_100_000, 1_210_000, 1_331_000]);
        assert_eq!(waits(700, 1000, 900, &[1, 2, 60_000]), [700, 700, 700]);
        assert_eq!(waits(800, 500, 900, &[1, 2, 3, 60_000]), [800, 400, 200, 0]);
        assert_eq!(waits(800, 2000, 500, &[1, 2]), [500, 500], "the maximum is the maximum");
    }

    #[test]
    fn nothing_overflows() {
        assert_eq!(waits(u64::MAX, 1000, u64::MAX, &[1, 65_535]), [u64::MAX; 2]);
        assert_eq!(waits(1, u32::MAX, u64::MAX, &[2, 65_535, u32::MAX]), [4_294_967, u64::MAX, u64::MAX]);
        assert_eq!(waits(1, 1001, u64::MAX, &[65_535])[0], u64::MAX, "it grows, however slowly");
        assert_eq!(waits(0, 9000, 7, &[1, 9]), [0, 0]);
    }
}

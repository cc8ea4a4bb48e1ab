//! How are durations and sizes written by people? `500ms`, `1h30m`, `64KiB`.
//!
//! Invariants: a duration always has a unit (only 0 goes without), so nobody guesses; a size without a unit is bytes;
//! nothing overflows silently. Left out: which values a setting allows (`config::layer`).

use std::fmt;

/// Why a text is not a quantity. Shown after the text itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum QuantityError {
    Duration,
    DurationUnitMissing,
    Size,
    TooLarge,
}

impl fmt::Display for QuantityError {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(match self {
            QuantityError::Duration => {
                "not a duration: write a number with us, ms, s, m, h or d, as in 500ms or 1h30m"
            }
            QuantityError::DurationUnitMissing => {
                "a duration needs its unit: us, ms, s, m, h or d, as in 500ms"
            }
            QuantityError::Size => {
                "not a size: write a number of bytes, or one with KiB, MiB, GiB, KB, MB or GB, as in 64KiB"
            }
            QuantityError::TooLarge => "too large",
        })
    }
}

impl std::error::Error for QuantityError {}

/// Microseconds of a duration such as `500ms` or `1h30m`.
pub fn duration_us(text: &str) -> Result<u64, QuantityError> {
    let mut rest = text.trim();
    if rest == "0" {
        return Ok(0);
    }
    if rest.is_empty() {
        return Err(QuantityError::Duration);
    }
    let mut total: u64 = 0;
    while !rest.is_empty() {
        let (number, after) = split_number(rest).ok_or(QuantityError::Duration)?;
        let unit_length = after.find(|c: char| !c.is_ascii_alphabetic()).unwrap_or(after.len());
        let (unit, after) = after.split_at(unit_length);
        let unit_us = match unit {
            "us" => 1,
            "ms" => 1_000,
            "s" => 1_000_000,
            "m" | "min" => 60_000_000,
            "h" => 3_600_000_000,
            "d" => 86_400_000_000,
            "" if after.is_empty() => return Err(QuantityError::DurationUnitMissing),
            _ => return Err(QuantityError::Duration),
        };
        let part = number.checked_mul(unit_us).ok_or(QuantityError::TooLarge)?;
        total = total.checked_add(part).ok_or(QuantityError::TooLarge)?;
        rest = after;
    }
    Ok(total)
}

/// Bytes of a size such as `4096`, `64KiB` or `1MB`.
pub fn size_bytes(text: &str) -> Result<u64, QuantityError> {
    let (number, unit) = split_number(text.trim()).ok_or(QuantityError::Size)?;
    let unit_bytes: u64 = match unit.trim_start() {
        "" | "B" => 1,
        "KiB" | "K" => 1 << 10,
        "MiB" | "M" => 1 << 20,
        "GiB" | "G" => 1 << 30,
        "KB" | "kB" => 1_000,
        "MB" => 1_000_000,
        "GB" => 1_000_000_000,
        _ => return Err(QuantityError::Size),
    };
    number.checked_mul(unit_bytes).ok_or(QuantityError::TooLarge)
}

/// A size as people write it, exact.
pub fn show_size(bytes: u64) -> String {
    for (unit, shift) in [("GiB", 30), ("MiB", 20), ("KiB", 10)] {
        if bytes != 0 && bytes.trailing_zeros() >= shift {
            return format!("{}{unit}", bytes >> shift);
        }
    }
    format!("{bytes}B")
}

/// A duration as people write it, exact.
pub fn show_duration(us: u64) -> String {
    const UNITS: [(&str, u64); 5] =
        [("d", 86_400_000_000), ("h", 3_600_000_000), ("m", 60_000_000), ("s", 1_000_000), ("ms", 1_000)];
    for (unit, unit_us) in UNITS {
        if us != 0 && us.is_multiple_of(unit_us) {
            return format!("{}{unit}", us / unit_us);
        }
    }
    format!("{us}us")
}

/// The leading decimal digits as a number, and what follows them.
fn split_number(text: &str) -> Option<(u64, &str)> {
    let length = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    let (digits, rest) = text.split_at(length);
    digits.parse().ok().map(|number| (number, rest))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations() {
        let check = |text: &str, expected: Result<u64, QuantityError>| {
            assert_eq!(duration_us(text), expected, "{text:?}");
        };
        check("0", Ok(0));
        check("20us", Ok(20));
        check("500ms", Ok(500_000));
        check("30s", Ok(30_000_000));
        check("5m", Ok(300_000_000));
        check("1h30m", Ok(5_400_000_000));
        check("2d", Ok(172_800_000_000));
        check("30", Err(QuantityError::DurationUnitMissing));
        check("1h30", Err(QuantityError::DurationUnitMissing));
        check("", Err(QuantityError::Duration));
        check("fast", Err(QuantityError::Duration));
        check("-1s", Err(QuantityError::Duration));
        check("1.5s", Err(QuantityError::Duration));
        check("1s!", Err(QuantityError::Duration));
        check("99999999999999999999s", Err(QuantityError::Duration));
        check("18446744073709551615s", Err(QuantityError::TooLarge));
    }

    #[test]
    fn sizes() {
        let check = |text: &str, expected: Result<u64, QuantityError>| {
            assert_eq!(size_bytes(text), expected, "{text:?}");
        };
        check("0", Ok(0));
        check("4096", Ok(4096));
        check("512B", Ok(512));
        check("64KiB", Ok(65_536));
        check("64K", Ok(65_536));
        check("64 KB", Ok(64_000));
        check("16MiB", Ok(16 << 20));
        check("1GB", Ok(1_000_000_000));
        check("", Err(QuantityError::Size));
        check("big", Err(QuantityError::Size));
        check("1TiB", Err(QuantityError::Size));
        check("18446744073709551615GiB", Err(QuantityError::TooLarge));
    }

    #[test]
    fn what_is_shown_reads_back() {
        for bytes in [0, 1, 512, 1000, 1024, 65_536, 65_537, 16 << 20, 3 << 30] {
            assert_eq!(size_bytes(&show_size(bytes)), Ok(bytes));
        }
        for us in [0, 1, 20, 500_000, 1_500_000, 60_000_000, 5_400_000_000] {
            assert_eq!(duration_us(&show_duration(us)), Ok(us));
        }
    }
}

//! How are sizes and durations written? `100`, `1KiB`, `16k`, `1MiB`; `5s`, `500ms`, `250us`, and a bare number is seconds.

use std::time::Duration;

/// Bytes. `k` and `KiB` are both 1024.
pub fn size(text: &str) -> Result<usize, String> {
    const UNITS: [(&str, usize); 7] = [
        ("", 1),
        ("B", 1),
        ("k", 1 << 10),
        ("KiB", 1 << 10),
        ("M", 1 << 20),
        ("MiB", 1 << 20),
        ("K", 1 << 10),
    ];
    let (number, unit) = split(text);
    let factor = UNITS.iter().find(|(name, _)| *name == unit).map(|(_, factor)| *factor);
    let value =
        number.parse::<usize>().ok().zip(factor).and_then(|(number, factor)| number.checked_mul(factor));
    value.ok_or_else(|| "a size is a whole number of bytes, or of KiB or MiB: 100, 16KiB, 1MiB".to_owned())
}

/// A duration above zero.
pub fn duration(text: &str) -> Result<Duration, String> {
    const UNITS: [(&str, f64); 5] = [("", 1.0), ("s", 1.0), ("ms", 1e-3), ("us", 1e-6), ("min", 60.0)];
    let (number, unit) = split(text);
    let factor = UNITS.iter().find(|(name, _)| *name == unit).map(|(_, factor)| *factor);
    let seconds = number.parse::<f64>().ok().zip(factor).map(|(number, factor)| number * factor);
    match seconds.and_then(|seconds| Duration::try_from_secs_f64(seconds).ok()) {
        Some(duration) if !duration.is_zero() => Ok(duration),
        Some(_) | None => {
            Err("a duration is a number above zero with a unit: 5s, 500ms, 250us, 1min".to_owned())
        }
    }
}

/// `0` is a duration, too.
pub fn duration_or_zero(text: &str) -> Result<Duration, String> {
    match split(text) {
        ("0", _) => Ok(Duration::ZERO),
        _ => duration(text),
    }
}

/// As short as it is exact.
pub fn show_size(size: usize) -> String {
    match size {
        0 => "0 B".to_owned(),
        size if size.is_multiple_of(1 << 20) => format!("{} MiB", size >> 20),
        size if size.is_multiple_of(1 << 10) => format!("{} KiB", size >> 10),
        size => format!("{size} B"),
    }
}

fn split(text: &str) -> (&str, &str) {
    let text = text.trim();
    let end = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
    let (number, unit) = text.split_at(end);
    (number, unit.trim())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes() {
        let check = |text: &str, expect: Option<usize>| assert_eq!(size(text).ok(), expect, "{text:?}");
        check("0", Some(0));
        check("100", Some(100));
        check("100B", Some(100));
        check("1k", Some(1024));
        check("16 KiB", Some(16 << 10));
        check("1MiB", Some(1 << 20));
        check("", None);
        check("-1", None);
        check("1.5k", None);
        check("1 GB", None);
        check("99999999999999999999", None);
        check("18446744073709551615M", None);
    }

    #[test]
    fn durations() {
        let check = |text: &str, expect: Option<u64>| {
            assert_eq!(duration(text).ok(), expect.map(Duration::from_micros), "{text:?}");
        };
        check("5", Some(5_000_000));
        check("5s", Some(5_000_000));
        check("0.5s", Some(500_000));
        check("250us", Some(250));
        check("20ms", Some(20_000));
        check("1min", Some(60_000_000));
        check("0", None);
        check("s", None);
        check("1h", None);
        check("-1s", None);
        assert_eq!(duration_or_zero("0"), Ok(Duration::ZERO));
        assert_eq!(duration_or_zero("0s"), Ok(Duration::ZERO));
        assert_eq!(duration_or_zero("1ms"), Ok(Duration::from_millis(1)));
    }

    #[test]
    fn sizes_are_shown() {
        let check = |size: usize, expect: &str| assert_eq!(show_size(size), expect);
        check(0, "0 B");
        check(100, "100 B");
        check(1024, "1 KiB");
        check(1500, "1500 B");
        check(3 << 20, "3 MiB");
    }
}

//! How do the commands show figures? In aligned columns, with amounts in words that people use.
//!
//! Invariants: what a broker says never controls the terminal; a column is as wide as its widest cell.

use std::fmt::Write;
use std::io::{self, Write as _};

use serde_json::Value as Json;

/// Rows under a heading.
pub(super) struct Table {
    /// Each with whether it holds figures, which stand to the right.
    columns: Vec<(&'static str, bool)>,
    rows: Vec<Vec<String>>,
}

impl Table {
    pub(super) fn new(columns: &[(&'static str, bool)]) -> Table {
        Table { columns: columns.to_vec(), rows: Vec::new() }
    }

    pub(super) fn row(&mut self, cells: Vec<String>) {
        self.rows.push(cells);
    }

    pub(super) fn to_text(&self) -> String {
        let heading: Vec<String> = self.columns.iter().map(|(name, _)| (*name).to_owned()).collect();
        let lines = || std::iter::once(&heading).chain(&self.rows);
        let width = |column: usize| {
            let cells = lines().filter_map(|cells| cells.get(column));
            cells.map(|cell| cell.chars().count()).max().unwrap_or(0)
        };
        let widths: Vec<usize> = (0..self.columns.len()).map(width).collect();
        let mut text = String::new();
        for cells in lines() {
            let mut line = String::new();
            for ((cell, width), (_, is_figure)) in cells.iter().zip(&widths).zip(&self.columns) {
                let gap = if line.is_empty() { "" } else { "  " };
                let _ = if *is_figure {
                    write!(line, "{gap}{cell:>width$}")
                } else {
                    write!(line, "{gap}{cell:<width$}")
                };
            }
            text.push_str(line.trim_end());
            text.push('\n');
        }
        text
    }
}

/// Prints a result; a reader that has had enough is no failure.
pub(super) fn print(text: &str) -> anyhow::Result<()> {
    match io::stdout().lock().write_all(text.as_bytes()) {
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => {
            Err(anyhow::anyhow!("cannot write to the standard output: {error}"))
        }
        Ok(()) | Err(_) => Ok(()),
    }
}

/// Prints JSON for programs.
pub(super) fn print_json(value: &Json) -> anyhow::Result<()> {
    print(&format!("{value:#}\n"))
}

/// A value as one cell: `-` for none.
pub(super) fn cell(value: &Json) -> String {
    match value {
        Json::Null => "-".to_owned(),
        Json::String(text) => plain(text),
        other => plain(&other.to_string()),
    }
}

/// Without control characters.
pub(super) fn plain(text: &str) -> String {
    let mut shown = String::new();
    for c in text.chars() {
        if c.is_control() {
            shown.extend(c.escape_default());
        } else {
            shown.push(c);
        }
    }
    shown
}

/// Microseconds as people say them.
pub(super) fn duration(value: &Json) -> String {
    let Some(us) = value.as_u64() else { return "-".to_owned() };
    let tenths = |unit: u64, name: &str| format!("{}.{} {name}", us / unit, us % unit / (unit / 10));
    match us {
        0..1_000 => format!("{us} us"),
        1_000..1_000_000 => tenths(1_000, "ms"),
        1_000_000..120_000_000 => tenths(1_000_000, "s"),
        120_000_000..7_200_000_000 => format!("{} min", us / 60_000_000),
        7_200_000_000..172_800_000_000 => format!("{} h", us / 3_600_000_000),
        _ => format!("{} days", us / 86_400_000_000),
    }
}

/// Bytes as people say them.
pub(super) fn bytes(value: &Json) -> String {
    let Some(bytes) = value.as_u64() else { return "-".to_owned() };
    let units = ["KiB", "MiB", "GiB", "TiB", "PiB"];
    if bytes < 1024 {
        return format!("{bytes} B");
    }
    let mut unit = 0;
    let mut scaled = bytes;
    while scaled >= 1024 * 1024 && unit + 1 < units.len() {
        scaled /= 1024;
        unit += 1;
    }
    format!("{}.{} {}", scaled / 1024, scaled % 1024 * 10 / 1024, units[unit])
}

/// `1 message`, `2 messages`.
pub(super) fn counted(count: u64, what: &str) -> String {
    if count == 1 { format!("1 {what}") } else { format!("{count} {what}s") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_are_aligned() {
        let mut table = Table::new(&[("NAME", false), ("MESSAGES", true), ("KIND", false)]);
        table.row(vec!["orders".to_owned(), "7".to_owned(), "queue".to_owned()]);
        table.row(vec!["ä".to_owned(), "12345678901".to_owned(), "-".to_owned()]);
        let expected = "NAME       MESSAGES  KIND\norders            7  queue\nä       12345678901  -\n";
        assert_eq!(table.to_text(), expected);
    }

    #[test]
    fn amounts_are_in_words() {
        let check = |value: u64, as_duration: &str, as_bytes: &str| {
            assert_eq!(
                (&*duration(&Json::from(value)), &*bytes(&Json::from(value))),
                (as_duration, as_bytes)
            );
        };
        check(0, "0 us", "0 B");
        check(999, "999 us", "999 B");
        check(1_500, "1.5 ms", "1.4 KiB");
        check(2_345_678, "2.3 s", "2.2 MiB");
        check(300_000_000, "5 min", "286.1 MiB");
        check(10_000_000_000, "2 h", "9.3 GiB");
        check(1_000_000_000_000, "11 days", "931.3 GiB");
        assert_eq!((duration(&Json::Null), bytes(&Json::Null)), ("-".to_owned(), "-".to_owned()));
        assert_eq!((counted(1, "message"), counted(2, "message")), ("1 message".into(), "2 messages".into()));
    }

    #[test]
    fn names_do_not_control_the_terminal() {
        assert_eq!(cell(&Json::from("a\u{1b}[2Jb")), "a\\u{1b}[2Jb");
        assert_eq!(cell(&Json::Null), "-");
    }
}

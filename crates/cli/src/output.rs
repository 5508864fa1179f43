//! Everything that reaches stdout: aligned tables for people, JSON lines for programs. Text may
//! change between versions, JSON only gains fields. Owns no wording.

use std::io::{self, Write};

use serde::Serialize;

/// Rows under headings; each column as wide as its widest cell, numbers to the right.
pub(crate) struct Table {
    headings: Vec<&'static str>,
    rows: Vec<Vec<String>>,
}

impl Table {
    /// An empty table.
    pub(crate) fn new(headings: &[&'static str]) -> Table {
        Table { headings: headings.to_vec(), rows: Vec::new() }
    }

    /// Adds a row with a cell for each heading.
    pub(crate) fn row(&mut self, cells: impl IntoIterator<Item = String>) {
        self.rows.push(cells.into_iter().collect());
    }

    /// The table as text, every line ended.
    pub(crate) fn text(&self) -> String {
        let cells = |column: usize| self.rows.iter().filter_map(move |row| row.get(column));
        let columns: Vec<(usize, bool)> = (0..self.headings.len())
            .map(|column| {
                let width = cells(column).map(|cell| cell.chars().count()).max().unwrap_or(0);
                let mut numeric = cells(column).peekable();
                let right = numeric.peek().is_some() && numeric.all(|cell| is_numeric(cell));
                (width.max(self.headings[column].len()), right)
            })
            .collect();
        let mut out = String::new();
        let headings: Vec<String> = self.headings.iter().map(ToString::to_string).collect();
        for row in std::iter::once(&headings).chain(&self.rows) {
            let mut line = String::new();
            for (cell, (width, right)) in row.iter().zip(&columns) {
                if *right {
                    line.push_str(&format!("{cell:>width$}  "));
                } else {
                    line.push_str(&format!("{cell:width$}  "));
                }
            }
            out.push_str(line.trim_end());
            out.push('\n');
        }
        out
    }
}

fn is_numeric(cell: &str) -> bool {
    !cell.is_empty() && cell.chars().all(|c| c.is_ascii_digit() || c == '-' || c == ',')
}

/// Writes text to stdout.
pub(crate) fn text(text: &str) -> io::Result<()> {
    let mut out = io::stdout().lock();
    out.write_all(text.as_bytes())?;
    out.flush()
}

/// Writes each item as one line of JSON to stdout.
pub(crate) fn json<T: Serialize>(items: impl IntoIterator<Item = T>) -> io::Result<()> {
    let mut out = io::stdout().lock();
    for item in items {
        json_line(&mut out, &item)?;
    }
    out.flush()
}

/// Writes one item as a line of JSON.
pub(crate) fn json_line(out: &mut impl Write, item: &impl Serialize) -> io::Result<()> {
    serde_json::to_writer(&mut *out, item)?;
    out.write_all(b"\n")
}

/// `1.5 MiB`: bytes for people, three digits.
pub(crate) fn bytes(count: u64) -> String {
    const UNITS: [&str; 5] = ["KiB", "MiB", "GiB", "TiB", "PiB"];
    if count < 1024 {
        return format!("{count} B");
    }
    let mut unit = 0;
    let mut whole = count;
    let mut rest = 0;
    while whole >= 1024 && unit < UNITS.len() {
        rest = whole % 1024;
        whole /= 1024;
        unit += 1;
    }
    let name = UNITS[unit - 1];
    if whole >= 100 {
        format!("{whole} {name}")
    } else {
        format!("{whole}.{} {name}", rest * 10 / 1024)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tables_align_text_left_and_numbers_right() {
        let mut table = Table::new(&["TOPIC", "PARTITIONS"]);
        table.row(["a".to_owned(), "4".to_owned()]);
        table.row(["longer".to_owned(), "12".to_owned()]);
        assert_eq!(table.text(), "TOPIC   PARTITIONS\na                4\nlonger          12\n");
    }

    #[test]
    fn bytes_are_shown_with_three_digits() {
        assert_eq!(bytes(0), "0 B");
        assert_eq!(bytes(1023), "1023 B");
        assert_eq!(bytes(1536), "1.5 KiB");
        assert_eq!(bytes(64 << 20), "64.0 MiB");
        assert_eq!(bytes(400 << 30), "400 GiB");
    }
}

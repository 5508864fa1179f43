//! Markdown tables: what was promised and whether it is kept, then one table for each figure.

use std::fmt::Write as _;

use serde_json::Value;

/// The whole page.
pub(super) fn markdown(lines: &[Value], note: &str) -> String {
    let mut page = String::from(
        "<!-- Written by `cargo xtask bench plot`; a change is overwritten. -->\n\n# The embedded library, measured\n\n\
         A figure is the median of the rounds; beside a rival's stands how many times it ours is. How, \
         and what each rival is: [benchmarks](../benchmarks.md).\n",
    );
    if !note.is_empty() {
        put(&mut page, format_args!("\n{note}"));
    }
    promises(lines, &mut page);
    let mut whats: Vec<&str> = Vec::new();
    for line in lines {
        let what = line["cell"]["what"].as_str().unwrap_or_default();
        if !what.is_empty() && !whats.contains(&what) {
            whats.push(what);
        }
    }
    for what in whats {
        figures(lines, what, &mut page);
    }
    page
}

fn promises(lines: &[Value], page: &mut String) {
    let promised: Vec<&Value> = lines.iter().filter(|line| line["bar"].is_string()).collect();
    let met = promised.iter().filter(|line| line["met"] == true).count();
    let head = format!("\n## What was promised\n\n{met} of {} are kept.\n", promised.len());
    page.push_str(&head);
    page.push_str(
        "\n| work | level | ours | rival | rival's | unit | ours / rival | promised | |\n",
    );
    page.push_str("|---|---|--:|---|--:|---|--:|---|---|\n");
    for line in promised {
        let text = |field: &str| line[field].as_str().unwrap_or_default().to_owned();
        let kept = match line["met"].as_bool() {
            Some(true) => "met",
            Some(false) => "**missed**",
            None => "not measured",
        };
        put(
            page,
            format_args!(
                "| {} | {} | {} | {} | {} | {} | {} | {} | {kept} |",
                text("work"),
                text("durability"),
                figure(&line["ours"]),
                text("rival_name"),
                figure(&line["rival"]),
                text("unit"),
                ratio(line),
                text("bar"),
            ),
        );
    }
}

/// One figure: a row for each work, a column for each rival.
fn figures(lines: &[Value], what: &str, page: &mut String) {
    let lines: Vec<&Value> = lines.iter().filter(|line| line["cell"]["what"] == what).collect();
    let mut rivals: Vec<&str> = Vec::new();
    let mut works: Vec<(&str, &str)> = Vec::new();
    for line in &lines {
        let text = |field: &str| line[field].as_str().unwrap_or_default();
        let work = (text("work"), text("durability"));
        if !works.contains(&work) {
            works.push(work);
        }
        let rival = text("rival_name");
        if !rival.is_empty() && !rivals.contains(&rival) {
            rivals.push(rival);
        }
    }
    let unit = lines.first().and_then(|line| line["unit"].as_str()).unwrap_or_default();
    put(page, format_args!("\n## {what}, {unit}\n"));
    put(page, format_args!("| work | level | thetis | {} |", rivals.join(" | ")));
    put(page, format_args!("|---|---|--:|{}", "--:|".repeat(rivals.len())));
    for (work, level) in works {
        let of_work =
            || lines.iter().filter(|line| line["work"] == work && line["durability"] == level);
        let Some(ours) = of_work().next() else { continue };
        let name = work.strip_suffix(what).unwrap_or(work).trim_end_matches(", ");
        let mut row = format!("| {name} | {level} | {} |", figure(&ours["ours"]));
        for rival in &rivals {
            let cell = match of_work().find(|line| line["rival_name"] == *rival) {
                None => String::new(),
                Some(line) if line["rival"].is_null() => "failed".to_owned(),
                Some(line) => format!("{} ({})", figure(&line["rival"]), ratio(line)),
            };
            row.push_str(&format!(" {cell} |"));
        }
        put(page, format_args!("{row}"));
    }
}

fn put(page: &mut String, row: std::fmt::Arguments<'_>) {
    page.write_fmt(row).expect("a string takes everything");
    page.push('\n');
}

/// Three digits, or all before the point, in groups of three.
fn figure(value: &Value) -> String {
    let Some(value) = value.as_f64() else { return String::new() };
    let decimals = match value.abs() {
        large if large >= 100.0 => 0,
        middle if middle >= 10.0 => 1,
        _ => 2,
    };
    let text = format!("{value:.decimals$}");
    if decimals > 0 {
        return text;
    }
    let digits = text.trim_start_matches('-').len();
    let grouped = text.trim_start_matches('-').char_indices().map(|(at, digit)| {
        let is_group = at > 0 && (digits - at).is_multiple_of(3);
        if is_group { format!(" {digit}") } else { digit.to_string() }
    });
    let sign = if text.starts_with('-') { "-" } else { "" };
    format!("{sign}{}", grouped.collect::<String>())
}

fn ratio(line: &Value) -> String {
    line["ratio"].as_f64().map_or(String::new(), |ratio| format!("{ratio:.2}x"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_work_has_one_row_and_a_column_for_each_rival() {
        let line = |work: &str, rival: &str, figure: Value, bar: Value, met: Value| {
            json!({"work": work, "durability": "os", "unit": "records/s", "ours": 1_341_423.4,
                "rival": figure, "rival_name": rival, "ratio": 4.391, "bar": bar, "met": met,
                "cell": {"what": "rate"}})
        };
        let none = Value::Null;
        let lines = [
            line("8 writers, rate", "device", json!(305_410.0), none.clone(), none.clone()),
            line("8 writers, rate", "walrus", json!(12.25), json!(">= 3x"), json!(true)),
            line("1 writer, rate", "walrus", none.clone(), json!(">= 2x"), json!(false)),
        ];
        let page = markdown(&lines, "Two cores.");
        assert!(page.contains("\nTwo cores.\n"), "{page}");
        assert!(
            page.contains("| 8 writers | os | 1 341 423 | 305 410 (4.39x) | 12.2 (4.39x) |"),
            "{page}"
        );
        assert!(page.contains("| 1 writer | os | 1 341 423 |  | failed |"), "{page}");
        assert!(page.contains("1 of 2 are kept"), "{page}");
        assert!(page.contains("| 4.39x | >= 2x | **missed** |"), "{page}");
        assert_eq!(page.matches("| 8 writers | os |").count(), 1);
    }
}

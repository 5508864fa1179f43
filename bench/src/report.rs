//! The lines that a bench prints: one for each comparison, as text or as one JSON object.

use std::fmt;

use serde::Serialize;

use crate::figures::{Second, median};

/// Whether much or little is good.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Better {
    /// A rate.
    More,
    /// A time or a size.
    Less,
}

/// What the house promised: the ratio, or where nothing is compared the figure, at which it is kept.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Bar {
    better: Better,
    limit: f64,
    is_ratio: bool,
}

impl Bar {
    /// At least so many times the rival.
    pub(crate) const fn at_least(ratio: f64) -> Bar {
        Bar { better: Better::More, limit: ratio, is_ratio: true }
    }

    /// At most so many times the rival.
    pub(crate) const fn at_most(ratio: f64) -> Bar {
        Bar { better: Better::Less, limit: ratio, is_ratio: true }
    }

    /// A figure of at least this.
    pub(crate) const fn figure_at_least(figure: f64) -> Bar {
        Bar { better: Better::More, limit: figure, is_ratio: false }
    }

    fn is_met_by(self, value: f64) -> bool {
        match self.better {
            Better::More => value >= self.limit,
            Better::Less => value <= self.limit,
        }
    }
}

impl fmt::Display for Bar {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let sign = if self.better == Better::More { ">=" } else { "<=" };
        write!(f, "{sign} {}{}", self.limit, if self.is_ratio { "x" } else { "" })
    }
}

/// What one line is about.
#[derive(Clone, Debug)]
pub(crate) struct Subject<'a> {
    /// The work.
    pub(crate) work: &'a str,
    /// The level both sides keep; empty where it does not matter.
    pub(crate) durability: &'a str,
    /// Of both figures.
    pub(crate) unit: &'a str,
    /// Whether a large figure is good.
    pub(crate) better: Better,
}

/// The work of a line, in parts: for those who sort or draw lines.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Cell {
    /// Which of the figures of the work.
    pub(crate) what: &'static str,
    /// `write`, `window`, `sustained`, `tail` or `topics`.
    pub(crate) kind: &'static str,
    pub(crate) writers: usize,
    pub(crate) streams: usize,
    pub(crate) record_bytes: usize,
    pub(crate) batch: usize,
}

/// One comparison, ready to print. Fields of the JSON are only added.
#[derive(Debug, Serialize)]
pub(crate) struct Line {
    work: String,
    durability: String,
    /// Median of the rounds.
    ours: f64,
    /// Median of the rounds; null when nothing is compared, or when the rival failed.
    rival: Option<f64>,
    rival_name: Option<String>,
    unit: String,
    /// `ours / rival`, of the medians.
    ratio: Option<f64>,
    /// `more` or `less`: which ratio is good.
    better: &'static str,
    ours_rounds: Vec<f64>,
    rival_rounds: Vec<f64>,
    /// The ratio that was promised.
    bar: Option<String>,
    met: Option<bool>,
    #[serde(skip_serializing_if = "Option::is_none")]
    cell: Option<Cell>,
    /// Each second of a sustained work, of the last round.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    ours_seconds: Vec<Second>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    rival_seconds: Vec<Second>,
}

impl Line {
    /// A figure of ours alone.
    pub(crate) fn alone(subject: &Subject<'_>, ours: &[f64]) -> Line {
        Line {
            work: subject.work.to_owned(),
            durability: subject.durability.to_owned(),
            ours: median(ours),
            rival: None,
            rival_name: None,
            unit: subject.unit.to_owned(),
            ratio: None,
            better: if subject.better == Better::More { "more" } else { "less" },
            ours_rounds: ours.to_vec(),
            rival_rounds: Vec::new(),
            bar: None,
            met: None,
            cell: None,
            ours_seconds: Vec::new(),
            rival_seconds: Vec::new(),
        }
    }

    /// Held against a figure that was promised.
    pub(crate) fn promised(self, bar: Bar) -> Line {
        Line { bar: Some(bar.to_string()), met: Some(bar.is_met_by(self.ours)), ..self }
    }

    /// With its work in parts.
    pub(crate) fn of(self, cell: Cell) -> Line {
        Line { cell: Some(cell), ..self }
    }

    /// With each second of both sides.
    pub(crate) fn with_seconds(self, ours: &[Second], rival: &[Second]) -> Line {
        Line { ours_seconds: ours.to_vec(), rival_seconds: rival.to_vec(), ..self }
    }

    /// Ours beside a rival's, from the same rounds.
    pub(crate) fn beside(
        subject: &Subject<'_>,
        ours: &[f64],
        rival_name: &str,
        rival: &[f64],
        bar: Option<Bar>,
    ) -> Line {
        let against = median(rival);
        let ratio = if against > 0.0 { Some(median(ours) / against) } else { None };
        Line {
            rival: if rival.is_empty() { None } else { Some(against) },
            rival_name: Some(rival_name.to_owned()),
            ratio,
            rival_rounds: rival.to_vec(),
            bar: bar.map(|bar| bar.to_string()),
            met: bar.and_then(|bar| ratio.map(|ratio| bar.is_met_by(ratio))),
            ..Line::alone(subject, ours)
        }
    }

    /// Puts it on stdout.
    pub(crate) fn print(&self, json: bool) -> anyhow::Result<()> {
        if json {
            println!("{}", serde_json::to_string(self)?);
        } else {
            println!("{self}");
        }
        Ok(())
    }
}

impl fmt::Display for Line {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Line { work, durability, unit, .. } = self;
        write!(f, "{work:44} {durability:6} {:>12} {unit:9}", figure(self.ours))?;
        if let Some(name) = &self.rival_name {
            let rival = self.rival.map_or("failed".to_owned(), figure);
            write!(f, " {name:17} {rival:>12}")?;
        }
        if let Some(ratio) = self.ratio {
            write!(f, "  {ratio:6.2}x")?;
        }
        if let (Some(bar), Some(met)) = (&self.bar, self.met) {
            write!(f, "  {} {bar}", if met { "meets" } else { "MISSES" })?;
        }
        Ok(())
    }
}

/// Three digits that say something, or all before the point.
fn figure(value: f64) -> String {
    let decimals = match value.abs() {
        large if large >= 100.0 => 0,
        middle if middle >= 10.0 => 1,
        _ => 2,
    };
    format!("{value:.decimals$}")
}

#[cfg(test)]
mod tests {
    use super::*;

    const RATE: Subject<'_> =
        Subject { work: "append", durability: "os", unit: "/s", better: Better::More };

    #[test]
    fn a_ratio_is_of_the_medians_and_held_against_the_bar() {
        let line = Line::beside(
            &RATE,
            &[1.0, 9.0, 6.0],
            "rival",
            &[2.0, 4.0, 90.0],
            Some(Bar::at_least(2.0)),
        );
        assert_eq!(line.ratio, Some(1.5));
        assert_eq!(line.met, Some(false));
        let line = Line::beside(&RATE, &[6.0], "rival", &[5.0], Some(Bar::at_most(1.3)));
        assert_eq!(line.met, Some(true));
        assert_eq!(line.bar.as_deref(), Some("<= 1.3x"));
    }

    #[test]
    fn json_has_the_promised_fields() {
        let line = Line::beside(&RATE, &[3.0], "rival", &[2.0], None);
        let json = serde_json::to_value(&line).unwrap();
        for field in ["work", "durability", "ours", "rival", "rival_name", "unit", "ratio"] {
            assert!(json.get(field).is_some_and(|value| !value.is_null()), "{field}");
        }
        let nothing = Line::beside(&RATE, &[3.0], "rival", &[], None);
        assert_eq!(nothing.ratio, None, "a rival that measured nothing is not beaten");
    }

    #[test]
    fn a_figure_alone_may_be_promised() {
        let line = Line::alone(&RATE, &[300.0]).promised(Bar::figure_at_least(300.0));
        assert_eq!((line.met, line.bar.as_deref()), (Some(true), Some(">= 300")));
        let line = Line::alone(&RATE, &[299.0]).promised(Bar::figure_at_least(300.0));
        assert_eq!(line.met, Some(false));
        assert!(line.to_string().ends_with("MISSES >= 300"), "{line}");
    }

    #[test]
    fn seconds_and_parts_are_there_where_they_are_known() {
        let plain = serde_json::to_value(Line::alone(&RATE, &[1.0])).unwrap();
        assert!(plain.get("cell").is_none() && plain.get("ours_seconds").is_none());
        let cell = Cell {
            what: "rate",
            kind: "sustained",
            writers: 1,
            streams: 1,
            record_bytes: 1024,
            batch: 256,
        };
        let second = Second { records_per_s: 5.0, p50_us: 1.0, p99_us: 2.0 };
        let line = Line::alone(&RATE, &[1.0]).of(cell).with_seconds(&[second], &[]);
        let json = serde_json::to_value(line).unwrap();
        assert_eq!(json["cell"]["batch"], 256);
        assert_eq!(json["ours_seconds"][0]["p99_us"], 2.0);
    }
}

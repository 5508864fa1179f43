//! Two kinds of charts in the one look of the house: lines over a scale, and bars in groups.

use super::svg::{Anchor, Marker, Svg};

const WIDTH: f64 = 720.0;
const HEIGHT: f64 = 400.0;
/// The field of the values.
const LEFT: f64 = 84.0;
const RIGHT: f64 = 560.0;
const TOP: f64 = 56.0;
const BOTTOM: f64 = 344.0;
/// Distance of the entries of the legend.
const LEGEND_STEP: f64 = 22.0;
/// Points closer than this get no markers, pixels.
const MARKED_FROM: f64 = 12.0;

/// Colour and marker of a rival: the same in all charts.
pub(super) fn look(name: &str) -> (&'static str, Marker) {
    match name {
        "thetis" => ("#2080d8", Marker::Circle),
        "walrus" => ("#e0702a", Marker::Square),
        "walrus-mmap" => ("#b59a00", Marker::Diamond),
        "rocksdb" => ("#2aa36b", Marker::Up),
        "raft-engine" => ("#c45fb4", Marker::Down),
        "device-prewritten" => ("#a06a4a", Marker::Bar),
        _ => ("#868e99", Marker::Cross),
    }
}

/// Values and where they stand: 0 is one end and 1 the other.
#[derive(Clone, Debug)]
pub(super) struct Scale {
    from: f64,
    to: f64,
    is_log: bool,
    ticks: Vec<f64>,
}

impl Scale {
    /// From 0 to a round number above `most`.
    pub(super) fn from_zero(most: f64) -> Scale {
        let step = round_step(most.max(f64::MIN_POSITIVE) / 5.0);
        let steps = (most / step).ceil().max(1.0);
        let mut ticks = vec![0.0];
        while (ticks.len() as f64) <= steps {
            ticks.push(ticks.len() as f64 * step);
        }
        Scale { from: 0.0, to: steps * step, is_log: false, ticks }
    }

    /// Powers of ten around values, all above 0.
    pub(super) fn decades(values: &[f64]) -> Scale {
        let least = values.iter().copied().fold(f64::INFINITY, f64::min).max(1e-9);
        let most = values.iter().copied().fold(least, f64::max);
        let mut from = 10_f64.powf(least.log10().floor());
        let mut ticks = vec![from];
        while from < most || ticks.len() < 2 {
            from *= 10.0;
            ticks.push(from);
        }
        Scale { from: ticks[0], to: from, is_log: true, ticks }
    }

    /// Doublings, with ticks at these values only.
    pub(super) fn doublings(values: &[f64]) -> Scale {
        let least = values.iter().copied().fold(f64::INFINITY, f64::min).max(1e-9);
        let most = values.iter().copied().fold(least, f64::max);
        // Room on both sides, so that no marker stands on the frame.
        let room = (most / least).powf(0.04).max(1.1);
        Scale { from: least / room, to: most * room, is_log: true, ticks: values.to_vec() }
    }

    /// Where a value stands, kept inside.
    fn at(&self, value: f64) -> f64 {
        let share = if self.is_log {
            (value.max(self.from) / self.from).ln() / (self.to / self.from).ln()
        } else {
            (value - self.from) / (self.to - self.from)
        };
        share.clamp(0.0, 1.0)
    }

    fn x(&self, value: f64) -> f64 {
        LEFT + self.at(value) * (RIGHT - LEFT)
    }

    fn y(&self, value: f64) -> f64 {
        BOTTOM - self.at(value) * (BOTTOM - TOP)
    }
}

/// 1, 2 or 5 times a power of ten, at least `step`.
fn round_step(step: f64) -> f64 {
    let decade = 10_f64.powf(step.log10().floor());
    [1.0, 2.0, 5.0, 10.0]
        .into_iter()
        .map(|times| times * decade)
        .find(|round| *round >= step * 0.999)
        .unwrap_or(decade * 10.0)
}

/// Lines over a scale.
pub(super) struct Lines {
    pub(super) title: String,
    pub(super) note: String,
    /// With the unit.
    pub(super) x_label: String,
    pub(super) y_label: String,
    pub(super) x: Scale,
    pub(super) y: Scale,
    pub(super) series: Vec<Series>,
}

/// One line.
pub(super) struct Series {
    /// Whose.
    pub(super) name: String,
    pub(super) points: Vec<(f64, f64)>,
    /// The second line of the same name.
    pub(super) is_dashed: bool,
}

impl Lines {
    pub(super) fn draw(&self) -> String {
        let mut svg = frame(&self.title, &self.note, &self.y_label, &self.y);
        for tick in &self.x.ticks {
            let x = self.x.x(*tick);
            svg.rule("axis", (x, BOTTOM), (x, BOTTOM + 4.0));
            svg.words("faint", 12, (x, BOTTOM + 18.0), Anchor::Middle, &short(*tick));
        }
        let middle = f64::midpoint(LEFT, RIGHT);
        svg.words("word", 13, (middle, BOTTOM + 40.0), Anchor::Middle, &self.x_label);
        let mut names: Vec<&str> = Vec::new();
        for series in &self.series {
            let (colour, marker) = look(&series.name);
            let place = |(x, y): &(f64, f64)| (self.x.x(*x), self.y.y(*y));
            let points: Vec<(f64, f64)> = series.points.iter().map(place).collect();
            svg.path(&points, colour, series.is_dashed);
            if points.windows(2).all(|pair| pair[1].0 - pair[0].0 >= MARKED_FROM) {
                for point in &points {
                    svg.marker(marker, *point, colour, series.is_dashed);
                }
            }
            if !names.contains(&series.name.as_str()) {
                names.push(&series.name);
            }
        }
        legend(&mut svg, &names);
        svg.finish()
    }
}

/// Bars in groups.
pub(super) struct Bars {
    pub(super) title: String,
    pub(super) note: String,
    pub(super) y_label: String,
    /// The name of each group, and its bars: whose, and how high.
    pub(super) groups: Vec<(String, Vec<(String, f64)>)>,
}

impl Bars {
    pub(super) fn draw(&self) -> String {
        let bars = || self.groups.iter().flat_map(|(_, bars)| bars);
        let values: Vec<f64> = bars().map(|(_, value)| *value).collect();
        let y = Scale::from_zero(values.iter().copied().fold(0.0, f64::max));
        let mut svg = frame(&self.title, &self.note, &self.y_label, &y);
        let group_width = (RIGHT - LEFT) / self.groups.len().max(1) as f64;
        let mut names: Vec<&str> = Vec::new();
        for (at, (group, bars)) in self.groups.iter().enumerate() {
            let left = LEFT + group_width * at as f64;
            let middle = left + group_width / 2.0;
            svg.words("word", 13, (middle, BOTTOM + 20.0), Anchor::Middle, group);
            let width = group_width * 0.84 / bars.len().max(1) as f64;
            for (at, (name, value)) in bars.iter().enumerate() {
                let (colour, marker) = look(name);
                let x = left + group_width * 0.08 + width * at as f64;
                let top = y.y(*value);
                svg.block((x + 1.0, top), width - 2.0, BOTTOM - top, colour);
                svg.words(
                    "faint",
                    10,
                    (x + width / 2.0, top - 12.0),
                    Anchor::Middle,
                    &short(*value),
                );
                svg.marker(marker, (x + width / 2.0, top - 5.0), colour, false);
                if !names.contains(&name.as_str()) {
                    names.push(name);
                }
            }
        }
        legend(&mut svg, &names);
        svg.finish()
    }
}

/// Title, note, and the lines of the y axis.
fn frame(title: &str, note: &str, y_label: &str, y: &Scale) -> Svg {
    let mut svg = Svg::new(WIDTH, HEIGHT, title);
    svg.words("word", 16, (16.0, 24.0), Anchor::Start, title);
    svg.words("faint", 12, (16.0, 42.0), Anchor::Start, note);
    for tick in &y.ticks {
        let at = y.y(*tick);
        svg.rule("grid", (LEFT, at), (RIGHT, at));
        svg.words("faint", 12, (LEFT - 8.0, at + 4.0), Anchor::End, &short(*tick));
    }
    svg.rule("axis", (LEFT, BOTTOM), (RIGHT, BOTTOM));
    svg.upright("word", 13, (22.0, f64::midpoint(TOP, BOTTOM)), y_label);
    svg
}

fn legend(svg: &mut Svg, names: &[&str]) {
    for (at, name) in names.iter().enumerate() {
        let (colour, marker) = look(name);
        let y = TOP + 8.0 + LEGEND_STEP * at as f64;
        svg.path(&[(RIGHT + 16.0, y), (RIGHT + 40.0, y)], colour, false);
        svg.marker(marker, (RIGHT + 28.0, y), colour, false);
        svg.words("word", 13, (RIGHT + 48.0, y + 4.5), Anchor::Start, name);
    }
}

/// A number of a few digits: 1.5 M, 20 k, 0.25.
fn short(value: f64) -> String {
    let (value, unit) = match value.abs() {
        large if large >= 1e6 => (value / 1e6, " M"),
        middle if middle >= 1e4 => (value / 1e3, " k"),
        _ => (value, ""),
    };
    let decimals = match value.abs() {
        large if large >= 99.5 => 0,
        middle if middle >= 9.95 => 1,
        _ => 2,
    };
    let text = format!("{value:.decimals$}");
    let text =
        if text.contains('.') { text.trim_end_matches('0').trim_end_matches('.') } else { &text };
    format!("{text}{unit}")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plot::svg::is_well_formed;

    #[test]
    fn scales_place_values() {
        let linear = Scale::from_zero(930.0);
        assert_eq!(linear.ticks, [0.0, 200.0, 400.0, 600.0, 800.0, 1000.0]);
        assert_eq!((linear.y(0.0), linear.y(1000.0), linear.y(500.0)), (BOTTOM, TOP, 200.0));
        assert_eq!(linear.y(5_000.0), TOP, "kept inside");
        let log = Scale::decades(&[30.0, 2_000.0]);
        assert_eq!(
            log.ticks.iter().map(|tick| tick.round()).collect::<Vec<_>>(),
            [10.0, 100.0, 1_000.0, 10_000.0]
        );
        assert!((log.at(100.0) - 1.0 / 3.0).abs() < 1e-9);
        assert_eq!(log.at(0.0), 0.0, "no value of its own on a log scale");
        let doublings = Scale::doublings(&[1.0, 2.0, 4.0]);
        let step = doublings.x(2.0) - doublings.x(1.0);
        assert!((doublings.x(4.0) - doublings.x(2.0) - step).abs() < 1e-9);
        assert!(doublings.x(1.0) > LEFT && doublings.x(4.0) < RIGHT);
        assert_eq!(Scale::from_zero(0.0).ticks.len(), 2, "nothing measured is drawn all the same");
    }

    #[test]
    fn numbers_are_short() {
        let shown = [0.0, 0.25, 7.5, 12.0, 640.0, 9_999.0, 20_000.0, 1_500_000.0].map(short);
        assert_eq!(shown, ["0", "0.25", "7.5", "12", "640", "9999", "20 k", "1.5 M"]);
    }

    #[test]
    fn lines_stand_where_their_values_are() {
        let series = |name: &str, is_dashed| Series {
            name: name.to_owned(),
            points: vec![(1.0, 0.0), (8.0, 1000.0)],
            is_dashed,
        };
        let x = Scale::doublings(&[1.0, 8.0]);
        let (left, right) = (x.x(1.0), x.x(8.0));
        let chart = Lines {
            title: "rate".into(),
            note: "1 KiB & more".into(),
            x_label: "threads".into(),
            y_label: "records/s".into(),
            x,
            y: Scale::from_zero(1000.0),
            series: vec![series("thetis", false), series("thetis", true), series("walrus", false)],
        };
        let svg = chart.draw();
        assert!(is_well_formed(&svg), "{svg}");
        assert!(
            svg.contains(&format!("points=\"{left:.1},{BOTTOM:.1} {right:.1},{TOP:.1}\"")),
            "{svg}"
        );
        assert_eq!(svg.matches("stroke-dasharray").count(), 1);
        assert_eq!(svg.matches(">thetis<").count(), 1, "once in the legend");
        assert!(svg.contains(">threads<") && svg.contains(">records/s<"));
    }

    #[test]
    fn bars_are_as_high_as_their_values() {
        let chart = Bars {
            title: "CPU".into(),
            note: String::new(),
            y_label: "s/GB".into(),
            groups: vec![("os".into(), vec![("thetis".into(), 5.0), ("walrus".into(), 10.0)])],
        };
        let svg = chart.draw();
        assert!(is_well_formed(&svg), "{svg}");
        let full = BOTTOM - TOP;
        assert!(svg.contains(&format!("height=\"{full:.1}\" fill=\"{}\"", look("walrus").0)));
        assert!(svg.contains(&format!(
            "height=\"{:.1}\" fill=\"{}\"",
            full / 2.0,
            look("thetis").0
        )));
    }

    #[test]
    fn every_rival_looks_its_own_way() {
        let names = [
            "thetis",
            "device",
            "device-prewritten",
            "walrus",
            "walrus-mmap",
            "rocksdb",
            "raft-engine",
        ];
        for (at, one) in names.iter().enumerate() {
            for other in &names[at + 1..] {
                assert_ne!(look(one).0, look(other).0, "{one} and {other}");
                assert_ne!(look(one).1, look(other).1, "{one} and {other}");
            }
        }
    }
}

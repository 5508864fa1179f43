//! A small writer of SVG: shapes and words, in colours that are readable on light and on dark.

use std::fmt::Write as _;

/// Everything that is not a rival's own colour, once for each scheme.
const STYLE: &str = "\
.page{fill:#ffffff}.word{fill:#1f2328}.faint{fill:#59636e}.grid{stroke:#d8dee4}.axis{stroke:#59636e}\
.hollow{fill:#ffffff}\
@media (prefers-color-scheme:dark){\
.page{fill:#0d1117}.word{fill:#e6edf3}.faint{fill:#9198a1}.grid{stroke:#30363d}.axis{stroke:#9198a1}\
.hollow{fill:#0d1117}}\
text{font-family:system-ui,-apple-system,'Segoe UI',Helvetica,Arial,sans-serif}";

/// Half of a marker's width, pixels.
const MARKER: f64 = 4.0;

/// How a series looks, besides its colour.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Marker {
    Circle,
    Square,
    Diamond,
    Up,
    Down,
    Cross,
    Bar,
}

/// Where words stand beside their point.
#[derive(Clone, Copy)]
pub(super) enum Anchor {
    Start,
    Middle,
    End,
}

/// A picture that is being written.
pub(super) struct Svg {
    text: String,
}

impl Svg {
    /// An empty page; `title` is what is read out.
    pub(super) fn new(width: f64, height: f64, title: &str) -> Svg {
        let title = escaped(title);
        let text = format!(
            "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {width} {height}\" \
             width=\"{width}\" height=\"{height}\" role=\"img\" aria-label=\"{title}\">\n\
             <title>{title}</title>\n<style>{STYLE}</style>\n\
             <rect class=\"page\" width=\"{width}\" height=\"{height}\" rx=\"6\"/>\n"
        );
        Svg { text }
    }

    fn put(&mut self, element: std::fmt::Arguments<'_>) {
        self.text.write_fmt(element).expect("a string takes everything");
        self.text.push('\n');
    }

    /// A straight line of a class of the style.
    pub(super) fn rule(&mut self, class: &str, from: (f64, f64), to: (f64, f64)) {
        let ((x1, y1), (x2, y2)) = (from, to);
        self.put(format_args!(
            "<line class=\"{class}\" x1=\"{x1:.1}\" y1=\"{y1:.1}\" x2=\"{x2:.1}\" y2=\"{y2:.1}\"/>"
        ));
    }

    /// A line through points.
    pub(super) fn path(&mut self, points: &[(f64, f64)], colour: &str, is_dashed: bool) {
        let points: Vec<String> = points.iter().map(|(x, y)| format!("{x:.1},{y:.1}")).collect();
        let dashes = if is_dashed { " stroke-dasharray=\"5 4\"" } else { "" };
        self.put(format_args!(
            "<polyline fill=\"none\" stroke=\"{colour}\" stroke-width=\"2\"{dashes} points=\"{}\"/>",
            points.join(" ")
        ));
    }

    /// A filled rectangle.
    pub(super) fn block(&mut self, (x, y): (f64, f64), width: f64, height: f64, colour: &str) {
        self.put(format_args!(
            "<rect x=\"{x:.1}\" y=\"{y:.1}\" width=\"{width:.1}\" height=\"{height:.1}\" fill=\"{colour}\"/>"
        ));
    }

    /// A marker at a point; hollow for the second of two lines of one colour.
    pub(super) fn marker(&mut self, marker: Marker, at: (f64, f64), colour: &str, is_hollow: bool) {
        let (x, y) = at;
        let m = MARKER;
        let fill =
            if is_hollow { "class=\"hollow\"".to_owned() } else { format!("fill=\"{colour}\"") };
        let shape = match marker {
            Marker::Circle => {
                self.put(format_args!(
                    "<circle cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"{m}\" {fill} stroke=\"{colour}\"/>"
                ));
                return;
            }
            Marker::Square => [(-m, -m), (m, -m), (m, m), (-m, m)].to_vec(),
            Marker::Diamond => {
                [(0.0, -m - 1.0), (m + 1.0, 0.0), (0.0, m + 1.0), (-m - 1.0, 0.0)].to_vec()
            }
            Marker::Up => [(0.0, -m - 1.0), (m + 1.0, m), (-m - 1.0, m)].to_vec(),
            Marker::Down => [(0.0, m + 1.0), (m + 1.0, -m), (-m - 1.0, -m)].to_vec(),
            Marker::Bar => {
                [(-m - 1.0, -1.5), (m + 1.0, -1.5), (m + 1.0, 1.5), (-m - 1.0, 1.5)].to_vec()
            }
            Marker::Cross => {
                let t = 1.5;
                let upper = [(-t, -m), (t, -m), (t, -t), (m, -t), (m, t), (t, t)];
                let lower = [(t, m), (-t, m), (-t, t), (-m, t), (-m, -t), (-t, -t)];
                [upper, lower].concat()
            }
        };
        let points: Vec<String> =
            shape.iter().map(|(dx, dy)| format!("{:.1},{:.1}", x + dx, y + dy)).collect();
        self.put(format_args!(
            "<polygon points=\"{}\" {fill} stroke=\"{colour}\"/>",
            points.join(" ")
        ));
    }

    /// Words of a class of the style, `size` pixels high.
    pub(super) fn words(
        &mut self,
        class: &str,
        size: u32,
        at: (f64, f64),
        anchor: Anchor,
        words: &str,
    ) {
        let (x, y) = at;
        let (anchor, words) = (anchor.text(), escaped(words));
        self.put(format_args!(
            "<text class=\"{class}\" x=\"{x:.1}\" y=\"{y:.1}\" font-size=\"{size}\" text-anchor=\"{anchor}\">{words}</text>"
        ));
    }

    /// Words that are read from below, around their middle.
    pub(super) fn upright(&mut self, class: &str, size: u32, at: (f64, f64), words: &str) {
        let ((x, y), words) = (at, escaped(words));
        self.put(format_args!(
            "<text class=\"{class}\" font-size=\"{size}\" text-anchor=\"middle\" \
             transform=\"translate({x:.1} {y:.1}) rotate(-90)\">{words}</text>"
        ));
    }

    /// The whole picture.
    pub(super) fn finish(mut self) -> String {
        self.text.push_str("</svg>\n");
        self.text
    }
}

impl Anchor {
    fn text(self) -> &'static str {
        match self {
            Anchor::Start => "start",
            Anchor::Middle => "middle",
            Anchor::End => "end",
        }
    }
}

fn escaped(words: &str) -> String {
    let words = words.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;");
    words.replace('"', "&quot;")
}

/// Whether every element that is opened is closed, in order, and every attribute is quoted.
#[cfg(test)]
pub(super) fn is_well_formed(text: &str) -> bool {
    let mut open: Vec<&str> = Vec::new();
    let mut rest = text;
    let mut roots = 0;
    while let Some(from) = rest.find('<') {
        if rest[..from].contains('>') {
            return false;
        }
        let Some(length) = rest[from..].find('>') else { return false };
        let tag = &rest[from + 1..from + length];
        rest = &rest[from + length + 1..];
        if let Some(name) = tag.strip_prefix('/') {
            if open.pop() != Some(name) {
                return false;
            }
            continue;
        }
        let quotes = tag.matches('"').count();
        if tag.matches("=\"").count() * 2 != quotes {
            return false;
        }
        roots += usize::from(open.is_empty());
        if !tag.ends_with('/') {
            open.push(tag.split_whitespace().next().unwrap_or_default());
        }
    }
    open.is_empty() && roots == 1 && rest.trim().is_empty()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_check_of_the_form_finds_faults() {
        for bad in ["<a>", "<a></b>", "<a x=1\"/>", "<a/><b/>", "<a>></a>", "<a/>words"] {
            assert!(!is_well_formed(bad), "{bad}");
        }
        assert!(is_well_formed("<a x=\"1\"><b/>words</a>\n"));
    }

    #[test]
    fn every_shape_is_well_formed_and_words_are_escaped() {
        let mut svg = Svg::new(100.0, 50.0, "more & \"less\" <1>");
        svg.rule("grid", (0.0, 1.0), (2.0, 3.0));
        svg.path(&[(0.0, 1.0), (2.0, 3.5)], "#123456", true);
        svg.block((1.0, 2.0), 3.0, 4.0, "#123456");
        svg.words("word", 12, (1.0, 2.0), Anchor::End, "a < b & c");
        svg.upright("word", 12, (1.0, 2.0), "records/s");
        let markers = [
            Marker::Circle,
            Marker::Square,
            Marker::Diamond,
            Marker::Up,
            Marker::Down,
            Marker::Cross,
            Marker::Bar,
        ];
        for marker in markers {
            svg.marker(marker, (5.0, 5.0), "#123456", marker == Marker::Up);
        }
        let text = svg.finish();
        assert!(is_well_formed(&text), "{text}");
        assert!(text.contains("points=\"0.0,1.0 2.0,3.5\""));
        assert!(text.contains(">a &lt; b &amp; c<"));
        assert!(text.contains("prefers-color-scheme:dark"));
    }
}

//! The types a setting can have: how each is read from text, bounded and shown again. One reader
//! serves the file, the environment and the flags, so that a value means the same in all three.
//! Owns no key and no default; those are in `settings.rs`.

use std::fmt;
use std::net::IpAddr;
use std::path::PathBuf;
use std::time::Duration;

use thetis_types::Durability;

/// A type that settings can have.
pub(crate) trait Value: Sized + PartialOrd {
    /// What the text looks like, for documentation: `size`, `duration`, ...
    const UNIT: &'static str;
    /// Reads the text a user wrote.
    fn parse(text: &str) -> Result<Self, ValueError>;
    /// The canonical text; [`Value::parse`] reads it back to the same value.
    fn show(&self) -> String;
}

/// Why a text is not a value of its setting. The message names the text and what to write instead.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(crate) enum ValueError {
    #[error("{found:?} is not a size; write bytes or a unit: 64MiB, 4KiB, 1048576")]
    Size { found: String },
    #[error("{found:?} is not a duration; write a whole number and a unit: 250ms, 5s, 10m, 2h, 7d")]
    Duration { found: String },
    #[error("{found:?} has no unit; write {found}ms, {found}s, {found}m, {found}h or {found}d")]
    UnitMissing { found: String },
    #[error("{found:?} is not a whole number; write one without sign or unit, such as 4")]
    Number { found: String },
    #[error("{found:?} is neither true nor false")]
    Switch { found: String },
    #[error("{found:?} is not one of {allowed}")]
    Choice { found: String, allowed: &'static str },
    #[error("{found:?} is not an address; write host:port, such as {example}")]
    Address { found: String, example: &'static str },
    #[error("the path is empty; name a directory, such as ./data")]
    PathEmpty,
    #[error("{found} is outside {min} to {max}")]
    Range { found: String, min: String, max: String },
}

/// A number of bytes.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) struct ByteSize(pub(crate) u64);

impl ByteSize {
    /// `count` mebibytes.
    pub(crate) const fn mib(count: u64) -> ByteSize {
        ByteSize(count << 20)
    }
}

/// Largest first, so that showing picks the largest unit that divides the value.
const BINARY_UNITS: [(&str, u64); 4] =
    [("TiB", 1 << 40), ("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10)];
const DECIMAL_UNITS: [(&str, u64); 5] =
    [("TB", 1_000_000_000_000), ("GB", 1_000_000_000), ("MB", 1_000_000), ("kB", 1_000), ("B", 1)];

impl Value for ByteSize {
    const UNIT: &'static str = "size";

    fn parse(text: &str) -> Result<Self, ValueError> {
        let error = || ValueError::Size { found: text.to_owned() };
        let (digits, unit) = split_number(text).ok_or_else(error)?;
        let factor = if unit.is_empty() {
            1
        } else {
            BINARY_UNITS
                .iter()
                .chain(&DECIMAL_UNITS)
                .find(|(name, _)| name.eq_ignore_ascii_case(unit))
                .map(|(_, factor)| *factor)
                .ok_or_else(error)?
        };
        digits.checked_mul(factor).map(ByteSize).ok_or_else(error)
    }

    fn show(&self) -> String {
        let unit = BINARY_UNITS
            .iter()
            .find(|(_, factor)| self.0 >= *factor && self.0.is_multiple_of(*factor));
        match unit {
            Some((name, factor)) => format!("{}{name}", self.0 / factor),
            None => format!("{}B", self.0),
        }
    }
}

const TIME_UNITS: [(&str, u64); 5] =
    [("d", 86_400_000), ("h", 3_600_000), ("m", 60_000), ("s", 1_000), ("ms", 1)];

impl Value for Duration {
    const UNIT: &'static str = "duration";

    fn parse(text: &str) -> Result<Self, ValueError> {
        let error = || ValueError::Duration { found: text.to_owned() };
        let (digits, unit) = split_number(text).ok_or_else(error)?;
        if unit.is_empty() && digits == 0 {
            return Ok(Duration::ZERO);
        }
        if unit.is_empty() {
            return Err(ValueError::UnitMissing { found: text.to_owned() });
        }
        let (_, factor) = TIME_UNITS.iter().find(|(name, _)| *name == unit).ok_or_else(error)?;
        digits.checked_mul(*factor).map(Duration::from_millis).ok_or_else(error)
    }

    fn show(&self) -> String {
        let millis = self.as_millis();
        let unit = TIME_UNITS.iter().find(|(_, factor)| {
            millis >= u128::from(*factor) && millis.is_multiple_of(u128::from(*factor))
        });
        match unit {
            Some((name, factor)) => format!("{}{name}", millis / u128::from(*factor)),
            None => "0ms".to_owned(),
        }
    }
}

/// How long records are kept.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) enum Retention {
    /// At least this long after the record's timestamp.
    For(Duration),
    /// Until deleted by name.
    Forever,
}

impl Value for Retention {
    const UNIT: &'static str = "duration|forever";

    fn parse(text: &str) -> Result<Self, ValueError> {
        if text == "forever" {
            return Ok(Retention::Forever);
        }
        Duration::parse(text).map(Retention::For)
    }

    fn show(&self) -> String {
        match self {
            Retention::For(time) => time.show(),
            Retention::Forever => "forever".to_owned(),
        }
    }
}

/// A host and a port; the host is a name or an IP address, IPv6 without its brackets.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) struct Address {
    /// Name or IP address.
    pub(crate) host: String,
    /// TCP port; zero lets the kernel choose when listening.
    pub(crate) port: u16,
}

impl Address {
    /// Whether this stands for every interface, which is no address to call back.
    pub(crate) fn is_unspecified(&self) -> bool {
        self.host.parse::<IpAddr>().is_ok_and(|ip| ip.is_unspecified())
    }
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.host.contains(':') {
            write!(f, "[{}]:{}", self.host, self.port)
        } else {
            write!(f, "{}:{}", self.host, self.port)
        }
    }
}

impl Value for Address {
    const UNIT: &'static str = "host:port";

    fn parse(text: &str) -> Result<Self, ValueError> {
        let read = || {
            let (host, port) = text.rsplit_once(':')?;
            let port = port.parse().ok()?;
            let host = match host.strip_prefix('[') {
                Some(rest) => rest.strip_suffix(']')?,
                None if host.contains(':') => return None,
                None => host,
            };
            let strange = |c: char| c.is_whitespace() || "/[]".contains(c);
            if host.is_empty() || host.contains(strange) {
                return None;
            }
            Some(Address { host: host.to_owned(), port })
        };
        read().ok_or_else(|| ValueError::Address {
            found: text.to_owned(),
            example: "127.0.0.1:9092 or [::1]:9092",
        })
    }

    fn show(&self) -> String {
        self.to_string()
    }
}

/// The address clients are told to come back to.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) enum Advertised {
    /// The one listened on.
    Listen,
    /// This one, as seen from the clients: behind a proxy, in a container.
    At(Address),
}

impl Value for Advertised {
    const UNIT: &'static str = "host:port|listen";

    fn parse(text: &str) -> Result<Self, ValueError> {
        if text == "listen" {
            return Ok(Advertised::Listen);
        }
        Address::parse(text).map(Advertised::At).map_err(|_| ValueError::Address {
            found: text.to_owned(),
            example: "broker.example.com:9092, or listen for the listening address",
        })
    }

    fn show(&self) -> String {
        match self {
            Advertised::Listen => "listen".to_owned(),
            Advertised::At(address) => address.show(),
        }
    }
}

/// An address to listen on, or none.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) enum Listen {
    /// Nobody is listened to.
    Off,
    /// This one.
    At(Address),
}

impl Value for Listen {
    const UNIT: &'static str = "host:port|empty";

    fn parse(text: &str) -> Result<Self, ValueError> {
        if text.is_empty() {
            return Ok(Listen::Off);
        }
        Address::parse(text).map(Listen::At)
    }

    fn show(&self) -> String {
        match self {
            Listen::Off => String::new(),
            Listen::At(address) => address.show(),
        }
    }
}

/// A file, or none.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) struct OptionalFile(pub(crate) Option<PathBuf>);

impl Value for OptionalFile {
    const UNIT: &'static str = "path|empty";

    fn parse(text: &str) -> Result<Self, ValueError> {
        Ok(OptionalFile((!text.is_empty()).then(|| PathBuf::from(text))))
    }

    fn show(&self) -> String {
        self.0.as_ref().map_or_else(String::new, |path| path.display().to_string())
    }
}

impl Value for PathBuf {
    const UNIT: &'static str = "path";

    fn parse(text: &str) -> Result<Self, ValueError> {
        if text.is_empty() { Err(ValueError::PathEmpty) } else { Ok(PathBuf::from(text)) }
    }

    fn show(&self) -> String {
        self.display().to_string()
    }
}

impl Value for u32 {
    const UNIT: &'static str = "count";

    fn parse(text: &str) -> Result<Self, ValueError> {
        text.parse().map_err(|_| ValueError::Number { found: text.to_owned() })
    }

    fn show(&self) -> String {
        self.to_string()
    }
}

impl Value for bool {
    const UNIT: &'static str = "true|false";

    fn parse(text: &str) -> Result<Self, ValueError> {
        text.parse().map_err(|_| ValueError::Switch { found: text.to_owned() })
    }

    fn show(&self) -> String {
        self.to_string()
    }
}

impl Value for Durability {
    const UNIT: &'static str = "disk|os|memory";

    fn parse(text: &str) -> Result<Self, ValueError> {
        text.parse().map_err(|_| ValueError::Choice { found: text.to_owned(), allowed: Self::UNIT })
    }

    fn show(&self) -> String {
        self.name().to_owned()
    }
}

/// How log lines look.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) enum LogFormat {
    /// For people.
    Text,
    /// One JSON object a line.
    Json,
}

impl Value for LogFormat {
    const UNIT: &'static str = "text|json";

    fn parse(text: &str) -> Result<Self, ValueError> {
        match text {
            "text" => Ok(LogFormat::Text),
            "json" => Ok(LogFormat::Json),
            _ => Err(ValueError::Choice { found: text.to_owned(), allowed: Self::UNIT }),
        }
    }

    fn show(&self) -> String {
        match self {
            LogFormat::Text => "text".to_owned(),
            LogFormat::Json => "json".to_owned(),
        }
    }
}

/// The least severe log line that is written.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) enum LogLevel {
    /// Someone must look.
    Error,
    /// Unexpected, and continued.
    Warn,
    /// Changes of state.
    Info,
    /// What a developer asks for.
    Debug,
    /// Everything.
    Trace,
}

const LOG_LEVELS: [(&str, LogLevel); 5] = [
    ("error", LogLevel::Error),
    ("warn", LogLevel::Warn),
    ("info", LogLevel::Info),
    ("debug", LogLevel::Debug),
    ("trace", LogLevel::Trace),
];

impl Value for LogLevel {
    const UNIT: &'static str = "error|warn|info|debug|trace";

    fn parse(text: &str) -> Result<Self, ValueError> {
        LOG_LEVELS
            .iter()
            .find(|(name, _)| *name == text)
            .map(|(_, level)| *level)
            .ok_or_else(|| ValueError::Choice { found: text.to_owned(), allowed: Self::UNIT })
    }

    fn show(&self) -> String {
        LOG_LEVELS.iter().find(|(_, level)| level == self).map_or("", |(name, _)| name).to_owned()
    }
}

/// `12MiB` into `(12, "MiB")`; a space between is allowed.
fn split_number(text: &str) -> Option<(u64, &str)> {
    let end = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    let (digits, unit) = text.split_at(end);
    Some((digits.parse().ok()?, unit.trim_start()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn size(text: &str) -> u64 {
        ByteSize::parse(text).unwrap().0
    }

    #[test]
    fn sizes_are_read_with_their_units() {
        assert_eq!(size("64MiB"), 64 << 20);
        assert_eq!(size("64 mib"), 64 << 20);
        assert_eq!(size("1048588"), 1_048_588);
        assert_eq!(size("1kB"), 1_000);
        assert_eq!(size("1KiB"), 1_024);
        for bad in ["", "MiB", "-1", "1.5MiB", "64Mb2", "64M", "99999999999TiB"] {
            let error = ByteSize::parse(bad).unwrap_err().to_string();
            assert!(error.contains(&format!("{bad:?}")) && error.contains("64MiB"), "{error}");
        }
    }

    #[test]
    fn durations_need_a_unit() {
        assert_eq!(Duration::parse("250ms").unwrap(), Duration::from_millis(250));
        assert_eq!(Duration::parse("7d").unwrap(), Duration::from_secs(7 * 86_400));
        assert_eq!(Duration::parse("0").unwrap(), Duration::ZERO);
        let error = Duration::parse("250").unwrap_err().to_string();
        assert_eq!(error, "\"250\" has no unit; write 250ms, 250s, 250m, 250h or 250d");
        assert!(Duration::parse("5 minutes").is_err());
        assert!(Duration::parse("99999999999999999999d").is_err());
    }

    #[test]
    fn values_are_shown_in_the_largest_exact_unit_and_read_back() {
        for text in ["64MiB", "1048588B", "1KiB", "3TiB", "0B"] {
            assert_eq!(ByteSize::parse(text).unwrap().show(), text);
        }
        for text in ["250ms", "90s", "7d", "0ms", "36h"] {
            assert_eq!(Duration::parse(text).unwrap().show(), text);
        }
        assert_eq!(Duration::parse("120s").unwrap().show(), "2m");
        assert_eq!(Retention::parse("forever").unwrap().show(), "forever");
        for (name, level) in LOG_LEVELS {
            assert_eq!(level.show(), name);
        }
    }

    #[test]
    fn addresses_keep_brackets_apart_from_ports() {
        assert_eq!(Address::parse("[::1]:9092").unwrap().host, "::1");
        assert_eq!(Address::parse("[::1]:9092").unwrap().show(), "[::1]:9092");
        assert_eq!(Address::parse("localhost:0").unwrap().port, 0);
        assert!(Address::parse("0.0.0.0:9092").unwrap().is_unspecified());
        for bad in [
            "9092",
            "localhost",
            ":9092",
            "::1:9092",
            "a b:1",
            "localhost:70000",
            "http://x:1",
            "[[x]:1",
        ] {
            assert!(Address::parse(bad).is_err(), "{bad}");
        }
    }
}

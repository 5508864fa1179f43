//! `thetis consume`: records of a topic to stdout. Owns where to start, when to stop and how records
//! are written (`consume/format.rs`).

mod format;

use std::io::{self, BufWriter, Write};
use std::path::Path;
use std::str::FromStr;

use clap::Args;

use crate::client::{Consumer, ConsumerOptions, Start};
use crate::exit::{Exit, Failure};
use crate::server::ServerArgs;
use format::Format;

/// Arguments of `thetis consume`.
#[derive(Args, Debug)]
#[command(after_help = "\
Without --follow, reading ends at the end that each partition had when it began.

Formats:
  %v value   %k key   %o offset   %p partition   %t topic   %T timestamp   %% percent
  \\n newline   \\t tab   \\0 zero byte   \\\\ backslash

Examples:
  thetis consume greetings
  thetis consume greetings --from end --follow
  thetis consume greetings --from @2026-01-31T12:00:00Z --json | jq .value
  thetis consume greetings --format '%p/%o %k=%v\\n'")]
pub(crate) struct ConsumeArgs {
    /// Name of the topic.
    topic: String,
    /// Where to start: beginning, end, end-COUNT, an offset, or @TIME (RFC 3339, or milliseconds
    /// since 1970).
    #[arg(long, value_name = "PLACE", default_value = "beginning")]
    from: From,
    /// Read this partition alone.
    #[arg(long, short, value_name = "NUMBER", value_parser = clap::value_parser!(i32).range(0..))]
    partition: Option<i32>,
    /// Stop after this many records.
    #[arg(long, short, value_name = "COUNT")]
    count: Option<u64>,
    /// Go on at the end, waiting for new records.
    #[arg(long, short)]
    follow: bool,
    /// Write records in this form instead of the value and a newline.
    #[arg(long, value_name = "FORMAT", conflicts_with_all = ["length_prefixed", "json"])]
    format: Option<Format>,
    /// Write each value as its length (four bytes, big-endian) and its bytes.
    #[arg(long, conflicts_with = "json")]
    length_prefixed: bool,
    /// Write each record as one line of JSON; bytes that are not UTF-8 go to `key_base64` and
    /// `value_base64`.
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    server: ServerArgs,
}

/// A place to start as the command line says it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct From(Start);

impl FromStr for From {
    type Err = String;

    fn from_str(text: &str) -> Result<From, String> {
        let count = |digits: &str| digits.parse::<i64>().ok().filter(|number| *number >= 0);
        let start = match text {
            "beginning" => Some(Start::Beginning),
            "end" => Some(Start::End),
            _ => match (text.strip_prefix("end-"), text.strip_prefix('@')) {
                (Some(back), _) => count(back).map(Start::BeforeEnd),
                (_, Some(time)) => count(time).or_else(|| rfc3339_ms(time)).map(Start::Time),
                (None, None) => count(text).map(Start::Offset),
            },
        };
        start.map(From).ok_or_else(|| {
            "write beginning, end, end-10, an offset such as 42, or @2026-01-31T12:00:00Z"
                .to_owned()
        })
    }
}

/// Milliseconds since 1970 of an RFC 3339 time; without an offset it is taken as UTC.
fn rfc3339_ms(text: &str) -> Option<i64> {
    let datetime: toml::value::Datetime = text.parse().ok()?;
    let date = datetime.date?;
    let (hour, minute, second, nano) = match datetime.time {
        Some(time) => {
            (time.hour, time.minute, time.second.unwrap_or(0), time.nanosecond.unwrap_or(0))
        }
        None => (0, 0, 0, 0),
    };
    let offset_minutes = match datetime.offset {
        Some(toml::value::Offset::Custom { minutes }) => i64::from(minutes),
        _ => 0,
    };
    let minutes = i64::from(hour) * 60 + i64::from(minute) - offset_minutes;
    let days = days_since_1970(i64::from(date.year), i64::from(date.month), i64::from(date.day));
    let seconds = days * 86_400 + minutes * 60 + i64::from(second);
    Some(seconds * 1_000 + i64::from(nano) / 1_000_000)
}

/// Days from 1970-01-01 to a date of the Gregorian calendar. Years are counted from March, so that
/// the leap day is a year's last.
fn days_since_1970(year: i64, month: i64, day: i64) -> i64 {
    let year = if month <= 2 { year - 1 } else { year };
    let day_of_year = (153 * ((month + 9) % 12) + 2) / 5 + day - 1;
    let leap_days = year.div_euclid(4) - year.div_euclid(100) + year.div_euclid(400);
    // 719 468 days lie between 0000-03-01 and 1970-01-01.
    year * 365 + leap_days + day_of_year - 719_468
}

/// Prints records until the end, the count or the reader's patience is reached.
pub(crate) fn run(config: Option<&Path>, args: &ConsumeArgs) -> Result<Exit, Failure> {
    let client = args.server.connect(config)?;
    let options =
        ConsumerOptions { partition: args.partition, start: args.from.0, follow: args.follow };
    let mut consumer = Consumer::new(client, &args.topic, &options)?;
    let format = match (&args.format, args.length_prefixed, args.json) {
        (Some(format), ..) => format.clone(),
        (None, true, _) => Format::LengthPrefixed,
        (None, false, true) => Format::Json,
        (None, false, false) => Format::values(),
    };
    let mut left = args.count.unwrap_or(u64::MAX);
    let mut out = BufWriter::with_capacity(64 << 10, io::stdout().lock());
    while left > 0 {
        let Some(records) = consumer.next()? else { break };
        for fetched in records {
            if left == 0 {
                break;
            }
            format.write(&mut out, &args.topic, &fetched)?;
            left -= 1;
        }
        out.flush()?;
    }
    Ok(Exit::Done)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_are_read() {
        let from = |text: &str| text.parse::<From>().map(|from| from.0);
        assert_eq!(from("beginning"), Ok(Start::Beginning));
        assert_eq!(from("end"), Ok(Start::End));
        assert_eq!(from("end-10"), Ok(Start::BeforeEnd(10)));
        assert_eq!(from("42"), Ok(Start::Offset(42)));
        assert_eq!(from("@1700000000000"), Ok(Start::Time(1_700_000_000_000)));
        assert_eq!(from("@2023-11-14T22:13:20Z"), Ok(Start::Time(1_700_000_000_000)));
        assert_eq!(from("@2023-11-14T23:13:20.250+01:00"), Ok(Start::Time(1_700_000_000_250)));
        assert_eq!(from("@1970-01-01"), Ok(Start::Time(0)));
        assert_eq!(from("@2000-02-29"), Ok(Start::Time(951_782_400_000)));
        for bad in ["", "-1", "end-", "end--1", "@", "@yesterday", "@12:00:00", "start"] {
            assert!(from(bad).unwrap_err().contains("beginning"), "{bad}");
        }
    }
}

//! The table of settings: the one place where a key, its type, its default, its bounds, its flag
//! and its meaning are written. The struct, the documentation, the names of flags and environment
//! variables and the reading of all layers follow from it. Owns no layer and no origin.

use std::path::PathBuf;
use std::time::Duration;

use thetis_types::Durability;

use super::value::{
    Address, Advertised, ByteSize, Listen, LogFormat, LogLevel, OptionalFile, Retention, Value,
    ValueError,
};

/// One row of the table.
pub(crate) struct Setting {
    /// Dotted name in the file.
    pub(crate) key: &'static str,
    /// Name of the flag, without its dashes.
    pub(crate) flag: &'static str,
    /// Text of the default.
    pub(crate) default: &'static str,
    /// What the text looks like.
    pub(crate) unit: &'static str,
    /// What it does, what gets better and worse.
    pub(crate) meaning: &'static str,
    /// Checks a text and gives its canonical form.
    pub(crate) check: fn(&str) -> Result<String, ValueError>,
}

impl Setting {
    /// Name of the environment variable: `data.dir` is `THETIS_DATA_DIR`.
    pub(crate) fn env(&self) -> String {
        format!("THETIS_{}", self.key.replace('.', "_").to_ascii_uppercase())
    }

    /// The row with this key.
    pub(crate) fn by_key(key: &str) -> Option<&'static Setting> {
        TABLE.iter().find(|setting| setting.key == key)
    }
}

/// Reads `text` and holds it against the bounds of its setting.
fn read<T: Value>(text: &str, bounds: Option<(T, T)>) -> Result<T, ValueError> {
    let value = T::parse(text)?;
    match bounds {
        Some((min, max)) if value < min || value > max => {
            Err(ValueError::Range { found: value.show(), min: min.show(), max: max.show() })
        }
        _ => Ok(value),
    }
}

/// Declares the settings; see the invocation for the shape of a row.
macro_rules! settings {
    ($(
        $(#[doc = $meaning:literal])+
        $field:ident: $type:ty {
            key: $key:literal, flag: $flag:literal, default: $default:literal
            $(, within: ($min:expr, $max:expr))? $(,)?
        }
    )+) => {
        /// Everything that can be set, checked. Relations between settings are checked where the
        /// layers come together.
        #[derive(Clone, Debug, PartialEq)]
        pub(crate) struct Settings {
            $($(#[doc = $meaning])+ pub(crate) $field: $type,)+
        }

        /// All settings, in the order of the documentation.
        pub(crate) const TABLE: &[Setting] = &[$(Setting {
            key: $key,
            flag: $flag,
            default: $default,
            unit: <$type as Value>::UNIT,
            meaning: concat!($($meaning),+),
            check: |text| settings!(@read $type, text $(, $min, $max)?).map(|value| value.show()),
        }),+];

        impl Settings {
            /// The settings whose texts `text_of` gives by key.
            pub(crate) fn read<'a>(
                text_of: impl Fn(&'static str) -> &'a str,
            ) -> Result<Settings, ValueError> {
                Ok(Settings {
                    $($field: settings!(@read $type, text_of($key) $(, $min, $max)?)?,)+
                })
            }
        }
    };
    (@read $type:ty, $text:expr) => { read::<$type>($text, None) };
    (@read $type:ty, $text:expr, $min:expr, $max:expr) => {
        read::<$type>($text, Some(($min, $max)))
    };
}

settings! {
    /// Directory that holds everything the node stores. One process uses it at a time.
    data_dir: PathBuf { key: "data.dir", flag: "data", default: "./data" }

    /// What an acknowledged record survives when its topic names no level: disk survives loss
    /// of power, os the end of the process, memory nothing. Weaker is faster.
    durability: Durability { key: "durability", flag: "durability", default: "disk" }

    /// Address the Kafka listener accepts on. Port 0 lets the kernel choose; 0.0.0.0 accepts on
    /// every interface and then kafka.advertised must be set.
    kafka_listen: Address { key: "kafka.listen", flag: "kafka", default: "127.0.0.1:9092" }

    /// Address Kafka clients are told to come back to, as they see it.
    kafka_advertised: Advertised {
        key: "kafka.advertised", flag: "kafka-advertised", default: "listen",
    }

    /// PEM file with the Kafka listener's certificate and those that signed it; set with
    /// kafka.tls_key_file. Empty: nothing is encrypted.
    kafka_tls_certificate_file: OptionalFile {
        key: "kafka.tls_certificate_file", flag: "kafka-tls-certificate-file", default: "",
    }

    /// PEM file with the key of that certificate.
    kafka_tls_key_file: OptionalFile {
        key: "kafka.tls_key_file", flag: "kafka-tls-key-file", default: "",
    }

    /// Address the text listener accepts on; empty for none. Port 0 lets the kernel choose.
    text_listen: Listen { key: "text.listen", flag: "text", default: "" }

    /// File whose first line text clients must say with AUTH; empty lets everybody in who reaches
    /// the listener.
    text_token_file: OptionalFile {
        key: "text.token_file", flag: "text-token-file", default: "",
    }

    /// PEM file with the text listener's certificate and those that signed it; set with
    /// text.tls_key_file. Empty: nothing is encrypted.
    text_tls_certificate_file: OptionalFile {
        key: "text.tls_certificate_file", flag: "text-tls-certificate-file", default: "",
    }

    /// PEM file with the key of that certificate.
    text_tls_key_file: OptionalFile {
        key: "text.tls_key_file", flag: "text-tls-key-file", default: "",
    }

    /// Size of one journal file. Larger files cost fewer switches and give space back later.
    journal_file_bytes: ByteSize {
        key: "journal.file_bytes", flag: "journal-file-bytes", default: "64MiB",
        within: (ByteSize::mib(1), ByteSize::mib(16 * 1024)),
    }

    /// Longest time a record at level os waits until it is flushed to the device. Shorter loses
    /// less to a power cut and flushes more often.
    journal_os_flush_interval: Duration {
        key: "journal.os_flush_interval", flag: "journal-os-flush-interval", default: "10ms",
        within: (Duration::from_millis(1), Duration::from_secs(3_600)),
    }

    /// Partitions of a topic created without a number. Apache Kafka's own default is 1; the
    /// suites of its clients expect 4, which also lets four consumers share a topic.
    topic_partitions: u32 {
        key: "topic.partitions", flag: "topic-partitions", default: "4", within: (1, 10_000),
    }

    /// Whether producing to or asking for an unknown topic creates it.
    topic_auto_create: bool { key: "topic.auto_create", flag: "topic-auto-create", default: "true" }

    /// Largest record batch a topic takes unless its own configuration says otherwise.
    topic_message_bytes_max: ByteSize {
        key: "topic.message_bytes_max", flag: "topic-message-bytes-max", default: "1048588B",
        within: (ByteSize(1024), ByteSize::mib(1024)),
    }

    /// How long records are kept unless the topic's own configuration says otherwise.
    topic_retention: Retention {
        key: "topic.retention", flag: "topic-retention", default: "7d",
        within: (Retention::For(Duration::from_secs(1)), Retention::Forever),
    }

    /// How long a new consumer group waits for more members before its first assignment. Longer
    /// avoids a rebalance for each member of a large group, shorter starts a small one sooner.
    group_rebalance_delay: Duration {
        key: "group.rebalance_delay", flag: "group-rebalance-delay", default: "3s",
        within: (Duration::ZERO, Duration::from_secs(300)),
    }

    /// File that log lines are appended to instead of stderr. It is opened once, at the start, and
    /// made if its directory is there.
    log_file: OptionalFile { key: "log.file", flag: "log-file", default: "" }

    /// How log lines look.
    log_format: LogFormat { key: "log.format", flag: "log-format", default: "text" }

    /// The least severe log line that is written.
    log_level: LogLevel { key: "log.level", flag: "log-level", default: "info" }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn every_row_is_complete_and_its_default_is_canonical() {
        let mut names = BTreeSet::new();
        for setting in TABLE {
            let shown = (setting.check)(setting.default).unwrap();
            assert_eq!(shown, setting.default, "default of {}", setting.key);
            assert!(setting.meaning.trim_end().ends_with('.'), "meaning of {}", setting.key);
            assert!(names.insert(setting.env()), "two settings share {}", setting.env());
            assert!(names.insert(setting.flag.to_owned()), "two settings share {}", setting.flag);
        }
    }

    #[test]
    fn bounds_are_checked_and_named() {
        let setting = Setting::by_key("journal.file_bytes").unwrap();
        let error = (setting.check)("4KiB").unwrap_err().to_string();
        assert_eq!(error, "4KiB is outside 1MiB to 16GiB");
    }
}

//! Configuration keys of topics: one table with name, type, default and meaning, and the parsed
//! values that the rest of the house acts on. Names, types and defaults are Apache Kafka's (4.1),
//! because tools read, change and write back all of them; ours begin with `thetis.`.

use std::collections::BTreeMap;
use std::sync::Arc;

use thetis_types::spelling::nearest;
use thetis_types::{Durability, Profile};

use crate::error::CatalogError;

/// Type of a configuration value.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ConfigType {
    /// `true` or `false`.
    Boolean,
    /// A signed 32-bit number.
    Int,
    /// A signed 64-bit number.
    Long,
    /// A decimal number.
    Double,
    /// Text.
    String,
    /// Texts, separated by commas.
    List,
}

/// What values of a key are allowed beyond their type.
#[derive(Clone, Copy, Debug)]
enum Allowed {
    Any,
    AtLeast(i64),
    Fraction,
    OneOf(&'static [&'static str]),
    SomeOf(&'static [&'static str]),
}

/// One configuration key.
#[derive(Clone, Copy, Debug)]
pub struct ConfigKey {
    /// Its name.
    pub name: &'static str,
    /// Its type.
    pub kind: ConfigType,
    /// The value of a topic that does not set it.
    pub default: &'static str,
    /// What it means.
    pub doc: &'static str,
    allowed: Allowed,
}

/// The key of what an acknowledged record survives.
pub const DURABILITY: &str = "thetis.durability";
/// The key of the age at which records go; -1 keeps them.
pub const RETENTION_MS: &str = "retention.ms";
/// The key of the bytes a partition keeps; -1 keeps all.
pub const RETENTION_BYTES: &str = "retention.bytes";

const MAX: &str = "9223372036854775807";

const fn key(
    name: &'static str,
    kind: ConfigType,
    default: &'static str,
    allowed: Allowed,
    doc: &'static str,
) -> ConfigKey {
    ConfigKey { name, kind, default, doc, allowed }
}

use Allowed::{Any, AtLeast, Fraction, OneOf, SomeOf};
use ConfigType::{Boolean, Double, Int, List, Long, String as Text};

const BOOL: Allowed = OneOf(&["true", "false"]);

/// All keys, by name.
pub const KEYS: &[ConfigKey] = &[
    key(
        "cleanup.policy",
        List,
        "delete",
        SomeOf(&["compact", "delete"]),
        "what retention does with old records",
    ),
    key(
        "compression.gzip.level",
        Int,
        "-1",
        AtLeast(-1),
        "level of gzip where the server compresses",
    ),
    key("compression.lz4.level", Int, "9", AtLeast(1), "level of lz4 where the server compresses"),
    key(
        "compression.type",
        Text,
        "producer",
        OneOf(&["uncompressed", "zstd", "lz4", "snappy", "gzip", "producer"]),
        "codec of stored batches; batches are stored as the producer made them",
    ),
    key("compression.zstd.level", Int, "3", Any, "level of zstd where the server compresses"),
    key(
        "delete.retention.ms",
        Long,
        "86400000",
        AtLeast(0),
        "how long tombstones of a compacted topic stay",
    ),
    key("file.delete.delay.ms", Long, "60000", AtLeast(0), "delay before a file is deleted"),
    key("flush.messages", Long, MAX, AtLeast(1), "records between flushes; see thetis.durability"),
    key("flush.ms", Long, MAX, AtLeast(0), "time between flushes; see thetis.durability"),
    key(
        "follower.replication.throttled.replicas",
        List,
        "",
        Any,
        "replicas whose followers are throttled",
    ),
    key("index.interval.bytes", Int, "4096", AtLeast(0), "bytes between index entries"),
    key(
        "leader.replication.throttled.replicas",
        List,
        "",
        Any,
        "replicas whose leaders are throttled",
    ),
    key(
        "local.retention.bytes",
        Long,
        "-2",
        AtLeast(-2),
        "bytes kept on local disks of a tiered topic",
    ),
    key(
        "local.retention.ms",
        Long,
        "-2",
        AtLeast(-2),
        "time kept on local disks of a tiered topic",
    ),
    key(
        "max.compaction.lag.ms",
        Long,
        MAX,
        AtLeast(1),
        "longest time before a record is compacted",
    ),
    key("max.message.bytes", Int, "1048588", AtLeast(0), "largest record batch, in bytes"),
    key(
        "message.timestamp.after.max.ms",
        Long,
        "3600000",
        AtLeast(0),
        "how far a record's timestamp may be ahead of the server's clock",
    ),
    key(
        "message.timestamp.before.max.ms",
        Long,
        MAX,
        AtLeast(0),
        "how far a record's timestamp may be behind the server's clock",
    ),
    key(
        "message.timestamp.type",
        Text,
        "CreateTime",
        OneOf(&["CreateTime", "LogAppendTime"]),
        "whose clock stamps records",
    ),
    key(
        "min.cleanable.dirty.ratio",
        Double,
        "0.5",
        Fraction,
        "share of uncompacted bytes that starts compaction",
    ),
    key(
        "min.compaction.lag.ms",
        Long,
        "0",
        AtLeast(0),
        "shortest time before a record is compacted",
    ),
    key(
        "min.insync.replicas",
        Int,
        "1",
        AtLeast(1),
        "replicas an acknowledgement of acks=all waits for",
    ),
    key(
        "preallocate",
        Boolean,
        "false",
        BOOL,
        "whether files are preallocated; the journal always does",
    ),
    key("remote.log.copy.disable", Boolean, "false", BOOL, "stops tiering of a tiered topic"),
    key(
        "remote.log.delete.on.disable",
        Boolean,
        "false",
        BOOL,
        "whether ending tiering deletes tiered data",
    ),
    key(
        "remote.storage.enable",
        Boolean,
        "false",
        BOOL,
        "whether the topic is tiered; see thetis.profile",
    ),
    key(
        "retention.bytes",
        Long,
        "-1",
        AtLeast(-1),
        "bytes kept of each partition; -1 for no limit",
    ),
    key("retention.ms", Long, "604800000", AtLeast(-1), "time records are kept; -1 for ever"),
    key(
        "segment.bytes",
        Int,
        "1073741824",
        AtLeast(14),
        "size of a Kafka segment; the journal has its own",
    ),
    key("segment.index.bytes", Int, "10485760", AtLeast(4), "size of a Kafka index"),
    key("segment.jitter.ms", Long, "0", AtLeast(0), "random spread of segment.ms"),
    key(
        "segment.ms",
        Long,
        "604800000",
        AtLeast(1),
        "age of a Kafka segment; the journal has its own",
    ),
    key(
        DURABILITY,
        Text,
        "",
        OneOf(&["", "disk", "os", "memory"]),
        "what an acknowledged record survives: disk (loss of power), os (end of the process), memory (nothing); empty takes the server's default",
    ),
    key(
        "thetis.profile",
        Text,
        "WAL_ONLY",
        OneOf(&["WAL_ONLY"]),
        "where bytes live and when producers are answered",
    ),
    key(
        "unclean.leader.election.enable",
        Boolean,
        "false",
        BOOL,
        "whether a replica that lags may lead",
    ),
];

impl ConfigKey {
    /// The key of this name.
    #[must_use]
    pub fn find(name: &str) -> Option<&'static ConfigKey> {
        KEYS.iter().find(|key| key.name == name)
    }

    /// Whether `value` suits the key.
    ///
    /// # Errors
    /// Why not.
    pub fn check(&self, value: &str) -> Result<(), CatalogError> {
        self.fault(value).map_or(Ok(()), |fault| {
            Err(CatalogError::ConfigValue { key: self.name, value: value.into(), fault })
        })
    }

    fn fault(&self, value: &str) -> Option<String> {
        let number = match self.kind {
            ConfigType::Int => match value.parse::<i32>() {
                Ok(number) => i64::from(number),
                Err(_) => return Some("expected a 32-bit number".into()),
            },
            ConfigType::Long => match value.parse::<i64>() {
                Ok(number) => number,
                Err(_) => return Some("expected a 64-bit number".into()),
            },
            ConfigType::Double => match value.parse::<f64>() {
                Ok(number)
                    if matches!(self.allowed, Fraction) && !(0.0..=1.0).contains(&number) =>
                {
                    return Some("expected a number from 0 to 1".into());
                }
                Ok(_) => 0,
                Err(_) => return Some("expected a decimal number".into()),
            },
            ConfigType::Boolean | ConfigType::String | ConfigType::List => 0,
        };
        match self.allowed {
            AtLeast(least) if number < least => Some(format!("expected at least {least}")),
            OneOf(words) if !words.contains(&value) => {
                let named: Vec<_> = words.iter().filter(|word| !word.is_empty()).copied().collect();
                Some(format!("expected one of {}", named.join(", ")))
            }
            SomeOf(words) if !value.split(',').all(|part| words.contains(&part.trim())) => {
                Some(format!("expected some of {}", words.join(", ")))
            }
            _ => None,
        }
    }
}

/// What a topic that does not set a key takes instead of the table's default: the server's own
/// configuration. Checked once, shared by all topics.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Defaults(Arc<BTreeMap<String, String>>);

impl Defaults {
    /// Checks the server's defaults.
    ///
    /// # Errors
    /// An unknown key, with the nearest known one, or a value that does not suit its key.
    pub fn new(values: BTreeMap<String, String>) -> Result<Defaults, CatalogError> {
        check_all(&values)?;
        Ok(Defaults(Arc::new(values)))
    }

    /// The default of a key, and whether it is the server's own.
    #[must_use]
    pub fn get(&self, key: &ConfigKey) -> (&str, bool) {
        self.0.get(key.name).map_or((key.default, false), |value| (value.as_str(), true))
    }
}

fn check_all(values: &BTreeMap<String, String>) -> Result<(), CatalogError> {
    for (name, value) in values {
        let key = ConfigKey::find(name).ok_or_else(|| CatalogError::UnknownConfig {
            key: name.clone(),
            nearest: nearest(name, KEYS.iter().map(|key| key.name)),
        })?;
        key.check(value)?;
    }
    Ok(())
}

/// The configuration of a topic, defaults filled in.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Configs {
    set: BTreeMap<String, String>,
    defaults: Defaults,
}

impl Configs {
    /// Checks `set`, the values that differ from the defaults.
    ///
    /// # Errors
    /// An unknown key, with the nearest known one, or a value that does not suit its key.
    pub fn parse(
        set: &BTreeMap<String, String>,
        defaults: &Defaults,
    ) -> Result<Configs, CatalogError> {
        check_all(set)?;
        Ok(Configs { set: set.clone(), defaults: defaults.clone() })
    }

    /// What the topic takes where it sets nothing.
    #[must_use]
    pub fn defaults(&self) -> &Defaults {
        &self.defaults
    }

    /// The values that differ from the defaults.
    #[must_use]
    pub fn set(&self) -> &BTreeMap<String, String> {
        &self.set
    }

    /// The value of a known key.
    ///
    /// # Panics
    /// For a key that is not in [`KEYS`].
    #[must_use]
    pub fn get(&self, name: &'static str) -> &str {
        let default = || self.defaults.get(ConfigKey::find(name).expect("a key of the table")).0;
        self.set.get(name).map_or_else(default, String::as_str)
    }

    /// The number of a known numeric key.
    ///
    /// # Panics
    /// For a key that is not numeric.
    #[must_use]
    pub fn number(&self, name: &'static str) -> i64 {
        self.get(name).parse().expect("numbers were checked when they were set")
    }

    /// The topic's own durability, if it chose one.
    #[must_use]
    pub fn durability(&self) -> Option<Durability> {
        self.get(DURABILITY).parse().ok()
    }

    /// The topic's profile.
    #[must_use]
    pub fn profile(&self) -> Profile {
        self.get("thetis.profile").parse().expect("checked when it was set")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(name: &str, value: &str) -> Result<Configs, CatalogError> {
        Configs::parse(&[(name.to_string(), value.to_string())].into(), &Defaults::default())
    }

    #[test]
    fn defaults_suit_their_keys_and_the_table_is_in_order() {
        for key in KEYS {
            key.check(key.default).unwrap();
        }
        assert!(KEYS.is_sorted_by_key(|key| key.name));
    }

    #[test]
    fn values_are_checked_by_type_and_range() {
        assert_eq!(parse("retention.ms", "-1").unwrap().number("retention.ms"), -1);
        assert_eq!(parse("thetis.durability", "os").unwrap().durability(), Some(Durability::Os));
        assert_eq!(Configs::default().durability(), None);
        for (name, value) in [
            ("retention.ms", "-2"),
            ("retention.ms", "soon"),
            ("max.message.bytes", "3000000000"),
            ("cleanup.policy", "compact,keep"),
            ("min.cleanable.dirty.ratio", "2"),
            ("thetis.durability", "tape"),
            ("max.compaction.lag.ms", "0"),
        ] {
            let error = parse(name, value).unwrap_err().to_string();
            assert!(error.contains(name) && error.contains(value), "{error}");
        }
    }

    #[test]
    fn the_server_has_its_own_defaults() {
        let own = [("retention.ms".to_string(), "5".to_string())].into();
        let defaults = Defaults::new(own).unwrap();
        let unset = Configs::parse(&BTreeMap::new(), &defaults).unwrap();
        assert_eq!(unset.number("retention.ms"), 5);
        let set = [("retention.ms".to_string(), "7".to_string())].into();
        assert_eq!(Configs::parse(&set, &defaults).unwrap().number("retention.ms"), 7);
        assert!(Defaults::new([("retention.ms".to_string(), "x".to_string())].into()).is_err());
    }

    #[test]
    fn an_unknown_key_names_the_nearest() {
        let error = parse("retention.mss", "1").unwrap_err().to_string();
        assert!(error.contains("did you mean \"retention.ms\""), "{error}");
    }
}

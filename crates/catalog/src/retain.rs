//! Retention: how far each stream may be trimmed by its topic's age and size limits.
//!
//! Decides from frame headers alone and only ever moves a trim offset. Every entry that goes was
//! looked at: there is no bound that could be missing. What cannot be judged stays: an entry
//! without a timestamp ends the cut by time.

use thetis_stream::Stream;
use thetis_types::Offset;

use crate::config::{Configs, RETENTION_BYTES, RETENTION_MS};
use crate::{Catalog, CatalogError};

/// Entries judged at a time.
const PAGE_ENTRIES: usize = 1_024;

/// Entries judged in one stream by one call; the next call goes on.
const STREAM_ENTRIES_MAX: usize = 256 * PAGE_ENTRIES;

/// What an entry must exceed to stay.
#[derive(Clone, Copy, Debug)]
struct Limits {
    /// Entries whose largest timestamp is below this go.
    keep_from_ms: Option<i64>,
    /// Entries go while at least this many bytes remain after them.
    keep_bytes: Option<u64>,
}

impl Limits {
    fn of(configs: &Configs, now_ms: i64) -> Option<Limits> {
        let deletes = configs.get("cleanup.policy").split(',').any(|p| p.trim() == "delete");
        let age_ms = configs.number(RETENTION_MS);
        let limits = Limits {
            keep_from_ms: (age_ms >= 0).then(|| now_ms.saturating_sub(age_ms)),
            keep_bytes: u64::try_from(configs.number(RETENTION_BYTES)).ok(),
        };
        let limited = limits.keep_from_ms.is_some() || limits.keep_bytes.is_some();
        (deletes && limited).then_some(limits)
    }

    /// Whether an entry goes, with `bytes_after` bytes remaining without it.
    fn lets_go(&self, max_timestamp: i64, bytes_after: u64) -> bool {
        let is_old = max_timestamp >= 0 && self.keep_from_ms.is_some_and(|ms| max_timestamp < ms);
        is_old || self.keep_bytes.is_some_and(|keep| bytes_after >= keep)
    }
}

impl Catalog {
    /// Trims every stream that is past its topic's limits; returns how many were. Failures are
    /// logged and left for the next call.
    pub fn retain(&self) -> usize {
        self.retain_where(|_| true)
    }

    /// [`Catalog::retain`] for the topics that set limits of their own; those that take the
    /// defaults keep everything.
    pub fn retain_chosen(&self) -> usize {
        let chooses = |key: &str| key == RETENTION_MS || key == RETENTION_BYTES;
        self.retain_where(|configs| configs.set().keys().any(|key| chooses(key)))
    }

    fn retain_where(&self, applies: impl Fn(&Configs) -> bool) -> usize {
        let now_ms = self.store().clock().wall_ms();
        let mut trimmed = 0;
        for topic in self.list().into_iter().filter(|topic| applies(topic.configs())) {
            let Some(limits) = Limits::of(topic.configs(), now_ms) else { continue };
            for stream in &topic.partitions {
                match retain(stream, limits) {
                    Ok(cut) => trimmed += usize::from(cut),
                    Err(error) => {
                        tracing::warn!(topic = topic.name, stream = %stream.id(), %error, "not trimmed by retention");
                    }
                }
            }
        }
        trimmed
    }
}

fn retain(stream: &Stream, limits: Limits) -> Result<bool, CatalogError> {
    let start = stream.trim_offset();
    let end = stream.committed_end();
    if start >= end {
        return Ok(false);
    }
    let mut bytes = match limits.keep_bytes {
        Some(_) => stream.readable_bytes().map_err(thetis_stream::StreamError::from)?,
        None => 0,
    };
    let mut cut = start;
    let mut judged = 0;
    'judging: while cut < end && judged < STREAM_ENTRIES_MAX {
        let page = stream.headers(cut, PAGE_ENTRIES).map_err(thetis_stream::StreamError::from)?;
        if page.is_empty() {
            break;
        }
        for header in page {
            let after: Offset = header.base_offset.plus(u64::from(header.record_count));
            bytes = bytes.saturating_sub(u64::from(header.payload_bytes));
            judged += 1;
            if after > end || !limits.lets_go(header.max_timestamp, bytes) {
                break 'judging;
            }
            cut = after;
        }
    }
    if cut == start {
        return Ok(false);
    }
    stream.trim(cut)?;
    Ok(true)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_cannot_be_judged_stays() {
        let by_age = Limits { keep_from_ms: Some(1_000), keep_bytes: None };
        assert!(by_age.lets_go(999, 0));
        assert!(!by_age.lets_go(1_000, 0));
        assert!(!by_age.lets_go(-1, 0), "no timestamp");
        assert!(!by_age.lets_go(i64::MAX, 0), "stamped in the future");
        assert!(by_age.lets_go(0, 0), "1970");
        let by_size = Limits { keep_from_ms: None, keep_bytes: Some(10) };
        assert!(by_size.lets_go(-1, 10));
        assert!(!by_size.lets_go(-1, 9));
    }

    #[test]
    fn a_clock_before_1970_and_an_endless_age_keep_everything() {
        let configs = |ms: &str| {
            let set = [("retention.ms".to_string(), ms.to_string())].into();
            Configs::parse(&set, &crate::Defaults::default()).unwrap()
        };
        assert!(Limits::of(&configs("-1"), 5).is_none());
        let early = Limits::of(&configs("604800000"), -5).unwrap();
        assert!(!early.lets_go(0, 0));
        let longest = Limits::of(&configs("9223372036854775807"), i64::MIN).unwrap();
        assert!(!longest.lets_go(0, 0));
    }
}

//! What this front keeps beside a partition's stream: the state of its idempotent producers.

use std::time::Duration;

use std::sync::Arc;
use thetis_meta::{MetaError, MetaStore};
use thetis_stream::{Append, AppendError, Appending, Stream};
use thetis_types::Entry;

use crate::records::BatchHeader;

pub(crate) struct Partition {
    stream: Stream,
}

pub(crate) enum Placed {
    New(Appending),
    Duplicate { base_offset: i64, timestamp_ms: i64 },
}

#[derive(Debug, thiserror::Error)]
pub(crate) enum Refused {
    #[error("sequence refused with code {0}")]
    Sequence(i16),
    #[error(transparent)]
    Append(#[from] AppendError),
    #[error("{0}")]
    State(String),
}

impl Partition {
    pub(crate) fn new(stream: Stream, _expiration: Duration) -> Partition {
        Partition { stream }
    }
    pub(crate) fn append(
        &self,
        _header: &BatchHeader,
        entry: Entry,
        _now: i64,
        _meta: &Arc<dyn MetaStore>,
    ) -> Result<Placed, Refused> {
        let mut appending = self.stream.append(&Append::of(entry))?;
        appending.start();
        Ok(Placed::New(appending))
    }
    pub(crate) fn forget(&self) {}
    pub(crate) fn snapshot(&self, _meta: &Arc<dyn MetaStore>) -> Result<(), MetaError> {
        Ok(())
    }
}

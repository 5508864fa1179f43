//! One topic: its stream, and the one reader that is the engine's cursor. Owns when that reader is
//! made: with the first read, so that a topic which is only written costs no more than its stream.

use parking_lot::Mutex;

use super::settings::ReadConsistency;
use crate::error::Error;
use crate::readers::Reader;
use crate::stream::Stream;

/// The name of the reader that is the topic's cursor.
const CURSOR: &str = "walrus";

/// A topic.
pub(crate) struct Topic {
    pub(crate) stream: Stream,
    reader: Mutex<Option<Reader>>,
}

impl Topic {
    pub(crate) fn new(stream: Stream) -> Topic {
        Topic { stream, reader: Mutex::new(None) }
    }

    /// The cursor. What it has durably passed is trimmed.
    pub(crate) fn reader(&self, consistency: ReadConsistency) -> Result<Reader, Error> {
        let mut slot = self.reader.lock();
        if let Some(reader) = &*slot {
            return Ok(reader.clone());
        }
        let reader = self.stream.reader_with(CURSOR, consistency.saves())?;
        self.stream.trim_when_read(true)?;
        Ok(slot.insert(reader).clone())
    }

    /// Entries not consumed; all of them while there is no cursor.
    pub(crate) fn unread(&self) -> u64 {
        let reader = self.stream.readers().into_iter().find(|reader| reader.name == CURSOR);
        match reader {
            Some(reader) => reader.unread,
            None => self.stream.end().since(self.stream.start()),
        }
    }
}

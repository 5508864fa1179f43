//! Marks on topics, for programs that snapshot what a topic led to and then call it clean.
//!
//! A clean mark names the head it was set at, so an append makes the topic dirty without writing
//! anything. The epoch is part of it: records lost with the power, and others in their place, do
//! not look like what was called clean.

use thetis_meta::Write;

use super::topic::Topic;
use super::{Walrus, to_io};
use crate::error::Error;
use crate::readers::record::{Mark, decode_mark, encode_mark, mark_key};
use crate::readers::write;

impl Walrus {
    /// Says that something of the topic is to be done. Creates the topic. Durable when it returns
    /// (later there); if it cannot be written, the topic stays as it was.
    pub fn mark_topic_dirty(&self, topic: &str) {
        // The engine's call has no answer.
        let _ = self.made(topic).and_then(|topic| self.mark(&topic, Mark::Dirty).map_err(to_io));
    }

    /// Says that nothing of the topic is to be done, until the next append. Durable when it
    /// returns; if it cannot be written, the topic stays as it was. Does nothing for a topic that
    /// does not exist: such are clean.
    pub fn mark_topic_clean(&self, topic: &str) {
        if let Ok(Some(topic)) = self.found(topic) {
            let head = topic.stream.inner().head();
            // The engine's call has no answer.
            let _ = self.mark(&topic, Mark::Clean(head.version, head.epoch));
        }
    }

    /// Whether the topic was called clean, or made, and nothing was appended since. A topic that
    /// does not exist is clean; one whose mark cannot be read is not.
    #[must_use]
    pub fn topic_is_clean(&self, topic: &str) -> bool {
        match self.found(topic) {
            Ok(None) => true,
            Ok(Some(topic)) => self.is_clean(&topic).unwrap_or(false),
            Err(_) => false,
        }
    }

    fn mark(&self, topic: &Topic, mark: Mark) -> Result<(), Error> {
        let key = mark_key(topic.stream.inner().id());
        Ok(write(self.thetis.catalog().store(), Write::put(key, encode_mark(mark)))?)
    }

    fn is_clean(&self, topic: &Topic) -> Result<bool, Error> {
        let head = topic.stream.inner().head();
        let key = mark_key(topic.stream.inner().id());
        match self.thetis.catalog().store().meta().get(&key)? {
            None => Ok(head.version.0 == 0),
            Some(stored) => Ok(match decode_mark(&key, &stored.value)? {
                Mark::Clean(version, epoch) => head.version == version && head.epoch == epoch,
                Mark::Dirty => false,
            }),
        }
    }
}

//! The bytes that benches write, and the check that what is read is what was written. A record says
//! which writer wrote it and as which of its records; the rest is noise that belongs to the writer.

use anyhow::{Result, bail};

/// Bytes of a record before the noise: the writer and the number, u64 each, little-endian.
const STAMP_BYTES: usize = 16;

/// The records of one writer, made one after the other in one buffer.
pub struct Source {
    record: Vec<u8>,
    next: u64,
}

impl Source {
    /// Records of `bytes` bytes, at least a stamp's.
    #[must_use]
    pub fn new(writer: usize, bytes: usize) -> Source {
        let mut record = Vec::with_capacity(bytes.max(STAMP_BYTES));
        record.extend_from_slice(&(writer as u64).to_le_bytes());
        record.extend_from_slice(&0_u64.to_le_bytes());
        // Noise, so that nothing on the way profits from zeros.
        let mut state = (writer as u64).wrapping_add(1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        while record.len() < bytes {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            let noise = state.to_le_bytes();
            record.extend_from_slice(&noise[..noise.len().min(bytes - record.len())]);
        }
        Source { record, next: 0 }
    }

    /// The next record.
    pub fn next_record(&mut self) -> &[u8] {
        self.record[8..STAMP_BYTES].copy_from_slice(&self.next.to_le_bytes());
        self.next += 1;
        &self.record
    }

    /// Records made so far.
    #[must_use]
    pub fn count(&self) -> u64 {
        self.next
    }
}

/// Holds records that are read against what their writers made: byte for byte, each writer's in
/// order, none missing and none twice.
pub struct Check {
    sources: Vec<Source>,
    bytes: u64,
}

impl Check {
    /// For the records of `writers` writers.
    #[must_use]
    pub fn new(writers: usize, bytes: usize) -> Check {
        Check { sources: (0..writers).map(|writer| Source::new(writer, bytes)).collect(), bytes: 0 }
    }

    /// The first `count` records of a writer are not to be read: they are given back already.
    pub fn skip(&mut self, writer: usize, count: u64) {
        self.sources[writer].next = count;
    }

    /// Takes the next record that was read.
    ///
    /// # Errors
    /// It is not what its writer wrote next.
    pub fn see(&mut self, record: &[u8]) -> Result<()> {
        let stamp = record.first_chunk::<8>().copied().unwrap_or([0xff; 8]);
        let writer = usize::try_from(u64::from_le_bytes(stamp)).unwrap_or(usize::MAX);
        let Some(source) = self.sources.get_mut(writer) else {
            bail!("a record of {} bytes that nobody wrote", record.len());
        };
        let number = source.count();
        if source.next_record() != record {
            bail!("record {number} of writer {writer} is not what was written");
        }
        self.bytes += record.len() as u64;
        Ok(())
    }

    /// Bytes of all records seen.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Confirms that everything came: `written[w]` records of writer `w`.
    ///
    /// # Errors
    /// Something is missing.
    pub fn finish(&self, written: &[u64]) -> Result<()> {
        for (writer, (source, written)) in self.sources.iter().zip(written).enumerate() {
            if source.count() != *written {
                let read = source.count();
                bail!("writer {writer} wrote {written} records, {read} were read");
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_written_passes() {
        let mut check = Check::new(2, 100);
        let mut sources = [Source::new(0, 100), Source::new(1, 100)];
        for writer in [0, 1, 1, 0, 1] {
            check.see(sources[writer].next_record()).unwrap();
        }
        check.finish(&[2, 3]).unwrap();
        assert_eq!(check.bytes(), 500);
    }

    #[test]
    fn what_was_given_back_need_not_come() {
        let mut source = Source::new(0, 64);
        source.next_record();
        let second = source.next_record().to_vec();
        let mut check = Check::new(1, 64);
        check.skip(0, 1);
        check.see(&second).unwrap();
        check.finish(&[2]).unwrap();
    }

    #[test]
    fn loss_repetition_damage_and_strangers_are_found() {
        let mut source = Source::new(0, 64);
        let first = source.next_record().to_vec();
        let second = source.next_record().to_vec();
        assert!(Check::new(1, 64).see(&second).is_err(), "the first is missing");
        let mut check = Check::new(1, 64);
        check.see(&first).unwrap();
        assert!(check.see(&first).is_err(), "twice");
        let mut damaged = first.clone();
        damaged[63] ^= 1;
        assert!(Check::new(1, 64).see(&damaged).is_err());
        assert!(Check::new(1, 64).see(&first[..63]).is_err());
        assert!(Check::new(0, 64).see(&first).is_err());
        let mut check = Check::new(1, 64);
        check.see(&first).unwrap();
        assert!(check.finish(&[2]).is_err(), "the last is missing");
    }
}

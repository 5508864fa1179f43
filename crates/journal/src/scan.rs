//! Reading a file frame by frame, from the first to the end, over whatever flaws lie between.
//!
//! Says what is there. What a flaw means is `recover`'s and `verify`'s to decide.

use std::io;

use crate::disk::File;
use crate::format::file::FRAMES_AT;
use crate::format::footer;
use crate::format::frame::{self, FrameHeader, HEADER, Salt, frame_at};
use crate::format::{BLOCK, Flaw, all_zero, block_ceil, mem, u32_at};

/// Bytes read at once.
const WINDOW: u64 = 1 << 20;
/// Bad payloads looked at bit by bit in one file; it takes milliseconds for each megabyte.
const ONE_BIT_LOOKS_MAX: usize = 16;

/// A range of a file that is no frame but should be one.
#[derive(Clone, Debug)]
pub(crate) struct ScanFlaw {
    pub(crate) at: u64,
    pub(crate) bytes: u64,
    pub(crate) why: &'static str,
    /// The frame's header, when it is known although something in the frame is bad.
    pub(crate) header: Option<FrameHeader>,
    /// Exactly one bit is wrong: rot, not a torn write.
    pub(crate) one_bit: bool,
}

/// What is in a file.
#[derive(Debug, Default)]
pub(crate) struct Scan {
    /// Good frames, in order: the byte where each begins, and its header.
    pub(crate) frames: Vec<(u64, FrameHeader)>,
    pub(crate) flaws: Vec<ScanFlaw>,
    /// Byte after the last good frame.
    pub(crate) end: u64,
    /// Where a footer's head stands and how long it says the footer is.
    pub(crate) footer: Option<(u64, u64)>,
    /// Bytes from the last frame up to the last one that is not zero, footer excepted.
    pub(crate) tail: u64,
    /// Bytes of the file.
    pub(crate) bytes: u64,
}

/// Why a scan stopped.
#[derive(Debug)]
pub(crate) enum ScanError {
    Io(io::Error),
    Unsupported(Flaw),
}

impl From<io::Error> for ScanError {
    fn from(error: io::Error) -> ScanError {
        ScanError::Io(error)
    }
}

/// A sliding view of a file.
struct Window<'a> {
    file: &'a dyn File,
    len: u64,
    start: u64,
    bytes: Vec<u8>,
}

impl Window<'_> {
    /// `bytes` bytes from `at`; `None` when the file ends before. The length is checked against
    /// the file before memory is taken for it.
    fn get(&mut self, at: u64, bytes: u64) -> io::Result<Option<&[u8]>> {
        let Some(end) = at.checked_add(bytes).filter(|end| *end <= self.len) else {
            return Ok(None);
        };
        let held = self.start..self.start + self.bytes.len() as u64;
        if at < held.start || end > held.end {
            let want = bytes.max(WINDOW).min(self.len - at);
            self.bytes.resize(mem(want), 0);
            self.start = at;
            self.file.read_at(&mut self.bytes, at)?;
        }
        let from = mem(at - self.start);
        Ok(Some(&self.bytes[from..from + mem(bytes)]))
    }
}

/// Scans frames of the file with id `id` up to its end, or up to `until` when that is known.
pub(crate) fn scan(file: &dyn File, id: u64, until: Option<u64>) -> Result<Scan, ScanError> {
    let bytes = file.len()?;
    let mut scanner = Scanner {
        window: Window {
            file,
            len: until.map_or(bytes, |until| until.min(bytes)),
            start: 0,
            bytes: Vec::new(),
        },
        id,
        scan: Scan { end: FRAMES_AT, bytes, ..Scan::default() },
        looks: ONE_BIT_LOOKS_MAX,
        searched: Searched::default(),
    };
    let mut from = FRAMES_AT;
    while let Some(next) = scanner.step(from)? {
        from = next;
    }
    Ok(scanner.scan)
}

struct Scanner<'a> {
    window: Window<'a>,
    id: u64,
    scan: Scan,
    looks: usize,
    searched: Searched,
}

/// What a search for the next frame went through, so that the end of a file, mostly zeros, is read
/// once.
#[derive(Default)]
struct Searched {
    from: u64,
    until: u64,
    /// Last byte in between that is not zero.
    last: Option<u64>,
}

impl Scanner<'_> {
    fn salt(&self, at: u64) -> Salt {
        Salt { file: self.id, at }
    }

    /// Takes in what stands at `from`, the end of the frame before; returns where it ends.
    fn step(&mut self, from: u64) -> Result<Option<u64>, ScanError> {
        let at = frame_at(from);
        let salt = self.salt(at);
        let Some(bytes) = self.window.get(at, HEADER as u64)? else {
            return self.finish(from, at);
        };
        let header = match FrameHeader::decode(bytes, salt) {
            Ok(header) => header,
            Err(flaw @ Flaw::Unsupported { .. }) => return Err(ScanError::Unsupported(flaw)),
            Err(_) => {
                let almost = FrameHeader::decode_one_bit_off(bytes, salt);
                return match almost.filter(|header| self.fits(at, header)) {
                    Some(header) => {
                        let (bytes, header) = (header.bytes(), Some(header));
                        let why = "one bit of a frame header is flipped";
                        self.scan.flaws.push(ScanFlaw { at, bytes, why, header, one_bit: true });
                        Ok(Some(at + bytes))
                    }
                    None => self.resync(from, at),
                };
            }
        };
        let filler_good = match self.window.get(from, at - from)? {
            Some(filler) => all_zero(filler),
            None => true,
        };
        if !filler_good {
            self.flaw(from, at - from, "bytes between frames are not zero", None);
        }
        let payload = u64::from(header.payload_bytes);
        let total = header.bytes();
        let looks = self.looks;
        let Some(body) = self.window.get(at + HEADER as u64, total - HEADER as u64)? else {
            let rest = self.window.len - at;
            self.flaw(at, rest, "the file ends within a frame", Some(header));
            return self.finish_flawed(at);
        };
        let (payload, padding) = body.split_at(mem(payload));
        if crc32c::crc32c(payload) != header.payload_crc {
            let one_bit = looks > 0 && frame::one_bit_off(payload, header.payload_crc);
            self.looks = looks.saturating_sub(1);
            let why = "payload checksum differs";
            let flaw = ScanFlaw { at, bytes: total, why, header: Some(header), one_bit };
            self.scan.flaws.push(flaw);
            return Ok(Some(at + total));
        }
        let padding_good = all_zero(padding);
        self.scan.frames.push((at, header));
        self.scan.end = at + total;
        if !padding_good {
            let padding = u64::from(header.payload_bytes).next_multiple_of(8)
                - u64::from(header.payload_bytes);
            self.flaw(at + total - padding, padding, "bytes behind a payload are not zero", None);
        }
        Ok(Some(at + total))
    }

    fn fits(&self, at: u64, header: &FrameHeader) -> bool {
        header.bytes() <= self.window.len - at
    }

    fn flaw(&mut self, at: u64, bytes: u64, why: &'static str, header: Option<FrameHeader>) {
        self.scan.flaws.push(ScanFlaw { at, bytes, why, header, one_bit: false });
    }

    /// No frame stands at `at`: looks for a footer, then for the next frame behind.
    fn resync(&mut self, from: u64, at: u64) -> Result<Option<u64>, ScanError> {
        if self.find_footer(from)? {
            return Ok(None);
        }
        let mut probe = at + 8;
        self.searched = Searched { from: probe, until: probe, last: None };
        while let Some(found) = self.next_magic(probe)? {
            let salt = self.salt(found);
            let good = match self.window.get(found, HEADER as u64)? {
                Some(bytes) => FrameHeader::decode(bytes, salt).is_ok(),
                None => false,
            };
            if good {
                self.flaw(at, found - at, "no frame where one should begin", None);
                return Ok(Some(found));
            }
            probe = found + 8;
        }
        self.finish(from, at)
    }

    fn find_footer(&mut self, from: u64) -> io::Result<bool> {
        let at = block_ceil(from);
        let id = self.id;
        let footer = match self.window.get(at, footer::HEAD as u64)? {
            Some(head) => footer::decode_head(head, id),
            None => None,
        };
        let Some(bytes) = footer else { return Ok(false) };
        self.scan.footer = Some((at, bytes));
        let gap_good = self.window.get(from, at - from)?.is_none_or(all_zero);
        if !gap_good {
            self.flaw(from, at - from, "bytes before the footer are not zero", None);
        }
        Ok(true)
    }

    /// The next place from `at` on where a frame's magic stands.
    fn next_magic(&mut self, mut at: u64) -> io::Result<Option<u64>> {
        const STEP: u64 = 64 << 10;
        let magic = frame::MAGIC;
        loop {
            let left = self.window.len.saturating_sub(at);
            let now = left.min(STEP) / 8 * 8;
            if now == 0 {
                return Ok(None);
            }
            let Some(bytes) = self.window.get(at, now)? else { return Ok(None) };
            let (mut place, mut last) = (None, None);
            if !all_zero(bytes) {
                place = bytes.chunks_exact(8).position(|word| u32_at(word, 0) == magic);
                last = bytes.iter().rposition(|byte| *byte != 0);
            }
            if let Some(place) = place {
                let found = at + place as u64 * 8;
                self.searched.until = found + 8;
                // The magic itself; what follows it is searched next.
                self.searched.last = Some(found + 3);
                return Ok(Some(found));
            }
            self.searched.last = last.map(|last| at + last as u64).or(self.searched.last);
            at += now;
            self.searched.until = at;
        }
    }

    /// Ends the scan: nothing behind `from` is a frame.
    fn finish(&mut self, from: u64, at: u64) -> Result<Option<u64>, ScanError> {
        let Searched { from: searched, until, last } = std::mem::take(&mut self.searched);
        let len = self.window.len;
        let last = if searched < at {
            self.last_nonzero(from, len)?
        } else {
            let behind = self.last_nonzero(until, len)?;
            let before = self.last_nonzero(from, searched)?;
            behind.or(last).or(before)
        };
        if let Some(last) = last {
            self.scan.tail = last + 1 - from;
            let at = at.min(last);
            self.flaw(at, last + 1 - at, "no frame where one should begin", None);
        }
        Ok(None)
    }

    /// The last byte within `[from, until)` that is not zero.
    fn last_nonzero(&mut self, from: u64, until: u64) -> io::Result<Option<u64>> {
        let mut last = None;
        let mut place = from;
        while place < until {
            let now = (until - place).min(WINDOW);
            let Some(bytes) = self.window.get(place, now)? else { break };
            if !all_zero(bytes) {
                let at = bytes.iter().rposition(|byte| *byte != 0);
                last = at.map(|at| place + at as u64).or(last);
            }
            place += now;
        }
        Ok(last)
    }

    fn finish_flawed(&mut self, at: u64) -> Result<Option<u64>, ScanError> {
        self.scan.tail = self.window.len - at;
        Ok(None)
    }
}

impl Scan {
    /// Journal position that frames behind byte `at` prove durable.
    pub(crate) fn durable_behind(&self, at: u64) -> u64 {
        let behind = self.frames.iter().rev().take_while(|(frame, _)| *frame > at);
        behind.map(|(_, header)| header.durable).max().unwrap_or(0)
    }

    /// What the first frame says about the file before: its sequence and where its frames end.
    pub(crate) fn follows(&self) -> Option<(u64, u64)> {
        let (_, first) = self.frames.first()?;
        (first.kind == frame::Kind::Follows).then_some((first.version.0, first.stream_bytes))
    }
}

const _: () = assert!(WINDOW.is_multiple_of(BLOCK));

#[cfg(test)]
mod tests {
    use super::*;
    use crate::disk::{Disk, Promise};
    use crate::sim::SimDisk;

    /// Wherever the last garbage byte stands, and whether a magic stands before it or not: the
    /// flaw reaches from the end of the frames to that byte, and not further.
    #[test]
    fn garbage_is_measured_to_its_last_byte() {
        let len = 300 << 10;
        let start = FRAMES_AT;
        for last in [start, start + 7, start + 9, 70_000, 200_001, len - 9, len - 1] {
            for magic in [None, Some(start + 64), Some(start + 120_000)] {
                let disk = SimDisk::new(1);
                let file = disk.create("f", len).unwrap();
                let write = |bytes: &[u8], at| {
                    file.write_at(&[io::IoSlice::new(bytes)], at, Promise::Handed).unwrap();
                };
                write(&[1], last);
                let magic = magic.filter(|at| at + 4 < last);
                if let Some(at) = magic {
                    write(&frame::MAGIC.to_le_bytes(), at);
                }
                let scan = scan(&*file, 1, None).unwrap();
                assert_eq!(scan.tail, last + 1 - start, "{last} {magic:?}");
                let [flaw] = &scan.flaws[..] else { panic!("{:?}", scan.flaws) };
                assert_eq!((flaw.at, flaw.bytes), (start, last + 1 - start));
            }
        }
    }
}

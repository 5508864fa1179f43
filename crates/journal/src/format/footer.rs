//! The footer of a sealed file: an index derived from its frames, never evidence about them.
//!
//! ```text
//! head | rows, run by run | runs | trims | fences | trailer (ends the file)
//! ```

use thetis_types::{Epoch, HeadVersion, Offset, StreamId};

use super::{Flaw, VERSION, mem, put, u16_at, u32_at, u64_at};

const HEAD_MAGIC: [u8; 8] = *b"ThFooter";
const TRAILER_MAGIC: [u8; 8] = *b"ThSealed";
pub(crate) const HEAD: usize = 32;
pub(crate) const ROW: usize = 32;
pub(crate) const RUN: usize = 96;
const TRIM: usize = 16;
const FENCE: usize = 16;
pub(crate) const TRAILER: usize = 96;

/// One entry of a run.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Row {
    pub(crate) base: Offset,
    /// Byte of the file where its frame begins.
    pub(crate) at: u64,
    pub(crate) payload_bytes: u32,
    pub(crate) record_count: u32,
    pub(crate) max_timestamp: i64,
}

impl Row {
    pub(crate) fn end(&self) -> Offset {
        self.base.plus(u64::from(self.record_count))
    }

    fn encode(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(&self.base.0.to_le_bytes());
        out.extend_from_slice(&self.at.to_le_bytes());
        out.extend_from_slice(&self.payload_bytes.to_le_bytes());
        out.extend_from_slice(&self.record_count.to_le_bytes());
        out.extend_from_slice(&self.max_timestamp.to_le_bytes());
    }

    fn decode(bytes: &[u8]) -> Row {
        Row {
            base: Offset(u64_at(bytes, 0)),
            at: u64_at(bytes, 8),
            payload_bytes: u32_at(bytes, 16),
            record_count: u32_at(bytes, 20),
            max_timestamp: i64::from_le_bytes(bytes[24..32].try_into().expect("eight bytes")),
        }
    }

    /// Decodes the rows of one run.
    ///
    /// # Errors
    /// `Corrupt` when the checksum differs or the rows are not dense from `run.first` to `run.end`.
    pub(crate) fn decode_all(bytes: &[u8], run: &RunRecord) -> Result<Vec<Row>, Flaw> {
        if bytes.len() as u64 != u64::from(run.rows) * ROW as u64 {
            return Err(Flaw::Corrupt { at: 0, why: "row count differs" });
        }
        if crc32c::crc32c(bytes) != run.rows_crc {
            return Err(Flaw::Corrupt { at: 0, why: "checksum of the rows differs" });
        }
        let rows: Vec<Row> = bytes.chunks_exact(ROW).map(Row::decode).collect();
        let mut next = run.first.0;
        for row in &rows {
            if row.base.0 != next || row.record_count == 0 {
                return Err(Flaw::Corrupt { at: 0, why: "rows of a run are not dense" });
            }
            next = next.saturating_add(u64::from(row.record_count));
        }
        if next != run.end.0 {
            return Err(Flaw::Corrupt { at: 0, why: "rows end elsewhere than their run" });
        }
        Ok(rows)
    }
}

/// A dense run of entries of one stream and one epoch within one file.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct RunRecord {
    pub(crate) stream: StreamId,
    pub(crate) first: Offset,
    pub(crate) end: Offset,
    pub(crate) epoch: Epoch,
    /// Entries; one row each.
    pub(crate) rows: u32,
    /// The head's version after the first entry; each further entry adds one.
    pub(crate) first_version: HeadVersion,
    /// Payload bytes of the stream before the first entry.
    pub(crate) bytes_before: u64,
    /// Payload bytes of the run.
    pub(crate) bytes: u64,
    pub(crate) max_timestamp: i64,
    /// Byte of the file where the rows begin.
    pub(crate) rows_at: u64,
    pub(crate) rows_crc: u32,
    /// The entries are relocated copies.
    pub(crate) relocated: bool,
}

impl RunRecord {
    fn encode(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(&self.stream.0.to_le_bytes());
        out.extend_from_slice(&self.first.0.to_le_bytes());
        out.extend_from_slice(&self.end.0.to_le_bytes());
        out.extend_from_slice(&self.epoch.0.to_le_bytes());
        out.extend_from_slice(&self.rows.to_le_bytes());
        out.extend_from_slice(&self.first_version.0.to_le_bytes());
        out.extend_from_slice(&self.bytes_before.to_le_bytes());
        out.extend_from_slice(&self.bytes.to_le_bytes());
        out.extend_from_slice(&self.max_timestamp.to_le_bytes());
        out.extend_from_slice(&self.rows_at.to_le_bytes());
        out.extend_from_slice(&self.rows_crc.to_le_bytes());
        out.extend_from_slice(&u32::from(self.relocated).to_le_bytes());
        out.extend_from_slice(&[0; 16]);
    }

    fn decode(bytes: &[u8]) -> RunRecord {
        RunRecord {
            stream: StreamId(u64_at(bytes, 0)),
            first: Offset(u64_at(bytes, 8)),
            end: Offset(u64_at(bytes, 16)),
            epoch: Epoch(u32_at(bytes, 24)),
            rows: u32_at(bytes, 28),
            first_version: HeadVersion(u64_at(bytes, 32)),
            bytes_before: u64_at(bytes, 40),
            bytes: u64_at(bytes, 48),
            max_timestamp: i64::from_le_bytes(bytes[56..64].try_into().expect("eight bytes")),
            rows_at: u64_at(bytes, 64),
            rows_crc: u32_at(bytes, 72),
            relocated: u32_at(bytes, 76) == 1,
        }
    }
}

/// A range of the file that recovery fenced off as damaged.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Fence {
    pub(crate) at: u64,
    pub(crate) bytes: u64,
}

/// Everything a footer says except the rows.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(crate) struct Footer {
    /// First byte after the last frame.
    pub(crate) data_end: u64,
    pub(crate) runs: Vec<RunRecord>,
    pub(crate) trims: Vec<(StreamId, Offset)>,
    pub(crate) fences: Vec<Fence>,
}

/// The trailer: enough to find and check the tables.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Trailer {
    pub(crate) footer_at: u64,
    pub(crate) data_end: u64,
    /// Where the tables (runs, trims, fences) begin; they end where the trailer begins.
    pub(crate) tables_at: u64,
    runs: u32,
    trims: u32,
    fences: u32,
    tables_crc: u32,
}

/// Lays a footer out for a file whose frames end at `footer.data_end`. `rows[i]` belongs to
/// `footer.runs[i]`, whose `rows_at` and `rows_crc` are filled in. Returns the footer's first byte
/// (on a block) and its bytes, which end the file.
pub(crate) fn encode(file: u64, footer: &mut Footer, rows: &[Vec<Row>]) -> (u64, Vec<u8>) {
    let footer_at = super::block_ceil(footer.data_end);
    let mut out = vec![0_u8; HEAD];
    for (run, rows) in footer.runs.iter_mut().zip(rows) {
        let from = out.len();
        for row in rows {
            row.encode(&mut out);
        }
        run.rows_at = footer_at + from as u64;
        run.rows_crc = crc32c::crc32c(&out[from..]);
    }
    let tables = out.len();
    for run in &footer.runs {
        run.encode(&mut out);
    }
    for (stream, trim) in &footer.trims {
        out.extend_from_slice(&stream.0.to_le_bytes());
        out.extend_from_slice(&trim.0.to_le_bytes());
    }
    for fence in &footer.fences {
        out.extend_from_slice(&fence.at.to_le_bytes());
        out.extend_from_slice(&fence.bytes.to_le_bytes());
    }
    let count = |len: usize| u32::try_from(len).expect("a file holds fewer than 2^32 frames");
    let mut trailer = [0_u8; TRAILER];
    put(&mut trailer, 0, &TRAILER_MAGIC);
    put(&mut trailer, 8, &VERSION.to_le_bytes());
    put(&mut trailer, 16, &file.to_le_bytes());
    put(&mut trailer, 24, &footer_at.to_le_bytes());
    put(&mut trailer, 32, &footer.data_end.to_le_bytes());
    put(&mut trailer, 40, &(footer_at + tables as u64).to_le_bytes());
    put(&mut trailer, 48, &count(footer.runs.len()).to_le_bytes());
    put(&mut trailer, 52, &count(footer.trims.len()).to_le_bytes());
    put(&mut trailer, 56, &count(footer.fences.len()).to_le_bytes());
    put(&mut trailer, 60, &crc32c::crc32c(&out[tables..]).to_le_bytes());
    let crc = crc32c::crc32c(&trailer[..TRAILER - 4]);
    put(&mut trailer, TRAILER - 4, &crc.to_le_bytes());
    out.extend_from_slice(&trailer);
    let bytes = out.len() as u64;
    put(&mut out, 0, &HEAD_MAGIC);
    put(&mut out, 8, &file.to_le_bytes());
    put(&mut out, 16, &bytes.to_le_bytes());
    let crc = crc32c::crc32c(&out[..HEAD - 4]);
    put(&mut out, HEAD - 4, &crc.to_le_bytes());
    (footer_at, out)
}

/// The footer's length, when `bytes` begin with the head of a footer of this file.
pub(crate) fn decode_head(bytes: &[u8], file: u64) -> Option<u64> {
    let head = bytes.get(..HEAD)?;
    let valid = head[..8] == HEAD_MAGIC
        && u64_at(head, 8) == file
        && u32_at(head, 24) == 0
        && crc32c::crc32c(&head[..HEAD - 4]) == u32_at(head, HEAD - 4);
    valid.then(|| u64_at(head, 16))
}

impl Trailer {
    /// Decodes the last [`TRAILER`] bytes of a file of `file_bytes` bytes.
    ///
    /// # Errors
    /// `Corrupt` when there is no valid trailer: the file is unsealed or its footer is damaged.
    pub(crate) fn decode(bytes: &[u8], file: u64, file_bytes: u64) -> Result<Trailer, Flaw> {
        let corrupt = |at, why| Err(Flaw::Corrupt { at, why });
        if bytes.len() < TRAILER {
            return Err(Flaw::Incomplete { missing: (TRAILER - bytes.len()) as u64 });
        }
        if bytes[..8] != TRAILER_MAGIC {
            return corrupt(0, "no trailer magic");
        }
        if crc32c::crc32c(&bytes[..TRAILER - 4]) != u32_at(bytes, TRAILER - 4) {
            return corrupt((TRAILER - 4) as u64, "trailer checksum differs");
        }
        if u16_at(bytes, 8) != VERSION {
            return Err(Flaw::Unsupported { found: u16_at(bytes, 8), max: VERSION });
        }
        if u64_at(bytes, 16) != file {
            return corrupt(16, "trailer of another file");
        }
        let trailer = Trailer {
            footer_at: u64_at(bytes, 24),
            data_end: u64_at(bytes, 32),
            tables_at: u64_at(bytes, 40),
            runs: u32_at(bytes, 48),
            trims: u32_at(bytes, 52),
            fences: u32_at(bytes, 56),
            tables_crc: u32_at(bytes, 60),
        };
        let tables = u64::from(trailer.runs) * RUN as u64
            + u64::from(trailer.trims) * TRIM as u64
            + u64::from(trailer.fences) * FENCE as u64;
        let ordered =
            trailer.data_end <= trailer.footer_at && trailer.footer_at < trailer.tables_at;
        let ends = trailer.tables_at.checked_add(tables + TRAILER as u64);
        if !ordered || ends != Some(file_bytes) {
            return corrupt(24, "places in the trailer do not fit the file");
        }
        Ok(trailer)
    }

    /// Decodes the tables: the bytes from `tables_at` up to the trailer.
    ///
    /// # Errors
    /// `Corrupt` when the checksum differs or a run's rows lie outside the footer.
    pub(crate) fn tables(&self, bytes: &[u8]) -> Result<Footer, Flaw> {
        let corrupt = |why| Err(Flaw::Corrupt { at: self.tables_at, why });
        if crc32c::crc32c(bytes) != self.tables_crc {
            return corrupt("checksum of the footer's tables differs");
        }
        let (runs, rest) = bytes.split_at(mem(u64::from(self.runs) * RUN as u64));
        let (trims, fences) = rest.split_at(mem(u64::from(self.trims) * TRIM as u64));
        let runs: Vec<RunRecord> = runs.chunks_exact(RUN).map(RunRecord::decode).collect();
        let inside = |run: &RunRecord| {
            let rows = u64::from(run.rows) * ROW as u64;
            run.first < run.end
                && run.rows > 0
                && run.rows_at > self.footer_at
                && run.rows_at.checked_add(rows).is_some_and(|end| end <= self.tables_at)
        };
        if !runs.iter().all(inside) {
            return corrupt("rows of a run lie outside the footer");
        }
        let pair = |bytes: &[u8]| (u64_at(bytes, 0), u64_at(bytes, 8));
        Ok(Footer {
            data_end: self.data_end,
            runs,
            trims: trims
                .chunks_exact(TRIM)
                .map(pair)
                .map(|(stream, trim)| (StreamId(stream), Offset(trim)))
                .collect(),
            fences: fences
                .chunks_exact(FENCE)
                .map(pair)
                .map(|(at, bytes)| Fence { at, bytes })
                .collect(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_footer_reads_back() {
        let run = RunRecord {
            stream: StreamId(3),
            first: Offset(4),
            end: Offset(7),
            epoch: Epoch(1),
            rows: 2,
            first_version: HeadVersion(2),
            bytes_before: 10,
            bytes: 30,
            max_timestamp: 99,
            rows_at: 0,
            rows_crc: 0,
            relocated: true,
        };
        let row = |base, record_count| Row {
            base: Offset(base),
            at: 4096,
            payload_bytes: 15,
            record_count,
            max_timestamp: 99,
        };
        let rows = vec![row(4, 1), row(5, 2)];
        let mut footer = Footer {
            data_end: 5000,
            runs: vec![run],
            trims: vec![(StreamId(3), Offset(4))],
            fences: vec![Fence { at: 4200, bytes: 8 }],
        };
        let (at, bytes) = encode(77, &mut footer, std::slice::from_ref(&rows));
        assert_eq!(at, 8192);
        assert_eq!(decode_head(&bytes, 77), Some(bytes.len() as u64));
        assert_eq!(decode_head(&bytes, 78), None);
        let total = at + bytes.len() as u64;
        let trailer = Trailer::decode(&bytes[bytes.len() - TRAILER..], 77, total).unwrap();
        let tables = mem(trailer.tables_at - at)..bytes.len() - TRAILER;
        assert_eq!(trailer.tables(&bytes[tables]).unwrap(), footer);
        let run = footer.runs[0];
        let from = mem(run.rows_at - at);
        assert_eq!(Row::decode_all(&bytes[from..from + 2 * ROW], &run), Ok(rows));
    }
}

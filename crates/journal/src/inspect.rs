//! Looking into a journal directory without opening the journal: no lock, nothing written. For the
//! command line and for tests.

use std::io;

use thetis_types::{Epoch, OffsetRange, StreamId};

use crate::disk::Disk;
use crate::format::Flaw;
use crate::format::file;
use crate::format::frame::FrameHeader;
use crate::recover::{read_footer, read_header};
use crate::scan::{ScanError, scan};

/// A file of the journal.
#[derive(Clone, Debug)]
pub struct FileInfo {
    /// Its name.
    pub name: String,
    /// Its place in the order of files.
    pub sequence: u64,
    /// Bytes on disk.
    pub bytes: u64,
    /// Journal position of its first byte; `None` when its header cannot be read.
    pub base: Option<u64>,
    /// What is wrong with its header, or with one of the header's copies.
    pub header_flaw: Option<Flaw>,
    /// What its footer says; `Err` when it has none or a damaged one.
    pub footer: Result<FooterInfo, Flaw>,
}

/// What a footer says.
#[derive(Clone, Debug)]
pub struct FooterInfo {
    /// Byte after the last frame.
    pub data_end: u64,
    /// The dense runs of entries in the file.
    pub runs: Vec<RunInfo>,
    /// Ranges fenced off as damaged: first byte, bytes.
    pub fences: Vec<(u64, u64)>,
}

/// A dense run of entries of one stream and epoch in one file.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct RunInfo {
    /// The stream.
    pub stream: StreamId,
    /// Its offsets.
    pub range: OffsetRange,
    /// Its epoch.
    pub epoch: Epoch,
    /// Entries.
    pub entries: u32,
    /// Payload bytes.
    pub bytes: u64,
    /// Largest timestamp.
    pub max_timestamp: i64,
    /// The entries are copies.
    pub relocated: bool,
}

/// A frame, or a range that should be one.
#[derive(Clone, Debug)]
pub struct FrameInfo {
    /// Byte of the file.
    pub at: u64,
    /// Bytes of it.
    pub bytes: u64,
    /// Its header, when it can be read.
    pub header: Option<FrameHeader>,
    /// What is wrong with it.
    pub why: Option<&'static str>,
}

/// The journal files on `disk`, in order.
///
/// # Errors
/// Of the disk; a file that cannot be understood is listed, not an error.
pub fn files(disk: &dyn Disk) -> io::Result<Vec<FileInfo>> {
    let mut sequences: Vec<u64> = disk.list()?.iter().filter_map(|it| file::sequence(it)).collect();
    sequences.sort_unstable();
    sequences.into_iter().map(|sequence| info(disk, sequence)).collect()
}

fn info(disk: &dyn Disk, sequence: u64) -> io::Result<FileInfo> {
    let name = file::name(sequence);
    let io = disk.open(&name)?;
    let bytes = io.len()?;
    let (base, header_flaw, footer) = match read_header(&*io, bytes, sequence)? {
        Ok((header, flaw)) => (Some(header.base), flaw, read_footer(&*io, header.id, bytes)?),
        Err(flaw) => (None, Some(flaw), Err(flaw)),
    };
    let footer = footer.map(|footer| FooterInfo {
        data_end: footer.data_end,
        runs: footer
            .runs
            .iter()
            .map(|run| RunInfo {
                stream: run.stream,
                range: OffsetRange { start: run.first, end: run.end },
                epoch: run.epoch,
                entries: run.rows,
                bytes: run.bytes,
                max_timestamp: run.max_timestamp,
                relocated: run.relocated,
            })
            .collect(),
        fences: footer.fences.iter().map(|fence| (fence.at, fence.bytes)).collect(),
    });
    Ok(FileInfo { name, sequence, bytes, base, header_flaw, footer })
}

/// The frames of one file, in order, and the ranges between them that should be frames.
///
/// # Errors
/// `InvalidData` with the [`Flaw`] when the file's header cannot be read or a frame is of a newer
/// format.
pub fn frames(disk: &dyn Disk, sequence: u64) -> io::Result<Vec<FrameInfo>> {
    let invalid = |flaw| io::Error::new(io::ErrorKind::InvalidData, flaw);
    let io = disk.open(&file::name(sequence))?;
    let bytes = io.len()?;
    let (header, _) = read_header(&*io, bytes, sequence)?.map_err(invalid)?;
    let until = read_footer(&*io, header.id, bytes)?.ok().map(|footer| footer.data_end);
    let scan = scan(&*io, header.id, until).map_err(|error| match error {
        ScanError::Io(error) => error,
        ScanError::Unsupported(flaw) => invalid(flaw),
    })?;
    let good = scan.frames.iter().map(|(at, header)| FrameInfo {
        at: *at,
        bytes: header.bytes(),
        header: Some(*header),
        why: None,
    });
    let bad = scan.flaws.iter().map(|flaw| FrameInfo {
        at: flaw.at,
        bytes: flaw.bytes,
        header: flaw.header,
        why: Some(flaw.why),
    });
    let mut all: Vec<FrameInfo> = good.chain(bad).collect();
    all.sort_by_key(|frame| frame.at);
    Ok(all)
}

/// The payload of the frame at byte `at` of a file, unchecked when `header` was found damaged.
///
/// # Errors
/// Of the disk; `UnexpectedEof` when the file ends before.
pub fn payload(
    disk: &dyn Disk,
    sequence: u64,
    at: u64,
    header: &FrameHeader,
) -> io::Result<Vec<u8>> {
    let io = disk.open(&file::name(sequence))?;
    let from = at.saturating_add(crate::format::frame::HEADER as u64);
    let bytes = u64::from(header.payload_bytes);
    if from.saturating_add(bytes) > io.len()? {
        return Err(io::ErrorKind::UnexpectedEof.into());
    }
    crate::disk::read_vec(&*io, from, bytes)
}

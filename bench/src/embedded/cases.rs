//! Which works are compared, with whom, and what the house promised of each.

use thetis_bench::figures::flatness;
use thetis_bench::work::engine::{Level, Name};
use thetis_bench::work::{Kind, Measured, Work};

use crate::report::{Bar, Better};

/// Most that one work writes; a sustained one writes as long as it lasts.
const BYTES_MAX: u64 = 1 << 30;
/// Bytes of a stream that a sustained work keeps: more than an operating system holds back before it writes,
/// or the device would never be touched at `os`.
const KEPT_BYTES: u64 = 8 << 30;
/// Appends of one thread under way at once.
const WINDOW: usize = 1_000;
/// Records appended together, where they are.
const BATCH: usize = 256;

const KIB: usize = 1 << 10;
const RECORD_BYTES: [usize; 3] = [100, KIB, 64 * KIB];
const WRITERS: [usize; 5] = [1, 2, 4, 8, 64];

/// What every other log is held against.
const LOGS: [Name; 4] = [Name::Walrus, Name::WalrusMmap, Name::Rocksdb, Name::RaftEngine];
/// The Walrus engine, both ways.
const WALRUS: [Name; 2] = [Name::Walrus, Name::WalrusMmap];

/// How much of it all.
#[derive(Clone, Copy, Debug)]
pub(super) struct Sizes {
    /// How long each work writes...
    pub(super) seconds: f64,
    /// ...and a sustained one.
    pub(super) sustained_seconds: f64,
    /// Streams in the case of many.
    pub(super) topics: usize,
    /// Every combination instead of the table's.
    pub(super) every: bool,
}

/// What is read off a measurement.
pub(super) type Figure = fn(&Measured) -> f64;

/// A work, who else does it, and what of it is compared.
pub(super) struct Case {
    /// Without the level.
    pub(super) name: String,
    /// As we do it.
    pub(super) work: Work,
    pub(super) rivals: Vec<Rival>,
    pub(super) views: Vec<View>,
}

/// Another who does a work.
pub(super) struct Rival {
    /// As printed.
    pub(super) name: &'static str,
    pub(super) work: Work,
    /// What its figures are multiplied with.
    pub(super) scale: f64,
}

/// One figure of a work.
pub(super) struct View {
    pub(super) what: &'static str,
    pub(super) unit: &'static str,
    pub(super) better: Better,
    pub(super) figure: Figure,
    /// What was promised beside which rivals.
    bars: Vec<(Name, Bar)>,
    /// Rivals whose figure says something else.
    except: Vec<Name>,
    /// What was promised of the figure itself.
    pub(super) promised: Option<Bar>,
    /// Whether it has a value for each second.
    pub(super) has_seconds: bool,
}

impl Case {
    /// With the level.
    pub(super) fn full_name(&self) -> String {
        format!("{}, {}", self.name, self.work.level.text())
    }

    /// Drops rivals for whom there is no program.
    pub(super) fn keep_rivals(&mut self, has: impl Fn(Name) -> bool) {
        self.rivals.retain(|rival| has(rival.work.engine));
    }
}

impl View {
    fn new(what: &'static str, unit: &'static str, better: Better, figure: Figure) -> View {
        let (bars, except) = (Vec::new(), Vec::new());
        View { what, unit, better, figure, bars, except, promised: None, has_seconds: false }
    }

    fn barred(mut self, names: &[Name], bar: Bar) -> View {
        self.bars.extend(names.iter().map(|name| (*name, bar)));
        self
    }

    fn except(mut self, names: &[Name]) -> View {
        self.except.extend(names);
        self
    }

    /// Whether ours is held against this rival here, and what was promised.
    pub(super) fn against(&self, rival: &Rival) -> Option<Option<Bar>> {
        let name = rival.work.engine;
        if self.except.contains(&name) {
            return None;
        }
        // The last word counts.
        Some(self.bars.iter().rev().find(|(barred, _)| *barred == name).map(|(_, bar)| *bar))
    }
}

/// All cases, in the order in which they are done.
pub(super) fn cases(sizes: &Sizes) -> Vec<Case> {
    let mut cases = Vec::new();
    for level in Level::ALL {
        for work in grid(level, sizes) {
            if sizes.every || is_in_table(&work) {
                cases.push(write_case(work));
            }
        }
        cases.push(tail_case(work(level, Kind::Tail, sizes)));
    }
    cases.push(share_case(sizes));
    cases.push(window_case(sizes));
    cases.push(topics_case(sizes));
    cases.push(sustained_case(Level::Os, sizes));
    cases.push(sustained_case(Level::Disk, sizes));
    cases
}

/// One writer of records of 1 KiB.
fn work(level: Level, kind: Kind, sizes: &Sizes) -> Work {
    Work {
        engine: Name::Thetis,
        level,
        kind,
        writers: 1,
        one_stream: false,
        record_bytes: KIB,
        batch: 1,
        seconds: sizes.seconds,
        bytes_max: BYTES_MAX,
    }
}

fn grid(level: Level, sizes: &Sizes) -> Vec<Work> {
    let mut works = Vec::new();
    for record_bytes in RECORD_BYTES {
        for batch in [1, BATCH] {
            for one_stream in [false, true] {
                for writers in WRITERS {
                    let is_twice = one_stream && writers == 1;
                    let is_too_many = writers > 8 && level != Level::Disk;
                    if !is_twice && !is_too_many {
                        let base = work(level, Kind::Write, sizes);
                        works.push(Work { writers, one_stream, record_bytes, batch, ..base });
                    }
                }
            }
        }
    }
    works
}

/// The combinations that are done unless all are asked for: each thing varied on its own.
fn is_in_table(work: &Work) -> bool {
    let is_ends = work.writers == 1 || work.writers == 8;
    match (work.record_bytes == KIB, work.batch, work.one_stream) {
        (true, 1, false) => true,
        (true, 1, true) => work.writers >= 8,
        (true, _, false) | (false, 1, false) => is_ends,
        (true, _, true) => work.writers == 8,
        (false, _, false) => work.writers == 1,
        (false, _, true) => false,
    }
}

fn name(work: &Work) -> String {
    let writers = if work.writers == 1 { "1 writer" } else { &format!("{} writers", work.writers) };
    let stream = if work.one_stream { " on one stream" } else { "" };
    let bytes = match work.record_bytes {
        bytes if bytes < KIB => format!("{bytes} B"),
        bytes => format!("{} KiB", bytes / KIB),
    };
    match work.batch {
        1 => format!("{writers}{stream}, {bytes}"),
        batch => format!("{writers}{stream}, batches of {batch} x {bytes}"),
    }
}

fn rivals(work: &Work, names: &[Name]) -> Vec<Rival> {
    let rival = |name: &Name| Rival {
        name: name.text(),
        work: Work { engine: *name, ..work.clone() },
        scale: 1.0,
    };
    names.iter().map(rival).collect()
}

fn write_case(work: Work) -> Case {
    let is_base = work.record_bytes == KIB && work.batch == 1 && !work.one_stream;
    let mut names = vec![Name::Device];
    let mut p50 = latency("append p50", |measured| measured.append_p50_us);
    if is_base && work.level == Level::Disk && work.writers == 1 {
        names.push(Name::DevicePrewritten);
        p50 = p50.barred(&names, Bar::at_most(1.1));
    }
    names.extend(LOGS);
    let mut views = vec![rate().barred_by_level(&work), p50, p99()];
    if work.batch == 1 && !work.one_stream && (work.writers == 1 || work.writers == 8) {
        let read = |measured: &Measured| measured.read_mb_per_s;
        let read = View::new("then reading it", "MB/s", Better::More, read);
        // The figure is of its memory table and not of its log.
        views.push(read.barred(&WALRUS, Bar::at_least(3.0)).except(&[Name::Rocksdb]));
    }
    views.extend(costs());
    Case { name: name(&work), rivals: rivals(&work, &names), views, work }
}

impl View {
    fn barred_by_level(self, work: &Work) -> View {
        // Where durability is equal, these are to be beaten everywhere; raft-engine has no `memory`.
        let view = self.barred(&[Name::Rocksdb], Bar::at_least(1.0));
        let view = match work.level {
            Level::Memory => view,
            Level::Os | Level::Disk => view.barred(&[Name::RaftEngine], Bar::at_least(1.0)),
        };
        let is_base = work.record_bytes == KIB && !work.one_stream;
        match (work.level, work.writers, work.batch) {
            (_, _, BATCH) => view.barred(&WALRUS, Bar::at_least(3.0)),
            (Level::Os, 1, 1) if is_base => view.barred(&WALRUS, Bar::at_least(2.0)),
            (Level::Os, 8, 1) if is_base => view.barred(&WALRUS, Bar::at_least(3.0)),
            (Level::Disk, 64, 1) if is_base => view.barred(&WALRUS, Bar::at_least(5.0)),
            _ => view,
        }
    }
}

fn rate() -> View {
    View::new("rate", "records/s", Better::More, |measured| measured.records_per_s)
}

fn latency(what: &'static str, figure: Figure) -> View {
    View::new(what, "us", Better::Less, figure)
}

fn p99() -> View {
    latency("append p99", |measured| measured.append_p99_us)
}

/// What a work takes of the machine. RocksDB keeps in memory all that it writes, as it is used here.
fn costs() -> Vec<View> {
    let less = |what, unit, figure| View::new(what, unit, Better::Less, figure);
    vec![
        less("memory peak", "MB", |measured| measured.memory_peak_mb).except(&[Name::Rocksdb]),
        less("memory of its own", "MB", |measured| measured.memory_own_mb).except(&[Name::Rocksdb]),
        less("CPU", "s/GB", |measured| measured.cpu_s_per_gb),
    ]
}

/// The time to a reader that follows the writer.
fn tail_case(work: Work) -> Case {
    let views = vec![
        latency("append to read p50", |measured| measured.tail_p50_us),
        latency("append to read p99", |measured| measured.tail_p99_us),
    ];
    let names = [Name::Walrus, Name::WalrusMmap, Name::RaftEngine];
    let rivals = rivals(&work, &names);
    Case { name: "a reader at the tail, 1 KiB".to_owned(), rivals, views, work }
}

/// Eight writers that share flushes, beside eight records of each flush of a single writer.
fn share_case(sizes: &Sizes) -> Case {
    let one = work(Level::Disk, Kind::Write, sizes);
    let flushes = Rival {
        name: "8 per flush",
        work: Work { engine: Name::Device, ..one.clone() },
        scale: 8.0,
    };
    Case {
        name: "8 writers and 8 records per flush, 1 KiB".to_owned(),
        rivals: vec![flushes],
        views: vec![rate().barred(&[Name::Device], Bar::at_least(0.5))],
        work: Work { writers: 8, ..one },
    }
}

/// Many appends of one thread under way.
fn window_case(sizes: &Sizes) -> Case {
    let work = work(Level::Disk, Kind::Window { appends: WINDOW }, sizes);
    let promised = View { promised: Some(Bar::figure_at_least(300_000.0)), ..rate() };
    let mut views = vec![promised, p99()];
    views.extend(costs());
    let rivals = rivals(&work, &[Name::Device]);
    Case { name: format!("1 writer, {WINDOW} appends under way, 1 KiB"), rivals, views, work }
}

/// Many streams, each used a little.
fn topics_case(sizes: &Sizes) -> Case {
    let one = work(Level::Os, Kind::Topics, sizes);
    let work = Work { writers: sizes.topics, record_bytes: RECORD_BYTES[0], ..one };
    let create = View::new("making one", "us", Better::Less, |measured| measured.create_us);
    let mut views = vec![create, rate(), p99()];
    views.extend(costs());
    let rivals = rivals(&work, &LOGS);
    Case { name: format!("{} streams in turn, 100 B", sizes.topics), rivals, views, work }
}

/// Minutes of writing beside the plainest sequential program.
fn sustained_case(level: Level, sizes: &Sizes) -> Case {
    let records = KEPT_BYTES / KIB as u64;
    let work = Work {
        batch: BATCH,
        seconds: sizes.sustained_seconds,
        bytes_max: u64::MAX,
        ..work(level, Kind::Sustained { records }, sizes)
    };
    let rate = rate().barred(&[Name::Device], Bar::at_least(0.8));
    let even = |measured: &Measured| flatness(&measured.seconds);
    let mut views = vec![
        View { has_seconds: true, ..rate },
        View::new("slowest second of the median", "ratio", Better::More, even),
        latency("append p50", |measured| measured.append_p50_us),
        p99(),
    ];
    views.extend(costs());
    Case {
        name: format!("sustained, {}", name(&work)),
        rivals: rivals(&work, &[Name::Device]),
        views,
        work,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SIZES: Sizes =
        Sizes { seconds: 1.0, sustained_seconds: 60.0, topics: 1_000, every: false };

    fn bar(case: &Case, what: &str, rival: Name) -> Option<String> {
        let view = case.views.iter().find(|view| view.what == what)?;
        let rival = case.rivals.iter().find(|one| one.work.engine == rival)?;
        view.against(rival)?.map(|bar| bar.to_string())
    }

    fn case<'a>(cases: &'a [Case], name: &str) -> &'a Case {
        cases.iter().find(|case| case.full_name() == name).expect(name)
    }

    #[test]
    fn no_name_stands_for_two_works() {
        let cases = cases(&Sizes { every: true, ..SIZES });
        let mut names: Vec<String> = cases.iter().map(Case::full_name).collect();
        names.sort();
        let count = names.len();
        names.dedup();
        assert_eq!(names.len(), count);
        // 2 sizes of batches and 3 of records, by 1, 2, 4, 8 and, at disk, 64 writers on one or on
        // streams of their own, of which one writer is the same.
        assert_eq!(count, 6 * (7 + 7 + 9) + 3 + 5);
    }

    #[test]
    fn what_was_promised_is_held_against_the_right_rows() {
        let cases = cases(&SIZES);
        let bar = |name, what, rival| bar(case(&cases, name), what, rival).unwrap_or_default();
        assert_eq!(bar("1 writer, 1 KiB, os", "rate", Name::Walrus), ">= 2x");
        assert_eq!(bar("8 writers, 1 KiB, os", "rate", Name::WalrusMmap), ">= 3x");
        assert_eq!(bar("8 writers, 100 B, os", "rate", Name::Walrus), "");
        assert_eq!(bar("1 writer, 1 KiB, disk", "append p50", Name::Device), "<= 1.1x");
        assert_eq!(bar("1 writer, 1 KiB, os", "append p50", Name::Device), "");
        assert_eq!(bar("64 writers, 1 KiB, disk", "rate", Name::Walrus), ">= 5x");
        assert_eq!(bar("64 writers, 1 KiB, disk", "rate", Name::Rocksdb), ">= 1x");
        assert_eq!(bar("1 writer, 1 KiB, memory", "rate", Name::RaftEngine), "");
        assert_eq!(bar("1 writer, batches of 256 x 100 B, os", "rate", Name::Walrus), ">= 3x");
        assert_eq!(bar("8 writers, 64 KiB, os", "then reading it", Name::Walrus), ">= 3x");
        let share = "8 writers and 8 records per flush, 1 KiB, disk";
        assert_eq!(bar(share, "rate", Name::Device), ">= 0.5x");
        let sustained = "sustained, 1 writer, batches of 256 x 1 KiB, os";
        assert_eq!(bar(sustained, "rate", Name::Device), ">= 0.8x");
    }

    #[test]
    fn a_figure_that_says_something_else_is_not_compared() {
        let mut cases = cases(&SIZES);
        let base = case(&cases, "1 writer, 1 KiB, os");
        let rocksdb = base.rivals.iter().find(|rival| rival.work.engine == Name::Rocksdb);
        let rocksdb = rocksdb.expect("it is a rival");
        let compared = |what: &str| {
            let view = base.views.iter().find(|view| view.what == what).expect("the view");
            view.against(rocksdb).is_some()
        };
        assert!(compared("rate") && compared("CPU"));
        assert!(!compared("then reading it") && !compared("memory peak"));
        for case in &mut cases {
            case.keep_rivals(|name| name != Name::Rocksdb);
            assert!(case.rivals.iter().all(|rival| rival.work.engine != Name::Rocksdb));
        }
    }
}

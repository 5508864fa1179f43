//! Thetis as a library: a durable log inside your own process, which can grow into a server.
//!
//! [`Thetis::open`] takes a directory. A [`Stream`] is a named, append-only sequence of records,
//! each with an offset that never changes. An append that returned `Ok` is committed and safe at
//! the stream's [`Durability`]: by default it survives the loss of power.
//!
//! ```
//! # fn main() -> Result<(), thetis::Error> {
//! # let dir = tempfile::tempdir().unwrap();
//! let thetis = thetis::Thetis::open(dir.path())?;
//! let orders = thetis.stream("orders")?;
//! let receipt = orders.append(b"one order")?;
//! orders.append_batch(["second", "third"])?;
//! for record in orders.read(receipt.range.start)? {
//!     let record = record?;
//!     println!("{} {:?}", record.offset, record.value);
//! }
//! # Ok(())
//! # }
//! ```
//!
//! A [`Reader`] is a named, durable place in a stream: `orders.reader("billing")?.read_next()?`.
//! [`walrus`] is the same store in the words of the Walrus engine's API.
//!
//! Appends and streams that wait have async twins over the same core (`append_async`,
//! `follow_async`...), which need no particular runtime.
//!
//! Limits: a record or batch takes at most 1 GiB and 2^31 - 1 records; names have 1 to 249 bytes;
//! one process at a time holds a directory.
//!
//! Owns the library's face and how the house is put together for one process; every rule of
//! storage lives in the crates beneath.

mod clock;
mod error;
mod keyed;
mod open;
mod readers;
mod records;
mod stream;
pub mod walrus;

pub use clock::{SystemClock, SystemEntropy};
pub use error::Error;
pub use keyed::keyed_dir;
pub use open::{Flush, Opened, Options, Thetis};
pub use readers::{
    READER_BATCH_RECORDS_MAX, READER_NAME_BYTES_MAX, READERS_MAX, Reader, ReaderInfo, Saves,
};
pub use records::Record;
pub use stream::{Appending, Follow, FollowAsync, Records, Retention, Stream};
pub use thetis_stream::{Fate, Session};
pub use thetis_types::{
    AttemptId, Durability, Epoch, HeadVersion, Offset, OffsetRange, Outcome, Receipt,
};

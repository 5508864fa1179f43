//! Named readers: two consumers of one stream, each with a durable place, and a stream that keeps only
//! what one of them has still to read.
//!
//! `cargo run -p thetis --example readers -- DIR`

use thetis::{Flush, Options, Saves, Thetis};

fn main() -> Result<(), thetis::Error> {
    let dir = std::env::args().nth(1).unwrap_or_else(|| "readers-example-data".into());
    run(dir.as_ref())
}

/// Appends, reads with two readers, and gives back what both have passed.
pub(crate) fn run(root: &std::path::Path) -> Result<(), thetis::Error> {
    // Several stores may live side by side under one root, each under its key.
    let options = Options::default().flush(Flush::Each);
    let (thetis, _) = Thetis::open_keyed_with(root, "shop", options)?;
    let orders = thetis.stream("orders")?;
    orders.trim_when_read(true)?;

    // Strict: what was handed out is never handed out again.
    let billing = orders.reader("billing")?;
    // Relaxed: fewer flushes; after a crash at most ten records, or the last batch, come again.
    let report = orders.reader_with("report", Saves::Every { records: 10, interval: None })?;

    orders.append_batch(["a coffee", "a tea", "a cake"])?;
    while let Some(record) = billing.read_next()? {
        println!("billing has {} {}", record.offset, String::from_utf8_lossy(&record.value));
    }
    if let Some(first) = report.peek()? {
        println!("report will begin with {}", first.offset);
    }
    let batch = report.read_batch(1 << 20)?;
    report.save()?;
    println!("report has read {} records and has {} unread", batch.len(), report.unread());

    for reader in orders.readers() {
        println!("{} is at {}, saved at {}", reader.name, reader.position, reader.saved);
    }
    thetis.reclaim()?;
    println!("the stream begins at {} and ends at {}", orders.start(), orders.end());
    drop((billing, report));
    thetis.close()
}

//! A log in one process, with blocking calls: append one and many, read, follow, trim.
//!
//! `cargo run -p thetis --example blocking -- DIR`

use std::thread;

fn main() -> Result<(), thetis::Error> {
    let dir = std::env::args().nth(1).unwrap_or_else(|| "blocking-example-data".into());
    let thetis = thetis::Thetis::open(dir)?;
    let orders = thetis.stream("orders")?;

    let follower = {
        let orders = orders.clone();
        let from = orders.end();
        thread::spawn(move || -> Result<(), thetis::Error> {
            for record in orders.follow(from)?.take(3) {
                let record = record?;
                println!("followed {} {}", record.offset, String::from_utf8_lossy(&record.value));
            }
            Ok(())
        })
    };

    let receipt = orders.append("a coffee")?;
    println!("{} is safe at level {}", receipt.range, receipt.durability);
    orders.append_batch(["a tea", "a cake"])?;
    follower.join().expect("the follower does not panic")?;

    for record in orders.read(orders.start())? {
        println!("read {}", record?.offset);
    }
    orders.trim(receipt.range.start)?;
    println!("the stream begins at {} and ends at {}", orders.start(), orders.end());
    thetis.close()
}

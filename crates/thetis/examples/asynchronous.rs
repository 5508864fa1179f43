//! The same log with futures, on any runtime; this example brings tokio.
//!
//! `cargo run -p thetis --example asynchronous -- DIR`

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), thetis::Error> {
    let dir = std::env::args().nth(1).unwrap_or_else(|| "asynchronous-example-data".into());
    let thetis = thetis::Thetis::open(dir)?;
    let orders = thetis.stream("orders")?;

    let mut follow = orders.follow_async(orders.end())?;
    // Many appends under way share their flushes.
    let under_way: Vec<_> =
        (0..10).map(|n| orders.start_append(format!("order {n}"))).collect::<Result<_, _>>()?;
    for appending in under_way {
        let receipt = appending.await?;
        println!("{} is safe at level {}", receipt.range, receipt.durability);
    }
    orders.append_batch_async(["a tea", "a cake"]).await?;
    for _ in 0..12 {
        if let Some(record) = follow.next().await {
            println!("followed {}", record?.offset);
        }
    }
    thetis.close()
}

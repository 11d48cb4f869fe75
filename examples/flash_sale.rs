//! Ten sellers, each with its own session, sell from one stock. A sale reads the stock, takes a moment, and writes the
//! rest. Under a mutex the sellers sell exactly the stock; with `--no-lock` they sell more.

use std::process::ExitCode;
use std::time::Duration;

use clap::Parser;
use curator_examples::{Outcome, Servers, run, say};
use curator_framework::CuratorFramework;
use curator_recipes::InterProcessMutex;
use tokio::task::JoinSet;

/// Ten sellers sell from one stock.
#[derive(Debug, Clone, Parser)]
struct Options {
    #[command(flatten)]
    servers: Servers,
    /// Number of sellers
    #[arg(long, default_value_t = 10)]
    sellers: usize,
    /// Number of items in stock
    #[arg(long, default_value_t = 25)]
    stock: u32,
    /// Sell without the lock, to show the oversold items
    #[arg(long)]
    no_lock: bool,
    /// The sale's path
    #[arg(long, default_value = "/examples/flash_sale")]
    path: String,
}

#[tokio::main]
async fn main() -> ExitCode {
    let options = Options::parse();
    run(options.servers.clone(), |ensemble| async move {
        let shop = ensemble.client().await?;
        let stock = format!("{}/stock", options.path);
        let full = options.stock.to_string();
        shop.create().creating_parents_if_needed().or_set_data().with_data(full).for_path(&stock).await?;
        let mut sellers = JoinSet::new();
        for _ in 0..options.sellers {
            let client = ensemble.client().await?;
            sellers.spawn(seller(client, options.clone(), stock.clone()));
        }
        let mut sold = 0;
        while let Some(seller) = sellers.join_next().await {
            sold += seller??;
        }
        shop.delete().for_path(&stock).await?;
        say(format!("{} sellers, {} in stock, {sold} sold", options.sellers, options.stock));
        match sold.checked_sub(options.stock) {
            Some(0) => say("all sold, and nothing twice"),
            Some(more) => say(format!("oversold by {more}")),
            None => say("not all sold"),
        }
        Ok(())
    })
    .await
}

/// Sells until the stock is empty, and returns the number of sold items.
async fn seller(client: CuratorFramework, options: Options, stock: String) -> Outcome<u32> {
    let mutex = InterProcessMutex::new(client.clone(), format!("{}/lock", options.path))?;
    let mut sold = 0;
    loop {
        let went_well = if options.no_lock {
            sell(&client, &stock).await?
        } else {
            let guard = mutex.acquire().await?;
            // `protect` drops the future of the sale when the lock is lost.
            let went_well = guard.protect(sell(&client, &stock)).await??;
            guard.release().await?.held()?;
            went_well
        };
        if !went_well {
            return Ok(sold);
        }
        sold += 1;
    }
}

/// Sells one item. Returns `false` if the stock is empty.
async fn sell(client: &CuratorFramework, stock: &str) -> Outcome<bool> {
    let (data, _) = client.get_data().for_path(stock).await?;
    let left: u32 = String::from_utf8(data)?.parse()?;
    let Some(rest) = left.checked_sub(1) else { return Ok(false) };
    tokio::time::sleep(Duration::from_millis(5)).await; // the customer pays
    client.set_data().for_path(stock, rest.to_string()).await?;
    Ok(true)
}

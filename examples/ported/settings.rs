//! Changes settings alone, and reads them beside other readers.

use std::time::Duration;

use curator_framework::{CuratorFramework, Error, RetryForever};
use curator_recipes::InterProcessReadWriteLock;

const LOCK: &str = "/settings/lock";
const THEME: &str = "/settings/theme";
const SHORT: Duration = Duration::from_secs(1);
const LONG: Duration = Duration::from_secs(5);

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let servers = std::env::args().nth(1).ok_or("usage: settings SERVERS")?;
    let client = connect(&servers)?;
    let lock = InterProcessReadWriteLock::new(client.clone(), LOCK)?;
    let guest = connect(&servers)?;
    let guests = InterProcessReadWriteLock::new(guest.clone(), LOCK)?;

    let writing = lock.write_lock().acquire().await?;
    let create = client.create().or_set_data().creating_parents_if_needed();
    create.with_data("dark").for_path(THEME).await?;
    let reads = guests.read_lock().acquire_timeout(SHORT).await?;
    println!("a reader beside the writer: {}", reads.is_some());
    let reading = writing.downgrade().await?; // no writer in between

    let reads = guests.read_lock().acquire_timeout(LONG).await?;
    println!("a reader beside the reader: {}", reads.is_some());
    let (theme, _) = guest.get_data().for_path(THEME).await?;
    println!("it reads: {}", String::from_utf8(theme)?);
    drop(reads); // releases: a guard lives as long as its variable

    let writes = guests.write_lock().acquire_timeout(SHORT).await?;
    println!("a writer beside the reader: {}", writes.is_some());
    reading.release().await?.held()?;
    let writes = guests.write_lock().acquire_timeout(LONG).await?;
    println!("a writer behind the reader: {}", writes.is_some());
    drop(writes);
    guest.close().await;
    client.close().await;
    Ok(())
}

fn connect(servers: &str) -> Result<CuratorFramework, Error> {
    let retry = RetryForever::new(Duration::from_millis(500))?;
    let client = CuratorFramework::new_client(servers, retry)?;
    client.start()?;
    Ok(client)
}

//! Connects to ZooKeeper.

use std::time::Duration;

use curator_framework::{CuratorFramework, RetryForever};

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let servers = std::env::var("ZOOKEEPER")?;
    let retry = RetryForever::new(Duration::from_secs(1))?;
    let client = CuratorFramework::new_client(servers, retry)?;
    client
        .run(async {
            client.block_until_connected().await?;
            println!("connected");
            Ok(())
        })
        .await
}

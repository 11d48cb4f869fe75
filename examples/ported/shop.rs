//! Keeps a shop's nodes from strangers: the menu is public.

use std::time::Duration;

use curator_framework::{
    Acl, AclProvider, BoundedExponentialBackoffRetry, ConnectionState,
    CuratorFramework, Error, RetryOneTime,
};
use curator_recipes::{InterProcessMutex, LockError};
use tokio::sync::mpsc::unbounded_channel;

#[derive(Debug)]
struct Acls;

impl AclProvider for Acls {
    fn default_acl(&self) -> Vec<Acl> {
        Acl::creator_all()
    }

    fn acl_for_path(&self, path: &str) -> Option<Vec<Acl>> {
        let mut acl = self.default_acl();
        if path == "/shop/menu" {
            acl.extend(Acl::read_unsafe());
        }
        Some(acl)
    }
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let servers = std::env::args().nth(1).ok_or("usage: shop SERVERS")?;
    let (base, longest) = (Duration::from_millis(100), Duration::from_secs(1));
    let client = CuratorFramework::builder(&servers)
        .namespace("shop")
        .authorization("digest", "clerk:secret")
        .acl_provider(Acls)
        .session_timeout(Duration::from_secs(10))
        .connection_timeout(Duration::from_secs(5))
        .retry_policy(BoundedExponentialBackoffRetry::new(base, longest, 5)?)
        .build()?;
    let (tell, mut heard) = unbounded_channel();
    client.connection_state_listenable().add_listener(move |_, state| {
        if state == ConnectionState::Connected {
            println!("the shop is open");
            let _ = tell.send(());
        }
    });
    client.start()?;
    heard.recv().await;
    let create = client.create().or_set_data().with_data("soup");
    create.for_path("/menu").await?;
    let till = InterProcessMutex::new(client.clone(), "/till")?;
    let guard = till.acquire().await?;

    let retry = RetryOneTime::new(base);
    let stranger = CuratorFramework::new_client(&servers, retry)?;
    stranger.start()?;
    let (menu, _) = stranger.get_data().for_path("/shop/menu").await?;
    println!("a stranger reads: {}", String::from_utf8(menu)?);
    let write = stranger.set_data().for_path("/shop/menu", "mud").await;
    if let Err(Error::NoAuth { .. }) = write {
        println!("a stranger may not write the menu");
    }
    let queue = InterProcessMutex::new(stranger.clone(), "/shop/till")?;
    let refused = queue.acquire().await;
    if let Err(LockError::Framework(Error::NoAuth { .. })) = refused {
        println!("a stranger may not queue at the till");
    }
    guard.release().await?.held()?;
    stranger.close().await;
    client.close().await;
    Ok(())
}

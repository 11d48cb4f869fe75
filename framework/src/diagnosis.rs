//! Why a server cannot be reached, where the client crate does not say it.

#[cfg(feature = "tls")]
pub(crate) mod tls;

use std::time::Duration;

use futures_util::future::join_all;
use tokio::time::{Instant, timeout_at};

use crate::zookeeper::ConnectConfig;
use crate::zookeeper::zookeeper_async::handshake::greet;

/// How much earlier than its callers a look at the servers ends.
const MARGIN: Duration = Duration::from_millis(100);

/// What is wrong with each server, in their order; `None` if it takes connections.
pub(crate) async fn diagnose(config: &ConnectConfig, until: Instant) -> Vec<Option<String>> {
    let until = until.checked_sub(MARGIN).unwrap_or(until);
    join_all(config.servers.iter().map(|server| async move {
        let began = Instant::now();
        match timeout_at(until, examine(config, server, until)).await {
            Ok(found) => found,
            Err(_elapsed) => Some(format!("no answer within {:.1?}", began.elapsed())),
        }
    }))
    .await
}

async fn examine(config: &ConnectConfig, server: &str, until: Instant) -> Option<String> {
    let addresses = match tokio::net::lookup_host(server).await {
        Ok(addresses) => addresses.collect::<Vec<_>>(),
        Err(error) => return Some(format!("name not resolved: {error}")),
    };
    #[cfg(feature = "tls")]
    if let Some(options) = &config.tls {
        return tls::shake_hands(options, server, addresses, config.session_timeout, until).await;
    }
    let (mut found, _only_for_tls) = (None, until);
    for address in addresses {
        match greet(address, config.session_timeout).await {
            Ok(_) => return None,
            Err(error) => found = Some(error.to_string()),
        }
    }
    found
}

use std::sync::Arc;
use std::time::Duration;

use curator_discovery::ServiceCache;
use futures_util::StreamExt as _;
use tonic::transport::channel::Change;
use tonic::transport::{Channel, Endpoint};

/// Returns a channel that sends each request to one of the enabled instances. The task ends with the cache.
pub fn channel(cache: &ServiceCache<()>) -> Channel {
    let (channel, endpoints) = Channel::balance_channel::<Arc<str>>(64);
    let connect = |address| Endpoint::from_shared(format!("http://{address}"));
    let mut changes = cache.discover(|instance| instance.host_and_port(), connect);
    tokio::spawn(async move {
        while let Some(Ok(change)) = changes.next().await {
            let change = match change {
                tower::discover::Change::Insert(node, Ok(endpoint)) => {
                    Change::Insert(node, endpoint.connect_timeout(Duration::from_secs(1)))
                }
                tower::discover::Change::Insert(node, Err(_)) | tower::discover::Change::Remove(node) => {
                    Change::Remove(node)
                }
            };
            if endpoints.send(change).await.is_err() {
                return;
            }
        }
    });
    channel
}

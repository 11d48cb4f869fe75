use std::net::SocketAddr;

use curator_discovery::ServiceCache;
use reqwest::dns::{Addrs, Name, Resolve, Resolving};

/// Resolves the host of each address to the enabled instances, in another order each time.
pub struct Instances(pub ServiceCache<()>);

impl Resolve for Instances {
    fn resolve(&self, _host: Name) -> Resolving {
        let instances = self.0.instances();
        let enabled = instances.iter().filter(|instance| instance.enabled);
        let mut found: Vec<SocketAddr> = enabled.filter_map(|i| i.host_and_port()?.parse().ok()).collect();
        let start = std::time::UNIX_EPOCH.elapsed().map_or(0, |time| time.subsec_nanos() as usize);
        let middle = start % found.len().max(1);
        found.rotate_left(middle);
        Box::pin(async move { Ok(Box::new(found.into_iter()) as Addrs) })
    }
}

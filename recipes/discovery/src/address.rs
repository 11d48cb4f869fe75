//! The address of this host that other hosts can reach: the source address of packets to ZooKeeper's servers.
//!
//! A UDP socket shows it without a packet: `connect` asks the routing table alone. So it works with each client, and
//! without a connection. A TCP connection to the same server has the same source address, unless the program binds it.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::time::Duration;

use curator_framework::CuratorFramework;
use curator_framework::recipe::{Budget, RecipeClient as _};
use tokio::net::{UdpSocket, lookup_host};

/// The limit of the look-ups of the servers' names.
const LONGEST_LOOKUP: Duration = Duration::from_secs(2);

/// Returns this host's address; `None` if it has none that can be found.
pub(crate) async fn local_address(client: &CuratorFramework) -> Option<IpAddr> {
    let mut sources = Vec::new();
    let search = async {
        for server in client.servers() {
            sources.extend(sources_towards(&server).await);
            if choose(&sources).is_some_and(|address| !address.is_loopback()) {
                return;
            }
        }
    };
    // The addresses that were found until then count.
    let _in_time = Budget::of(LONGEST_LOOKUP).limit(search).await;
    choose(&sources).or_else(|| {
        let host = std::str::from_utf8(client.default_data()).ok()?;
        choose(&[host.parse().ok()?])
    })
}

/// Returns the source addresses of packets to a server, in the order of the server's addresses.
async fn sources_towards(server: &str) -> Vec<IpAddr> {
    let Ok(addresses) = lookup_host(server).await else { return Vec::new() };
    let mut sources = Vec::new();
    for address in addresses {
        let any: SocketAddr = match address {
            SocketAddr::V4(_) => (Ipv4Addr::UNSPECIFIED, 0).into(),
            SocketAddr::V6(_) => (Ipv6Addr::UNSPECIFIED, 0).into(),
        };
        if let Ok(socket) = UdpSocket::bind(any).await {
            if socket.connect(address).await.is_ok() {
                sources.extend(socket.local_addr().map(|address| address.ip().to_canonical()));
            }
        }
    }
    sources
}

/// Returns the first address that other hosts can use, otherwise a loopback address.
fn choose(sources: &[IpAddr]) -> Option<IpAddr> {
    let is_usable = |address: &&IpAddr| match address {
        // Needs the number of an interface, which differs from host to host.
        IpAddr::V6(address) if address.is_unicast_link_local() => false,
        address => !address.is_unspecified(),
    };
    let mut usable = sources.iter().filter(is_usable);
    let first = usable.clone().next();
    usable.find(|address| !address.is_loopback()).or(first).copied()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn chosen(sources: &[&str]) -> Option<String> {
        let sources: Vec<IpAddr> = sources.iter().map(|source| source.parse().unwrap()).collect();
        choose(&sources).map(|address| address.to_string())
    }

    #[test]
    fn address_that_other_hosts_can_use_is_chosen() {
        assert_eq!(chosen(&[]), None);
        assert_eq!(chosen(&["0.0.0.0", "::", "fe80::1"]), None);
        assert_eq!(chosen(&["::1", "127.0.0.1"]).as_deref(), Some("::1"));
        assert_eq!(chosen(&["127.0.0.1", "fe80::1", "10.0.0.7", "10.0.0.8"]).as_deref(), Some("10.0.0.7"));
        assert_eq!(chosen(&["::1", "fd00::2"]).as_deref(), Some("fd00::2"));
    }

    #[tokio::test]
    async fn source_towards_this_host_is_its_loopback_address() {
        assert_eq!(sources_towards("127.0.0.1:2181").await, [IpAddr::from(Ipv4Addr::LOCALHOST)]);
        assert!(sources_towards("no such host:1").await.is_empty());
    }
}

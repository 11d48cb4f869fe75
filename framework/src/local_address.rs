//! This host's address.

use std::net::ToSocketAddrs;
use std::sync::LazyLock;

/// The address that this host's name resolves to, as text; empty if it does not: Java's
/// `InetAddress.getLocalHost().getHostAddress()`, with which Curator marks the nodes that it creates.
pub(crate) fn local_address() -> &'static str {
    static ADDRESS: LazyLock<String> = LazyLock::new(|| {
        let name = rustix::system::uname();
        let found = name.nodename().to_str().ok().and_then(|name| (name, 0).to_socket_addrs().ok());
        let mut addresses: Vec<_> = found.into_iter().flatten().map(|address| address.ip()).collect();
        // Java prefers IPv4.
        addresses.sort_by_key(|address| !address.is_ipv4());
        addresses.first().map(ToString::to_string).unwrap_or_default()
    });
    &ADDRESS
}

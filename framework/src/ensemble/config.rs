//! The ensemble's configuration, as the servers report it.

use std::fmt;
use std::net::IpAddr;

use crate::model::Stat;

/// The servers of the ensemble, as the servers themselves report them: Java's `QuorumVerifier`.
///
/// A server that is not part of an ensemble has an empty configuration. A server reports only the client addresses that
/// its configuration file names.
///
/// # Examples
///
/// ```no_run
/// # async fn run(client: curator_framework::CuratorFramework) -> Result<(), curator_framework::Error> {
/// let config = client.get_config().for_ensemble().await?;
/// println!("version {:?}: {}", config.version(), config.client_addresses().join(","));
/// # Ok(())
/// # }
/// ```
#[derive(Clone, PartialEq, Eq)]
pub struct EnsembleConfig {
    data: Vec<u8>,
    stat: Stat,
}

impl EnsembleConfig {
    pub(crate) const fn new(data: Vec<u8>, stat: Stat) -> Self {
        Self { data, stat }
    }

    /// Returns the text, as the server has it: what Curator's `forEnsemble` returns.
    #[must_use]
    pub fn data(&self) -> &[u8] {
        &self.data
    }

    /// Returns the stat of the configuration's node.
    #[must_use]
    pub const fn stat(&self) -> &Stat {
        &self.stat
    }

    /// Returns the configuration's version, for [`from_config`](crate::ReconfigBuilder::from_config).
    #[must_use]
    pub fn version(&self) -> Option<i64> {
        entries(&self.data)
            .find(|(key, _)| key == "version")
            .and_then(|(_, value)| i64::from_str_radix(&value, 16).ok())
    }

    /// Returns the servers, each in the form that [`with_new_members`](crate::ReconfigBuilder::with_new_members) takes:
    /// `server.1=host:2888:3888:participant;host:2181`.
    #[must_use]
    pub fn members(&self) -> Vec<String> {
        let servers = entries(&self.data).filter(|(key, _)| key.starts_with("server."));
        servers.map(|(key, value)| format!("{key}={value}")).collect()
    }

    /// Returns the addresses for clients, `host:port` each, sorted: Curator's
    /// `EnsembleTracker.configToConnectionString`. For a server that listens on all its addresses, it is the one at
    /// which the other servers reach it. A server without a port for clients is left out.
    #[must_use]
    #[doc(alias = "configToConnectionString")]
    pub fn client_addresses(&self) -> Vec<String> {
        let servers = entries(&self.data).filter(|(key, _)| key.starts_with("server."));
        let mut addresses: Vec<_> = servers.filter_map(|(_, server)| client_address(&server)).collect();
        addresses.sort();
        addresses.dedup();
        addresses
    }
}

impl fmt::Debug for EnsembleConfig {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("EnsembleConfig").field(&String::from_utf8_lossy(&self.data)).finish()
    }
}

/// Returns the keys and values of the lines `key=value`.
fn entries(data: &[u8]) -> impl Iterator<Item = (String, String)> {
    let lines: Vec<_> = String::from_utf8_lossy(data)
        .lines()
        .filter_map(|line| line.split_once('='))
        .map(|(key, value)| (key.trim().to_owned(), value.trim().to_owned()))
        .collect();
    lines.into_iter()
}

/// Returns the address for clients in `host:port:port[|host:port:port …][:role];[host:]port`.
fn client_address(server: &str) -> Option<String> {
    let (server, client) = server.split_once(';')?;
    let (host, port) = match client.rsplit_once(':') {
        Some((host, port)) => (Some(host), port),
        None => (None, client),
    };
    let port: u16 = port.parse().ok().filter(|port| *port != 0)?;
    let host = match host.filter(|host| !is_any(host)) {
        Some(host) => host,
        // An IPv6 address is in brackets.
        None => match server.strip_prefix('[').and_then(|server| server.split_once(']')) {
            Some((host, _)) => host,
            None => server.split_once(':')?.0,
        },
    };
    let host = host.trim_start_matches('[').trim_end_matches(']');
    let bracketed = host.contains(':');
    (!host.is_empty()).then(|| if bracketed { format!("[{host}]:{port}") } else { format!("{host}:{port}") })
}

/// Returns `true` for the address that means all addresses of a host.
fn is_any(host: &str) -> bool {
    let host = host.trim_start_matches('[').trim_end_matches(']');
    host.parse::<IpAddr>().is_ok_and(|address| address.is_unspecified())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ensemble::provider::parse_connect_string;

    fn config(text: &str) -> EnsembleConfig {
        EnsembleConfig::new(text.as_bytes().to_vec(), Stat::default())
    }

    /// Curator's `TestReconfiguration.testConfigToConnectionString…`, `testIPv6Wildcard…` and `testMixedIP…`. An IPv6
    /// address is put into brackets, without which a client could not read it.
    #[test]
    fn the_address_for_clients_is_found_in_all_its_forms() {
        for (server, client) in [
            ("10.1.2.3:2888:3888:participant;10.2.3.4:2181", "10.2.3.4:2181"),
            ("[1010:1:2:3:4:5:6:7]:2888:3888:participant;[2001:db8::7334]:2181", "[2001:db8::7334]:2181"),
            ("10.1.2.3:2888:3888:participant;2181", "10.1.2.3:2181"),
            ("10.1.2.3:2888:3888:participant;0.0.0.0:2181", "10.1.2.3:2181"),
            ("10.1.2.3:2888:3888;2181", "10.1.2.3:2181"),
            ("[2001:db8::7334]:2888:3888:participant;[::]:2181", "[2001:db8::7334]:2181"),
            ("[1010:1:2:3:4:5:6:7]:2888:3888:participant;[::0]:2181", "[1010:1:2:3:4:5:6:7]:2181"),
            ("[1010:1:2:3:4:5:6:7]:2888:3888:participant;[0:0:0:0:0:0:0:0]:2181", "[1010:1:2:3:4:5:6:7]:2181"),
            ("10.1.2.3:2888:3888:participant;[::]:2181", "10.1.2.3:2181"),
            ("[2001:db8::7334]:2888:3888:participant;127.0.0.1:2181", "127.0.0.1:2181"),
            ("zk1.example:2888:3888:observer;zk1.example:2181", "zk1.example:2181"),
            ("a:2888:3888|b:2889:3889:participant;2181", "a:2181"),
        ] {
            let addresses = config(&format!("server.1={server}")).client_addresses();
            assert_eq!(addresses, [client], "{server}");
            assert_eq!(parse_connect_string(&addresses[0]).unwrap().servers, [client], "{server}");
        }
    }

    /// Curator's `TestReconfiguration.testConfigToConnectionStringNoClientAddrOrPort`.
    #[test]
    fn what_has_no_address_for_clients_is_left_out() {
        for server in ["", "10.1.2.3:2888:3888:participant", "a:1:2;", "a:1:2;0", "a:1:2;x", "a:1:2;a:70000", ";2181"] {
            assert_eq!(config(&format!("server.1={server}")).client_addresses(), [""; 0], "{server}");
        }
        assert_eq!(config("").client_addresses(), [""; 0]);
        assert_eq!(config("no words\n=\n\u{0}").client_addresses(), [""; 0]);
    }

    #[test]
    fn a_whole_configuration_is_read() {
        let lines = ["server.2=b:1:2:participant;b:2181", "server.10=a:1:2:observer;a:2181", "server.3=b:1:2;b:2181"];
        let text = format!("{}\ngroup.1=2:3\nweight.2=1\nversion=10000000a\n", lines.join("\n"));
        let whole = config(&text);
        assert_eq!(whole.client_addresses(), ["a:2181", "b:2181"], "sorted, each once");
        assert_eq!(whole.members(), lines);
        assert_eq!(whole.version(), Some(0x1_0000_000a));
        assert_eq!(whole.data(), text.as_bytes());
        assert_eq!(config("version=x").version(), None);
    }
}

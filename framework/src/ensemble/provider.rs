//! The servers of an ensemble.

use std::fmt;
use std::net::Ipv6Addr;
use std::sync::Arc;

use parking_lot::Mutex;

use crate::error::{Error, Result};

const DEFAULT_PORT: u16 = 2181;

/// Provides the connect string of the ensemble: Curator's `EnsembleProvider`.
///
/// The client calls it at each attempt to connect. So a live session follows a changed list when its connection ends.
/// With the crate `zookeeper-async` a changed list counts from the next session on.
pub trait EnsembleProvider: Send + Sync + fmt::Debug + 'static {
    /// Returns the connect string, `host:port[,host:port …][/chroot]`. Must not block. The chroot must not change.
    #[doc(alias = "getConnectionString")]
    fn connect_string(&self) -> String;

    /// Takes the connect string that the servers report: Curator's `setConnectionString`. Only a client that [follows
    /// its ensemble](crate::CuratorFrameworkBuilder::ensemble_tracker) calls it. Must not block, and may do nothing.
    #[doc(alias = "setConnectionString")]
    fn set_connect_string(&self, connect_string: &str);
}

/// A connect string that changes only by a call: Curator's `FixedEnsembleProvider`. Clones share it.
#[derive(Debug, Clone)]
pub struct FixedEnsembleProvider {
    connect_string: Arc<Mutex<String>>,
}

impl FixedEnsembleProvider {
    /// Creates a provider of this connect string.
    #[must_use]
    pub fn new(connect_string: impl Into<String>) -> Self {
        Self { connect_string: Arc::new(Mutex::new(connect_string.into())) }
    }

    /// Changes the connect string: Curator's `setConnectionString`. It counts from the next attempt to connect on.
    #[doc(alias = "setConnectionString")]
    pub fn set_connect_string(&self, connect_string: impl Into<String>) {
        *self.connect_string.lock() = connect_string.into();
    }
}

impl EnsembleProvider for FixedEnsembleProvider {
    fn connect_string(&self) -> String {
        self.connect_string.lock().clone()
    }

    fn set_connect_string(&self, connect_string: &str) {
        Self::set_connect_string(self, connect_string);
    }
}

/// The parts of a connect string.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Ensemble {
    /// The servers, each with its port.
    pub(crate) servers: Vec<String>,
    /// The chroot: empty or a path.
    pub(crate) chroot: String,
}

/// Reads a connect string, `host:port[,host:port …][/chroot]`.
pub(crate) fn parse_connect_string(connect_string: &str) -> Result<Ensemble> {
    let invalid = |reason: String| Err(Error::invalid_config("connect string", reason));
    if connect_string.trim().is_empty() {
        return invalid("it is empty".to_owned());
    }
    let (list, chroot) = match connect_string.trim().find('/') {
        Some(slash) => connect_string.trim().split_at(slash),
        None => (connect_string, ""),
    };
    let chroot = if chroot == "/" { "" } else { chroot };
    if let (false, Err(Error::InvalidPath { reason, .. })) =
        (chroot.is_empty(), crate::model::path::validate_path(chroot))
    {
        return invalid(format!("its chroot {chroot:?} is no path: {reason}"));
    }
    let mut servers = Vec::new();
    // Like Java, an empty entry, as behind the last comma, is left out.
    for server in list.split(',').map(str::trim).filter(|server| !server.is_empty()) {
        let (host, port) = match server.rfind(']') {
            Some(end) if server.starts_with('[') => (&server[..=end], server[end + 1..].strip_prefix(':')),
            _ if is_bare_ipv6(server) => {
                return invalid(format!(
                    "{server:?} is not a host and a port: an IPv6 address needs brackets, as in [::1]:2181"
                ));
            }
            _ => match server.split_once(':') {
                Some((host, port)) => (host, Some(port)),
                None => (server, None),
            },
        };
        let port = match port.map(str::parse::<u16>) {
            None => DEFAULT_PORT,
            Some(Ok(port)) if port != 0 => port,
            Some(_) => return invalid(format!("{server:?} has no valid port")),
        };
        let valid = |c: char| c.is_ascii_alphanumeric() || "-._[]:%".contains(c);
        if host.is_empty() || !host.chars().all(valid) || (host.contains(':') && !host.starts_with('[')) {
            return invalid(format!("{server:?} is not a host and a port"));
        }
        let zone = host.trim_end_matches(']').split_once('%').map(|(_, zone)| zone.parse::<u32>());
        if zone.is_some_and(|number| number.is_err()) {
            return invalid(format!("{server:?} has a zone that is not the number of a network interface, as in %2"));
        }
        servers.push(format!("{host}:{port}"));
    }
    if servers.is_empty() {
        return invalid("it names no server".to_owned());
    }
    Ok(Ensemble { servers, chroot: chroot.to_owned() })
}

/// Returns `true` for an IPv6 address without brackets, with or without a port.
fn is_bare_ipv6(server: &str) -> bool {
    let is_address = |text: &str| text.split('%').next().is_some_and(|address| address.parse::<Ipv6Addr>().is_ok());
    is_address(server) || server.rsplit_once(':').is_some_and(|(address, _)| is_address(address))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn servers_with_and_without_ports() {
        for (given, servers) in [
            ("localhost", vec!["localhost:2181"]),
            ("a:1, b:2,c", vec!["a:1", "b:2", "c:2181"]),
            ("127.0.0.1:2181", vec!["127.0.0.1:2181"]),
            ("[::1]:2182,[fe80::1]", vec!["[::1]:2182", "[fe80::1]:2181"]),
            ("[fe80::1%2]:2182", vec!["[fe80::1%2]:2182"]),
            ("a:1,,b:2,", vec!["a:1", "b:2"]),
        ] {
            assert_eq!(parse_connect_string(given).unwrap().servers, servers, "{given}");
        }
    }

    #[test]
    fn what_is_wrong_is_named() {
        for (given, reason) in [
            ("", "it is empty"),
            ("  ", "it is empty"),
            (",", "it names no server"),
            ("/chroot", "it names no server"),
            ("a:x", "\"a:x\" has no valid port"),
            ("a:0", "\"a:0\" has no valid port"),
            ("a:70000", "\"a:70000\" has no valid port"),
            (":2181", "\":2181\" is not a host and a port"),
            ("::1", "\"::1\" is not a host and a port: an IPv6 address needs brackets, as in [::1]:2181"),
            ("a:1,::1:44", "\"::1:44\" is not a host and a port: an IPv6 address needs brackets, as in [::1]:2181"),
            ("[::1%lo]:1", "\"[::1%lo]:1\" has a zone that is not the number of a network interface, as in %2"),
            ("a:b:c", "\"a:b:c\" has no valid port"),
            ("two words:1", "\"two words:1\" is not a host and a port"),
        ] {
            let error = parse_connect_string(given).unwrap_err();
            assert_eq!(error.to_string(), format!("invalid connect string: {reason}"), "{given}");
        }
    }

    #[test]
    fn a_chroot_stands_behind_the_servers() {
        for (given, chroot) in [("a:1/locks", "/locks"), ("a:1,b:2/apps/locks", "/apps/locks"), ("a/", ""), ("a", "")] {
            assert_eq!(parse_connect_string(given).unwrap().chroot, chroot, "{given}");
        }
        let error = parse_connect_string("a:1/locks/").unwrap_err().to_string();
        assert_eq!(error, "invalid connect string: its chroot \"/locks/\" is no path: it ends with a slash");
    }

    #[test]
    fn a_fixed_provider_changes_when_it_is_told_to() {
        let provider = FixedEnsembleProvider::new("a:1");
        provider.clone().set_connect_string("b:2");
        assert_eq!(provider.connect_string(), "b:2");
    }
}

//! Which servers there are.

use crate::error::{Error, Result};

const DEFAULT_PORT: u16 = 2181;

/// The servers of a connect string, `host:port[,host:port …]`, each with its port.
pub(crate) fn parse_connect_string(connect_string: &str) -> Result<Vec<String>> {
    let invalid = |reason: String| Err(Error::invalid_config("connect string", reason));
    if connect_string.trim().is_empty() {
        return invalid("it is empty".to_owned());
    }
    if let Some((_, chroot)) = connect_string.split_once('/') {
        return invalid(format!(
            "{connect_string:?} has a chroot (/{chroot}), which is not supported: put it before your paths"
        ));
    }
    let mut servers = Vec::new();
    for server in connect_string.split(',').map(str::trim) {
        // An IPv6 address stands in brackets, so that its colons are not taken for the port's.
        let (host, port) = match server.rfind(']') {
            Some(end) if server.starts_with('[') => (&server[..=end], server[end + 1..].strip_prefix(':')),
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
        servers.push(format!("{host}:{port}"));
    }
    Ok(servers)
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
        ] {
            assert_eq!(parse_connect_string(given).unwrap(), servers, "{given}");
        }
    }

    #[test]
    fn what_is_wrong_is_named() {
        for (given, reason) in [
            ("", "it is empty"),
            ("  ", "it is empty"),
            ("a:1,,b:2", "\"\" is not a host and a port"),
            ("a:x", "\"a:x\" has no valid port"),
            ("a:0", "\"a:0\" has no valid port"),
            ("a:70000", "\"a:70000\" has no valid port"),
            (":2181", "\":2181\" is not a host and a port"),
            ("::1", "\"::1\" has no valid port"),
            ("two words:1", "\"two words:1\" is not a host and a port"),
        ] {
            let error = parse_connect_string(given).unwrap_err();
            assert_eq!(error.to_string(), format!("invalid connect string: {reason}"), "{given}");
        }
    }

    #[test]
    fn a_chroot_is_refused_by_name() {
        let error = parse_connect_string("a:1/locks").unwrap_err().to_string();
        assert!(error.contains("chroot (/locks)"), "{error}");
    }
}

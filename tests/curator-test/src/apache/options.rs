//! The options that a single server and the servers of a cluster share.

use std::fmt::Write as _;
use std::io;
use std::net::{Ipv4Addr, SocketAddr, TcpListener, UdpSocket};
use std::path::{Path, PathBuf};
use std::time::Duration;

use super::error::ApacheError;
use super::jars;
use super::launcher::Launcher;
use super::node::data_folder;

/// The number of ports that are tried before the start fails.
const PORT_TRIES: usize = 100;
/// The number of starts before the error is returned, if another process takes a port first.
const START_TRIES: usize = 3;

#[derive(Debug, Clone)]
pub(super) struct Options {
    pub(super) tick: Duration,
    pub(super) session_timeouts: Option<(Duration, Duration)>,
    pub(super) reconfig: bool,
    pub(super) java: Option<PathBuf>,
    pub(super) jars: PathBuf,
    pub(super) compiles_fully: bool,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            tick: Duration::from_secs(1),
            session_timeouts: None,
            reconfig: false,
            java: None,
            jars: jars::folder(),
            compiles_fully: false,
        }
    }
}

impl Options {
    /// Checks these options, and starts with them.
    pub(super) fn start<T>(&self, start_once: impl Fn(Launcher) -> Result<T, ApacheError>) -> Result<T, ApacheError> {
        self.check()?;
        let launcher = Launcher::find(self.java.as_deref(), &self.jars, self.compiles_fully)?;
        let mut tries = START_TRIES;
        loop {
            tries -= 1;
            match start_once(launcher.clone()) {
                // Another process may take a port between our check and the bind.
                Err(ApacheError::PortTaken { .. }) if tries > 0 => {}
                done => return done,
            }
        }
    }

    fn check(&self) -> Result<(), ApacheError> {
        let in_range = |time: Duration| {
            let millis = time.as_millis();
            (1..=i32::MAX as u128).contains(&millis)
        };
        if !in_range(self.tick) {
            return Err(ApacheError::InvalidOption("the tick is not 1 ms to 24 days"));
        }
        if let Some((min, max)) = self.session_timeouts {
            if !in_range(min) || !in_range(max) {
                return Err(ApacheError::InvalidOption("a session timeout is not 1 ms to 24 days"));
            }
            if min > max {
                return Err(ApacheError::InvalidOption("the shortest session timeout is above the longest"));
            }
        }
        Ok(())
    }

    pub(super) fn config(&self, folder: &Path, address: SocketAddr) -> String {
        let mut config = format!(
            "tickTime={}\n\
             dataDir={}\n\
             clientPortAddress={}\n\
             clientPort={}\n\
             maxClientCnxns=0\n\
             admin.enableServer=false\n\
             4lw.commands.whitelist=*\n\
             autopurge.purgeInterval=0\n\
             reconfigEnabled={}\n",
            self.tick.as_millis(),
            data_folder(folder).display(),
            address.ip(),
            address.port(),
            self.reconfig,
        );
        if let Some((min, max)) = self.session_timeouts {
            // Writing to a string cannot fail.
            let _ = writeln!(config, "minSessionTimeout={}", min.as_millis());
            let _ = writeln!(config, "maxSessionTimeout={}", max.as_millis());
        }
        config
    }
}

/// ClaimedPorts that no other server of this kind takes, whether or not a server listens on them, until the value is dropped.
#[derive(Debug)]
pub(super) struct ClaimedPorts {
    pub(super) addresses: Vec<SocketAddr>,
    /// A server that is stopped must find its ports again, so a socket of UDP with the same number claims each of them.
    _claims: Vec<UdpSocket>,
}

impl ClaimedPorts {
    /// Claims free ports below those that the system gives to outgoing connections.
    ///
    /// Otherwise a client could take the port while the server is stopped, or even connect to itself by it.
    pub(super) fn claim(count: usize) -> io::Result<Self> {
        let (mut addresses, mut claims) = (Vec::new(), Vec::new());
        let mut tries = count + PORT_TRIES;
        while addresses.len() < count {
            tries -= 1;
            match claim(SocketAddr::from((Ipv4Addr::LOCALHOST, rand::random_range(15_000..32_000)))) {
                Ok((address, claim)) => {
                    addresses.push(address);
                    claims.push(claim);
                }
                Err(error) if tries == 0 => return Err(error),
                Err(_) => {}
            }
        }
        Ok(Self { addresses, _claims: claims })
    }
}

fn claim(address: SocketAddr) -> io::Result<(SocketAddr, UdpSocket)> {
    // First, so that a check of a port never disturbs the start of the server that has claimed it.
    let claim = UdpSocket::bind(address)?;
    TcpListener::bind(address)?;
    Ok((address, claim))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn port_of_a_stopped_server_is_not_given_to_another() {
        let ports = ClaimedPorts::claim(1).unwrap();
        let address = ports.addresses[0];
        let error = claim(address).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::AddrInUse);
        drop(ports);
        assert_eq!(claim(address).unwrap().0, address);
    }
}

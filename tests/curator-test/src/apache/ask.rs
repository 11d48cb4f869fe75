//! Four-letter commands.

use std::io::{self, Read as _, Write as _};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, UNIX_EPOCH};

/// The limit of one command: a command sent while the server starts may never be answered, the next one is.
const COMMAND_LIMIT: Duration = Duration::from_millis(250);

/// Sends a four-letter command and reads the reply.
pub(super) fn command(address: SocketAddr, word: &str) -> io::Result<String> {
    let mut stream = TcpStream::connect_timeout(&address, COMMAND_LIMIT)?;
    stream.set_read_timeout(Some(COMMAND_LIMIT))?;
    stream.write_all(word.as_bytes())?;
    stream.shutdown(Shutdown::Write)?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer)?;
    Ok(answer)
}

/// Returns the version of a ZooKeeper server, such as `[3, 8, 0]`, so that a test can name the versions that it expects
/// something of.
///
/// # Errors
/// The server does not reply to the four-letter word `srvr`, or the reply names no version.
pub fn server_version(address: SocketAddr) -> io::Result<[u32; 3]> {
    version_in(&command(address, "srvr")?).ok_or_else(|| io::Error::other("the server names no version"))
}

/// Returns the path of a node that no other test uses on a shared server. All such paths have one length.
#[doc(hidden)]
#[must_use]
pub fn unique_root(name: &str) -> String {
    static NEXT: AtomicUsize = AtomicUsize::new(0);
    // A process may have the id of an earlier one, but not in the same second.
    let now = UNIX_EPOCH.elapsed().unwrap_or_default().as_secs();
    let next = NEXT.fetch_add(1, Ordering::Relaxed);
    format!("/{name}-{now:08x}{:08x}{next:04x}", std::process::id())
}

fn version_in(answer: &str) -> Option<[u32; 3]> {
    // "Zookeeper version: 3.8.0-${mvngit.commit.id}, built on …"
    let version = answer.trim_start_matches(|c: char| !c.is_ascii_digit());
    let mut parts = version.splitn(3, '.').map(|part| {
        let end = part.find(|c: char| !c.is_ascii_digit()).unwrap_or(part.len());
        part[..end].parse().ok()
    });
    Some([parts.next()??, parts.next()??, parts.next()??])
}

/// Returns the version as Apache writes it, such as `3.8.0`.
pub(super) fn version(address: SocketAddr) -> io::Result<String> {
    server_version(address).map(|[major, minor, patch]| format!("{major}.{minor}.{patch}"))
}

/// The role of a serving server in its cluster.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Mode {
    Follower,
    Leader {
        /// The newest transaction, with the leader's epoch in the upper half.
        zxid: u64,
    },
}

/// Returns the role that the server reports; `None` if it does not serve or does not reply.
pub(super) fn mode(address: SocketAddr) -> Option<Mode> {
    mode_in(&command(address, "srvr").ok()?)
}

fn mode_in(answer: &str) -> Option<Mode> {
    let line = |name: &str| answer.lines().find_map(|line| line.strip_prefix(name)).map(str::trim);
    match line("Mode:")? {
        "follower" => Some(Mode::Follower),
        "leader" => {
            let zxid = u64::from_str_radix(line("Zxid:")?.trim_start_matches("0x"), 16).ok()?;
            Some(Mode::Leader { zxid })
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answers_are_understood() {
        assert_eq!(version_in("Zookeeper version: 3.10.25-${mvngit.commit.id}, built on x\n"), Some([3, 10, 25]));
        assert_eq!(version_in("Zookeeper version: 3.8\n"), None);
        assert_eq!(version_in("This ZooKeeper instance is not currently serving requests\n"), None);
        let answer = |mode| format!("Zookeeper version: 3.8.0\nZxid: 0x20000000a\nMode: {mode}\nNode count: 5\n");
        assert_eq!(mode_in(&answer("leader")), Some(Mode::Leader { zxid: 0x2_0000_000a }));
        assert_eq!(mode_in(&answer("follower")), Some(Mode::Follower));
        assert_eq!(mode_in(&answer("standalone")), None);
        assert_eq!(mode_in("This ZooKeeper instance is not currently serving requests\n"), None);
        assert_eq!(mode_in(""), None);
    }
}

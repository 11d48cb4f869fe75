//! Four-letter words: commands that report the server's state.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::net::SocketAddr;

use super::core::{ConnectionId, Core};

/// The version that the server reports.
const VERSION: &str = "3.8.0-curator-test, built on 1970-01-01 00:00 UTC";

/// A word that the server knows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Word {
    Ruok,
    Srvr,
    Stat,
    Mntr,
}

impl Word {
    /// Returns the word that a connection begins with; `None` if it begins with a frame.
    pub(super) fn from_bytes(bytes: [u8; 4]) -> Option<Self> {
        match &bytes {
            b"ruok" => Some(Self::Ruok),
            b"srvr" => Some(Self::Srvr),
            b"stat" => Some(Self::Stat),
            b"mntr" => Some(Self::Mntr),
            _ => None,
        }
    }
}

/// Returns the reply to a word. `peers` are the addresses of the connections.
pub(super) fn answer(word: Word, core: &mut Core, peers: &BTreeMap<ConnectionId, SocketAddr>) -> String {
    match word {
        Word::Ruok => "imok".to_owned(),
        Word::Srvr | Word::Stat => status(core, (word == Word::Stat).then_some(peers)),
        Word::Mntr => monitor(core),
    }
}

fn status(core: &mut Core, peers: Option<&BTreeMap<ConnectionId, SocketAddr>>) -> String {
    let mut text = format!("Zookeeper version: {VERSION}\n");
    if let Some(peers) = peers {
        text.push_str("Clients:\n");
        for address in peers.values() {
            // Writing to a string cannot fail.
            let _ = writeln!(text, " /{address}[1](queued=0,recved=0,sent=0)");
        }
        text.push('\n');
    }
    let received = core.log().total();
    let connections = core.connections().len();
    let _ = write!(
        text,
        "Latency min/avg/max: 0/0.0/0\nReceived: {received}\nSent: {received}\nConnections: {connections}\n\
         Outstanding: 0\nZxid: {:#x}\nMode: standalone\nNode count: {}\n",
        core.zxid(),
        core.tree.len(),
    );
    text
}

fn monitor(core: &mut Core) -> String {
    let received = core.log().total().to_string();
    let values = [
        ("version", VERSION.to_owned()),
        ("server_state", "standalone".to_owned()),
        ("num_alive_connections", core.connections().len().to_string()),
        ("outstanding_requests", "0".to_owned()),
        ("packets_received", received.clone()),
        ("packets_sent", received),
        ("znode_count", core.tree.len().to_string()),
        ("watch_count", core.watches.len().to_string()),
        ("ephemerals_count", core.tree.ephemerals_len().to_string()),
        ("approximate_data_size", core.tree.size().to_string()),
        ("global_sessions", core.session_ids().len().to_string()),
    ];
    let mut text = String::new();
    for (name, value) in values {
        let _ = writeln!(text, "zk_{name}\t{value}");
    }
    text
}

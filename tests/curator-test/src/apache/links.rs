//! The connections between the servers of a cluster: each of them runs through a proxy.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::net::SocketAddr;

use parking_lot::Mutex;

use crate::proxy::{FaultProxy, Speech};

/// The addresses where a server listens for the others.
#[derive(Debug, Clone, Copy)]
pub(super) struct Ports {
    pub(super) quorum: SocketAddr,
    pub(super) election: SocketAddr,
}

/// The connections from one server to another.
#[derive(Debug)]
struct Link {
    quorum: FaultProxy,
    election: FaultProxy,
}

#[derive(Debug)]
pub(super) struct Links {
    /// Keyed by the connecting server and its peer.
    ways: BTreeMap<(usize, usize), Link>,
    /// Pairs that are cut off from each other, the lower number first.
    cut: Mutex<BTreeSet<(usize, usize)>>,
}

impl Links {
    pub(super) fn start(servers: &[Ports]) -> io::Result<Self> {
        let pairs = || {
            let all = 0..servers.len();
            all.clone().flat_map(move |from| all.clone().map(move |to| (from, to))).filter(|(from, to)| from != to)
        };
        let mut elections = BTreeMap::new();
        for pair in pairs() {
            let listening = FaultProxy::listen()?;
            elections.insert(pair, (listening.address()?, listening));
        }
        let addresses: BTreeMap<_, _> = elections.iter().map(|(pair, (address, _))| (*pair, *address)).collect();
        let mut ways = BTreeMap::new();
        for ((from, to), (_, election)) in elections {
            // A connecting server announces where it listens, and its peer may connect back there.
            let announced = addresses[&(to, from)];
            let link = Link {
                quorum: FaultProxy::listen()?.start(servers[to].quorum, Speech::Quorum)?,
                election: election.start(servers[to].election, Speech::Election { announced })?,
            };
            ways.insert((from, to), link);
        }
        Ok(Self { ways, cut: Mutex::default() })
    }

    /// Returns the ports where server `from` reaches server `to`.
    pub(super) fn ports(&self, from: usize, to: usize) -> Ports {
        let link = &self.ways[&(from, to)];
        Ports { quorum: link.quorum.address(), election: link.election.address() }
    }

    pub(super) fn cut(&self, one: usize, other: usize) {
        self.cut.lock().insert(pair(one, other));
        self.each_between(one, other, FaultProxy::partition);
    }

    pub(super) fn repair(&self, one: usize, other: usize) {
        self.cut.lock().remove(&pair(one, other));
        self.each_between(one, other, FaultProxy::repair);
    }

    pub(super) fn is_cut(&self, one: usize, other: usize) -> bool {
        self.cut.lock().contains(&pair(one, other))
    }

    /// Returns the numbers of open connections, of followers with their leader and of elections.
    pub(super) fn connections(&self) -> (usize, usize) {
        let quorum = self.ways.values().map(|link| link.quorum.connections()).sum();
        let election = self.ways.values().map(|link| link.election.connections()).sum();
        (quorum, election)
    }

    fn each_between(&self, one: usize, other: usize, act: impl Fn(&FaultProxy)) {
        for way in [(one, other), (other, one)] {
            if let Some(link) = self.ways.get(&way) {
                act(&link.quorum);
                act(&link.election);
            }
        }
    }
}

fn pair(one: usize, other: usize) -> (usize, usize) {
    (one.min(other), one.max(other))
}

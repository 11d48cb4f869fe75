//! The properties, and when they are checked.
//!
//! | property | checked | statement |
//! | --- | --- | --- |
//! | proof | at each grant | There is a state of the log in which the contender's node exists and no node ahead of it blocks it. For a listing it is not older than the state of the session's server when the request was sent; for a hand-off not older than the notified deletion. |
//! | exclusion | at each grant | Of the holders that were not notified of a loss, those with a node at the leader are compatible with the new one. |
//! | wish | at each grant | A candidate that has followed the leader's wish leads before those that have not. |
//! | all or none | at the end of a request for several leases | In some state of the log the limit covers all of its nodes. That state is not older than the session's server was when the last listing was sent. |
//! | same session | at each grant | A holder of the same session was notified of the loss of its node if the session was. |
//! | no stuck waiter | when nothing is outstanding | No waiter with a node could be granted; a waiter that watches its own node has one; each node has a contender; a holder has a node. A lock is held if a request has a part of its leases. |
//! | progress | over the whole search | The steps that happen by themselves come to an end. |
//!
//! *First come, first served* follows from *proof*: no node ahead that blocks exists.
//!
//! A holder that lost its node to a fault (a kill, an administrator) may be notified after the next grant. That is
//! prompt, not provable, so exclusion counts only holders with a node. One transaction of an administrator that deletes
//! the nodes of the holder and of the waiter is such a fault: the hand-off may name the state just before it.

use std::ops::Range;

use crate::engine::model::scenario::Kind;
use crate::engine::model::state::{Contender, Locks, Phase, Position};

/// The cause of a grant.
#[derive(Debug, Clone, Copy)]
pub(super) enum Cause {
    /// A listing, sent when the session's server was at this position.
    Listed { sent: Position },
    /// The deletion of a node.
    HandOff(usize),
}

impl Locks {
    /// Returns whether the state at a position grants the lock to a node.
    fn is_next_at(&self, position: Position, own: usize, limit: u8) -> bool {
        let (index, own) = (own, &self.world.nodes[own]);
        let key = |node: usize| (self.world.nodes[node].data.number, self.world.nodes[node].data.name());
        let ahead = (0..self.world.nodes.len())
            .filter(|node| *node != index && self.world.nodes[*node].exists_at(position) && key(*node) < key(index));
        own.exists_at(position)
            && match own.data.kind {
                Kind::Mutex | Kind::Write | Kind::Latch => ahead.count() == 0,
                Kind::Lease => ahead.count() < usize::from(limit),
                Kind::Read => ahead.filter(|node| self.world.nodes[*node].data.kind == Kind::Write).count() == 0,
            }
    }
}

pub(super) fn check_grant(locks: &Locks, contender: usize, cause: Option<Cause>) {
    let it = &locks.contenders[contender];
    let (Some(own), Some(cause)) = (it.node, cause) else {
        panic!("contender {contender} was granted without a node or a reason");
    };
    let from = match cause {
        Cause::Listed { sent } => sent,
        Cause::HandOff(node) => locks.world.nodes[node].deleted.unwrap_or_default(),
    };
    // The session may be connected to a server that lags behind an earlier notification.
    let until = locks.world.sessions[it.session].position.max(from);
    let by_multi = matches!(cause, Cause::HandOff(_))
        && locks.world.nodes[own].deleted == Some(from)
        && locks.multis.contains(&from);
    let is_proven = by_multi || (from..=until).any(|position| locks.is_next_at(position, own, it.limit));
    assert!(is_proven, "contender {contender} was granted by {cause:?}, which proves nothing");
    let holds = |other: &usize| {
        let it = &locks.contenders[*other];
        *other != contender && (it.phase == Phase::Holds || it.is_part())
    };
    let holders = || (0..locks.contenders.len()).filter(holds);
    let is_untold = |other: usize| locks.contenders[other].is_notified && locks.contenders[other].session == it.session;
    assert!(
        !holders().any(is_untold),
        "contender {contender} was granted before a holder of its session was told of its loss"
    );
    if !locks.world.nodes[own].exists_at(locks.world.log) {
        return;
    }
    let there = || {
        let has_node = |other: &usize| {
            locks.contenders[*other].node.is_some_and(|node| locks.world.nodes[node].exists_at(locks.world.log))
        };
        holders().filter(has_node)
    };
    let are_compatible = match it.kind {
        Kind::Mutex | Kind::Write | Kind::Latch => there().count() == 0,
        Kind::Lease => there().count() < usize::from(it.limit),
        Kind::Read => there().all(|other| locks.contenders[other].kind == Kind::Read),
    };
    assert!(are_compatible, "contender {contender} was granted beside others");
    let has_moved = |node: usize| locks.moved & 1 << node != 0;
    assert!(
        has_moved(own) || !locks.world.there().any(has_moved),
        "contender {contender} was granted before a candidate that has followed a wish"
    );
}

/// Checks that a request holds all of its leases.
pub(super) fn check_request(locks: &Locks, request: Range<usize>, sent: Position) {
    let Contender { session, limit, .. } = locks.contenders[request.start];
    let node = |lease: usize| locks.contenders[lease].node;
    let holds_at = |position, lease| node(lease).is_some_and(|node| locks.is_next_at(position, node, limit));
    let until = locks.world.sessions[session].position.max(sent);
    let is_proven = (sent..=until).any(|position| request.clone().all(|lease| holds_at(position, lease)));
    assert!(is_proven, "contenders {request:?} were granted leases that they do not hold together");
}

/// Checks a world in which nothing is outstanding and no fault comes.
pub(super) fn check_quiet(locks: &Locks) {
    for (index, contender) in locks.contenders.iter().enumerate() {
        let limit = locks.limits[contender.session];
        let there = contender.node.filter(|node| locks.world.nodes[*node].exists_at(locks.world.log));
        match (&contender.phase, there) {
            (Phase::Wait(_), Some(node)) if locks.is_next_at(locks.world.log, node, limit) => {
                panic!("contender {index} waits although it could be granted");
            }
            (Phase::Wait(_), None) if contender.watches_own() => {
                panic!("contender {index} waits without a node");
            }
            (Phase::Holds | Phase::Part, None) => panic!("contender {index} was not told of its loss"),
            (Phase::Part, _) => {
                let holds = |it: &Contender| it.phase == Phase::Holds;
                assert!(locks.contenders.iter().any(holds), "contender {index} waits for others that wait for it");
            }
            (Phase::Wait(_) | Phase::Holds | Phase::Over, _) => {}
            (Phase::Idle, _) if locks.contenders[locks.request_of(index).start].phase != Phase::Idle => {}
            // Another contender has the turn, and waits for a lease.
            (Phase::Idle, _) if locks.turn.is_some() => {}
            (phase, _) => panic!("contender {index} is stuck in {phase:?}"),
        }
    }
    for (index, node) in locks.world.nodes.iter().enumerate().filter(|(_, node)| node.exists_at(locks.world.log)) {
        let is_of_node = |contender: &&Contender| contender.node == Some(index) && contender.phase != Phase::Over;
        assert!(locks.contenders.iter().any(|it| is_of_node(&it)), "node {} has no contender", node.data.name());
    }
}

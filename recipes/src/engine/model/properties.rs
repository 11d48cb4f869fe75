//! The properties, and when they are checked.
//!
//! | property | checked | statement |
//! | --- | --- | --- |
//! | proof | at each grant | There is a state of the log in which the own node exists and no node ahead of it blocks it. For a listing it is not older than the state of the session's server when the request was sent; for a hand-off not older than the notified deletion. |
//! | exclusion | at each grant | Of the holders that were not notified of a loss, those with a node at the leader are compatible with the new one. |
//! | same session | at each grant | A holder of the same session was notified of the loss of its node if the session was. |
//! | no stuck waiter | when nothing is outstanding | No waiter with a node could be granted; a waiter that watches its own node has one; each node has a contender; a holder has a node. |
//! | progress | over the whole search | The steps that happen by themselves come to an end. |
//!
//! *First come, first served* follows from *proof*: no node ahead that blocks exists.
//!
//! A holder that lost its node to a fault (a kill, an administrator) may be notified after the next grant. That is
//! prompt, not provable, so exclusion counts only holders with a node. One transaction of an administrator that deletes
//! the nodes of the holder and of the waiter is such a fault: the hand-off may name the state just before it.

use crate::engine::model::scenario::Kind;
use crate::engine::model::state::{Contender, Phase, Position, Violation, World};

/// The cause of a grant.
#[derive(Debug, Clone, Copy)]
pub(super) enum Cause {
    /// A listing, sent when the session's server was at this position.
    Listed { sent: Position },
    /// The deletion of a node.
    HandOff(usize),
}

impl World {
    /// Returns whether the state at a position grants the lock to a node.
    fn is_next_at(&self, position: Position, own: usize, limit: u8) -> bool {
        let (index, own) = (own, &self.nodes[own]);
        let key = |node: usize| (self.nodes[node].number, self.nodes[node].name());
        let ahead = (0..self.nodes.len())
            .filter(|node| *node != index && self.nodes[*node].exists_at(position) && key(*node) < key(index));
        own.exists_at(position)
            && match own.kind {
                Kind::Mutex | Kind::Write => ahead.count() == 0,
                Kind::Lease => ahead.count() < usize::from(limit),
                Kind::Read => ahead.filter(|node| self.nodes[*node].kind == Kind::Write).count() == 0,
            }
    }
}

pub(super) fn check_grant(world: &World, contender: usize, cause: Option<Cause>) -> Result<(), Violation> {
    let it = &world.contenders[contender];
    let (Some(own), Some(cause)) = (it.node, cause) else {
        return Err(format!("contender {contender} was granted without a node or a reason"));
    };
    let from = match cause {
        Cause::Listed { sent } => sent,
        Cause::HandOff(node) => world.nodes[node].deleted.unwrap_or_default(),
    };
    // The session may be connected to a server that is behind an earlier notification.
    let until = world.sessions[it.session].position.max(from);
    let by_multi =
        matches!(cause, Cause::HandOff(_)) && world.nodes[own].deleted == Some(from) && world.multis.contains(&from);
    if !by_multi && !(from..=until).any(|position| world.is_next_at(position, own, it.limit)) {
        return Err(format!("contender {contender} was granted by {cause:?}, which proves nothing"));
    }
    let holds = |other: &usize| *other != contender && world.contenders[*other].phase == Phase::Holds;
    let holders = || (0..world.contenders.len()).filter(holds);
    let is_untold = |other: usize| world.contenders[other].is_notified && world.contenders[other].session == it.session;
    if holders().any(is_untold) {
        return Err(format!("contender {contender} was granted before a holder of its session was told of its loss"));
    }
    if !world.nodes[own].exists_at(world.log) {
        return Ok(());
    }
    let there = || {
        let has_node =
            |other: &usize| world.contenders[*other].node.is_some_and(|node| world.nodes[node].exists_at(world.log));
        holders().filter(has_node)
    };
    let are_compatible = match it.kind {
        Kind::Mutex | Kind::Write => there().count() == 0,
        Kind::Lease => there().count() < usize::from(it.limit),
        Kind::Read => there().all(|other| world.contenders[other].kind == Kind::Read),
    };
    if are_compatible { Ok(()) } else { Err(format!("contender {contender} was granted beside others")) }
}

/// Checks a world in which nothing is outstanding and no fault comes.
pub(super) fn check_quiet(world: &World) -> Result<(), Violation> {
    for (index, contender) in world.contenders.iter().enumerate() {
        let session = &world.sessions[contender.session];
        let there = contender.node.filter(|node| world.nodes[*node].exists_at(world.log));
        match (&contender.phase, there) {
            (Phase::Wait(_), Some(node)) if world.is_next_at(world.log, node, session.limit) => {
                return Err(format!("contender {index} waits although it could be granted"));
            }
            (Phase::Wait(_), None) if contender.watches_own() => {
                return Err(format!("contender {index} waits without a node"));
            }
            (Phase::Holds, None) => return Err(format!("contender {index} was not told of its loss")),
            (Phase::Wait(_) | Phase::Holds | Phase::Over, _) => {}
            // Another contender has the turn, and waits for a lease.
            (Phase::Idle, _) if world.turn.is_some() => {}
            (phase, _) => return Err(format!("contender {index} is stuck in {phase:?}")),
        }
    }
    for (index, node) in world.nodes.iter().enumerate().filter(|(_, node)| node.exists_at(world.log)) {
        let is_of_node = |contender: &&Contender| contender.node == Some(index) && contender.phase != Phase::Over;
        if !world.contenders.iter().any(|contender| is_of_node(&contender)) {
            return Err(format!("node {} has no contender", node.name()));
        }
    }
    Ok(())
}

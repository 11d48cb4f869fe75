//! The state of the task of a node.

use std::collections::BTreeSet;
use std::sync::Arc;

use curator_framework::{CuratorFramework, EventType, Session, WakeReason, Watch};
use tokio::sync::watch;
use tokio::time::Instant;

use crate::nodes::claims::Claim;
use crate::nodes::keeper::contest::Contest;
use crate::nodes::shared::{Ending, Plan, Shared, Wanted};
use crate::nodes::verdict::Known;
use crate::standing::{Pauses, Stop};

/// The task of one node.
pub(in crate::nodes) struct Keeper {
    pub(super) client: CuratorFramework,
    pub(super) plan: Arc<Plan>,
    pub(super) shared: Arc<Shared>,
    pub(super) wanted: watch::Receiver<Wanted>,
    pub(super) stop: Stop,
    /// The session of the newest attempt.
    pub(super) session: Option<Session>,
    pub(super) known: Option<Known>,
    /// The claim to the known node.
    pub(super) claim: Option<Claim>,
    /// The watch on the node at the path.
    pub(super) watch: Option<Watch>,
    /// A notification has reported the deletion of the node. It may be late, and that of an earlier node.
    pub(super) may_be_gone: bool,
    /// The node of which the listeners know.
    pub(super) announced: Option<i64>,
    /// The sessions in which the reply to a create was lost.
    pub(super) uncertain: BTreeSet<i64>,
    /// The generation of the data in the newest attempt.
    pub(super) tried: u64,
    /// The generation of the data on the server; 0 if it is not known.
    pub(super) written: u64,
    /// The generation of the newest data that the server has refused to a node that stands.
    pub(super) refused: u64,
    /// The newest data that the server has accepted.
    pub(super) accepted: Option<Arc<[u8]>>,
    pub(super) foreign_data: Option<Vec<u8>>,
    pub(super) touched: Option<Instant>,
    pub(super) contest: Contest,
    pub(super) pauses: Pauses,
    /// Publishes the last state, even if the runtime drops the task before its first poll.
    pub(super) _ending: Ending,
}

/// The outcome of an attempt to place the node.
pub(super) enum Placed {
    Standing,
    Taken,
    /// The node at the path has changed meanwhile.
    Again,
}

/// Resolves when the watch fires, and removes it.
pub(super) async fn woken(watch: &mut Option<Watch>) -> WakeReason {
    let Some(set) = watch else { return std::future::pending().await };
    let reason = set.await;
    *watch = None;
    reason
}

/// Resolves when the watch reports the deletion of the node.
pub(super) async fn deleted(watch: &mut Option<Watch>) {
    while woken(watch).await != WakeReason::Event(EventType::NodeDeleted) {}
}

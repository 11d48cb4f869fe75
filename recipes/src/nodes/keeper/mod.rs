//! The task that keeps one node standing.
//!
//! | file | contents |
//! | --- | --- |
//! | [`placing`] | one attempt: creates the node, or decides what stands at its path |
//! | [`data`] | compares the data that the server has, and writes the wanted data |
//! | [`holding`] | the time in which the node stands |
//! | [`closing`] | the end of the task |

mod closing;
mod data;
mod holding;
mod placing;

use std::collections::BTreeSet;
use std::sync::Arc;

use curator_framework::recipe::RecipeClient as _;
use curator_framework::{Chain, CuratorFramework, Error, EventType, Session, WakeReason, Watch};
use tokio::sync::watch;
use tokio::time::{Instant, sleep};

use self::holding::Contest;
use self::placing::Placed;
use crate::nodes::claims::Claim;
use crate::nodes::error::NodeError;
use crate::nodes::shared::{Ending, Plan, Shared, Wanted, Written};
use crate::nodes::state::NodeState;
use crate::nodes::verdict::Known;
use crate::standing::{Pauses, Stop};

/// The task of one node.
pub(super) struct Keeper {
    client: CuratorFramework,
    plan: Arc<Plan>,
    shared: Arc<Shared>,
    wanted: watch::Receiver<Wanted>,
    stop: Stop,
    /// The session of the newest attempt.
    session: Option<Session>,
    known: Option<Known>,
    /// The claim to the known node.
    claim: Option<Claim>,
    /// The watch on the node at the path.
    watch: Option<Watch>,
    /// A notification has reported the deletion of the node. It may be late, and that of an earlier node.
    may_be_gone: bool,
    /// The node of which the listeners know.
    announced: Option<i64>,
    /// The sessions in which the reply to a create was lost.
    uncertain: BTreeSet<i64>,
    /// The generation of the data in the newest attempt.
    tried: u64,
    /// The generation of the data on the server; 0 if it is not known.
    written: u64,
    /// The generation of the newest data that the server has refused to a node that stands.
    refused: u64,
    /// The newest data that the server has accepted.
    accepted: Option<Arc<[u8]>>,
    foreign_data: Option<Vec<u8>>,
    touched: Option<Instant>,
    contest: Contest,
    pauses: Pauses,
    /// Publishes the last state also if the runtime drops the task before its first poll.
    _ending: Ending,
}

impl Keeper {
    pub(super) fn new(client: CuratorFramework, plan: Arc<Plan>, shared: Arc<Shared>, stop: Stop) -> Self {
        Self {
            client,
            plan,
            wanted: shared.wanted.subscribe(),
            _ending: Ending(Arc::clone(&shared)),
            shared,
            stop,
            session: None,
            known: None,
            claim: None,
            watch: None,
            may_be_gone: false,
            announced: None,
            uncertain: BTreeSet::new(),
            tried: 0,
            written: 0,
            refused: 0,
            accepted: None,
            foreign_data: None,
            touched: None,
            contest: Contest::default(),
            pauses: Pauses::default(),
        }
    }

    pub(super) async fn run(mut self) {
        let mut stop = self.stop.clone();
        loop {
            self.tried = self.wanted.borrow_and_update().generation;
            let session = tokio::select! {
                biased;
                () = stop.requested() => break,
                session = self.next_session() => session,
            };
            self.fill_in_default_data();
            let stood = match session {
                Ok(session) if self.path().is_none() && self.plan.is_protected => tokio::select! {
                    biased;
                    () = stop.requested() => break,
                    created = self.create_first(&session) => created,
                },
                // Not cancelled: without the reply to its create the node could be that of another object of this client.
                Ok(session) => self.stand(session).await,
                Err(error) => Err(error.into()),
            };
            match stood {
                Ok(()) => {}
                Err(NodeError::Framework(Error::Closed)) => break,
                Err(error) => tokio::select! {
                    biased;
                    () = stop.requested() => break,
                    () = self.pause_after(error) => {}
                },
            }
        }
        self.delete().await;
    }

    /// Waits for a session. Meanwhile an ephemeral node ends with the earlier one.
    async fn next_session(&self) -> curator_framework::Result<Session> {
        let mut connecting = std::pin::pin!(self.client.session());
        let Some(earlier) = self.session.as_ref().filter(|_| self.plan.mode.is_ephemeral()) else {
            return connecting.await;
        };
        let connected = tokio::select! {
            biased;
            connected = &mut connecting => Some(connected),
            _ = earlier.ended() => None,
        };
        if earlier.end_reason().is_some() && self.stands() {
            self.shared.publish(NodeState::Creating);
        }
        match connected {
            Some(connected) => connected,
            None => connecting.await,
        }
    }

    fn path(&self) -> Option<String> {
        self.shared.actual_path.borrow().clone()
    }

    fn stands(&self) -> bool {
        self.shared.state.newest().standing().is_some()
    }

    fn fill_in_default_data(&self) {
        self.shared.wanted.send_if_modified(|wanted| {
            if wanted.is_default {
                wanted.data = self.client.default_data().into();
            }
            // Other data is a change; this is the data that was wanted from the beginning.
            false
        });
    }

    fn report(&self, generation: u64, refused: Option<NodeError>) {
        self.shared.written.send_replace(Written { generation, refused });
    }

    /// Waits before the next attempt. New data ends the pause, because it may be the cure.
    async fn pause_after(&mut self, error: NodeError) {
        // The client may be started later.
        let may_pass = error.is_retryable() || matches!(error, NodeError::Framework(Error::NotStarted));
        let (pause, path) = (self.pauses.after(may_pass), &self.plan.path);
        let pause_s = pause.as_secs_f64();
        if may_pass {
            tracing::debug!(error = %Chain(&error), path, pause_s, "a node is created later");
        } else {
            let standing = self.shared.state.newest().standing().cloned();
            self.shared.publish(match standing {
                // The request that has failed shows nothing of the node.
                Some(node) => {
                    tracing::warn!(error = %Chain(&error), path, pause_s, "a node that stands cannot be read");
                    NodeState::Refused { node, cause: error.clone() }
                }
                None => {
                    tracing::warn!(error = %Chain(&error), path, pause_s, "a node cannot be created");
                    NodeState::Failed(error.clone())
                }
            });
            if self.written != self.tried {
                self.report(self.tried, Some(error));
            }
        }
        let is_stale = matches!(self.shared.state.newest(), NodeState::Refused { .. });
        let session = self.session.clone().filter(|_| is_stale && self.plan.mode.is_ephemeral());
        let ended = async {
            match session {
                Some(session) => drop(session.ended().await),
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            () = sleep(pause) => {}
            // The next attempt publishes it.
            () = ended => {}
            () = deleted(&mut self.watch), if is_stale => {
                self.may_be_gone = true;
                self.shared.publish(NodeState::Creating);
            }
            changed = self.wanted.changed() => if changed.is_err() { sleep(pause).await },
        }
    }

    /// Places the node, and waits as long as it stands or another node is at its path.
    async fn stand(&mut self, session: Session) -> Result<(), NodeError> {
        self.session = Some(session.clone());
        let Some(path) = self.path() else { return self.create_first(&session).await };
        loop {
            match self.place(&session, &path).await? {
                Placed::Standing => {
                    self.hold(&session, &path).await?;
                    if session.end_reason().is_some() {
                        return Ok(());
                    }
                }
                Placed::Taken => return self.wait_for_other().await,
                Placed::Again => {}
            }
        }
    }

    /// Waits as long as the other node at the path does not change.
    async fn wait_for_other(&mut self) -> Result<(), NodeError> {
        loop {
            tokio::select! {
                biased;
                () = self.stop.requested() => return Err(Error::Closed.into()),
                _ = woken(&mut self.watch) => return Ok(()),
                changed = self.wanted.changed() => match changed {
                    Ok(()) => self.report_taken(),
                    Err(_no_owner) => return Ok(()),
                },
            }
        }
    }

    /// Waits until the watch fires. Fails when the task has to end.
    async fn notified(&mut self) -> Result<(), NodeError> {
        tokio::select! {
            biased;
            () = self.stop.requested() => Err(Error::Closed.into()),
            _ = woken(&mut self.watch) => Ok(()),
        }
    }
}

/// Resolves when the watch fires, and removes it.
async fn woken(watch: &mut Option<Watch>) -> WakeReason {
    let Some(set) = watch else { return std::future::pending().await };
    let reason = set.await;
    *watch = None;
    reason
}

/// Resolves when the watch reports the deletion of the node.
async fn deleted(watch: &mut Option<Watch>) {
    while woken(watch).await != WakeReason::Event(EventType::NodeDeleted) {}
}

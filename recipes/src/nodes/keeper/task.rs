//! The task: attempts, one session after the other, and the pauses between them.

use std::collections::BTreeSet;
use std::sync::Arc;

use curator_framework::recipe::RecipeClient as _;
use curator_framework::{Chain, CuratorFramework, Error, Session};
use tokio::time::sleep;

use crate::nodes::error::NodeError;
use crate::nodes::keeper::contest::Contest;
use crate::nodes::keeper::state::{Keeper, Placed, deleted, woken};
use crate::nodes::shared::{Ending, Plan, Shared, Written};
use crate::nodes::state::NodeState;
use crate::standing::{Pauses, Stop};

impl Keeper {
    pub(in crate::nodes) fn new(client: CuratorFramework, plan: Arc<Plan>, shared: Arc<Shared>, stop: Stop) -> Self {
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

    pub(in crate::nodes) async fn run(mut self) {
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
    pub(super) async fn next_session(&self) -> curator_framework::Result<Session> {
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

    pub(super) fn path(&self) -> Option<String> {
        self.shared.actual_path.borrow().clone()
    }

    pub(super) fn stands(&self) -> bool {
        self.shared.state.newest().standing().is_some()
    }

    pub(super) fn fill_in_default_data(&self) {
        self.shared.wanted.send_if_modified(|wanted| {
            if wanted.is_default {
                wanted.data = self.client.default_data().into();
            }
            // Other data is a change; this is the data that was wanted from the beginning.
            false
        });
    }

    pub(super) fn report(&self, generation: u64, refused: Option<NodeError>) {
        self.shared.written.send_replace(Written { generation, refused });
    }

    /// Waits before the next attempt. New data ends the pause, because it may be the cure.
    pub(super) async fn pause_after(&mut self, error: NodeError) {
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
    pub(super) async fn stand(&mut self, session: Session) -> Result<(), NodeError> {
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
    pub(super) async fn wait_for_other(&mut self) -> Result<(), NodeError> {
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
    pub(super) async fn notified(&mut self) -> Result<(), NodeError> {
        tokio::select! {
            biased;
            () = self.stop.requested() => Err(Error::Closed.into()),
            _ = woken(&mut self.watch) => Ok(()),
        }
    }
}

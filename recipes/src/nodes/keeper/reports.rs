//! The state and the results that the task publishes.

use std::sync::Arc;
use std::time::Duration;

use curator_framework::recipe::{RecipeClient as _, owning_session};
use curator_framework::{Chain, Zxid};

use crate::nodes::claims::Claim;
use crate::nodes::error::NodeError;
use crate::nodes::keeper::task::Keeper;
use crate::nodes::plan::{Failure, State, Step};
use crate::nodes::shared::Written;
use crate::nodes::state::{NodeState, StandingNode};
use crate::standing::Pauses;

impl Keeper {
    /// Claims another known node, and forgets what belongs to the one before.
    pub(super) fn follow(&mut self) {
        let czxid = self.plan.known.map(|known| known.czxid);
        if czxid != self.czxid {
            self.claim(czxid);
        }
    }

    pub(super) fn claim(&mut self, czxid: Option<i64>) {
        self.claim = self.session.as_ref().zip(czxid).and_then(|(session, czxid)| Claim::new(session, czxid));
        (self.czxid, self.touched) = (czxid, None);
    }

    /// Publishes what the plan has decided.
    pub(super) fn publish(&mut self) {
        let state = match (self.plan.state.clone(), self.cause.clone()) {
            (State::Creating, _) => NodeState::Creating,
            (State::Standing(node), _) => NodeState::Standing(node),
            (State::Refused(node), Some(cause)) => NodeState::Refused { node, cause },
            (State::Failed, Some(cause)) => NodeState::Failed(cause),
            (State::Taken(other), _) => {
                NodeState::TakenBy { session: owning_session(other.session), czxid: Zxid::new(other.czxid) }
            }
            (State::Refused(_) | State::Failed, None) => return,
        };
        self.confirm();
        if let (NodeState::TakenBy { session, .. }, false) = (&state, state.is_same(&self.shared.state.newest())) {
            let session_id = session.map(tracing::field::display);
            tracing::warn!(path = self.kept.path, session_id, "the path of a node is taken, so it waits");
        }
        self.shared.publish(state.clone());
        if let NodeState::Standing(node) = state {
            self.announce(node);
        }
    }

    fn announce(&mut self, node: StandingNode) {
        let czxid = node.czxid.get();
        if self.announced.replace(czxid) != Some(czxid) {
            tracing::info!(path = node.path, czxid, "a node exists");
            self.shared.listeners.notify(move |listener| listener(&node));
        }
    }

    /// Confirms the data that the server has.
    fn confirm(&mut self) {
        let Some(generation) = self.plan.confirmed() else { return };
        if self.taken.generation == generation {
            self.accepted = Some(Arc::clone(&self.taken.data));
        }
        let of = |newest: &Written| (newest.generation, newest.refused.is_none());
        let newest = of(&self.shared.written.borrow());
        // The caller of newer data may not have seen yet that it was refused.
        if newest < (generation, true) {
            self.report(generation, None);
        }
    }

    fn report(&self, generation: u64, refused: Option<NodeError>) {
        self.shared.written.send_replace(Written { generation, refused });
    }

    /// Ends a row of failed attempts. The newest wanted data may have to wait for another session's node to go.
    pub(super) fn settle(&mut self) {
        if self.plan.stands() {
            self.pauses = Pauses::default();
        }
        if let State::Taken(other) = self.plan.state {
            let (path, session) = (self.client.path_text(&self.kept.path), owning_session(other.session));
            let generation = self.take().generation;
            self.report(generation, Some(NodeError::TakenBy { path, session }));
        }
    }

    /// Takes back the data that the server has refused, before its caller learns of that.
    pub(super) fn take_back(&self) {
        if let Some(accepted) = &self.accepted {
            self.shared.wanted.send_if_modified(|wanted| {
                if wanted.generation == self.taken.generation {
                    wanted.data = Arc::clone(accepted);
                }
                false
            });
        }
        self.report(self.taken.generation, self.cause.clone());
    }

    /// Reports a step that has failed, before a pause.
    pub(super) fn report_failure(&mut self, step: &Step, failure: Failure, error: NodeError, pause: Duration) {
        let (path, pause_s, chain) = (&self.kept.path, pause.as_secs_f64(), Chain(&error));
        match (failure, step) {
            (Failure::Closed, _) => return,
            (Failure::Passing, _) => {
                tracing::debug!(error = %chain, path, pause_s, "a node is created later");
                return;
            }
            (_, Step::Check | Step::Delete { .. }) => {
                tracing::warn!(error = %chain, path, "a node cannot be deleted, the client tries again");
                *self.shared.undeleted.lock() = Some(error.clone());
            }
            (_, Step::Write { .. }) if self.plan.stands() => {
                tracing::warn!(error = %chain, path, "a node's data cannot be written");
            }
            _ if self.plan.stands() => {
                tracing::warn!(error = %chain, path, pause_s, "a kept node cannot be read");
            }
            _ => tracing::warn!(error = %chain, path, pause_s, "a node cannot be created"),
        }
        let is_taken_back = self.plan.stands() && matches!(step, Step::Write { .. });
        if self.plan.written != self.taken.generation && !is_taken_back {
            self.report(self.taken.generation, Some(error.clone()));
        }
        self.cause = Some(error);
    }
}

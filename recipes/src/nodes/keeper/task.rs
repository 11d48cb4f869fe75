//! The task: one step after the other, and the steps that wait.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use curator_framework::recipe::RecipeClient as _;
use curator_framework::{CuratorFramework, Error, EventType, Session, SessionId, WakeReason, Watch};
use tokio::sync::watch;
use tokio::time::{Instant, sleep, sleep_until, timeout};

use crate::nodes::claims::Claim;
use crate::nodes::error::NodeError;
use crate::nodes::keeper::contest::Contest;
use crate::nodes::keeper::lost_create::LostCreate;
use crate::nodes::options::ForeignData;
use crate::nodes::plan::{Failure, Input, NodePlan, Now, Pause, State, Step};
use crate::nodes::shared::{Ending, KeptNode, Shared, Wanted};
use crate::standing::{Pauses, Stop};

/// The longest wait for the notification of a deletion that a reply has shown. Servers do not notify of a node that the
/// client may not read. A later notification counts as one of the next node, which the task then searches for.
const LONGEST_NOTIFICATION: Duration = Duration::from_secs(1);

/// The task of one node.
pub(in crate::nodes) struct Keeper {
    pub(super) client: CuratorFramework,
    pub(super) kept: Arc<KeptNode>,
    pub(super) shared: Arc<Shared>,
    pub(super) plan: NodePlan,
    wanted: watch::Receiver<Wanted>,
    stop: Stop,
    /// The session of the newest attempt.
    pub(super) session: Option<Session>,
    /// The transaction that created the known node.
    pub(super) czxid: Option<i64>,
    /// The claim to the known node.
    pub(super) claim: Option<Claim>,
    /// The watch on the node at the path.
    pub(super) watch: Option<Watch>,
    /// The first create, if its reply was lost and its name has no id.
    pub(super) lost: Option<LostCreate>,
    /// The node of which the listeners know.
    pub(super) announced: Option<i64>,
    /// The data of the newest attempt.
    pub(super) taken: Wanted,
    /// The newest data that the server has accepted.
    pub(super) accepted: Option<Arc<[u8]>>,
    pub(super) touched: Option<Instant>,
    /// The newest error that waiting cannot cure.
    pub(super) cause: Option<NodeError>,
    contest: Contest,
    pub(super) pauses: Pauses,
    /// The pause after the newest error.
    pause: Duration,
    /// Publishes the last state, even if the runtime drops the task before its first poll.
    _ending: Ending,
}

impl Keeper {
    pub(in crate::nodes) fn new(
        client: CuratorFramework,
        kept: Arc<KeptNode>,
        shared: Arc<Shared>,
        stop: Stop,
    ) -> Self {
        let (mends, outlives) = (kept.foreign_data == ForeignData::Mend, kept.touch.is_some() || kept.stays);
        let path = shared.actual_path.borrow().clone();
        let (wanted, taken) = (shared.wanted.subscribe(), shared.wanted.borrow().clone());
        Self {
            client,
            plan: NodePlan::new(path, kept.mode.is_ephemeral(), mends, outlives),
            kept,
            taken,
            wanted,
            _ending: Ending(Arc::clone(&shared)),
            shared,
            stop,
            session: None,
            czxid: None,
            claim: None,
            watch: None,
            lost: None,
            announced: None,
            accepted: None,
            touched: None,
            cause: None,
            contest: Contest::default(),
            pauses: Pauses::default(),
            pause: Duration::ZERO,
        }
    }

    pub(in crate::nodes) async fn run(mut self) {
        let mut step = Step::Connect;
        while step != Step::End {
            let input = match self.perform(&step).await {
                Ok(input) => input,
                Err(error) => self.failed(&step, error),
            };
            let session = self.session.as_ref().and_then(Session::id).map(SessionId::get);
            let now = Now { session, wanted: self.wanted.borrow().generation, taken: self.taken.generation };
            self.take_order_to_delete();
            step = self.plan.next(now, input);
            if let Some(path) = self.plan.path.clone().filter(|_| self.shared.actual_path.borrow().is_none()) {
                self.shared.actual_path.send_replace(Some(path));
            }
            self.follow();
            self.publish();
            if step == Step::Wait {
                self.settle();
            }
        }
        self.delete_lost().await;
    }

    fn take_order_to_delete(&mut self) {
        if self.shared.deletes.load(Ordering::SeqCst) {
            self.plan.deletes_at_end();
        }
    }

    async fn perform(&mut self, step: &Step) -> Result<Input, NodeError> {
        let is_wait = matches!(step, Step::Connect | Step::AwaitDeletion | Step::Pause(_) | Step::Wait);
        // Without the reply to its create another object of this client could have made the node. An id in the name
        // tells them apart.
        if is_wait || (*step == Step::CreateFirst && self.kept.is_protected) {
            let mut stop = self.stop.clone();
            return tokio::select! {
                biased;
                () = stop.requested() => Ok(Input::Stopped),
                waited = self.wait(step) => waited,
            };
        }
        // Boxed: these are short, and a wait may be long.
        Box::pin(self.request(step)).await
    }

    async fn wait(&mut self, step: &Step) -> Result<Input, NodeError> {
        match step {
            Step::Connect => return self.connect().await,
            Step::AwaitDeletion => {
                return Ok(timeout(LONGEST_NOTIFICATION, woken(&mut self.watch)).await.unwrap_or(Input::Done));
            }
            Step::Pause(Pause::Failure) => return Ok(self.pause_after_failure().await),
            Step::Pause(_) => self.contest.pause().await,
            Step::Wait => return Ok(self.rest().await),
            step => return Box::pin(self.request(step)).await,
        }
        Ok(Input::Done)
    }

    /// Waits for a session. In the meantime an ephemeral node ends with the earlier one.
    async fn connect(&mut self) -> Result<Input, NodeError> {
        self.take();
        let earlier = self.session.clone().filter(|_| self.kept.mode.is_ephemeral() && self.plan.stands());
        let session = tokio::select! {
            biased;
            session = self.client.session() => session,
            () = ended(earlier) => return Ok(Input::SessionEnded),
        };
        self.fill_in_default_data();
        let session = session?;
        let is_new = self.session.as_ref().is_none_or(|earlier| !earlier.is_same(&session));
        self.session = Some(session);
        Ok(Input::Connected { is_new })
    }

    fn fill_in_default_data(&mut self) {
        self.shared.wanted.send_if_modified(|wanted| {
            if wanted.is_default {
                wanted.data = self.client.default_data().into();
            }
            // Other data is a change; this is the data that was wanted from the start.
            false
        });
    }

    /// Takes the newest wanted data, to send or to compare it.
    pub(super) fn take(&mut self) -> Wanted {
        self.taken = self.wanted.borrow_and_update().clone();
        self.taken.clone()
    }

    /// Waits as long as the node exists, or another one is at the path.
    async fn rest(&mut self) -> Input {
        let touch_at = self.touch_at().filter(|_| self.plan.stands());
        tokio::select! {
            biased;
            woken = woken(&mut self.watch) => woken,
            Ok(()) = self.wanted.changed() => Input::NewData,
            () = async { match touch_at {
                Some(time) => sleep_until(time).await,
                None => std::future::pending().await,
            } } => Input::Done,
        }
    }

    pub(super) fn touch_at(&self) -> Option<Instant> {
        self.touched.zip(self.kept.touch.as_ref()).map(|(last, touch)| last + touch.every)
    }

    /// Prepares the pause after an error.
    fn failed(&mut self, step: &Step, error: NodeError) -> Input {
        let may_be_applied = error.outcome_unknown();
        let failure = match &error {
            NodeError::Framework(Error::Closed) => Failure::Closed,
            // The client may be started later.
            NodeError::Framework(Error::NotStarted) => Failure::Passing,
            error if error.is_retryable() => Failure::Passing,
            _ => Failure::Permanent,
        };
        // Nodes of the session may go at any time.
        let waits_for_room = matches!(error, NodeError::Framework(Error::TooManyEphemeralNodes { .. }));
        self.pause = self.pauses.after(failure != Failure::Permanent || waits_for_room);
        self.report_failure(step, failure, error, self.pause);
        Input::Failed { failure, may_be_applied }
    }

    /// Waits before the next attempt. New data ends the pause, because it may be the cure.
    async fn pause_after_failure(&mut self) -> Input {
        let is_stale = matches!(self.plan.state, State::Refused(_));
        let session = self.session.clone().filter(|_| is_stale && self.kept.mode.is_ephemeral());
        tokio::select! {
            () = sleep(self.pause) => Input::Done,
            () = ended(session) => Input::SessionEnded,
            () = async { while woken(&mut self.watch).await != Input::Deleted {} }, if is_stale => Input::Deleted,
            Ok(()) = self.wanted.changed() => Input::NewData,
        }
    }
}

impl Drop for Keeper {
    /// Leaves a node that was not deleted to the background task of the client, even if the runtime of the node ends.
    fn drop(&mut self) {
        self.take_order_to_delete();
        let mode = self.kept.mode;
        let session = self.session.take().filter(|session| !mode.is_ephemeral() || session.end_reason().is_none());
        if let (Some(remains), Some(session), Some(path)) = (self.plan.remains(), session, &self.plan.path) {
            session.delete_in_background(path, mode, remains.map(|known| known.czxid));
        }
    }
}

/// Resolves when the watch fires, and removes it.
async fn woken(watch: &mut Option<Watch>) -> Input {
    let Some(set) = watch else { return std::future::pending().await };
    let reason = set.await;
    *watch = None;
    match reason {
        WakeReason::SessionEnded(_) => Input::SessionEnded,
        WakeReason::Event(EventType::NodeDeleted) => Input::Deleted,
        _ => Input::Changed,
    }
}

async fn ended(session: Option<Session>) {
    match session {
        Some(session) => drop(session.ended().await),
        None => std::future::pending().await,
    }
}

#[cfg(test)]
mod tests {
    use curator_framework::{Acl, Permission, RetryOneTime};
    use curator_test::{FaultProxy, TestingServer};

    use crate::nodes::options::PersistentNodeOptions;
    use crate::nodes::persistent_node::PersistentNode;
    use crate::nodes::state::NodeState;

    use super::*;

    fn client(connect_string: impl Into<String>) -> CuratorFramework {
        let retry = RetryOneTime::new(Duration::from_millis(50));
        let client = CuratorFramework::new_client(connect_string, retry).unwrap();
        client.start().unwrap();
        client
    }

    fn unreadable(client: &CuratorFramework) -> PersistentNode {
        let options = PersistentNodeOptions::new().acl(vec![Acl::new(Permission::WRITE, "world", "anyone")]);
        let node = PersistentNode::with_options(client.clone(), "/foo", "old", options).unwrap();
        node.start().unwrap();
        node
    }

    /// Servers do not notify of a node that the client may not read.
    #[tokio::test]
    async fn node_that_may_not_be_read_is_made_again_behind_a_write_that_finds_none() {
        let server = TestingServer::start().unwrap();
        let (one, two) = (client(server.connect_string()), client(server.connect_string()));
        let node = unreadable(&one);
        let before = node.created().await.unwrap();
        two.delete().for_path("/foo").await.unwrap();
        timeout(Duration::from_secs(10), node.set_data("new")).await.expect("the write ends").unwrap();
        let now = node.created().await.unwrap();
        assert_ne!(now.czxid, before.czxid);
        timeout(Duration::from_secs(10), node.close()).await.unwrap();
        assert!(two.check_exists().for_path("/foo").await.unwrap().is_none());
    }

    #[tokio::test]
    async fn node_that_may_not_be_read_is_replaced_in_the_next_session() {
        let server = TestingServer::start().unwrap();
        let proxy = FaultProxy::start(server.address()).unwrap();
        let one = client(proxy.connect_string());
        let node = unreadable(&one);
        let before = node.created().await.unwrap();
        proxy.swap_session();
        proxy.reset();
        let again = |state: &NodeState| matches!(state, NodeState::Standing(now) if now.czxid != before.czxid);
        timeout(Duration::from_secs(10), node.watch().wait_for(again)).await.expect("it stands again").unwrap();
        timeout(Duration::from_secs(10), node.close()).await.unwrap();
    }
}

//! One contender of a lock: its node, its watches, and what it knows of the others.

use std::future::poll_fn;
use std::sync::Arc;
use std::task::Poll;

use curator_framework::recipe::OwnedNode;
use curator_framework::{Session, Watch};
use futures_util::FutureExt as _;

use crate::engine::candidacy::Candidacy;
use crate::engine::internals::LockInternals;
use crate::engine::limit::LimitWatch;
use crate::engine::plan::{Epoch, Input};
use crate::engine::revocation::Revocation;
use crate::engine::same_session::{self, Contenders, Entry};
use crate::engine::sequence_wrap::CreationOrder;

/// One contender in one session, with its node and its watches. However it ends (an error, the end of its budget, a
/// dropped future), dropping `owned` deletes the node.
pub(in crate::engine) struct Contender<'a> {
    pub(super) lock: &'a LockInternals,
    pub(super) session: &'a Session,
    pub(super) owned: OwnedNode,
    pub(super) early: Option<Prefetched>,
    pub(super) creation_order: CreationOrder,
    /// The watch on the children that the newest listing has set.
    // Boxed: few contenders keep it while they wait.
    pub(super) listing: Option<Box<Watch>>,
    /// The watch on the awaited node.
    pub(super) awaited: Option<Watch>,
    /// The facts of the contender of this session that owns the awaited node.
    pub(super) awaited_owner: Option<Arc<same_session::SharedFacts>>,
    /// The persistent node that was warned of.
    pub(super) blocker: Option<Box<str>>,
    /// The watch on this contender's node.
    pub(super) own: Option<Watch>,
    pub(super) limit: LimitWatch,
    pub(super) contenders: Arc<Contenders>,
    pub(super) entry: Entry,
    pub(super) calls: Calls,
    pub(super) revocation: Option<Revocation>,
}

impl<'a> Contender<'a> {
    pub(super) fn new(lock: &'a LockInternals, session: &'a Session) -> Self {
        let owned = session.owned_node(&lock.base_path, lock.spec.lock_name, lock.spec.driver.create_mode());
        let contenders = Contenders::of(session);
        let entry = Entry::new(&contenders, &owned, lock.shared_queue());
        Self {
            lock,
            session,
            early: None,
            creation_order: None,
            listing: None,
            awaited: None,
            awaited_owner: None,
            blocker: None,
            own: None,
            limit: lock.spec.limit.follow(),
            entry,
            calls: Calls::default(),
            contenders,
            revocation: None,
            owned,
        }
    }
}

/// The children as listed directly after the create, unsorted.
pub(super) struct Prefetched {
    pub(super) epoch: Epoch,
    pub(super) children: Vec<String>,
}

impl Prefetched {
    /// Returns the children, if they were listed on the session's present connection.
    pub(super) fn listed_on(self, at: &Session) -> Option<Vec<String>> {
        (self.epoch == at.epoch()).then_some(self.children)
    }
}

/// The calls of a leader to one candidate.
#[derive(Default)]
pub(super) struct Calls {
    // Boxed: few contenders are candidates.
    pub(super) watch: Option<Box<Watch>>,
    /// A call came, and was not followed yet.
    pub(super) has_come: bool,
}

impl Calls {
    /// Resolves with the next call, or with a change of the path's data. After a loss of the watch it resolves too: a call
    /// may have come in the meantime.
    // A function in place of an `async` block keeps the future of a wait small.
    pub(super) fn next(&mut self, candidacy: Option<&Candidacy>) -> impl Future<Output = Input<'static>> {
        poll_fn(move |cx| {
            if self.watch.as_mut().is_some_and(|watch| watch.poll_unpin(cx).is_ready()) {
                (self.watch, self.has_come) = (None, true);
                return Poll::Ready(Input::OwnChanged);
            }
            candidacy.map_or(Poll::Pending, |candidacy| candidacy.poll_changed(cx).map(|()| Input::QueueChanged))
        })
    }
}

//! Performs the planner's actions and passes the results to it. The runner decides nothing.

use std::sync::Arc;

use curator_framework::recipe::report;
use curator_framework::{
    Error, EventType, LossReason, RetryLoop, Session, WakeReason, Watch, make_path, node_from_path,
};
use futures_util::TryFutureExt as _;

use crate::engine::acquire::AcquireOnce;
use crate::engine::acquired::Acquired;
use crate::engine::candidacy::Candidacy;
use crate::engine::driver::{SortedChildren, is_far_from_the_end};
use crate::engine::error::LockError;
use crate::engine::internals::LockInternals;
use crate::engine::label::Label;
use crate::engine::participants::ParticipantKind;
use crate::engine::places::Places;
use crate::engine::plan::{Action, Arm, Armed, DeletedBy, Epoch, Input, Listing, Plan, Proof, Rules, WaitSet, Watched};
use crate::engine::queue_node::adopt;
use crate::engine::read_write_driver::kind_of;
use crate::engine::requests::children_of;
use crate::engine::run::contender::{Calls, Contender};
use crate::engine::same_session::Role;
use crate::engine::sequence_wrap::by_creation;
use crate::engine::shared_reads::{self, KnownAhead, Shown};
use crate::engine::wait_mode::{Contention, WaitMode};
use crate::engine::waits::{deleted_by, first, own_event, resolved, watch_held, watch_node, watched};

impl AcquireOnce for LockInternals {
    type Granted = Acquired;

    fn label(&self) -> &Label {
        &self.label
    }

    fn places(&self) -> Option<&Arc<Places>> {
        self.places.as_ref()
    }

    // Not another `async fn`: a waiter would keep the arguments once more.
    fn acquire_once(
        &self,
        session: &Session,
        retries: &mut RetryLoop,
        mode: WaitMode,
        contention: &Contention,
    ) -> impl Future<Output = Result<Option<Acquired>, LockError>> + Send {
        contend(self, session, retries, mode, contention).map_err(LockError::from)
    }
}

/// The result of an action.
enum Outcome {
    Plain(Input<'static>),
    Listed(Listed),
    /// The nearest contenders ahead, from an earlier listing of the session.
    Known(Listed),
    Armed {
        node: Watched,
        own: Watched,
        listed: Option<Listed>,
    },
}

/// The contenders as they were listed.
struct Listed {
    shown: Arc<Shown>,
    by_creation: bool,
}

impl Listed {
    fn new(epoch: Epoch, queue: SortedChildren, by_creation: bool) -> Self {
        Self { shown: Arc::new(Shown { epoch, queue }), by_creation }
    }
}

/// Contends until the lock is granted. `Ok(None)` only in the mode `Once`.
async fn contend(
    lock: &LockInternals,
    session: &Session,
    retries: &mut RetryLoop,
    mode: WaitMode,
    contention: &Contention,
) -> Result<Option<Acquired>, Error> {
    let rules = lock.rules(mode);
    let mut joining = match &lock.places {
        Some(places) if mode != WaitMode::Once => Some(places.join().await),
        _ => None,
    };
    let mut contender = Contender::new(lock, session);
    let (mut plan, mut action) = Plan::new();
    loop {
        action = match action {
            Action::Grant { proof, signals } => return contender.granted(&plan, proof, signals).map(Some),
            Action::Refuse => {
                contender.leave_listing();
                // Wait for the reply: the next contender must not find this node ahead of its own.
                // Boxed: it must not enlarge the future of a wait.
                return match Box::pin(contender.owned.delete()).await {
                    // The refusal is certain anyway, and the session deletes the node later.
                    Err(error) if !error.is_retryable_in_session() => Err(error),
                    _ => Ok(None),
                };
            }
            Action::Rejoin => return Err(contender.is_gone()),
            Action::Wait(set) => {
                drop(joining.take());
                retries.progressed();
                let outcome = contender.wait(&set).await;
                contender.next(&mut plan, outcome, &rules, retries, contention).await?
            }
            // Boxed: these are short, and a wait may be long. Together, because the first ones follow each other.
            action => Box::pin(contender.perform(action, &mut plan, &rules, retries, mode, contention)).await?,
        };
    }
}

impl<'a> Contender<'a> {
    fn candidacy(&self) -> Option<&'a Candidacy> {
        self.lock.spec.candidacy.as_deref()
    }

    fn own_name(&self) -> &str {
        self.owned.node_name().unwrap_or_default()
    }

    /// Returns the error of a contender that has lost its node.
    fn is_gone(&self) -> Error {
        Error::NoNode { path: self.owned.path().unwrap_or(self.owned.planned_path()).into() }
    }

    /// Performs actions until one is long, or the last.
    async fn perform(
        &mut self,
        mut action: Action,
        plan: &mut Plan,
        rules: &Rules<'_>,
        retries: &mut RetryLoop,
        mode: WaitMode,
        contention: &Contention,
    ) -> Result<Action, Error> {
        loop {
            let outcome = match action {
                Action::Create => self.create(retries, mode).await,
                Action::Barrier => self.write_barrier().await,
                Action::Adopt => self.adopt().await,
                Action::List { watched } => self.list(watched).await,
                Action::Next => Box::pin(self.next_ahead()).await,
                // Boxed: only a contender that waits arms.
                Action::Arm(arm) => Box::pin(self.arm(arm)).await,
                Action::Wait(_) | Action::Grant { .. } | Action::Refuse | Action::Rejoin => return Ok(action),
            };
            action = self.next(plan, outcome, rules, retries, contention).await?;
        }
    }

    /// Returns the action that follows the result of one, and records what it shows of other contenders.
    async fn next(
        &mut self,
        plan: &mut Plan,
        outcome: Result<Outcome, Error>,
        rules: &Rules<'_>,
        retries: &mut RetryLoop,
        contention: &Contention,
    ) -> Result<Action, Error> {
        let was_listed = matches!(outcome, Ok(Outcome::Listed(_)));
        let has_failed = outcome.is_err();
        let is_older = matches!(
            outcome,
            Ok(Outcome::Known(_)
                | Outcome::Plain(
                    Input::Created { .. } | Input::Adopted { .. } | Input::Behind { .. } | Input::Unwatched
                ))
        );
        let action = match outcome {
            Ok(outcome) => self.plan(plan, outcome, rules),
            Err(error) => {
                contention.is_unknown();
                retries.failed_in(self.session, error).await?;
                plan.next(Input::Reconnected, rules)
            }
        };
        match action {
            // No new reply has shown the other contender.
            Action::Arm(_) if has_failed => {}
            Action::Arm(_) if is_older => contention.is_outdated(self.session.timeout() / 10),
            // Only a reply that shows another contender ahead leads to these, or to one more listing.
            Action::Arm(_) | Action::Wait(_) => contention.is_shown(),
            Action::List { .. } if was_listed => contention.is_shown(),
            // The contender's node is not known, or was not found in a listing yet.
            Action::Barrier | Action::Adopt => {}
            // The awaited contender has left, or the turn is granted.
            _ => contention.is_outdated(self.session.timeout() / 10),
        }
        Ok(action)
    }

    /// Passes the result of an action to the planner. Drops the listing: waits may be long, and the waiters many.
    fn plan(&mut self, plan: &mut Plan, outcome: Outcome, rules: &Rules<'_>) -> Action {
        // Read with a listing only: a change of the limit that no decision has used ends the next wait.
        let max_leases = match outcome {
            Outcome::Listed(_) | Outcome::Known(_) | Outcome::Armed { listed: Some(_), .. } => self.limit.get(),
            Outcome::Plain(_) | Outcome::Armed { listed: None, .. } => 0,
        };
        let listing = |listed| {
            let &Listed { ref shown, by_creation: may_be_followed } = listed;
            let &Shown { epoch, ref queue } = &**shown;
            let own = self.own_name();
            let predecessor = queue.position(own).and_then(|position| queue.get(position.checked_sub(1)?));
            let predecessor_is_ours = predecessor.is_some_and(|name| self.contenders.has(name));
            Listing { epoch, queue, own, max_leases, may_be_followed, predecessor_is_ours }
        };
        if let (Some(candidacy), Outcome::Listed(listed) | Outcome::Armed { listed: Some(listed), .. }) =
            (&self.lock.spec.candidacy, &outcome)
        {
            candidacy.listed(self.own_name(), &listed.shown.queue);
        }
        match outcome {
            Outcome::Plain(input) => plan.next(input, rules),
            Outcome::Listed(listed) | Outcome::Known(listed) => plan.next(Input::Listed(listing(&listed)), rules),
            Outcome::Armed { node, own, listed } => {
                plan.next(Input::Armed(Armed { node, own, listing: listed.as_ref().map(listing) }), rules)
            }
        }
    }

    async fn create(&mut self, retries: &mut RetryLoop, mode: WaitMode) -> Result<Outcome, Error> {
        let created = self.create_and_list(retries, mode).await?;
        let certain = created.is_some() && !self.owned.is_uncertain();
        if certain {
            self.node_is_known();
        }
        // A node that an earlier create has made is adopted after a barrier.
        let epoch = created.map_or(0, |created| created.epoch);
        let ahead = self.entry.ahead().filter(|_| self.early.is_none());
        Ok(Outcome::Plain(Input::Created { epoch, certain, ahead }))
    }

    /// Enters the contender's one node, which is known now.
    fn node_is_known(&mut self) {
        let number = self.lock.sequence(self.own_name()).filter(|number| is_far_from_the_end(*number));
        self.entry.has_node(&self.owned, number);
        self.revocation = self.lock.revocation(&self.owned);
    }

    async fn write_barrier(&mut self) -> Result<Outcome, Error> {
        let epoch = match self.entry.shared_reads() {
            Some(reads) => reads.order(self.session).await?,
            None => shared_reads::order(self.session.clone()).await?,
        };
        Ok(Outcome::Plain(Input::Ordered { epoch }))
    }

    async fn adopt(&mut self) -> Result<Outcome, Error> {
        let base_path = &self.lock.base_path;
        let epoch = if let Some(reads) = self.entry.shared_reads() {
            let shown = reads.list_in_order(self.lock, self.session).await?;
            adopt(&mut self.owned, base_path, shown.queue.strings()).await?;
            shown.epoch
        } else {
            let at = self.session.pinned();
            at.write_barrier().await?;
            adopt(&mut self.owned, base_path, &children_of(&at, base_path).await?).await?;
            at.epoch()
        };
        if self.owned.is_uncertain() {
            return Err(self.is_gone());
        }
        self.node_is_known();
        Ok(Outcome::Plain(Input::Adopted { epoch, ahead: self.entry.ahead() }))
    }

    async fn list(&mut self, watched: bool) -> Result<Outcome, Error> {
        let mut at = self.session.pinned();
        self.awaited = None;
        let early = self.early.take().filter(|_| !watched).and_then(|early| early.listed_on(&at));
        let children = if let Some(children) = early {
            self.candidacy().map(Candidacy::take_read);
            children
        } else {
            if let Some(reads) = self.entry.shared_reads().filter(|_| !watched) {
                let shown = reads.list(self.lock, self.session).await?;
                if !shown.queue.is_near_the_end() {
                    return Ok(Outcome::Listed(Listed { shown, by_creation: false }));
                }
                // Its order takes reads on the connection of the listing.
                at = self.session.pinned();
            }
            self.children(&at).await?
        };
        Ok(Outcome::Listed(self.in_order(&at, children).await?))
    }

    /// Finds the next contender ahead in the session or in its newest listing, or lists.
    async fn next_ahead(&mut self) -> Result<Outcome, Error> {
        let at = self.session.pinned();
        if let Some(ahead) = self.entry.ahead() {
            return Ok(Outcome::Plain(Input::Behind { epoch: at.epoch(), ahead }));
        }
        match self.known_ahead(at.epoch()) {
            Some(KnownAhead { queue, .. }) if queue.len() > 1 => {
                Ok(Outcome::Known(Listed::new(at.epoch(), queue, false)))
            }
            // All ahead have left: the contender is next if its node exists. A writer ahead may have become a reader.
            Some(_) if self.lock.spec.role != Some(Role::Writer) => {
                let children = self.list_behind(&at).await?;
                Ok(Outcome::Listed(self.in_order(&at, children).await?))
            }
            _ => self.list(false).await,
        }
    }

    fn known_ahead(&self, epoch: Epoch) -> Option<KnownAhead> {
        let waits_for =
            |name: &str| self.lock.spec.role != Some(Role::Reader) || kind_of(name) == ParticipantKind::Write;
        self.entry.reads()?.ahead_of(epoch, self.entry.number()?, self.own_name(), waits_for)
    }

    /// Records that a contender ahead has left, as a connection has shown.
    fn has_gone(&self, epoch: Option<Epoch>, name: &str) {
        let Some(reads) = self.entry.reads() else { return };
        let Some(number) = self.lock.sequence(name) else { return };
        self.entry.has_gone(number, name);
        if let (Some(epoch), Some(_)) = (epoch, self.entry.number()) {
            reads.is_gone(epoch, number, name);
        }
    }

    /// Lists after the watches of one write. If all contenders ahead are known, a read of each node is as good: no
    /// contender joins ahead of them.
    async fn list_behind(&self, at: &Session) -> Result<Vec<String>, Error> {
        let base_path = &self.lock.base_path;
        let known = self.known_ahead(at.epoch());
        let Some(KnownAhead { queue, .. }) = known.filter(|known| known.is_all) else {
            let children = children_of(at, base_path);
            return match self.candidacy() {
                Some(candidacy) => candidacy.list(at, base_path, children).await,
                None => children.await,
            };
        };
        let mut found = Vec::with_capacity(queue.len());
        let paths: Vec<_> = queue.names().map(|name| make_path(base_path, name)).collect();
        let looks = futures_util::future::try_join_all(paths.iter().map(|path| at.exists(path))).await?;
        for (name, stat) in queue.names().zip(looks) {
            match stat {
                Some(_) => found.push(name.to_owned()),
                None => self.has_gone(Some(at.epoch()), name),
            }
        }
        Ok(found)
    }

    /// Requests the children, and watches them.
    async fn children(&mut self, at: &Session) -> Result<Vec<String>, Error> {
        let base_path = &self.lock.base_path;
        let listing = at.get_children_watched(base_path);
        let listed = match self.candidacy() {
            Some(candidacy) => candidacy.list(at, base_path, listing).await,
            None => listing.await,
        };
        match listed {
            Ok((children, watch)) => {
                self.listing = Some(Box::new(watch));
                Ok(children)
            }
            // The node of a lock cannot be deleted before its children: without it this contender's node is deleted too.
            Err(Error::NoNode { .. }) => Ok(Vec::new()),
            Err(error) => Err(error),
        }
    }

    async fn in_order(&mut self, at: &Session, children: Vec<String>) -> Result<Listed, Error> {
        let mut queue = self.lock.sort(children);
        let by_number = !queue.is_near_the_end();
        if !by_number {
            queue = Box::pin(by_creation(at, self.lock, queue, &mut self.creation_order)).await?;
        }
        Ok(Listed::new(at.epoch(), queue, !by_number))
    }

    /// Sets the watches and lists in one write. The watches are first: then a node is missing from the listing, or its
    /// deletion is notified.
    async fn arm(&mut self, arm: Arm) -> Result<Outcome, Error> {
        if arm.node.is_some() {
            self.leave_listing();
        }
        let at = self.session.pinned();
        let base_path = &self.lock.base_path;
        if let Some(name) = &arm.node {
            self.awaited_owner = self.contenders.get(name);
        }
        let node = arm.node.map(|name| make_path(base_path, &name));
        let own = if arm.own { self.owned.path() } else { None };
        let listing = async { if arm.list { Some(self.list_behind(&at).await) } else { None } };
        let (node_watch, own_watch) = (watch_node(&at, node.as_deref()), watch_node(&at, own));
        let all = futures_util::future::join4(
            node_watch,
            own_watch,
            self.watch_calls(&at, arm.own || self.calls.has_come),
            listing,
        );
        let (node_watch, own_watch, calls, listed) = at.in_one_write(all).await;
        let listed = match listed.transpose()? {
            Some(children) => Some(self.in_order(&at, children).await?),
            None => None,
        };
        if let Some(node) = &node {
            self.awaited = node_watch?;
            match &self.awaited {
                Some(_) => self.entry.has_found(node_from_path(node)),
                None => self.has_gone(Some(at.epoch()), node_from_path(node)),
            }
            self.warn_of_a_blocker(node);
        }
        if arm.own {
            self.own = own_watch?;
        }
        if let Some(watch) = calls? {
            self.calls.watch = Some(Box::new(watch));
        }
        if self.calls.has_come {
            // Boxed: few contenders are called.
            if let Some(moved) = Box::pin(self.follow_wish()).await? {
                return Ok(Outcome::Plain(moved));
            }
        }
        let node = node.map_or(Watched::NotAsked, |node| watched(&self.awaited, &node));
        let own = if arm.own { watched(&self.own, self.owned.path().unwrap_or_default()) } else { Watched::NotAsked };
        Ok(Outcome::Armed { node, own, listed })
    }

    /// Logs a warning once if the awaited node is not a contender. Such a node blocks the lock, as in Curator, but no client
    /// will delete it.
    fn warn_of_a_blocker(&mut self, node: &str) {
        let found = self.awaited.as_ref().and_then(Watch::found);
        if found.is_none_or(|found| self.lock.is_contender(found.ephemeral_owner))
            || self.blocker.as_deref() == Some(node)
        {
            return;
        }
        self.blocker = Some(node.into());
        let (path, node) = (self.lock.base_path().to_owned(), node.to_owned());
        report(move || {
            tracing::warn!(
                path,
                node,
                "a persistent node with the name of a contender blocks the lock: delete or rename it"
            );
        });
    }

    /// Drops the watches on the earlier node and on its predecessor: the contender has another node.
    pub(super) fn forget_watches(&mut self) {
        (self.own, self.awaited, self.awaited_owner) = (None, None, None);
        self.calls = Calls::default();
    }

    /// Drops the watch of the newest listing, which did not grant the lock. It costs no request: the delete of this
    /// contender's node uses it up at the latest.
    fn leave_listing(&mut self) {
        if let Some(watch) = self.listing.take() {
            watch.leave();
        }
    }

    /// Waits for the first event of a set.
    async fn wait(&mut self, set: &WaitSet) -> Result<Outcome, Error> {
        let owner = set.node.as_deref().zip(self.awaited_owner.as_deref());
        let looks_after = self.session.timeout() / 10;
        let candidacy = self.candidacy();
        let input = tokio::select! {
            biased;
            input = own_event(&mut self.own, looks_after) => input,
            input = self.calls.next(candidacy) => input,
            // Polled before the holder's deletion, which then needs no listing.
            epoch = first(owner.filter(|_| set.hears_holder)) => Input::HolderIsFirst { epoch },
            _ = resolved(self.listing.as_deref_mut()), if set.node.is_none() => {
                self.listing = None;
                Input::QueueChanged
            }
            reason = resolved(self.awaited.as_mut()), if set.node.is_some() => match (reason, self.awaited.take()) {
                (Some(WakeReason::Event(EventType::NodeDeleted)), Some(watch)) => {
                    self.has_gone(watch.fired_in(), set.node.as_deref().unwrap_or_default());
                    let by = Box::pin(deleted_by(self.session, &watch, owner)).await;
                    match self.own.take_if(|own| own.has_fired()) {
                        Some(_) => Input::OwnChanged,
                        None if candidacy.is_some_and(|candidacy| !candidacy.is_current()) => {
                            Input::Deleted { epoch: watch.fired_in(), by: DeletedBy::Unknown }
                        }
                        None => Input::Deleted { epoch: watch.fired_in(), by },
                    }
                }
                (Some(WakeReason::Event(_)), _) => Input::Written,
                _ => Input::Unwatched,
            },
            () = self.limit.changed() => Input::QueueChanged,
        };
        match self.session.end_reason() {
            None => Ok(Outcome::Plain(input)),
            Some(_) => Err(expired(self.session)),
        }
    }

    /// Hands the node to a guard, if the session certainly lives. From now on its deletion is noticed.
    fn granted(self, plan: &Plan, proof: Proof, signals: bool) -> Result<Acquired, Error> {
        // Another reply in the session may have shown the deletion in the meantime.
        if self.owned.loss_signal().loss() == Some(LossReason::NodeDeleted) {
            return Err(self.is_gone());
        }
        let Self { lock, owned, own, listing, entry, revocation, limit, .. } = self;
        if !owned.session().is_alive() {
            return Err(expired(owned.session()));
        }
        if signals {
            owned.signal_grant(lock.stored_data()?.into_owned());
        }
        watch_held(&owned, own.or(listing.map(|watch| *watch)));
        if lock.is_queue() {
            entry.is_first(proof.epoch());
        }
        let queue_position = plan.queue_position.unwrap_or_default();
        Ok(Acquired { entry: Some(entry), queue_position, ..Acquired::new(owned, revocation, limit.last()) })
    }
}

fn expired(session: &Session) -> Error {
    session.closed_error(format!("waiting for a lock in session {}", session.number()))
}

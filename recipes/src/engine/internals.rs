//! The properties of a lock, and what its contenders in this process share.

use std::panic::Location;
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Weak};

use curator_framework::recipe::{OwnedNode, RecipeClient as _, report};
use curator_framework::{CuratorFramework, PathText, Watch, validate_path};
use parking_lot::Mutex;

use crate::engine::acquired::Acquired;
use crate::engine::caller::Origin;
use crate::engine::candidacy::Candidacy;
use crate::engine::driver::{
    LockInternalsDriver, Predicate, SortedChildren, StandardLockInternalsDriver, WRITE_NAME, sequence_of,
};
use crate::engine::error::LockError;
use crate::engine::hold::Hold;
use crate::engine::label::Label;
use crate::engine::limit::Limit;
use crate::engine::options::LockOptions;
use crate::engine::places::{MOST_WAITING, Places};
use crate::engine::plan::Rules;
use crate::engine::revocation::Revocation;
use crate::engine::same_session::Role;
use crate::engine::slot::Slots;
use crate::engine::wait_mode::WaitMode;
use crate::engine::waits;

/// The objects of a client that may share a [batch](crate::engine::batch).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Sharing {
    /// All objects of one path.
    Path,
    /// An object and its clones: only they have its driver.
    Object,
    /// All objects of one path, and their tasks hold the node at once.
    Together,
}

/// The properties of one kind of lock.
#[derive(Debug, Clone)]
pub(crate) struct LockSpec {
    /// The name of the recipe in spans and metrics.
    pub(crate) recipe: &'static str,
    pub(crate) lock_name: &'static str,
    pub(crate) driver: Arc<dyn LockInternalsDriver>,
    pub(crate) limit: Arc<Limit>,
    /// See [`Rules::signals_grant`].
    pub(crate) signals_grant: bool,
    /// The part of the contenders in a queue that none joins ahead of another. `None` for candidates, for leases, and for a
    /// program's driver.
    pub(crate) role: Option<Role>,
    /// The contenders have [places](crate::engine::places). False for candidates, for leases, and for a program's driver.
    pub(crate) has_places: bool,
    /// The data of the parent, if it is created.
    pub(crate) parent_data: &'static [u8],
    /// The parents are containers, if the client creates any. Data with a meaning of its own must not depend on them.
    pub(crate) has_containers: bool,
    /// See [`MutexOptions::extra_lock_patterns`](crate::MutexOptions::extra_lock_patterns).
    pub(crate) extra_lock_patterns: Vec<String>,
    /// The objects of a client that may share a batch.
    pub(crate) sharing: Sharing,
    /// The numbers of a semaphore's leases.
    pub(crate) slots: Option<Arc<Slots>>,
    /// The way through the queue of the lock's one contender, if that may move.
    pub(crate) candidacy: Option<Arc<Candidacy>>,
}

impl LockSpec {
    /// Creates the properties of a lock that one contender holds at a time.
    pub(crate) fn exclusive(lock_name: &'static str, driver: Arc<dyn LockInternalsDriver>) -> Self {
        let limit = Arc::new(Limit::Fixed(1));
        Self {
            recipe: "mutex",
            lock_name,
            driver,
            limit,
            signals_grant: false,
            role: None,
            has_places: false,
            parent_data: &[],
            has_containers: true,
            extra_lock_patterns: Vec::new(),
            sharing: Sharing::Path,
            slots: None,
            candidacy: None,
        }
    }

    /// Creates the properties of a lock that one contender holds at a time, in the order of the queue.
    pub(crate) fn queue(lock_name: &'static str) -> Self {
        let spec = Self::exclusive(lock_name, Arc::new(StandardLockInternalsDriver));
        Self { role: Some(Role::Exclusive), has_places: true, ..spec }
    }
}

/// The contenders of one kind under one path.
#[derive(Debug)]
pub(crate) struct LockInternals {
    pub(super) client: CuratorFramework,
    pub(super) base_path: String,
    /// The path in errors and logs of a holder.
    lock_path: PathText,
    pub(super) spec: LockSpec,
    pub(super) options: LockOptions,
    pub(super) label: Label,
    pub(super) places: Option<Arc<Places>>,
    /// The locks held through this object.
    holds: Mutex<Vec<Weak<Hold>>>,
    /// True once the warning of the end of the sequence numbers was logged.
    pub(super) warned: AtomicBool,
    /// The acquires that were warned of: the place of the one that holds, then of the one that waits.
    warned_of: Mutex<Vec<[&'static Location<'static>; 2]>>,
}

impl LockInternals {
    /// # Errors
    ///
    /// `Error::InvalidPath`, or `LockError::InvalidArgument` for the root.
    pub(crate) fn new(
        client: CuratorFramework,
        base_path: String,
        spec: LockSpec,
        options: LockOptions,
    ) -> Result<Self, LockError> {
        validate_path(&base_path)?;
        if base_path == "/" {
            return Err(LockError::invalid("lock path", "the root cannot be a lock"));
        }
        if !options.linger.is_zero() && !options.one_node {
            return Err(LockError::invalid(
                "linger",
                "the node of a single acquire does not stay: see one_node_per_client",
            ));
        }
        if options.max_waiting_nodes == Some(0) {
            return Err(LockError::invalid("max_waiting_nodes", "must be at least 1"));
        }
        let label = Label { recipe: spec.recipe, name: options.name.clone() };
        let (holds, warned, warned_of) = (Mutex::default(), AtomicBool::new(false), Mutex::default());
        let lock_path = client.path_text(&base_path);
        let most = options.max_waiting_nodes.unwrap_or(MOST_WAITING);
        let places = spec.has_places.then(|| Places::of(&client, &lock_path, most));
        Ok(Self { client, base_path, lock_path, spec, options, label, places, holds, warned, warned_of })
    }

    /// Returns the same lock for a task that does not keep the client.
    pub(crate) fn without_client(&self) -> Self {
        Self {
            client: self.client.weak_clone(),
            base_path: self.base_path.clone(),
            lock_path: self.lock_path.clone(),
            spec: self.spec.clone(),
            options: self.options.clone(),
            label: self.label.clone(),
            places: self.places.clone(),
            holds: Mutex::default(),
            warned: AtomicBool::new(false),
            warned_of: Mutex::default(),
        }
    }

    /// Sets the path that errors and logs of a holder show. Without this call they show the base path.
    pub(crate) fn shown_as(mut self, path: &str) -> Self {
        self.lock_path = self.client.path_text(path);
        self
    }

    /// Returns the rules that all contenders share.
    pub(super) fn rules(&self, mode: WaitMode) -> Rules<'_> {
        let &LockSpec { ref driver, ref limit, signals_grant, .. } = &self.spec;
        Rules {
            driver: &**driver,
            is_queue: self.is_queue() || self.spec.candidacy.as_ref().is_some_and(|candidacy| !candidacy.hears_each),
            may_be_overtaken: self.spec.candidacy.is_some(),
            limit_is_fixed: limit.is_fixed(),
            signals_grant,
            // With extra patterns this contender counts more nodes than other holders may, so it does not rely on them.
            hears_holders: self.is_queue() && self.shared_queue().is_some(),
            asks_once: mode == WaitMode::Once,
        }
    }

    /// One contender holds the lock at a time, in the order of the queue, and none ever joins ahead of another.
    pub(super) fn is_queue(&self) -> bool {
        self.spec.role == Some(Role::Exclusive)
    }

    /// Returns the name of the queue, and the part of this lock's contenders in it, if the contenders of a session share
    /// [what they know](super::same_session) and their [reads](super::shared_reads).
    pub(super) fn shared_queue(&self) -> Option<(&'static str, Role)> {
        let role = self.spec.role.filter(|_| self.spec.extra_lock_patterns.is_empty())?;
        Some((if role == Role::Exclusive { self.spec.lock_name } else { WRITE_NAME }, role))
    }

    pub(crate) fn label(&self) -> &Label {
        &self.label
    }

    pub(crate) fn limit(&self) -> &Arc<Limit> {
        &self.spec.limit
    }

    /// Creates the hold of a contender that was granted the lock.
    pub(crate) fn hold(&self, acquired: Acquired, origin: Origin) -> Arc<Hold> {
        let (queue_position, fencing_token) = (acquired.queue_position, acquired.fencing_token);
        if let Some(long) = self.options.warn_after {
            let (path, node) = (self.lock_path.to_string(), acquired.path().to_owned());
            acquired.owned.when_held_for(long, move || {
                let held_for_more_than_s = long.as_secs_f64();
                report(move || tracing::warn!(path, node, held_for_more_than_s, "a lock is held for long"));
            });
        }
        let lock_path = self.lock_path.clone();
        let hold =
            Hold::new(self.client.clone(), lock_path, self.label.clone(), acquired, origin, self.spec.slots.clone());
        tracing::debug!(path = &*self.lock_path, node = hold.path(), queue_position, %fencing_token, "lock granted");
        let mut holds = self.holds.lock();
        // Before each growth, so that the list is at most twice as long as needed.
        if holds.len() == holds.capacity() {
            holds.retain(|hold| hold.strong_count() > 0);
        }
        holds.push(Arc::downgrade(&hold));
        hold
    }

    /// Returns the holds of this object. The list is unlocked by then: a hold logs and counts its loss or its end, and the
    /// program's subscriber may call back.
    fn holds(&self) -> Vec<Arc<Hold>> {
        self.holds.lock().iter().filter_map(Weak::upgrade).collect()
    }

    /// Returns whether a lock is held through this object.
    pub(crate) fn is_held(&self) -> bool {
        self.holds().iter().any(|hold| hold.is_shared() && hold.loss().is_none())
    }

    /// Logs a warning if the task that is about to wait holds the lock, once for each pair of acquires. Two futures of
    /// one task may take turns, so this is not an error.
    pub(crate) fn warn_of_self_deadlock(&self, lock_path: &str, mode: WaitMode, waits: &Origin) {
        if mode == WaitMode::Once || self.spec.limit.get() != 1 {
            return;
        }
        let is_waited_for =
            |hold: &Arc<Hold>| hold.origin().is_waited_for_by(waits) && hold.is_shared() && hold.loss().is_none();
        let Some(held) = self.holds().into_iter().find(is_waited_for) else { return };
        let pair = [held.origin().at, waits.at];
        if self.is_new(pair) {
            let help = "use LockOwner::scope, acquire_as or reenter, unless another future of the task releases it";
            let [held_at, waits_at] = pair;
            tracing::warn!(path = lock_path, %held_at, %waits_at, help, "a task waits for a lock that it holds");
        }
    }

    /// Records a pair of acquires. Returns whether it was not known.
    fn is_new(&self, pair: [&'static Location<'static>; 2]) -> bool {
        let mut warned_of = self.warned_of.lock();
        let is_new = !warned_of.contains(&pair);
        if is_new {
            warned_of.push(pair);
        }
        is_new
    }

    /// Returns the grant of a node that did not have to wait. From now on a watch notices its deletion. The
    /// watch is the one of a listing with the node, otherwise a read sets it.
    pub(crate) fn acquired_from(&self, owned: OwnedNode, listing: Option<Watch>, limit: usize) -> Acquired {
        waits::watch_held(&owned, listing);
        let revocation = self.revocation(&owned);
        Acquired::new(owned, revocation, limit)
    }

    pub(crate) fn client(&self) -> &CuratorFramework {
        &self.client
    }

    pub(crate) fn base_path(&self) -> &str {
        &self.base_path
    }

    /// Sorts the contenders of a listing by their numbers.
    pub(crate) fn sort(&self, children: Vec<String>) -> SortedChildren {
        SortedChildren::with_patterns(children, self.spec.lock_name, self.patterns(), &*self.spec.driver)
    }

    fn patterns(&self) -> impl Iterator<Item = &str> + Clone {
        self.spec.extra_lock_patterns.iter().map(String::as_str)
    }

    /// Watches a node for revocation requests, if the lock has a listener for them.
    pub(crate) fn revocation(&self, owned: &OwnedNode) -> Option<Revocation> {
        let listener = self.options.revocation.clone()?;
        Some(Revocation::watch(&self.client, owned, Some(listener)))
    }

    /// Returns the number of a contender.
    pub(crate) fn sequence(&self, name: &str) -> Option<i64> {
        sequence_of(name, self.spec.lock_name, self.patterns(), &*self.spec.driver)
    }

    /// Returns `true` if a node with a contender's name is a contender, by the owner in its stat.
    pub(crate) fn is_contender(&self, ephemeral_owner: i64) -> bool {
        self.spec.driver.is_contender(ephemeral_owner)
    }

    /// Returns whether a contender of a listing holds the lock.
    pub(crate) fn is_granted(&self, sorted: &SortedChildren, name: &str) -> bool {
        self.decide(sorted, name) == Predicate::Acquired
    }

    /// Returns the next action of a contender of a listing.
    pub(crate) fn decide(&self, sorted: &SortedChildren, name: &str) -> Predicate {
        self.spec.driver.gets_the_lock(sorted, name, self.spec.limit.get())
    }
}

//! The scenarios of a search: contenders, sessions, faults, and deliberate breaks.

use crate::engine::driver::{LockInternalsDriver, Predicate, SortedChildren, StandardLockInternalsDriver};
use crate::engine::lease_driver::LeaseDriver;
use crate::engine::plan::Rules;
use crate::engine::read_write_driver::{ReadDriver, WriteDriver};

/// The lock of a contender.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum Kind {
    Mutex,
    /// A lease of a semaphore. One contender waits at a time if there are turns.
    Lease,
    Read,
    Write,
    /// A candidate of an election.
    Latch,
}

impl Kind {
    pub(super) fn lock_name(self) -> &'static str {
        match self {
            Self::Mutex => "lock-",
            Self::Lease => "lease-",
            Self::Read => "__READ__",
            Self::Write => "__WRIT__",
            Self::Latch => "latch-",
        }
    }

    /// Returns whether the contenders of a session share what they know.
    pub(super) fn shares(self) -> bool {
        matches!(self, Self::Mutex | Self::Read | Self::Write)
    }
}

#[derive(Debug, Clone, Copy)]
pub(super) struct Spec {
    pub(super) session: usize,
    pub(super) kind: Kind,
    pub(super) asks_once: bool,
    /// It tries to take a free lease without the turn first.
    pub(super) tries: bool,
    /// It is for a further lease of the request of the contender before it.
    pub(super) follows: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Fault {
    DeleteOne,
    DeleteBoth,
    Kill,
    Break,
    GiveUp,
    LoseTurn,
    Limit(u8),
}

/// A deliberate break, between the world and the planner or in a driver.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Quirk {
    /// A deletion by an unknown transaction is taken for another session's.
    UnknownIsOtherSession,
    /// A delete that the owner has started is taken for one with a reply.
    BegunDeleteIsDone,
    /// A waiter takes an owner's reports for every node that a lost reply has left of that owner.
    OwnerOfAnyNode,
    /// A deletion is taken to have been notified on the connection on which the watch was set.
    ReplayIsOfTheOldConnection,
    /// This contender's node is taken to be watched, although it is deleted.
    GoneNodeIsArmed,
    /// Any contender of the session ahead is taken for the one directly ahead.
    AnyNodeAheadIsNext,
    /// This contender's node is added to a listing that lacks it.
    ListingHasOwn,
    /// After a lost reply one node is taken for certain.
    LostReplyIsCertain,
    /// The session does not restore its watches on another connection.
    WatchesAreNotRestored,
    /// A contender reports that it is first as soon as its node exists.
    SaysFirstAtOnce,
    /// A notification for a node does not reach its owner.
    OwnerIsNotMarked,
    /// A holder of a lease does not signal.
    NoSignal,
    /// A waiter does not see a signal from before its watch.
    EarlierSignalIsMissed,
    /// A reply without a listing updates the limit that the contender knows.
    AnyReplyTakesTheLimit,
    /// A limit that changes is allowed where contenders do not take turns.
    LimitMayChangeWithoutTurns,
    /// A contender counts one lease more than the limit.
    OneLeaseMore,
    /// Each deletion is taken for the deletion of the only blocker.
    AnyBlockerIsAlone,
    /// A reader ignores the writer directly ahead.
    ReaderIgnoresTheLastWriter,
    /// A reader waits for the first writer only.
    ReaderTakesTheFirstWriter,
    /// A writer takes the deletion of its predecessor for its grant.
    WriterTrustsADeletion,
    /// A reader waits for any contender of its session ahead.
    ReaderWaitsForReaders,
    /// A writer reads only its own node when all that an earlier listing has shown ahead are deleted.
    WriterReadsItsNode,
    /// A contender reads only its own node when its session no longer knows another one ahead.
    NothingKnownIsNothingAhead,
    /// A waiter watches the node that is as many positions ahead as leases exist.
    WatchesOneLeaseAhead,
    /// A request for several leases continues when it has lost the turn.
    KeepsLeasesWithoutTurn,
    /// A request for several leases that fails does not delete those that it has.
    KeepsLeasesOfAFailure,
    /// A request for several leases does not check all of them at the end.
    LeasesAreNotChecked,
    /// A candidate moves without a check that the leader's node exists.
    LeaderIsNotChecked,
    /// A candidate takes the deletion of the leader's node for its grant, whether the path's data has changed or not.
    RecordIsIgnored,
    /// A candidate lists first, and then reads the path's data.
    RecordIsReadLate,
    /// A candidate moves to the end of the queue.
    MovesToTheBack,
    /// A candidate that has moved does not list.
    MoveIsNotListed,
    /// A candidate does not delete the node of a move that has lost its reply.
    LostMoveIsKept,
}

#[derive(Debug, Clone)]
pub(super) struct Scenario {
    pub(super) contenders: Vec<Spec>,
    pub(super) faults: usize,
    pub(super) fault_kinds: &'static [Fault],
    pub(super) limit: u8,
    /// One contender at a time may take a lease.
    pub(super) has_turns: bool,
    /// A holder of a lease signals to a waiter behind it.
    pub(super) signals_grant: bool,
    /// A writer that holds the lock may become a reader.
    pub(super) downgrades: bool,
    /// The number of times that a leader may hand over.
    pub(super) hand_overs: usize,
    /// A contender that is alone in its session handles a reply before a fault can come in between.
    pub(super) runs_at_once: bool,
    /// Waits may last so long that a waiter watches its own node.
    pub(super) waits_last: bool,
    pub(super) quirk: Option<Quirk>,
}

impl Scenario {
    /// Contenders of these kinds, in the sessions of these numbers.
    pub(super) fn new(
        contenders: impl IntoIterator<Item = (Kind, usize)>,
        faults: usize,
        fault_kinds: &'static [Fault],
    ) -> Self {
        let spec = |(kind, session)| Spec { session, kind, asks_once: false, tries: false, follows: false };
        Self {
            contenders: contenders.into_iter().map(spec).collect(),
            faults,
            fault_kinds,
            limit: 1,
            has_turns: false,
            signals_grant: false,
            downgrades: false,
            hand_overs: 0,
            runs_at_once: true,
            waits_last: false,
            quirk: None,
        }
    }

    /// Lets nothing happen at once that need not, and lets waits last.
    pub(super) fn thorough(self) -> Self {
        Self { runs_at_once: false, waits_last: true, ..self }
    }

    /// Lets one of the contenders ask once.
    pub(super) fn with_try(mut self, contender: usize) -> Self {
        self.contenders[contender].asks_once = true;
        self
    }

    /// Lets these contenders take a free lease without the turn first.
    pub(super) fn with_first_tries(mut self, contenders: &[usize]) -> Self {
        contenders.iter().for_each(|contender| self.contenders[*contender].tries = true);
        self
    }

    /// Lets each request be for as many leases.
    pub(super) fn with_requests(mut self, leases: usize) -> Self {
        let contenders = self.contenders.iter_mut().enumerate();
        contenders.for_each(|(index, contender)| contender.follows = index % leases != 0);
        self
    }

    pub(super) fn with_quirk(mut self, quirk: Quirk) -> Self {
        self.quirk = Some(quirk);
        self
    }

    /// Calls `call` with the rules of a contender, as the locks set them.
    pub(super) fn with_rules<T>(&self, kind: Kind, asks_once: bool, call: impl FnOnce(&Rules<'_>) -> T) -> T {
        let driver = driver(kind, self.has_turns);
        let broken = self.quirk.map(|quirk| BrokenDriver { kind, quirk, driver });
        let (is_mutex, is_latch) = (kind == Kind::Mutex, kind == Kind::Latch);
        call(&Rules {
            driver: broken.as_ref().map_or(driver, |broken| broken),
            is_queue: is_mutex || is_latch,
            may_be_overtaken: is_latch,
            limit_is_fixed: !self.fault_kinds.iter().any(|fault| matches!(fault, Fault::Limit(_))),
            signals_grant: self.signals_grant && self.quirk != Some(Quirk::NoSignal),
            hears_holders: is_mutex,
            asks_once,
        })
    }
}

fn driver(kind: Kind, has_one_waiter: bool) -> &'static dyn LockInternalsDriver {
    match (kind, has_one_waiter) {
        (Kind::Mutex | Kind::Latch, _) => &StandardLockInternalsDriver,
        (Kind::Lease, false) => &LeaseDriver { has_one_waiter: false },
        (Kind::Lease, true) => &LeaseDriver { has_one_waiter: true },
        (Kind::Read, _) => &ReadDriver,
        (Kind::Write, _) => &WriteDriver,
    }
}

/// A driver that decides wrongly.
#[derive(Debug)]
struct BrokenDriver {
    kind: Kind,
    quirk: Quirk,
    driver: &'static dyn LockInternalsDriver,
}

impl LockInternalsDriver for BrokenDriver {
    fn sequence(&self, name: &str, lock_name: &str) -> Option<i64> {
        self.driver.sequence(name, lock_name)
    }

    fn gets_the_lock(&self, children: &SortedChildren, ours: &str, max_leases: usize) -> Predicate {
        let decided = self.driver.gets_the_lock(children, ours, max_leases);
        let position = children.position(ours).unwrap_or_default();
        let is_writer = |name: &&str| name.contains(Kind::Write.lock_name());
        match (self.quirk, self.kind, decided) {
            (Quirk::OneLeaseMore, ..) => self.driver.gets_the_lock(children, ours, max_leases + 1),
            (Quirk::AnyBlockerIsAlone, _, Predicate::WatchNode { node, .. })
            | (Quirk::WriterTrustsADeletion, Kind::Write, Predicate::WatchNode { node, .. }) => {
                let is_last_blocker = self.quirk == Quirk::AnyBlockerIsAlone || position == 1;
                Predicate::WatchNode { node, is_last_blocker }
            }
            (Quirk::ReaderIgnoresTheLastWriter, Kind::Read, _)
                if children.names().take(position).filter(is_writer).count() == 1 =>
            {
                Predicate::Acquired
            }
            (Quirk::ReaderTakesTheFirstWriter, Kind::Read, decided) => match children.names().find(is_writer) {
                Some(first) if decided != Predicate::Acquired => {
                    Predicate::WatchNode { node: first.to_owned(), is_last_blocker: true }
                }
                _ => decided,
            },
            (Quirk::WatchesOneLeaseAhead, Kind::Lease, Predicate::WatchChildren | Predicate::WatchSignal { .. }) => {
                let ahead = children.get(position - max_leases).unwrap_or_default().to_owned();
                Predicate::WatchNode { node: ahead, is_last_blocker: false }
            }
            (_, _, decided) => decided,
        }
    }
}

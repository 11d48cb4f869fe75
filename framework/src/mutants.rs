//! Deliberate breaks of the engine, to show that the checks find them. Without the feature `mutants` none of this is
//! in the code.

/// A way to break the engine.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Mutant {
    /// A waiter takes any departure of its predecessor for its own grant.
    SkipTheRelist,
    /// When the one before the one ahead of a waiter is gone, no listing tells whether others are left.
    SkipTheEarlyListing,
    /// An attempt goes on with a node that an earlier one has left, of whichever session it is.
    TrustTheOldSession,
    /// Contenders are sorted by their whole names.
    OrderByName,
    /// The session's deadline is not looked at.
    IgnoreTheDeadline,
    /// Reads move the deadline while something is held.
    ReadsMoveTheDeadline,
    /// What an attempt leaves behind is not cleaned up.
    ForgetTheCleanUp,
    /// The clean-up lists without a write first.
    LookUpWithoutAWrite,
    /// The first waiter of a semaphore watches the node `n` places ahead only.
    WatchIndexMinusN,
    /// A hand-over without a listing although the own node was not watched.
    HandOffWithoutTheOwnWatch,
    /// After a reconnect every reply goes to the request behind its own.
    ShiftTheReplies,
    /// Nobody is woken by a reconnect.
    SleepThroughReconnects,
    /// One place more than there is.
    OneTooMany,
    /// A holder does not watch its node.
    LeaveTheOwnNodeAlone,
    /// Of several nodes of its own an attempt keeps all.
    KeepTheExtraNodes,
    /// An answer of the leader proves that it knew of the client when the request was sent.
    TrustTheSendTime,
    /// What is granted right behind a read counts from that read.
    TrustTheReadBefore,
    /// While something is held any answer puts off the heartbeat.
    ReadsPutOffTheHeartbeat,
    /// Contenders are sorted by their numbers also where the counter ends.
    TrustTheLastNumbers,
    /// A downgraded reader stands behind those who wait: CURATOR-621.
    DowngradeBehindTheQueue,
    /// A reader behind several writers takes the departure of the first for its own grant.
    ReaderTakesTheFirstWriter,
    /// A reader does not see the writer directly ahead.
    ReaderIgnoresTheLastWriter,
    /// The first writer in line takes the departure of the node ahead for its own grant.
    WriterTrustsADeletion,
    /// Who has a lease does not tell the one behind.
    GrantedWithoutATouch,
    /// Of several leases those that were taken are kept if the others are not had.
    KeepThePartialLeases,
    /// Of several locks those that were taken are kept if the others are not had.
    KeepThePartialLocks,
    /// Who takes several leases goes on when it has lost its turn to do so.
    KeepTheLeasesWithoutTheTurn,
    /// Several locks are granted although one of them was lost meanwhile.
    GrantLostLocks,
    /// A contender reports that it is first whenever it lists, and its successor takes any deletion of it for a grant.
    FirstBeforeItsTurn,
}

impl Mutant {
    /// All of them.
    pub const ALL: [Self; 29] = [
        Self::SkipTheRelist,
        Self::SkipTheEarlyListing,
        Self::TrustTheOldSession,
        Self::OrderByName,
        Self::IgnoreTheDeadline,
        Self::ReadsMoveTheDeadline,
        Self::ForgetTheCleanUp,
        Self::LookUpWithoutAWrite,
        Self::WatchIndexMinusN,
        Self::HandOffWithoutTheOwnWatch,
        Self::ShiftTheReplies,
        Self::SleepThroughReconnects,
        Self::OneTooMany,
        Self::LeaveTheOwnNodeAlone,
        Self::KeepTheExtraNodes,
        Self::TrustTheSendTime,
        Self::TrustTheReadBefore,
        Self::ReadsPutOffTheHeartbeat,
        Self::TrustTheLastNumbers,
        Self::DowngradeBehindTheQueue,
        Self::ReaderTakesTheFirstWriter,
        Self::ReaderIgnoresTheLastWriter,
        Self::WriterTrustsADeletion,
        Self::GrantedWithoutATouch,
        Self::KeepThePartialLeases,
        Self::KeepThePartialLocks,
        Self::KeepTheLeasesWithoutTheTurn,
        Self::GrantLostLocks,
        Self::FirstBeforeItsTurn,
    ];

    /// Its name, in words.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::SkipTheRelist => "skip-the-relist",
            Self::SkipTheEarlyListing => "skip-the-early-listing",
            Self::TrustTheOldSession => "trust-the-old-session",
            Self::OrderByName => "order-by-name",
            Self::IgnoreTheDeadline => "ignore-the-deadline",
            Self::ReadsMoveTheDeadline => "reads-move-the-deadline",
            Self::ForgetTheCleanUp => "forget-the-clean-up",
            Self::LookUpWithoutAWrite => "look-up-without-a-write",
            Self::WatchIndexMinusN => "watch-index-minus-n",
            Self::HandOffWithoutTheOwnWatch => "hand-off-without-the-own-watch",
            Self::ShiftTheReplies => "shift-the-replies",
            Self::SleepThroughReconnects => "sleep-through-reconnects",
            Self::OneTooMany => "one-too-many",
            Self::LeaveTheOwnNodeAlone => "leave-the-own-node-alone",
            Self::KeepTheExtraNodes => "keep-the-extra-nodes",
            Self::TrustTheSendTime => "trust-the-send-time",
            Self::TrustTheReadBefore => "trust-the-read-before",
            Self::ReadsPutOffTheHeartbeat => "reads-put-off-the-heartbeat",
            Self::TrustTheLastNumbers => "trust-the-last-numbers",
            Self::DowngradeBehindTheQueue => "downgrade-behind-the-queue",
            Self::ReaderTakesTheFirstWriter => "reader-takes-the-first-writer",
            Self::ReaderIgnoresTheLastWriter => "reader-ignores-the-last-writer",
            Self::WriterTrustsADeletion => "writer-trusts-a-deletion",
            Self::GrantedWithoutATouch => "granted-without-a-touch",
            Self::KeepThePartialLeases => "keep-the-partial-leases",
            Self::KeepThePartialLocks => "keep-the-partial-locks",
            Self::KeepTheLeasesWithoutTheTurn => "keep-the-leases-without-the-turn",
            Self::GrantLostLocks => "grant-lost-locks",
            Self::FirstBeforeItsTurn => "first-before-its-turn",
        }
    }
}

#[cfg(feature = "mutants")]
mod switch {
    use super::Mutant;
    use std::cell::Cell;

    thread_local! {
        static CURRENT: Cell<Option<Mutant>> = const { Cell::new(None) };
    }

    /// Breaks the engine on this thread, or mends it.
    pub fn set(mutant: Option<Mutant>) {
        CURRENT.set(mutant);
    }

    thread_local! {
        static NODE: std::cell::RefCell<Option<String>> = const { std::cell::RefCell::new(None) };
    }

    /// Keeps the name of a node, for [`Mutant::TrustTheOldSession`]; returns the one that was kept.
    #[must_use]
    pub fn keep_node(name: Option<String>) -> Option<String> {
        NODE.replace(name)
    }

    /// Whether the engine is broken in this way on this thread.
    #[must_use]
    pub fn is_broken(mutant: Mutant) -> bool {
        CURRENT.get() == Some(mutant)
    }
}

#[cfg(feature = "mutants")]
pub use switch::{is_broken, keep_node, set};

/// Keeps nothing.
#[cfg(not(feature = "mutants"))]
#[must_use]
pub fn keep_node(_: Option<String>) -> Option<String> {
    None
}

/// Whether the engine is broken in this way: never.
#[cfg(not(feature = "mutants"))]
#[must_use]
pub const fn is_broken(_: Mutant) -> bool {
    false
}

//! Sorts one listing of a lock's children and decides which contenders hold the lock: pure, without I/O.

use std::fmt;

use curator_framework::CreateMode;
use curator_framework::recipe::owning_session;

/// Curator's name for the nodes of a mutex.
pub(crate) const LOCK_NAME: &str = "lock-";
/// Curator's names for the nodes of the two halves of a read-write lock.
pub(crate) const READ_NAME: &str = "__READ__";
pub(crate) const WRITE_NAME: &str = "__WRIT__";

/// From this number on contenders are ordered by the transaction that created them.
const NEAR_THE_END: i64 = (1 << 31) - (1 << 20);

/// The most waiters that watch the children.
const MOST_FIRST_WAITERS: usize = 4;
/// With more contenders, holders included, only one waiter does: each listing is large.
const SHORT_QUEUE: usize = 256;

/// Returns whether the sequence number orders the node. Such a node precedes every node nearer the end of the counter,
/// even one that was created earlier.
pub(crate) fn is_far_from_the_end(sequence: i64) -> bool {
    (0..NEAR_THE_END).contains(&sequence)
}

/// Returns the number of a contender. `None` for the name of another node.
pub(crate) fn sequence_of<'a>(
    name: &str,
    lock_name: &str,
    patterns: impl IntoIterator<Item = &'a str>,
    driver: &(impl LockInternalsDriver + ?Sized),
) -> Option<i64> {
    let own = driver.sequence(name, lock_name);
    own.or_else(|| patterns.into_iter().find_map(|pattern| standard_sequence(name, pattern)))
}

/// The contenders among a lock's children, in the order in which they are granted it.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct SortedChildren {
    children: Vec<(i64, String)>,
}

impl SortedChildren {
    /// Sorts a listing. Leaves out children that are not contenders.
    #[must_use]
    pub fn new(
        listing: impl IntoIterator<Item = String>,
        lock_name: &str,
        driver: &(impl LockInternalsDriver + ?Sized),
    ) -> Self {
        Self::with_patterns(listing, lock_name, [], driver)
    }

    /// Sorts a listing like [`new`](Self::new), with further names that a contender may have.
    pub(crate) fn with_patterns<'a>(
        listing: impl IntoIterator<Item = String>,
        lock_name: &str,
        patterns: impl IntoIterator<Item = &'a str> + Clone,
        driver: &(impl LockInternalsDriver + ?Sized),
    ) -> Self {
        let sequence = |name: &str| sequence_of(name, lock_name, patterns.clone(), driver);
        let listing = listing.into_iter();
        // Nearly all children are contenders.
        let mut children = Vec::with_capacity(listing.size_hint().0);
        children.extend(listing.filter_map(|name| Some((sequence(&name)?, name))));
        children.sort();
        Self { children }
    }

    /// Returns whether a number is so near the end of ZooKeeper's counter that numbers do not show the order: the
    /// server repeats 2^31 − 1, then continues below zero in bursts.
    pub(crate) fn is_near_the_end(&self) -> bool {
        self.children.iter().any(|(sequence, _)| !is_far_from_the_end(*sequence))
    }

    /// Sorts contenders near the end of the counter by creation, after the others. Drops contenders of unknown
    /// creation.
    pub(crate) fn sorted_by(self, created: impl Fn(&str) -> Option<i64>) -> Self {
        let ordered = |(sequence, name): (i64, String)| Some((queue_order(sequence, || created(&name))?, name));
        let mut children: Vec<_> = self.children.into_iter().filter_map(ordered).collect();
        children.sort();
        Self { children }
    }

    /// Returns the contenders that `keeps` returns `true` for, in the same order.
    pub(crate) fn only(&self, keeps: impl Fn(&str) -> bool) -> Self {
        Self { children: self.children.iter().filter(|(_, name)| keeps(name)).cloned().collect() }
    }

    /// Returns the position of a contender with this number, in logarithmic time.
    pub(crate) fn position_of(&self, number: i64, name: &str) -> Option<usize> {
        self.children.binary_search_by(|(other, child)| (*other, child.as_str()).cmp(&(number, name))).ok()
    }

    /// Returns how many contenders have a smaller number, in logarithmic time.
    pub(crate) fn numbers_below(&self, number: i64) -> usize {
        self.children.partition_point(|(other, _)| *other < number)
    }

    /// Returns the contenders at these positions, in the same order.
    pub(crate) fn at(&self, positions: impl DoubleEndedIterator<Item = usize>) -> Self {
        Self { children: positions.filter_map(|position| self.children.get(position).cloned()).collect() }
    }

    /// Returns the names, in order.
    #[must_use]
    pub fn names(&self) -> impl ExactSizeIterator<Item = &str> + DoubleEndedIterator {
        self.children.iter().map(|(_, name)| name.as_str())
    }

    /// Returns the names, each with the number that orders it.
    pub(crate) fn numbered(&self) -> impl Iterator<Item = (i64, &str)> {
        self.children.iter().map(|(number, name)| (*number, name.as_str()))
    }

    pub(crate) fn strings(&self) -> impl Iterator<Item = &String> {
        self.children.iter().map(|(_, name)| name)
    }

    /// Returns the name at a position.
    #[must_use]
    pub fn get(&self, index: usize) -> Option<&str> {
        self.children.get(index).map(|(_, name)| name.as_str())
    }

    /// Returns the position of a name.
    #[must_use]
    pub fn position(&self, name: &str) -> Option<usize> {
        self.children.iter().position(|(_, child)| child == name)
    }

    /// Returns the number of contenders.
    #[must_use]
    pub fn len(&self) -> usize {
        self.children.len()
    }

    /// Returns whether the listing has no contender.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.children.is_empty()
    }
}

/// The next action of a contender: Curator's `PredicateResults`.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
#[doc(alias = "PredicateResults")]
pub enum Predicate {
    /// The contender has the lock.
    Acquired,
    /// The contender waits for the deletion of a node.
    WatchNode {
        /// The node's name.
        node: String,
        /// True if no other node blocks the contender: the node's deletion alone grants the lock.
        is_last_blocker: bool,
    },
    /// The contender waits until a contender ahead is deleted or written: the write signals that it holds a lease.
    WatchSignal {
        /// The name of the node ahead.
        node: String,
    },
    /// The contender waits for any change of the lock's children.
    WatchChildren,
    /// The contender's own node is not in the listing.
    Missing,
}

/// The order of a lock's contenders and the choice among them: Curator's `LockInternalsDriver`.
///
/// A driver only decides: the engine creates nodes, lists and sets watches.
pub trait LockInternalsDriver: Send + Sync + fmt::Debug + 'static {
    /// Returns the number that orders a child, or `None` for a child that is not a contender. Curator's
    /// `fixForSorting`, as a number.
    ///
    /// Numbers below zero or close to 2^31 (less than 2^20 away) are taken for numbers of ZooKeeper's counter at its
    /// end. They come after all others, in the order of creation.
    #[doc(alias = "fixForSorting")]
    #[doc(alias = "LockInternalsSorter")]
    fn sequence(&self, name: &str, lock_name: &str) -> Option<i64> {
        standard_sequence(name, lock_name)
    }

    /// Returns whether a node that has a [`sequence`](Self::sequence) is a contender, by the `ephemeral_owner` of its
    /// stat. A name is not evidence: unless [`create_mode`](Self::create_mode) says otherwise, contenders are ephemeral.
    /// Any other node blocks the contenders after it, as in Curator, but is not a participant.
    fn is_contender(&self, ephemeral_owner: i64) -> bool {
        !self.create_mode().is_ephemeral() || owning_session(ephemeral_owner).is_some()
    }

    /// Returns the mode of the lock's nodes. A persistent node outlives its session: no other contender is granted the
    /// lock until that node is deleted.
    #[doc(alias = "createsTheLock")]
    fn create_mode(&self) -> CreateMode {
        CreateMode::EphemeralSequential
    }

    /// Returns the next action of the contender `ours`, if `max_leases` contenders may hold the lock at once.
    fn gets_the_lock(&self, children: &SortedChildren, ours: &str, max_leases: usize) -> Predicate;
}

/// First come, first served: Curator's `StandardLockInternalsDriver`.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct StandardLockInternalsDriver;

impl LockInternalsDriver for StandardLockInternalsDriver {
    fn gets_the_lock(&self, children: &SortedChildren, ours: &str, max_leases: usize) -> Predicate {
        let Some(index) = children.position(ours) else { return Predicate::Missing };
        if index < max_leases {
            return Predicate::Acquired;
        }
        // With several leases, any deletion ahead frees one. Only the first waiters watch the children. Each of the
        // others may be one of them once the contender that it watches has a lease. (Curator watches
        // `children[index - max_leases]`: a waiter may then keep waiting while a lease is free.)
        let first_waiters = first_waiters(children, max_leases);
        if max_leases > 1 && index < max_leases + first_waiters {
            return Predicate::WatchChildren;
        }
        match index.checked_sub(first_waiters).and_then(|ahead| children.get(ahead)) {
            Some(ahead) if max_leases > 1 => Predicate::WatchSignal { node: ahead.to_owned() },
            Some(ahead) => Predicate::WatchNode { node: ahead.to_owned(), is_last_blocker: index == max_leases },
            None => Predicate::WatchChildren,
        }
    }
}

/// Returns how many waiters watch the children. That many leases can pass at once. In return, each contender that joins or
/// leaves causes that many listings.
fn first_waiters(children: &SortedChildren, max_leases: usize) -> usize {
    if children.len() <= SHORT_QUEUE { max_leases.clamp(1, MOST_FIRST_WAITERS) } else { 1 }
}

/// Returns the number after the last occurrence of the lock's name: 7 for `_c_<uuid>-lock-0000000007`.
#[must_use]
#[doc(alias = "standardFixForSorting")]
pub fn standard_sequence(name: &str, lock_name: &str) -> Option<i64> {
    // Fast path: a lock name without digits that ends right before the number is the last occurrence.
    let digits = name.bytes().rev().take_while(u8::is_ascii_digit).count();
    let (before, number) = name.split_at(name.len() - digits);
    let has_digits = lock_name.is_empty() || lock_name.bytes().any(|byte| byte.is_ascii_digit());
    if digits > 0 && !has_digits && before.ends_with(lock_name) {
        return number.parse().ok();
    }
    let number = &name[name.rfind(lock_name)? + lock_name.len()..];
    let digits = number.strip_prefix('-').unwrap_or(number);
    if digits.is_empty() || !digits.bytes().all(|byte| byte.is_ascii_digit()) {
        return None;
    }
    number.parse().ok()
}

/// Returns the number that orders a contender in its queue, by the sequence number of its node. Near the end of
/// ZooKeeper's counter this is a number by `czxid`, the transaction that created the node: `None` if it is not known.
/// Contenders with the same number are ordered by their names.
#[must_use]
pub fn queue_order(sequence: i64, czxid: impl FnOnce() -> Option<i64>) -> Option<i64> {
    if is_far_from_the_end(sequence) { Some(sequence) } else { Some(czxid()?.saturating_add(1 << 31)) }
}

#[cfg(test)]
mod tests {
    use super::*;

    const DRIVER: StandardLockInternalsDriver = StandardLockInternalsDriver;

    fn sorted(listing: &[&str]) -> SortedChildren {
        SortedChildren::new(listing.iter().map(|name| (*name).to_owned()), "lock-", &DRIVER)
    }

    fn watch(node: &str) -> Predicate {
        Predicate::WatchNode { node: node.into(), is_last_blocker: false }
    }

    #[test]
    fn the_number_counts_not_the_name() {
        let children = sorted(&["_c_b-lock-0000000002", "_c_z-lock-0000000001", "_c_a-lock-0000000010"]);
        let names: Vec<_> = children.names().collect();
        assert_eq!(names, ["_c_z-lock-0000000001", "_c_b-lock-0000000002", "_c_a-lock-0000000010"]);
    }

    #[test]
    fn near_the_end_of_the_counter_numbers_do_not_count() {
        assert!(!sorted(&["a-lock-0000000000", "b-lock-2146435071"]).is_near_the_end());
        assert!(sorted(&["a-lock-0000000000", "b-lock-2146435072"]).is_near_the_end());
        assert!(sorted(&["b-lock--2147483648"]).is_near_the_end());
        let created = |name: &str| match name {
            "b-lock-2147483647" => Some(11),
            "a-lock-2147483647" => Some(12),
            "c-lock--2147483648" => Some(13),
            "d-lock-0000000007" => Some(99),
            _ => None,
        };
        let children = sorted(&[
            "c-lock--2147483648",
            "a-lock-2147483647",
            "b-lock-2147483647",
            "gone-lock-2147483646",
            "d-lock-0000000007",
        ]);
        let names: Vec<_> = children.sorted_by(created).names().map(ToOwned::to_owned).collect();
        // `d` is first although it was created last: a reader that was a writer keeps the writer's number.
        assert_eq!(names, ["d-lock-0000000007", "b-lock-2147483647", "a-lock-2147483647", "c-lock--2147483648"]);
    }

    #[test]
    fn numbers_below_zero_and_wide_ones_are_numbers() {
        let children = sorted(&["a-lock-2147483647", "b-lock--2147483648", "c-lock--000000001"]);
        let names: Vec<_> = children.names().collect();
        assert_eq!(names, ["b-lock--2147483648", "c-lock--000000001", "a-lock-2147483647"]);
    }

    #[test]
    fn foreign_children_are_not_contenders() {
        let children = sorted(&["0", "readme", "lock-", "lock-x1", "_c_a-lease-0000000001", "_c_a-lock-0000000001"]);
        assert_eq!(children.names().collect::<Vec<_>>(), ["_c_a-lock-0000000001"]);
    }

    #[test]
    fn contenders_are_ephemeral_unless_the_driver_creates_other_nodes() {
        #[derive(Debug)]
        struct Outliving;
        impl LockInternalsDriver for Outliving {
            fn create_mode(&self) -> CreateMode {
                CreateMode::PersistentSequential
            }

            fn gets_the_lock(&self, _: &SortedChildren, _: &str, _: usize) -> Predicate {
                Predicate::Acquired
            }
        }
        let session = 0x1000_17d8_29d0_01f0;
        assert_eq!([session, 0, i64::MIN].map(|owner| DRIVER.is_contender(owner)), [true, false, false]);
        assert_eq!([session, 0, i64::MIN].map(|owner| Outliving.is_contender(owner)), [true; 3]);
    }

    #[test]
    fn the_last_occurrence_of_the_lock_name_counts() {
        assert_eq!(standard_sequence("lock-0000000005-lock-0000000007", "lock-"), Some(7));
        assert_eq!(standard_sequence("_c_-lock-99999999999999999999", "lock-"), None);
    }

    /// All short names over four characters, against a plain implementation.
    #[test]
    fn the_number_is_what_is_behind_the_last_occurrence() {
        let words = |length: usize| {
            (0..4_usize.pow(u32::try_from(length).unwrap())).map(move |number| {
                (0..length)
                    .map(|digit| ['a', '0', '7', '-'][number / 4_usize.pow(digit as u32) % 4])
                    .collect::<String>()
            })
        };
        let mut numbers = 0;
        for lock_name in (0..=3).flat_map(words) {
            for name in (0..=6).flat_map(words) {
                let behind = name.rfind(&lock_name).map(|begin| &name[begin + lock_name.len()..]);
                let expected = behind.and_then(|number| number.parse::<i64>().ok());
                assert_eq!(standard_sequence(&name, &lock_name), expected, "{name} {lock_name}");
                numbers += usize::from(expected.is_some());
            }
        }
        assert!(numbers > 1000, "{numbers}");
    }

    #[test]
    fn mutex_waiter_watches_its_predecessor() {
        let children = sorted(&["lock-1", "lock-2", "lock-3"]);
        assert_eq!(DRIVER.gets_the_lock(&children, "lock-1", 1), Predicate::Acquired);
        let last_blocker = Predicate::WatchNode { node: "lock-1".into(), is_last_blocker: true };
        assert_eq!(DRIVER.gets_the_lock(&children, "lock-2", 1), last_blocker);
        assert_eq!(DRIVER.gets_the_lock(&children, "lock-3", 1), watch("lock-2"));
        assert_eq!(DRIVER.gets_the_lock(&children, "lock-4", 1), Predicate::Missing);
        assert_eq!(DRIVER.gets_the_lock(&SortedChildren::default(), "lock-1", 1), Predicate::Missing);
    }

    #[test]
    fn with_several_leases_the_first_waiters_watch_the_children() {
        let names: Vec<_> = (1..=300).map(|number| format!("lock-{number}")).collect();
        let decide = |length: usize, number: usize, leases: usize| {
            let names: Vec<_> = names[..length].iter().map(String::as_str).collect();
            DRIVER.gets_the_lock(&sorted(&names), &format!("lock-{number}"), leases)
        };
        let signal_of = |number: usize| Predicate::WatchSignal { node: format!("lock-{number}") };
        // As many as leases.
        assert_eq!(decide(6, 2, 2), Predicate::Acquired);
        assert_eq!(decide(6, 3, 2), Predicate::WatchChildren);
        assert_eq!(decide(6, 4, 2), Predicate::WatchChildren);
        assert_eq!(decide(6, 5, 2), signal_of(3));
        assert_eq!(decide(6, 6, 2), signal_of(4));
        // At most four.
        assert_eq!(decide(256, 14, 10), Predicate::WatchChildren);
        assert_eq!(decide(256, 15, 10), signal_of(11));
        // In a long queue one.
        assert_eq!(decide(257, 11, 10), Predicate::WatchChildren);
        assert_eq!(decide(257, 12, 10), signal_of(11));
        assert_eq!(decide(257, 13, 10), signal_of(12));
    }
}

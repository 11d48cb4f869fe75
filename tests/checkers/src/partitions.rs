//! The owners of a partition's items, and the check for violations.
//!
//! A [`Partitions`] has an [election](crate::elections) for each item: its owner leads it. It also has the
//! [shares](Share) that members report when nothing has changed for some time. [`Partitions::check`] finds violations:
//!
//! - the violations of the elections: two owners of one item, an item without owner outside of faults
//! - a share that differs from the allocation, or an item that its member does not own
//! - two members with one id

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use crate::elections::{Elections, Event, Rules};
use crate::violation::{Found, Violation};

/// The share that a member reports when nothing has changed for some time.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Share {
    /// The id of the member.
    pub id: String,
    /// True if it is a member; another process may have its id.
    pub is_member: bool,
    /// The number of members that it sees.
    pub members: usize,
    /// The items that it is to own, in order.
    pub wanted: Vec<String>,
    /// The items that it owns, in order.
    pub owned: Vec<String>,
}

/// The events of one partition.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Partitions {
    items: BTreeMap<String, Elections>,
    shares: Vec<Share>,
    allocation: BTreeMap<String, String>,
}

impl Partitions {
    /// Creates an empty history of these items.
    pub fn new<'a>(items: impl IntoIterator<Item = &'a str>) -> Self {
        let items = items.into_iter().map(|item| (item.to_owned(), Elections::new())).collect();
        Self { items, ..Self::default() }
    }

    /// Adds an event of all items: a process wants its share from now on, or does not any more.
    pub fn record(&mut self, at: Duration, event: &Event) {
        for item in self.items.values_mut() {
            item.record(at, event.clone());
        }
    }

    /// Adds an event of one item. Times must not decrease.
    pub fn record_of(&mut self, item: &str, at: Duration, event: Event) {
        self.items.entry(item.to_owned()).or_default().record(at, event);
    }

    /// Records a time in which items may be without owner: a fault, and the recovery from it.
    pub fn fault(&mut self, from: Duration, until: Duration) {
        self.items.values_mut().for_each(|item| item.fault(from, until));
    }

    /// Records a time in which messages may be delayed.
    pub fn slow(&mut self, from: Duration, until: Duration) {
        self.items.values_mut().for_each(|item| item.slow(from, until));
    }

    /// Adds the share of a process. All processes report at one time.
    pub fn reports(&mut self, share: Share) {
        self.shares.push(share);
    }

    /// Records the id of the member that is to own each item at that time.
    pub fn allocates<'a>(&mut self, allocation: impl IntoIterator<Item = (&'a str, &'a str)>) {
        self.allocation = allocation.into_iter().map(|(item, id)| (item.to_owned(), id.to_owned())).collect();
    }

    /// Returns the ids of all shares.
    #[must_use]
    pub fn ids(&self) -> BTreeSet<&str> {
        self.shares.iter().map(|share| share.id.as_str()).collect()
    }

    /// Returns the number of ownerships.
    #[must_use]
    pub fn ownerships(&self) -> usize {
        self.items.values().map(Elections::terms).sum()
    }

    /// Returns all violations: first of each item in the order of time, then of the shares.
    #[must_use]
    pub fn check(&self, rules: &Rules) -> Vec<Violation> {
        let mut found = Found::default();
        for (item, elections) in &self.items {
            let prefixed =
                |violation: Violation| Violation { what: format!("{item}: {}", violation.what), ..violation };
            found.0.extend(elections.check(rules).into_iter().map(prefixed));
        }
        let end = self.items.values().map(Elections::end).max().unwrap_or_default();
        let ids = self.ids();
        for share in &self.shares {
            let is_its = |(item, id): (&String, &String)| (share.is_member && *id == share.id).then(|| item.clone());
            let allocated: Vec<_> = self.allocation.iter().filter_map(is_its).collect();
            if share.wanted != allocated || share.owned != allocated {
                found.broken("other items than allocated", end, format!("{share:?} instead of {allocated:?}"));
            }
            if share.members != ids.len() {
                found.broken("a wrong number of members", end, format!("{share:?} instead of {}", ids.len()));
            }
        }
        for id in ids {
            let members = self.shares.iter().filter(|share| share.is_member && share.id == id).count();
            if members != 1 {
                found.broken("an id of not one member", end, format!("{id} of {members} processes"));
            }
        }
        found.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::elections::Candidate;
    use crate::testing::{assert_found, seconds};

    fn rules() -> Rules {
        Rules::new(seconds(5))
    }

    fn share(id: &str, items: &[&str]) -> Share {
        let items: Vec<_> = items.iter().map(|item| (*item).to_owned()).collect();
        Share { id: id.to_owned(), is_member: true, members: 2, wanted: items.clone(), owned: items }
    }

    fn settled(shares: impl IntoIterator<Item = Share>) -> Vec<Violation> {
        let mut partitions = Partitions::new(["x", "y", "z"]);
        shares.into_iter().for_each(|share| partitions.reports(share));
        partitions.allocates([("x", "a"), ("y", "b"), ("z", "a")]);
        partitions.check(&rules())
    }

    #[test]
    fn a_proper_partition_has_no_violation() {
        assert_eq!(settled([share("a", &["x", "z"]), share("b", &["y"])]), []);
        let waits = Share { is_member: false, ..share("a", &[]) };
        assert_eq!(settled([share("a", &["x", "z"]), share("b", &["y"]), waits]), []);
    }

    #[test]
    fn a_share_that_is_not_that_of_the_allocation_is_found() {
        let with = |other: Share| settled([other, share("b", &["y"])]);
        let own = || share("a", &["x", "z"]);
        let wants_less = Share { wanted: vec!["x".to_owned()], ..own() };
        let owns_less = Share { owned: vec!["x".to_owned()], ..own() };
        let owns_more = Share { owned: share("a", &["x", "y", "z"]).owned, ..own() };
        for other in [wants_less, owns_less, owns_more, share("a", &[])] {
            let found = format!("0ns: other items than allocated: {other:?} instead of [\"x\", \"z\"]");
            assert_found(&with(other), [found]);
        }
    }

    #[test]
    fn a_member_that_does_not_see_all_members_is_found() {
        let sees = |members| Share { members, ..share("b", &["y"]) };
        for members in [0, 1, 3] {
            let found = settled([share("a", &["x", "z"]), sees(members)]);
            let sees = sees(members);
            assert_found(&found, [format!("0ns: a wrong number of members: {sees:?} instead of 2")]);
        }
    }

    #[test]
    fn processes_with_one_id_that_are_not_one_member_are_found() {
        let both = settled([share("a", &["x", "z"]), share("a", &["x", "z"]), share("b", &["y"])]);
        assert_found(&both, ["0ns: an id of not one member: a of 2 processes"]);
        let none = settled([share("a", &["x", "z"]), Share { is_member: false, ..share("b", &[]) }]);
        assert_found(&none, ["0ns: an id of not one member: b of 0 processes"]);
    }

    #[test]
    fn two_owners_of_one_item_are_found() {
        let (first, second) = (Candidate(1), Candidate(2));
        let owns = |item: &str, seen: bool| {
            let mut partitions = Partitions::new(["x", "y"]);
            for candidate in [first, second] {
                partitions.record(seconds(0), &Event::Joined(candidate));
            }
            for (item, term) in [("x", 1), ("y", 2)] {
                let owns = Event::Leads { candidate: first, term, node: format!("lock-{term}") };
                partitions.record_of(item, seconds(1), owns);
            }
            partitions.record_of(item, seconds(2), Event::Leads { candidate: second, term: 3, node: "lock-3".into() });
            if seen {
                partitions.record_of("x", seconds(2), Event::SeenLeading { candidate: first, term: 1 });
            }
            assert_eq!(partitions.ownerships(), 3);
            partitions.check(&rules())
        };
        let both = ["2s: two leaders: x: Candidate(1) with 1 beside Candidate(2) with 3"];
        assert_found(&owns("x", true), both);
        assert_eq!(owns("x", false), []);
        assert_eq!(owns("y", true), []);
    }

    #[test]
    fn an_item_without_owner_is_found_but_not_in_a_fault() {
        let mut partitions = Partitions::new(["x"]);
        partitions.record(seconds(0), &Event::Joined(Candidate(1)));
        partitions.record(seconds(20), &Event::Left(Candidate(1)));
        assert_found(&partitions.check(&rules()), ["0ns to 20s: no leader: x: of {Candidate(1)}"]);
        partitions.fault(seconds(1), seconds(16));
        assert_eq!(partitions.check(&rules()), []);
    }
}

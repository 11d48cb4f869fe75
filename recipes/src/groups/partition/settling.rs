//! The choice of the members that count, and of the items that a member claims: pure, with the time as an argument.
//!
//! An owner gives an item up only by the settled view: one that has stayed the same for some time. An item without
//! contenders needs no settled view, because its lock excludes two owners. A member claims such items of two kinds:
//!
//! - if it joins, the items of its share by the newest view, with the members that may be restarting
//! - the items of members that left at least `settle` ago, which the newest view divides
//!
//! A member that restarts within `settle` finds its items free. The settling ends three times `settle` after
//! a change, however often other members change: see [`Settling::next`].

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use tokio::time::Instant;

use super::allocation::allocate;

/// A fact about a group.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
enum Fact {
    /// This process is a member: the node of its id is its own.
    IsMember,
    /// The group has a member with this id.
    Has(String),
}

/// The members that one member sees.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct View(BTreeSet<Fact>);

impl View {
    pub(super) fn new(ids: impl IntoIterator<Item = String>, is_member: bool) -> Self {
        Self(ids.into_iter().map(Fact::Has).chain(is_member.then_some(Fact::IsMember)).collect())
    }

    pub(super) fn is_member(&self) -> bool {
        self.0.contains(&Fact::IsMember)
    }

    pub(super) fn ids(&self) -> impl Iterator<Item = &str> {
        self.0.iter().filter_map(|fact| match fact {
            Fact::Has(id) => Some(id.as_str()),
            Fact::IsMember => None,
        })
    }
}

/// The moments when a fact changed that has not settled.
#[derive(Debug, Clone, Copy)]
struct Change {
    first: Instant,
    last: Instant,
}

/// The effect of a view, or of time, on the items of this member.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Effect {
    Nothing,
    /// There may be items to claim. All owned items stay.
    Claims,
    /// A settling has ended: the claims are all items of this member.
    Settled,
}

/// The claim of a member to an item.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Claim {
    /// It takes the item if the item has no contender.
    IfFree,
    /// It contends for the item: the settled view gives the item to this member.
    Settled,
}

/// The views of one member, and the changes between them.
#[derive(Debug)]
pub(super) struct Settling {
    settle: Duration,
    /// The newest view, and the moment of its last change.
    newest: Option<(View, Instant)>,
    settled: View,
    changes: BTreeMap<Fact, Change>,
    /// The moment up to which changes were counted.
    counted: Option<Instant>,
    /// Items may have been claimed since the last settling, which then ends even if it changes nothing.
    has_claimed: bool,
}

impl Settling {
    pub(super) fn new(settle: Duration) -> Self {
        Self {
            settle,
            newest: None,
            settled: View::default(),
            changes: BTreeMap::new(),
            counted: None,
            has_claimed: false,
        }
    }

    /// Records the newest view, and counts the changes up to now.
    ///
    /// | the changes of a fact | effect |
    /// | --- | --- |
    /// | no fact has changed for `settle` | all changes count |
    /// | a return to the settled state, for `settle` | none |
    /// | one, three times `settle` ago | it counts, and each other change that is older than `settle` |
    /// | many, the first three times `settle` ago, the last less than `settle` ago | the fact counts as untrue: a member that restarts in a loop has no share |
    pub(super) fn next(&mut self, view: Option<View>, now: Instant) -> Effect {
        let has_news = self.due().is_some_and(|due| due <= now) | view.is_some_and(|view| self.see(view, now));
        let has_settled = self.count(now);
        self.counted = Some(now);
        if has_settled {
            Effect::Settled
        } else if has_news && (!self.settled.is_member() || self.absent(true).next().is_some()) {
            self.has_claimed = true;
            Effect::Claims
        } else {
            Effect::Nothing
        }
    }

    /// Returns the next moment when time alone may have an effect.
    pub(super) fn due(&self) -> Option<Instant> {
        let moments = self
            .changes
            .values()
            .flat_map(|&Change { first, last }| [last.checked_add(self.settle), first.checked_add(self.bound())]);
        moments.flatten().filter(|&moment| self.counted.is_none_or(|counted| moment > counted)).min()
    }

    /// Returns the view that divides the items: the newest one for a member that joins.
    pub(super) fn view(&self) -> &View {
        match &self.newest {
            Some((newest, _)) if !self.settled.is_member() => newest,
            _ => &self.settled,
        }
    }

    /// Returns the items of a member's share.
    pub(super) fn claims<'v, 'i>(&'v self, id: &str, items: &'i BTreeSet<String>) -> BTreeMap<&'i str, Claim> {
        let Some((newest, _)) = &self.newest else { return BTreeMap::new() };
        let owners = |ids: Vec<&'v str>| allocate(ids, items.iter().map(String::as_str));
        let (joins, gone) = (!self.settled.is_member(), self.absent(true).collect::<BTreeSet<_>>());
        let newest = match newest.is_member() {
            true if joins => owners(newest.ids().chain(self.absent(false)).collect()),
            true if !gone.is_empty() => owners(newest.ids().collect()),
            // Without effect: the computation is saved.
            _ => BTreeMap::new(),
        };
        let settled = if joins { BTreeMap::new() } else { owners(self.settled.ids().collect()) };
        let claim = |item: &str| match settled.get(item) {
            Some(&owner) if owner == id => Some(Claim::Settled),
            owner => {
                let may_be_free = joins || owner.is_some_and(|owner| gone.contains(owner));
                (may_be_free && newest.get(item) == Some(&id)).then_some(Claim::IfFree)
            }
        };
        items.iter().filter_map(|item| Some((item.as_str(), claim(item)?))).collect()
    }

    fn bound(&self) -> Duration {
        self.settle.saturating_mul(3)
    }

    /// Returns the members that have left and not settled. `is_long` chooses those that left at least `settle` ago: their
    /// items have no owner, or one that ends. The others may be restarting.
    fn absent(&self, is_long: bool) -> impl Iterator<Item = &str> {
        self.changes.iter().filter_map(move |(fact, change)| {
            let (newest, now) = (&self.newest.as_ref()?.0, self.counted?);
            let matches = !newest.0.contains(fact) && has_passed(change.last, self.settle, now) == is_long;
            if let (Fact::Has(id), true) = (fact, matches) { Some(id.as_str()) } else { None }
        })
    }

    /// Records a view. Returns whether it differs from the one before.
    fn see(&mut self, view: View, now: Instant) -> bool {
        self.forget_reverted(now);
        let before = self.newest.as_ref().map(|(before, _)| before);
        if before == Some(&view) {
            return false;
        }
        let none = View::default();
        for fact in before.unwrap_or(&none).0.symmetric_difference(&view.0) {
            self.changes.entry(fact.clone()).or_insert(Change { first: now, last: now }).last = now;
        }
        self.newest = Some((view, now));
        true
    }

    /// Forgets the changes that were taken back for the whole settling.
    fn forget_reverted(&mut self, now: Instant) {
        let Some((newest, _)) = &self.newest else { return };
        self.changes.retain(|fact, change| {
            newest.0.contains(fact) != self.settled.0.contains(fact) || !has_passed(change.last, self.settle, now)
        });
    }

    /// Counts the changes that are due. Returns `true` if items may move: the settled view has changed, or a settling has
    /// ended in which items were claimed.
    fn count(&mut self, now: Instant) -> bool {
        let Some((newest, changed)) = &self.newest else { return false };
        let (settle, bound) = (self.settle, self.bound());
        let before = self.settled.clone();
        let is_quiet = has_passed(*changed, settle, now);
        let is_late = self.changes.values().any(|change| has_passed(change.first, bound, now));
        if is_quiet {
            self.settled = newest.clone();
            self.changes.clear();
        } else if is_late {
            let settled = &mut self.settled.0;
            self.changes.retain(|fact, change| {
                let (is_calm, is_late) = (has_passed(change.last, settle, now), has_passed(change.first, bound, now));
                if is_calm && newest.0.contains(fact) {
                    settled.insert(fact.clone());
                } else if is_calm || is_late {
                    settled.remove(fact);
                }
                // The next change of a fact that is not calm starts a settling of its own.
                change.first = if is_late { change.last } else { change.first };
                !is_calm
            });
        }
        self.forget_reverted(now);
        let has_ended = self.settled != before || ((is_quiet || is_late) && self.has_claimed);
        self.has_claimed &= !has_ended;
        has_ended
    }
}

fn has_passed(since: Instant, time: Duration, now: Instant) -> bool {
    now.saturating_duration_since(since) >= time
}

#[cfg(test)]
mod tests {
    use proptest::collection::vec;
    use proptest::prelude::*;

    use super::*;

    const SETTLE: Duration = Duration::from_secs(2);
    const SECOND: Duration = Duration::from_secs(1);

    fn view(ids: &str) -> View {
        View::new(ids.split_whitespace().map(str::to_owned), true)
    }

    /// A settling, with times in tenths of a second.
    struct Scene {
        settling: Settling,
        begin: Instant,
    }

    impl Scene {
        /// Returns a scene in which these members have settled at 0.
        fn settled(ids: &str) -> Self {
            let begin = Instant::now();
            let mut scene = Self { settling: Settling::new(SETTLE), begin };
            scene.settling.next(Some(view(ids)), begin);
            scene.begin = begin + SETTLE;
            assert_eq!(scene.waits(0), Effect::Settled);
            scene
        }

        fn at(&self, tenths: u64) -> Instant {
            self.begin + Duration::from_millis(100 * tenths)
        }

        fn sees(&mut self, tenths: u64, ids: &str) -> Effect {
            let at = self.at(tenths);
            self.settling.next(Some(view(ids)), at)
        }

        fn waits(&mut self, tenths: u64) -> Effect {
            let at = self.at(tenths);
            self.settling.next(None, at)
        }

        fn due(&self) -> Option<u128> {
            self.settling.due().map(|due| (due - self.begin).as_millis() / 100)
        }

        fn ids(&self) -> String {
            self.settling.settled.ids().collect::<Vec<_>>().join(" ")
        }
    }

    #[test]
    fn a_view_counts_when_it_has_stayed_the_same() {
        let (mut settling, begin) = (Settling::new(SETTLE), Instant::now());
        assert_eq!((settling.due(), settling.next(None, begin)), (None, Effect::Nothing));
        assert_eq!(settling.next(Some(view("ann")), begin), Effect::Claims);
        assert_eq!(settling.next(Some(view("ann")), begin + SECOND), Effect::Nothing);
        assert_eq!(settling.due(), Some(begin + SETTLE));
        assert_eq!(settling.next(None, begin + SETTLE), Effect::Settled);
        assert_eq!((settling.due(), settling.next(None, begin + SETTLE)), (None, Effect::Nothing));
        assert_eq!(settling.settled, view("ann"));
    }

    #[test]
    fn each_change_prolongs_the_settling() {
        let mut scene = Scene::settled("ann");
        assert_eq!(scene.sees(0, "ann bob"), Effect::Nothing);
        assert_eq!(scene.sees(10, "ann bob cat"), Effect::Nothing);
        assert_eq!(scene.waits(20), Effect::Nothing);
        assert_eq!(scene.waits(29), Effect::Nothing);
        assert_eq!(scene.due(), Some(30));
        assert_eq!(scene.waits(30), Effect::Settled);
        assert_eq!(scene.ids(), "ann bob cat");
    }

    #[test]
    fn a_member_that_returns_in_time_changes_nothing() {
        let mut scene = Scene::settled("ann bob");
        assert_eq!(scene.sees(0, "ann"), Effect::Nothing);
        assert_eq!(scene.sees(10, "ann bob"), Effect::Nothing);
        assert_eq!(scene.waits(30), Effect::Nothing);
        assert_eq!((scene.ids(), scene.due()), ("ann bob".to_owned(), None));
    }

    #[test]
    fn a_change_counts_after_three_times_the_settling_although_others_go_on() {
        let mut scene = Scene::settled("ann bob");
        scene.sees(0, "ann bob cat");
        for (tenths, ids) in [(15, "ann bob cat dan"), (30, "ann bob cat dan eve"), (45, "ann bob cat dan eve fay")] {
            assert_eq!(scene.sees(tenths, ids), Effect::Nothing, "at {tenths}");
        }
        assert_eq!(scene.waits(59), Effect::Nothing);
        assert_eq!(scene.waits(60), Effect::Settled);
        assert_eq!(scene.ids(), "ann bob cat dan eve", "each change that is older than the settling");
        assert_eq!(scene.due(), Some(65));
        assert_eq!(scene.waits(65), Effect::Settled);
        assert_eq!(scene.ids(), "ann bob cat dan eve fay");
    }

    #[test]
    fn a_member_that_restarts_in_a_loop_delays_no_other_one_and_has_no_share() {
        let mut scene = Scene::settled("ann bob cat dan");
        scene.sees(0, "ann bob dan");
        let mut settled = Vec::new();
        for turn in 1..20 {
            let ids = if turn % 2 == 0 { "ann bob dan" } else { "ann bob" };
            if scene.sees(turn * 7, ids) == Effect::Settled {
                settled.push((turn * 7, scene.ids()));
            }
        }
        // `dan` has changed first at 7.
        assert_eq!(settled, [(63, "ann bob dan".to_owned()), (70, "ann bob".to_owned())]);
        assert_eq!(scene.sees(140, "ann bob dan"), Effect::Nothing);
        assert_eq!(scene.waits(160), Effect::Settled);
        assert_eq!(scene.ids(), "ann bob dan", "it has stayed");
    }

    #[test]
    fn restarts_far_apart_are_not_a_loop() {
        let mut scene = Scene::settled("ann bob");
        for turn in 0..10 {
            assert_eq!(scene.sees(turn * 31, "ann"), Effect::Nothing);
            assert_eq!(scene.sees(turn * 31 + 10, "ann bob"), Effect::Nothing);
        }
        assert_eq!(scene.ids(), "ann bob");
    }

    #[test]
    fn a_settling_without_end_counts_nothing() {
        for settle in [Duration::MAX, Duration::from_secs(u64::MAX / 2)] {
            let (mut settling, begin) = (Settling::new(settle), Instant::now());
            assert_eq!(settling.next(Some(view("ann")), begin), Effect::Claims);
            assert_eq!(settling.next(Some(view("ann bob")), begin + SETTLE * 1_000_000), Effect::Claims);
            assert_eq!((settling.due(), settling.settled), (None, View::default()));
        }
    }

    #[test]
    fn each_change_counts_at_once_without_settling() {
        let (mut settling, begin) = (Settling::new(Duration::ZERO), Instant::now());
        for ids in ["ann", "ann bob", "ann"] {
            assert_eq!(settling.next(Some(view(ids)), begin), Effect::Settled);
            assert_eq!((&settling.settled, settling.due()), (&view(ids), None));
        }
    }

    fn items() -> BTreeSet<String> {
        (0..60).map(|number| format!("item-{number}")).collect()
    }

    impl Scene {
        fn claims<'i>(&self, claim: Claim, items: &'i BTreeSet<String>) -> BTreeSet<&'i str> {
            claims(&self.settling, claim, items)
        }
    }

    /// Returns the items to which `ann` has this claim.
    fn claims<'i>(settling: &Settling, claim: Claim, items: &'i BTreeSet<String>) -> BTreeSet<&'i str> {
        settling.claims("ann", items).into_iter().filter(|(_, of)| *of == claim).map(|(item, _)| item).collect()
    }

    /// Returns the items that the allocation among these members gives to one of them.
    fn share<'a>(id: &str, ids: &str, items: &'a BTreeSet<String>) -> BTreeSet<&'a str> {
        let allocation = allocate(ids.split_whitespace(), items.iter().map(String::as_str));
        allocation.into_iter().filter(|(_, owner)| *owner == id).map(|(item, _)| item).collect()
    }

    #[test]
    fn a_member_that_joins_claims_its_share_of_each_view_at_once() {
        let (mut settling, begin, items) = (Settling::new(SETTLE), Instant::now(), items());
        assert_eq!(settling.claims("ann", &items), BTreeMap::new());
        settling.next(Some(View::new(["bob".to_owned(), "ann".to_owned()], false)), begin);
        assert_eq!(settling.claims("ann", &items), BTreeMap::new(), "the node of its id is not its own");
        for ids in ["ann bob", "ann bob cat"] {
            assert_eq!(settling.next(Some(view(ids)), begin), Effect::Claims);
            assert_eq!(claims(&settling, Claim::IfFree, &items), share("ann", ids, &items));
        }
    }

    /// The member that restarts finds its items free, although another one joins.
    #[test]
    fn a_member_that_joins_claims_nothing_of_a_member_that_restarts() {
        let (mut settling, begin, items) = (Settling::new(SETTLE), Instant::now(), items());
        settling.next(Some(view("ann bob cat")), begin);
        assert_eq!(settling.next(Some(view("ann bob")), begin + SECOND), Effect::Claims);
        assert_eq!(claims(&settling, Claim::IfFree, &items), share("ann", "ann bob cat", &items));
        assert_eq!(settling.next(Some(view("ann bob dan")), begin + SECOND * 2), Effect::Claims);
        assert_eq!(claims(&settling, Claim::IfFree, &items), share("ann", "ann bob cat dan", &items));
        assert_eq!(settling.next(None, begin + SECOND + SETTLE), Effect::Claims);
        assert_eq!(claims(&settling, Claim::IfFree, &items), share("ann", "ann bob dan", &items));
    }

    /// The owners are alive: their items move when the view has settled.
    #[test]
    fn a_member_claims_nothing_of_members_that_are_present() {
        let (mut scene, items) = (Scene::settled("ann bob cat"), items());
        scene.sees(0, "ann bob cat dan");
        assert_eq!(scene.claims(Claim::Settled, &items), share("ann", "ann bob cat", &items));
        scene.waits(20);
        assert_eq!(scene.claims(Claim::Settled, &items), share("ann", "ann bob cat dan", &items));
    }

    #[test]
    fn a_member_claims_its_part_of_the_items_of_a_member_that_has_left_whatever_others_do() {
        let (mut scene, items) = (Scene::settled("ann bob cat"), items());
        let before = share("ann", "ann bob cat", &items);
        scene.sees(0, "ann bob");
        scene.sees(15, "ann bob dan");
        assert_eq!(scene.claims(Claim::Settled, &items), before);
        assert_eq!((scene.due(), scene.waits(20)), (Some(20), Effect::Claims));
        let of_cat = share("cat", "ann bob cat", &items);
        let free = |ids| share("ann", ids, &items).intersection(&of_cat).copied().collect::<BTreeSet<_>>();
        assert!(!free("ann bob dan").is_empty());
        assert_eq!(scene.claims(Claim::IfFree, &items), free("ann bob dan"));
        assert_eq!(scene.sees(25, "ann bob"), Effect::Claims);
        assert_eq!(scene.claims(Claim::IfFree, &items), free("ann bob"));
        assert_eq!(scene.claims(Claim::Settled, &items), before);
    }

    /// Its items may have been taken in the meantime.
    #[test]
    fn a_settling_ends_although_a_member_returns_late() {
        let (mut scene, items) = (Scene::settled("ann bob cat"), items());
        scene.sees(0, "ann bob");
        scene.sees(15, "ann bob dan");
        assert_eq!(scene.waits(20), Effect::Claims);
        assert_eq!(scene.sees(25, "ann bob cat"), Effect::Nothing);
        assert_eq!(scene.waits(45), Effect::Settled);
        assert_eq!(scene.claims(Claim::Settled, &items), share("ann", "ann bob cat", &items));
        assert_eq!((scene.claims(Claim::IfFree, &items).len(), scene.waits(90)), (0, Effect::Nothing));
    }

    #[test]
    fn a_member_whose_node_returns_keeps_its_claims() {
        let (mut scene, items) = (Scene::settled("ann bob"), items());
        let before = share("ann", "ann bob", &items);
        let at = scene.at(0);
        assert_eq!(scene.settling.next(Some(View::new(["bob".to_owned()], false)), at), Effect::Nothing);
        assert_eq!(scene.claims(Claim::Settled, &items), before);
        assert_eq!(scene.sees(10, "ann bob"), Effect::Nothing);
        assert_eq!(scene.claims(Claim::Settled, &items), before);
        scene.waits(30);
        let at = scene.at(40);
        scene.settling.next(Some(View::new(["bob".to_owned()], false)), at);
        assert_eq!(scene.waits(60), Effect::Settled);
        assert_eq!(scene.settling.claims("ann", &items), BTreeMap::new());
    }

    proptest! {
        /// Members 1 to 4 come and go. A change that lasts counts within three times the settling.
        #[test]
        fn a_change_that_lasts_counts_in_time(turns in vec((1_u64..40, 1_usize..5), 1..60)) {
            let mut scene = Scene::settled("0");
            let (mut present, mut since, mut now) = ([true, false, false, false, false], [0; 5], 0);
            for (pause, member) in turns {
                // The run wakes at each due moment.
                while let Some(due) = scene.due().and_then(|due| u64::try_from(due).ok()).filter(|due| *due < now + pause) {
                    scene.waits(due);
                }
                now += pause;
                present[member] = !present[member];
                let late: Vec<_> = (0..5).filter(|&id| id != member && now - since[id] >= 60).collect();
                since[member] = now;
                let ids: Vec<_> = (0..5).filter(|&id| present[id]).map(|id| id.to_string()).collect();
                scene.sees(now, &ids.join(" "));
                for id in late {
                    let counts = scene.ids().contains(&id.to_string());
                    prop_assert_eq!(counts, present[id], "member {} at {}", id, now);
                }
            }
        }
    }
}

//! The decisions of a batch, without I/O: which of the waiting entries a node serves next, and when it ends.
//!
//! `N` is a node while no entry has it, `W` is what wakes an entry.

use std::collections::BTreeMap;

/// The place of an entry in the order of the batch.
pub(super) type Ticket = u64;

/// The nodes that a batch may have, and what it must know to pass them on.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Supply {
    /// One node at a time. It serves at most this number of entries once another contender was seen behind it.
    One { most_passes: usize },
    /// The leases of a semaphore. One is passed on only while a recent check has shown no other contender.
    Many,
}

impl Supply {
    /// The bound of cohort locks.
    pub(crate) const ONE: Self = Self::One { most_passes: 64 };
}

#[derive(Debug, Clone, Hash)]
pub(super) struct Plan<N, W> {
    supply: Supply,
    /// A node stays for a while if no entry waits for it.
    lingers: bool,
    next: Ticket,
    waiting: BTreeMap<Ticket, Place<W>>,
    turns: u64,
    /// The nodes that no entry has.
    free: BTreeMap<u64, Free<N>>,
    /// The passes of the nodes that entries have.
    held: BTreeMap<u64, u64>,
    company: Company,
    /// The number of further entries that may hold the one node before it is given back. It counts only while
    /// another contender waits.
    left: usize,
}

#[derive(Debug, Clone, Hash)]
struct Place<W> {
    wakes: W,
    is_offered: bool,
    /// It was woken for an offer, and another entry took the node before it was polled.
    is_slow: bool,
}

/// A granted node that no entry has.
#[derive(Debug, Clone, Hash)]
struct Free<N> {
    node: N,
    passes: u64,
}

/// The knowledge of other contenders of the lock.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum Company {
    /// No check has ended since the grant, or since a change. The one node serves the entries before this ticket, which
    /// waited by then.
    Unknown(Ticket),
    /// A check has shown no other contender.
    Alone,
    /// Another one waits. The one node serves the entries before this ticket.
    Others(Ticket),
}

impl Company {
    /// Returns the first ticket that the one node does not serve.
    const fn end(self) -> Ticket {
        match self {
            Self::Alone => Ticket::MAX,
            Self::Unknown(end) | Self::Others(end) => end,
        }
    }
}

/// The jobs of a batch's task.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct Jobs {
    /// Acquires nodes, for the entries that the present ones do not serve.
    pub(super) acquires: bool,
    /// No attempt starts: the batch has all nodes that there may be, and no other contender waits. A release serves the
    /// entries.
    pub(super) has_all: bool,
    /// The task checks for other contenders.
    pub(super) looks: bool,
    /// No entry takes the node of this turn, after this number of passes. It ends when another contender comes, or after
    /// a while.
    pub(super) idle: Option<u64>,
    /// The turn of the one node.
    pub(super) turn: Option<u64>,
}

/// The effects of a step.
#[derive(Debug)]
#[must_use = "an entry is to be woken, or nodes to be deleted"]
pub(super) struct Then<N, W> {
    pub(super) wakes: Option<W>,
    /// The nodes to be deleted, and their turns.
    pub(super) deletes: Vec<(u64, N)>,
    /// The waker of an entry that has left.
    pub(super) gone: Option<W>,
}

/// A node that an entry has taken.
#[derive(Debug)]
pub(super) struct Taken<N, W> {
    pub(super) node: N,
    pub(super) turn: u64,
    pub(super) pass: u64,
    /// The waker of the entry.
    pub(super) gone: Option<W>,
    /// Wakes the entry that the next node is offered to.
    pub(super) wakes: Option<W>,
}

impl<N, W> Default for Then<N, W> {
    fn default() -> Self {
        Self { wakes: None, deletes: Vec::new(), gone: None }
    }
}

impl<N, W: Clone> Plan<N, W> {
    pub(super) fn new(supply: Supply, lingers: bool) -> Self {
        Self {
            supply,
            lingers,
            next: 0,
            waiting: BTreeMap::new(),
            turns: 0,
            free: BTreeMap::new(),
            held: BTreeMap::new(),
            company: Company::Unknown(0),
            left: 0,
        }
    }

    /// Adds an entry behind all others.
    pub(super) fn enter(&mut self, wakes: W) -> (Ticket, Then<N, W>) {
        let ticket = self.next;
        self.next += 1;
        // It takes the idle node as one of those that waited might.
        if self.is_idle() && matches!(self.company, Company::Unknown(_)) && self.left > 0 {
            self.company = Company::Unknown(self.next);
        }
        self.waiting.insert(ticket, Place { wakes, is_offered: false, is_slow: false });
        (ticket, self.settle())
    }

    /// Returns what wakes an entry, which is polled now.
    pub(super) fn polled(&mut self, ticket: Ticket) -> Option<&mut W> {
        let place = self.waiting.get_mut(&ticket)?;
        place.is_slow = false;
        Some(&mut place.wakes)
    }

    /// Removes an entry that no longer waits. An offer to it goes to the next one.
    pub(super) fn leave(&mut self, ticket: Ticket) -> Then<N, W> {
        let gone = self.waiting.remove(&ticket).map(|place| place.wakes);
        Then { gone, ..self.settle() }
    }

    /// Removes the entries before a ticket that the present nodes do not serve: their attempt has failed.
    pub(super) fn fail(&mut self, before: Ticket) -> Vec<W> {
        let served = match self.turn() {
            Some(_) => self.company.end(),
            None => self.last_offered().map_or(0, |ticket| ticket + 1).max(self.end_behind(self.open().count())),
        };
        let mut failed = self.waiting.split_off(&served);
        let mut later = failed.split_off(&before.max(served));
        self.waiting.append(&mut later);
        failed.into_values().map(|place| place.wakes).collect()
    }

    /// Ends all turns and waits.
    pub(super) fn stop(&mut self) -> (Vec<N>, Vec<W>) {
        self.held.clear();
        let nodes = std::mem::take(&mut self.free).into_values().map(|free| free.node).collect();
        (nodes, std::mem::take(&mut self.waiting).into_values().map(|place| place.wakes).collect())
    }

    pub(super) fn has_one_node(&self) -> bool {
        self.supply != Supply::Many
    }

    /// Returns the ticket of the next entry that comes.
    pub(super) fn next_ticket(&self) -> Ticket {
        self.next
    }

    /// Returns whether the batch's task has nothing to do, until an entry comes.
    pub(super) fn is_at_rest(&self) -> bool {
        // A check that still counts saves the next entries an attempt.
        let is_over = if self.has_one_node() { self.held.is_empty() } else { self.company != Company::Alone };
        self.waiting.is_empty() && self.free.is_empty() && is_over
    }

    /// Starts a rest: the result of the last check no longer holds.
    pub(super) fn rest(&mut self) {
        self.company = Company::Unknown(0);
    }

    /// Returns whether an entry that came now would wait behind others of the batch, which may have this many nodes.
    pub(super) fn is_taken(&self, limit: usize) -> bool {
        !self.waiting.is_empty() || self.held.len() >= limit
    }

    /// Returns whether entries have all nodes that there may be, or are offered one.
    pub(super) fn is_granted(&self, limit: usize) -> bool {
        self.held.len() >= limit || self.waiting.values().next().is_some_and(|place| place.is_offered)
    }

    /// Returns the number of entries that wait.
    pub(super) fn waiting(&self) -> usize {
        self.waiting.len()
    }

    /// Returns the number of entries that wait and are not offered a node.
    pub(super) fn unserved(&self) -> usize {
        self.waiting.len().saturating_sub(self.open().count())
    }

    /// Takes a node for an entry that one was offered to.
    pub(super) fn take(&mut self, ticket: Ticket) -> Option<Taken<N, W>> {
        if !self.waiting.get(&ticket).is_some_and(|place| place.is_offered) {
            return None;
        }
        let turn = self.open().next()?;
        let Free { node, passes } = self.free.remove(&turn)?;
        self.held.insert(turn, passes + 1);
        if self.company != Company::Alone {
            self.left = self.left.saturating_sub(1);
        }
        let gone = self.waiting.remove(&ticket).map(|place| place.wakes);
        if self.open().next().is_none() {
            self.waiting.range_mut(..ticket).for_each(|(_, place)| place.is_slow = place.is_offered);
        }
        self.withdraw_vain_offers();
        Some(Taken { node, turn, pass: passes, gone, wakes: self.offer_next() })
    }

    /// Starts a turn with a node that was granted. The one node of an earlier turn is deleted, if it is free.
    pub(super) fn granted(&mut self, node: N) -> Then<N, W> {
        let mut earlier = Vec::new();
        if let Supply::One { most_passes } = self.supply {
            self.held.clear();
            earlier = self.delete_free(0);
            self.withdraw_offers_from(0);
            // The first entry, and those that it may pass the node to.
            self.left = most_passes + 1;
            self.company = Company::Unknown(self.end_behind(self.left));
        }
        self.turns += 1;
        self.free.insert(self.turns, Free { node, passes: 0 });
        let mut then = self.settle();
        then.deletes.append(&mut earlier);
        then
    }

    /// Starts a turn with a node that was granted to an entry alone. Returns its number, or `None` during the turn of
    /// the one node.
    pub(super) fn is_held(&mut self) -> Option<u64> {
        if let Supply::One { most_passes } = self.supply {
            if self.turn().is_some() {
                return None;
            }
            self.left = most_passes;
            self.company = Company::Unknown(self.end_behind(self.left));
        }
        self.turns += 1;
        self.held.insert(self.turns, 1);
        Some(self.turns)
    }

    /// Takes back a node from the entry that has it. Returns it if it serves no other entry: its turn has ended.
    pub(super) fn put_back(&mut self, turn: u64, node: N) -> Then<N, W> {
        let Some(passes) = self.held.remove(&turn) else {
            return Then { deletes: vec![(turn, node)], ..Then::default() };
        };
        self.free.insert(turn, Free { node, passes });
        self.settle()
    }

    /// Ends a turn: its node is lost, or is deleted.
    pub(super) fn over(&mut self, turn: u64) -> Option<N> {
        self.held.remove(&turn);
        let free = self.free.remove(&turn);
        self.withdraw_vain_offers();
        free.map(|free| free.node)
    }

    /// Records that the contenders may have changed since the last check, in this turn of the one node. An idle node
    /// ends at once.
    pub(super) fn changed(&mut self, turn: Option<u64>) -> Then<N, W> {
        if turn != self.turn() {
            return Then::default();
        }
        match self.supply {
            Supply::One { most_passes } => {
                let end = self.end_behind(most_passes);
                if self.company == Company::Alone {
                    (self.company, self.left) = (Company::Unknown(end), most_passes);
                }
                self.withdraw_offers_from(end);
                self.end_idle(turn)
            }
            Supply::Many => {
                self.company = Company::Unknown(0);
                self.withdraw_offers_from(0);
                self.settle()
            }
        }
    }

    /// Ends the turn if no entry has its node, and none waits.
    pub(super) fn end_idle(&mut self, turn: Option<u64>) -> Then<N, W> {
        let deletes = if self.is_idle() && turn == self.turn() { self.delete_free(0) } else { Vec::new() };
        Then { deletes, ..Then::default() }
    }

    /// Records whether a check has shown another contender, in this turn of the one node. A check that fails counts as
    /// one that has.
    pub(super) fn looked(&mut self, turn: Option<u64>, others: bool) -> Then<N, W> {
        if turn != self.turn() {
            return Then::default();
        }
        self.company = match (self.supply, self.company, others) {
            (Supply::Many, _, true) => Company::Others(0),
            // Once another one has come, the entries that came later are behind it.
            (Supply::One { .. }, Company::Others(end), _) => Company::Others(end),
            (_, _, false) => Company::Alone,
            (Supply::One { .. }, Company::Unknown(end), true) => Company::Others(end),
            (Supply::One { most_passes }, Company::Alone, true) => {
                self.left = most_passes;
                Company::Others(self.end_behind(most_passes))
            }
        };
        self.withdraw_offers_from(self.end());
        self.withdraw_vain_offers();
        self.settle()
    }

    /// Returns the first ticket after this number of entries that wait.
    fn end_behind(&self, entries: usize) -> Ticket {
        self.waiting.keys().nth(entries).copied().unwrap_or(self.next)
    }

    /// Offers a node to one more entry: those that were offered it have not taken it.
    pub(super) fn offer_more(&mut self) -> Option<W> {
        self.open().next()?;
        let end = self.end();
        let mut served = self.waiting.range_mut(..end).map(|(_, place)| place);
        let place = served.find(|place| !place.is_offered)?;
        place.is_offered = true;
        Some(place.wakes.clone())
    }

    /// Returns the values that distinguish one offer from the next.
    pub(super) fn offer(&self) -> Option<(u64, u64, Option<Ticket>)> {
        let turn = self.open().next()?;
        Some((turn, self.free.get(&turn)?.passes, self.last_offered()))
    }

    /// Returns the last entry that is offered a node. All entries before it are offered one too.
    fn last_offered(&self) -> Option<Ticket> {
        let offered = self.waiting.iter().take_while(|(_, place)| place.is_offered);
        offered.last().map(|(ticket, _)| *ticket)
    }

    /// Returns the nodes that no entry has, and their turns.
    pub(super) fn free(&self) -> impl Iterator<Item = (u64, &N)> {
        self.free.iter().map(|(turn, free)| (*turn, &free.node))
    }

    /// Returns the number of the turn that starts next.
    pub(super) fn next_turn(&self) -> u64 {
        self.turns + 1
    }

    /// Returns the turn of the one node.
    fn turn(&self) -> Option<u64> {
        let turn = self.free.keys().chain(self.held.keys()).next().copied();
        turn.filter(|_| self.has_one_node())
    }

    /// Returns whether the one node is free, and no entry waits for it.
    fn is_idle(&self) -> bool {
        self.has_one_node() && !self.free.is_empty() && self.waiting.is_empty()
    }

    /// Returns the first ticket that the free nodes do not serve.
    fn end(&self) -> Ticket {
        if self.has_one_node() { self.company.end() } else { Ticket::MAX }
    }

    /// Returns the turns of the free nodes that may serve an entry now.
    fn open(&self) -> impl Iterator<Item = u64> {
        let serves_all = self.has_one_node() || self.company == Company::Alone;
        self.free.iter().filter(move |(_, free)| serves_all || free.passes == 0).map(|(turn, _)| *turn)
    }

    /// Returns the passes of the one node, if it is free and no entry waits for it.
    pub(super) fn idle(&self) -> Option<u64> {
        self.free.values().next().map(|free| free.passes).filter(|_| self.is_idle())
    }

    /// Returns the jobs for a batch that may have this many nodes.
    pub(super) fn jobs(&self, limit: usize) -> Jobs {
        let (turn, free) = (self.turn(), self.free.len());
        if !self.has_one_node() {
            let looks = match self.company {
                Company::Unknown(_) => self.open().count() < free,
                Company::Alone => true,
                Company::Others(_) => !self.waiting.is_empty(),
            };
            let has_all = self.company == Company::Alone && self.held.len() + free >= limit;
            return Jobs { acquires: self.unserved() > 0, has_all, looks, ..Jobs::default() };
        }
        if turn.is_none() {
            return Jobs { acquires: !self.waiting.is_empty(), ..Jobs::default() };
        }
        let is_idle = self.is_idle();
        // One of those that wait takes a free node.
        let later = self.waiting.len().saturating_sub(free);
        let looks = match self.company {
            Company::Unknown(end) => is_idle || later > 0 || self.waiting.range(end..).next().is_some(),
            // So that the watch stays.
            Company::Alone => true,
            Company::Others(_) => false,
        };
        Jobs {
            acquires: matches!(self.company, Company::Others(end) if self.waiting.range(end..).next().is_some()),
            looks,
            idle: self.idle(),
            turn,
            ..Jobs::default()
        }
    }

    /// Offers the free nodes to the first entries that they serve, and ends the turns of those that serve none.
    fn settle(&mut self) -> Then<N, W> {
        if self.free.is_empty() {
            return Then::default();
        }
        let wakes = self.offer_next();
        if !self.has_one_node() {
            let unlooked = if matches!(self.company, Company::Others(_)) { 0 } else { self.waiting.len() };
            let kept = self.open().count().max(unlooked).min(self.waiting.len());
            return Then { wakes, deletes: self.delete_free(kept), ..Then::default() };
        }
        let is_offered = self.waiting.first_key_value().is_some_and(|(_, first)| first.is_offered);
        let stays = match self.company {
            // The check decides whether the node serves those that came since.
            Company::Unknown(_) => self.lingers || !self.waiting.is_empty(),
            Company::Alone => self.lingers,
            Company::Others(_) => false,
        };
        let kept = usize::from(is_offered || stays);
        Then { wakes, deletes: self.delete_free(kept), ..Then::default() }
    }

    /// Offers the free nodes to the first entries that they serve, one entry at a time, and to the slow ones before it.
    /// Returns what wakes it.
    fn offer_next(&mut self) -> Option<W> {
        let (mut open, end) = (self.open().count(), self.end());
        if open == 0 {
            return None;
        }
        for place in self.waiting.range_mut(..end).map(|(_, place)| place) {
            let was_offered = std::mem::replace(&mut place.is_offered, true);
            if place.is_slow {
                continue;
            }
            if !was_offered {
                return Some(place.wakes.clone());
            }
            open -= 1;
            if open == 0 {
                return None;
            }
        }
        None
    }

    /// Removes the free nodes but for this number, those last that may serve an entry.
    fn delete_free(&mut self, kept: usize) -> Vec<(u64, N)> {
        let surplus = self.free.len().saturating_sub(kept);
        if surplus == 0 {
            return Vec::new();
        }
        let open: Vec<u64> = self.open().collect();
        let used = self.free.keys().filter(|turn| !open.contains(turn)).copied();
        let ends: Vec<u64> = used.chain(open.iter().rev().copied()).take(surplus).collect();
        ends.into_iter().filter_map(|turn| Some((turn, self.free.remove(&turn)?.node))).collect()
    }

    /// Withdraws the offers that no free node backs. Several entries may have an offer of the one node.
    fn withdraw_vain_offers(&mut self) {
        let open = self.open().count();
        if open == 0 || !self.has_one_node() {
            self.withdraw_offers_from(self.end_behind(open));
        }
    }

    /// Withdraws the offers to the entries from a ticket on. Those that were offered a node are in front of all others.
    fn withdraw_offers_from(&mut self, first: Ticket) {
        self.waiting.range_mut(first..).take_while(|(_, place)| place.is_offered).for_each(|(_, place)| {
            place.is_offered = false;
        });
    }
}

#[cfg(test)]
mod tests {
    use std::collections::{HashSet, VecDeque};
    use std::hash::{BuildHasher as _, RandomState};

    use super::*;

    /// A plan, its entries and its nodes. A node is its number, an entry is woken by its own ticket.
    #[derive(Debug, Clone, Hash)]
    struct World {
        plan: Plan<u64, Ticket>,
        /// The entries that will be polled.
        woken: Vec<Ticket>,
        waiting: Vec<Ticket>,
        /// The turn and the node that an entry has.
        held: Vec<(u64, u64)>,
        /// A check has shown no other contender, and that still counts.
        alone: bool,
        nodes: u64,
        limit: usize,
        deleted: Vec<u64>,
        /// The number of entries that may get the node until the next check, or at all if another contender was seen.
        passes_left: Option<usize>,
        slow: bool,
        path: Vec<Step>,
    }

    #[derive(Debug, Clone, Copy, Hash)]
    enum Step {
        Enter,
        Leave(usize),
        Poll(usize),
        Release(usize),
        Granted,
        Failed,
        Looked(bool),
        Changed,
        Lost(u64),
        EndIdle,
        OfferMore,
    }

    const MOST: usize = 1;

    impl World {
        fn new(supply: Supply, lingers: bool, limit: usize) -> Self {
            Self {
                plan: Plan::new(supply, lingers),
                woken: Vec::new(),
                waiting: Vec::new(),
                held: Vec::new(),
                alone: false,
                nodes: 0,
                limit,
                deleted: Vec::new(),
                passes_left: None,
                slow: false,
                path: Vec::new(),
            }
        }

        fn then(&mut self, then: Then<u64, Ticket>) {
            self.woken.extend(then.wakes);
            self.deleted.extend(then.deletes.into_iter().map(|(_, node)| node));
        }

        fn steps(&self) -> Vec<Step> {
            let jobs = self.plan.jobs(self.limit);
            let mut steps: Vec<_> = (0..self.waiting.len()).flat_map(|at| [Step::Leave(at), Step::Poll(at)]).collect();
            steps.extend((0..self.held.len()).map(Step::Release));
            steps.extend((self.plan.next < 4).then_some(Step::Enter));
            steps.extend((jobs.acquires && self.nodes < 2).then_some(Step::Granted));
            steps.extend(jobs.acquires.then_some(Step::Failed));
            if jobs.looks {
                steps.extend([Step::Looked(false), Step::Looked(true), Step::Changed]);
            }
            let turns = self.held.iter().map(|(turn, _)| *turn).chain(self.plan.free().map(|(turn, _)| turn));
            steps.extend(turns.filter(|turn| jobs.turn.is_none_or(|one| one == *turn)).map(Step::Lost));
            steps.extend(jobs.idle.map(|_| Step::EndIdle));
            steps.extend(self.plan.offer().map(|_| Step::OfferMore));
            steps
        }

        fn take(&mut self, step: Step) {
            match step {
                Step::Enter => {
                    let (ticket, then) = self.plan.enter(self.plan.next);
                    self.waiting.push(ticket);
                    self.then(then);
                }
                Step::Leave(at) => {
                    let then = self.plan.leave(self.waiting.remove(at));
                    self.then(then);
                }
                Step::Poll(at) => self.poll(self.waiting[at]),
                Step::Release(at) => {
                    let (number, node) = self.held.remove(at);
                    let then = self.plan.put_back(number, node);
                    self.then(then);
                }
                Step::Granted => {
                    self.nodes += 1;
                    if self.plan.supply != Supply::Many {
                        // The first entry gets it, and passes it on.
                        self.passes_left = Some(MOST + 1);
                    }
                    let then = self.plan.granted(self.nodes);
                    self.then(then);
                }
                Step::Failed => {
                    for ticket in self.plan.fail(self.plan.next) {
                        self.waiting.retain(|waiting| *waiting != ticket);
                    }
                }
                Step::Looked(others) => {
                    let then = self.plan.looked(self.plan.turn(), others);
                    self.alone = !others;
                    if self.plan.supply != Supply::Many {
                        self.passes_left = if others { self.passes_left.or(Some(MOST)) } else { None };
                    }
                    self.then(then);
                }
                Step::Changed => {
                    self.alone = false;
                    if self.plan.supply != Supply::Many {
                        self.passes_left = self.passes_left.or(Some(MOST));
                    }
                    let then = self.plan.changed(self.plan.turn());
                    self.then(then);
                }
                Step::Lost(turn) => {
                    // Entries that were offered two nodes may race for the other one.
                    self.slow |= !self.plan.has_one_node();
                    self.deleted.extend(self.plan.over(turn));
                }
                Step::EndIdle => {
                    let then = self.plan.end_idle(self.plan.turn());
                    self.then(then);
                }
                Step::OfferMore => {
                    self.slow = true;
                    self.woken.extend(self.plan.offer_more());
                }
            }
        }

        fn poll(&mut self, ticket: Ticket) {
            self.woken.retain(|woken| *woken != ticket);
            let place = self.plan.waiting.keys().position(|waiting| *waiting == ticket);
            let open = self.plan.open().count();
            let Some(Taken { node, turn: number, pass, wakes, .. }) = self.plan.take(ticket) else {
                self.plan.polled(ticket).expect("an entry that waits has a place");
                return;
            };
            self.woken.extend(wakes);
            assert!(self.slow || place.is_some_and(|place| place < open), "{ticket} passes others: {:?}", self.path);
            let may_pass = pass == 0 || self.alone || self.plan.supply != Supply::Many;
            assert!(may_pass, "a lease is passed on beside other contenders: {:?}", self.path);
            assert!(self.held.iter().all(|(_, held)| *held != node), "two have {node}");
            self.held.push((number, node));
            self.waiting.retain(|waiting| *waiting != ticket);
            if let Some(left) = &mut self.passes_left {
                *left = left.checked_sub(1).unwrap_or_else(|| panic!("more passes than allowed: {:?}", self.path));
            }
        }

        fn check(&self) {
            let jobs = self.plan.jobs(self.limit);
            let free: Vec<u64> = self.plan.free().map(|(_, node)| *node).collect();
            let mut nodes: Vec<_> = self.held.iter().map(|(_, node)| *node).chain(free.iter().copied()).collect();
            nodes.extend(&self.deleted);
            nodes.sort_unstable();
            assert_eq!(nodes, (1..=self.nodes).collect::<Vec<_>>(), "each node is in one place: {:?}", self.path);
            if self.waiting.is_empty() {
                return;
            }
            let is_served_later = self.held.iter().any(|(turn, _)| Some(*turn) == jobs.turn);
            let is_woken = !free.is_empty() && self.waiting.iter().any(|ticket| self.woken.contains(ticket));
            let is_looked_at = !free.is_empty() && jobs.looks;
            // Once the check no longer counts, an attempt starts.
            let acquires = jobs.acquires && (!jobs.has_all || jobs.looks);
            let is_served = self.plan.open().count() > 0 && self.waiting.iter().any(|ticket| *ticket < self.plan.end());
            let mut offered = self.plan.waiting.iter().filter(|(_, place)| place.is_offered);
            assert!(!is_served || offered.any(|(ticket, _)| self.woken.contains(ticket)), "{:?}", self.path);
            assert!(
                acquires || is_served_later || is_woken || is_looked_at,
                "an entry waits for nothing: {:?}",
                self.path
            );
        }
    }

    #[test]
    fn all_orders_of_four_entries_keep_the_order_and_leave_none_behind() {
        let one = Supply::One { most_passes: MOST };
        for (supply, lingers, limit) in
            [(one, false, 1), (one, true, 1), (Supply::Many, false, 1), (Supply::Many, false, 2)]
        {
            let (mut seen, hasher) = (HashSet::new(), RandomState::new());
            let mut open = VecDeque::from([World::new(supply, lingers, limit)]);
            while let Some(world) = open.pop_front() {
                for step in world.steps() {
                    let mut next = world.clone();
                    next.path.push(step);
                    next.take(step);
                    next.woken.sort_unstable();
                    next.woken.dedup();
                    next.deleted.sort_unstable();
                    next.check();
                    if seen.insert(hasher.hash_one(World { path: Vec::new(), ..next.clone() })) {
                        open.push_back(next);
                    }
                }
            }
            assert!(seen.len() > 10_000, "{}", seen.len());
        }
    }
}

//! The decisions of a batch, without I/O: which of the waiting entries the node serves next, and when it ends.
//!
//! `N` is the node while no entry has it, `W` is what wakes an entry.

use std::collections::BTreeMap;

/// The place of an entry in the order of the batch.
pub(super) type Ticket = u64;

/// The most entries that a node serves once another contender was seen behind it: the bound of cohort locks.
pub(super) const MOST_PASSES: usize = 64;

#[derive(Debug, Clone, Hash)]
pub(super) struct Plan<N, W> {
    next: Ticket,
    waiting: BTreeMap<Ticket, Place<W>>,
    turns: u64,
    turn: Option<Turn<N>>,
    /// A node stays for a while if no entry waits for it.
    lingers: bool,
    most_passes: usize,
}

#[derive(Debug, Clone, Hash)]
struct Place<W> {
    wakes: W,
    is_offered: bool,
    /// It was woken for an offer, and another entry took the node before it was polled.
    is_slow: bool,
}

/// One granted node.
#[derive(Debug, Clone, Hash)]
struct Turn<N> {
    number: u64,
    /// `Some` while no entry has it.
    node: Option<N>,
    company: Company,
    passes: u64,
    /// The number of entries that may still take the node, unless it is alone.
    left: usize,
}

/// The knowledge of other contenders of the lock.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum Company {
    /// No look has ended since the grant, or since a change. The node serves the entries before this ticket, which
    /// waited by then.
    Unknown(Ticket),
    /// A watch on the contenders has shown no other one.
    Alone,
    /// Another one waits. The node serves the entries before this ticket.
    Others(Ticket),
}

impl Company {
    /// Returns the first ticket that the node does not serve.
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
    /// Acquires a node, for the entries that the present one does not serve.
    pub(super) acquires: bool,
    /// Watches the contenders behind the node of the turn.
    pub(super) watches: bool,
    /// No entry takes the node of this turn, after this number of passes. It ends when another contender comes, or after
    /// a while.
    pub(super) idle: Option<u64>,
    /// The present turn.
    pub(super) turn: Option<u64>,
}

/// The effects of a step.
#[derive(Debug)]
#[must_use = "an entry is to be woken, or a node to be deleted"]
pub(super) struct Then<N, W> {
    pub(super) wakes: Option<W>,
    pub(super) deletes: Option<N>,
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
}

impl<N, W> Default for Then<N, W> {
    fn default() -> Self {
        Self { wakes: None, deletes: None, gone: None }
    }
}

impl<N, W: Clone> Plan<N, W> {
    pub(super) fn new(lingers: bool, most_passes: usize) -> Self {
        Self { next: 0, waiting: BTreeMap::new(), turns: 0, turn: None, lingers, most_passes }
    }

    /// Adds an entry behind all others.
    pub(super) fn enter(&mut self, wakes: W) -> (Ticket, Then<N, W>) {
        let ticket = self.next;
        self.next += 1;
        if let Some(turn) = self.turn.as_mut().filter(|turn| turn.node.is_some() && self.waiting.is_empty()) {
            // It takes the idle node as one of those that waited might.
            if matches!(turn.company, Company::Unknown(_)) && turn.left > 0 {
                turn.company = Company::Unknown(self.next);
            }
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

    /// Removes an entry that does not wait any more. An offer to it goes to the next one.
    pub(super) fn leave(&mut self, ticket: Ticket) -> Then<N, W> {
        let gone = self.waiting.remove(&ticket).map(|place| place.wakes);
        Then { gone, ..self.settle() }
    }

    /// Removes the entries before a ticket that the present node does not serve: their attempt has failed.
    pub(super) fn fail(&mut self, before: Ticket) -> Vec<W> {
        let served = self.turn.as_ref().map_or(0, |turn| turn.company.end());
        let mut failed = self.waiting.split_off(&served);
        let mut later = failed.split_off(&before.max(served));
        self.waiting.append(&mut later);
        failed.into_values().map(|place| place.wakes).collect()
    }

    /// Returns the ticket of the next entry that comes.
    pub(super) fn next_ticket(&self) -> Ticket {
        self.next
    }

    /// Returns whether no entry waits, and no node is granted.
    pub(super) fn is_empty(&self) -> bool {
        self.waiting.is_empty() && self.turn.is_none()
    }

    /// Returns whether an entry that came now would wait behind others of the batch.
    pub(super) fn is_taken(&self) -> bool {
        !self.waiting.is_empty() || self.turn.as_ref().is_some_and(|turn| turn.node.is_none())
    }

    /// Returns the number of entries that wait.
    pub(super) fn waiting(&self) -> usize {
        self.waiting.len()
    }

    /// Takes the node for an entry that it was offered to.
    pub(super) fn take(&mut self, ticket: Ticket) -> Option<Taken<N, W>> {
        let turn = self.turn.as_mut().filter(|_| self.waiting.get(&ticket).is_some_and(|place| place.is_offered))?;
        let node = turn.node.take()?;
        turn.passes += 1;
        if turn.company != Company::Alone {
            turn.left = turn.left.saturating_sub(1);
        }
        let (turn, pass) = (turn.number, turn.passes - 1);
        let gone = self.waiting.remove(&ticket).map(|place| place.wakes);
        self.waiting.range_mut(..ticket).for_each(|(_, place)| place.is_slow = place.is_offered);
        self.withdraw_offers_from(0);
        Some(Taken { node, turn, pass, gone })
    }

    /// Begins a turn with a node that was granted. Returns the free node of an earlier turn.
    pub(super) fn granted(&mut self, node: N) -> Then<N, W> {
        let earlier = self.turn.take().and_then(|turn| turn.node);
        self.withdraw_offers_from(0);
        self.turns += 1;
        // The first entry, and those that it may pass the node to.
        let left = self.most_passes + 1;
        let company = Company::Unknown(self.end_behind(left));
        self.turn = Some(Turn { number: self.turns, node: Some(node), company, passes: 0, left });
        let then = self.settle();
        Then { deletes: earlier.or(then.deletes), ..then }
    }

    /// Begins a turn with a node that was granted to an entry alone. Returns its number, or `None` during another turn.
    pub(super) fn is_held(&mut self) -> Option<u64> {
        if self.turn.is_some() {
            return None;
        }
        self.turns += 1;
        let left = self.most_passes;
        let company = Company::Unknown(self.end_behind(left));
        self.turn = Some(Turn { number: self.turns, node: None, company, passes: 1, left });
        Some(self.turns)
    }

    /// Takes back the node from the entry that has it. Returns it if it serves no other: the turn is over.
    pub(super) fn put_back(&mut self, number: u64, node: N) -> Then<N, W> {
        match self.turn.as_mut().filter(|turn| turn.number == number) {
            Some(turn) => turn.node = Some(node),
            None => return Then { deletes: Some(node), ..Then::default() },
        }
        self.settle()
    }

    /// Ends a turn: its node is lost, or is deleted.
    pub(super) fn over(&mut self, number: u64) -> Option<N> {
        let turn = self.turn.take_if(|turn| turn.number == number)?;
        self.withdraw_offers_from(0);
        turn.node
    }

    /// Records that the contenders have changed since the last look. An idle node ends at once.
    pub(super) fn changed(&mut self, number: u64) -> Then<N, W> {
        let end = self.end_behind(self.most_passes);
        let Some(turn) = self.turn.as_mut().filter(|turn| turn.number == number) else { return Then::default() };
        if turn.company == Company::Alone {
            (turn.company, turn.left) = (Company::Unknown(end), self.most_passes);
        }
        self.withdraw_offers_from(end);
        self.end_idle(number)
    }

    /// Ends a turn if no entry has its node, and none waits.
    pub(super) fn end_idle(&mut self, number: u64) -> Then<N, W> {
        let is_idle = self.jobs().idle.is_some();
        Then { deletes: if is_idle { self.over(number) } else { None }, ..Then::default() }
    }

    /// Records whether a look has shown another contender. A look that fails counts as one that has.
    pub(super) fn looked(&mut self, number: u64, others: bool) -> Then<N, W> {
        let end = self.end_behind(self.most_passes);
        let Some(turn) = self.turn.as_mut().filter(|turn| turn.number == number) else { return Then::default() };
        turn.company = match (turn.company, others) {
            // Once another one has come, the entries that came later are behind it.
            (Company::Others(end), _) => Company::Others(end),
            (_, false) => Company::Alone,
            (Company::Unknown(end), true) => Company::Others(end),
            (Company::Alone, true) => {
                turn.left = self.most_passes;
                Company::Others(end)
            }
        };
        let end = turn.company.end();
        self.withdraw_offers_from(end);
        self.settle()
    }

    /// Returns the first ticket behind this number of entries that wait.
    fn end_behind(&self, entries: usize) -> Ticket {
        self.waiting.keys().nth(entries).copied().unwrap_or(self.next)
    }

    /// Offers the node to one more entry: the first has not taken it.
    pub(super) fn offer_more(&mut self) -> Option<W> {
        let turn = self.turn.as_ref().filter(|turn| turn.node.is_some())?;
        let mut served = self.waiting.range_mut(..turn.company.end()).map(|(_, place)| place);
        let place = served.find(|place| !place.is_offered)?;
        place.is_offered = true;
        Some(place.wakes.clone())
    }

    /// Returns what tells one offer from the next.
    pub(super) fn offer(&self) -> Option<(u64, u64)> {
        self.turn.as_ref().filter(|turn| turn.node.is_some()).map(|turn| (turn.number, turn.passes))
    }

    /// Returns whether the turn has a node that no entry has.
    pub(super) fn is_free(&self) -> bool {
        self.turn.as_ref().is_some_and(|turn| turn.node.is_some())
    }

    /// Returns the number of the turn that begins next.
    pub(super) fn next_turn(&self) -> u64 {
        self.turns + 1
    }

    pub(super) fn jobs(&self) -> Jobs {
        let Some(turn) = &self.turn else {
            return Jobs { acquires: !self.waiting.is_empty(), ..Jobs::default() };
        };
        let is_idle = turn.node.is_some() && self.waiting.is_empty();
        // One of those that wait takes a free node.
        let later = self.waiting.len().saturating_sub(usize::from(turn.node.is_some()));
        let watches = match turn.company {
            Company::Unknown(end) => is_idle || later > 0 || self.waiting.range(end..).next().is_some(),
            // So that the watch stays.
            Company::Alone => true,
            Company::Others(_) => false,
        };
        Jobs {
            acquires: matches!(turn.company, Company::Others(end) if self.waiting.range(end..).next().is_some()),
            watches,
            idle: is_idle.then_some(turn.passes),
            turn: Some(turn.number),
        }
    }

    /// Offers a free node to the first entry that it serves, and to the slow ones before it, or ends the turn.
    fn settle(&mut self) -> Then<N, W> {
        let Some(turn) = self.turn.as_ref().filter(|turn| turn.node.is_some()) else { return Then::default() };
        let mut is_offered = false;
        for place in self.waiting.range_mut(..turn.company.end()).map(|(_, place)| place) {
            is_offered = true;
            let was_offered = std::mem::replace(&mut place.is_offered, true);
            if !place.is_slow {
                return Then { wakes: (!was_offered).then(|| place.wakes.clone()), ..Then::default() };
            }
        }
        if is_offered {
            return Then::default();
        }
        let stays = match turn.company {
            // The look decides whether the node serves those that came since.
            Company::Unknown(_) => self.lingers || !self.waiting.is_empty(),
            Company::Alone => self.lingers,
            Company::Others(_) => false,
        };
        if stays {
            return Then::default();
        }
        Then { deletes: self.turn.take().and_then(|turn| turn.node), ..Then::default() }
    }

    /// Withdraws the offers to the entries from a ticket on. Those that were offered the node are in front of all others.
    fn withdraw_offers_from(&mut self, first: Ticket) {
        self.waiting.range_mut(first..).take_while(|(_, place)| place.is_offered).for_each(|(_, place)| {
            place.is_offered = false;
        });
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;
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
        nodes: u64,
        deleted: Vec<u64>,
        /// The number of entries that may get the node until the next look, or at all if another contender was seen.
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
        Lost,
        EndIdle,
        OfferMore,
    }

    const MOST: usize = 1;

    impl World {
        fn new(lingers: bool) -> Self {
            Self {
                plan: Plan::new(lingers, MOST),
                woken: Vec::new(),
                waiting: Vec::new(),
                held: Vec::new(),
                nodes: 0,
                deleted: Vec::new(),
                passes_left: None,
                slow: false,
                path: Vec::new(),
            }
        }

        fn then(&mut self, then: Then<u64, Ticket>) {
            self.woken.extend(then.wakes);
            self.deleted.extend(then.deletes);
            self.woken.sort_unstable();
            self.woken.dedup();
        }

        fn steps(&self) -> Vec<Step> {
            let jobs = self.plan.jobs();
            let mut steps: Vec<_> = (0..self.waiting.len()).flat_map(|at| [Step::Leave(at), Step::Poll(at)]).collect();
            steps.extend((0..self.held.len()).map(Step::Release));
            steps.extend((self.plan.next < 4).then_some(Step::Enter));
            steps.extend((jobs.acquires && self.nodes < 2).then_some(Step::Granted));
            steps.extend(jobs.acquires.then_some(Step::Failed));
            if jobs.watches {
                steps.extend([Step::Looked(false), Step::Looked(true), Step::Changed]);
            }
            steps.extend(jobs.turn.map(|_| Step::Lost));
            steps.extend(jobs.idle.map(|_| Step::EndIdle));
            steps.extend(self.plan.is_free().then_some(Step::OfferMore));
            steps
        }

        fn take(&mut self, step: Step) {
            let turn = self.plan.jobs().turn.unwrap_or_default();
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
                    // The first entry gets it, and passes it on.
                    self.passes_left = Some(MOST + 1);
                    let then = self.plan.granted(self.nodes);
                    self.then(then);
                }
                Step::Failed => {
                    for ticket in self.plan.fail(self.plan.next) {
                        self.waiting.retain(|waiting| *waiting != ticket);
                    }
                }
                Step::Looked(others) => {
                    let then = self.plan.looked(turn, others);
                    self.passes_left = if others { self.passes_left.or(Some(MOST)) } else { None };
                    self.then(then);
                }
                Step::Changed => {
                    self.passes_left = self.passes_left.or(Some(MOST));
                    let then = self.plan.changed(turn);
                    self.then(then);
                }
                Step::Lost => self.deleted.extend(self.plan.over(turn)),
                Step::EndIdle => {
                    let then = self.plan.end_idle(turn);
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
            let first = self.plan.waiting.keys().next().copied();
            let Some(Taken { node, turn: number, .. }) = self.plan.take(ticket) else {
                self.plan.polled(ticket).expect("an entry that waits has a place");
                return;
            };
            assert!(self.slow || first == Some(ticket), "{ticket} passes {first:?}");
            assert!(self.held.iter().all(|(_, held)| *held != node), "two have {node}");
            self.held.push((number, node));
            self.waiting.retain(|waiting| *waiting != ticket);
            if let Some(left) = &mut self.passes_left {
                *left = left.checked_sub(1).unwrap_or_else(|| panic!("more passes than allowed: {:?}", self.path));
            }
        }

        fn check(&self) {
            let jobs = self.plan.jobs();
            let free = self.plan.turn.as_ref().and_then(|turn| turn.node);
            let mut nodes: Vec<_> = self.held.iter().map(|(_, node)| *node).chain(free).collect();
            nodes.extend(&self.deleted);
            nodes.sort_unstable();
            assert_eq!(nodes, (1..=self.nodes).collect::<Vec<_>>(), "each node is in one place: {:?}", self.path);
            if self.waiting.is_empty() {
                return;
            }
            let is_served_later = self.held.iter().any(|(turn, _)| Some(*turn) == jobs.turn);
            let is_woken = free.is_some() && self.waiting.iter().any(|ticket| self.woken.contains(ticket));
            let is_looked_at = free.is_some() && jobs.watches;
            assert!(
                jobs.acquires || is_served_later || is_woken || is_looked_at,
                "an entry waits for nothing: {:?}",
                self.path
            );
        }
    }

    #[test]
    fn all_orders_of_four_entries_keep_the_order_and_leave_none_behind() {
        for lingers in [false, true] {
            let (mut seen, mut open, hasher) = (HashSet::new(), vec![World::new(lingers)], RandomState::new());
            while let Some(world) = open.pop() {
                for step in world.steps() {
                    let mut next = world.clone();
                    next.path.push(step);
                    next.take(step);
                    next.check();
                    if seen.insert(hasher.hash_one(World { path: Vec::new(), ..next.clone() })) {
                        open.push(next);
                    }
                }
            }
            assert!(seen.len() > 20_000, "{}", seen.len());
        }
    }
}

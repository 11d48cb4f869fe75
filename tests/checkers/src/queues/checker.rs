//! The check of the events of a queue.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use curator_test::nodes::{Change, Node};

use super::{Delivery, End, Event, Item, Outcome, Put, Queues, Rules};
use crate::timeline;
use crate::violation::Found;

/// The time after which the lock of a delivery is watched, with a margin.
const WATCHED_AFTER: Duration = Duration::from_millis(600);

/// One item.
struct Known {
    put: Put,
    rank: i64,
    /// The name and the number of its newest node.
    name: String,
    number: i64,
    was_created: bool,
    /// A node of it exists in the queue.
    is_there: bool,
    /// The time of the newest deletion of its node.
    gone: Option<Duration>,
    by_hand: bool,
    is_dead: bool,
    was_delivered: bool,
    /// The single consumer has yet to get it.
    waits: bool,
    effects: usize,
    /// The tokens of its claims.
    claims: Vec<i64>,
    /// The calls that may have ended it, each with the token of its delivery.
    ends: BTreeSet<(i64, u8)>,
}

/// One put.
struct Parts {
    items: Vec<Item>,
    /// The transaction that has created the items.
    transaction: Option<i64>,
    is_put: Option<bool>,
}

/// One claim of an item.
#[derive(Default)]
struct Claim {
    number: usize,
    /// The time at which its lock was deleted.
    until: Option<Duration>,
    is_revoked: bool,
}

/// One delivery.
struct Given {
    item: Item,
    token: i64,
    since: Duration,
    is_live: bool,
    end: Option<(End, Duration)>,
    /// The call that ends it was made again.
    is_repeated: bool,
}

pub(super) struct Checker<'a> {
    rules: &'a Rules,
    history: &'a Queues,
    puts: BTreeMap<Put, Parts>,
    items: BTreeMap<Item, Known>,
    /// The items of the nodes in the queue, by their names.
    nodes: BTreeMap<String, Item>,
    /// The names of nodes that a consumer has taken or not.
    unknown: BTreeSet<String>,
    claims: BTreeMap<(Item, i64), Claim>,
    /// The newest claims of the nodes in the queue.
    locks: BTreeMap<String, (Item, i64)>,
    deliveries: BTreeMap<Delivery, Given>,
    revoked: BTreeSet<String>,
    /// The drops of consumers, with the number of items that each may have had, and the time of their start.
    drops: Vec<(Duration, usize, Duration)>,
    is_alone: bool,
    found: Found,
}

impl<'a> Checker<'a> {
    pub(super) fn new(rules: &'a Rules, history: &'a Queues) -> Self {
        Self {
            rules,
            history,
            puts: BTreeMap::new(),
            items: BTreeMap::new(),
            nodes: BTreeMap::new(),
            unknown: BTreeSet::new(),
            claims: BTreeMap::new(),
            locks: BTreeMap::new(),
            deliveries: BTreeMap::new(),
            revoked: BTreeSet::new(),
            drops: Vec::new(),
            is_alone: false,
            found: Found::default(),
        }
    }
}

impl<'a> timeline::Checker<'a, Event> for Checker<'a> {
    fn apply(&mut self, at: Duration, event: &'a Event) -> bool {
        match event {
            Event::Server(change) => self.look_at_the_nodes(at, change),
            Event::Revoked(path) => {
                if let (Some(claim), true) = (self.lock_at(path), path.contains("-locks/")) {
                    self.claims.entry(claim).or_default().is_revoked = true;
                }
                self.revoked.insert(path.clone());
                true
            }
            Event::Puts(put, items, rank) => {
                self.items.extend(items.iter().map(|item| (*item, Known::new(*put, *rank))));
                let parts = Parts { items: items.clone(), transaction: None, is_put: None };
                self.puts.insert(*put, parts).is_none()
            }
            Event::HasPut(put, is_put) => self.has_put(at, *put, *is_put),
            Event::Delivered(delivery, item, token, number) => self.delivered(at, *delivery, (*item, *token), *number),
            Event::Lost(delivery) | Event::Dropped(delivery) => self.is_over(at, *delivery),
            Event::Ends(delivery, end) => self.ends(at, *delivery, *end),
            Event::Ended(delivery, outcome) => self.ended(at, *delivery, *outcome),
            Event::Unknown(name) => {
                self.unknown.insert(name.clone());
                true
            }
            Event::ConsumerDropped(items, since) => {
                self.drops.push((at, *items, *since));
                true
            }
            Event::Alone => {
                self.is_alone = true;
                true
            }
        }
    }

    fn end(&mut self) {
        let mut lost = Vec::new();
        for (item, known) in self.items.iter().filter(|(_, known)| known.was_created) {
            let is_done = match self.rules.at_most_once {
                true => known.was_delivered,
                false => !known.is_there && known.may_be([End::Complete, End::CompleteWith]),
            };
            let is_unknown = self.rules.at_most_once && self.unknown.contains(&known.name);
            if !is_done && !known.by_hand && !known.is_dead && !is_unknown {
                lost.push((known.gone, item));
            }
        }
        lost.sort();
        for (gone, item) in lost {
            // A consumer that is dropped loses what it has taken. A request may be on its way.
            let is_in = |at, since| gone.is_some_and(|gone| (since..=at + self.rules.behind).contains(&gone));
            let drop = self.drops.iter_mut().find(|(at, left, since)| *left > 0 && is_in(*at, *since));
            match drop.filter(|_| self.rules.at_most_once) {
                Some((_, left, _)) => *left -= 1,
                None => self.found.broken("a lost item", gone.unwrap_or(self.history.end()), format!("{item:?}")),
            }
        }
    }

    fn found(&mut self) -> &mut Found {
        &mut self.found
    }
}

impl Known {
    fn new(put: Put, rank: i64) -> Self {
        Self {
            put,
            rank,
            name: String::new(),
            number: 0,
            was_created: false,
            is_there: false,
            gone: None,
            by_hand: false,
            is_dead: false,
            was_delivered: false,
            waits: false,
            effects: 0,
            claims: Vec::new(),
            ends: BTreeSet::new(),
        }
    }

    /// Returns `true` if the delivery of the newest claim has made such a call.
    fn may_be<const N: usize>(&self, ends: [End; N]) -> bool {
        let newest = self.claims.last().copied().unwrap_or_default();
        ends.iter().any(|end| self.ends.contains(&(newest, *end as u8)))
    }

    /// Returns `true` if it was claimed more often than it may be delivered.
    fn has_too_many(&self, rules: &Rules) -> bool {
        rules.max_attempts.is_some_and(|most| self.claims.len() > most as usize)
    }
}

impl Checker<'_> {
    /// Returns the part behind the queue's path and the name of a node.
    fn place<'p>(&self, path: &'p str) -> Option<(&'p str, &'p str)> {
        path.strip_prefix(&self.rules.path)?.split_once('/')
    }

    fn lock_at(&self, path: &str) -> Option<(Item, i64)> {
        self.locks.get(self.place(path)?.1).copied()
    }

    fn look_at_the_nodes(&mut self, at: Duration, change: &Change) -> bool {
        let (Change::Created { path, .. } | Change::DataChanged { path, .. } | Change::Deleted { path, .. }) = change;
        let Some((place, name)) = self.place(path) else { return true };
        match (place, change) {
            ("-locks", Change::Created { node, .. }) => return self.claimed(at, name, node.czxid),
            ("-locks", Change::Deleted { .. }) => {
                let Some(claim) = self.locks.get(name) else { return false };
                self.claims.entry(*claim).or_default().until = Some(at);
            }
            ("", Change::Deleted { .. }) => {
                let Some(item) = self.nodes.remove(name) else { return false };
                let by_hand = self.revoked.remove(path);
                self.deleted(at, item, by_hand);
            }
            (_, Change::Created { node, .. }) => {
                let Some(item) = item_of(&node.data) else { return false };
                let Some(known) = self.items.get_mut(&item) else { return false };
                let (is_moved, wrong) = (known.gone == Some(at), format!("{item:?}"));
                match place {
                    "" => return self.created(at, item, name, node),
                    "-dead" if is_moved && (known.may_be([End::Reject]) || known.has_too_many(self.rules)) => {
                        known.is_dead = true;
                    }
                    "-dead" => self.found.broken("a dead letter without a reason", at, wrong),
                    _ => {
                        known.effects += 1;
                        if known.effects > 1 {
                            self.found.broken("an effect that is made twice", at, wrong);
                        } else if !is_moved || !known.may_be([End::CompleteWith]) {
                            self.found.broken("an effect without a completion", at, wrong);
                        }
                    }
                }
            }
            _ => {}
        }
        true
    }

    /// Takes the node of an item. The item may be a new one, or be moved to the end.
    fn created(&mut self, at: Duration, item: Item, name: &str, node: &Node) -> bool {
        let Some(known) = self.items.get_mut(&item) else { return false };
        let Some(put) = self.puts.get_mut(&known.put) else { return false };
        let is_moved = known.gone == Some(at) && known.may_be([End::Requeue]);
        if known.is_there || known.was_created && !is_moved {
            self.found.broken("an item that is put twice", at, format!("{item:?}"));
        } else if !known.was_created && *put.transaction.get_or_insert(node.czxid) != node.czxid {
            self.found.broken("a put in parts", at, format!("{:?}", known.put));
        } else if !known.was_created && put.is_put == Some(false) {
            self.found.broken("an item that was not put", at, format!("{item:?}"));
        }
        let digits = name.get(name.len().saturating_sub(10)..).unwrap_or_default();
        (known.number, known.is_there, known.was_created) = (digits.parse().unwrap_or_default(), true, true);
        known.waits = self.is_alone;
        name.clone_into(&mut known.name);
        self.nodes.insert(name.to_owned(), item).is_none()
    }

    fn claimed(&mut self, at: Duration, name: &str, token: i64) -> bool {
        let Some(item) = self.nodes.get(name) else {
            self.found.broken("a lock of no item", at, name.to_owned());
            return true;
        };
        let Some(known) = self.items.get_mut(item) else { return false };
        known.claims.push(token);
        self.locks.insert(name.to_owned(), (*item, token));
        let claim = Claim { number: known.claims.len(), ..Claim::default() };
        self.claims.insert((*item, token), claim).is_none()
    }

    fn deleted(&mut self, at: Duration, item: Item, by_hand: bool) {
        let Some(known) = self.items.get_mut(&item) else { return };
        (known.is_there, known.gone) = (false, Some(at));
        known.by_hand |= by_hand;
        let is_ended = known.may_be([End::Complete, End::CompleteWith, End::Requeue, End::Reject]);
        if !self.rules.at_most_once && !by_hand && !is_ended && !known.has_too_many(self.rules) {
            self.found.broken("an item that no delivery has ended", at, format!("{item:?}"));
        }
    }

    fn has_put(&mut self, at: Duration, put: Put, is_put: bool) -> bool {
        let Some(parts) = self.puts.get_mut(&put) else { return false };
        parts.is_put = Some(is_put);
        for item in parts.items.iter().filter(|item| self.items[item].was_created != is_put) {
            let rule = if is_put { "a put that is lost" } else { "an item that was not put" };
            self.found.broken(rule, at, format!("{item:?}"));
        }
        true
    }

    fn delivered(&mut self, at: Duration, delivery: Delivery, (item, token): (Item, i64), number: u32) -> bool {
        let what = format!("{delivery:?} of {item:?}");
        let is_held = |given: &Given| given.item == item && given.is_live && !self.is_revoked((item, given.token));
        let beside = self.deliveries.iter().find(|(_, given)| is_held(given));
        if let (false, Some((other, _))) = (self.rules.at_most_once || self.is_revoked((item, token)), beside) {
            self.found.broken("two deliveries at a time", at, format!("{what} beside {other:?}"));
        }
        let Some(known) = self.items.get(&item) else { return false };
        let key = (known.rank, known.number);
        let earlier = |other: &Known| other.waits && (other.rank, other.number) < key;
        if let Some((first, _)) = self.items.iter().find(|(_, other)| known.waits && earlier(other)) {
            self.found.broken("an item out of order", at, format!("{what} before {first:?}"));
        }
        match self.rules.at_most_once {
            true => self.taken(at, &what, known.gone, known.was_delivered),
            false => self.has_claim(at, &what, (item, token), number),
        }
        if let Some(known) = self.items.get_mut(&item) {
            (known.was_delivered, known.waits) = (true, false);
        }
        let given = Given { item, token, since: at, is_live: true, end: None, is_repeated: false };
        self.deliveries.insert(delivery, given).is_none()
    }

    /// Returns `true` if an administrator has ended a claim.
    fn is_revoked(&self, claim: (Item, i64)) -> bool {
        self.claims.get(&claim).is_some_and(|claim| claim.is_revoked)
    }

    /// Checks a delivery at most once.
    fn taken(&mut self, at: Duration, what: &str, gone: Option<Duration>, again: bool) {
        match gone {
            None => self.found.broken("an item that is delivered before it is deleted", at, what.to_owned()),
            Some(_) if again => self.found.broken("an item that is delivered again", at, what.to_owned()),
            Some(_) => {}
        }
    }

    /// Checks a delivery with a lock.
    fn has_claim(&mut self, at: Duration, what: &str, claim: (Item, i64), number: u32) {
        let claims = self.items[&claim.0].claims.len();
        let Some(claim) = self.claims.get(&claim) else {
            return self.found.broken("a delivery without a lock", at, what.to_owned());
        };
        if claim.until.is_some() && !claim.is_revoked {
            self.found.broken("a delivery that was lost before", at, what.to_owned());
        }
        if claim.number != number as usize {
            self.found.broken("a wrong number of a delivery", at, format!("{what}: {number} of {claims}"));
        }
        if self.rules.max_attempts.is_some_and(|most| number > most) {
            self.found.broken("too many deliveries", at, format!("{what}: {number}"));
        }
    }

    /// Takes the time until which a holder relies on a delivery.
    fn is_over(&mut self, at: Duration, delivery: Delivery) -> bool {
        let Some(given) = self.deliveries.get_mut(&delivery) else { return false };
        let claim = self.claims.get(&(given.item, given.token));
        if let (true, Some(until)) = (given.is_live, claim.and_then(|claim| claim.until)) {
            let (from, notice) = (until.max(given.since), WATCHED_AFTER + self.rules.behind * 4);
            if self.history.slow.calm(from, at) > notice {
                self.found.broken_from("a loss without notice", from, at, format!("{delivery:?}"));
            }
        }
        given.is_live = false;
        true
    }

    fn ends(&mut self, at: Duration, delivery: Delivery, end: End) -> bool {
        if !self.is_over(at, delivery) {
            return false;
        }
        let Some(given) = self.deliveries.get_mut(&delivery) else { return false };
        let before = given.end.replace((end, at)).filter(|(before, _)| *before == end);
        if let Some((_, since)) = before {
            (given.end, given.is_repeated) = (Some((end, since)), true);
        }
        let Some(known) = self.items.get_mut(&given.item) else { return false };
        known.ends.insert((given.token, end as u8));
        true
    }

    fn ended(&mut self, at: Duration, delivery: Delivery, outcome: Outcome) -> bool {
        let Some(given) = self.deliveries.get(&delivery) else { return false };
        let Given { item, token, since, end: Some((end, begin)), is_repeated, .. } = given else { return false };
        let (Some(known), what) = (self.items.get(item), format!("{delivery:?} of {item:?} with {end:?}")) else {
            return false;
        };
        let is_newest = known.claims.last() == Some(token);
        // Without its lock and a reply it cannot tell its own delete from another one.
        let has_no_reply = *is_repeated || self.history.slow.touches(*begin, at);
        let is_unsure = has_no_reply && (known.by_hand || self.is_revoked((*item, *token)));
        match outcome {
            // Without a lock it sends nothing.
            _ if self.rules.at_most_once => {}
            Outcome::Done if is_unsure || *end == End::Retry => {}
            Outcome::Done if !is_newest && *end != End::Requeue => {
                self.found.broken("an end of another delivery", at, what);
            }
            Outcome::Done if known.gone.is_none_or(|gone| gone < *begin) => {
                self.found.broken("an end that has changed nothing", at, what);
            }
            Outcome::Done if *end == End::CompleteWith && known.effects == 0 => {
                self.found.broken("a completion without its effect", at, what);
            }
            Outcome::Done if *end == End::Reject && !known.is_dead => {
                self.found.broken("a rejection without a dead letter", at, what);
            }
            Outcome::Done => {}
            Outcome::Lost if !self.history.faults.touches(*since, at) => {
                self.found.broken("a loss in calm", at, what);
            }
            Outcome::Gone if is_newest && !known.by_hand => {
                self.found.broken("an item that is not gone", at, what);
            }
            Outcome::Lost | Outcome::Gone => {}
        }
        true
    }
}

/// Returns the item of a node. It is the first one of a batch, or alone as the data of an effect.
fn item_of(data: &[u8]) -> Option<Item> {
    const START: [u8; 5] = [0, 1, 0, 1, 1];
    let text = match data.strip_prefix(&START) {
        Some(rest) => {
            let (length, rest) = rest.split_first_chunk()?;
            rest.get(..u32::from_be_bytes(*length) as usize)?
        }
        None => data,
    };
    std::str::from_utf8(text).ok()?.parse().ok().map(Item)
}

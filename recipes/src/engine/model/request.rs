//! Several leases of one request, with a contender for each: all or none. The runner is `locks/semaphore/take.rs`.

use std::ops::Range;

use crate::engine::driver::{LockInternalsDriver, Predicate};
use crate::engine::model::properties;
use crate::engine::model::scenario::{Quirk, Scenario};
use crate::engine::model::state::*;

impl Contender {
    /// Returns whether it holds a lease of a request that is not complete.
    pub(super) const fn is_part(&self) -> bool {
        matches!(self.phase, Phase::Part | Phase::Asks(Ask { what: Asked::Check, .. }))
    }
}

impl Locks {
    /// Lists the contenders of the same request.
    pub(super) fn request_of(&self, contender: usize) -> Range<usize> {
        let follows = |index: &usize| self.contenders[*index].follows;
        let first = (0..=contender).rfind(|index| !follows(index)).unwrap_or_default();
        let end = (first + 1..self.contenders.len()).find(|index| !follows(index));
        first..end.unwrap_or(self.contenders.len())
    }

    /// Returns whether a contender sees that its request has lost a lease, or the turn.
    pub(super) fn sees_loss(&self, contender: usize, scenario: &Scenario) -> bool {
        let it = &self.contenders[contender];
        let position = self.world.sessions[it.session].position;
        let is_gone = it.node.is_some_and(|node| !self.world.nodes[node].exists_at(position));
        let has_no_turn = it.turn_is_lost && scenario.quirk != Some(Quirk::KeepsLeasesWithoutTurn);
        it.is_part() && (is_gone || has_no_turn)
    }

    /// Continues after the grant of a lease: with the next one, or with the check of all.
    pub(super) fn goes_on(&mut self, contender: usize, scenario: &Scenario) {
        self.contenders[contender].phase = Phase::Part;
        if contender + 1 < self.request_of(contender).end {
            self.begin(contender + 1, scenario);
        } else if scenario.quirk == Some(Quirk::LeasesAreNotChecked) {
            let sent = self.world.sessions[self.contenders[contender].session].position;
            self.has_all(contender, sent);
        } else {
            self.lists_all(contender);
        }
    }

    /// Lists the leases after the last grant.
    pub(super) fn lists_all(&mut self, contender: usize) {
        let Session { epoch, position: sent, .. } = self.world.sessions[self.contenders[contender].session];
        self.send(contender, What::List);
        let (node, own, listed) = (None, None, None);
        let ask = Ask { what: Asked::Check, epoch, outstanding: 1, node, own, record: None, listed, known: None, sent };
        self.contenders[contender].phase = Phase::Asks(ask);
    }

    /// Takes the listing after the last grant.
    pub(super) fn has_listed_all(&mut self, contender: usize, ask: &Ask, scenario: &Scenario) {
        let Contender { kind, asks_once, limit, .. } = self.contenders[contender];
        let queue = self.queue(contender, ask.listed.unwrap_or_default(), scenario);
        let is_held = |lease: usize| {
            let own = self.contenders[lease].node.map(|node| self.world.nodes[node].data.name()).unwrap_or_default();
            let decide = |driver: &dyn LockInternalsDriver| driver.gets_the_lock(&queue, &own, limit.into());
            scenario.with_rules(kind, asks_once, |rules| decide(rules.driver)) == Predicate::Acquired
        };
        if self.request_of(contender).all(is_held) {
            self.has_all(contender, ask.sent);
        } else {
            self.request_fails(contender, scenario);
        }
    }

    fn has_all(&mut self, contender: usize, sent: Position) {
        let request = self.request_of(contender);
        properties::check_request(self, request.clone(), sent);
        self.ends_turn(request.start);
        for lease in request {
            (self.contenders[lease].phase, self.contenders[lease].turn_is_lost) = (Phase::Holds, false);
        }
    }

    fn ends_turn(&mut self, first: usize) {
        self.turn = self.turn.filter(|turn| *turn != first);
    }

    /// Ends a failed attempt: its nodes are deleted, and the request waits for the turn again.
    pub(super) fn request_fails(&mut self, contender: usize, scenario: &Scenario) {
        let request = self.request_of(contender);
        self.ends_turn(request.start);
        for lease in request {
            let keeps = self.contenders[lease].is_part() && scenario.quirk == Some(Quirk::KeepsLeasesOfAFailure);
            self.new_attempt(lease, self.contenders[lease].phase != Phase::Idle && !keeps);
        }
    }
}

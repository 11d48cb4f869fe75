//! The steps of the locks: the leader's log, the servers that follow it, the connections and the contenders.
//!
//! A write commits at the leader and is answered when the session's server has applied it. A reply is delivered when the
//! server answers: a reply that is delayed for long is a server that is behind for long. It may overtake notifications,
//! as with `zookeeper-async`. The server has a watch exactly where the client has a waiter with a reply to its read. A
//! session reconnects at any position that it has not seen surpassed.
//!
//! A server applies a transaction of another session at once, unless it has to choose an order of notifications, or the
//! session has caused or been notified of later transactions. This leaves nothing out: to a session that cannot know of
//! a transaction, a server that is behind is a leader that commits later.

use crate::engine::model::properties::check_quiet;
use crate::engine::model::scenario::{Fault, Kind, Quirk, Scenario};
use crate::engine::model::state::*;
use crate::model::search::Model;
use crate::model::world::{World, factorial, permute};

impl Owned {
    pub(super) fn name(&self) -> String {
        let mut name = String::with_capacity(24);
        name.push_str("_c_");
        name.push(char::from(b'0' + self.owner as u8));
        name.push('-');
        name.push_str(self.kind.lock_name());
        name.push_str("00000000");
        name.push(char::from(b'0' + self.number / 10));
        name.push(char::from(b'0' + self.number % 10));
        name
    }

    /// Compares without building the name.
    pub(super) fn is_named(&self, name: &str) -> bool {
        let name = name.as_bytes();
        let number = [b'0' + self.number / 10, b'0' + self.number % 10];
        name.ends_with(&number) && name.get(3) == Some(&(b'0' + self.owner as u8))
    }
}

impl What {
    fn is_write(self) -> bool {
        !matches!(
            self,
            Self::List | Self::FindOwn | Self::ReadNode(_) | Self::ReadOwn(_) | Self::ReadRecord | Self::Exists(_)
        )
    }

    /// Returns whether the session itself sends it again on the next connection.
    fn is_repeated(self) -> bool {
        matches!(self, Self::Clean | Self::Signal(_) | Self::Delete(_) | Self::CreateReader | Self::Exists(_))
    }
}

impl Model for Locks {
    type Scenario = Scenario;
    type Step = Step;

    fn new(scenario: &Scenario) -> Self {
        let sessions = scenario.contenders.iter().map(|contender| contender.session + 1).max().unwrap_or_default();
        let mut locks = Self {
            world: World::new(sessions),
            owners: Vec::new(),
            limits: vec![scenario.limit; sessions],
            newest: vec![None; sessions],
            writers: vec![0; sessions],
            contenders: scenario.contenders.iter().map(|spec| Contender::new(spec, scenario.limit)).collect(),
            turn: None,
            record: Record::default(),
            record_written: Vec::new(),
            moved: 0,
            hand_overs: scenario.hand_overs,
            multis: Vec::new(),
            limit: scenario.limit,
            faults: scenario.faults,
        };
        for contender in 0..locks.contenders.len() {
            locks.new_owner(contender);
            match locks.contenders[contender].tries {
                true => locks.try_first(contender, scenario),
                false if locks.takes_turn(contender, scenario) => {}
                false => locks.begin(contender, scenario),
            }
        }
        locks
    }

    fn steps(&self, scenario: &Scenario) -> Vec<Step> {
        let mut steps = Vec::new();
        for (index, session) in self.world.sessions.iter().enumerate().filter(|(_, session)| !session.is_over) {
            self.steps_of_session(index, session, &mut steps);
        }
        for (index, contender) in self.contenders.iter().enumerate() {
            self.steps_of_contender(index, contender, scenario, &mut steps);
        }
        if self.faults > 0 {
            self.possible_faults(scenario, &mut steps);
        }
        steps
    }

    fn must_happen(step: Step) -> bool {
        use Step::{Apply, Commit, Dispatch, End, Learn, Look, Run, Serve, Turn};
        // Not a straggler, which may be lost as well.
        matches!(step, Commit(_) | Apply(..) | Serve(_) | Dispatch(_) | Run(_) | Look(_) | End(_) | Learn(_) | Turn(_))
            || matches!(step, Step::Withdraw(_))
    }

    /// Takes a step, and the steps that follow at once.
    fn take(&mut self, step: Step, scenario: &Scenario) {
        self.take_one(step, scenario);
        self.settle(scenario);
    }

    fn check_quiet(&self, _: &Scenario) {
        check_quiet(self);
    }
}

impl Locks {
    fn steps_of_session(&self, index: usize, session: &Session, steps: &mut Vec<Step>) {
        let is_cut = session.closed.is_some_and(|closed| session.position >= closed);
        if let Some(oldest) = session.requests.first() {
            match oldest.committed {
                _ if !oldest.what.is_write() => steps.extend((!is_cut).then_some(Step::Serve(index))),
                None if session.closed.is_none() && self.may_commit(oldest) => steps.push(Step::Commit(index)),
                _ => {}
            }
        }
        if !session.stragglers.is_empty() && session.closed.is_none() {
            steps.push(Step::CommitStraggler(index));
        }
        if session.position < self.world.log && !is_cut {
            let orders = factorial(self.events_at(index, session.position + 1).len());
            if session.position < session.known || orders > 1 {
                steps.extend((0..orders).map(|order| Step::Apply(index, order)));
            }
        }
        if !session.mail.is_empty() {
            steps.push(Step::Dispatch(index));
        }
        if session.closed.is_some() {
            steps.push(Step::End(index));
        }
        if self.limits[index] != self.limit {
            steps.push(Step::Learn(index));
        }
    }

    fn possible_faults(&self, scenario: &Scenario, steps: &mut Vec<Step>) {
        let there = || self.world.there();
        for fault in scenario.fault_kinds {
            match fault {
                Fault::DeleteOne => steps.extend(there().map(Step::DeleteOne)),
                Fault::DeleteBoth => steps.extend(there().flat_map(|node| {
                    there().filter(move |other| node < *other).map(move |other| Step::DeleteBoth(node, other))
                })),
                Fault::Kill => steps.extend(self.open_sessions().map(Step::Kill)),
                Fault::Break => self.open_sessions().for_each(|session| self.possible_breaks(session, steps)),
                Fault::GiveUp => {
                    let waits = |contender: &usize| matches!(self.contenders[*contender].phase, Phase::Wait(_));
                    steps.extend((0..self.contenders.len()).filter(waits).map(Step::GiveUp));
                }
                Fault::LoseTurn => steps.extend(self.turn.map(Step::LoseTurn)),
                Fault::Limit(limit) => steps.extend((self.limit != *limit).then_some(Step::Limit(*limit))),
            }
        }
    }

    /// Lists the ends of a connection. Received notifications are dispatched before the connection's end.
    fn possible_breaks(&self, session: usize, steps: &mut Vec<Step>) {
        let Session { received: 0, last_seen, .. } = self.world.sessions[session] else { return };
        for position in last_seen..=self.world.log {
            let orders = factorial(self.replayed_at(session, position).len());
            steps.extend((0..orders).map(|order| Step::Break(session, position, order)));
        }
    }

    /// Lists the sessions that live and have something to do.
    fn open_sessions(&self) -> impl Iterator<Item = usize> {
        let is_open = |(index, session): &(usize, &Session)| {
            session.closed.is_none() && !session.is_over && !self.is_idle(*index, session)
        };
        self.world.sessions.iter().enumerate().filter(is_open).map(|(index, _)| index)
    }

    fn is_idle(&self, index: usize, session: &Session) -> bool {
        let of_session = |contender: &&Contender| contender.session == index;
        session.requests.is_empty() && self.contenders.iter().filter(of_session).all(|it| it.phase == Phase::Over)
    }

    /// Returns whether a request may commit. First nodes come in the contenders' order: scenarios cover the others.
    fn may_commit(&self, request: &Request) -> bool {
        let has_joined = |contender: usize| {
            let it = &self.contenders[contender];
            self.world.nodes.iter().any(|node| node.data.owner == contender)
                || it.phase == Phase::Over
                || it.follows
                || it.owner != contender
        };
        let is_first = request.owner == request.contender && !self.contenders[request.contender].follows;
        request.what != What::Create || !is_first || (0..request.contender).all(has_joined)
    }

    /// Takes the steps that may as well come at once, as nothing else depends on their order.
    fn settle(&mut self, scenario: &Scenario) {
        loop {
            for index in 0..self.world.sessions.len() {
                while self.applies_at_once(index) {
                    self.take_one(Step::Apply(index, 0), scenario);
                }
                if self.is_idle(index, &self.world.sessions[index]) {
                    let (position, is_over) = (self.world.log, self.world.sessions[index].is_over);
                    self.world.sessions[index] = Session { position, known: position, is_over, ..Session::default() };
                    (self.limits[index], self.newest[index], self.writers[index]) = (self.limit, None, 0);
                }
            }
            // The run of a contender that is alone in its session affects no other, unless a fault comes in between.
            let of_contender = |contender: usize| self.runs_at_once(contender, scenario);
            let Some(step) = (0..self.contenders.len()).find_map(of_contender) else {
                return;
            };
            self.take_one(step, scenario);
        }
    }

    fn runs_at_once(&self, index: usize, scenario: &Scenario) -> Option<Step> {
        let contender = &self.contenders[index];
        let session = &self.world.sessions[contender.session];
        let is_alone = self.contenders_of(contender.session).len() == 1;
        // A call may come first.
        let is_wished = self.record.wish.is_some() && self.record.wish == contender.node;
        if !is_alone || is_wished || contender.tries || session.closed.is_some() || session.is_over {
            return None;
        }
        let mut steps = Vec::new();
        self.steps_of_contender(index, contender, scenario, &mut steps);
        let waits = matches!(contender.phase, Phase::Wait(_)) && session.requests.is_empty();
        match steps.into_iter().find(|step| matches!(step, Step::Run(_))) {
            Some(run) => (session.mail.is_empty() && (scenario.runs_at_once || self.faults == 0)).then_some(run),
            None => {
                (waits && !session.mail.is_empty() && self.faults == 0).then_some(Step::Dispatch(contender.session))
            }
        }
    }

    fn applies_at_once(&self, index: usize) -> bool {
        let session = &self.world.sessions[index];
        let is_cut = session.closed.is_some_and(|closed| session.position >= closed);
        !is_cut
            && !session.is_over
            && (session.known..self.world.log).contains(&session.position)
            && self.events_at(index, session.position + 1).len() < 2
    }

    fn take_one(&mut self, step: Step, scenario: &Scenario) {
        match step {
            Step::Commit(session) => {
                // No straggler commits after a later write of its session.
                self.world.sessions[session].stragglers.clear();
                let committed = self.commit(session, self.world.sessions[session].requests[0], scenario);
                self.world.sessions[session].requests[0].committed = Some(committed);
                self.answer_write(session);
            }
            Step::CommitStraggler(session) => {
                let straggler = self.world.sessions[session].stragglers.remove(0);
                self.commit(session, straggler, scenario);
                self.world.sessions[session].known = self.world.log;
            }
            Step::Apply(session, order) => {
                let mut events = self.events_at(session, self.world.sessions[session].position + 1);
                permute(&mut events, order);
                self.world.apply(session, events);
                self.answer_write(session);
            }
            Step::Serve(session) => {
                let request = self.world.sessions[session].requests.remove(0);
                self.world.sessions[session].has_replied();
                self.served(request);
            }
            Step::Dispatch(session) => {
                self.dispatch_next(session, scenario);
            }
            Step::Run(contender) => self.run(contender, scenario),
            Step::Look(contender) if self.contenders[contender].is_part() => self.request_fails(contender, scenario),
            Step::Look(contender) => self.is_done(contender),
            Step::End(session) => {
                for contender in self.contenders_of(session) {
                    self.is_done(contender);
                }
                self.world.sessions[session] = Session { is_over: true, ..Session::default() };
                (self.limits[session], self.newest[session], self.writers[session]) = (0, None, 0);
            }
            Step::Learn(session) => self.limits[session] = self.limit,
            Step::Turn(contender) => {
                self.turn = Some(contender);
                self.begin(contender, scenario);
            }
            Step::Refuse(contender) => self.begin_again(contender, scenario),
            Step::WaitsLong(contender) => self.waits_long(contender, scenario),
            Step::Release(contender) => self.release(contender),
            Step::Downgrade(contender) => self.downgrade(contender),
            Step::HandOver(leader, candidate) => {
                self.hand_overs -= 1;
                self.send(leader, What::Wish(candidate));
            }
            Step::Withdraw(leader) => self.send(leader, What::Withdraw),
            Step::Called(candidate) => self.is_called(candidate, scenario),
            fault => {
                self.faults -= 1;
                self.fail(fault, scenario);
            }
        }
    }

    fn fail(&mut self, fault: Step, scenario: &Scenario) {
        match fault {
            Step::DeleteOne(node) => self.delete(&[node]),
            Step::DeleteBoth(node, other) => {
                self.delete(&[node, other]);
                self.multis.push(self.world.log);
            }
            Step::Kill(session) => {
                self.world.end(session);
                self.world.sessions[session].closed = Some(self.world.log);
            }
            Step::Break(session, position, order) => {
                let mut replayed = self.replayed_at(session, position);
                permute(&mut replayed, order);
                if scenario.quirk == Some(Quirk::WatchesAreNotRestored) {
                    replayed.clear();
                }
                let is_open = |request: &Request| request.what.is_write() && request.committed.is_none();
                let lost = self.world.sessions[session].reconnect(position, replayed, is_open);
                self.loses_moves(&lost, scenario);
                self.lose_connection(session, lost);
            }
            Step::GiveUp(contender) => self.request_of(contender).for_each(|lease| self.give_up(lease)),
            Step::LoseTurn(contender) => (self.turn, self.contenders[contender].turn_is_lost) = (None, true),
            Step::Limit(limit) => self.limit = limit,
            _ => {}
        }
    }

    /// Fails the outstanding actions of a session's contenders.
    fn lose_connection(&mut self, session: usize, lost: Vec<Request>) {
        for contender in self.contenders_of(session) {
            self.loses_connection(contender);
        }
        for request in lost.into_iter().filter(|request| request.what.is_repeated()) {
            self.world.sessions[session].requests.push(Request { committed: None, ..request });
        }
    }

    fn dispatch_next(&mut self, session: usize, scenario: &Scenario) {
        let it = &mut self.world.sessions[session];
        it.received = it.received.saturating_sub(1);
        let (target, event) = it.mail.remove(0);
        self.dispatch(session, target, event, scenario);
    }

    fn contenders_of(&self, session: usize) -> Vec<usize> {
        (0..self.contenders.len()).filter(|contender| self.contenders[*contender].session == session).collect()
    }

    pub(super) fn send(&mut self, contender: usize, what: What) {
        let Contender { session, owner, .. } = self.contenders[contender];
        self.world.sessions[session].requests.push(Request { contender, owner, what, committed: None });
    }

    /// Carries out a write at the leader.
    fn commit(&mut self, session: usize, request: Request, scenario: &Scenario) -> (Position, Answer) {
        let answer = match request.what {
            What::Create => {
                let kind = self.contenders[request.contender].kind;
                self.create(request.owner, kind, self.next_number())
            }
            What::CreateReader => self.create_reader(&request),
            What::Wish(_) | What::Withdraw | What::Follow { .. } => self.change_record(&request, scenario),
            What::Delete(node) | What::DeleteExtra(node) => self.delete_owned(&[node]),
            What::Clean => {
                let is_left = |node: &usize| self.world.nodes[*node].data.owner == request.owner;
                let left: Vec<_> = (0..self.world.nodes.len()).filter(is_left).collect();
                self.delete_owned(&left)
            }
            What::Signal(node) if self.world.nodes[node].exists_at(self.world.log) => {
                self.world.log += 1;
                if self.world.nodes[node].written.is_none() {
                    self.world.write(node);
                }
                Answer::Done
            }
            _ => Answer::Done,
        };
        debug_assert!(self.world.sessions[session].closed.is_none());
        (self.world.log, answer)
    }

    pub(super) fn next_number(&self) -> u8 {
        self.world.nodes.iter().map(|node| node.data.number + 1).max().unwrap_or_default()
    }

    pub(super) fn create(&mut self, owner: usize, kind: Kind, number: u8) -> Answer {
        let (node, session) = (self.world.nodes.len(), self.owners[owner].session);
        self.world.log += 1;
        self.world.create(node, Owned { owner, kind, number }, u8::try_from(session).ok());
        Answer::Created(node)
    }

    fn delete(&mut self, nodes: &[usize]) {
        self.world.log += 1;
        nodes.iter().for_each(|node| self.world.delete(*node));
    }

    /// Deletes nodes of the session by the session itself.
    fn delete_owned(&mut self, nodes: &[usize]) -> Answer {
        let there: Vec<_> = self.world.there().filter(|node| nodes.contains(node)).collect();
        if there.is_empty() {
            return Answer::NoNode;
        }
        let holds = |it: &Contender| it.phase == Phase::Holds && it.node.is_some_and(|node| there.contains(&node));
        assert!(!self.contenders.iter().any(holds), "a session has deleted the node of its own holder");
        self.delete(&there);
        Answer::Done
    }

    /// Answers the oldest request if it is a write that the server has applied.
    fn answer_write(&mut self, index: usize) {
        let session = &mut self.world.sessions[index];
        let Some(Request { committed: Some((position, _)), .. }) = session.requests.first() else { return };
        if *position > session.position {
            return;
        }
        session.has_replied();
        let request = session.requests.remove(0);
        self.written(request);
    }

    /// Lists the notifications that the session's server sends for a transaction.
    fn events_at(&self, session: usize, position: Position) -> Vec<(Target, Event)> {
        let is_sent = |target| self.world.sessions[session].mail.iter().any(|(sent, _)| *sent == target);
        let is_armed = |target| !is_sent(target) && self.is_armed(session, target);
        let mut events = self.world.events_at(position, is_armed);
        events
            .extend((self.record_written.contains(&position) && is_armed(RECORD)).then_some((RECORD, Event::Changed)));
        events
    }

    /// Lists the notifications that a server at a position replays to a session that connects to it.
    fn replayed_at(&self, session: usize, position: Position) -> Vec<(Target, Event)> {
        let nodes = (0..self.world.nodes.len()).map(Target::Node);
        let armed = nodes.chain([Target::Children]).filter(|target| self.is_armed(session, *target));
        let last_seen = self.world.sessions[session].last_seen;
        let mut events = self.world.replayed_at(position, last_seen, armed);
        let is_written = self.record_written.iter().any(|written| (last_seen + 1..=position).contains(written));
        events.extend((is_written && self.is_armed(session, RECORD)).then_some((RECORD, Event::Changed)));
        events
    }

    fn is_armed(&self, session: usize, target: Target) -> bool {
        self.watches(session, target).any(|watch| watch.is_set())
    }

    /// Lists the waiters of a session at a target that were not woken.
    pub(super) fn watches(&self, session: usize, target: Target) -> impl Iterator<Item = &Watch> {
        let contenders = self.contenders.iter().filter(move |contender| contender.session == session);
        contenders.flat_map(Contender::watches).filter(move |watch| watch.target == target && watch.fired.is_none())
    }

    /// Returns the state of the owner's delete of its node.
    pub(super) fn owner_delete(&self, owner: usize) -> Delete {
        self.owners[owner].delete
    }

    pub(super) fn nodes_at(&self, position: Position) -> Nodes {
        let there = |node: &usize| self.world.nodes[*node].exists_at(position);
        (0..self.world.nodes.len()).filter(there).fold(0, |nodes, node| nodes | 1 << node)
    }
}

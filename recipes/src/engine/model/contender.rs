//! The contenders: the runner's part in actions, replies and notifications.

use crate::engine::driver::SortedChildren;
use crate::engine::lease_driver::are_held;
use crate::engine::model::properties::{self, Cause};
use crate::engine::model::scenario::{Kind, Quirk, Scenario, Spec};
use crate::engine::model::state::*;
use crate::engine::plan::{Action, Ahead, Arm, Armed, DeletedBy, Input, Listing, Plan, Watched};
use crate::model::search::tell;

impl Watch {
    fn new(target: Target) -> Self {
        Self { target, found: None, fired: None }
    }

    /// Returns whether the server has the watch.
    pub(super) fn is_set(&self) -> bool {
        self.found.is_some()
    }
}

/// The result of an action, for the planner.
enum Outcome {
    Plain(Input<'static>, Option<Cause>),
    Listed(u64, Nodes, Position),
    Armed {
        epoch: u64,
        node: Watched,
        own: Watched,
        listed: Option<(Nodes, Position)>,
    },
    /// This contender's node is deleted, so the attempt fails.
    Gone,
}

impl Contender {
    pub(super) fn new(spec: &Spec, limit: u8) -> Self {
        Self {
            session: spec.session,
            kind: spec.kind,
            asks_once: spec.asks_once,
            tries: spec.tries,
            follows: spec.follows,
            turn_is_lost: false,
            owner: 0,
            node: None,
            plan: Plan::default(),
            phase: Phase::Idle,
            awaited: None,
            awaited_owner: None,
            own: None,
            record: None,
            early: None,
            is_uncertain: false,
            is_notified: false,
            limit,
            wishes: false,
            has_come: false,
            moved: None,
        }
    }

    pub(super) fn watches(&self) -> impl Iterator<Item = &Watch> {
        let asked = match &self.phase {
            Phase::Asks(ask) => [ask.node.as_ref(), ask.own.as_ref(), ask.record.as_ref()],
            _ => [None; 3],
        };
        [self.awaited.as_ref(), self.own.as_ref(), self.record.as_ref()].into_iter().chain(asked).flatten()
    }

    fn watches_mut(&mut self) -> impl Iterator<Item = &mut Watch> {
        let asked = match &mut self.phase {
            Phase::Asks(ask) => [ask.node.as_mut(), ask.own.as_mut(), ask.record.as_mut()],
            _ => [None, None, None],
        };
        [self.awaited.as_mut(), self.own.as_mut(), self.record.as_mut()].into_iter().chain(asked).flatten()
    }

    /// Returns whether the contender watches its own node.
    pub(super) fn watches_own(&self) -> bool {
        self.own.is_some()
    }

    pub(super) fn ask(&mut self) -> Option<&mut Ask> {
        if let Phase::Asks(ask) = &mut self.phase { Some(ask) } else { None }
    }
}

fn has_fired(watch: Option<&Watch>) -> bool {
    watch.is_some_and(|watch| watch.fired.is_some())
}

impl Locks {
    pub(super) fn steps_of_contender(
        &self,
        index: usize,
        contender: &Contender,
        scenario: &Scenario,
        steps: &mut Vec<Step>,
    ) {
        if self.world.sessions[contender.session].is_over {
            return;
        }
        if self.sees_loss(index, scenario) {
            steps.push(Step::Look(index));
        }
        match &contender.phase {
            // At first in the order of the contenders, as their nodes come.
            Phase::Idle => {
                let waits =
                    |(before, it): (usize, &Contender)| it.phase == Phase::Idle && it.owner == before && !it.follows;
                let is_next = !contender.follows && !self.contenders[..index].iter().enumerate().any(waits);
                steps.extend((is_next && self.turn.is_none()).then_some(Step::Turn(index)));
            }
            Phase::Asks(ask) if ask.outstanding == 0 => {
                steps.push(Step::Run(index));
                // A read of the queue may have come between.
                let is_queued = |other: &Contender| other.phase == Phase::Idle;
                let sees_queue = self.turn.is_some() || self.contenders.iter().any(is_queued);
                steps.extend((contender.tries && ask.listed.is_some() && sees_queue).then_some(Step::Refuse(index)));
            }
            Phase::Asks(_) => {}
            Phase::Failed => steps.push(Step::Run(index)),
            Phase::Wait(wait) => {
                let hears = self.hears_holder(wait, scenario);
                let limit_has_changed = contender.limit != self.limits[contender.session];
                let awaited = contender.awaited.as_ref().is_none_or(|watch| watch.fired.is_some());
                let of_latch = [&contender.own, &contender.record].into_iter().any(|watch| has_fired(watch.as_ref()));
                if of_latch || hears.is_some() || awaited || limit_has_changed {
                    steps.push(Step::Run(index));
                } else if contender.own.is_none() && scenario.waits_last {
                    steps.push(Step::WaitsLong(index));
                }
            }
            Phase::AsksOwner { owner, .. } => {
                steps.extend((self.owner_delete(*owner) != Delete::Outstanding).then_some(Step::Run(index)));
            }
            Phase::Holds => {
                let position = self.world.sessions[contender.session].position;
                let is_gone = contender.node.is_some_and(|node| !self.world.nodes[node].exists_at(position));
                steps.push(if is_gone { Step::Look(index) } else { Step::Release(index) });
                if scenario.downgrades && contender.kind == Kind::Write && !is_gone {
                    steps.push(Step::Downgrade(index));
                }
            }
            Phase::Downgrades(_) | Phase::Part | Phase::Leaves | Phase::Over => {}
        }
        self.steps_of_latch(index, contender, steps);
    }

    /// Returns whether the contender needs the turn to wait.
    pub(super) fn takes_turn(&self, contender: usize, scenario: &Scenario) -> bool {
        scenario.has_turns || self.request_of(contender).len() > 1
    }

    /// Starts an attempt.
    pub(super) fn new_owner(&mut self, contender: usize) {
        let session = self.contenders[contender].session;
        self.contenders[contender].owner = self.owners.len();
        self.owners.push(Owner::new(session, true));
    }

    /// Starts a first try, in which the planner has no part.
    pub(super) fn try_first(&mut self, contender: usize, scenario: &Scenario) {
        self.perform(contender, Action::Create, None, scenario);
    }

    pub(super) fn begin(&mut self, contender: usize, scenario: &Scenario) {
        let (plan, action) = Plan::new();
        let it = &mut self.contenders[contender];
        (it.plan, it.limit) = (plan, self.limits[it.session]);
        if scenario.quirk == Some(Quirk::SaysFirstAtOnce) {
            self.owners[it.owner].says_first = Some(self.world.sessions[it.session].epoch);
        }
        self.perform(contender, action, None, scenario)
    }

    /// Ends a failed attempt: its possible nodes are deleted, and another attempt starts. After a first try it waits
    /// for the turn.
    pub(super) fn begin_again(&mut self, contender: usize, scenario: &Scenario) {
        if self.request_of(contender).len() > 1 {
            return self.request_fails(contender, scenario);
        }
        let Contender { owner, tries, is_uncertain, .. } = self.contenders[contender];
        let has_node = self.world.nodes.iter().any(|it| it.data.owner == owner && it.deleted.is_none());
        self.new_attempt(contender, is_uncertain || has_node);
        if !tries {
            self.begin(contender, scenario);
        }
    }

    pub(super) fn new_attempt(&mut self, contender: usize, cleans: bool) {
        if cleans {
            self.send(contender, What::Clean);
        }
        let Contender { session, kind, asks_once, follows, owner, limit, .. } = self.contenders[contender];
        self.leaves(owner);
        let spec = Spec { session, kind, asks_once, tries: false, follows };
        self.contenders[contender] = Contender::new(&spec, limit);
        self.new_owner(contender);
    }

    /// Ends the contender: it holds nothing, and sends nothing more.
    pub(super) fn is_done(&mut self, contender: usize) {
        self.leaves(self.contenders[contender].owner);
        let it = &mut self.contenders[contender];
        (it.plan, it.phase, it.early, it.awaited_owner) = (Plan::default(), Phase::Over, None, None);
        (it.awaited, it.own, it.record, it.is_uncertain, it.is_notified) = (None, None, None, false, false);
        (it.wishes, it.has_come) = (false, false);
        if self.turn == Some(contender) {
            self.turn = None;
        }
    }

    /// Removes an attempt from what its session knows.
    fn leaves(&mut self, owner: usize) {
        self.owners[owner].is_entered = false;
        let Owner { session, node, .. } = self.owners[owner];
        self.writers[session] &= !node.map_or(0, |node| 1 << node);
        if !self.owners.iter().any(|other| other.is_entered && other.session == session) {
            self.writers[session] = 0;
        }
    }

    pub(super) fn give_up(&mut self, contender: usize) {
        self.send(contender, What::Clean);
        self.is_done(contender);
    }

    pub(super) fn release(&mut self, contender: usize) {
        let it = &mut self.contenders[contender];
        (it.phase, it.own) = (Phase::Leaves, None);
        self.owners[it.owner].delete = Delete::Outstanding;
        if let Some(node) = it.node {
            self.send(contender, What::Delete(node));
        }
    }

    pub(super) fn downgrade(&mut self, contender: usize) {
        let Contender { session, node, .. } = self.contenders[contender];
        self.contenders[contender].phase = Phase::Downgrades(self.owners.len());
        self.owners.push(Owner::new(session, false));
        self.send(contender, What::CreateReader);
        if let Some(node) = node {
            self.send(contender, What::Exists(node));
        }
    }

    /// Carries out the create of a reader node with the writer's number, unless it was carried out before.
    pub(super) fn create_reader(&mut self, request: &Request) -> Answer {
        let Contender { phase: Phase::Downgrades(owner), node: Some(writer), .. } = self.contenders[request.contender]
        else {
            return Answer::NoNode;
        };
        let is_there = self.world.nodes.iter().any(|node| node.data.owner == owner && node.deleted.is_none());
        if is_there { Answer::Done } else { self.create(owner, Kind::Read, self.world.nodes[writer].data.number) }
    }

    /// Ends a downgrade: the reader's node exists, and the writer's was read after it.
    fn is_downgraded(&mut self, contender: usize, writer_is_there: bool) {
        let Phase::Downgrades(reader) = self.contenders[contender].phase else { return };
        let Some(node) = self.world.nodes.iter().rposition(|node| node.data.owner == reader) else { return };
        let writer = self.contenders[contender].node;
        if let (true, Some(writer)) = (writer_is_there, writer) {
            let owner = self.contenders[contender].owner;
            self.owners[owner].delete = Delete::Outstanding;
            self.leaves(owner);
            let it = &mut self.contenders[contender];
            (it.phase, it.own, it.kind, it.node) = (Phase::Holds, None, Kind::Read, Some(node));
            self.send(contender, What::Delete(writer));
            self.contenders[contender].owner = reader;
        } else {
            // The write lock is lost.
            self.contenders[contender].owner = reader;
            self.give_up(contender);
        }
    }

    pub(super) fn is_called(&mut self, contender: usize, scenario: &Scenario) {
        self.contenders[contender].has_come = true;
        self.decide(contender, Outcome::Plain(Input::OwnChanged, None), scenario)
    }

    pub(super) fn waits_long(&mut self, contender: usize, scenario: &Scenario) {
        self.decide(contender, Outcome::Plain(Input::WaitsLong, None), scenario)
    }

    /// Fails the requests that are outstanding on the lost connection.
    pub(super) fn loses_connection(&mut self, contender: usize) {
        let it = &mut self.contenders[contender];
        let Phase::Asks(ask) = &mut it.phase else { return };
        match ask.what {
            _ if ask.outstanding == 0 => {}
            // The listing after it has failed.
            Asked::Create { is_done: true } => ask.outstanding = 0,
            Asked::Check => self.lists_all(contender),
            // The create is sent again, without a listing.
            Asked::Create { is_done: false } => {
                ask.outstanding = 1;
                it.is_uncertain = true;
                self.send(contender, What::Create);
            }
            // The watch on the node is set, the watch on this contender's node is not.
            Asked::Arm { node: true, list: false, .. } if ask.node.as_ref().is_none_or(Watch::is_set) => {
                it.awaited = ask.node.take();
                it.phase = Phase::Failed;
            }
            _ => it.phase = Phase::Failed,
        }
    }

    /// Takes the reply to a read.
    pub(super) fn served(&mut self, request: Request) {
        let Contender { session, owner, .. } = self.contenders[request.contender];
        let Session { position, epoch, .. } = self.world.sessions[session];
        if owner != request.owner {
            return;
        }
        let is_there = |node: usize| self.world.nodes[node].exists_at(position);
        if let What::ReadNode(node) = request.what {
            if !is_there(node) {
                self.has_gone(request.contender, epoch, node);
            }
        }
        if let What::Exists(node) = request.what {
            return self.is_downgraded(request.contender, self.world.nodes[node].exists_at(position));
        }
        let listed = self.nodes_at(position);
        let found = |node: usize| {
            let node = &self.world.nodes[node];
            let has_signalled = node.written.is_some_and(|written| written <= position);
            node.exists_at(position).then_some(Found { epoch, has_signalled })
        };
        let confirm = |watch: &mut Option<Watch>, found: Option<Found>| match (watch.as_mut(), found) {
            (Some(watch), Some(_)) => watch.found = found,
            _ => *watch = None,
        };
        let confirmed = match request.what {
            What::ReadNode(node) | What::ReadOwn(node) => found(node),
            _ => Some(Found { epoch, has_signalled: false }),
        };
        let (mut others, mut keep) = (Vec::new(), None);
        let it = &mut self.contenders[request.contender];
        let tries = it.tries;
        let Some(ask) = it.ask() else { return };
        ask.outstanding -= 1;
        match request.what {
            What::List => {
                ask.listed = Some(listed);
                if ask.what == Asked::List && ask.node.is_some() {
                    confirm(&mut ask.node, confirmed);
                }
            }
            What::ReadNode(_) => confirm(&mut ask.node, confirmed),
            What::ReadOwn(_) => confirm(&mut ask.own, confirmed),
            What::ReadRecord => confirm(&mut ask.record, confirmed),
            What::FindOwn => {
                // By age.
                others = (0..self.world.nodes.len())
                    .filter(|node| self.world.nodes[*node].data.owner == owner && listed & 1 << node != 0)
                    .collect();
                keep = (!others.is_empty()).then(|| others.remove(0));
                // A first try reads once.
                ask.listed = tries.then(|| others.iter().fold(listed, |left, other| left & !(1 << other)));
                ask.what = Asked::Settle { is_gone: keep.is_none() };
                ask.outstanding = u8::try_from(others.len()).unwrap_or_default();
            }
            _ => {}
        }
        if keep.is_some() {
            it.node = keep;
        }
        for other in others {
            self.send(request.contender, What::DeleteExtra(other));
        }
    }

    /// Takes the reply to a write.
    pub(super) fn written(&mut self, request: Request) {
        let Some((_, answer)) = request.committed else { return };
        let it = &mut self.contenders[request.contender];
        let epoch = self.world.sessions[it.session].epoch;
        if let What::Delete(_) = request.what {
            let delete = if answer == Answer::Done { Delete::Done } else { Delete::Idle };
            self.owners[request.owner].delete = delete;
            if it.owner == request.owner && it.phase == Phase::Leaves {
                self.is_done(request.contender);
            }
            return;
        }
        if it.owner != request.owner {
            return;
        }
        if let What::Wish(_) | What::Withdraw | What::Follow { .. } = request.what {
            return self.has_changed_record(request, answer);
        }
        if let (What::Create, Answer::Created(node)) = (request.what, answer) {
            it.node = Some(node);
        }
        if let (What::Create | What::Barrier | What::DeleteExtra(_), Some(ask)) = (request.what, it.ask()) {
            ask.outstanding -= 1;
            if request.what == What::Create {
                (ask.what, ask.epoch) = (Asked::Create { is_done: true }, epoch);
            }
        }
    }

    /// Wakes the waiters of a notification, after the owner of the node.
    pub(super) fn dispatch(&mut self, session: usize, target: Target, event: Event, scenario: &Scenario) {
        let epoch = self.world.sessions[session].epoch;
        for contender in 0..self.contenders.len() {
            let it = &mut self.contenders[contender];
            if it.session != session {
                continue;
            }
            let is_own = it.node.is_some_and(|node| Target::Node(node) == target);
            if is_own && event == Event::Deleted && it.phase == Phase::Holds {
                it.is_notified = true;
                if scenario.quirk != Some(Quirk::OwnerIsNotMarked) || it.watches_own() {
                    self.is_done(contender);
                    continue;
                }
            }
            if is_own && event == Event::Deleted && it.is_part() {
                self.request_fails(contender, scenario);
                continue;
            }
            for watch in it.watches_mut().filter(|watch| watch.target == target && watch.fired.is_none()) {
                watch.fired = Some((event, epoch));
            }
        }
    }

    /// Handles what a contender has received, until it must wait.
    pub(super) fn run(&mut self, contender: usize, scenario: &Scenario) {
        loop {
            if let Phase::Asks(ask @ Ask { what: Asked::Check, .. }) = &self.contenders[contender].phase {
                return self.has_listed_all(contender, &ask.clone(), scenario);
            }
            if self.follows_wish(contender) {
                return;
            }
            let Some(outcome) = self.outcome(contender, scenario) else { return };
            self.decide(contender, outcome, scenario);
            // Nothing else can happen in between.
            if !matches!(&self.contenders[contender].phase, Phase::Asks(Ask { outstanding: 0, .. })) {
                return;
            }
        }
    }

    fn outcome(&mut self, contender: usize, scenario: &Scenario) -> Option<Outcome> {
        let phase = std::mem::replace(&mut self.contenders[contender].phase, Phase::Failed);
        match phase {
            Phase::Asks(ask) => Some(self.asked(contender, ask, scenario)),
            Phase::Failed => Some(Outcome::Plain(Input::Reconnected, None)),
            Phase::Wait(wait) => {
                let (input, cause) = self.event(contender, wait, scenario)?;
                Some(Outcome::Plain(input, cause))
            }
            Phase::AsksOwner { epoch, wait, owner } => {
                let by = match self.owner_delete(owner) {
                    Delete::Done => DeletedBy::Owner,
                    Delete::Idle | Delete::Outstanding => DeletedBy::Unknown,
                };
                let (input, cause) = self.deleted(contender, wait, epoch, by, scenario);
                Some(Outcome::Plain(input, cause))
            }
            other => {
                self.contenders[contender].phase = other;
                None
            }
        }
    }

    /// Hands over the replies of an action after its last reply.
    fn asked(&mut self, contender: usize, ask: Ask, scenario: &Scenario) -> Outcome {
        let Ask { what, epoch, node, mut own, record, listed, known, sent, .. } = ask;
        let listed = listed.map(|listed| known.map_or(listed, |known| listed & known));
        if self.has_moved(contender, &mut own, scenario) {
            let epoch = self.world.sessions[self.contenders[contender].session].epoch;
            return Outcome::Plain(Input::Created { epoch, certain: true, ahead: None }, None);
        }
        let it = &mut self.contenders[contender];
        if record.is_some() {
            it.record = record;
        }
        match what {
            Asked::Create { .. } => {
                let own = |listed: &Nodes| it.node.is_some_and(|node| listed & 1 << node != 0);
                it.early = listed.filter(own).map(|listed| Prefetched { epoch, listed, sent });
                let certain = !it.is_uncertain || scenario.quirk == Some(Quirk::LostReplyIsCertain);
                let has_listed = it.early.is_some();
                if certain {
                    self.node_is_known(contender);
                }
                let ahead = self.ahead(contender, scenario).filter(|_| !has_listed);
                Outcome::Plain(Input::Created { epoch, certain, ahead }, None)
            }
            Asked::Barrier => Outcome::Plain(Input::Ordered { epoch }, None),
            Asked::Settle { is_gone: true } | Asked::Check => Outcome::Gone,
            Asked::Settle { .. } => {
                it.is_uncertain = false;
                it.early = listed.map(|listed| Prefetched { epoch, listed, sent });
                self.node_is_known(contender);
                let ahead = self.ahead(contender, scenario);
                Outcome::Plain(Input::Adopted { epoch, ahead }, None)
            }
            Asked::List => {
                it.awaited = node;
                let (session, listed) = (it.session, listed.unwrap_or_default());
                if self.company(contender).next().is_some() && known.is_none() {
                    self.newest[session] = Some(Newest { epoch, listed });
                }
                Outcome::Listed(epoch, listed, sent)
            }
            Asked::Behind => match self.ahead(contender, scenario) {
                Some(ahead) => Outcome::Plain(Input::Behind { epoch, ahead }, None),
                None => Outcome::Plain(Input::QueueChanged, None),
            },
            Asked::Arm { node: arms_node, own: arms_own, .. } => {
                if arms_node {
                    it.awaited = node;
                }
                if arms_own {
                    it.own = own;
                }
                let set = |asked: bool, watch: &Option<Watch>| match watch.as_ref().and_then(|watch| watch.found) {
                    _ if !asked => Watched::NotAsked,
                    Some(Found { epoch, has_signalled }) => {
                        let is_seen = has_signalled && scenario.quirk != Some(Quirk::EarlierSignalIsMissed);
                        Watched::Set { epoch, has_signalled: is_seen }
                    }
                    None => Watched::Gone,
                };
                let node = set(arms_node, &it.awaited);
                let own = match set(arms_own, &it.own) {
                    Watched::Gone if scenario.quirk == Some(Quirk::GoneNodeIsArmed) => {
                        Watched::Set { epoch, has_signalled: false }
                    }
                    own => own,
                };
                let is_there = |watch: &&Watch| arms_node && watch.is_set();
                if let Some(Target::Node(found)) = it.awaited.as_ref().filter(is_there).map(|watch| watch.target) {
                    self.finds(contender, Some(found));
                }
                Outcome::Armed { epoch, node, own, listed: listed.map(|listed| (listed, sent)) }
            }
        }
    }

    fn node_is_known(&mut self, contender: usize) {
        let Contender { owner, node, .. } = self.contenders[contender];
        self.owners[owner].node = node;
        self.finds(contender, node);
    }

    /// Records that a node is there. Readers of the session wait for it if it is a writer's.
    fn finds(&mut self, contender: usize, node: Option<usize>) {
        if let Some(node) = node.filter(|node| self.world.nodes[*node].data.kind == Kind::Write) {
            self.writers[self.contenders[contender].session] |= 1 << node;
        }
    }

    /// Returns the first event of a wait, in the runner's order.
    fn event(&mut self, contender: usize, wait: Wait, scenario: &Scenario) -> Option<(Input<'static>, Option<Cause>)> {
        let says_first = self.hears_holder(&wait, scenario);
        let owner = wait.owner.filter(|owner| self.is_owner(*owner, &wait, scenario));
        let it = &mut self.contenders[contender];
        if let Some((event, _)) = it.own.take_if(|own| own.fired.is_some()).and_then(|own| own.fired) {
            return Some((if event == Event::Deleted { Input::OwnDeleted } else { Input::OwnChanged }, None));
        }
        if let Some(epoch) = says_first {
            return Some((Input::HolderIsFirst { epoch }, None));
        }
        let is_ignored = scenario.quirk == Some(Quirk::RecordIsIgnored);
        if it.record.take_if(|record| record.fired.is_some()).is_some() && !is_ignored {
            return Some((Input::QueueChanged, None));
        }
        let awaited = it.awaited.take_if(|watch| watch.fired.is_some());
        let Some(Watch { fired: Some((event, epoch)), found, .. }) = awaited else {
            // Without a watch it is set again; otherwise the limit has changed.
            let is_unwatched = it.awaited.is_none() && wait.node.is_some();
            return Some((if is_unwatched { Input::Unwatched } else { Input::QueueChanged }, None));
        };
        let Some(node) = wait.node else { return Some((Input::QueueChanged, None)) };
        if event == Event::Changed {
            return Some((Input::Written, None));
        }
        self.has_gone(contender, epoch, node);
        let it = &mut self.contenders[contender];
        let set_in = found.map_or(epoch, |found| found.epoch);
        let epoch = if scenario.quirk == Some(Quirk::ReplayIsOfTheOldConnection) { set_in } else { epoch };
        let is_ours = self.owners[self.world.nodes[node].data.owner].session == it.session;
        let by = match owner.map(|owner| (owner, self.owner_delete(owner))) {
            _ if !is_ours => DeletedBy::OtherSession,
            Some((owner, Delete::Outstanding)) if scenario.quirk != Some(Quirk::BegunDeleteIsDone) => {
                self.contenders[contender].phase = Phase::AsksOwner { epoch, wait, owner };
                return None;
            }
            Some((_, Delete::Done | Delete::Outstanding)) => DeletedBy::Owner,
            _ if scenario.quirk == Some(Quirk::UnknownIsOtherSession) => DeletedBy::OtherSession,
            _ => DeletedBy::Unknown,
        };
        Some(self.deleted(contender, wait, epoch, by, scenario))
    }

    /// Returns whether the awaited node is the one that its owner has kept: lost replies leave an owner with several.
    fn is_owner(&self, owner: usize, wait: &Wait, scenario: &Scenario) -> bool {
        self.owners[owner].node == wait.node || scenario.quirk == Some(Quirk::OwnerOfAnyNode)
    }

    fn hears_holder(&self, wait: &Wait, scenario: &Scenario) -> Option<u64> {
        let owner = wait.owner.filter(|owner| wait.hears_holder && self.is_owner(*owner, wait, scenario));
        self.owners[owner?].says_first
    }

    fn deleted(
        &mut self,
        contender: usize,
        wait: Wait,
        epoch: u64,
        by: DeletedBy,
        scenario: &Scenario,
    ) -> (Input<'static>, Option<Cause>) {
        let it = &mut self.contenders[contender];
        let is_current = it.record.as_ref().is_some_and(|record| record.is_set() && record.fired.is_none())
            || it.kind != Kind::Latch
            || scenario.quirk == Some(Quirk::RecordIsIgnored);
        let by = if is_current { by } else { DeletedBy::Unknown };
        match it.own.take_if(|own| own.fired.is_some()) {
            Some(_) => (Input::OwnChanged, None),
            None => (Input::Deleted { epoch: Some(epoch), by }, wait.node.map(Cause::HandOff)),
        }
    }

    /// Passes the result of an action to the planner, and starts the next action.
    fn decide(&mut self, contender: usize, outcome: Outcome, scenario: &Scenario) {
        let limit = self.limits[self.contenders[contender].session];
        let mut plan = std::mem::take(&mut self.contenders[contender].plan);
        let (kind, asks_once) = (self.contenders[contender].kind, self.contenders[contender].asks_once);
        let listed = match &outcome {
            Outcome::Listed(epoch, listed, sent) => Some((*epoch, *listed, *sent)),
            Outcome::Armed { epoch, listed: Some((listed, sent)), .. } => Some((*epoch, *listed, *sent)),
            _ => None,
        };
        if self.contenders[contender].tries {
            return self.decide_first(contender, &outcome, listed, scenario);
        }
        // If no decision used the limit, the next wait sees that it has changed.
        if listed.is_some() || scenario.quirk == Some(Quirk::AnyReplyTakesTheLimit) {
            self.contenders[contender].limit = limit;
        }
        let own = self.contenders[contender].node.map(|node| self.world.nodes[node].data.name()).unwrap_or_default();
        let (action, mut cause) = scenario.with_rules(kind, asks_once, |rules| {
            let queue = listed.map(|(_, listed, _)| self.queue(contender, listed, scenario));
            let listing = listed.zip(queue.as_ref()).map(|((epoch, ..), queue)| Listing {
                epoch,
                queue,
                own: &own,
                max_leases: usize::from(limit),
                may_be_followed: false,
                predecessor_is_ours: self.predecessor_is_ours(contender, queue, &own),
            });
            let (input, cause) = match outcome {
                Outcome::Gone => return (Action::Rejoin, None),
                Outcome::Plain(input, cause) => (input, cause),
                Outcome::Listed(..) => match listing {
                    Some(listing) => (Input::Listed(listing), None),
                    None => return (Action::Rejoin, None),
                },
                Outcome::Armed { node, own, .. } => (Input::Armed(Armed { node, own, listing }), None),
            };
            tell(|| format!("contender {contender}: {input:?}"));
            (plan.next(input, rules), cause)
        });
        if listed.is_some_and(|(_, listed, _)| self.position(contender, listed, scenario) > Some(1)) {
            self.contenders[contender].record = None;
        }
        if let Some((_, _, sent)) = listed {
            cause = Some(Cause::Listed { sent });
        }
        self.contenders[contender].plan = plan;
        self.perform(contender, action, cause, scenario)
    }

    /// Decides on a first try: `first_try.rs` is the runner.
    fn decide_first(
        &mut self,
        contender: usize,
        outcome: &Outcome,
        listed: Option<(u64, Nodes, Position)>,
        scenario: &Scenario,
    ) {
        let Contender { node, limit, .. } = self.contenders[contender];
        let action = match (outcome, listed) {
            (_, Some((epoch, listed, sent))) => {
                let own = node.map(|node| self.world.nodes[node].data.name()).unwrap_or_default();
                let (queue, count) = (self.queue(contender, listed, scenario), listed.count_ones() as usize);
                let limit = usize::from(limit + u8::from(scenario.quirk == Some(Quirk::OneLeaseMore)));
                if are_held(&queue, count, &[&own], limit) {
                    properties::check_grant(self, contender, Some(Cause::Listed { sent }));
                    return self.granted(contender, epoch, false, scenario);
                }
                Action::Rejoin
            }
            (Outcome::Plain(Input::Ordered { .. }, _), _) => Action::Adopt,
            (Outcome::Plain(Input::Created { certain: true, .. } | Input::Adopted { .. }, _), _) => {
                Action::List { watched: false }
            }
            (Outcome::Plain(..), _) if self.contenders[contender].is_uncertain => Action::Barrier,
            (Outcome::Plain(..), _) => Action::List { watched: false },
            _ => Action::Rejoin,
        };
        self.perform(contender, action, None, scenario);
    }

    pub(super) fn queue(&self, contender: usize, listed: Nodes, scenario: &Scenario) -> SortedChildren {
        let Contender { kind, node, asks_once, .. } = self.contenders[contender];
        let own = node.filter(|_| scenario.quirk == Some(Quirk::ListingHasOwn)).map_or(0, |own| 1 << own);
        let is_listed = |node: &usize| (listed | own) & 1 << node != 0;
        let names = (0..self.world.nodes.len()).filter(is_listed).map(|node| self.world.nodes[node].data.name());
        scenario.with_rules(kind, asks_once, |rules| SortedChildren::new(names, kind.lock_name(), rules.driver))
    }

    fn position(&self, contender: usize, listed: Nodes, scenario: &Scenario) -> Option<usize> {
        let own = self.world.nodes[self.contenders[contender].node?].data.name();
        self.queue(contender, listed, scenario).position(&own)
    }

    fn predecessor_is_ours(&self, contender: usize, queue: &SortedChildren, own: &str) -> bool {
        let predecessor = queue.position(own).and_then(|position| queue.get(position.checked_sub(1)?));
        predecessor.is_some_and(|name| self.owner_in_session(contender, self.node(name)).is_some())
    }

    fn owner_in_session(&self, contender: usize, node: usize) -> Option<usize> {
        let owner = self.world.nodes[node].data.owner;
        let Owner { session, is_entered, .. } = self.owners[owner];
        (is_entered && session == self.contenders[contender].session).then_some(owner)
    }

    fn node(&self, name: &str) -> usize {
        self.world.nodes.iter().rposition(|node| node.data.is_named(name)).unwrap_or_default()
    }

    /// Lists the other contenders of the session in the queue, except those with a node that was deleted.
    fn company(&self, contender: usize) -> impl Iterator<Item = &Owner> {
        let Contender { session, kind, .. } = self.contenders[contender];
        let others = self.contenders.iter().enumerate().filter(move |(index, other)| {
            *index != contender && kind.shares() && other.session == session && other.phase != Phase::Idle
        });
        let owners = others.map(|(_, other)| &self.owners[other.owner]);
        owners.filter(|owner| owner.is_entered && owner.delete == Delete::Idle && !owner.is_gone)
    }

    /// Returns the known writers, without the session's own ones that have started to delete their nodes.
    fn known_writers(&self, session: usize) -> Nodes {
        let leaves = |owner: &&Owner| owner.session == session && owner.delete != Delete::Idle;
        let leaving = self.owners.iter().filter(leaves).filter_map(|owner| owner.node);
        leaving.fold(self.writers[session], |known, node| known & !(1 << node))
    }

    /// Returns whether a contender creates its node without a listing.
    fn may_wait(&self, contender: usize) -> bool {
        match self.contenders[contender] {
            Contender { kind: Kind::Read, session, .. } => self.known_writers(session) != 0,
            _ => self.company(contender).next().is_some(),
        }
    }

    /// Returns the contender and those ahead that it waits for, of the newest listing of the session on this connection without what has
    /// gone since. `None` if the contender is not in it.
    fn known_ahead(&self, contender: usize, epoch: u64) -> Option<Nodes> {
        let Contender { session, kind, node, .. } = self.contenders[contender];
        let own = node.filter(|_| kind.shares())?;
        let newest = self.newest[session].filter(|newest| newest.epoch == epoch)?;
        let number = |node: usize| self.world.nodes[node].data.number;
        let waits_for = |node: usize| kind != Kind::Read || self.world.nodes[node].data.kind == Kind::Write;
        let is_listed = |node: usize| newest.listed & 1 << node != 0;
        let is_ahead = |node: &usize| is_listed(*node) && number(*node) < number(own) && waits_for(*node);
        let ahead = (0..self.world.nodes.len()).filter(is_ahead);
        is_listed(own).then(|| ahead.fold(1 << own, |known, node| known | 1 << node))
    }

    /// Records that a node has gone, as a connection has shown.
    fn has_gone(&mut self, contender: usize, epoch: u64, node: usize) {
        let Contender { session, kind, .. } = self.contenders[contender];
        if !kind.shares() {
            return;
        }
        self.writers[session] &= !(1 << node);
        let is_gone = |owner: &&mut Owner| owner.session == session && owner.node == Some(node);
        self.owners.iter_mut().filter(is_gone).for_each(|owner| owner.is_gone = true);
        self.are_not_listed(session, epoch, 1 << node);
    }

    /// Removes nodes that have gone from the session's newest listing, if it is of this connection.
    fn are_not_listed(&mut self, session: usize, epoch: u64, gone: Nodes) {
        if let Some(newest) = self.newest[session].as_mut().filter(|newest| newest.epoch == epoch) {
            newest.listed &= !gone;
        }
    }

    /// Returns the nearest contender ahead that the session knows: its own with one node that is certain, or for a reader
    /// any writer.
    fn ahead(&self, contender: usize, scenario: &Scenario) -> Option<Ahead> {
        let number = |node: usize| self.world.nodes[node].data.number;
        let Contender { session, kind, node, .. } = self.contenders[contender];
        let own = number(node?);
        let is_reader = kind == Kind::Read && scenario.quirk != Some(Quirk::ReaderWaitsForReaders);
        let nearest = if is_reader {
            let known = self.known_writers(session);
            let known = (0..self.world.nodes.len()).filter(|node| known & 1 << node != 0);
            known.filter(|node| number(*node) < own).max_by_key(|node| number(*node))?
        } else {
            let nodes = self.company(contender).filter_map(|owner| owner.node);
            nodes.filter(|node| number(*node) < own).max_by_key(|node| number(*node))?
        };
        let is_next = !is_reader && number(nearest) + 1 == own || scenario.quirk == Some(Quirk::AnyNodeAheadIsNext);
        Some(Ahead { node: self.world.nodes[nearest].data.name().into(), is_next })
    }

    /// Registers a waiter for a node, and reads the node unless the session watches it already.
    fn watch(&mut self, contender: usize, node: usize, read: What) -> (Watch, u8) {
        let target = Target::Node(node);
        let session = self.contenders[contender].session;
        let joined = self.watches(session, target).filter_map(|watch| watch.found).max_by_key(|found| found.epoch);
        if joined.is_none() {
            self.send(contender, read);
        }
        (Watch { found: joined, ..Watch::new(target) }, u8::from(joined.is_none()))
    }

    /// Starts an action.
    fn perform(&mut self, contender: usize, action: Action, cause: Option<Cause>, scenario: &Scenario) {
        let it = &mut self.contenders[contender];
        let Session { epoch, position, .. } = self.world.sessions[it.session];
        let ask = Ask {
            what: Asked::Barrier,
            epoch,
            outstanding: 1,
            node: None,
            own: None,
            record: None,
            listed: None,
            known: None,
            sent: position,
        };
        tell(|| format!("contender {contender}: => {action:?}"));
        let ask = match action {
            Action::Grant { proof, signals } => {
                properties::check_grant(self, contender, cause);
                self.granted(contender, proof.epoch(), signals, scenario);
                return;
            }
            Action::Refuse => {
                self.release(contender);
                return;
            }
            Action::Rejoin => return self.begin_again(contender, scenario),
            Action::Wait(set) => {
                let node = set.node.as_deref().map(|name| self.node(name));
                let owner = node.and(self.contenders[contender].awaited_owner);
                let wait = Wait { node, owner, hears_holder: set.hears_holder };
                self.contenders[contender].phase = Phase::Wait(wait);
                return;
            }
            Action::Create => {
                let prefetches = !it.asks_once && !self.may_wait(contender);
                self.send(contender, What::Create);
                if prefetches {
                    self.send(contender, What::List);
                }
                Ask { what: Asked::Create { is_done: false }, outstanding: 1 + u8::from(prefetches), ..ask }
            }
            Action::Barrier => {
                self.send(contender, What::Barrier);
                ask
            }
            Action::Adopt => {
                let orders = u8::from(!it.tries);
                if !it.tries {
                    self.send(contender, What::Barrier);
                }
                self.send(contender, What::FindOwn);
                Ask { what: Asked::Settle { is_gone: false }, outstanding: 1 + orders, ..ask }
            }
            Action::List { watched } => self.list(contender, watched, ask, scenario),
            Action::Next => self.next_ahead(contender, ask, scenario),
            Action::Arm(arm) => self.arm(contender, arm, ask, scenario),
        };
        self.contenders[contender].phase = Phase::Asks(ask);
    }

    fn next_ahead(&mut self, contender: usize, ask: Ask, scenario: &Scenario) -> Ask {
        if self.ahead(contender, scenario).is_some() {
            return Ask { what: Asked::Behind, outstanding: 0, ..ask };
        }
        let Contender { kind, node, .. } = self.contenders[contender];
        let own = node.map_or(0, |own| 1 << own);
        match self.known_ahead(contender, ask.epoch) {
            Some(known) if known != own => {
                Ask { what: Asked::List, outstanding: 0, listed: Some(known), known: Some(known), ..ask }
            }
            Some(_) if kind != Kind::Write || scenario.quirk == Some(Quirk::WriterReadsItsNode) => {
                self.reads_own(contender, ask)
            }
            None if scenario.quirk == Some(Quirk::NothingKnownIsNothingAhead) => self.reads_own(contender, ask),
            _ => self.list(contender, false, ask, scenario),
        }
    }

    /// Reads the node of a contender that has none ahead.
    fn reads_own(&mut self, contender: usize, ask: Ask) -> Ask {
        self.send(contender, What::List);
        Ask { what: Asked::List, known: self.contenders[contender].node.map(|own| 1 << own), ..ask }
    }

    fn list(&mut self, contender: usize, watched: bool, ask: Ask, scenario: &Scenario) -> Ask {
        let it = &mut self.contenders[contender];
        it.awaited = None;
        let node = watched.then_some(Watch::new(Target::Children));
        let ask = Ask { what: Asked::List, node, ..ask };
        match it.early.take().filter(|early| early.epoch == ask.epoch && !watched) {
            Some(Prefetched { listed, sent, .. }) => Ask { outstanding: 0, listed: Some(listed), sent, ..ask },
            None => {
                let (record, outstanding) = self.request_listing(contender, scenario);
                Ask { outstanding, record, ..ask }
            }
        }
    }

    /// Lists, after a read of the path's data by a candidate.
    fn request_listing(&mut self, contender: usize, scenario: &Scenario) -> (Option<Watch>, u8) {
        if self.contenders[contender].kind != Kind::Latch {
            self.send(contender, What::List);
            return (None, 1);
        }
        let mut reads = [What::ReadRecord, What::List];
        if scenario.quirk == Some(Quirk::RecordIsReadLate) {
            reads.reverse();
        }
        reads.into_iter().for_each(|read| self.send(contender, read));
        (Some(Watch::new(RECORD)), 2)
    }

    fn arm(&mut self, contender: usize, Arm { node, own, list }: Arm, ask: Ask, scenario: &Scenario) -> Ask {
        let own_node = self.contenders[contender].node.filter(|_| own);
        let what = Asked::Arm { node: node.is_some(), own, list };
        let node = node.map(|name| self.node(&name));
        if let Some(node) = node {
            self.contenders[contender].awaited_owner = self.owner_in_session(contender, node);
        }
        let node = node.map(|node| self.watch(contender, node, What::ReadNode(node)));
        let own = own_node.map(|own| self.watch(contender, own, What::ReadOwn(own)));
        let known = if list { self.known_ahead(contender, ask.epoch) } else { None };
        let (record, reads) = if list { self.request_listing(contender, scenario) } else { (None, 0) };
        let outstanding = [&node, &own].into_iter().flatten().map(|(_, reads)| reads).sum::<u8>();
        let [node, own] = [node, own].map(|watch| watch.map(|(watch, _)| watch));
        Ask { what, outstanding: outstanding + reads, node, own, record, known, ..ask }
    }

    fn granted(&mut self, contender: usize, epoch: u64, signals: bool, scenario: &Scenario) {
        let it = &mut self.contenders[contender];
        (it.phase, it.plan, it.early) = (Phase::Holds, Plan::default(), None);
        (it.awaited, it.awaited_owner, it.record, it.has_come) = (None, None, None, false);
        let says = (it.kind == Kind::Mutex).then_some(epoch);
        let number = it.node.map(|node| self.world.nodes[node].data.number);
        if let Some(own) = number.filter(|_| says.is_some()) {
            let numbers = self.world.nodes.iter().map(|node| node.data.number).enumerate();
            let before = numbers.filter(|(_, number)| *number < own).fold(0, |before, (node, _)| before | 1 << node);
            self.are_not_listed(self.contenders[contender].session, epoch, before);
        }
        let it = &mut self.contenders[contender];
        self.owners[it.owner].says_first = self.owners[it.owner].says_first.or(says);
        if let (true, Some(node)) = (signals, self.contenders[contender].node) {
            self.send(contender, What::Signal(node));
        }
        if self.request_of(contender).len() > 1 {
            self.goes_on(contender, scenario);
        } else if self.turn == Some(contender) {
            self.turn = None;
        }
    }
}

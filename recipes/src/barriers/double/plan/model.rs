//! The members of a double barrier around the [world](crate::model): all orders of requests, replies and faults within
//! bounds.
//!
//! The server answers a request when the reply arrives: one that is delayed is one that is executed late. Notifications
//! and replies come in the order of the wire. The model repeats the runner by hand (`attempt.rs`, `enter.rs`,
//! `leave.rs`): a change there must be repeated here.
//!
//! One order is left out, because a double barrier does not survive it. A session ends while it creates the node of a
//! member, and the next session creates the node. Only then the server executes the create of the ended session. That
//! create may delete the node, or come after its deletion. A member that loses its node, or enters again, takes another
//! name. So it has two nodes until the server ends that session too. [`Quirk::CreatesInAnyOrder`] has this order.

use std::collections::HashSet;
use std::mem::take;

use super::entering::Entering;
use super::leaving::Leaving;
use super::{Input, Look, Plan as _, Reading, Ready, Step, Written};
use crate::model::search::{Model, is_found, is_long, nothing_is_found, play, tell};
use crate::model::world::{self, Event, Session, Target};

/// The path of a node.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum Place {
    /// The barrier's own node, which each write of a member raises.
    Barrier,
    Ready,
    /// A member, and the number of its name.
    Member(u8, u8),
}

impl Place {
    fn name(self) -> String {
        let Self::Member(of, number) = self else { panic!("{self:?} has no name") };
        format!("{of}.{number}")
    }

    fn member(self) -> usize {
        let Self::Member(of, _) = self else { panic!("{self:?} is no member") };
        of.into()
    }

    fn next(self) -> Self {
        let Self::Member(of, number) = self else { panic!("{self:?} has no name") };
        Self::Member(of, number + 1)
    }

    fn of(name: &str) -> Self {
        let (of, number) = name.split_once('.').unwrap();
        Self::Member(of.parse().unwrap(), number.parse().unwrap())
    }
}

/// Nodes with the names in their data.
type Node = world::Node<Place, Vec<String>>;
type World = world::World<Place, Vec<String>, Request>;

/// A part of a step.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
enum Request {
    Version,
    /// The names of all children.
    Names,
    Ready(Reading),
    Creation(Place),
    WatchOther(Place),
    /// A write that changes nothing, and a read of the member's node.
    Settle,
    /// The transaction of a step with this own node. [`Step::Arrive`] deletes the node of an earlier session at the last
    /// place.
    Transaction(Step, Place, Option<Place>),
}

impl Request {
    /// Lists the requests of a step.
    fn of(step: &Step, own: Place, earlier: Option<Place>) -> Vec<Self> {
        match step {
            Step::Look(reading) => vec![Self::Version, Self::Names, Self::Ready(*reading)],
            Step::Watch(reading) => vec![Self::Ready(*reading)],
            Step::List => vec![Self::Names],
            Step::ReadCreations(names) => names.iter().map(|name| Self::Creation(Place::of(name))).collect(),
            Step::WatchOther(name) => vec![Self::WatchOther(Place::of(name))],
            Step::Settle => vec![Self::Settle],
            Step::Wait { .. } | Step::Rejoin | Step::Done | Step::Refuse => Vec::new(),
            step => vec![Self::Transaction(step.clone(), own, earlier.filter(|_| *step == Step::Arrive))],
        }
    }

    const fn is_transaction(&self) -> bool {
        matches!(self, Self::Transaction(..))
    }
}

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
enum Plan {
    Entering(Box<Entering>),
    Leaving(Box<Leaving>),
}

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
enum Phase {
    Idle,
    Running(Plan, Step),
    /// Has entered. The transaction of the member's node, and the round as far as the member knows it.
    Inside(i64, Option<i64>),
    Dead,
}

impl Phase {
    const fn is_entering(&self) -> bool {
        matches!(self, Self::Running(Plan::Entering(_), _))
    }

    const fn is_leaving(&self) -> bool {
        matches!(self, Self::Running(Plan::Leaving(_), _))
    }
}

/// The replies to the requests of a step, as far as they are executed.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash)]
struct Partial {
    version: i32,
    names: Vec<String>,
    ready: Option<Ready>,
    creations: Vec<(String, i64)>,
    /// The transaction's id, if that was applied.
    applied: Option<i64>,
    count: usize,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct Member {
    phase: Phase,
    /// The number of times that it may still enter.
    enters: u8,
    session: usize,
    own: Place,
    /// The place at which a node of an earlier session may exist.
    earlier: Option<Place>,
    partial: Partial,
    /// The watch on `ready` in the process: `Some(Some(_))` once it has fired.
    watch: Option<Option<Event>>,
    /// The event that the watch of the outstanding read has received already.
    early: Option<Event>,
    /// The watched member, and whether that watch has fired.
    other: Option<Place>,
    other_has_fired: bool,
    /// The create of the member's node was sent and its reply lost.
    may_stand: bool,
    own_czxid: i64,
    /// The round that the member has entered with a node that exists.
    round: Option<i64>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Move {
    Start(usize),
    Serve(usize),
    Dispatch(usize),
    Wake(usize),
    Grace(usize),
    Leave(usize),
    /// The server executes a transaction of a connection that was lost, perhaps of a session that its client has lost.
    CommitStraggler(usize),
    /// The server ends a session that its client has lost.
    Expire(usize),
    // Faults.
    Budget(usize),
    Lose(usize),
    NewSession(usize),
    Kill(usize),
    Delete(usize),
}

impl Move {
    const fn is_fault(self) -> bool {
        matches!(self, Self::Budget(_) | Self::Lose(_) | Self::NewSession(_) | Self::Kill(_) | Self::Delete(_))
    }
}

/// The bounds of a search.
#[derive(Debug, Clone, Copy)]
struct Bounds {
    members: usize,
    quantity: usize,
    quorum: Option<usize>,
    enters: u8,
    faults: u8,
    /// `ready` exists at the start, without a round.
    is_stale: bool,
    quirk: Option<Quirk>,
}

/// A deliberate break.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Quirk {
    /// A member has another name in each session.
    NewNameInEachSession,
    /// The server executes the creates of a member's sessions in any order.
    CreatesInAnyOrder,
}

impl Bounds {
    fn least(&self) -> usize {
        self.quorum.unwrap_or(self.quantity)
    }
}

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct Barrier {
    world: World,
    members: Vec<Member>,
    faults: u8,
}

impl Barrier {
    fn node(&self, place: Place) -> Option<&Node> {
        self.world.nodes.iter().find(|node| node.path == place)
    }

    fn stands(&self, place: Place) -> bool {
        self.world.at(place).is_some()
    }

    /// Returns whether the node of a member exists, in its session.
    fn own_stands(&self, of: usize) -> bool {
        let Member { own, session, .. } = self.members[of];
        self.node(own).is_some_and(|node| node.session.map(usize::from) == Some(session))
    }

    fn version(&self) -> i32 {
        self.node(Place::Barrier).map_or(0, |barrier| barrier.version.into())
    }

    fn ready(&self) -> Option<Ready> {
        let ready = self.node(Place::Ready)?;
        Some(Ready { czxid: ready.created.into(), version: ready.version.into(), members: ready.data.clone() })
    }

    /// Lists the nodes of members.
    fn standing(&self) -> impl Iterator<Item = (Place, &Node)> {
        let nodes = self.world.nodes.iter().map(|node| (node.path, node));
        nodes.filter(|(place, _)| matches!(place, Place::Member(..)))
    }

    fn names(&self) -> Vec<String> {
        self.standing().map(|(place, _)| place.name()).collect()
    }

    fn session(&mut self, of: usize) -> &mut Session<Place, Request> {
        &mut self.world.sessions[self.members[of].session]
    }

    /// Deletes `ready`. No member of its round may have a node then.
    fn close(&mut self, by: usize) {
        let Some(ready) = self.ready() else { return };
        for (place, node) in self.standing() {
            let is_left = node.session.is_some_and(|session| self.world.sessions[usize::from(session)].is_over);
            let is_of_round = i64::from(node.created) < ready.czxid || ready.members.contains(&place.name());
            assert!(is_left || !is_of_round, "{by} has deleted `ready` beneath {node:?}");
        }
        self.delete(Place::Ready);
    }

    fn delete(&mut self, place: Place) {
        if let Some(node) = self.world.at(place) {
            self.world.delete(node);
        }
    }

    /// Applies the transaction of a member's step in a session. Returns its id, or `None` if a condition did not hold.
    fn commit(&mut self, session: usize, request: &Request, least: usize) -> Option<i64> {
        let Request::Transaction(step, own, earlier) = request else { return None };
        let (ready, own, by) = (self.ready(), *own, own.member());
        self.world.log += 1;
        match step {
            Step::Arrive
                if earlier.is_none_or(|earlier| self.stands(earlier))
                    && (!self.stands(own) || *earlier == Some(own)) =>
            {
                earlier.iter().for_each(|earlier| self.delete(*earlier));
                self.world.create(own, Vec::new(), u8::try_from(session).ok());
            }
            Step::Open { names, version }
                if self.version() == *version
                    && ready.is_none()
                    && names.iter().all(|name| self.stands(Place::of(name))) =>
            {
                // Two nodes of one member count once.
                let standing: HashSet<_> = self.standing().map(|(place, _)| place.member()).collect();
                assert!(standing.len() >= least, "{by} has opened with {:?}", self.world.nodes);
                self.world.create(Place::Ready, names.clone(), None);
            }
            Step::Remove { version, ready: expected }
                if self.version() == *version
                    && ready.as_ref().is_some_and(|found| expected.is_none_or(|version| version == found.version)) =>
            {
                self.close(by);
            }
            Step::Join { beside, ready: expected }
                if self.stands(Place::of(beside))
                    && ready.as_ref().is_some_and(|found| found.version == expected.version) =>
            {
                let names = expected.members.iter().cloned().chain([own.name()]).collect();
                *self.world.write(self.world.at(Place::Ready)?) = names;
            }
            Step::GiveUp { version } if self.version() == *version && self.stands(own) => self.delete(own),
            Step::Depart if self.stands(own) => self.delete(own),
            _ => {
                self.world.log -= 1;
                return None;
            }
        }
        if !matches!(step, Step::Join { .. }) {
            self.world.write(self.world.at(Place::Barrier)?);
        }
        self.world.apply_everywhere();
        Some(self.world.log.into())
    }

    /// Answers the oldest request of a member, after the notifications that precede the reply.
    fn serve(&mut self, of: usize, bounds: &Bounds) {
        while !self.session(of).mail.is_empty() {
            self.dispatch(of);
        }
        let request = self.session(of).requests.remove(0);
        self.execute(of, &request, bounds);
        if self.session(of).requests.is_empty() {
            self.reply(of);
        }
    }

    fn execute(&mut self, of: usize, request: &Request, bounds: &Bounds) {
        let (version, names, ready) = (self.version(), self.names(), self.ready());
        match request {
            Request::Version => self.members[of].partial.version = version,
            Request::Names => (self.members[of].partial.names, self.members[of].partial.ready) = (names, ready),
            Request::Ready(reading) => {
                match (reading, &ready) {
                    (Reading::Existence | Reading::WatchedData, Some(_)) => self.arm(of, Target::Node(Place::Ready)),
                    (Reading::Existence, None) => self.arm(of, Target::Missing(Place::Ready)),
                    // A read of data leaves no watch on a missing node.
                    _ => {}
                }
                self.members[of].partial.ready = ready;
            }
            Request::Creation(place) => {
                let creation = self.node(*place).map(|node| (place.name(), node.created.into()));
                self.members[of].partial.creations.extend(creation);
            }
            Request::WatchOther(place) => {
                let stands = self.stands(*place);
                if stands {
                    self.arm(of, Target::Node(*place));
                }
                self.members[of].other = stands.then_some(*place);
                self.members[of].partial.applied = stands.then_some(0);
            }
            // A write after the loss of a connection ends the writes that were on their way.
            Request::Settle => {
                self.session(of).stragglers.clear();
                let (own, stands) = (self.members[of].own, self.own_stands(of));
                let created = self.node(own).map(|own| own.created.into());
                if created.is_some() && !stands {
                    self.members[of].earlier = Some(own);
                }
                self.members[of].partial.applied = created.filter(|_| stands);
            }
            Request::Transaction(_, own, earlier) => {
                self.session(of).stragglers.clear();
                if let Some(earlier) = earlier.filter(|earlier| !self.stands(*earlier)) {
                    // The server has deleted it, or has not received its create yet.
                    debug_assert!(self.members[of].earlier == Some(earlier));
                    self.members[of].earlier = None;
                    self.session(of).requests.push(Request::Transaction(Step::Arrive, *own, None));
                    return;
                }
                let applied = self.commit(self.members[of].session, request, bounds.least());
                let (count, version) = (self.world.nodes.len() - 1, self.version());
                let partial = &mut self.members[of].partial;
                (partial.applied, partial.count, partial.version) = (applied, count, version);
            }
        }
    }

    /// Returns whether the server may execute the oldest transaction of a session's lost connections.
    fn may_come(&self, session: &Session<Place, Request>, bounds: &Bounds) -> bool {
        match session.stragglers.first() {
            Some(Request::Transaction(Step::Arrive, own, _)) => {
                let member = &self.members[own.member()];
                bounds.quirk.is_some() || (member.own == *own && member.own_czxid == 0)
            }
            first => first.is_some(),
        }
    }

    fn arm(&mut self, of: usize, target: Target<Place>) {
        let armed = &mut self.session(of).armed;
        if !armed.contains(&target) {
            armed.push(target);
        }
    }

    /// Takes the next notification.
    fn dispatch(&mut self, to: usize) {
        let (target, event) = self.session(to).mail.remove(0);
        let member = &mut self.members[to];
        match target {
            Target::Node(Place::Ready) | Target::Missing(Place::Ready) => {
                if let Some(watch) = &mut member.watch {
                    watch.get_or_insert(event);
                }
                member.early.get_or_insert(event);
            }
            _ => member.other_has_fired = member.phase.is_leaving(),
        }
    }

    fn reply(&mut self, to: usize) {
        let member = &mut self.members[to];
        let Partial { version, names, ready, creations, applied, count, .. } = take(&mut member.partial);
        let early = member.early.take();
        let Phase::Running(_, step) = member.phase.clone() else { panic!("{to} awaits nothing") };
        let mut has_fired = false;
        if let Step::Watch(reading) | Step::Look(reading) = step {
            let is_set = reading == Reading::Existence || ready.is_some();
            if reading != Reading::Data {
                member.watch = is_set.then_some(early);
                has_fired = is_set && early.is_some();
            }
        }
        let input = match step {
            Step::Arrive | Step::Settle => match applied {
                Some(czxid) => {
                    (member.own_czxid, member.may_stand, member.earlier) = (czxid, false, None);
                    match step {
                        Step::Settle => Input::Found(czxid),
                        _ => Input::Arrived(Written { zxid: czxid, children: count, version }),
                    }
                }
                None if step == Step::Settle => Input::Missing,
                None => Input::Interrupted { may_stand: true },
            },
            Step::List => Input::Listed(ready.is_none().then_some(names)),
            Step::Watch(_) if has_fired => Input::Fired(ready.map(|ready| ready.czxid)),
            Step::Watch(_) => Input::Watched(ready.map(|ready| ready.czxid)),
            Step::Look(_) if has_fired => Input::Woken,
            Step::Look(Reading::Existence) => {
                let ready = ready.map(|ready| Ready { members: Vec::new(), ..ready });
                Input::Looked(Look { version, names, ready })
            }
            Step::Look(_) => Input::Round(Look { version, names, ready }),
            Step::ReadCreations(_) => Input::Creations(creations),
            Step::Open { .. } => applied.map_or(Input::Refused, Input::Opened),
            Step::Remove { .. } => applied.map_or(Input::Refused, |_| Input::Removed),
            Step::Join { .. } => applied.map_or(Input::Refused, |_| Input::Joined),
            Step::GiveUp { .. } if applied.is_some() => Input::GaveUp,
            Step::GiveUp { version: expected } if expected == version => Input::Gone,
            Step::GiveUp { .. } => Input::Refused,
            // Deleted by another client, or by an earlier request: the former is an error to the caller.
            Step::Depart => applied
                .map_or(Input::DepartedBefore, |zxid| Input::Departed(Written { zxid, children: count + 1, version })),
            Step::WatchOther(_) => {
                member.other_has_fired = false;
                if applied.is_some() { Input::OtherWatched } else { Input::Left }
            }
            other => panic!("{other:?} has no reply"),
        };
        self.next(to, input);
    }

    fn begin(&mut self, of: usize) {
        let member = &mut self.members[of];
        (member.own_czxid, member.may_stand) = (0, false);
        let Phase::Running(Plan::Entering(plan), step) = &mut member.phase else { panic!("it does not enter") };
        *step = plan.begin(&member.own.name());
        self.prepare(of);
    }

    /// Sends the requests of a new step.
    fn prepare(&mut self, of: usize) {
        let member = &mut self.members[of];
        (member.partial, member.early) = (Partial::default(), None);
        let requests = if let Phase::Running(_, step) = &member.phase {
            Request::of(step, member.own, member.earlier)
        } else {
            Vec::new()
        };
        self.session(of).requests = requests;
    }

    fn next(&mut self, of: usize, input: Input) {
        let Phase::Running(mut plan, _) = self.members[of].phase.clone() else { panic!("{of} does nothing") };
        tell(|| format!("{of}: {input:?}"));
        let step = match &mut plan {
            Plan::Entering(plan) => plan.next(input),
            Plan::Leaving(plan) => plan.next(input),
        };
        tell(|| format!("{of}: => {step:?}"));
        let stands = self.own_stands(of);
        self.members[of].phase = match (plan, step) {
            (Plan::Entering(plan), Step::Done) => {
                let own = self.members[of].own_czxid;
                self.members[of].round = None;
                if stands {
                    let ready = self.ready().expect("a member that enters has an open barrier");
                    match plan.round {
                        Some(round) => assert_eq!(round, ready.czxid, "{of} enters another round"),
                        None => assert!(own < ready.czxid, "{of} enters a round before its arrival"),
                    }
                    let is_named = ready.members.contains(&self.members[of].own.name());
                    assert!(own < ready.czxid || is_named, "{of} enters a round without joining");
                    assert!(!plan.opened || ready.members[0] == self.members[of].own.name(), "{of} has not opened");
                    self.members[of].round = Some(ready.czxid);
                }
                Phase::Inside(own, plan.round)
            }
            (Plan::Entering(_), Step::Refuse) => {
                assert!(!stands, "{of} has given up and counts");
                Phase::Idle
            }
            (plan, Step::Rejoin) => {
                self.members[of].phase = Phase::Running(plan, Step::Rejoin);
                self.members[of].own = self.members[of].own.next();
                return self.begin(of);
            }
            (Plan::Leaving(_), step @ (Step::Done | Step::Refuse)) => {
                self.forget_other(of);
                let round = self.members[of].round;
                let is_open = round.is_some() && self.ready().map(|ready| ready.czxid) == round;
                assert!(!is_open || step == Step::Refuse, "{of} has left the open round {round:?}");
                Phase::Idle
            }
            (plan, step) => Phase::Running(plan, step),
        };
        self.prepare(of);
    }

    fn forget_other(&mut self, of: usize) {
        (self.members[of].other, self.members[of].other_has_fired) = (None, false);
        self.session(of).armed.retain(|target| !matches!(target, Target::Node(Place::Member(..))));
    }

    fn wake(&mut self, of: usize) {
        let is_lost = !self.own_stands(of);
        let member = &mut self.members[of];
        let fired = member.watch.take_if(|watch| watch.is_some()).flatten();
        let input = match (fired, member.phase.is_entering()) {
            (Some(Event::Created), true) => Input::Created,
            (Some(Event::Deleted), false) => Input::Deleted,
            (None, true) if is_lost => Input::Gone,
            (None, false) if take(&mut member.other_has_fired) => Input::Left,
            // Without a watch it reads again.
            _ => Input::Woken,
        };
        self.next(of, input);
    }

    /// Loses the connection of a member. The transaction that it has sent may be executed later.
    fn lose(&mut self, of: usize) {
        let member = &self.members[of];
        let Phase::Running(_, step) = member.phase.clone() else { panic!("{of} does nothing") };
        // The client sets its watches again: the server replays what they have missed, and perhaps more of `ready`.
        let ready = if member.phase.is_entering() { Target::Missing } else { Target::Node };
        let ready = (member.watch == Some(None)).then_some(ready(Place::Ready));
        let other = member.other.map(Target::Node);
        let mut replayed = self.world.replayed_at(self.world.log, 0, ready);
        replayed.extend(self.world.replayed_at(self.world.log, self.world.log, other));
        let log = self.world.log;
        let session = self.session(of);
        session.armed = ready.into_iter().chain(other).collect();
        session.reconnect(log, replayed, Request::is_transaction);
        if !matches!(step, Step::Wait { .. }) {
            let member = &mut self.members[of];
            member.may_stand |= step == Step::Arrive;
            let may_stand = member.may_stand;
            self.next(of, Input::Interrupted { may_stand });
        }
    }

    /// Ends the session of a member for its client. The server ends it later, and may execute what was sent until then.
    fn end(&mut self, of: usize) {
        let session = self.session(of);
        session.lose(Request::is_transaction);
        let stragglers = take(&mut session.stragglers);
        *session = Session { is_over: true, stragglers, ..Session::default() };
    }

    fn new_session(&mut self, of: usize, bounds: &Bounds) {
        self.end(of);
        let member = &self.members[of];
        let arrives = matches!(member.phase, Phase::Running(_, Step::Arrive));
        let may_stand = member.may_stand || arrives || member.own_czxid != 0;
        self.members[of].session = self.world.sessions.len();
        self.world.sessions.push(Session { position: self.world.log, ..Session::default() });
        let member = &mut self.members[of];
        (member.watch, member.other, member.other_has_fired) = (None, None, false);
        match &member.phase {
            Phase::Running(Plan::Entering(_), _) => {
                member.earlier = member.earlier.or(may_stand.then_some(member.own));
                if bounds.quirk == Some(Quirk::NewNameInEachSession) {
                    member.own = member.own.next();
                }
                self.begin(of);
            }
            Phase::Running(Plan::Leaving(plan), _) if plan.has_departed => {
                self.next(of, Input::Interrupted { may_stand: false });
            }
            // `leave` fails, and the node goes with its session.
            Phase::Inside(..) | Phase::Running(..) => member.phase = Phase::Idle,
            Phase::Idle | Phase::Dead => {}
        }
    }

    fn moves_of(&self, of: usize, member: &Member, moves: &mut Vec<Move>) {
        if member.phase == Phase::Dead {
            return;
        }
        let session = &self.world.sessions[member.session];
        if !session.mail.is_empty() {
            moves.push(Move::Dispatch(of));
        }
        let is_fired = member.watch.is_none_or(|watch| watch.is_some()) || member.other_has_fired;
        debug_assert!(!member.other_has_fired || member.phase.is_leaving(), "{member:?}");
        match &member.phase {
            Phase::Idle if member.enters > 0 => moves.push(Move::Start(of)),
            Phase::Inside(..) => moves.push(Move::Leave(of)),
            Phase::Running(_, Step::Wait { grace }) => {
                let is_lost = member.phase.is_entering() && !self.own_stands(of);
                if is_fired || is_lost {
                    moves.push(Move::Wake(of));
                } else {
                    if *grace {
                        moves.push(Move::Grace(of));
                    }
                    moves.push(Move::Budget(of));
                }
            }
            Phase::Running(..) => moves.push(Move::Serve(of)),
            _ => {}
        }
        if !matches!(member.phase, Phase::Idle) {
            moves.extend([Move::NewSession(of), Move::Kill(of)]);
        }
        if matches!(member.phase, Phase::Running(..)) {
            moves.push(Move::Lose(of));
        }
        if self.own_stands(of) && member.phase.is_entering() {
            moves.push(Move::Delete(of));
        }
    }
}

impl Model for Barrier {
    type Scenario = Bounds;
    type Step = Move;

    fn new(bounds: &Bounds) -> Self {
        let Bounds { members, enters, faults, is_stale, .. } = *bounds;
        let member = |of: usize| Member {
            phase: Phase::Idle,
            enters,
            session: of,
            own: Place::Member(of as u8, 0),
            earlier: None,
            partial: Partial::default(),
            watch: None,
            early: None,
            other: None,
            other_has_fired: false,
            may_stand: false,
            own_czxid: 0,
            round: None,
        };
        let mut world = World::new(members);
        world.create(Place::Barrier, Vec::new(), None);
        world.log = 1;
        if is_stale {
            world.create(Place::Ready, Vec::new(), None);
        }
        Self { world, members: (0..members).map(member).collect(), faults }
    }

    fn must_happen(step: Move) -> bool {
        // A straggler may be lost as well.
        !step.is_fault() && !matches!(step, Move::CommitStraggler(_))
    }

    fn steps(&self, bounds: &Bounds) -> Vec<Move> {
        let mut moves = Vec::new();
        for (index, session) in self.world.sessions.iter().enumerate() {
            let has_node = |node: &Node| node.session.map(usize::from) == Some(index);
            if self.may_come(session, bounds) {
                moves.push(Move::CommitStraggler(index));
            }
            if session.is_over && self.world.nodes.iter().any(has_node) {
                moves.push(Move::Expire(index));
            }
        }
        for (of, member) in self.members.iter().enumerate() {
            self.moves_of(of, member, &mut moves);
        }
        if self.faults == 0 {
            moves.retain(|next| !next.is_fault());
        }
        moves
    }

    fn take(&mut self, step: Move, bounds: &Bounds) {
        self.faults -= u8::from(step.is_fault());
        match step {
            Move::Start(of) => {
                let plan = Box::new(Entering::new(bounds.quantity, bounds.quorum));
                let member = &mut self.members[of];
                member.enters -= 1;
                (member.watch, member.other_has_fired, member.earlier) = (None, false, None);
                member.own = member.own.next();
                member.phase = Phase::Running(Plan::Entering(plan), Step::Rejoin);
                self.begin(of);
            }
            Move::Serve(of) => self.serve(of, bounds),
            Move::Dispatch(of) => self.dispatch(of),
            Move::Wake(of) => self.wake(of),
            Move::Grace(of) => self.next(of, Input::GraceOver),
            Move::Leave(of) => {
                let member = &mut self.members[of];
                let Phase::Inside(own, round) = member.phase else { panic!("it is not inside") };
                let mut plan = Box::new(Leaving::new(&member.own.name(), own, round));
                let step = plan.begin(&member.own.name());
                (member.watch, member.other_has_fired) = (None, false);
                member.phase = Phase::Running(Plan::Leaving(plan), step);
                self.prepare(of);
            }
            Move::CommitStraggler(session) => {
                let straggler = self.world.sessions[session].stragglers.remove(0);
                self.commit(session, &straggler, bounds.least());
            }
            Move::Expire(session) => {
                self.world.sessions[session].stragglers.clear();
                self.world.end(session);
                self.world.apply_everywhere();
            }
            Move::Budget(of) => self.next(of, Input::BudgetOver),
            Move::Lose(of) => self.lose(of),
            Move::NewSession(of) => self.new_session(of, bounds),
            Move::Kill(of) => {
                self.end(of);
                self.members[of].phase = Phase::Dead;
            }
            Move::Delete(of) => {
                self.world.log += 1;
                self.delete(self.members[of].own);
                self.world.apply_everywhere();
            }
        }
    }

    /// Checks a state in which all that live wait and no fault comes.
    fn check_quiet(&self, bounds: &Bounds) {
        for (of, member) in self.members.iter().enumerate() {
            match &member.phase {
                Phase::Idle | Phase::Dead => {}
                Phase::Running(Plan::Entering(_), step) => {
                    let may_wait = self.ready().is_none() && self.standing().count() < bounds.least();
                    assert!(may_wait, "{of} waits for ever in {step:?}");
                }
                other => panic!("{of} waits for ever in {other:?}"),
            }
        }
    }
}

const TWO: Bounds =
    Bounds { members: 2, quantity: 2, quorum: None, enters: 1, faults: 1, is_stale: false, quirk: None };

#[test]
fn all_orders_of_two_members_and_a_fault() {
    let quorum = Some(1);
    nothing_is_found::<Barrier>([TWO, Bounds { is_stale: true, faults: 0, ..TWO }, Bounds { quorum, ..TWO }]);
    if is_long() {
        nothing_is_found::<Barrier>([
            Bounds { is_stale: true, ..TWO },
            Bounds { faults: 2, ..TWO },
            Bounds { quorum, faults: 2, ..TWO },
            Bounds { members: 3, quantity: 3, faults: 0, ..TWO },
        ]);
    }
}

#[test]
fn all_orders_of_a_late_member() {
    nothing_is_found::<Barrier>([Bounds { quantity: 1, ..TWO }]);
    if is_long() {
        nothing_is_found::<Barrier>([Bounds { quantity: 1, enters: 2, faults: 0, ..TWO }]);
    }
}

/// The quirk is found only if the server executes the create of a session that its client has lost.
#[test]
fn member_that_takes_another_name_in_each_session_is_found() {
    let quirk = Some(Quirk::NewNameInEachSession);
    is_found::<Barrier>(&Bounds { quirk, ..TWO }, "has opened with");
}

/// The order that the other searches leave out.
#[test]
fn late_create_of_an_ended_session_is_found() {
    let quirk = Some(Quirk::CreatesInAnyOrder);
    is_found::<Barrier>(&Bounds { quirk, faults: 2, ..TWO }, "has opened with");
}

#[test]
fn rounds_and_faults_in_random_orders() {
    for (members, quantity, quorum, is_stale) in [
        (2, 2, None, false),
        (3, 3, None, true),
        (3, 2, None, false),
        (3, 1, None, true),
        (3, 3, Some(1), false),
        (3, 3, Some(2), false),
        (4, 3, Some(1), true),
    ] {
        for faults in [0, 2, 6] {
            play::<Barrier>(
                &Bounds { members, quantity, quorum, enters: 3, faults, is_stale, quirk: None },
                0..if is_long() { 10_000 } else { 200 },
            );
        }
    }
}

/// Without the version of the barrier in [`Step::Open`], a member that came after the opener's read left the open round
/// here.
#[test]
fn member_that_comes_while_the_barrier_opens_leaves_with_the_others() {
    let quorum = Some(1);
    play::<Barrier>(
        &Bounds { members: 3, quantity: 3, quorum, enters: 3, faults: 0, is_stale: false, quirk: None },
        0..2_000,
    );
}

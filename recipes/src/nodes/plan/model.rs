//! The task that keeps a node, around the [world](crate::model): all orders of requests, notifications and faults within
//! bounds.
//!
//! The server answers a request when the reply arrives: one that is delayed is one that is executed late. A reply may
//! overtake notifications. The model repeats the runner by hand (`keeper/task.rs`, `keeper/requests.rs`): a change there must be repeated here.
//! A node of the other client never has the version of a node of ours. On a server it may, and a condition names the
//! version alone: the plan cannot close the race between a read and a delete.

use std::mem::replace;

use super::verdict::Known;
use super::{Failure, Input, NodePlan, Now, Pause, State, Step};
use crate::model::search::{self, Model, is_long, tell};
use crate::model::world::{self, Event, Target};

/// The session of the other client, by its index and its number.
const OTHER: (u8, i64) = (8, 9);
/// The data that the other client writes.
const FOREIGN: u8 = 99;

/// A generation and its data.
type Wanted = (u64, u8);

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Move {
    /// The server answers the outstanding request.
    Serve,
    /// The client gets the oldest notification.
    Dispatch,
    /// A wait ends; with `true` by the rarer of two causes.
    Wake(bool),
    /// The server executes a write of a lost connection.
    CommitStraggler,
    /// The server ends the session that the client has lost.
    Expire,
    Stop,
    Set,
    // Faults: a permanent error; a lost connection, with `true` if its request may be applied; the end of the session.
    Refuse,
    Lose(bool),
    NewSession,
    // The other client.
    Create,
    Write,
    Delete,
}

/// A node's data, and whether our client has created it, in any session.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
struct Content {
    data: u8,
    is_ours: bool,
}

type Node = world::Node<(), Content>;

/// A request, with the data and the session at the time when it was sent.
type Request = (Step, u8, i64);

#[derive(Debug, Clone, Copy)]
struct Bounds {
    is_ephemeral: bool,
    mends: bool,
    /// The numbers of new data, of faults and of steps of the other client.
    counts: [u8; 3],
}

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct Keeper {
    world: world::World<(), Content, Request>,
    plan: NodePlan,
    is_ephemeral: bool,
    /// The session of the client, and of the newest attempt.
    session: i64,
    attempt: i64,
    wanted: Wanted,
    seen: u64,
    taken: Wanted,
    accepted: u8,
    is_stopped: bool,
    /// The watch in the process, with the event that has fired it.
    watch: Option<Option<Input>>,
    /// The nodes at the path since the outstanding request was sent.
    since: Vec<i64>,
    sets: u8,
    faults: u8,
    foreign: u8,
}

fn is_write((step, ..): &Request) -> bool {
    !matches!(step, Step::Look | Step::Read(_) | Step::Check)
}

/// A node of ours has version 0 until it is written. All other versions are different.
fn known(node: &Node) -> Known {
    let mzxid = i64::from(node.written.unwrap_or(node.created));
    let version = if node.data.is_ours && node.written.is_none() { 0 } else { i32::try_from(mzxid).unwrap() };
    let session = node.session.map_or(0, |session| i64::from(session) + 1);
    Known { czxid: i64::from(node.created), session, version, mzxid, adopted: false }
}

impl Keeper {
    fn is_wait(&self) -> bool {
        matches!(self.plan.step, Step::Connect | Step::AwaitDeletion | Step::Pause(_) | Step::Wait)
    }

    /// Returns `true` if a request is outstanding.
    fn asks(&self) -> bool {
        !self.is_wait() && self.plan.step != Step::End
    }

    fn session_mut(&mut self) -> &mut world::Session<(), Request> {
        &mut self.world.sessions[usize::from(self.session == 2)]
    }

    fn node(&self) -> Option<&Node> {
        self.world.nodes.first()
    }

    fn czxid(&self) -> Option<i64> {
        self.node().map(|node| node.created.into())
    }

    fn is_ours(&self) -> bool {
        self.node().is_some_and(|node| node.data.is_ours)
    }

    /// Ends a transaction.
    fn is_committed(&mut self) {
        self.world.apply_everywhere();
        self.since.extend(self.czxid());
    }

    /// Creates the node, or changes its data, in the newest transaction.
    fn write(&mut self, session: i64, data: u8) {
        match self.world.at(()) {
            Some(node) => self.world.write(node).data = data,
            None => {
                let session = u8::try_from(session - 1).ok();
                self.world.create((), Content { data, is_ours: data != FOREIGN }, session);
            }
        }
    }

    fn delete_ours(&mut self) {
        // A node of a mode that is not ephemeral is adopted.
        assert!(self.is_ours() || !self.is_ephemeral, "a node of the other client is deleted");
        self.world.delete(0);
    }

    /// Executes a request of our client, and returns its reply.
    fn execute(&mut self, request: &Request) -> Input {
        let (step, data, session) = request;
        let owner = if self.is_ephemeral { *session } else { 0 };
        let found = self.node().map(known);
        match (step, found) {
            (Step::Create, None) => {}
            (Step::Create | Step::Look | Step::Check, found) => return Input::Found(found),
            (_, None) => return Input::Gone,
            (Step::Read(_), Some(found)) => {
                return Input::Data { found, foreign: self.node().map(|node| vec![node.data.data]) };
            }
            (
                Step::Write { version } | Step::Delete { version } | Step::Replace(Known { version, .. }),
                Some(found),
            ) if *version != found.version => return Input::Conflict,
            _ => {}
        }
        self.world.log += 1;
        if matches!(step, Step::Delete { .. } | Step::Replace(_)) {
            self.delete_ours();
        }
        if !matches!(step, Step::Delete { .. }) {
            self.write(owner, *data);
        }
        self.is_committed();
        match (step, self.node().map(known)) {
            (Step::Create, Some(made)) => Input::Created { made, found: Some(made) },
            (Step::Write { .. }, Some(written)) => Input::Written(written),
            (Step::Replace(_), _) => Input::Replaced,
            _ => Input::Done,
        }
    }

    /// Returns `true` if the reply to the outstanding request comes with a watch.
    fn sets_watch(&self, reply: &Input) -> bool {
        matches!(self.plan.step, Step::Create | Step::Look) || matches!(reply, Input::Data { .. })
    }

    fn take_data(&mut self) {
        (self.taken, self.seen) = (self.wanted, self.wanted.0);
    }

    fn serve(&mut self) {
        if self.attempt != self.session {
            return self.next(Input::Failed { failure: Failure::Passing, may_be_applied: true });
        }
        let request = self.session_mut().requests.remove(0);
        if is_write(&request) {
            // It ends the requests of earlier connections.
            self.world.sessions.iter_mut().for_each(|session| session.stragglers.clear());
        }
        let mut input = self.execute(&request);
        if self.sets_watch(&input) {
            self.watch = Some(None);
            let target = if self.node().is_some() { Target::Node(()) } else { Target::Missing(()) };
            self.session_mut().armed = vec![target];
        }
        if let Input::Data { foreign, .. } = &mut input {
            self.take_data();
            foreign.take_if(|data| data[0] == self.taken.1);
        }
        self.next(input);
    }

    fn dispatch(&mut self) {
        let (_, event) = self.session_mut().mail.remove(0);
        let input = if event == Event::Deleted { Input::Deleted } else { Input::Changed };
        // It may be about an earlier node than this watch.
        self.watch = self.watch.take().map(|watch| watch.or(Some(input)));
    }

    fn wake(&mut self, is_rare: bool) {
        let input = match self.plan.step {
            _ if self.is_stopped => Input::Stopped,
            Step::Connect if is_rare => Input::SessionEnded,
            Step::Connect => {
                self.take_data();
                Input::Connected { is_new: replace(&mut self.attempt, self.session) != self.session }
            }
            Step::Pause(_) if !is_rare => Input::Done,
            Step::AwaitDeletion => self.watch.take_if(|watch| watch.is_some()).flatten().unwrap_or(Input::Done),
            _ => self.watch.take_if(|watch| watch.is_some()).flatten().unwrap_or(Input::NewData),
        };
        if input == Input::NewData {
            self.seen = self.wanted.0;
        }
        self.next(input);
    }

    fn next(&mut self, input: Input) {
        let before = self.plan.state.clone();
        let session = (self.attempt != 0).then_some(self.attempt);
        let step = self.plan.next(Now { session, wanted: self.wanted.0, taken: self.taken.0 }, input.clone());
        tell(|| format!("{input:?} => {step:?}"));
        if self.plan.confirmed() == Some(self.taken.0) {
            self.accepted = self.taken.1;
        }
        if self.plan.state != before {
            self.check_published(&input);
        }
        match self.plan.step {
            Step::Touch => self.next(Input::Done),
            Step::Claim(_) => self.next(Input::Claimed(true)),
            Step::TakeBack => {
                if self.wanted.0 == self.taken.0 {
                    self.wanted.1 = self.accepted;
                }
                self.next(Input::Done);
            }
            Step::Create | Step::Write { .. } | Step::Replace(_) => self.take_data(),
            _ => {}
        }
        self.session_mut().requests.clear();
        if self.asks() {
            self.since = self.czxid().into_iter().collect();
            if self.attempt == self.session {
                let request = (self.plan.step.clone(), self.taken.1, self.attempt);
                self.session_mut().requests.push(request);
            }
        }
    }

    /// Checks that a new state was true at a moment since its cause.
    fn check_published(&self, input: &Input) {
        let has_been = |czxid: i64| self.since.contains(&czxid);
        match &self.plan.state {
            State::Standing(node) => {
                let session = node.session.map_or(0, curator_framework::SessionId::get);
                assert!(!self.is_ephemeral || session == self.attempt, "a node of another session stands");
                assert!(has_been(node.czxid.get()), "a node stands that does not exist");
            }
            State::Taken(other) => {
                assert!(other.session == OTHER.1, "our node has taken the path: {other:?}");
                assert!(has_been(other.czxid), "a node has the path that does not exist");
            }
            State::Creating => {
                let is_of_session = |node: &Node| !self.is_ephemeral || known(node).session == self.session;
                let stands = self.is_known() && self.node().is_some_and(is_of_session) && self.attempt == self.session;
                assert!(!stands || *input == Input::Deleted, "{input:?} ends a node that exists");
            }
            _ => {}
        }
    }

    fn is_known(&self) -> bool {
        self.czxid() == self.plan.known.map(|known| known.czxid)
    }

    /// Takes the step of another than the task.
    fn happens(&mut self, next: Move) {
        match next {
            Move::CommitStraggler => {
                let session = usize::from(self.world.sessions[0].stragglers.is_empty());
                let request = self.world.sessions[session].stragglers.remove(0);
                self.execute(&request);
            }
            Move::Expire => {
                self.world.sessions[0].stragglers.clear();
                self.world.end(0);
                self.is_committed();
            }
            Move::Set => {
                self.sets -= 1;
                self.wanted = (self.wanted.0 + 1, self.wanted.1 + 1);
            }
            Move::Stop => self.is_stopped = true,
            Move::NewSession => {
                let ended = self.session_mut();
                (ended.armed, ended.mail) = (Vec::new(), Vec::new());
                ended.lose(is_write);
                self.session = 2;
                self.watch = self.watch.take().map(|_| Some(Input::SessionEnded));
            }
            Move::Create | Move::Write | Move::Delete => {
                self.foreign -= 1;
                self.world.log += 1;
                match next {
                    Move::Delete => self.world.delete(0),
                    _ => self.write(if self.is_ephemeral { OTHER.1 } else { 0 }, FOREIGN),
                }
                self.is_committed();
            }
            _ => {}
        }
    }

    /// Checks that the task knows what it leaves: at its end, and if it is dropped, the client deletes that.
    fn check_remains(&self) {
        if self.is_ephemeral && self.attempt != self.session {
            return;
        }
        let remains = self.plan.remains();
        let is_left = self.node().is_some_and(|node| known(node).session == 1 && self.attempt == 2);
        if self.is_ours() && !is_left {
            let is_found = remains.is_some_and(|known| known.is_none() || self.is_known());
            assert!(is_found, "the task does not know its node: {remains:?}");
        }
        // Each may have been executed, with its reply on the way.
        let open = self.world.sessions.iter().flat_map(|session| session.stragglers.iter().chain(&session.requests));
        let creates =
            |(step, _, session): &Request| matches!(step, Step::Create | Step::Replace(_)) && *session == self.attempt;
        let is_forgotten = open.into_iter().any(creates) && remains != Some(None);
        assert!(!is_forgotten, "the task has forgotten a create: {remains:?}");
    }
}

impl Model for Keeper {
    type Scenario = Bounds;
    type Step = Move;

    #[rustfmt::skip]
    fn new(bounds: &Bounds) -> Self {
        let Bounds { is_ephemeral, mends, counts: [sets, faults, foreign] } = *bounds;
        Self {
            world: world::World::new(2), plan: NodePlan::new(Some(String::new()), is_ephemeral, mends, false),
            is_ephemeral, session: 1, attempt: 0, wanted: (1, 1), seen: 0, taken: (0, 0), accepted: 1,
            is_stopped: false, watch: None, since: Vec::new(), sets, faults, foreign,
        }
    }

    fn must_happen(step: Move) -> bool {
        matches!(step, Move::Serve | Move::Dispatch | Move::Wake(_) | Move::Expire)
    }

    fn steps(&self, _: &Bounds) -> Vec<Move> {
        let has_fired = self.watch.as_ref().is_some_and(Option::is_some);
        let is_late = self.is_ephemeral && self.plan.stands() && self.attempt != self.session;
        let is_refused = matches!(self.plan.state, State::Refused(_));
        let is_left = self.session == 2 && self.node().is_some_and(|node| known(node).session == 1);
        let is_due = match self.plan.step {
            _ if self.is_wait() && self.is_stopped => true,
            Step::Wait => has_fired || self.seen != self.wanted.0,
            _ => self.is_wait(),
        };
        let is_rare = match self.plan.step {
            Step::Connect => is_late,
            Step::Pause(Pause::Failure) => is_refused && self.watch == Some(Some(Input::Deleted)),
            _ => false,
        };
        let may_fail = self.faults > 0 && self.attempt == self.session;
        let is_refusable = !matches!(self.plan.step, Step::Write { .. }) || self.is_known();
        let (exists, is_foreign) = (self.node().is_some(), self.foreign > 0);
        let all = [
            (Move::Serve, self.asks()),
            (Move::Dispatch, self.world.sessions.iter().any(|session| !session.mail.is_empty())),
            (Move::Wake(false), is_due),
            (Move::Wake(true), is_rare),
            (Move::CommitStraggler, self.world.sessions.iter().any(|session| !session.stragglers.is_empty())),
            (Move::Expire, is_left),
            (Move::Stop, !self.is_stopped),
            (Move::Set, !self.is_stopped && self.sets > 0),
            (Move::NewSession, self.faults > 0 && self.session == 1),
            (Move::Lose(false), may_fail && self.asks()),
            (Move::Lose(true), may_fail && self.asks()),
            (Move::Refuse, may_fail && self.asks() && is_refusable),
            (Move::Create, is_foreign && !exists),
            (Move::Write, is_foreign && exists),
            (Move::Delete, is_foreign && exists),
        ];
        all.into_iter().filter(|(_, may)| *may).map(|(next, _)| next).collect()
    }

    fn take(&mut self, step: Move, _: &Bounds) {
        self.faults -= u8::from(matches!(step, Move::Refuse | Move::Lose(_) | Move::NewSession));
        match step {
            Move::Serve => self.serve(),
            Move::Dispatch => self.dispatch(),
            Move::Wake(is_rare) => self.wake(is_rare),
            Move::Refuse => self.next(Input::Failed { failure: Failure::Permanent, may_be_applied: false }),
            Move::Lose(may_be_applied) => {
                self.session_mut().lose(|request| may_be_applied && is_write(request));
                self.next(Input::Failed { failure: Failure::Passing, may_be_applied });
            }
            other => self.happens(other),
        }
        self.check_remains();
    }

    fn check_quiet(&self, _: &Bounds) {
        match (&self.plan.step, &self.plan.state) {
            // The client deletes in the background what the task knows to be left.
            (Step::End, _) => {}
            (Step::Wait, State::Standing(standing)) => {
                let node = self.node().expect("a node that stands exists");
                assert_eq!(i64::from(node.created), standing.czxid.get(), "another node stands");
                let data = node.data.data;
                let is_known = standing.foreign_data.as_ref().is_some_and(|foreign| foreign[0] == data);
                assert!(data == self.wanted.1 || is_known, "the node has other data: {data}");
                let is_refused = self.plan.refused == self.wanted.0;
                assert!(data == self.wanted.1 || !self.plan.mends || is_refused, "foreign data is left");
            }
            (Step::Wait, State::Taken(other)) => assert_eq!(self.czxid(), Some(other.czxid)),
            (step, state) => panic!("it waits forever in {step:?}, {state:?}"),
        }
    }
}

/// Searches within these bounds, and with `CURATOR_MODEL=long` within the larger ones.
fn search_all(is_ephemeral: bool, mends: bool, bounds: &[[u8; 3]], larger: [u8; 3]) {
    let counts = bounds.iter().copied().chain(is_long().then_some(larger));
    search::nothing_is_found::<Keeper>(counts.map(|counts| Bounds { is_ephemeral, mends, counts }));
}

#[test]
fn all_orders_of_an_ephemeral_node() {
    search_all(true, false, &[[1, 1, 1], [0, 2, 1], [0, 1, 2]], [1, 2, 2]);
}

#[test]
fn all_orders_of_a_node_that_is_not_ephemeral() {
    search_all(false, false, &[[1, 1, 1], [0, 1, 2]], [1, 2, 2]);
}

#[test]
fn all_orders_of_a_node_that_replaces_foreign_data() {
    search_all(true, true, &[[1, 1, 1], [0, 0, 3]], [1, 2, 2]);
}

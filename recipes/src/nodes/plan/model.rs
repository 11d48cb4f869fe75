//! The plan of one node against a model of a server: all orders of requests, replies, notifications and faults within
//! bounds.
//!
//! The model repeats the runner by hand (`keeper/task.rs`, `keeper/requests.rs`): a change there must be repeated here.
//! A node of another client never has the version of a node of ours. On a server it may, and a condition names the
//! version alone: the time between a read and a delete is a race that the plan cannot close.

use std::collections::{HashSet, VecDeque};
use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::mem::take;
use std::rc::Rc;

use super::verdict::Known;
use super::{Failure, Input, NodePlan, Now, Pause, State, Step};

/// The session of the other client.
const OTHER: i64 = 9;
/// The data that the other client writes.
const FOREIGN: u8 = 99;

/// The data of a generation, or the data that takes its place when the server has refused it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
struct Wanted {
    generation: u64,
    data: u8,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
enum Message {
    Reply(Input),
    Notification(Input),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Move {
    /// The server executes the outstanding request.
    Execute,
    /// The client gets the first message; with `true` the first reply, although a notification is ahead of it.
    Deliver(bool),
    /// A wait ends.
    Wake(bool),
    /// The server executes a request of a lost connection.
    Ghost,
    /// The server ends the session that the client has lost.
    Expire,
    /// The client deletes in the background what the task has left.
    CleanUp,
    // These do not come by themselves.
    Set,
    Stop,
    Refuse,
    Lose(bool),
    NewSession,
    Create,
    Write,
    Delete,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct World {
    plan: NodePlan,
    step: Step,
    is_ephemeral: bool,
    /// The session of the client, and of the newest attempt.
    session: i64,
    attempt: i64,
    wanted: Wanted,
    seen: u64,
    taken: Wanted,
    accepted: Option<u8>,
    is_stopped: bool,
    is_clean: bool,
    /// The watch in the process, with the event that has fired it.
    watch: Option<Option<Input>>,
    is_sent: bool,
    inbox: VecDeque<Message>,
    ghost: Option<(Step, Wanted, i64)>,
    /// The watch on the server.
    is_armed: bool,
    zxid: i64,
    node: Option<(Known, u8)>,
    /// The nodes at the path since the outstanding request was sent.
    since: Vec<i64>,
    sets: u8,
    faults: u8,
    foreign: u8,
}

impl World {
    fn new(is_ephemeral: bool, mends: bool, sets: u8, faults: u8, foreign: u8) -> Self {
        let wanted = Wanted { generation: 1, data: 1 };
        let plan = NodePlan::new(Some(String::new()), is_ephemeral, mends, false);
        let (session, attempt, seen, zxid) = (1, 0, 0, 10);
        let (is_stopped, is_clean, is_sent, is_armed) = (false, false, false, false);
        let (watch, ghost, node, accepted) = (None, None, None, None);
        let (step, taken, inbox, since) = (Step::Connect, wanted, VecDeque::new(), Vec::new());
        #[rustfmt::skip]
        let world = Self { plan, step, is_ephemeral, session, attempt, wanted, seen, taken, accepted, is_stopped, is_clean,
            watch, is_sent, inbox, ghost, is_armed, zxid, node, since, sets, faults, foreign };
        world
    }

    fn is_wait(&self) -> bool {
        matches!(self.step, Step::Connect | Step::AwaitDeletion | Step::Pause(_) | Step::Wait)
    }

    /// Returns `true` if our client has created the node, in any session.
    fn is_ours(&self) -> bool {
        self.node.is_some_and(|(node, _)| node.czxid % 2 == 0)
    }

    fn fire(&mut self, event: Input) {
        self.since.extend(self.node.map(|(node, _)| node.czxid));
        if take(&mut self.is_armed) {
            self.inbox.push_back(Message::Notification(event));
        }
    }

    /// Creates a node. Ours has an even transaction.
    fn make(&mut self, session: i64, data: u8) -> Known {
        self.zxid = (self.zxid / 2 + 1) * 2 + i64::from(data == FOREIGN);
        let version = if data == FOREIGN { i32::try_from(self.zxid).unwrap() } else { 0 };
        let node = Known { czxid: self.zxid, session, version, mzxid: self.zxid, adopted: false };
        self.node = Some((node, data));
        self.fire(Input::Changed);
        node
    }

    fn change(&mut self, data: u8) -> Known {
        self.zxid = (self.zxid / 2 + 1) * 2;
        let (mut node, _) = self.node.unwrap();
        (node.version, node.mzxid) = (i32::try_from(self.zxid).unwrap(), self.zxid);
        self.node = Some((node, data));
        self.fire(Input::Changed);
        node
    }

    fn delete(&mut self) {
        self.node = None;
        self.fire(Input::Deleted);
    }

    fn delete_ours(&mut self) {
        // A node of a mode that is not ephemeral is adopted.
        assert!(self.is_ours() || !self.is_ephemeral, "a node of the other client is deleted");
        self.delete();
    }

    /// Executes a request of our client, and returns its reply.
    fn execute(&mut self, step: &Step, Wanted { data, .. }: Wanted, session: i64) -> Input {
        let found = self.node.map(|(node, _)| node);
        let owner = if self.is_ephemeral { session } else { 0 };
        if matches!(step, Step::Create | Step::Write { .. } | Step::Replace(_) | Step::Delete { .. }) {
            // A write ends the requests of earlier connections.
            self.ghost = None;
        }
        match (step, found) {
            (Step::Create, None) => {
                let made = self.make(owner, data);
                Input::Created { made, found: Some(made) }
            }
            (Step::Create | Step::Look | Step::Check, found) => Input::Found(found),
            (_, None) => Input::Gone,
            (Step::Read(_), Some(found)) => Input::Data { found, foreign: self.node.map(|(_, data)| vec![data]) },
            (Step::Write { version } | Step::Delete { version }, Some(found)) if *version != found.version => {
                Input::Conflict
            }
            (Step::Write { .. }, _) => Input::Written(self.change(data)),
            (Step::Replace(dying), Some(found)) if dying.version != found.version => Input::Conflict,
            (Step::Replace(_), _) => {
                self.delete_ours();
                self.make(owner, data);
                Input::Replaced
            }
            (Step::Delete { .. }, _) => {
                self.delete_ours();
                Input::Done
            }
            other => panic!("{other:?} is not a request"),
        }
    }

    /// Returns `true` if the reply to the outstanding request comes with a watch.
    fn sets_watch(&self, reply: &Input) -> bool {
        matches!(self.step, Step::Create | Step::Look) || matches!(reply, Input::Data { .. })
    }

    fn deliver(&mut self, message: Message) {
        match message {
            Message::Notification(event) => {
                if let Some(watch) = &mut self.watch {
                    watch.get_or_insert(event);
                }
            }
            Message::Reply(mut reply) => {
                if self.sets_watch(&reply) {
                    self.watch = Some((self.attempt != self.session).then_some(Input::SessionEnded));
                }
                if let Input::Data { foreign, .. } = &mut reply {
                    self.take();
                    foreign.take_if(|data| data[0] == self.taken.data);
                }
                self.next(reply);
            }
        }
    }

    fn take(&mut self) {
        (self.taken, self.seen) = (self.wanted, self.wanted.generation);
    }

    /// Ends a wait. `is_late` if the client notices the end of its session before it has the next one.
    fn wake(&mut self, is_late: bool) {
        let input = match self.step {
            _ if self.is_stopped => Input::Stopped,
            Step::Connect if is_late => Input::SessionEnded,
            Step::Connect => {
                self.take();
                let is_new = std::mem::replace(&mut self.attempt, self.session) != self.session;
                Input::Connected { is_new }
            }
            Step::Wait | Step::AwaitDeletion if self.watch.as_ref().is_some_and(Option::is_some) => {
                self.watch.take().flatten().unwrap()
            }
            Step::Wait => {
                self.seen = self.wanted.generation;
                Input::NewData
            }
            Step::Pause(Pause::Failure) if is_late => {
                self.watch = None;
                Input::Deleted
            }
            _ => Input::Done,
        };
        self.next(input);
    }

    fn next(&mut self, input: Input) {
        let before = self.plan.state().clone();
        let session = Some(self.attempt).filter(|session| *session != 0);
        let now = Now { session, wanted: self.wanted.generation, taken: self.taken.generation };
        self.step = self.plan.next(now, input.clone());
        self.is_sent = false;
        if self.plan.confirmed() == Some(self.taken.generation) {
            self.accepted = Some(self.taken.data);
        }
        if *self.plan.state() != before {
            self.check_published(&before, &input);
        }
        match self.step {
            Step::Touch => self.next(Input::Done),
            Step::Claim(_) => self.next(Input::Claimed(true)),
            Step::TakeBack => {
                if self.wanted.generation == self.taken.generation {
                    self.wanted.data = self.accepted.unwrap_or(self.wanted.data);
                }
                self.next(Input::Done);
            }
            Step::Create | Step::Write { .. } | Step::Replace(_) => self.take(),
            _ => {}
        }
        if !self.is_wait() {
            self.since = self.node.iter().map(|(node, _)| node.czxid).collect();
        }
    }

    /// Checks that a new state was true at a moment since its cause.
    fn check_published(&self, before: &State, input: &Input) {
        let has_been = |czxid: i64| self.since.contains(&czxid);
        match (self.plan.state(), before) {
            (State::Standing(node), _) => {
                let session = node.session.map_or(0, curator_framework::SessionId::get);
                assert!(!self.is_ephemeral || session == self.attempt, "a node of another session stands");
                assert!(has_been(node.czxid.get()), "a node stands that does not exist");
            }
            (State::Taken(other), _) => {
                assert!(other.session == OTHER, "our node has taken the path: {other:?}");
                assert!(has_been(other.czxid), "a node has the path that does not exist");
            }
            (State::Creating, State::Standing(node) | State::Refused(node)) => {
                let exists = self.node.is_some_and(|(found, _)| found.czxid == node.czxid.get());
                let is_cause = *input == Input::Deleted || self.attempt != self.session || self.is_ephemeral;
                assert!(!exists || is_cause, "{input:?} ends a node that exists");
            }
            _ => {}
        }
    }

    fn lose(&mut self, haunts: bool) {
        let is_executed = self.is_sent;
        if haunts && !is_executed {
            self.ghost = Some((self.step.clone(), self.taken, self.attempt));
        }
        self.inbox.retain(|message| matches!(message, Message::Notification(_)));
        self.next(Input::Failed { failure: Failure::Passing, may_be_applied: is_executed || haunts });
    }

    fn apply(&mut self, next: Move) {
        match next {
            Move::Execute if self.attempt != self.session => {
                self.next(Input::Failed { failure: Failure::Passing, may_be_applied: true });
            }
            Move::Execute => {
                let reply = self.execute(&self.step.clone(), self.taken, self.attempt);
                self.is_sent = true;
                self.is_armed |= self.sets_watch(&reply);
                self.inbox.push_back(Message::Reply(reply));
            }
            Move::Deliver(overtakes) => {
                let is_reply = |message: &Message| matches!(message, Message::Reply(_));
                let first = if overtakes { self.inbox.iter().position(is_reply).unwrap() } else { 0 };
                let message = self.inbox.remove(first).unwrap();
                self.deliver(message);
            }
            Move::Wake(is_late) => self.wake(is_late),
            Move::Ghost => {
                let (step, data, session) = self.ghost.take().unwrap();
                self.execute(&step, data, session);
            }
            Move::Expire => {
                self.ghost = None;
                if self.node.is_some_and(|(node, _)| node.session == 1) {
                    self.delete();
                }
            }
            Move::CleanUp => {
                (self.is_clean, self.ghost) = (true, None);
                let remains = self.plan.remains().filter(|_| self.attempt == self.session || !self.is_ephemeral);
                let (Some(known), Some((node, _))) = (remains, self.node) else { return };
                let is_of_session = !self.is_ephemeral || node.session == self.attempt;
                if known.map_or(is_of_session, |known| known.czxid == node.czxid) {
                    self.delete_ours();
                }
            }
            Move::Set => {
                let generation = self.wanted.generation + 1;
                self.wanted = Wanted { generation, data: self.wanted.data + 1 };
            }
            Move::Stop => self.is_stopped = true,
            Move::Refuse => self.next(Input::Failed { failure: Failure::Permanent, may_be_applied: false }),
            Move::Lose(haunts) => self.lose(haunts),
            Move::NewSession => {
                (self.session, self.is_armed) = (2, false);
                self.inbox.retain(|message| matches!(message, Message::Reply(_)));
                self.watch = self.watch.take().map(|_| Some(Input::SessionEnded));
            }
            Move::Create => drop(self.make(if self.is_ephemeral { OTHER } else { 0 }, FOREIGN)),
            Move::Write => drop(self.change(FOREIGN)),
            Move::Delete => self.delete(),
        }
    }

    fn moves(&self) -> Vec<Move> {
        let mut moves = Vec::new();
        let is_late = |message: &Message| matches!(message, Message::Notification(_));
        if !self.inbox.is_empty() {
            moves.push(Move::Deliver(false));
        }
        if self.inbox.front().is_some_and(is_late) && !self.inbox.iter().all(is_late) {
            moves.push(Move::Deliver(true));
        }
        let has_fired = self.watch.as_ref().is_some_and(Option::is_some);
        let is_new = self.attempt != self.session;
        match self.step {
            _ if self.is_wait() && self.is_stopped => moves.push(Move::Wake(false)),
            Step::Connect => {
                moves.push(Move::Wake(false));
                moves.extend((self.is_ephemeral && self.plan.stands() && is_new).then_some(Move::Wake(true)));
            }
            Step::Pause(_) => {
                moves.push(Move::Wake(false));
                let is_deleted = self.watch == Some(Some(Input::Deleted));
                let is_refused = matches!(self.plan.state(), State::Refused(_));
                moves.extend((is_refused && is_deleted).then_some(Move::Wake(true)));
            }
            Step::AwaitDeletion => moves.extend(has_fired.then_some(Move::Wake(false))),
            Step::Wait => {
                let is_due = has_fired || self.seen != self.wanted.generation;
                moves.extend(is_due.then_some(Move::Wake(false)));
            }
            Step::End => moves.extend((!self.is_clean).then_some(Move::CleanUp)),
            _ if !self.is_sent => moves.push(Move::Execute),
            _ => {}
        }
        moves.extend(self.ghost.as_ref().map(|_| Move::Ghost));
        let is_left = self.node.is_some_and(|(node, _)| node.session == 1) && self.session == 2;
        moves.extend(is_left.then_some(Move::Expire));
        moves
    }

    /// Returns what may come, and need not.
    fn events(&self) -> Vec<Move> {
        let mut events = Vec::new();
        let is_request = !self.is_wait() && self.step != Step::End;
        if !self.is_stopped {
            events.push(Move::Stop);
            events.extend((self.sets > 0).then_some(Move::Set));
        }
        if self.faults > 0 {
            events.extend((self.session == 1).then_some(Move::NewSession));
            if is_request && self.attempt == self.session {
                events.push(Move::Lose(false));
                events.extend((!self.is_sent).then_some(Move::Lose(true)));
                let is_known = self.node.map(|(node, _)| node.czxid) == self.plan.known().map(|known| known.czxid);
                let may_refuse = !matches!(self.step, Step::Write { .. }) || is_known;
                events.extend((!self.is_sent && may_refuse).then_some(Move::Refuse));
            }
        }
        if self.foreign > 0 {
            let exists = self.node.is_some();
            events.extend(if exists { vec![Move::Write, Move::Delete] } else { vec![Move::Create] });
        }
        events
    }

    fn after(&self, next: Move) -> Self {
        let mut after = self.clone();
        match next {
            Move::Set => after.sets -= 1,
            Move::Refuse | Move::Lose(_) | Move::NewSession => after.faults -= 1,
            Move::Create | Move::Write | Move::Delete => after.foreign -= 1,
            _ => {}
        }
        after.apply(next);
        after.check_remains();
        after
    }

    /// Checks that the drop of the task would leave nothing.
    fn check_remains(&self) {
        let is_present = !self.is_ephemeral || self.attempt == self.session;
        if !is_present || self.is_clean {
            return;
        }
        let remains = self.plan.remains();
        if let Some((node, _)) = self.node.filter(|_| self.is_ours()) {
            let is_left = remains.is_some_and(|known| known.is_none_or(|known| known.czxid == node.czxid));
            assert!(is_left || node.session == 1 && self.attempt == 2, "the task does not know its node: {remains:?}");
        }
        let creates = |step: &Step| matches!(step, Step::Create | Step::Replace(_));
        let may_create =
            self.ghost.as_ref().is_some_and(|(step, _, session)| creates(step) && *session == self.attempt);
        assert!(!may_create || remains == Some(None), "the task has forgotten a create: {remains:?}");
    }

    /// Checks a state in which nothing happens by itself.
    fn check_rest(&self) {
        let node = self.node.map(|(node, data)| (node.czxid, data));
        match (&self.step, self.plan.state()) {
            (Step::End, _) => assert!(!self.is_ours(), "a closed node is left"),
            (Step::Wait, State::Standing(standing)) => {
                let (czxid, data) = node.expect("a node that stands exists");
                assert_eq!(czxid, standing.czxid.get(), "another node stands");
                let is_known = standing.foreign_data.as_ref().is_some_and(|foreign| foreign[0] == data);
                assert!(data == self.wanted.data || is_known, "the node has other data: {data}");
                let is_refused = self.plan.refused == self.wanted.generation;
                assert!(data == self.wanted.data || !self.plan.mends || is_refused, "foreign data is left");
            }
            (Step::Wait, State::Taken(other)) => assert_eq!(node.map(|(czxid, _)| czxid), Some(other.czxid)),
            (step, state) => panic!("it waits forever in {step:?}, {state:?}"),
        }
    }
}

/// The moves before a state, the newest first.
type Trail = Option<Rc<Moves>>;

struct Moves {
    newest: Move,
    before: Trail,
}

fn print(trail: &Trail) {
    let (mut moves, mut trail) = (Vec::new(), trail);
    while let Some(last) = trail {
        moves.push(last.newest);
        trail = &last.before;
    }
    moves.reverse();
    println!("after {moves:?}");
}

/// Searches all states within bounds.
fn search(world: World) {
    let of = |world: &World, salt: u64| {
        let mut hasher = DefaultHasher::new();
        (salt, world).hash(&mut hasher);
        hasher.finish()
    };
    let mut seen = HashSet::new();
    let mut open: VecDeque<(World, Trail)> = VecDeque::from([(world, None)]);
    while let Some((world, trail)) = open.pop_front() {
        let tried = std::panic::catch_unwind(|| {
            let moves = world.moves();
            if moves.is_empty() {
                world.check_rest();
            }
            moves.into_iter().chain(world.events()).map(|next| (next, world.after(next))).collect::<Vec<_>>()
        });
        let Ok(after) = tried else {
            print(&trail);
            panic!("in {world:#?}");
        };
        for (newest, world) in after {
            if seen.insert((of(&world, 1), of(&world, 2))) {
                open.push_back((world, Some(Rc::new(Moves { newest, before: trail.clone() }))));
            }
        }
    }
    println!("{} states", seen.len());
}

/// `CURATOR_MODEL=long` searches the larger bounds.
fn is_long() -> bool {
    std::env::var("CURATOR_MODEL").is_ok_and(|value| value == "long")
}

#[test]
fn all_orders_of_an_ephemeral_node() {
    search(World::new(true, false, 1, 1, 1));
    search(World::new(true, false, 0, 2, 1));
    search(World::new(true, false, 0, 1, 2));
    if is_long() {
        search(World::new(true, false, 1, 2, 2));
        search(World::new(true, false, 0, 3, 2));
    }
}

#[test]
fn all_orders_of_a_node_that_is_not_ephemeral() {
    search(World::new(false, false, 1, 1, 1));
    search(World::new(false, false, 0, 1, 2));
    if is_long() {
        search(World::new(false, false, 1, 2, 2));
    }
}

#[test]
fn all_orders_of_a_node_that_replaces_foreign_data() {
    search(World::new(true, true, 1, 1, 2));
    if is_long() {
        search(World::new(true, true, 1, 2, 3));
    }
}

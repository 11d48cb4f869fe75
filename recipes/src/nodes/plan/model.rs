//! The plan of one node against a model of a server: all orders of requests, replies, notifications and faults within
//! bounds.
//!
//! The model repeats the runner by hand (`keeper/task.rs`, `keeper/requests.rs`): a change there must be repeated here.
//! A node of the other client never has the version of a node of ours. On a server it may, and a condition names the
//! version alone: the plan cannot close the race between a read and a delete.

use std::collections::{HashSet, VecDeque};
use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::mem::{replace, take};

use super::verdict::Known;
use super::{Failure, Input, NodePlan, Now, Pause, State, Step};

/// The session of the other client.
const OTHER: i64 = 9;
/// The data that the other client writes.
const FOREIGN: u8 = 99;

/// A generation and its data.
type Wanted = (u64, u8);

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Move {
    /// The server executes the outstanding request.
    Execute,
    /// The client gets the first message; with `true` the first reply, although a notification is ahead of it.
    Deliver(bool),
    /// A wait ends; with `true` by the rarer of two causes.
    Wake(bool),
    /// The server executes a request of a lost connection.
    Ghost,
    /// The server ends the session that the client has lost.
    Expire,
    Stop,
    Set,
    // Faults: a permanent error; a lost connection, with `true` before its request arrives; the end of the session.
    Refuse,
    Lose(bool),
    NewSession,
    // The other client.
    Create,
    Write,
    Delete,
}

impl Move {
    const fn happens_by_itself(self) -> bool {
        matches!(self, Self::Execute | Self::Deliver(_) | Self::Wake(_) | Self::Ghost | Self::Expire)
    }
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
    accepted: u8,
    is_stopped: bool,
    /// The watch in the process, with the event that has fired it.
    watch: Option<Option<Input>>,
    is_sent: bool,
    /// Replies, with `true`, and notifications.
    inbox: VecDeque<(bool, Input)>,
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
    #[rustfmt::skip]
    fn new(is_ephemeral: bool, mends: bool, [sets, faults, foreign]: [u8; 3]) -> Self {
        let plan = NodePlan::new(Some(String::new()), is_ephemeral, mends, false);
        Self {
            plan, step: Step::Connect, is_ephemeral, session: 1, attempt: 0, wanted: (1, 1), seen: 0, taken: (0, 0), accepted: 1,
            is_stopped: false, watch: None, is_sent: false, inbox: VecDeque::new(), ghost: None,
            is_armed: false, zxid: 10, node: None, since: Vec::new(), sets, faults, foreign,
        }
    }

    fn is_wait(&self) -> bool {
        matches!(self.step, Step::Connect | Step::AwaitDeletion | Step::Pause(_) | Step::Wait)
    }

    fn czxid(&self) -> Option<i64> {
        self.node.map(|(node, _)| node.czxid)
    }

    /// Returns `true` if our client has created the node, in any session: our transactions are even.
    fn is_ours(&self) -> bool {
        self.czxid().is_some_and(|czxid| czxid % 2 == 0)
    }

    fn put(&mut self, node: Option<(Known, u8)>) {
        let event = if node.is_some() { Input::Changed } else { Input::Deleted };
        self.node = node;
        self.since.extend(self.czxid());
        if take(&mut self.is_armed) {
            self.inbox.push_back((false, event));
        }
    }

    /// Creates the node, or changes its data.
    fn write(&mut self, session: i64, data: u8) -> Known {
        self.zxid = (self.zxid / 2 + 1) * 2 + i64::from(data == FOREIGN);
        let (mzxid, version) = (self.zxid, i32::try_from(self.zxid).unwrap());
        let version_of_new = if data == FOREIGN { version } else { 0 };
        let node = match self.node {
            Some((node, _)) => Known { version, mzxid, ..node },
            None => Known { czxid: mzxid, session, version: version_of_new, mzxid, adopted: false },
        };
        self.put(Some((node, data)));
        node
    }

    fn delete_ours(&mut self) {
        // A node of a mode that is not ephemeral is adopted.
        assert!(self.is_ours() || !self.is_ephemeral, "a node of the other client is deleted");
        self.put(None);
    }

    /// Executes a request of our client, and returns its reply.
    fn execute(&mut self, step: &Step, (_, data): Wanted, session: i64) -> Input {
        let owner = if self.is_ephemeral { session } else { 0 };
        if !matches!(step, Step::Look | Step::Read(_) | Step::Check) {
            // A write ends the requests of earlier connections.
            self.ghost = None;
        }
        match (step, self.node) {
            (Step::Create, None) => {
                let made = self.write(owner, data);
                Input::Created { made, found: Some(made) }
            }
            (Step::Create | Step::Look | Step::Check, node) => Input::Found(node.map(|(node, _)| node)),
            (_, None) => Input::Gone,
            (Step::Read(_), Some((found, data))) => Input::Data { found, foreign: Some(vec![data]) },
            (
                Step::Write { version } | Step::Delete { version } | Step::Replace(Known { version, .. }),
                Some((found, _)),
            ) if *version != found.version => Input::Conflict,
            (Step::Write { .. }, _) => Input::Written(self.write(owner, data)),
            (step, _) => {
                self.delete_ours();
                if matches!(step, Step::Delete { .. }) {
                    return Input::Done;
                }
                self.write(owner, data);
                Input::Replaced
            }
        }
    }

    /// Returns `true` if the reply to the outstanding request comes with a watch.
    fn sets_watch(&self, reply: &Input) -> bool {
        matches!(self.step, Step::Create | Step::Look) || matches!(reply, Input::Data { .. })
    }

    fn take(&mut self) {
        (self.taken, self.seen) = (self.wanted, self.wanted.0);
    }

    fn deliver(&mut self, (is_reply, mut input): (bool, Input)) {
        if !is_reply {
            // It may be about an earlier node than this watch.
            self.watch = self.watch.take().map(|watch| watch.or(Some(input)));
            return;
        }
        if self.sets_watch(&input) {
            self.watch = Some((self.attempt != self.session).then_some(Input::SessionEnded));
        }
        if let Input::Data { foreign, .. } = &mut input {
            self.take();
            foreign.take_if(|data| data[0] == self.taken.1);
        }
        self.next(input);
    }

    fn wake(&mut self, is_rare: bool) {
        let input = match self.step {
            _ if self.is_stopped => Input::Stopped,
            Step::Connect if is_rare => Input::SessionEnded,
            Step::Connect => {
                self.take();
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
        self.step = self.plan.next(Now { session, wanted: self.wanted.0, taken: self.taken.0 }, input.clone());
        self.is_sent = false;
        if self.plan.confirmed() == Some(self.taken.0) {
            self.accepted = self.taken.1;
        }
        if self.plan.state != before {
            self.check_published(&input);
        }
        match self.step {
            Step::Touch => self.next(Input::Done),
            Step::Claim(_) => self.next(Input::Claimed(true)),
            Step::TakeBack => {
                if self.wanted.0 == self.taken.0 {
                    self.wanted.1 = self.accepted;
                }
                self.next(Input::Done);
            }
            Step::Create | Step::Write { .. } | Step::Replace(_) => self.take(),
            _ => {}
        }
        if !self.is_wait() {
            self.since = self.czxid().into_iter().collect();
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
                assert!(other.session == OTHER, "our node has taken the path: {other:?}");
                assert!(has_been(other.czxid), "a node has the path that does not exist");
            }
            State::Creating => {
                let is_of_session = |(node, _): (Known, u8)| !self.is_ephemeral || node.session == self.session;
                let stands = self.is_known() && self.node.is_some_and(is_of_session) && self.attempt == self.session;
                assert!(!stands || *input == Input::Deleted, "{input:?} ends a node that exists");
            }
            _ => {}
        }
    }

    fn is_known(&self) -> bool {
        self.czxid() == self.plan.known.map(|known| known.czxid)
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
                self.inbox.push_back((true, reply));
            }
            Move::Deliver(overtakes) => {
                let first = self.inbox.iter().position(|(is_reply, _)| !overtakes || *is_reply);
                let message = first.and_then(|first| self.inbox.remove(first));
                self.deliver(message.unwrap());
            }
            Move::Wake(is_rare) => self.wake(is_rare),
            Move::Ghost => {
                let (step, data, session) = self.ghost.take().unwrap();
                self.execute(&step, data, session);
            }
            Move::Expire => {
                self.ghost = None;
                self.put(None);
            }
            Move::Set => self.wanted = (self.wanted.0 + 1, self.wanted.1 + 1),
            Move::Stop => self.is_stopped = true,
            Move::Refuse => self.next(Input::Failed { failure: Failure::Permanent, may_be_applied: false }),
            Move::Lose(haunts) => {
                let may_be_applied = haunts || self.is_sent;
                if haunts {
                    self.ghost = Some((self.step.clone(), self.taken, self.attempt));
                }
                self.inbox.retain(|(is_reply, _)| !is_reply);
                self.next(Input::Failed { failure: Failure::Passing, may_be_applied });
            }
            Move::NewSession => {
                (self.session, self.is_armed) = (2, false);
                self.inbox.retain(|(is_reply, _)| *is_reply);
                self.watch = self.watch.take().map(|_| Some(Input::SessionEnded));
            }
            Move::Create | Move::Write => drop(self.write(if self.is_ephemeral { OTHER } else { 0 }, FOREIGN)),
            Move::Delete => self.put(None),
        }
    }

    fn moves(&self) -> Vec<Move> {
        let has_fired = self.watch.as_ref().is_some_and(Option::is_some);
        let is_late = self.is_ephemeral && self.plan.stands() && self.attempt != self.session;
        let is_refused = matches!(self.plan.state, State::Refused(_));
        let is_left = self.session == 2 && self.node.is_some_and(|(node, _)| node.session == 1);
        let is_reply = |(is_reply, _): &(bool, Input)| *is_reply;
        let is_due = match self.step {
            _ if self.is_wait() && self.is_stopped => true,
            Step::Wait => has_fired || self.seen != self.wanted.0,
            _ => self.is_wait(),
        };
        let is_rare = match self.step {
            Step::Connect => is_late,
            Step::Pause(Pause::Failure) => is_refused && self.watch == Some(Some(Input::Deleted)),
            _ => false,
        };
        let overtakes = self.inbox.front().is_some_and(|first| !is_reply(first)) && self.inbox.iter().any(is_reply);
        let is_request = !self.is_wait() && self.step != Step::End && !self.is_sent;
        let may_fail = self.faults > 0 && self.attempt == self.session;
        let is_refusable = !matches!(self.step, Step::Write { .. }) || self.is_known();
        let (exists, is_foreign) = (self.node.is_some(), self.foreign > 0);
        let all = [
            (Move::Execute, is_request),
            (Move::Deliver(false), !self.inbox.is_empty()),
            (Move::Deliver(true), overtakes),
            (Move::Wake(false), is_due),
            (Move::Wake(true), is_rare),
            (Move::Ghost, self.ghost.is_some()),
            (Move::Expire, is_left),
            (Move::Stop, !self.is_stopped),
            (Move::Set, !self.is_stopped && self.sets > 0),
            (Move::NewSession, self.faults > 0 && self.session == 1),
            (Move::Lose(false), may_fail && (is_request || self.is_sent)),
            (Move::Lose(true), may_fail && is_request),
            (Move::Refuse, may_fail && is_request && is_refusable),
            (Move::Create, is_foreign && !exists),
            (Move::Write, is_foreign && exists),
            (Move::Delete, is_foreign && exists),
        ];
        all.into_iter().filter(|(_, may)| *may).map(|(next, _)| next).collect()
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

    /// Checks that the task knows what it leaves: at its end, and if it is dropped, the client deletes that.
    fn check_remains(&self) {
        if self.is_ephemeral && self.attempt != self.session {
            return;
        }
        let remains = self.plan.remains();
        let is_left = self.node.is_some_and(|(node, _)| node.session == 1 && self.attempt == 2);
        if self.is_ours() && !is_left {
            let is_found = remains.is_some_and(|known| known.is_none() || self.is_known());
            assert!(is_found, "the task does not know its node: {remains:?}");
        }
        let may_create = |(step, _, session): &(Step, Wanted, i64)| {
            matches!(step, Step::Create | Step::Replace(_)) && *session == self.attempt
        };
        let is_forgotten = self.ghost.as_ref().is_some_and(may_create) && remains != Some(None);
        assert!(!is_forgotten, "the task has forgotten a create: {remains:?}");
    }

    /// Checks a state in which nothing happens by itself.
    fn check_rest(&self) {
        match (&self.step, &self.plan.state) {
            // The client deletes in the background what the task knows to be left.
            (Step::End, _) => {}
            (Step::Wait, State::Standing(standing)) => {
                let (node, data) = self.node.expect("a node that stands exists");
                assert_eq!(node.czxid, standing.czxid.get(), "another node stands");
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

/// Searches all states within bounds.
fn search(world: World) {
    let of = |world: &World, salt: u64| {
        let mut hasher = DefaultHasher::new();
        (salt, world).hash(&mut hasher);
        hasher.finish()
    };
    let mut seen = HashSet::new();
    let mut open = VecDeque::from([(world, Vec::new())]);
    while let Some((world, trail)) = open.pop_front() {
        let tried = std::panic::catch_unwind(|| {
            let moves = world.moves();
            if !moves.iter().any(|next| next.happens_by_itself()) {
                world.check_rest();
            }
            moves.into_iter().map(|next| (next, world.after(next))).collect::<Vec<_>>()
        });
        for (newest, world) in tried.unwrap_or_else(|_| panic!("after {trail:?} in {world:#?}")) {
            if seen.insert((of(&world, 1), of(&world, 2))) {
                open.push_back((world, [&*trail, &[newest]].concat()));
            }
        }
    }
    println!("{} states", seen.len());
}

/// Searches within these bounds, and with `CURATOR_MODEL=long` within the larger ones.
fn search_all(is_ephemeral: bool, mends: bool, bounds: &[[u8; 3]], larger: [u8; 3]) {
    let is_long = std::env::var("CURATOR_MODEL").is_ok_and(|value| value == "long");
    for bounds in bounds.iter().copied().chain(is_long.then_some(larger)) {
        search(World::new(is_ephemeral, mends, bounds));
    }
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

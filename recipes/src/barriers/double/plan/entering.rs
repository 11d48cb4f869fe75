//! The decisions of a member that enters.

use super::{Look, Ready};

/// A step of a member that enters.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(in super::super) enum Step {
    /// Creates the own node.
    Arrive,
    /// Looks at `ready` with a watch.
    Watch,
    /// After a lost reply: reads whether the own node exists.
    Settle,
    /// Lists the members, and whether `ready` stands.
    List,
    /// Lists the members, and looks at `ready` with a watch.
    Look,
    /// Lists the members, and reads the data of `ready`.
    ReadRound,
    /// Reads the transactions that have created these members.
    ReadCreations(Vec<String>),
    /// Creates `ready` for these members if each of them stands, and the barrier still has this version: so no member
    /// has come since. The own name is the first.
    Open { names: Vec<String>, version: i32 },
    /// Deletes `ready` if the barrier and `ready` still have these versions: the members of its round are gone.
    RemoveStale { version: i32, ready: i32 },
    /// Adds the own name to the round if the member `beside` stands and `ready` is unchanged.
    Join { beside: String, ready: Ready },
    /// Waits for the watch on `ready`, for the loss of the own node, for the end of the budget, and with `grace` for
    /// the end of the quorum's grace.
    Wait { grace: bool },
    /// Deletes the own node if the barrier still has this version.
    GiveUp { version: i32 },
    /// Ends: the member has entered the round. It is unknown if only a notification has shown that the barrier is open.
    Enter { round: Option<i64>, opened: bool },
    /// Begins again with a new node: the own one is lost, but not by its owner's delete.
    Rejoin,
    /// Ends: the budget is over, and the member has no node.
    Refuse,
}

/// The result of a step.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(in super::super) enum Input {
    /// The own node is created; the barrier had `count` children then, perhaps with `ready`.
    Arrived {
        czxid: i64,
        count: usize,
        version: i32,
    },
    /// The own node stands, and nothing else is known.
    Found {
        czxid: i64,
    },
    /// The own node does not exist, because its create was not applied.
    Missing,
    /// The transaction that created `ready`, which has a watch.
    Watched(Option<i64>),
    /// As [`Watched`](Self::Watched), but the watch has fired already, perhaps for an earlier `ready`.
    Unwatched,
    /// The names of the members; `None` if `ready` stands.
    Listed(Option<Vec<String>>),
    Looked(Look<i64>),
    Round(Look<Ready>),
    Creations(Vec<(String, i64)>),
    /// `ready` was created by this member, in this transaction.
    Opened(i64),
    Removed,
    Joined,
    GaveUp,
    /// The conditions of the step did not hold, so nothing was changed.
    Refused,
    /// The notification of the creation of `ready`, while the own node is not known to be lost.
    Created,
    /// A wake-up that proves nothing.
    Woken,
    GraceOver,
    BudgetOver,
    /// The own node is lost, but not by its owner's delete.
    Gone,
    /// The step failed with the connection; `may_stand` if the own node is not known and may exist.
    Interrupted {
        may_stand: bool,
    },
}

/// The number of members that open the barrier without the rest, after a grace.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(in super::super) enum Quorum {
    /// All members are needed.
    All,
    /// This number is enough after the grace.
    Of(usize),
}

/// A member that enters, over all its sessions.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(in super::super) struct Entering {
    quantity: usize,
    quorum: Quorum,
    /// The name of the own node in the present session.
    name: String,
    /// The transaction that created the own node, as soon as it is known.
    own_czxid: Option<i64>,
    /// The version of the barrier that the newest look showed.
    version: i32,
    /// The number of members that the newest look showed.
    count: usize,
    /// A look has set a watch on `ready` while that did not stand.
    is_watched: bool,
    /// `ready` as it was read before [`Step::ReadCreations`].
    stale: Option<Ready>,
    /// This member has tried to create `ready`, and may have done so.
    may_have_opened: bool,
    grace_is_over: bool,
    budget_is_over: bool,
}

impl Entering {
    pub(in super::super) fn new(quantity: usize, quorum: Quorum) -> Self {
        Self {
            quantity,
            quorum,
            name: String::new(),
            own_czxid: None,
            version: 0,
            count: 0,
            is_watched: false,
            stale: None,
            may_have_opened: false,
            grace_is_over: false,
            budget_is_over: false,
        }
    }

    /// Begins in a session, with a node of this name.
    pub(in super::super) fn begin(&mut self, name: &str) -> Step {
        name.clone_into(&mut self.name);
        (self.own_czxid, self.stale, self.is_watched) = (None, None, false);
        (self.may_have_opened, self.grace_is_over) = (false, false);
        Step::Arrive
    }

    /// Takes the result of the last step, and returns the next one.
    pub(in super::super) fn next(&mut self, input: Input) -> Step {
        match &input {
            Input::Watched(ready) => self.is_watched = ready.is_none(),
            Input::Looked(look) => self.is_watched = look.ready.is_none(),
            Input::Listed(_) | Input::GraceOver | Input::BudgetOver => {}
            // A new look sets a new watch.
            _ => self.is_watched = false,
        }
        match input {
            Input::Arrived { czxid, count, version } => {
                (self.own_czxid, self.version, self.count) = (Some(czxid), version, count);
                // The last member of those that stand sees all of them, so one member at least goes on to open.
                if self.is_enough(count) { Step::List } else { Step::Watch }
            }
            Input::Watched(Some(round)) => self.found_ready(round),
            Input::Watched(None) => self.wait(),
            Input::Unwatched => Step::Watch,
            Input::Found { czxid } => {
                self.own_czxid = Some(czxid);
                Step::Look
            }
            Input::Gone if self.budget_is_over => Step::Refuse,
            Input::Gone => Step::Rejoin,
            Input::Missing => Step::Arrive,
            Input::Listed(Some(names)) => self.listed(names),
            Input::Listed(None) => Step::Look,
            Input::Looked(look) => self.looked(look),
            Input::Round(look) => self.round(look),
            Input::Creations(creations) => self.creations(creations),
            Input::Opened(round) => Step::Enter { round: Some(round), opened: true },
            Input::Joined => Step::Enter { round: self.stale.take().map(|ready| ready.czxid), opened: false },
            Input::GaveUp => Step::Refuse,
            // The data shows whether this member has opened.
            Input::Created if self.may_have_opened => Step::ReadRound,
            Input::Created => Step::Enter { round: None, opened: false },
            Input::Removed | Input::Refused | Input::Woken => Step::Look,
            Input::GraceOver => {
                self.grace_is_over = true;
                Step::Look
            }
            Input::BudgetOver => {
                self.budget_is_over = true;
                Step::GiveUp { version: self.version }
            }
            Input::Interrupted { .. } if self.own_czxid.is_some() => Step::Look,
            Input::Interrupted { may_stand: true } => Step::Settle,
            Input::Interrupted { may_stand: false } => Step::Arrive,
        }
    }

    fn found_ready(&self, round: i64) -> Step {
        match self.own_czxid {
            // The own node stood before `ready` was created, and still stands.
            Some(own_czxid) if round > own_czxid && !self.may_have_opened => {
                Step::Enter { round: Some(round), opened: false }
            }
            _ => Step::ReadRound,
        }
    }

    const fn is_enough(&self, count: usize) -> bool {
        count >= self.quantity || (self.grace_is_over && self.is_quorum(count))
    }

    const fn is_quorum(&self, count: usize) -> bool {
        matches!(self.quorum, Quorum::Of(least) if count >= least)
    }

    fn wait(&mut self) -> Step {
        self.grace_is_over = false;
        match self.budget_is_over {
            true => Step::GiveUp { version: self.version },
            false => Step::Wait { grace: self.is_quorum(self.count) },
        }
    }

    fn is_listed(&self, names: &[String]) -> bool {
        names.contains(&self.name)
    }

    fn listed(&mut self, names: Vec<String>) -> Step {
        if !self.is_listed(&names) {
            return self.next(Input::Gone);
        }
        self.count = names.len();
        match (self.is_enough(self.count), self.is_watched) {
            (true, _) => self.open(names),
            (false, true) => self.wait(),
            (false, false) => Step::Watch,
        }
    }

    fn open(&mut self, mut names: Vec<String>) -> Step {
        self.may_have_opened = true;
        names.retain(|name| *name != self.name);
        names.insert(0, self.name.clone());
        Step::Open { names, version: self.version }
    }

    fn looked(&mut self, look: Look<i64>) -> Step {
        let Look { version, names, ready } = look;
        self.version = version;
        match ready {
            None => self.listed(names),
            Some(_) if !self.is_listed(&names) => self.next(Input::Gone),
            Some(round) => self.found_ready(round),
        }
    }

    fn round(&mut self, look: Look<Ready>) -> Step {
        let Look { version, mut names, ready } = look;
        self.version = version;
        if !self.is_listed(&names) {
            return self.next(Input::Gone);
        }
        let Some(ready) = ready else { return Step::Look };
        if self.own_czxid.is_some_and(|own_czxid| ready.czxid > own_czxid) {
            let opened = self.may_have_opened && ready.members.first() == Some(&self.name);
            return Step::Enter { round: Some(ready.czxid), opened };
        }
        if ready.members.contains(&self.name) {
            // After the lost reply to `Join`.
            return Step::Enter { round: Some(ready.czxid), opened: false };
        }
        names.retain(|name| *name != self.name);
        if let Some(beside) = names.iter().find(|name| ready.members.contains(name)) {
            return self.join(beside.clone(), ready);
        }
        if names.is_empty() {
            return Step::RemoveStale { version, ready: ready.version };
        }
        self.stale = Some(ready);
        Step::ReadCreations(names)
    }

    fn join(&mut self, beside: String, ready: Ready) -> Step {
        self.stale = Some(ready.clone());
        Step::Join { beside, ready }
    }

    /// A member that stood when `ready` was created is of its round, also if the opener had not listed it.
    fn creations(&mut self, creations: Vec<(String, i64)>) -> Step {
        let Some(ready) = self.stale.take() else { return Step::ReadRound };
        match creations.into_iter().find(|(_, czxid)| *czxid < ready.czxid) {
            Some((beside, _)) => self.join(beside, ready),
            None => Step::RemoveStale { version: self.version, ready: ready.version },
        }
    }
}

//! The decisions of a member that enters.
//!
//! `ready` counts only while a member of its round exists. Java's `ready` is persistent, so it outlives a group that
//! has died. A member decides by the `czxid` of its node, of `ready` and of the members.
//!
//! The opener checks each counted member in the transaction that creates `ready`. The delete of a member that gives up
//! names the barrier's version that it has last read. So either the opener does not count it, or it enters. A member
//! that waits lists nothing: the reply to its create has the number of children.

use super::{Input, Look, Plan, Reading, Ready, Step, Written};

/// A member that enters, over all its sessions.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash)]
pub(in super::super) struct Entering {
    quantity: usize,
    /// The number of members that open the barrier without the rest, after a grace.
    quorum: Option<usize>,
    /// The name of this member's node in the present session.
    name: String,
    /// The transaction that created this member's node, once it is known.
    own_czxid: Option<i64>,
    /// The version of the barrier, as last read.
    version: i32,
    /// The number of members, as last read.
    count: usize,
    /// `ready` as it was read before [`Step::ReadCreations`].
    stale: Option<Ready>,
    /// This member has tried to create `ready`, and may have done so.
    may_have_opened: bool,
    grace_is_over: bool,
    budget_is_over: bool,
    /// The round that the member has entered. It is unknown if only a notification has shown that the barrier is open.
    pub(in super::super) round: Option<i64>,
    /// This member has opened the round.
    pub(in super::super) opened: bool,
}

impl Plan for Entering {
    fn begin(&mut self, name: &str) -> Step {
        let Self { quantity, quorum, version, count, budget_is_over, .. } = *self;
        let name = name.to_owned();
        *self = Self { quantity, quorum, name, version, count, budget_is_over, ..Self::default() };
        Step::Arrive
    }

    fn next(&mut self, input: Input) -> Step {
        match input {
            Input::Arrived(Written { zxid, children: count, version }) => {
                (self.own_czxid, self.version, self.count) = (Some(zxid), version, count);
                // The last one of the members with nodes sees all these nodes, so at least one member proceeds to open.
                if self.is_enough(count) { Step::List } else { Step::Watch(Reading::Existence) }
            }
            Input::Fired(_) => Step::Watch(Reading::Existence),
            Input::Watched(Some(round)) => self.found_ready(round),
            Input::Watched(None) => self.wait(),
            Input::Found(czxid) => {
                self.own_czxid = Some(czxid);
                Step::Look(Reading::Existence)
            }
            Input::Gone if self.budget_is_over => Step::Refuse,
            Input::Gone => Step::Rejoin,
            Input::Missing => Step::Arrive,
            Input::Listed(Some(ref names))
            | Input::Looked(Look { ref names, .. })
            | Input::Round(Look { ref names, .. })
                if !names.contains(&self.name) =>
            {
                self.next(Input::Gone)
            }
            Input::Listed(Some(names)) => self.listed(names, false),
            Input::Looked(Look { version, names, ready }) => {
                self.version = version;
                match ready {
                    None => self.listed(names, true),
                    Some(ready) => self.found_ready(ready.czxid),
                }
            }
            Input::Round(look) => self.round(look),
            Input::Creations(creations) => self.creations(creations),
            Input::Opened(round) => self.enter(Some(round), true),
            Input::Joined => {
                let round = self.stale.take().map(|ready| ready.czxid);
                self.enter(round, false)
            }
            Input::GaveUp => Step::Refuse,
            // The data shows whether this member has opened.
            Input::Created if self.may_have_opened => Step::Look(Reading::Data),
            Input::Created => self.enter(None, false),
            Input::GraceOver => {
                self.grace_is_over = true;
                Step::Look(Reading::Existence)
            }
            Input::BudgetOver => {
                self.budget_is_over = true;
                Step::GiveUp { version: self.version }
            }
            Input::Interrupted { may_stand } if self.own_czxid.is_none() => {
                if may_stand {
                    Step::Settle
                } else {
                    Step::Arrive
                }
            }
            _ => Step::Look(Reading::Existence),
        }
    }
}

impl Entering {
    pub(in super::super) fn new(quantity: usize, quorum: Option<usize>) -> Self {
        Self { quantity, quorum, ..Self::default() }
    }

    fn enter(&mut self, round: Option<i64>, opened: bool) -> Step {
        (self.round, self.opened) = (round, opened);
        Step::Done
    }

    fn found_ready(&mut self, round: i64) -> Step {
        match self.own_czxid {
            // This member's node existed before `ready` was created, and still exists.
            Some(own_czxid) if round > own_czxid && !self.may_have_opened => self.enter(Some(round), false),
            _ => Step::Look(Reading::Data),
        }
    }

    fn is_enough(&self, count: usize) -> bool {
        count >= self.quantity || (self.grace_is_over && self.is_quorum(count))
    }

    fn is_quorum(&self, count: usize) -> bool {
        self.quorum.is_some_and(|least| count >= least)
    }

    fn wait(&mut self) -> Step {
        self.grace_is_over = false;
        match self.budget_is_over {
            true => Step::GiveUp { version: self.version },
            false => Step::Wait { grace: self.is_quorum(self.count) },
        }
    }

    /// Takes a list of the members from before `ready`, on which a watch may be set.
    fn listed(&mut self, names: Vec<String>, is_watched: bool) -> Step {
        self.count = names.len();
        match (self.is_enough(self.count), is_watched) {
            (true, _) => self.open(names),
            (false, true) => self.wait(),
            (false, false) => Step::Watch(Reading::Existence),
        }
    }

    fn open(&mut self, mut names: Vec<String>) -> Step {
        self.may_have_opened = true;
        names.retain(|name| *name != self.name);
        names.insert(0, self.name.clone());
        Step::Open { names, version: self.version }
    }

    fn round(&mut self, look: Look) -> Step {
        let Look { version, mut names, ready } = look;
        self.version = version;
        let Some(ready) = ready else { return Step::Look(Reading::Existence) };
        if self.own_czxid.is_some_and(|own_czxid| ready.czxid > own_czxid) {
            let opened = self.may_have_opened && ready.members.first() == Some(&self.name);
            return self.enter(Some(ready.czxid), opened);
        }
        if ready.members.contains(&self.name) {
            // After the lost reply to `Join`.
            return self.enter(Some(ready.czxid), false);
        }
        names.retain(|name| *name != self.name);
        if let Some(beside) = names.iter().find(|name| ready.members.contains(name)) {
            return self.join(beside.clone(), ready);
        }
        if names.is_empty() {
            return Step::Remove { version, ready: Some(ready.version) };
        }
        self.stale = Some(ready);
        Step::ReadCreations(names)
    }

    fn join(&mut self, beside: String, ready: Ready) -> Step {
        self.stale = Some(ready.clone());
        Step::Join { beside, ready }
    }

    /// A member that had a node when `ready` was created belongs to its round, even if the opener had not listed it.
    fn creations(&mut self, creations: Vec<(String, i64)>) -> Step {
        let Some(ready) = self.stale.take() else { return Step::Look(Reading::Data) };
        match creations.into_iter().find(|(_, czxid)| *czxid < ready.czxid) {
            Some((beside, _)) => self.join(beside, ready),
            None => Step::Remove { version: self.version, ready: Some(ready.version) },
        }
    }
}

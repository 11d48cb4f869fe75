//! The decisions of a member that leaves.

use super::{Look, Ready};

/// A step of a member that leaves.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(in super::super) enum Step {
    /// Deletes the own node.
    Depart,
    /// Looks at `ready` with a watch.
    Watch,
    /// Lists the members, and reads the data of `ready` with a watch.
    Look,
    /// Reads the transactions that have created these members.
    ReadCreations(Vec<String>),
    /// Sets a watch on this member, which has not left.
    WatchOther(String),
    /// Waits for the watches, for the end of the budget, and with `grace` for a while.
    Wait { grace: bool },
    /// Deletes `ready` if the barrier still has this version: no member is left.
    Remove { version: i32 },
    /// Ends: all members have left.
    Over,
    /// Ends: the budget is over.
    GiveUp,
}

/// The result of a step.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(in super::super) enum Input {
    /// The transaction `zxid` has deleted the own node; the barrier had `others` other children then, with `ready`.
    Departed {
        zxid: i64,
        others: usize,
        version: i32,
    },
    /// The own node was deleted by an earlier request.
    DepartedBefore,
    /// The transaction that created `ready`, which has a watch. The watch may have fired already. `None`: `ready` does
    /// not exist.
    Watched(Option<i64>),
    /// As [`Watched`](Self::Watched), but the watch may have fired for an earlier `ready`: the client has no
    /// transactions.
    Unwatched,
    Looked(Look<Ready>),
    Creations(Vec<(String, i64)>),
    /// The member stands, and a watch is set on it.
    OtherWatched,
    /// The member has left or died.
    Left,
    Removed,
    /// The conditions of the step did not hold, so nothing was changed.
    Refused,
    /// The notification of the deletion of `ready`.
    Deleted,
    /// A wake-up that proves nothing.
    Woken,
    GraceOver,
    BudgetOver,
    /// The step failed with the connection.
    Interrupted,
}

/// A member that leaves.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(in super::super) struct Leaving {
    /// The name of the own node.
    name: String,
    /// The transaction that created the own node.
    own_czxid: i64,
    round: Option<i64>,
    has_departed: bool,
    /// The transaction that deleted the own node, if it is known.
    departed_zxid: i64,
    /// The look before [`Step::ReadCreations`].
    unclear: Option<Look<i64>>,
}

impl Leaving {
    pub(in super::super) fn new(name: &str, own_czxid: i64, round: Option<i64>) -> Self {
        Self { name: name.to_owned(), own_czxid, round, has_departed: false, departed_zxid: 0, unclear: None }
    }

    pub(in super::super) fn round(&self) -> Option<i64> {
        self.round
    }

    pub(in super::super) fn has_departed(&self) -> bool {
        self.has_departed
    }

    /// Begins, or begins again after an interruption.
    pub(in super::super) fn begin(&self) -> Step {
        if self.has_departed { Step::Look } else { Step::Depart }
    }

    /// Takes the result of the last step, and returns the next one.
    pub(in super::super) fn next(&mut self, input: Input) -> Step {
        match input {
            Input::Departed { zxid, others, version } => {
                (self.has_departed, self.departed_zxid) = (true, zxid);
                // The only other child is `ready` of this round, which could not be deleted while the own node stood.
                if others <= 1 { Step::Remove { version } } else { Step::Watch }
            }
            Input::Watched(Some(found)) if self.is_of_round(found) => {
                self.round = Some(found);
                Step::Wait { grace: true }
            }
            Input::Watched(_) => Step::Over,
            Input::Unwatched => Step::Watch,
            Input::DepartedBefore => {
                self.has_departed = true;
                Step::Look
            }
            Input::Looked(look) => self.looked(look),
            Input::Creations(creations) => self.creations(&creations),
            Input::OtherWatched => Step::Wait { grace: false },
            // A member that leaves deletes `ready` if it is the last one, so that the look is needed for a death alone.
            Input::Left => Step::Wait { grace: true },
            Input::Removed | Input::Deleted => Step::Over,
            Input::Refused | Input::Woken | Input::GraceOver => Step::Look,
            Input::BudgetOver => Step::GiveUp,
            Input::Interrupted => self.begin(),
        }
    }

    /// `ready` cannot be deleted while the own node stands. So one that is older than the own departure is of the own
    /// round.
    fn is_of_round(&self, found: i64) -> bool {
        match self.round {
            Some(round) => found == round,
            None => self.own_czxid < found && found < self.departed_zxid,
        }
    }

    fn looked(&mut self, look: Look<Ready>) -> Step {
        let Look { version, mut names, ready } = look;
        names.retain(|name| *name != self.name);
        let Some(ready) = ready else { return Step::Over };
        let is_over = self.round.map_or(self.own_czxid > ready.czxid, |round| round != ready.czxid);
        if is_over {
            return Step::Over;
        }
        // After a lost reply the round may not be known. The opener may not have listed a member that came after its
        // look.
        let is_listed = ready.members.is_empty() || ready.members.contains(&self.name);
        if self.round.is_none() && !is_listed {
            self.unclear = Some(Look { version, names: names.clone(), ready: Some(ready.czxid) });
            return if names.is_empty() { Step::Over } else { Step::ReadCreations(names) };
        }
        self.go_on(ready.czxid, names, version)
    }

    /// A member that is older than the own node has been in the own round, and `ready` cannot be deleted while it
    /// stands.
    fn creations(&mut self, creations: &[(String, i64)]) -> Step {
        match self.unclear.take() {
            Some(Look { version, names, ready: Some(ready) })
                if creations.iter().any(|(_, czxid)| *czxid < self.own_czxid) =>
            {
                self.go_on(ready, names, version)
            }
            _ => Step::Over,
        }
    }

    /// Waits for the other members of the own round, if some are left.
    fn go_on(&mut self, round: i64, names: Vec<String>, version: i32) -> Step {
        self.round = Some(round);
        match self.other_to_watch(names) {
            Some(name) => Step::WatchOther(name),
            None => Step::Remove { version },
        }
    }

    /// Returns the member to watch: the next one in the order of names, so that not all waiters watch the same.
    fn other_to_watch(&self, mut names: Vec<String>) -> Option<String> {
        names.sort_unstable();
        let next = names.partition_point(|name| *name < self.name);
        names.get(next).or_else(|| names.first()).cloned()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Leaves with a lost reply, before the round is known. The opener has listed `a` and `b` alone.
    fn look_behind_a_lost_reply(names: &[&str]) -> (Leaving, Step) {
        let listed = ["a", "b"].map(str::to_owned).to_vec();
        let mut plan = Leaving::new("c", 182, None);
        assert_eq!(plan.next(Input::DepartedBefore), Step::Look);
        let ready = Some(Ready { czxid: 183, version: 0, members: listed });
        let names = names.iter().map(|&name| name.to_owned()).collect();
        let step = plan.next(Input::Looked(Look { version: 9, names, ready }));
        (plan, step)
    }

    #[test]
    fn member_that_the_opener_did_not_list_waits_for_older_members() {
        let (mut plan, step) = look_behind_a_lost_reply(&["a", "b"]);
        assert_eq!(step, Step::ReadCreations(vec!["a".to_owned(), "b".to_owned()]));
        let step = plan.next(Input::Creations(vec![("a".to_owned(), 180), ("b".to_owned(), 181)]));
        assert_eq!((step, plan.round()), (Step::WatchOther("a".to_owned()), Some(183)));
    }

    #[test]
    fn member_that_left_an_earlier_round_does_not_wait_for_a_later_one() {
        let (mut plan, _) = look_behind_a_lost_reply(&["d"]);
        assert_eq!(plan.next(Input::Creations(vec![("d".to_owned(), 190)])), Step::Over);
        assert_eq!(look_behind_a_lost_reply(&[]).1, Step::Over);
    }
}

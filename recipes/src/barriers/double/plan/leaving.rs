//! The decisions of a member that leaves.

use super::{Input, Look, Plan, Reading, Ready, Step, Written};

/// A member that leaves.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(in super::super) struct Leaving {
    /// The name of this member's node.
    name: String,
    /// The transaction that created this member's node.
    own_czxid: i64,
    pub(in super::super) round: Option<i64>,
    pub(super) has_departed: bool,
    /// The transaction that deleted this member's node; 0 if unknown.
    departed_zxid: i64,
}

impl Plan for Leaving {
    fn begin(&mut self, _name: &str) -> Step {
        if self.has_departed { Step::Look(Reading::WatchedData) } else { Step::Depart }
    }

    fn next(&mut self, input: Input) -> Step {
        match input {
            Input::Departed(Written { zxid, children, version }) => {
                (self.has_departed, self.departed_zxid) = (true, zxid);
                // The only other child is `ready` of this round, which could not be deleted while this member's node
                // existed.
                if children <= 2 { Step::Remove { version, ready: None } } else { Step::Watch(Reading::WatchedData) }
            }
            // The reply to the departure came before, so a notification is about the `ready` of this round.
            Input::Watched(Some(found)) | Input::Fired(Some(found)) if self.is_of_round(found) => {
                self.round = Some(found);
                Step::Wait { grace: true }
            }
            Input::Round(look) => self.looked(look),
            Input::OtherWatched => Step::Wait { grace: false },
            // A member that leaves deletes `ready` if it is the last one, so the read is needed only after a death.
            Input::Left => Step::Wait { grace: true },
            Input::Watched(_) | Input::Fired(_) | Input::Removed | Input::Deleted => Step::Done,
            Input::BudgetOver => Step::Refuse,
            Input::Interrupted { .. } if !self.has_departed => Step::Depart,
            Input::DepartedBefore => {
                self.has_departed = true;
                Step::Look(Reading::WatchedData)
            }
            _ => Step::Look(Reading::WatchedData),
        }
    }
}

impl Leaving {
    pub(in super::super) fn new(name: &str, own_czxid: i64, round: Option<i64>) -> Self {
        Self { name: name.to_owned(), own_czxid, round, has_departed: false, departed_zxid: 0 }
    }

    /// `ready` cannot be deleted while this member's node exists. So a `ready` that is older than the departure belongs
    /// to this member's round.
    fn is_of_round(&self, found: i64) -> bool {
        match self.round {
            Some(round) => found == round,
            None => self.own_czxid < found && found < self.departed_zxid,
        }
    }

    fn looked(&mut self, look: Look) -> Step {
        let Look { version, mut names, ready } = look;
        names.retain(|name| *name != self.name);
        let Some(ready) = ready.filter(|ready| self.is_own(ready)) else { return Step::Done };
        self.round = Some(ready.czxid);
        match self.other_to_watch(names) {
            Some(name) => Step::WatchOther(name),
            None => Step::Remove { version, ready: None },
        }
    }

    /// After a lost reply to the departure, the names in `ready` show whether the round is this member's. Java's
    /// `ready` has no names.
    fn is_own(&self, ready: &Ready) -> bool {
        let is_listed = ready.members.is_empty() || ready.members.contains(&self.name);
        self.round.map_or(self.own_czxid < ready.czxid && is_listed, |round| round == ready.czxid)
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

    /// Leaves with a lost reply, before the round is known. The open round has these members, and the node `a` exists.
    fn look_behind_a_lost_reply(members: &[&str]) -> (Step, Option<i64>) {
        let mut plan = Leaving::new("c", 182, None);
        assert_eq!(plan.next(Input::DepartedBefore), Step::Look(Reading::WatchedData));
        let members = members.iter().map(|&name| name.to_owned()).collect();
        let ready = Some(Ready { czxid: 183, version: 0, members });
        let step = plan.next(Input::Round(Look { version: 9, names: vec!["a".to_owned()], ready }));
        (step, plan.round)
    }

    #[test]
    fn member_of_an_unknown_round_waits_for_the_others_if_the_round_names_it() {
        for names in [&["a", "c"][..], &[]] {
            let (step, round) = look_behind_a_lost_reply(names);
            assert_eq!((step, round), (Step::WatchOther("a".to_owned()), Some(183)), "{names:?}");
        }
    }

    #[test]
    fn member_that_left_an_earlier_round_does_not_wait_for_a_later_one() {
        assert_eq!(look_behind_a_lost_reply(&["a", "b"]), (Step::Done, None));
    }
}

//! The decisions of the task that keeps a node. Pure: the runner performs the steps and returns their results.
//!
//! A notification of a deletion is a hint, because it may be about an earlier node. A waiter registers before its read
//! is answered, and with `zookeeper-async` replies can overtake notifications. The create that follows it fails if the
//! node exists, and the read in the same write shows which node that is.

#[cfg(test)]
mod model;
pub(super) mod verdict;

use std::collections::BTreeSet;
use std::mem::{replace, take};

use curator_framework::Zxid;
use curator_framework::recipe::owning_session;

use super::state::StandingNode;
use verdict::{Facts, Known, Verdict};

/// A step of the task.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) enum Step {
    /// Waits for a session.
    Connect,
    /// Creates the node of which the server, or the client, chooses the name.
    CreateFirst,
    /// Creates the node and, in the same write, reads the stat of the node at the path and sets a watch on it.
    Create,
    /// Reads the stat of the node at the path, and sets a watch on it.
    Look,
    /// Claims this node for the task, so that no other task of the session counts it as its own.
    Claim(Known),
    /// Reads the data of this node, and sets a watch on it.
    Read(Known),
    /// Writes the newest wanted data.
    Write {
        version: i32,
    },
    /// Takes back data that the server refuses: it must not keep the node from being created in a later session.
    TakeBack,
    /// Deletes this node of an earlier session and creates the new one, in one transaction: the name does not vanish.
    Replace(Known),
    /// Waits for the notification of a deletion, which must not fire the watch on the next node.
    AwaitDeletion,
    /// Writes the child that keeps a node with a time to live, if that is due.
    Touch,
    Pause(Pause),
    /// Waits as long as the node exists, or another one is at the path.
    Wait,
    /// Reads the stat of the node at the path, before its delete.
    Check,
    /// Deletes the node, at the end of the task.
    Delete {
        version: i32,
    },
    End,
}

/// The reason for a pause.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum Pause {
    /// A step failed.
    Failure,
    /// Another client has deleted the node.
    Deletion,
    /// Another client has written data that this task replaces.
    ForeignData,
}

/// The result of a step.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) enum Input {
    /// The client has a session; `is_new` if the attempt before had another one.
    Connected {
        is_new: bool,
    },
    /// The node exists at this path.
    CreatedFirst {
        path: String,
        made: Known,
    },
    /// The node of an earlier create at this path, of which the reply was lost. Its data may be older than the wanted data.
    FoundFirst {
        path: String,
        made: Known,
    },
    /// The node `made` was created. `found` is the node that the read has shown, if the read ran after the create.
    Created {
        made: Known,
        found: Option<Known>,
    },
    /// The node at the path.
    Found(Option<Known>),
    /// `true` if no other task of the session has claimed the node.
    Claimed(bool),
    /// The data of the node, if it is not the wanted data.
    Data {
        found: Known,
        foreign: Option<Vec<u8>>,
    },
    /// The node may be written, but not read.
    Unreadable,
    Written(Known),
    Replaced,
    /// The client has no transactions, or no permission to delete the node: it goes with its session.
    Irreplaceable,
    /// The path has no node.
    Gone,
    /// The node at the path is another one, or has other data than the request expects.
    Conflict,
    /// The notification of a deletion. It may be late, and about an earlier node.
    Deleted,
    /// Another notification.
    Changed,
    SessionEnded,
    /// The caller wants other data.
    NewData,
    /// A step without a result has ended, or it is time for [`Step::Touch`].
    Done,
    /// The step failed.
    Failed {
        failure: Failure,
        may_be_applied: bool,
    },
    /// The task has to end.
    Stopped,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum Failure {
    /// Waiting can cure it.
    Passing,
    Permanent,
    /// The client is closed.
    Closed,
}

/// The facts beside the results of the steps.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub(super) struct Now {
    /// The session of the attempt; `None` if the client does not know its id yet.
    pub(super) session: Option<i64>,
    /// The generation of the newest wanted data.
    pub(super) wanted: u64,
    /// The generation of the data that the runner took for the newest request with data.
    pub(super) taken: u64,
}

/// The state of the node, as the task publishes it.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) enum State {
    Creating,
    Standing(StandingNode),
    /// The node exists, as far as is known, and a request about it was refused.
    Refused(StandingNode),
    Taken(Known),
    Failed,
}

/// The transaction of data that another client may have written.
const UNREAD: i64 = 0;

/// The decisions about one node, over all sessions.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) struct NodePlan {
    is_ephemeral: bool,
    /// Foreign data is replaced.
    mends: bool,
    /// The end of the task leaves the node, for example to its time to live.
    outlives: bool,
    now: Now,
    /// The outstanding step.
    step: Step,
    pub(super) path: Option<String>,
    pub(super) state: State,
    pub(super) known: Option<Known>,
    /// A notification has reported the deletion of the node.
    may_be_gone: bool,
    /// The sessions in which the reply to a create was lost.
    uncertain: BTreeSet<i64>,
    /// The session of the outstanding create, if that is its first uncertain one.
    creating: Option<i64>,
    /// The transaction that replaces the node was applied.
    is_replaced: bool,
    /// The generation of the data on the server; 0 if it is not known.
    pub(super) written: u64,
    /// The generation of the newest data that the server has refused.
    refused: u64,
    foreign_data: Option<Vec<u8>>,
    is_closing: bool,
}

impl NodePlan {
    pub(super) fn new(path: Option<String>, is_ephemeral: bool, mends: bool, outlives: bool) -> Self {
        Self {
            is_ephemeral,
            mends,
            outlives,
            now: Now::default(),
            step: Step::Connect,
            path,
            state: State::Creating,
            known: None,
            may_be_gone: false,
            uncertain: BTreeSet::new(),
            creating: None,
            is_replaced: false,
            written: 0,
            refused: 0,
            foreign_data: None,
            is_closing: false,
        }
    }

    /// Lets the end of the task delete a node that stays otherwise.
    pub(super) const fn deletes_at_end(&mut self) {
        self.outlives = false;
    }

    /// Returns `true` if the end of the task leaves the node.
    pub(super) const fn leaves_its_node(&self) -> bool {
        self.outlives
    }

    /// Returns the generation of the data that the node has by a reply of the server.
    pub(super) fn confirmed(&self) -> Option<u64> {
        (self.known.is_some() && self.written != 0 && self.written != self.refused).then_some(self.written)
    }

    /// Returns `true` if the node exists, as far as is known.
    pub(super) const fn stands(&self) -> bool {
        matches!(self.state, State::Standing(_) | State::Refused(_))
    }

    /// Returns the node that the end of the task leaves: `Some(None)` if it may exist, but is not known.
    pub(super) fn remains(&self) -> Option<Option<Known>> {
        if self.outlives {
            return None;
        }
        let is_uncertain = match self.is_ephemeral {
            true => self.uncertain.contains(&self.session()),
            false => !self.uncertain.is_empty(),
        };
        if is_uncertain {
            return Some(None);
        }
        self.known.filter(|known| self.is_of_session(known)).map(Some)
    }

    /// Takes the result of the last step, and returns the next one. The first step is [`Step::Connect`].
    pub(super) fn next(&mut self, now: Now, input: Input) -> Step {
        self.now = now;
        let step = replace(&mut self.step, Step::End);
        self.settle(&step, &input);
        self.step = match input {
            Input::Stopped => self.close(),
            Input::Failed { failure, .. } => self.failed(&step, failure),
            input if self.is_closing => self.closing(input),
            Input::SessionEnded => {
                self.leave_session();
                Step::Connect
            }
            Input::Connected { is_new } => {
                if is_new {
                    self.leave_session();
                }
                self.is_replaced = false;
                if self.path.is_some() { self.place() } else { Step::CreateFirst }
            }
            Input::CreatedFirst { path, made } => {
                self.path = Some(path);
                self.adopt(made);
                self.accept();
                Step::Connect
            }
            Input::FoundFirst { path, made } => {
                self.path = Some(path);
                self.adopt(made);
                Step::Connect
            }
            Input::Created { made, found } => {
                self.adopt(made);
                self.accept();
                found.map_or(Step::Look, |found| self.found(found))
            }
            Input::Found(Some(found)) => self.found(found),
            Input::Found(None) => {
                (self.known, self.state) = (None, State::Creating);
                self.place()
            }
            input => match step {
                Step::Wait if self.stands() => self.woken(&input),
                // Another node has the path.
                Step::Wait if input == Input::NewData => Step::Wait,
                step => self.result(step, input),
            },
        };
        self.step.clone()
    }

    /// Continues with the result of a step about the node.
    fn result(&mut self, step: Step, input: Input) -> Step {
        match (step, input) {
            (Step::Create | Step::Write { .. }, Input::Conflict) => Step::Look,
            (Step::Claim(found), Input::Claimed(true)) if take(&mut self.is_replaced) => {
                // Another client may have written the node since.
                self.adopt(Known { version: 0, mzxid: found.czxid, ..found });
                self.accept();
                self.check(found)
            }
            (Step::Claim(found), Input::Claimed(true)) => {
                self.adopt(found);
                self.check(found)
            }
            (Step::Claim(found), _) | (Step::Replace(found), Input::Irreplaceable) => self.give_way(found),
            (Step::Read(_), Input::Data { found, foreign }) => self.compare(found, foreign),
            (Step::Read(found), Input::Unreadable) => {
                self.known = self.known.map(|known| known.at(&found));
                self.write()
            }
            (Step::Write { .. }, Input::Written(found)) if self.is_known(&found) => {
                self.known = self.known.map(|known| known.at(&found));
                self.accept();
                self.write()
            }
            (Step::Write { .. }, _) => {
                (self.may_be_gone, self.state) = (true, State::Creating);
                Step::AwaitDeletion
            }
            (Step::Replace(_), Input::Replaced) => {
                self.is_replaced = true;
                Step::AwaitDeletion
            }
            // The transaction has deleted the node before.
            (Step::AwaitDeletion, _) if self.is_replaced => Step::Look,
            (Step::AwaitDeletion, _) => self.deleted(),
            (Step::Touch, _) => {
                self.state = self.known.map_or(State::Creating, |known| State::Standing(self.standing(known)));
                Step::Wait
            }
            (Step::TakeBack, _) => match self.known.filter(|known| known.mzxid == UNREAD) {
                Some(known) => Step::Read(known),
                None => self.write(),
            },
            (Step::Pause(Pause::ForeignData), _) => {
                self.written = 0;
                self.write()
            }
            (Step::Pause(Pause::Failure), Input::Deleted) => {
                (self.may_be_gone, self.state) = (true, State::Creating);
                Step::Connect
            }
            (Step::Read(_) | Step::Replace(_), _) => self.place(),
            _ => Step::Connect,
        }
    }

    /// Continues when the wait of a node that exists ends.
    fn woken(&mut self, input: &Input) -> Step {
        match input {
            Input::Deleted => self.deleted(),
            Input::Changed => self.place(),
            _ => self.write(),
        }
    }

    /// Records whether the outstanding create may still be applied.
    fn settle(&mut self, step: &Step, input: &Input) {
        if !matches!(step, Step::Create | Step::Replace(_)) {
            return;
        }
        let is_certain = match input {
            Input::Failed { may_be_applied, .. } => !may_be_applied,
            // The node is not known before the next read.
            input => *input != Input::Replaced,
        };
        if let Some(session) = self.creating.take().filter(|_| is_certain) {
            self.uncertain.remove(&session);
        }
    }

    fn session(&self) -> i64 {
        self.now.session.unwrap_or_default()
    }

    fn is_of_session(&self, node: &Known) -> bool {
        !self.is_ephemeral || self.now.session == Some(node.session)
    }

    fn is_known(&self, found: &Known) -> bool {
        self.known.is_some_and(|known| known.czxid == found.czxid)
    }

    /// Creates the node, or checks the known one.
    fn place(&mut self) -> Step {
        match self.known.filter(|known| !self.may_be_gone && self.is_of_session(known)) {
            Some(_) => Step::Look,
            None => self.create(Step::Create),
        }
    }

    /// Until the reply to a create arrives the node may or may not exist, even if the runner is dropped.
    fn create(&mut self, step: Step) -> Step {
        let session = self.session();
        self.creating = self.uncertain.insert(session).then_some(session);
        step
    }

    /// Decides what a node at the path is, which a reply has shown.
    fn found(&mut self, found: Known) -> Step {
        self.may_be_gone = false;
        let Self { is_ephemeral, known, ref uncertain, .. } = *self;
        let verdict = Facts { is_ephemeral, session: self.now.session, known, uncertain }.judge(&found);
        self.is_replaced &= verdict == Verdict::Found;
        match verdict {
            Verdict::Known => self.check(found),
            Verdict::Found => Step::Claim(found),
            Verdict::Adopt => {
                self.adopt(Known { adopted: self.uncertain.is_empty(), ..found });
                self.check(found)
            }
            Verdict::Dying => self.create(Step::Replace(found)),
            Verdict::Taken => self.give_way(found),
        }
    }

    fn adopt(&mut self, node: Known) {
        self.known = Some(node);
        self.uncertain.clear();
        (self.may_be_gone, self.written, self.foreign_data) = (false, 0, None);
    }

    fn give_way(&mut self, found: Known) -> Step {
        // The answered create was executed after all earlier ones of the session. A node that is not ephemeral would be
        // at the path, whichever session has made it.
        let session = self.session();
        self.uncertain.retain(|&uncertain| self.is_ephemeral && uncertain != session);
        (self.known, self.state) = (None, State::Taken(found));
        Step::Wait
    }

    /// Reads the data of the known node, unless it is certainly the newest that this task has written.
    fn check(&mut self, found: Known) -> Step {
        let is_written = |known: Known| (known.version, known.mzxid) == (found.version, found.mzxid);
        match self.written != 0 && self.known.is_some_and(is_written) {
            true => self.write(),
            false => Step::Read(found),
        }
    }

    fn compare(&mut self, found: Known, foreign: Option<Vec<u8>>) -> Step {
        if !self.is_known(&found) {
            return self.place();
        }
        self.known = self.known.map(|known| known.at(&found));
        if foreign.is_none() {
            // Even if the reply to its write was lost.
            self.accept();
        } else if self.written == self.now.taken {
            // A refused write leaves it.
            self.foreign_data = foreign;
            if self.mends {
                return Step::Pause(Pause::ForeignData);
            }
        }
        self.write()
    }

    /// Records that the server has the data of the newest request.
    fn accept(&mut self) {
        (self.written, self.foreign_data) = (self.now.taken, None);
    }

    /// Writes the wanted data, unless the server has it.
    fn write(&mut self) -> Step {
        match self.known {
            Some(_) if self.written == self.now.wanted => Step::Touch,
            Some(Known { version, .. }) => Step::Write { version },
            None => self.place(),
        }
    }

    fn standing(&self, known: Known) -> StandingNode {
        StandingNode {
            path: self.path.clone().unwrap_or_default(),
            czxid: Zxid::new(known.czxid),
            session: owning_session(known.session),
            adopted: known.adopted,
            foreign_data: self.foreign_data.clone(),
        }
    }

    fn deleted(&mut self) -> Step {
        (self.may_be_gone, self.state) = (true, State::Creating);
        Step::Pause(Pause::Deletion)
    }

    /// An ephemeral node ends with its session.
    fn leave_session(&mut self) {
        if self.is_ephemeral && self.stands() {
            self.state = State::Creating;
        }
    }

    fn failed(&mut self, step: &Step, failure: Failure) -> Step {
        match failure {
            Failure::Closed => return self.close(),
            // The runner leaves the node to the background task of the client.
            _ if self.is_closing => return Step::End,
            Failure::Permanent if matches!(step, Step::Write { .. }) && self.stands() => {
                (self.written, self.refused) = (self.now.taken, self.now.taken);
                if let (Some(known), None) = (&mut self.known, &self.foreign_data) {
                    // The refused data would have replaced it, so it was not compared with the data before.
                    known.mzxid = UNREAD;
                }
                return Step::TakeBack;
            }
            Failure::Permanent => {
                self.state = match replace(&mut self.state, State::Failed) {
                    // The request that has failed shows nothing of the node.
                    State::Standing(node) | State::Refused(node) => State::Refused(node),
                    _ => State::Failed,
                };
            }
            Failure::Passing => {}
        }
        Step::Pause(Pause::Failure)
    }

    fn close(&mut self) -> Step {
        match (replace(&mut self.is_closing, true), self.remains()) {
            (false, Some(Some(_))) if self.may_be_gone => Step::Check,
            (false, Some(Some(Known { version, .. }))) => Step::Delete { version },
            _ => Step::End,
        }
    }

    fn closing(&mut self, input: Input) -> Step {
        match input {
            Input::Conflict => Step::Check,
            Input::Found(Some(found)) if self.is_known(&found) => Step::Delete { version: found.version },
            _ => {
                self.known = None;
                Step::End
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Another client has deleted the node. Its own node at the path may have the same version.
    #[test]
    fn close_after_a_write_that_found_no_node_deletes_no_other_node() {
        let made = Known { czxid: 3, session: 1, version: 0, mzxid: 3, adopted: false };
        let mut plan = NodePlan::new(Some("/foo".to_owned()), true, false, false);
        let old = Now { session: Some(1), wanted: 1, taken: 1 };
        assert_eq!(plan.next(old, Input::Connected { is_new: true }), Step::Create);
        assert_eq!(plan.next(old, Input::Created { made, found: Some(made) }), Step::Touch);
        assert_eq!(plan.next(old, Input::Done), Step::Wait);
        let new = Now { wanted: 2, ..old };
        assert_eq!(plan.next(new, Input::NewData), Step::Write { version: 0 });
        assert_eq!(plan.next(Now { taken: 2, ..new }, Input::Gone), Step::AwaitDeletion);
        assert_eq!(plan.next(Now { taken: 2, ..new }, Input::Stopped), Step::Check);
        let other = Known { czxid: 5, session: 9, mzxid: 5, ..made };
        assert_eq!(plan.next(Now { taken: 2, ..new }, Input::Found(Some(other))), Step::End);
        assert_eq!(plan.remains(), None);
    }

    /// The node was deleted, and another client has made an ephemeral one at its path.
    #[test]
    fn close_behind_a_lost_reply_of_an_earlier_session_deletes_no_other_node() {
        let mut plan = NodePlan::new(Some("/foo".to_owned()), false, false, false);
        let (first, second) = (Now { session: Some(1), wanted: 1, taken: 1 }, Some(2));
        assert_eq!(plan.next(first, Input::Connected { is_new: true }), Step::Create);
        let lost = Input::Failed { failure: Failure::Passing, may_be_applied: true };
        assert_eq!(plan.next(first, lost), Step::Pause(Pause::Failure));
        assert_eq!(plan.next(first, Input::Done), Step::Connect);
        let now = Now { session: second, ..first };
        assert_eq!(plan.next(now, Input::Connected { is_new: true }), Step::Create);
        let other = Known { czxid: 5, session: 9, version: 0, mzxid: 5, adopted: false };
        assert_eq!(plan.next(now, Input::Found(Some(other))), Step::Wait);
        assert_eq!(plan.next(now, Input::Stopped), Step::End);
        assert_eq!(plan.remains(), None);
    }
}

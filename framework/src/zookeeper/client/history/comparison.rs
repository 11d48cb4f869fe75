//! The questions to a server about what the client has seen, and the judgement on its replies.

use std::cmp::Reverse;
use std::sync::Arc;

use super::writes::{COMPARED, Deletion, History, Write};
use crate::model::Stat;

impl Write {
    /// Judges a server by the write that it has in place of this one.
    fn judge(&self, found: Option<&Stat>) -> Judgement {
        let Some(found) = found.map(Self::of) else { return Judgement::Unknown };
        let (is_same_node, is_same_write) = (found.czxid == self.czxid, found.mzxid == self.mzxid);
        match (is_same_node, is_same_write) {
            (true, _) if found.ctime != self.ctime => Judgement::Other,
            (true, true) if found.mtime != self.mtime => Judgement::Other,
            (_, false) | (false, _) if found.mzxid <= self.mzxid => Judgement::Other,
            // A server that continues from this write has its children too. But servers that were stopped during a snapshot
            // may have another pzxid (ZOOKEEPER-3125), which must not cost the session.
            (true, _) if found.pzxid < self.pzxid => Judgement::Doubtful,
            // Another transaction may have the number of a pzxid, which has no time, so the pzxid proves nothing.
            (true, true) => Judgement::Same { up_to: self.mzxid },
            // It was written again.
            (true, false) => Judgement::Same { up_to: self.czxid },
            (false, _) => Judgement::Unknown,
        }
    }
}

/// The judgement on a server's history.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Judgement {
    /// It contains all writes up to this one.
    Same { up_to: i64 },
    /// It lacks a write that the client has seen.
    Other,
    /// It may lack one: all that was read may be out of date.
    Doubtful,
    /// The reply to one question does not decide.
    Unknown,
}

/// A question to a server: whether a node exists, and with which stat.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Question {
    pub(crate) path: Arc<str>,
    known: Known,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Known {
    Write(Write),
    Deleted(Deletion),
    /// The node's children have changed in this transaction or a later one.
    Children(i64),
}

impl Question {
    /// Judges the server by its reply; `None` if the node does not exist, or the server refuses to answer.
    pub(crate) fn judge(&self, found: Option<&Stat>) -> Judgement {
        match (self.known, found) {
            (Known::Write(write), found) => write.judge(found),
            (Known::Deleted(known), Some(found)) if found.czxid == known.czxid => Judgement::Other,
            // A server may create a node between a reply's read and the reply's zxid.
            (Known::Deleted(known), Some(found)) if found.czxid <= known.zxid => Judgement::Doubtful,
            (Known::Children(pzxid), Some(found)) if found.pzxid < pzxid => Judgement::Doubtful,
            (Known::Deleted(_) | Known::Children(_), _) => Judgement::Unknown,
        }
    }

    /// Returns `true` if the client has seen the node, and not its deletion.
    pub(crate) const fn is_of_write(&self) -> bool {
        self.mzxid().is_some()
    }

    /// Returns the write that an unchanged node proves.
    const fn mzxid(&self) -> Option<i64> {
        match &self.known {
            Known::Write(write) => Some(write.mzxid),
            Known::Deleted(_) | Known::Children(_) => None,
        }
    }

    fn newest(&self) -> i64 {
        match &self.known {
            Known::Write(write) => write.newest(),
            Known::Deleted(deletion) => deletion.zxid,
            Known::Children(pzxid) => *pzxid,
        }
    }
}

/// The questions to one server, in up to two rounds.
#[derive(Debug)]
pub(crate) struct Comparison {
    /// The newest write that can be proven; `None` if there are only questions about deletions.
    proof: Option<i64>,
    /// The questions of the first round.
    pub(super) first: Vec<Question>,
    /// The questions about further deletions, and changes of children, that are newer than all writes.
    newer: Vec<Question>,
    pub(super) others: Vec<Question>,
    /// The newest write for which no question asks.
    forgotten: i64,
}

impl History {
    /// Returns the questions about writes and changes, the most telling first, even those above the limit.
    fn questions(&self) -> Vec<Question> {
        let writes = self.writes.iter().map(|(path, write)| (path, Known::Write(*write)));
        // Without a known write no cache can miss a change.
        let is_asked = |(path, _): &&(Arc<str>, i64)| !self.writes.is_empty() && !self.writes.contains_key(path);
        let changed = self.changed.iter().filter(is_asked);
        let changed = changed.map(|(path, pzxid)| (path, Known::Children(*pzxid)));
        let all = writes.chain(changed).map(|(path, known)| Question { path: Arc::clone(path), known });
        let mut all: Vec<_> = all.collect();
        // By path too: a second run asks the same.
        all.sort_unstable_by(|one, other| (other.newest(), &one.path).cmp(&(one.newest(), &other.path)));
        all
    }

    /// Starts a comparison with a server. `None` if the client has seen nothing that a server can confirm or refute.
    ///
    /// The first round asks for the node with the newest change, which usually is the newest write too, and for the newest
    /// deletion if it is newer than this write.
    pub(crate) fn compare(&self) -> Option<Comparison> {
        let mut first = self.questions();
        let forgotten = first.get(COMPARED).map_or(0, Question::newest).max(self.forgotten);
        first.truncate(COMPARED);
        let last_written = (0..first.len()).max_by_key(|&index| (first[index].mzxid(), Reverse(index)));
        let proof = last_written.and_then(|index| first[index].mzxid());
        if let Some(index) = last_written.filter(|&index| index > 0) {
            first[1..=index].rotate_right(1);
        }
        let others = first.split_off(last_written.map_or(0, |index| 1 + index.min(1)));
        // Parents that have lost a child since.
        let (changed, others): (Vec<_>, Vec<_>) = others.into_iter().partition(|other| Some(other.newest()) > proof);
        // A node that was created again has a write of its own.
        let deleted = self.deleted.iter().rev().filter(|(path, _)| !self.writes.contains_key(path));
        let (mut open, proven): (Vec<_>, Vec<_>) = deleted
            .map(|(path, deletion)| Question { path: Arc::clone(path), known: Known::Deleted(*deletion) })
            .partition(|question| proof.is_none_or(|proof| question.newest() > proof));
        let newer = [open.split_off(open.len().min(1)), changed].concat();
        let (first, others) = ([open, first].concat(), [proven, others].concat());
        (!first.is_empty() || forgotten > 0).then_some(Comparison { proof, first, newer, others, forgotten })
    }
}

impl Comparison {
    /// Returns the questions of the next round; empty if the judgement so far decides, or all were asked. A parent with
    /// an old write of its own proves little: the servers would repeat the events of all that is newer.
    ///
    /// An ensemble that returns to a backup elects a leader. So only after an election it is worth a request for each change
    /// that no write proves.
    pub(crate) fn next_round(&mut self, so_far: Judgement, is_elected: bool) -> Vec<Question> {
        if !self.first.is_empty() {
            return std::mem::take(&mut self.first);
        }
        let is_open = match so_far {
            Judgement::Unknown => self.can_prove(),
            Judgement::Same { up_to } => Some(up_to) < self.proof,
            Judgement::Doubtful => true,
            Judgement::Other => return Vec::new(),
        };
        let mut round = Vec::new();
        if is_open || is_elected {
            round.append(&mut self.newer);
        }
        if is_open {
            round.append(&mut self.others);
        }
        round
    }

    /// Returns `true` if the client has seen writes, so that the lack of a proof means something.
    pub(crate) const fn can_prove(&self) -> bool {
        self.proof.is_some() || self.forgotten > 0
    }

    /// Combines the judgements of a round. An older write than the known one outweighs all others.
    pub(crate) fn decide(&self, so_far: Judgement, next: Judgement) -> Judgement {
        match (so_far, next) {
            (Judgement::Other, _) | (_, Judgement::Other) => Judgement::Other,
            (Judgement::Doubtful, _) | (_, Judgement::Doubtful) => Judgement::Doubtful,
            (Judgement::Same { up_to: one }, Judgement::Same { up_to: other }) => {
                Judgement::Same { up_to: one.max(other) }
            }
            (Judgement::Unknown, Judgement::Same { up_to }) if up_to >= self.forgotten => Judgement::Same { up_to },
            (so_far, _) => so_far,
        }
    }
}

//! The writes that a client has seen, and whether the history of a server contains them.
//!
//! The transactions of an ensemble are one sequence, so a server that has one write has all writes before it. After a
//! restore from a backup, or a loss of all data, the sequence is another one. Its zxids may be larger than those that
//! the client has seen, so a zxid alone proves nothing.

use std::cmp::Reverse;
use std::collections::{HashMap, VecDeque};
use std::sync::Arc;

use crate::error::Error;
use crate::model::path::parent_of;
use crate::model::{EventType, Stat, WatchedEvent};
use crate::zookeeper::{Done, Operation, Request, Response};

/// The number of writes, and of deletions, that a comparison can use.
const COMPARED: usize = 64;
/// The number of writes above which the oldest are forgotten.
const KEPT: usize = 2 * COMPARED;

/// The newest write to a node, as a stat shows it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Write {
    czxid: i64,
    mzxid: i64,
    pzxid: i64,
    ctime: i64,
    mtime: i64,
}

impl Write {
    const fn of(stat: &Stat) -> Self {
        let Stat { czxid, mzxid, pzxid, ctime, mtime, .. } = *stat;
        Self { czxid, mzxid, pzxid, ctime, mtime }
    }

    fn newest(&self) -> i64 {
        self.mzxid.max(self.pzxid)
    }

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

/// A node that did not exist when the server had this transaction, or one of those just before it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Deletion {
    zxid: i64,
    /// The transaction that had created the node.
    czxid: i64,
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
}

/// The newest writes that replies have shown.
#[derive(Debug, Default)]
pub(crate) struct History {
    writes: HashMap<Arc<str>, Write>,
    /// The known node that was deleted last, and its `czxid`. Its event may precede the reply to its delete.
    last_known: Option<(Arc<str>, i64)>,
    /// The newest deletions of known nodes, the newest last. A restored node of this session would exist as long as the
    /// session.
    deleted: VecDeque<(Arc<str>, Deletion)>,
    /// The newest change of children of a node without a known write: the node, and a transaction not later than the change.
    changed: Option<(Arc<str>, i64)>,
    /// The newest write that was forgotten because newer ones need the room.
    forgotten: i64,
}

impl History {
    /// Creates the history of nodes that were read before.
    pub(crate) fn of(nodes: impl IntoIterator<Item = (String, Stat)>) -> Self {
        let mut history = Self::default();
        nodes.into_iter().for_each(|(path, stat)| history.wrote(&path.into(), &stat));
        history
    }

    /// Records what a reply shows.
    pub(crate) fn replied(&mut self, request: &Request, result: &Result<Response, Error>, zxid: i64) {
        match (request, result) {
            (_, Ok(Response::Created { path, stat }))
            | (Request::Exists { path, .. }, Ok(Response::Exists(Some(stat))))
            | (Request::GetData { path, .. }, Ok(Response::Data(_, stat)))
            | (Request::SetData { path, .. } | Request::SetAcl { path, .. }, Ok(Response::Stat(stat)))
            | (Request::GetAcl { path }, Ok(Response::Acl(_, stat))) => self.wrote(path, stat),
            (Request::Exists { path, .. }, Ok(Response::Exists(None)))
            | (Request::GetData { path, .. }, Err(Error::NoNode { .. }))
            // The reply to an earlier delete may be lost.
            | (Request::Delete { path, .. }, Ok(Response::Deleted) | Err(Error::NoNode { .. })) => {
                self.is_missing(path, zxid);
            }
            (Request::Transaction { operations }, Ok(Response::Done(all))) => {
                operations.iter().zip(all).for_each(|(operation, done)| self.done(operation, done, zxid));
            }
            _ => {}
        }
    }

    /// Records the result of an operation of a transaction.
    fn done(&mut self, operation: &Operation, done: &Done, zxid: i64) {
        match done {
            Done::Created { path, stat } if stat.czxid != 0 => self.wrote_in_transaction(path, stat),
            // The server has sent no stat. The same transaction may have deleted a node of this path.
            Done::Created { path, .. } => self.deleted.retain(|(deleted, _)| **deleted != **path),
            Done::Set(stat) => self.wrote_in_transaction(operation.path(), stat),
            Done::Deleted => self.is_missing(operation.path(), zxid),
            _ => {}
        }
    }

    /// Records the stat of a node.
    fn wrote(&mut self, path: &Arc<str>, stat: &Stat) {
        match self.writes.get_mut(path) {
            Some(write) => *write = Write::of(stat),
            // The root, which is in all histories; and nodes such as the configuration, which each server writes for itself.
            None if stat.mzxid == 0 || path.starts_with("/zookeeper/") => {}
            None => self.insert(Arc::clone(path), stat),
        }
    }

    /// Records the stat of a node of a transaction.
    fn wrote_in_transaction(&mut self, path: &str, stat: &Stat) {
        match self.writes.get_mut(path) {
            Some(write) => *write = Write::of(stat),
            None => self.insert(path.into(), stat),
        }
    }

    fn insert(&mut self, path: Arc<str>, stat: &Stat) {
        self.writes.insert(path, Write::of(stat));
        if self.writes.len() > KEPT {
            let mut all: Vec<_> = self.writes.values().map(Write::newest).collect();
            let (_, &mut oldest, _) = all.select_nth_unstable(KEPT - COMPARED);
            // One transaction may have written them all.
            let mut room = COMPARED - self.writes.values().filter(|write| write.newest() > oldest).count();
            self.writes.retain(|_, write| {
                let is_kept = write.newest() == oldest && room > 0;
                room -= usize::from(is_kept);
                is_kept || write.newest() > oldest
            });
            self.forgotten = self.forgotten.max(oldest);
        }
    }

    /// Records that a node does not exist, as of this transaction.
    pub(crate) fn is_missing(&mut self, path: &str, zxid: i64) {
        self.forget(path);
        if let Some((path, czxid)) = self.last_known.take_if(|(known, _)| **known == *path) {
            self.deleted.push_back((path, Deletion { zxid, czxid }));
        }
        if self.deleted.len() > COMPARED {
            self.deleted.pop_front();
        }
    }

    fn forget(&mut self, path: &str) {
        if let Some((path, write)) = self.writes.remove_entry(path) {
            self.last_known = Some((path, write.czxid));
        }
    }

    /// Records the event of a transaction behind this one. After a change of its children, a node has a pzxid of that
    /// transaction or a later one, even if the client does not read its stat again.
    pub(crate) fn notified(&mut self, event: &WatchedEvent, zxid: i64) {
        let path = &*event.path;
        let parent = match event.event_type {
            EventType::NodeDeleted => {
                self.forget(path);
                parent_of(path)
            }
            EventType::NodeCreated => parent_of(path),
            EventType::NodeChildrenChanged => path,
            EventType::NodeDataChanged => return,
        };
        match (self.writes.get_mut(parent), &mut self.changed) {
            (Some(write), _) => write.pzxid = write.pzxid.max(zxid + 1),
            (None, Some((known, pzxid))) if **known == *parent => *pzxid = (*pzxid).max(zxid + 1),
            (None, changed) if changed.as_ref().is_none_or(|(_, pzxid)| *pzxid <= zxid + 1) => {
                *changed = Some((parent.into(), zxid + 1));
            }
            _ => {}
        }
    }

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

    /// Begins a comparison with a server. `None` if the client has seen nothing that a server can confirm or refute.
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

impl Question {
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
    first: Vec<Question>,
    /// The questions about further deletions, and changes of children, that are newer than all writes.
    newer: Vec<Question>,
    others: Vec<Question>,
    /// The newest write for which no question asks.
    forgotten: i64,
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::CreateMode;

    fn stat(czxid: i64, mzxid: i64) -> Stat {
        Stat { czxid, mzxid, pzxid: czxid, ctime: czxid, mtime: mzxid, ..Stat::default() }
    }

    fn history(writes: &[(&str, Stat)]) -> History {
        let mut history = History::default();
        writes.iter().for_each(|(path, stat)| history.wrote(&Arc::from(*path), stat));
        history
    }

    /// Plays a comparison with a server that has these nodes. Returns the judgement and the paths of each round.
    fn compare(history: &History, server: &[(&str, Stat)]) -> (Judgement, Vec<Vec<String>>) {
        compare_after_election(history, server, false)
    }

    fn compare_after_election(
        history: &History,
        server: &[(&str, Stat)],
        is_elected: bool,
    ) -> (Judgement, Vec<Vec<String>>) {
        let (mut rounds, mut judgement) = (Vec::new(), Judgement::Unknown);
        let mut comparison = history.compare().expect("something is known");
        loop {
            let round = comparison.next_round(judgement, is_elected);
            if round.is_empty() {
                break;
            }
            for question in &round {
                let found = server.iter().find(|(path, _)| *path == &*question.path).map(|(_, stat)| stat);
                judgement = comparison.decide(judgement, question.judge(found));
            }
            rounds.push(round.iter().map(|question| question.path.to_string()).collect());
        }
        (judgement, rounds)
    }

    #[test]
    fn newest_unchanged_write_proves_the_history_in_one_round() {
        let known = history(&[("/a", stat(1, 5)), ("/b", stat(2, 7)), ("/c", stat(3, 3))]);
        let same = [("/a", stat(1, 5)), ("/b", stat(2, 7)), ("/c", stat(3, 3))];
        assert_eq!(compare(&known, &same), (Judgement::Same { up_to: 7 }, vec![vec!["/b".to_owned()]]));
    }

    #[test]
    fn configuration_of_a_server_proves_nothing() {
        assert!(history(&[("/zookeeper/config", stat(1, 5))]).compare().is_none());
    }

    #[test]
    fn older_write_or_other_times_prove_another_history() {
        let known = history(&[("/a", stat(1, 5))]);
        for found in [stat(1, 4), stat(2, 5), Stat { mtime: 6, ..stat(1, 5) }, Stat { ctime: 6, ..stat(1, 5) }] {
            assert_eq!(compare(&known, &[("/a", found)]).0, Judgement::Other, "{found:?}");
        }
    }

    #[test]
    fn smaller_pzxid_is_no_proof_of_another_history() {
        let known = history(&[("/a", stat(1, 5)), ("/b", stat(2, 4))]);
        let found = [("/a", Stat { pzxid: 0, ..stat(1, 5) }), ("/b", stat(2, 4))];
        assert_eq!(compare(&known, &found).0, Judgement::Doubtful);
    }

    #[test]
    fn newer_writes_and_missing_nodes_leave_it_to_the_others() {
        let known = history(&[("/a", stat(1, 5)), ("/b", stat(2, 7)), ("/c", stat(3, 8))]);
        let (judgement, rounds) = compare(&known, &[("/a", stat(1, 5)), ("/b", stat(2, 9))]);
        assert_eq!((judgement, rounds.len()), (Judgement::Same { up_to: 5 }, 2));
        // Behind a node that was written again another one is rolled back.
        assert_eq!(compare(&known, &[("/a", stat(1, 4)), ("/b", stat(2, 9))]).0, Judgement::Other);
        assert_eq!(compare(&known, &[]).0, Judgement::Unknown);
    }

    /// Two parents have lost a child. One of them has changed again since the servers returned to a backup.
    #[test]
    fn all_parents_that_are_not_proven_are_asked_for_after_an_election() {
        let lost = |path, pzxid| (path, Stat { pzxid, ..stat(1, 1) });
        let known = history(&[lost("/a", 9), lost("/b", 8), ("/c", stat(5, 5))]);
        let server = [lost("/a", 20), lost("/b", 4), ("/c", stat(5, 5))];
        assert_eq!(compare_after_election(&known, &server, true).0, Judgement::Doubtful);
        let rounds = vec![vec!["/a".to_owned(), "/c".to_owned()]];
        assert_eq!(compare(&known, &[lost("/a", 9), ("/c", stat(5, 5))]), (Judgement::Same { up_to: 5 }, rounds));
    }

    /// As in a busy tree. The servers repeat what is newer than the creations.
    #[test]
    fn nodes_that_were_all_written_again_prove_their_creations() {
        let known = history(&[("/a", stat(1, 5)), ("/b", stat(2, 7))]);
        let written = [("/a", stat(1, 9)), ("/b", stat(2, 8))];
        assert_eq!(compare(&known, &written).0, Judgement::Same { up_to: 2 });
        let other = Stat { ctime: 3, ..stat(2, 8) };
        assert_eq!(compare(&known, &[("/a", stat(10, 10)), ("/b", other)]).0, Judgement::Other);
        // Of the children that the client knows the server knows nothing.
        let known = history(&[("/a", Stat { pzxid: 6, ..stat(1, 5) }), ("/b", stat(2, 2))]);
        let written = [("/a", Stat { pzxid: 3, ..stat(1, 9) }), ("/b", stat(2, 2))];
        assert_eq!(compare(&known, &written).0, Judgement::Doubtful);
    }

    /// The last change is that of a list of children.
    #[test]
    fn newest_write_is_asked_for_besides_the_newest_change() {
        let known = history(&[("/a", Stat { pzxid: 9, ..stat(1, 2) }), ("/b", stat(3, 3)), ("/c", stat(7, 7))]);
        let rounds = vec![vec!["/a".to_owned(), "/c".to_owned()]];
        let same = [("/a", Stat { pzxid: 9, ..stat(1, 2) }), ("/c", stat(7, 7))];
        assert_eq!(compare(&known, &same), (Judgement::Same { up_to: 7 }, rounds));
        let rolled_back = [("/a", Stat { pzxid: 8, ..stat(1, 2) }), ("/c", stat(7, 7))];
        assert_eq!(compare(&known, &rolled_back).0, Judgement::Doubtful);
    }

    /// The node with the newest write is gone, and the parent with the newest change was written long ago.
    #[test]
    fn old_write_of_a_parent_is_not_the_newest_proof() {
        let parent = Stat { pzxid: 9, ..stat(1, 1) };
        let known = history(&[("/a", parent), ("/a/b", stat(3, 5)), ("/a/c", stat(6, 8))]);
        let rounds = vec![vec!["/a".to_owned(), "/a/c".to_owned()], vec!["/a/b".to_owned()]];
        let server = [("/a", Stat { pzxid: 12, ..parent }), ("/a/b", stat(3, 5))];
        assert_eq!(compare(&known, &server), (Judgement::Same { up_to: 5 }, rounds));
    }

    #[test]
    fn node_that_was_deleted_must_not_exist_again() {
        let mut known = history(&[("/a", stat(1, 5)), ("/b", stat(2, 2))]);
        known.is_missing("/b", 9);
        let asked = compare(&known, &[("/a", stat(1, 5))]);
        assert_eq!(asked, (Judgement::Same { up_to: 5 }, vec![vec!["/b".to_owned(), "/a".to_owned()]]));
        assert_eq!(compare(&known, &[("/a", stat(1, 5)), ("/b", stat(2, 2))]).0, Judgement::Other);
        // It may have been created while the reply was written.
        assert_eq!(compare(&known, &[("/a", stat(1, 5)), ("/b", stat(9, 9))]).0, Judgement::Doubtful);
        // The event of the deletion came first, and reads found nothing later.
        let mut known = history(&[("/a", stat(1, 5)), ("/b", stat(2, 2))]);
        (8..11).for_each(|zxid| known.is_missing("/b", zxid));
        assert_eq!(compare(&known, &[("/a", stat(1, 5)), ("/b", stat(2, 2))]).0, Judgement::Other);
        // It was created again later.
        assert_eq!(compare(&known, &[("/a", stat(1, 5)), ("/b", stat(11, 11))]).0, Judgement::Same { up_to: 5 });
    }

    /// Returns the history of a client that has created and deleted these nodes.
    fn deleted(nodes: &[(&str, i64)]) -> History {
        let mut known = History::default();
        for (path, zxid) in nodes {
            known.wrote(&Arc::from(*path), &stat(*zxid, *zxid));
            known.is_missing(path, zxid + 1);
        }
        known
    }

    fn paths(rounds: &[&[&str]]) -> Vec<Vec<String>> {
        rounds.iter().map(|round| round.iter().map(|path| (*path).to_owned()).collect()).collect()
    }

    #[test]
    fn all_deletions_that_are_not_proven_are_asked_for_after_an_election() {
        let mut known = deleted(&[("/a", 4), ("/b", 6), ("/c", 8)]);
        assert_eq!(compare(&known, &[]), (Judgement::Unknown, paths(&[&["/c"]])));
        assert_eq!(compare_after_election(&known, &[], true), (Judgement::Unknown, paths(&[&["/c"], &["/b", "/a"]])));
        assert_eq!(compare_after_election(&known, &[("/a", stat(4, 4))], true).0, Judgement::Other);
        known.wrote(&"/proof".into(), &stat(5, 5));
        let server = [("/proof", stat(5, 5))];
        let same = Judgement::Same { up_to: 5 };
        assert_eq!(compare(&known, &server), (same, paths(&[&["/c", "/proof"]])));
        assert_eq!(compare_after_election(&known, &server, true), (same, paths(&[&["/c", "/proof"], &["/b"]])));
        // The server lacks the newest write, so an older one proves less.
        known.wrote(&"/new".into(), &stat(9, 9));
        assert_eq!(compare(&known, &server), (same, paths(&[&["/new"], &["/c", "/b", "/a", "/proof"]])));
        assert_eq!(compare(&known, &[server[0], ("/b", stat(6, 6))]).0, Judgement::Other);
    }

    #[test]
    fn only_the_newest_deletions_are_kept() {
        let nodes: Vec<_> = (0..1000).map(|number| (format!("/{number}"), 2 * number)).collect();
        let nodes: Vec<_> = nodes.iter().map(|(path, zxid)| (&path[..], *zxid)).collect();
        let known = deleted(&nodes);
        assert_eq!(known.deleted.len(), COMPARED);
        assert_eq!(compare_after_election(&known, &[("/936", stat(1872, 1872))], true).0, Judgement::Other);
    }

    #[test]
    fn children_of_a_forgotten_node_must_have_changed() {
        let mut known = history(&[("/a", stat(1, 5))]);
        for (event_type, path) in
            [(EventType::NodeDeleted, "/p/c"), (EventType::NodeCreated, "/p/c"), (EventType::NodeChildrenChanged, "/p")]
        {
            known.notified(&WatchedEvent { event_type, path: path.to_owned() }, 8);
            let server = |pzxid| [("/a", stat(1, 5)), ("/p", Stat { pzxid, ..stat(2, 2) })];
            let rounds = vec![vec!["/p".to_owned(), "/a".to_owned()]];
            assert_eq!(compare(&known, &server(9)), (Judgement::Same { up_to: 5 }, rounds));
            assert_eq!(compare(&known, &server(8)).0, Judgement::Doubtful);
        }
        known.wrote(&"/a".into(), &stat(1, 9));
        assert_eq!(compare(&known, &[("/a", stat(1, 9))]).1, [["/a"]], "a newer write proves the change");
    }

    /// As a create-or-replace in one transaction does it.
    #[test]
    fn node_that_one_transaction_deletes_and_creates_is_no_deleted_one() {
        let mut known = history(&[("/a", stat(1, 5))]);
        known.is_missing("/a", 9);
        known.wrote_in_transaction("/a", &stat(9, 9));
        let asked = compare(&known, &[("/a", stat(9, 9))]);
        assert_eq!(asked, (Judgement::Same { up_to: 9 }, vec![vec!["/a".to_owned()]]));
        // Apache sends no stat of a node that is created in a transaction.
        let mut known = history(&[("/a", stat(1, 5)), ("/b", stat(2, 2))]);
        let delete = Operation::Delete { path: "/a".into(), version: None };
        let create = Operation::Create { path: "/a".into(), data: vec![], acl: vec![], mode: CreateMode::Ephemeral };
        let created = Done::Created { path: "/a".into(), stat: Stat::default() };
        known.done(&delete, &Done::Deleted, 9);
        known.done(&create, &created, 9);
        let asked = compare(&known, &[("/a", stat(9, 9)), ("/b", stat(2, 2))]);
        assert_eq!(asked, (Judgement::Same { up_to: 2 }, vec![vec!["/b".to_owned()]]));
    }

    /// The first delete was applied, and its reply was lost.
    #[test]
    fn node_that_a_repeated_delete_does_not_find_is_a_deleted_one() {
        let mut known = history(&[("/a", stat(1, 5)), ("/b", stat(2, 2))]);
        let delete = Request::Delete { path: "/a".into(), version: None };
        known.replied(&delete, &Err(Error::NoNode { path: "/a".into() }), 9);
        assert_eq!(compare(&known, &[("/a", stat(1, 5)), ("/b", stat(2, 2))]).0, Judgement::Other);
    }

    #[test]
    fn only_the_newest_writes_are_kept_and_no_older_one_proves_what_was_forgotten() {
        let mut known = History::default();
        for zxid in 1..=1000 {
            known.wrote(&format!("/{zxid}").into(), &stat(zxid, zxid));
        }
        assert!(known.writes.len() <= KEPT && known.forgotten >= 1000 - KEPT as i64);
        assert!(known.writes.contains_key("/1000"));
        let asked = known.compare().unwrap();
        assert_eq!(asked.first.len() + asked.others.len(), COMPARED);
        let found = stat(1000, 1000);
        assert_eq!(compare(&known, &[("/1000", found)]).0, Judgement::Same { up_to: 1000 });
        (known.forgotten + 1..=1000).for_each(|zxid| known.is_missing(&format!("/{zxid}"), 1001));
        known.wrote(&"/old".into(), &stat(1, 1));
        assert_eq!(compare(&known, &[("/old", stat(1, 1))]).0, Judgement::Unknown);
        // All others were deleted by other clients.
        known.forget("/old");
        assert!(known.writes.is_empty() && known.compare().unwrap().can_prove());
    }

    /// A parent with the newest change has an old write, and the server lacks all newer writes.
    #[test]
    fn older_write_proves_nothing_if_newer_ones_are_not_asked_for() {
        for (children, judgement) in [(COMPARED - 1, Judgement::Same { up_to: 2 }), (COMPARED, Judgement::Unknown)] {
            let mut known = history(&[("/p", Stat { pzxid: 500, ..stat(1, 2) })]);
            for zxid in (3..).take(children) {
                known.wrote(&format!("/p/{zxid}").into(), &stat(zxid, zxid));
            }
            assert_eq!(compare(&known, &[("/p", Stat { pzxid: 900, ..stat(1, 2) })]).0, judgement);
        }
    }
}

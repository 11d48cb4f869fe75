use std::sync::Arc;

use super::writes::{COMPARED, KEPT};
use super::*;
use crate::error::Error;
use crate::model::{CreateMode, EventType, Stat, WatchedEvent};
use crate::zookeeper::{Done, Operation, Read, ReadDone, Request, Response};

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
fn reads_of_one_request_are_known_like_others() {
    let mut known = history(&[("/a", stat(1, 5)), ("/c", stat(3, 3))]);
    let paths = ["/a", "/b", "/c", "/zookeeper/config"];
    let reads = paths.map(|path| Read::GetData { path: path.to_owned() }).to_vec();
    let done = |stat| ReadDone::Data(Vec::new(), stat);
    let config = stat(9, 9);
    let all = vec![done(stat(1, 6)), done(stat(2, 7)), ReadDone::Failed(-101), done(config)];
    known.replied(&Request::MultiRead { reads }, &Ok(Response::Reads(all)), 8);
    let mut paths: Vec<_> = known.writes.iter().map(|(path, write)| (&**path, write.mzxid)).collect();
    paths.sort_unstable();
    assert_eq!(paths, [("/a", 6), ("/b", 7)]);
    assert_eq!(known.deleted.len(), 1);
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

/// The last change is in a list of children.
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
        known.notified(&WatchedEvent { event_type, path: path.to_owned() }, Some(8));
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

#[test]
fn event_behind_the_largest_transaction_does_not_overflow() {
    let mut known = history(&[("/a", stat(3, 4))]);
    for path in ["/a", "/b", "/b"] {
        known.notified(
            &WatchedEvent { event_type: EventType::NodeChildrenChanged, path: path.to_owned() },
            Some(i64::MAX),
        );
    }
    assert_eq!(compare(&known, &[("/a", stat(3, 4))]).0, Judgement::Doubtful);
}

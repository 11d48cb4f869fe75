//! The cost of a group. The tables of `Group` and `GroupMember` have these numbers.

use curator_framework::CuratorFramework;
use curator_integration::env::in_time;
use curator_recipes::{Group, GroupMember, GroupMemberOptions, GroupState, Members, NodeError};
use curator_test::wire::OpCode::{
    self, AddWatch, Create2, CreateSession, Delete, Exists, GetChildren, GetData, RemoveWatches, SetData, SetWatches,
    SetWatches2, Sync,
};
use tokio::time::Instant;

use crate::meter::{Stage, round_trips};

const GROUP: &str = "/app/group";

async fn sees(group: &Group, is_meant: impl Fn(&Members) -> bool) -> Members {
    let is_meant = |state: &GroupState| matches!(state, GroupState::Known(members) if is_meant(members));
    in_time(group.watch().wait_for(is_meant)).await.unwrap();
    group.members().unwrap()
}

fn member(client: &CuratorFramework, id: &str) -> GroupMember {
    let member = GroupMember::with_options(client.clone(), GROUP, id, GroupMemberOptions::new().data("data"));
    let member = member.unwrap();
    member.start().unwrap();
    member
}

/// Creates the nodes of so many members.
async fn fill(client: &CuratorFramework, members: usize) {
    for number in 0..members {
        client.create().creating_parents_if_needed().for_path(&format!("{GROUP}/{number:03}")).await.unwrap();
    }
}

/// The requests of an observer of so many members, and the observer.
async fn observed(stage: &Stage, members: usize) -> (Group, Vec<OpCode>) {
    fill(&stage.observer, members).await;
    stage.requests().await;
    let group = curator_integration::following::group(stage.client.clone(), GROUP);
    sees(&group, |seen| seen.len() == members).await;
    let requests = stage.requests().await;
    (group, requests)
}

#[tokio::test]
async fn a_start_lists_once_and_reads_each_member() {
    for members in [0, 1, 10, 100] {
        let stage = Stage::new(GROUP).await;
        let (_group, requests) = observed(&stage, members).await;
        let reads = std::iter::repeat_n(GetData, members);
        assert_eq!(requests, [Sync, AddWatch, GetChildren].into_iter().chain(reads).collect::<Vec<_>>(), "{members}");
    }
}

#[tokio::test]
async fn an_observer_reads_what_has_changed() {
    let stage = Stage::new(GROUP).await;
    let (group, _) = observed(&stage, 10).await;
    let create = stage.observer.create();
    create.for_path(&format!("{GROUP}/new")).await.unwrap();
    sees(&group, |seen| seen.contains("new")).await;
    assert_eq!(stage.requests().await, [Create2, GetChildren, GetData], "join");
    stage.observer.set_data().for_path(&format!("{GROUP}/new"), "more").await.unwrap();
    sees(&group, |seen| seen.get("new").is_some_and(|member| member.data == b"more")).await;
    assert_eq!(stage.requests().await, [SetData, GetData], "data");
    stage.observer.delete().for_path(&format!("{GROUP}/new")).await.unwrap();
    sees(&group, |seen| !seen.contains("new")).await;
    let leave = stage.requests().await;
    // If the notification of the node precedes the listing's by more than a moment, the node is read.
    let alternatives = [&[Delete, GetChildren][..], &[Delete, GetData, GetChildren]];
    assert!(alternatives.contains(&&*leave), "{leave:?}");
}

#[tokio::test]
async fn a_reconnect_of_an_observer_is_the_connect_and_the_watches() {
    let stage = Stage::new(GROUP).await;
    let (group, _) = observed(&stage, 10).await;
    stage.reconnect().await;
    // The members, the recursive watch, and the listing.
    assert_eq!(stage.requests().await, [CreateSession, Exists, SetWatches, SetWatches2, SetWatches]);
    assert_eq!(group.members().unwrap().len(), 10);
}

/// Returns how many of these requests are there, and how many in all.
fn count(requests: &[OpCode], op: OpCode) -> (usize, usize) {
    (requests.iter().filter(|one| **one == op).count(), requests.len())
}

#[tokio::test]
async fn a_member_that_is_not_asked_costs_its_node() {
    let stage = Stage::new(GROUP).await;
    fill(&stage.observer, 10).await;
    stage.requests().await;
    let joining = member(&stage.client, "one");
    in_time(joining.join()).await.unwrap();
    stage.observer.delete().for_path(&format!("{GROUP}/000")).await.unwrap();
    stage.observer.set_data().for_path(&format!("{GROUP}/001"), "more").await.unwrap();
    tokio::time::sleep(Stage::QUIET).await;
    assert_eq!(stage.requests().await, [Create2, Exists, Delete, SetData]);
    assert_eq!(stage.server.watch_count(), 1, "that on its own node");
    in_time(joining.close()).await;
    let mut close = stage.requests().await;
    close.retain(|op| *op != RemoveWatches);
    assert_eq!(close, [Delete]);
}

/// Each call that asks for the others starts the following, before the start of the member too.
#[tokio::test]
async fn a_member_that_is_asked_also_costs_its_observer() {
    let asks: [fn(&GroupMember); 5] = [
        |member| drop(member.members()),
        |member| drop(member.watch()),
        |member| drop(member.changes()),
        |member| drop(member.group().state()),
        |member| drop(futures_util::FutureExt::now_or_never(member.group().initialized())),
    ];
    for ask in asks {
        for is_early in [true, false] {
            let stage = Stage::new(GROUP).await;
            let joining = GroupMember::new(stage.client.clone(), GROUP, "one").unwrap();
            if is_early {
                ask(&joining);
            }
            joining.start().unwrap();
            in_time(joining.join()).await.unwrap();
            ask(&joining);
            in_time(joining.group().initialized()).await.unwrap();
            let mut requests = stage.requests().await;
            requests.sort_unstable_by_key(|op| format!("{op:?}"));
            // The listing may be earlier than the node.
            requests.dedup();
            assert_eq!(requests, [AddWatch, Create2, Exists, GetChildren, GetData, Sync]);
        }
    }
}

/// The members that see each other in the test of all.
const ALL: usize = 100;

/// A watch on each member would cost 10,100 watches.
#[tokio::test]
async fn members_that_all_follow_have_two_watches_each_beside_those_on_their_nodes() {
    let stage = Stage::new(GROUP).await;
    let (mut clients, mut members) = (Vec::new(), Vec::new());
    for number in 0..ALL {
        let client = curator_integration::in_process::client(&stage.server).await;
        members.push(member(&client, &format!("{number:03}")));
        clients.push(client);
    }
    for member in &members {
        in_time(member.join()).await.unwrap();
    }
    assert_eq!(stage.server.watch_count(), ALL, "nobody follows, and each watches its own node");
    for member in &members {
        sees(member.group(), |seen| seen.len() == ALL).await;
    }
    // The server counts a recursive watch twice, until the listing takes the second place.
    let following = stage.server.watch_count() - ALL;
    assert!(following <= 2 * ALL, "{following} watches of {ALL} members that follow");
    // All of them hear of a change.
    in_time(members[0].set_data("more")).await.unwrap();
    for member in &members {
        sees(member.group(), |seen| seen.get("000").is_some_and(|member| member.data == b"more")).await;
    }
}

#[tokio::test]
async fn a_member_costs_its_node_and_its_observer() {
    let stage = Stage::new(GROUP).await;
    let joining = member(&stage.client, "one");
    in_time(joining.join()).await.unwrap();
    assert_eq!(stage.requests().await, [Create2, Exists]);
    in_time(joining.group().initialized()).await.unwrap();
    assert_eq!(stage.requests().await, [Sync, AddWatch, GetChildren, GetData]);
    in_time(joining.set_data("more")).await.unwrap();
    sees(joining.group(), |seen| seen.get("one").is_some_and(|one| one.data == b"more")).await;
    let write = stage.requests().await;
    assert_eq!([SetData, Exists, GetData].map(|op| count(&write, op)), [(1, 3); 3], "{write:?}");
    in_time(joining.close()).await;
    let close = stage.requests().await;
    // The deletion is faster than the removal of the watch on its own node, or not.
    let alternatives = [[(1, 3), (2, 3)], [(1, 4), (3, 4)]];
    assert!(alternatives.contains(&[Delete, RemoveWatches].map(|op| count(&close, op))), "{close:?}");
}

#[tokio::test]
async fn a_member_behind_one_with_its_id_waits_without_requests() {
    let stage = Stage::new(GROUP).await;
    let first = member(&stage.observer, "same");
    in_time(first.join()).await.unwrap();
    let second = member(&stage.client, "same");
    let answer = second.join_timeout(Stage::QUIET).await;
    assert!(matches!(answer, Err(NodeError::DuplicateMember { .. })), "{answer:?}");
    stage.requests().await;
    let answer = second.join_timeout(Stage::QUIET).await;
    assert!(matches!(answer, Err(NodeError::DuplicateMember { .. })), "{answer:?}");
    assert_eq!(stage.requests().await, []);
}

#[tokio::test(start_paused = true)]
async fn round_trips_of_a_group() {
    let start = round_trips(async |_, client| {
        client.create().creating_parents_if_needed().for_path(GROUP).await.unwrap();
        fill(client, 5).await;
        let began = Instant::now();
        let group = curator_integration::following::group(client.clone(), GROUP);
        sees(&group, |seen| seen.len() == 5).await;
        began.elapsed()
    });
    assert_eq!(start.await, 3, "start");
    let join = round_trips(async |_, client| {
        client.create().creating_parents_if_needed().for_path(GROUP).await.unwrap();
        let began = Instant::now();
        member(client, "one").join().await.unwrap();
        began.elapsed()
    });
    assert_eq!(join.await, 1, "join");
}

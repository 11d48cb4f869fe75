//! Groups and nodes where the server changes: a loss of all data, containers that are deleted, and the requests of a
//! group, counted by the in-process server.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use curator_framework::recipe::RecipeClient as _;
use curator_framework::{Acl, AddWatchMode, CompressionProvider, ConnectionState, Error, Permission, RetryNTimes};
use curator_integration::connection_stage::comes_to;
use curator_integration::env::{connected, eventually, in_time};
use curator_integration::in_process::{client, options, server};
use curator_recipes::{
    Group, GroupMember, GroupState, MemberChange, Members, NodeError, NodeState, Owner, PersistentNode,
};
use curator_test::wire::{ErrorCode, OpCode};
use curator_test::{FaultProxy, LoggedRequest, TestingServer};

use crate::stage::{LONG, MODES, SHORT, stands, started, take_down, through};

/// Waits until a group has members as wanted.
async fn has(group: &Group, mut wanted: impl FnMut(&Members) -> bool) {
    let known = |state: &GroupState| matches!(state, GroupState::Known(members) if wanted(members));
    in_time(group.watch().wait_for(known)).await.unwrap();
}

async fn joined(client: &curator_framework::CuratorFramework, group: &str, id: &str) -> GroupMember {
    let member = GroupMember::new(client.clone(), group, id).unwrap();
    member.start().unwrap();
    in_time(member.join()).await.unwrap();
    member
}

fn reads(server: &TestingServer) -> Vec<LoggedRequest> {
    let kinds = [OpCode::GetData, OpCode::GetChildren, OpCode::GetChildren2, OpCode::Exists, OpCode::Sync];
    server.requests().into_iter().filter(|request| kinds.contains(&request.op)).collect()
}

/// The server starts again, without any data.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nodes_and_members_stand_again_on_a_server_without_data() {
    let server = server();
    let retry = RetryNTimes::new(1000, Duration::from_millis(50));
    let client = connected(options(&server).session_timeout(SHORT).retry_policy(retry)).await;
    let nodes = MODES.map(|mode| started(&client, mode, &format!("/test/{mode:?}"), "mine"));
    let member = joined(&client, "/group", "ann").await;
    let mut paths = Vec::new();
    for node in &nodes {
        paths.push(stands(node).await.path);
    }
    for _ in 0..2 {
        tokio::task::block_in_place(|| server.restart_empty()).unwrap();
        eventually("all of them stand again", async || {
            paths.iter().all(|path| server.data(path).is_some_and(|data| data == b"mine"))
                && server.exists("/group/ann")
        })
        .await;
        has(member.group(), |members| members.contains("ann")).await;
        for node in &nodes {
            in_time(node.watch().wait_for(|state| matches!(state, NodeState::Standing(_)))).await.unwrap();
        }
    }
}

/// The group's path is a container, which the server deletes when the last member has left.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn group_is_followed_through_the_end_of_its_container() {
    let server = TestingServer::builder().container_check_interval(Duration::from_millis(20)).start().unwrap();
    let (client, other) = (client(&server).await, client(&server).await);
    let group = curator_integration::following::group(other, "/groups/one");
    for _ in 0..5 {
        let member = GroupMember::new(client.clone(), "/groups/one", "ann").unwrap();
        member.start().unwrap();
        let own = in_time(member.join()).await.unwrap();
        has(&group, |members| members.get("ann") == Some(&own)).await;
        in_time(member.close()).await;
        has(&group, Members::is_empty).await;
        eventually("the container is gone", async || !server.exists("/groups")).await;
    }
}

/// A reconnect sets the watches again, and reads nothing.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn reconnect_costs_a_group_no_read() {
    const MEMBERS: usize = 50;
    let server = server();
    let proxy = FaultProxy::start(server.address()).unwrap();
    let (client, direct) = (connected(through(&proxy, LONG).reap_interval(None)).await, client(&server).await);
    let group = curator_integration::following::group(client.clone(), "/group");
    let mut members = Vec::new();
    for number in 0..MEMBERS {
        members.push(joined(if number % 2 == 0 { &client } else { &direct }, "/group", &number.to_string()).await);
    }
    for seen in members.iter().map(GroupMember::group).chain([&group]) {
        has(seen, |members| members.len() == MEMBERS).await;
    }
    // Nothing is on its way.
    for client in [&client, &direct] {
        client.check_exists().for_path("/").await.unwrap();
    }
    for _ in 0..3 {
        server.clear_requests();
        take_down(&proxy);
        comes_to(&client, ConnectionState::Suspended).await;
        proxy.accept();
        comes_to(&client, ConnectionState::Reconnected).await;
        client.check_exists().for_path("/fence").await.unwrap();
        let reads: Vec<_> = reads(&server).into_iter().filter(|read| read.path.as_deref() != Some("/fence")).collect();
        // The question about the newest known write.
        assert!(reads.len() <= 2 && reads.iter().all(|read| read.op == OpCode::Exists), "{reads:?}");
    }
    // The watches work: one member leaves, one changes.
    server.clear_requests();
    in_time(members.remove(1).close()).await;
    in_time(members[1].set_data("newer")).await.unwrap();
    has(&group, |members| {
        members.len() == MEMBERS - 1 && members.get("2").is_some_and(|member| member.data == b"newer")
    })
    .await;
}

/// A group and another waiter for the children of its path wake each other at most once.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn removal_of_a_watch_costs_the_followers_of_a_path_few_listings() {
    let server = server();
    let (client, direct) = (client(&server).await, client(&server).await);
    let member = joined(&direct, "/group", "ann").await;
    let groups = ["/group"; 2].map(|path| curator_integration::following::group(client.clone(), path));
    for group in &groups {
        has(group, |members| members.contains("ann")).await;
    }
    let other = client.clone();
    let waiter = tokio::spawn(async move {
        loop {
            let (members, changed) = other.get_children().watched().for_path("/group").await.unwrap();
            if members.is_empty() {
                break;
            }
            changed.await;
        }
    });
    server.clear_requests();
    for _ in 0..5 {
        drop(client.add_watch("/group", AddWatchMode::Persistent).await.unwrap());
        drop(client.add_watch("/group", AddWatchMode::PersistentRecursive).await.unwrap());
    }
    let [first, second] = groups;
    in_time(first.close()).await;
    in_time(second.close()).await;
    in_time(member.close()).await;
    in_time(waiter).await.unwrap();
    let requests = server.requests().len();
    assert!(requests < 100, "{requests} requests");
}

/// Servers before 3.6 do not know the request for a persistent watch: they close the connection.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn group_is_followed_on_a_server_without_persistent_watches() {
    const MANY: usize = 1000;
    let server = server();
    let (client, direct) = (client(&server).await, client(&server).await);
    server.refuse(OpCode::AddWatch, MANY, ErrorCode::Unimplemented);
    let groups = ["/group", "/group", "/later"].map(|path| curator_integration::following::group(client.clone(), path));
    let member = joined(&direct, "/group", "ann").await;
    for group in &groups[..2] {
        has(group, |members| members.contains("ann")).await;
    }
    has(&groups[2], Members::is_empty).await;
    in_time(member.set_data("newer")).await.unwrap();
    let late = joined(&direct, "/later", "bob").await;
    for group in &groups[..2] {
        has(group, |members| members.get("ann").is_some_and(|ann| ann.data == b"newer")).await;
    }
    has(&groups[2], |members| members.contains("bob")).await;
    in_time(late.close()).await;
    has(&groups[2], Members::is_empty).await;
    // Each such request costs all recipes of the client their connection. The groups start at once.
    let asked = MANY - server.refusals_left();
    assert!((1..=groups.len()).contains(&asked), "{asked}");
    let session = client.session().await.unwrap();
    let epoch = session.epoch();
    let next = curator_integration::following::group(client.clone(), "/group");
    has(&next, |members| members.contains("ann")).await;
    assert_eq!((session.epoch(), MANY - server.refusals_left()), (epoch, asked));
}

/// Decompresses nothing, and waits for the given time.
#[derive(Debug, Clone, Default)]
struct Slow {
    waits: Arc<AtomicBool>,
    begun: Arc<AtomicUsize>,
}

impl CompressionProvider for Slow {
    fn compress(&self, _path: &str, data: &[u8]) -> io::Result<Vec<u8>> {
        Ok(data.to_vec())
    }

    fn decompress(&self, _path: &str, compressed: &[u8]) -> io::Result<Vec<u8>> {
        self.begun.fetch_add(1, Ordering::SeqCst);
        tokio::task::block_in_place(|| {
            while self.waits.load(Ordering::SeqCst) {
                std::thread::sleep(Duration::from_millis(1));
            }
        });
        Ok(compressed.to_vec())
    }
}

/// The connection is lost and back between the reply to the read and its use: the reply may be too old by then.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn group_with_one_member_reads_it_again_behind_an_outage_in_its_read() {
    let (server, slow) = (server(), Slow::default());
    let proxy = FaultProxy::start(server.address()).unwrap();
    let direct = client(&server).await;
    let options = through(&proxy, LONG).enable_compression().compression_provider(slow.clone());
    let client = connected(options).await;
    let member = joined(&direct, "/group", "ann").await;
    let group = curator_integration::following::group(client.clone(), "/group");
    has(&group, |members| members.contains("ann")).await;
    for round in 0..3 {
        let begun = slow.begun.load(Ordering::SeqCst);
        slow.waits.store(true, Ordering::SeqCst);
        in_time(member.set_data(format!("first {round}"))).await.unwrap();
        eventually("it is being read", async || slow.begun.load(Ordering::SeqCst) > begun).await;
        take_down(&proxy);
        comes_to(&client, ConnectionState::Suspended).await;
        in_time(member.set_data(format!("second {round}"))).await.unwrap();
        proxy.accept();
        comes_to(&client, ConnectionState::Reconnected).await;
        slow.waits.store(false, Ordering::SeqCst);
        let data = format!("second {round}");
        has(&group, |members| members.get("ann").is_some_and(|ann| ann.data == data.as_bytes())).await;
    }
}

/// The debug text shows the state, and does not ask for the members.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn group_of_a_member_that_is_not_asked_ends_with_its_client() {
    let server = server();
    let client = client(&server).await;
    let member = joined(&client, "/group", "ann").await;
    assert!(format!("{:?}", member.group()).contains("Loading"));
    in_time(client.close()).await;
    eventually("the group is closed", async || format!("{:?}", member.group()).contains("Closed")).await;
    assert!(matches!(member.group().state(), GroupState::Closed));
}

/// A member that joins, leaves or changes costs an observer a read or two, however large the group is.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn change_of_a_group_costs_an_observer_few_reads() {
    const MEMBERS: usize = 100;
    let server = server();
    let (client, other) = (client(&server).await, client(&server).await);
    let quiet = connected(options(&server).reap_interval(None)).await;
    let mut nodes = Vec::new();
    for number in 0..MEMBERS {
        nodes.push(started(&client, curator_framework::CreateMode::Ephemeral, &format!("/group/{number}"), ""));
    }
    for node in &nodes {
        stands(node).await;
    }
    let group = curator_integration::following::group(quiet.clone(), "/group");
    has(&group, |members| members.len() == MEMBERS).await;
    let session = server.requests().into_iter().rfind(|read| read.op == OpCode::GetData).unwrap().session_id;
    let cost = || reads(&server).iter().filter(|read| read.session_id == session).count();
    server.clear_requests();
    let node = started(&other, curator_framework::CreateMode::Ephemeral, "/group/new", "");
    stands(&node).await;
    has(&group, |members| members.len() == MEMBERS + 1).await;
    assert!(cost() <= 2, "{:?}", reads(&server));
    server.clear_requests();
    in_time(node.set_data("newer")).await.unwrap();
    has(&group, |members| members.get("new").is_some_and(|member| member.data == b"newer")).await;
    assert!(cost() <= 1, "{:?}", reads(&server));
    server.clear_requests();
    in_time(node.close()).await;
    has(&group, |members| members.len() == MEMBERS).await;
    quiet.check_exists().for_path("/group").await.unwrap();
    assert!(cost() <= 3, "{:?}", reads(&server));
}

/// A group that may not be read says so, and is followed once it may.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn group_that_may_not_be_read_is_told_and_followed_later() {
    let server = server();
    let (client, admin) = (client(&server).await, client(&server).await);
    let hidden = vec![Acl::new(Permission::CREATE | Permission::DELETE | Permission::ADMIN, "world", "anyone")];
    admin.create().with_acl(hidden).for_path("/group").await.unwrap();
    let group = curator_integration::following::group(client.clone(), "/group");
    in_time(group.watch().wait_for(|state| matches!(state, GroupState::Failed(_)))).await.unwrap();
    assert!(group.members().is_none());
    // A member may join anyway.
    let member = joined(&client, "/group", "ann").await;
    server.clear_requests();
    tokio::time::sleep(Duration::from_secs(2)).await;
    let asked = reads(&server).len();
    assert!(asked <= 30, "{asked} reads in 2 s");
    admin.set_acl().with_acl(Acl::open_unsafe()).for_path("/group").await.unwrap();
    has(&group, |members| members.contains("ann")).await;
    has(member.group(), |members| members.contains("ann")).await;
}

/// The server sends no event of such a member, but the watch on the listing.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn member_that_may_not_be_read_joins_and_leaves_without_data() {
    let server = server();
    let (client, admin) = (client(&server).await, client(&server).await);
    admin.create().for_path("/group").await.unwrap();
    let group = curator_integration::following::group(client.clone(), "/group");
    has(&group, Members::is_empty).await;
    let closed = vec![Acl::new(Permission::CREATE | Permission::ADMIN, "world", "anyone")];
    for _ in 0..3 {
        let stat = admin.create().with_acl(closed.clone()).with_data("hidden").for_path("/group/ann").await;
        stat.unwrap();
        has(&group, |members| members.get("ann").is_some_and(|ann| ann.data.is_empty())).await;
        let before = group.members().unwrap().get("ann").unwrap().czxid;
        let again = admin.transaction().delete("/group/ann").create("/group/ann", "shown");
        again.commit().await.unwrap();
        has(&group, |members| members.get("ann").is_some_and(|ann| ann.data == b"shown" && ann.czxid > before)).await;
        admin.set_acl().with_acl(closed.clone()).for_path("/group/ann").await.unwrap();
        admin.delete().for_path("/group/ann").await.unwrap();
        has(&group, Members::is_empty).await;
    }
}

/// The last known members stay while the server refuses a read, with the error.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn members_stay_known_while_reads_are_refused() {
    let server = server();
    let (client, admin) = (client(&server).await, client(&server).await);
    // Not by a member, which would list the group too and take the refusal.
    admin.create().creating_parents_if_needed().for_path("/group/ann").await.unwrap();
    let group = curator_integration::following::group(client.clone(), "/group");
    has(&group, |members| members.contains("ann")).await;
    let mut changes = group.changes();
    let mut state = group.watch();
    server.refuse(OpCode::GetChildren, 1, ErrorCode::NoAuth);
    admin.create().for_path("/group/bob").await.unwrap();
    let stale = |state: &GroupState| matches!(state, GroupState::Refused { members, cause: NodeError::Framework(Error::NoAuth { .. }) } if members.contains("ann"));
    in_time(state.wait_for(stale)).await.unwrap();
    assert!(group.members().is_some_and(|members| members.contains("ann")));
    has(&group, |members| members.contains("bob")).await;
    for id in ["ann", "bob"] {
        let change = in_time(changes.recv()).await;
        assert!(matches!(&change, Some(MemberChange::Joined(member)) if member.id == id), "{change:?}");
    }
}

/// A node exists as far as is known while a read of it is refused.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn node_is_known_while_reads_of_it_are_refused() {
    let server = server();
    let (client, admin) = (client(&server).await, client(&server).await);
    let node = PersistentNode::new(client, "/node", "ours").unwrap();
    node.start().unwrap();
    let standing = in_time(node.created()).await.unwrap();
    for error in [ErrorCode::NoAuth, ErrorCode::RuntimeInconsistency] {
        server.refuse(OpCode::Exists, 1, error);
        server.refuse(OpCode::GetData, 1, error);
        server.refuse(OpCode::Create2, 1, error);
        admin.set_data().for_path("/node", "theirs").await.unwrap();
        let stale =
            |state: &NodeState| matches!(state, NodeState::Refused { node, .. } if node.czxid == standing.czxid);
        in_time(node.watch().wait_for(stale)).await.unwrap();
        assert_eq!(node.owner(), Some(Owner::Us), "{error:?}");
        in_time(node.watch().wait_for(|state| matches!(state, NodeState::Standing(_)))).await.unwrap();
    }
}

/// A closed group and a closed member leave no watch.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn closed_groups_leave_no_watch_and_no_node() {
    let server = server();
    let client = client(&server).await;
    for is_dropped in [false, true] {
        let group = curator_integration::following::group(client.clone(), "/group");
        let (ann, bob) = (joined(&client, "/group", "ann").await, joined(&client, "/group", "bob").await);
        has(&group, |members| members.len() == 2).await;
        if is_dropped {
            drop((group, ann, bob));
        } else {
            in_time(ann.close()).await;
            in_time(bob.close()).await;
            in_time(group.close()).await;
        }
        eventually("no watch is left", async || client.watchers() == 0 && server.watch_count() == 0).await;
        eventually("no node is left", async || server.children("/group").is_none_or(|nodes| nodes.is_empty())).await;
    }
}

#[cfg(curator_mutants)]
#[test]
fn group_that_forgets_its_members_is_found() {
    let run = || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let server = server();
            let (client, admin) = (client(&server).await, client(&server).await);
            let group = curator_integration::following::group(client.clone(), "/group");
            let _ann = joined(&admin, "/group", "ann").await;
            has(&group, |members| members.contains("ann")).await;
            server.refuse(OpCode::GetChildren, 1, ErrorCode::NoAuth);
            admin.create().for_path("/group/bob").await.unwrap();
            let mut state = group.watch();
            let is_refused = |state: &GroupState| matches!(state, GroupState::Refused { .. } | GroupState::Failed(_));
            let refused = in_time(state.wait_for(is_refused)).await.unwrap().clone();
            refused.members().is_none()
        })
    };
    assert!(curator_framework::mutants::with("forget-the-known-members", run), "the members are forgotten");
}

/// The listing without the member that left was answered, although the read of another member is refused.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn stale_group_shows_no_member_that_a_later_listing_lacks() {
    let server = server();
    let (client, admin) = (client(&server).await, client(&server).await);
    for id in ["ann", "bob"] {
        admin.create().creating_parents_if_needed().for_path(&format!("/group/{id}")).await.unwrap();
    }
    let group = curator_integration::following::group(client.clone(), "/group");
    has(&group, |members| members.len() == 2).await;
    let mut state = group.watch();
    server.refuse(OpCode::GetData, 1000, ErrorCode::RuntimeInconsistency);
    admin.transaction().delete("/group/ann").create("/group/cid", "").commit().await.unwrap();
    let without_ann =
        |state: &GroupState| matches!(state, GroupState::Refused { members, .. } if !members.contains("ann"));
    let seen = tokio::time::timeout(Duration::from_secs(3), state.wait_for(without_ann)).await.map(drop);
    assert!(seen.is_ok(), "{:?} after {} listings", *group.watch().borrow(), reads(&server).len());
}

/// The watch on an existing node fires during the pause after a refused request.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn stale_node_ends_with_its_deletion_and_with_its_session() {
    let server = server();
    let (client, admin) = (client(&server).await, client(&server).await);
    for by_deletion in [true, false] {
        let path = format!("/node-{by_deletion}");
        let node = PersistentNode::new(client.clone(), &path, "ours").unwrap();
        node.start().unwrap();
        let standing = in_time(node.created()).await.unwrap();
        // The watch is set by `exists`, and the read of the data fails.
        server.refuse(OpCode::GetData, 1000, ErrorCode::RuntimeInconsistency);
        admin.set_data().for_path(&path, "theirs").await.unwrap();
        let refused = || 1000 - server.refusals_left();
        eventually("the pauses are long", async || refused() >= 7).await;
        assert!(matches!(node.state(), NodeState::Refused { .. }), "{:?}", node.state());
        if by_deletion {
            admin.delete().for_path(&path).await.unwrap();
        } else {
            server.kill_session(standing.session.unwrap().get());
        }
        let is_other = |state: &NodeState| state.standing().is_none_or(|node| node.czxid != standing.czxid);
        let mut states = node.watch();
        let seen = tokio::time::timeout(Duration::from_secs(1), states.wait_for(is_other)).await.map(drop);
        assert!(seen.is_ok(), "by deletion: {by_deletion}, after {} refusals: {:?}", refused(), node.state());
        in_time(node.close()).await;
        while server.refusals_left() > 0 {
            drop(admin.get_data().for_path("/").await);
        }
    }
}

//! The cost of a double barrier. The table of `DistributedDoubleBarrier` has these numbers.

use std::time::Duration;

use curator_framework::CuratorFramework;
use curator_framework::recipe::RecipeClient as _;
use curator_integration::env::{answered, connected, eventually, in_time};
use curator_integration::in_process::{client, options};
use curator_recipes::{BarrierMember, DistributedDoubleBarrier};
use curator_test::wire::OpCode::{self, Exists, GetChildren, GetData, Multi, RemoveWatches};
use futures_util::future::{join, join_all};
use tokio::time::Instant;

use crate::meter::{Stage, round_trips};

const PATH: &str = "/app/barrier";

fn barrier(stage: &Stage, members: usize) -> DistributedDoubleBarrier {
    DistributedDoubleBarrier::new(stage.client.clone(), PATH, members).unwrap()
}

/// Waits until the barrier has this many nodes, and the client the replies to all its requests.
async fn has_nodes(stage: &Stage, count: usize) {
    eventually("the nodes", async || stage.server.children(PATH).is_some_and(|nodes| nodes.len() == count)).await;
    answered(std::slice::from_ref(&stage.client)).await;
}

/// The members enter one by one, and leave one by one.
async fn enter_and_leave(stage: &Stage, members: usize) -> Vec<OpCode> {
    let mut waiting = Vec::new();
    for number in 1..members {
        let barrier = barrier(stage, members);
        waiting.push(tokio::spawn(async move { barrier.enter().await.unwrap() }));
        has_nodes(stage, number).await;
    }
    let last = in_time(barrier(stage, members).enter()).await.unwrap();
    let mut leaving = Vec::new();
    for (number, member) in waiting.into_iter().enumerate() {
        let member: BarrierMember = in_time(member).await.unwrap();
        leaving.push(tokio::spawn(async move { member.leave().await.unwrap() }));
        has_nodes(stage, members - number).await;
    }
    assert_eq!(in_time(last.leave()).await.unwrap().died, 0);
    for member in leaving {
        assert_eq!(in_time(member).await.unwrap().died, 0);
    }
    stage.requests().await
}

#[tokio::test]
async fn members_that_wait_send_two_requests_to_enter_and_two_to_leave() {
    let stage = Stage::new(PATH).await;
    let enter = [&[Multi, Exists][..], &[Multi, GetChildren, Multi]].concat();
    let leave = [&[Multi, GetData][..], &[Multi, Multi]].concat();
    assert_eq!(enter_and_leave(&stage, 2).await, [enter, leave].concat());
}

/// Curator's members send 3 requests each to enter and at least 3 to leave.
#[tokio::test]
async fn twenty_members_send_81_requests() {
    let stage = Stage::new(PATH).await;
    assert_eq!(enter_and_leave(&stage, 20).await.len(), 81);
}

/// The last member may delete `ready` ahead of another one's read, or between that read and its reply.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn members_that_leave_at_once_send_two_requests_each() {
    const MEMBERS: usize = 8;
    let stage = Stage::new(PATH).await;
    let mut clients = Vec::new();
    for _ in 0..MEMBERS {
        clients.push(client(&stage.server).await);
    }
    for _ in 0..10 {
        let barriers =
            clients.iter().map(|client| DistributedDoubleBarrier::new(client.clone(), PATH, MEMBERS).unwrap());
        let entering = barriers.map(|barrier| async move { barrier.enter().await.unwrap() });
        let members = in_time(join_all(entering)).await;
        answered(&clients).await;
        stage.server.clear_requests();
        let leaving: Vec<_> =
            members.into_iter().map(|member| tokio::spawn(async move { member.leave().await.unwrap() })).collect();
        for member in leaving {
            assert_eq!(in_time(member).await.unwrap().died, 0);
        }
        answered(&clients).await;
        let requests = stage.requests().await;
        assert_eq!(requests.len(), 2 * MEMBERS, "{requests:?}");
    }
}

/// The requests of one session, in the server's order.
fn requests_of(stage: &Stage, session: i64) -> Vec<(OpCode, Option<String>)> {
    let all = stage.server.requests().into_iter().filter(|one| one.session_id == session && one.op != OpCode::Ping);
    all.map(|one| (one.op, one.path)).collect()
}

#[tokio::test]
async fn member_watches_its_node_by_one_read_after_a_tenth_of_the_session_timeout() {
    let stage = Stage::new(PATH).await;
    let client = connected(options(&stage.server).session_timeout(Duration::from_secs(3))).await;
    let session = client.session().await.unwrap().id().unwrap().get();
    answered(std::slice::from_ref(&client)).await;
    stage.server.clear_requests();
    let barrier = DistributedDoubleBarrier::new(client.clone(), PATH, 2).unwrap();
    let waiting = tokio::spawn(async move { barrier.enter().await.unwrap() });
    let is_read = |(op, path): &(OpCode, Option<String>)| {
        *op == GetData && path.as_deref().is_some_and(|path| path.ends_with("-member"))
    };
    eventually("it watches its node", async || requests_of(&stage, session).iter().any(is_read)).await;
    let first: Vec<_> = requests_of(&stage, session).into_iter().take(3).map(|(op, _)| op).collect();
    assert_eq!(first, [Multi, Exists, GetData]);

    let other = in_time(self::barrier(&stage, 2).enter()).await.unwrap();
    let member = in_time(waiting).await.unwrap();
    answered(std::slice::from_ref(&client)).await;
    stage.server.clear_requests();
    let leaving = tokio::spawn(async move { member.leave().await.unwrap() });
    eventually("it waits for the other one", async || requests_of(&stage, session).len() >= 2).await;
    assert_eq!(in_time(other.leave()).await.unwrap().died, 0);
    assert_eq!(in_time(leaving).await.unwrap().died, 0);
    eventually("the watches have fired", async || client.watchers() == 0).await;
    // The notification of its own departure may make the watch read the node.
    let (own, others): (Vec<_>, Vec<_>) = requests_of(&stage, session).into_iter().partition(is_read);
    assert!(own.len() <= 1, "{own:?}");
    assert!(others.iter().map(|(op, _)| *op).eq([Multi, GetData]), "{others:?}");
}

#[tokio::test]
async fn member_that_waits_long_to_leave_sends_four_requests() {
    let stage = Stage::new(PATH).await;
    // A tenth of this timeout is the time after which a member that leaves checks the others.
    let leaver = connected(options(&stage.server).session_timeout(Duration::from_secs(3))).await;
    let enter = async |client: &CuratorFramework| {
        DistributedDoubleBarrier::new(client.clone(), PATH, 2).unwrap().enter().await.unwrap()
    };
    let (leaves, _other) = in_time(join(enter(&leaver), enter(&stage.client))).await;
    let session = leaver.session().await.unwrap().id().unwrap().get();
    answered(std::slice::from_ref(&leaver)).await;
    stage.server.clear_requests();
    let leaving = tokio::spawn(async move { leaves.leave().await.unwrap() });
    // The watch on its own node, which is gone by then, may start with a read.
    let is_of_leave = |(op, path): &(OpCode, Option<String>)| {
        *op != GetData || !path.as_deref().is_some_and(|path| path.ends_with("-member"))
    };
    let sent = || requests_of(&stage, session).into_iter().filter(is_of_leave).map(|(op, _)| op);
    let expected = [&[Multi, GetData][..], &[Exists, GetChildren, GetData, Exists]].concat();
    eventually("it watches the other member", async || sent().count() >= expected.len()).await;
    assert!(sent().eq(expected), "{:?}", requests_of(&stage, session));
    leaving.abort();
}

#[tokio::test]
async fn the_end_of_a_budget_is_one_transaction() {
    let stage = Stage::new(PATH).await;
    let entered = in_time(barrier(&stage, 2).enter_timeout(Duration::from_millis(50))).await.unwrap();
    assert!(entered.is_none());
    assert_eq!(stage.requests().await, [Multi, Exists, Multi, RemoveWatches]);
}

#[tokio::test]
async fn members_are_one_list_and_a_read_for_each() {
    let stage = Stage::new(PATH).await;
    let [first, second] = [barrier(&stage, 1), barrier(&stage, 1)];
    let (_one, _two) = (in_time(first.enter()).await.unwrap(), in_time(second.enter()).await.unwrap());
    stage.requests().await;
    assert_eq!(in_time(first.members()).await.unwrap().len(), 2);
    assert_eq!(stage.requests().await, [GetChildren, GetData, GetData]);
}

#[tokio::test(start_paused = true)]
async fn last_member_enters_in_three_round_trips_and_leaves_in_two() {
    let alone = |client: &CuratorFramework| DistributedDoubleBarrier::new(client.clone(), PATH, 1).unwrap();
    let parents = async |client: &CuratorFramework| {
        client.create().creating_parents_if_needed().for_path(PATH).await.unwrap();
    };
    let enter = round_trips(async |_, client| {
        parents(client).await;
        let began = Instant::now();
        let _member = alone(client).enter().await.unwrap();
        began.elapsed()
    });
    assert_eq!(enter.await, 3, "enter");
    let members = round_trips(async |_, client| {
        parents(client).await;
        let _member = alone(client).enter().await.unwrap();
        let began = Instant::now();
        alone(client).members().await.unwrap();
        began.elapsed()
    });
    assert_eq!(members.await, 2, "members");
    let leave = round_trips(async |_, client| {
        parents(client).await;
        let member = alone(client).enter().await.unwrap();
        let began = Instant::now();
        assert_eq!(member.leave().await.unwrap().died, 0);
        began.elapsed()
    });
    assert_eq!(leave.await, 2, "leave");
}

#[tokio::test]
async fn members_that_wait_send_nothing() {
    let stage = Stage::new(PATH).await;
    let waiting = barrier(&stage, 2);
    let waiting = tokio::spawn(async move { waiting.enter().await.unwrap() });
    has_nodes(&stage, 1).await;
    stage.requests().await;
    tokio::time::sleep(Stage::QUIET).await;
    assert_eq!(stage.requests().await, []);
    waiting.abort();
}

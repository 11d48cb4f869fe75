//! Faults of double barriers on an in-process server: a lost reply to each request, lost connections and sessions.

use std::time::Duration;

use curator_framework::recipe::RecipeClient as _;
use curator_framework::{CuratorFramework, FixedEnsembleProvider, LossReason, RetryForever, SessionId, node_from_path};
use curator_integration::env::{answered, connected, eventually, in_time};
use curator_integration::in_process::{client, options, server};
use curator_recipes::{BarrierError, DistributedDoubleBarrier};
use curator_test::wire::OpCode;
use curator_test::{FaultProxy, TestingServer};
use futures_util::future::join;

use crate::double_stage::{all_enter, all_leave, barrier};

const PATH: &str = "/barrier";

/// Two members behind proxies.
struct Pair {
    server: TestingServer,
    proxies: [FaultProxy; 2],
    clients: [CuratorFramework; 2],
    barriers: [DistributedDoubleBarrier; 2],
}

impl Pair {
    async fn new(quantity: usize) -> Self {
        Self::of(server(), quantity).await
    }

    async fn of(server: TestingServer, quantity: usize) -> Self {
        let proxies = [(); 2].map(|()| FaultProxy::start(server.address()).unwrap());
        let mut clients = Vec::new();
        for proxy in &proxies {
            let provider = FixedEnsembleProvider::new(proxy.connect_string());
            clients.push(connected(options(&server).ensemble_provider(provider)).await);
        }
        let clients: [_; 2] = clients.try_into().unwrap();
        let barriers = [barrier(&clients[0], PATH, quantity), barrier(&clients[1], PATH, quantity)];
        Self { server, proxies, clients, barriers }
    }

    fn children(&self) -> Vec<String> {
        self.server.children(PATH).unwrap_or_default()
    }

    async fn has_children(&self, count: usize) {
        eventually("the children", async || self.children().len() == count).await;
    }

    /// The first member waits for the second one; then both leave, the first one first.
    async fn round(&self) {
        let (first, second) = self.enter().await;
        let leaving = tokio::spawn(all_leave(vec![first]));
        self.has_children(2).await;
        assert_eq!(all_leave(vec![second]).await, [0]);
        assert_eq!(in_time(leaving).await.unwrap(), [0]);
        answered(&self.clients).await;
        self.has_children(0).await;
    }

    async fn enter(&self) -> (curator_recipes::BarrierMember, curator_recipes::BarrierMember) {
        let first = self.barriers[0].clone();
        let waiting = tokio::spawn(async move { first.enter().await.unwrap() });
        self.has_children(1).await;
        // Until it waits: its look has been answered.
        answered(&self.clients).await;
        let second = in_time(self.barriers[1].enter()).await.unwrap();
        let first = in_time(waiting).await.unwrap();
        assert_eq!(in_time(first.round()).await.unwrap(), in_time(second.round()).await.unwrap());
        // A fault may keep the first one's look until the second one has joined. Then either opens.
        assert_ne!(first.has_opened(), second.has_opened());
        (first, second)
    }
}

/// The retry policy decides how long a member waits for a connection, before its first request and in its session.
#[tokio::test]
async fn member_outlasts_the_connection_timeout_as_the_retry_policy_says() {
    const SHORT: Duration = Duration::from_millis(100);
    let server = server();
    let proxy = FaultProxy::start(server.address()).unwrap();
    let options = options(&server).ensemble_provider(FixedEnsembleProvider::new(proxy.connect_string()));
    let options = options.connection_timeout(SHORT).retry_policy(RetryForever::new(SHORT / 10).unwrap());
    let (client, other) = (connected(options).await, client(&server).await);
    let outage = async || {
        proxy.refuse();
        proxy.reset();
        eventually("it is cut off", async || !client.is_connected()).await;
    };
    outage().await;
    let (ours, listed) = (barrier(&client, PATH, 2), barrier(&client, PATH, 2));
    let mut entering = tokio::spawn(async move { ours.enter().await });
    let mut listing = tokio::spawn(async move { listed.members().await });
    assert!(tokio::time::timeout(5 * SHORT, &mut entering).await.is_err(), "it waits for the connection");
    assert!(tokio::time::timeout(SHORT, &mut listing).await.is_err(), "it waits for the connection");
    proxy.accept();
    in_time(listing).await.unwrap().unwrap();
    eventually("it has arrived", async || server.children(PATH).is_some_and(|nodes| nodes.len() == 1)).await;
    outage().await;
    assert!(tokio::time::timeout(5 * SHORT, &mut entering).await.is_err(), "it waits for the connection");
    proxy.accept();
    let second = in_time(barrier(&other, PATH, 2).enter()).await.unwrap();
    let first = in_time(entering).await.unwrap().unwrap();
    let leaving = all_leave(vec![first, second]);
    assert_eq!(in_time(leaving).await, [0, 0]);
}

/// A lost reply, or a lost request, of each kind and number, of the member that waits and of the one that opens.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn lost_reply_to_each_request_is_survived() {
    let pair = Pair::new(2).await;
    pair.round().await;
    let mut faults = 0;
    for member in 0..2 {
        for op in [OpCode::Multi, OpCode::Exists, OpCode::GetChildren2, OpCode::GetChildren, OpCode::GetData] {
            for number in 1..=4 {
                for is_request in [false, true] {
                    let proxy = &pair.proxies[member];
                    let before = proxy.faults_done();
                    match is_request {
                        true => proxy.drop_request(op, number),
                        false => proxy.drop_reply(op, number),
                    }
                    pair.round().await;
                    faults += proxy.faults_done() - before;
                    proxy.repair();
                }
            }
        }
    }
    // The first member: 2 transactions and 4 reads; the second one: 3 or 4 transactions, 2 reads and a listing.
    assert!(faults >= 24, "{faults} faults");
}

/// A lost reply at each request of a member that finds a stale `ready`.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn lost_reply_over_a_stale_ready_is_survived() {
    let pair = Pair::new(2).await;
    pair.round().await;
    for op in [OpCode::Multi, OpCode::Exists, OpCode::GetChildren, OpCode::GetData] {
        for number in 1..=4 {
            pair.clients[1].create().for_path(&format!("{PATH}/ready")).await.unwrap();
            pair.proxies[0].drop_reply(op, number);
            let members = all_enter(&pair.barriers).await;
            assert_eq!(all_leave(members).await, [0, 0]);
            answered(&pair.clients).await;
            pair.has_children(0).await;
            pair.proxies[0].repair();
        }
    }
}

/// The end of a budget, with a lost reply: the member counts no longer.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn lost_reply_at_the_end_of_a_budget_leaves_no_node() {
    let pair = Pair::new(2).await;
    pair.round().await;
    for op in [OpCode::Multi, OpCode::Exists] {
        for number in 1..=3 {
            for is_request in [false, true] {
                match is_request {
                    true => pair.proxies[0].drop_request(op, number),
                    false => pair.proxies[0].drop_reply(op, number),
                }
                let entered = in_time(pair.barriers[0].enter_timeout(Duration::from_millis(100))).await;
                assert!(entered.unwrap().is_none(), "{op:?} {number}");
                pair.has_children(0).await;
                pair.proxies[0].repair();
            }
        }
    }
    pair.round().await;
}

/// A lost reply of a leave with a budget.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn lost_connection_while_members_wait_keeps_them_waiting() {
    let pair = Pair::new(2).await;
    let first = pair.barriers[0].clone();
    let mut waiting = tokio::spawn(async move { first.enter().await.unwrap() });
    pair.has_children(1).await;
    answered(&pair.clients).await;
    let before = pair.proxies[0].total_connections();
    pair.proxies[0].reset();
    pair.proxies[0].wait_for_connections(1).await;
    eventually("another connection", async || pair.proxies[0].total_connections() > before).await;
    answered(&pair.clients).await;
    assert!(!waiting.is_finished() && pair.children().len() == 1);
    let second = in_time(pair.barriers[1].enter()).await.unwrap();
    let first = in_time(&mut waiting).await.unwrap();
    let mut leaving = tokio::spawn(all_leave(vec![first]));
    pair.has_children(2).await;
    answered(&pair.clients).await;
    pair.proxies[0].reset();
    eventually("another connection", async || pair.proxies[0].total_connections() > before + 1).await;
    answered(&pair.clients).await;
    assert!(!leaving.is_finished());
    assert_eq!(in_time(second.leave()).await.unwrap().died, 0);
    assert_eq!(in_time(&mut leaving).await.unwrap(), [0]);
    pair.has_children(0).await;
}

/// The barrier opens, or all leave, while a member that waits has no connection.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn member_without_a_connection_finds_the_open_barrier_and_the_end_of_the_round() {
    let pair = Pair::new(2).await;
    let first = pair.barriers[0].clone();
    let waiting = tokio::spawn(async move { first.enter().await.unwrap() });
    pair.has_children(1).await;
    answered(&pair.clients).await;
    pair.proxies[0].refuse();
    pair.proxies[0].reset();
    let second = in_time(pair.barriers[1].enter()).await.unwrap();
    assert!(!waiting.is_finished());
    pair.proxies[0].accept();
    let first = in_time(waiting).await.unwrap();
    let leaving = tokio::spawn(all_leave(vec![first]));
    pair.has_children(2).await;
    answered(&pair.clients).await;
    pair.proxies[0].refuse();
    pair.proxies[0].reset();
    assert_eq!(in_time(second.leave()).await.unwrap().died, 0);
    pair.has_children(0).await;
    pair.proxies[0].accept();
    assert_eq!(in_time(leaving).await.unwrap(), [0]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn member_whose_session_ends_while_it_waits_arrives_again() {
    let pair = Pair::new(2).await;
    let first = pair.barriers[0].clone();
    let waiting = tokio::spawn(async move { first.enter().await.unwrap() });
    pair.has_children(1).await;
    answered(&pair.clients).await;
    let session = pair.clients[0].session().await.unwrap();
    assert!(pair.server.kill_session(session.id().unwrap().get()));
    in_time(session.ended()).await;
    let next = in_time(pair.clients[0].session()).await.unwrap().id().map(|id| id.get());
    let arrived = async || {
        let members = pair.barriers[1].members().await.unwrap();
        members.len() == 1 && members[0].session == SessionId::new(next.unwrap_or_default())
    };
    eventually("it arrives again", arrived).await;
    let second = in_time(pair.barriers[1].enter()).await.unwrap();
    let first = in_time(waiting).await.unwrap();
    all_leave(vec![first, second]).await;
    pair.has_children(0).await;
}

/// The server still has the old session when the client comes back with a new one.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn member_of_two_sessions_counts_once() {
    let pair = Pair::new(2).await;
    let first = pair.barriers[0].clone();
    let waiting = tokio::spawn(async move { first.enter().await.unwrap() });
    pair.has_children(1).await;
    answered(&pair.clients).await;
    let session = pair.clients[0].session().await.unwrap();
    let (node, before) = (format!("{PATH}/{}", pair.children()[0]), session.id().unwrap().get());
    pair.server.clear_requests();
    pair.proxies[0].swap_session();
    pair.proxies[0].reset();
    in_time(session.ended()).await;
    let owner = async || pair.clients[1].check_exists().for_path(&node).await.unwrap().map(|node| node.ephemeral_owner);
    eventually("another node of the same name", async || owner().await.is_some_and(|owner| owner != before)).await;
    assert_eq!(pair.children(), [node_from_path(&node)]);
    assert!(!pair.server.exists(&format!("{PATH}/ready")) && !waiting.is_finished());
    let second = in_time(pair.barriers[1].enter()).await.unwrap();
    let first = in_time(waiting).await.unwrap();
    all_leave(vec![first, second]).await;
    pair.has_children(0).await;
}

/// The wait of a member that has left needs no session of its own.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn member_that_has_left_waits_on_in_the_next_session() {
    let pair = Pair::new(2).await;
    let (first, second) = pair.enter().await;
    let mut leaving = tokio::spawn(all_leave(vec![first]));
    pair.has_children(2).await;
    answered(&pair.clients).await;
    let session = pair.clients[0].session().await.unwrap();
    assert!(pair.server.kill_session(session.id().unwrap().get()));
    in_time(session.ended()).await;
    in_time(pair.clients[0].session()).await.unwrap();
    answered(&pair.clients).await;
    assert!(!leaving.is_finished());
    assert_eq!(in_time(second.leave()).await.unwrap().died, 0);
    assert_eq!(in_time(&mut leaving).await.unwrap(), [0]);
    pair.has_children(0).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn death_is_reported_to_the_others() {
    let pair = Pair::new(2).await;
    let (first, second) = pair.enter().await;
    let lost = Box::pin(first.member_lost());
    let kill = async {
        // The data of the other member is read, and watched.
        eventually("the watch", async || pair.proxies[0].replies(OpCode::GetData) >= 2).await;
        let session = pair.clients[1].session().await.unwrap();
        assert!(pair.server.kill_session(session.id().unwrap().get()));
    };
    let (lost, ()) = in_time(join(lost, kill)).await;
    assert_eq!(lost.unwrap(), String::from_utf8_lossy(pair.clients[1].default_data()));
    assert_eq!(in_time(first.leave()).await.unwrap().died, 1);
    let own = in_time(second.member_lost()).await;
    assert!(matches!(own, Err(BarrierError::Lost { reason: LossReason::Session(_), .. })), "{own:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn leave_is_not_reported_as_a_death_over_a_lost_connection() {
    let pair = Pair::new(2).await;
    for is_lost in [false, true] {
        let (first, second) = pair.enter().await;
        {
            let reads = pair.proxies[0].replies(OpCode::GetData);
            let mut lost = Box::pin(first.member_lost());
            let leave = async {
                eventually("the watch", async || pair.proxies[0].replies(OpCode::GetData) >= reads + 2).await;
                if is_lost {
                    pair.proxies[0].refuse();
                    pair.proxies[0].reset();
                }
                assert!(in_time(second.leave_timeout(Duration::ZERO)).await.unwrap().is_none());
                pair.proxies[0].accept();
                answered(&pair.clients).await;
                tokio::time::sleep(Duration::from_millis(300)).await;
            };
            tokio::select! {
                lost = &mut lost => panic!("{lost:?}"),
                () = leave => {}
            }
        }
        assert_eq!(in_time(first.leave()).await.unwrap().died, 0);
        pair.has_children(0).await;
    }
}

//! The semaphore without a mutex.

use std::collections::BTreeSet;
use std::time::Duration;

use curator_framework::recipe::RecipeClient as _;
use curator_framework::{Acl, CuratorFramework, Error, Permission, RetryNTimes};
use curator_integration::env::{builder, children, connected, eventually, in_time};
use curator_integration::on_every_server;
use curator_recipes::{
    InterProcessSemaphoreV2, LockError, Release, RevokeOutcome, Revoker, SemaphoreOptions, SemaphoreProtocol,
};
use curator_test::wire::OpCode;
use curator_test::{ClientId, SimulatedEnsemble, TestingServer};

fn semaphore(
    client: &CuratorFramework,
    path: &str,
    leases: usize,
    protocol: SemaphoreProtocol,
) -> InterProcessSemaphoreV2 {
    InterProcessSemaphoreV2::with_options(client.clone(), path, leases, SemaphoreOptions::new().protocol(protocol))
        .unwrap()
}

fn direct(client: &CuratorFramework, path: &str, leases: usize) -> InterProcessSemaphoreV2 {
    semaphore(client, path, leases, SemaphoreProtocol::Direct)
}

fn mismatch(outcome: Result<impl std::fmt::Debug, LockError>) -> SemaphoreProtocol {
    match outcome {
        Err(LockError::ProtocolMismatch { found, .. }) => found,
        other => panic!("{other:?}"),
    }
}

on_every_server! {
    async fn the_first_client_creates_the_path_with_a_mark(env) {
        let path = env.path("semaphore");
        let client = env.client().await;
        let lease = in_time(direct(&client, &path, 2).acquire()).await.unwrap();
        assert_eq!(client.get_data().for_path(&format!("{path}/leases")).await.unwrap().0, b"__DIRECT__");
        assert_eq!(children(&client, &path).await, ["leases"], "there is no mutex");
        assert_eq!(lease.release().await.unwrap(), Release::Released);
    }

    async fn the_other_protocol_is_refused_both_ways(env) {
        let (one, other) = (env.path("direct"), env.path("curator"));
        let client = env.client().await;
        let held = in_time(direct(&client, &one, 2).acquire()).await.unwrap();
        let curator = semaphore(&client, &one, 2, SemaphoreProtocol::Curator);
        assert_eq!(mismatch(in_time(curator.acquire()).await), SemaphoreProtocol::Direct);
        assert_eq!(mismatch(in_time(curator.try_acquire()).await), SemaphoreProtocol::Direct);
        assert_eq!(mismatch(in_time(curator.acquire_many(2)).await), SemaphoreProtocol::Direct);
        assert!(held.release().await.unwrap().is_released());

        let curator = semaphore(&client, &other, 2, SemaphoreProtocol::Curator);
        let held = in_time(curator.acquire()).await.unwrap();
        let refused = direct(&client, &other, 2);
        assert_eq!(mismatch(in_time(refused.acquire()).await), SemaphoreProtocol::Curator);
        assert_eq!(mismatch(in_time(refused.try_acquire()).await), SemaphoreProtocol::Curator);
        let budget = Duration::from_secs(60);
        assert_eq!(mismatch(in_time(refused.acquire_timeout(budget)).await), SemaphoreProtocol::Curator);
        let told = in_time(refused.acquire()).await.unwrap_err().to_string();
        assert_eq!(told, format!("the semaphore {other} is used with the curator protocol"));
        assert!(held.release().await.unwrap().is_released());

        // A path that exists never changes hands: a client of the other protocol may have checked it just now.
        env.wait_for_children(&client, &format!("{other}/leases"), 0).await;
        assert_eq!(mismatch(in_time(refused.acquire()).await), SemaphoreProtocol::Curator);
        // It does with the path.
        client.delete().deleting_children_if_needed().for_path(&other).await.unwrap();
        let lease = in_time(refused.acquire()).await.unwrap();
        let late = semaphore(&client, &other, 2, SemaphoreProtocol::Curator);
        assert_eq!(mismatch(in_time(late.try_acquire()).await), SemaphoreProtocol::Direct);
        assert!(lease.release().await.unwrap().is_released());
        client.delete().deleting_children_if_needed().for_path(&other).await.unwrap();
        assert!(in_time(late.acquire()).await.unwrap().release().await.unwrap().is_released());
    }

    async fn a_queue_without_the_mark_is_never_taken_over(env) {
        let path = env.path("semaphore");
        let client = env.client().await;
        // A Java client that is first and has not created its lease yet: the leases' node is not there.
        let queue = format!("{path}/locks");
        client.create().creating_parents_if_needed().for_path(&queue).await.unwrap();
        let refused = direct(&client, &path, 2);
        assert_eq!(mismatch(in_time(refused.acquire()).await), SemaphoreProtocol::Curator);
        assert_eq!(children(&client, &path).await, ["locks"], "nothing was created");
        client.delete().for_path(&queue).await.unwrap();
        assert!(in_time(refused.acquire()).await.unwrap().release().await.unwrap().is_released());
    }

    /// Curator's deprecated semaphore has its waiters wait for a certain node ahead.
    async fn no_place_stays_free(env) {
        let path = env.path("semaphore");
        let (ours, theirs) = (env.client().await, env.client().await);
        for first_goes in [true, false] {
            let long = in_time(direct(&ours, &path, 2).acquire()).await.unwrap();
            let short = in_time(direct(&ours, &path, 2).acquire()).await.unwrap();
            let (stays, mut goes) = if first_goes { (short, long) } else { (long, short) };
            let mut waiters = tokio::task::JoinSet::new();
            let mut order = Vec::new();
            for number in 0..8 {
                let semaphore = direct(if number % 2 == 0 { &ours } else { &theirs }, &path, 2);
                waiters.spawn(async move { (number, semaphore.acquire().await.unwrap()) });
                env.wait_for_children(&ours, &format!("{path}/leases"), number + 3).await;
            }
            // The one that stays holds through all of it: every other place must be handed on.
            for _ in 0..8 {
                assert_eq!(goes.release().await.unwrap(), Release::Released);
                let (number, lease) = in_time(waiters.join_next()).await.unwrap().unwrap();
                assert!(stays.is_held() && lease.is_held());
                order.push(number);
                goes = lease;
            }
            assert_eq!(order, [0, 1, 2, 3, 4, 5, 6, 7]);
            assert!(goes.release().await.unwrap().is_released());
            assert!(stays.release().await.unwrap().is_released());
        }
    }

    async fn a_waiter_that_goes_makes_room_for_those_behind_it(env) {
        let path = env.path("semaphore");
        let client = env.client().await;
        let semaphore = direct(&client, &path, 2);
        let held = [semaphore.acquire().await.unwrap(), semaphore.acquire().await.unwrap()];
        let mut waiters = Vec::new();
        for number in 0..4 {
            let semaphore = semaphore.clone();
            waiters.push(tokio::spawn(async move { semaphore.acquire().await.unwrap() }));
            env.wait_for_children(&client, &format!("{path}/leases"), number + 3).await;
        }
        // The first in line and one behind it give up.
        for number in [2, 0] {
            waiters.remove(number).abort();
        }
        env.wait_for_children(&client, &format!("{path}/leases"), 4).await;
        assert!(waiters.iter().all(|waiter| !waiter.is_finished()));
        for lease in held {
            assert!(lease.release().await.unwrap().is_released());
        }
        let mut nodes = BTreeSet::new();
        for waiter in waiters {
            let lease = in_time(waiter).await.unwrap();
            assert!(nodes.insert(lease.node_path().to_owned()));
            assert!(lease.release().await.unwrap().is_released());
        }
        env.wait_for_children(&client, &format!("{path}/leases"), 0).await;
    }
}

#[tokio::test]
async fn an_uncontended_lease_is_two_requests_and_one_to_give_it_back() {
    let server = TestingServer::start().unwrap();
    let client = connected(builder(server.address()).session_timeout(Duration::from_secs(40))).await;
    let semaphore = direct(&client, "/semaphore", 2);
    assert!(semaphore.acquire().await.unwrap().release().await.unwrap().is_released());
    let requests = || {
        let log = server.requests();
        let below = |path: &Option<String>| path.as_deref().is_some_and(|path| path.starts_with("/semaphore"));
        log.iter().filter(|logged| below(&logged.path)).map(|logged| logged.op).collect::<Vec<_>>()
    };
    for _ in 0..2 {
        server.clear_requests();
        let lease = semaphore.acquire().await.unwrap();
        assert_eq!(requests(), [OpCode::Create2, OpCode::GetChildren]);
        assert!(lease.release().await.unwrap().is_released());
        assert_eq!(requests(), [OpCode::Create2, OpCode::GetChildren, OpCode::Delete]);
    }
    // Another object looks once at which protocol is in use.
    server.clear_requests();
    assert!(direct(&client, "/semaphore", 2).acquire().await.unwrap().release().await.unwrap().is_released());
    assert_eq!(requests(), [OpCode::GetData, OpCode::Create2, OpCode::GetChildren, OpCode::Delete]);
}

/// One departure wakes as many waiters as there are leases, and the one to which the next holder signals.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_departure_wakes_no_herd() {
    let server = TestingServer::start().unwrap();
    let client = connected(builder(server.address()).session_timeout(Duration::from_secs(40))).await;
    let semaphore = direct(&client, "/semaphore", 2);
    let held = [semaphore.acquire().await.unwrap(), semaphore.acquire().await.unwrap()];
    let mut waiters = tokio::task::JoinSet::new();
    for _ in 0..30 {
        let semaphore = semaphore.clone();
        waiters.spawn(async move { semaphore.acquire().await.unwrap() });
    }
    // The semaphore watches its path too, and the holders their nodes.
    eventually("all wait", async || client.watchers() == 33).await;
    client.check_exists().for_path("/").await.unwrap();
    server.clear_requests();
    assert!(held[0].release().await.unwrap().is_released());
    let next = in_time(waiters.join_next()).await.unwrap().unwrap();
    // It signals to the third one, which becomes one of the first in line.
    let listings = || server.requests().iter().filter(|logged| logged.op == OpCode::GetChildren).count();
    eventually("the next one watches", async || listings() >= 3).await;
    client.check_exists().for_path("/").await.unwrap();
    let listings = listings();
    assert!(listings <= 4, "{listings} listings");
    waiters.shutdown().await;
    assert!(next.release().await.unwrap().is_released());
    assert!(held[1].release().await.unwrap().is_released());
}

/// In a long queue only the first waiter watches the children. Its grant signals to the next waiter, and to one that has
/// joined while the queue was short.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn departure_from_a_long_queue_costs_at_most_four_listings() {
    const WAITERS: usize = 300;
    // The server answers in order, so the reply to each of these comes after the replies and events before it.
    const BARRIERS: usize = 5;
    let server = TestingServer::start().unwrap();
    let client = connected(builder(server.address()).session_timeout(Duration::from_secs(40))).await;
    let semaphore = direct(&client, "/semaphore", 4);
    let mut held = Vec::new();
    for _ in 0..4 {
        held.push(semaphore.acquire().await.unwrap());
    }
    let mut waiters = tokio::task::JoinSet::new();
    for _ in 0..WAITERS {
        let semaphore = semaphore.clone();
        waiters.spawn(async move { semaphore.acquire().await.unwrap() });
    }
    let listings = || server.requests().iter().filter(|logged| logged.op == OpCode::GetChildren).count();
    let barriers = async || {
        for _ in 0..BARRIERS {
            client.check_exists().for_path("/").await.unwrap();
        }
    };
    let is_quiet = async || {
        let before = server.requests().len();
        barriers().await;
        let in_queue = server.children("/semaphore/leases").unwrap().len();
        in_queue == WAITERS + 4 && server.requests().len() == before + BARRIERS
    };
    eventually("all wait", is_quiet).await;
    server.clear_requests();
    assert!(held.remove(0).release().await.unwrap().is_released());
    let next = in_time(waiters.join_next()).await.unwrap().unwrap();
    eventually("the next one watches", async || listings() >= 2).await;
    barriers().await;
    assert!(listings() <= 4, "{} listings", listings());
    waiters.shutdown().await;
    for lease in held.into_iter().chain([next]) {
        assert!(lease.release().await.unwrap().is_released());
    }
}

/// Data that another client writes into a waiting node looks like a place. It must not confuse the next waiter.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn foreign_write_to_a_waiting_node_causes_no_request_loop() {
    let server = TestingServer::start().unwrap();
    let client = connected(builder(server.address()).session_timeout(Duration::from_secs(40))).await;
    let semaphore = direct(&client, "/semaphore", 1);
    let held = semaphore.acquire().await.unwrap();
    let mut waiters = Vec::new();
    for number in 0..3 {
        let semaphore = semaphore.clone();
        waiters.push(tokio::spawn(async move { semaphore.acquire().await.unwrap() }));
        eventually("it waits", async || client.watchers() == number + 3).await;
    }
    let waiting = semaphore.participants().await.unwrap();
    let before = server.requests().len();
    for one in &waiting[1..3] {
        assert_eq!(Revoker::attempt_revoke(&client, &one.path).await.unwrap(), RevokeOutcome::Requested);
    }
    // Each of those behind looks once, and watches the children from then on.
    eventually("all wait again", async || client.watchers() == 5).await;
    for _ in 0..20 {
        client.check_exists().for_path("/").await.unwrap();
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    let asked = server.requests()[before..].iter().filter(|logged| logged.op != OpCode::Exists).count();
    assert!(asked <= 30, "{asked} requests");
    assert!(held.release().await.unwrap().is_released());
    for waiter in waiters {
        assert_eq!(in_time(waiter).await.unwrap().release().await.unwrap(), Release::Released);
    }
    assert_eq!(server.children("/semaphore/leases").unwrap(), [""; 0]);
}

/// A holder that fails to release a lease still has it, and signals to the waiter behind it.
#[tokio::test]
async fn refused_release_does_not_block_the_waiters() {
    let server = TestingServer::start().unwrap();
    let [first, second, third, client] = [
        connected(builder(server.address())).await,
        connected(builder(server.address())).await,
        connected(builder(server.address())).await,
        connected(builder(server.address())).await,
    ];
    for holder in [&first, &second] {
        // Given back by the end of its session.
        std::mem::drop(tokio::spawn({
            let lease = in_time(direct(holder, "/semaphore", 2).acquire()).await.unwrap();
            async move { lease.lost().await }
        }));
    }
    let semaphore = direct(&client, "/semaphore", 2);
    let next = tokio::spawn({
        let semaphore = semaphore.clone();
        async move {
            let lease = semaphore.acquire().await.unwrap();
            let refused = lease.release().await;
            (lease, refused)
        }
    });
    // The semaphore watches its path too.
    eventually("the next one waits", async || client.watchers() == 2).await;
    let between = direct(&third, "/semaphore", 2);
    std::mem::drop(tokio::spawn(async move { between.acquire().await.unwrap().lost().await }));
    eventually("the one between waits", async || third.watchers() == 2).await;
    let last = tokio::spawn(async move { semaphore.acquire().await.unwrap() });
    eventually("the last one waits", async || client.watchers() == 3).await;

    let all_but_delete = Permission::READ | Permission::WRITE | Permission::CREATE | Permission::ADMIN;
    let acl = vec![Acl::new(all_but_delete, "world", "anyone")];
    client.set_acl().with_acl(acl).for_path("/semaphore/leases").await.unwrap();
    in_time(first.close()).await;
    let (lease, refused) = in_time(next).await.unwrap();
    assert!(matches!(refused, Err(LockError::Framework(Error::NoAuth { .. }))), "{refused:?}");
    in_time(second.close()).await;
    in_time(third.close()).await;
    let last = in_time(last).await.unwrap();

    client.set_acl().with_acl(Acl::open_unsafe()).for_path("/semaphore/leases").await.unwrap();
    for lease in [lease, last] {
        assert_eq!(lease.release().await.unwrap(), Release::Released);
    }
}

/// The servers of a direct client are behind, and show it no path where another client holds a lease.
#[tokio::test(start_paused = true)]
async fn a_client_behind_a_stale_server_marks_no_path_in_use() {
    for seed in 0..20 {
        let ensemble = SimulatedEnsemble::new(seed, Duration::from_millis(10));
        let client = async |id| {
            let options =
                ensemble.client(ClientId(id)).default_data("").retry_policy(RetryNTimes::new(9, Duration::ZERO));
            let client = options.build().unwrap();
            client.start().unwrap();
            client.block_until_connected().await.unwrap();
            client
        };
        let (user, stale) = (client(0).await, client(1).await);
        ensemble.stale_reads(ClientId(1));
        let curator = semaphore(&user, "/semaphore", 2, SemaphoreProtocol::Curator);
        let held = curator.acquire().await.unwrap();
        assert_eq!(
            mismatch(direct(&stale, "/semaphore", 2).acquire().await),
            SemaphoreProtocol::Curator,
            "seed {seed}"
        );
        assert!(held.is_held());
        assert!(curator.acquire().await.unwrap().release().await.unwrap().is_released());
    }
}

/// A client that has agreed on Curator's protocol notices a path that was created again for the other one.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_path_that_changes_its_protocol_is_seen_at_once() {
    let server = TestingServer::start().unwrap();
    let (ours, other) = (connected(builder(server.address())).await, connected(builder(server.address())).await);
    for (before, after) in [
        (SemaphoreProtocol::Curator, SemaphoreProtocol::Direct),
        (SemaphoreProtocol::Direct, SemaphoreProtocol::Curator),
    ] {
        let path = format!("/{before}");
        let agreed = semaphore(&ours, &path, 2, before);
        assert!(agreed.acquire().await.unwrap().release().await.unwrap().is_released());
        other.delete().deleting_children_if_needed().for_path(&path).await.unwrap();
        let _held = semaphore(&other, &path, 2, after).acquire().await.unwrap();
        assert_eq!(mismatch(agreed.acquire().await), after);
        assert_eq!(mismatch(agreed.try_acquire().await), after);
        let leases = children(&other, &format!("{path}/leases")).await;
        assert_eq!(leases.len(), 1, "{leases:?}");
    }
}

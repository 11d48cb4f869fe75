//! Clients that only try, and a Java client in the queue.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use curator_framework::CuratorFramework;
use curator_integration::env::{builder, connected, eventually};
use curator_recipes::InterProcessSemaphoreV2;
use curator_test::wire::OpCode;
use curator_test::{FaultProxy, LoggedRequest, TestingServer};
use tokio::task::JoinSet;

use crate::peer::{Language, Peer};

const TRYING: usize = 16;
const ROUNDS: usize = 20;
/// The turn of a Java client is one round trip for its lease's create and one for the listing. What comes on top are the
/// round trips by which the others delay it.
const MOST_ROUND_TRIPS: usize = 4;
/// So long that the machine's scheduling counts little beside it.
const LATENCY: Duration = Duration::from_millis(10);
const PATH: &str = "/semaphore";

/// How the clients that try come by the semaphore.
#[derive(Clone, Copy)]
enum Object {
    Kept,
    /// Each try makes another one.
    Fresh,
}

async fn try_over_and_over(client: CuratorFramework, object: Object, grants: Arc<AtomicUsize>, stop: Arc<AtomicBool>) {
    let semaphore = || InterProcessSemaphoreV2::new(client.clone(), PATH, 2).unwrap();
    let kept = semaphore();
    while !stop.load(Ordering::SeqCst) {
        let semaphore = match object {
            Object::Kept => kept.clone(),
            Object::Fresh => semaphore(),
        };
        if let Some(lease) = semaphore.try_acquire().await.unwrap() {
            grants.fetch_add(1, Ordering::SeqCst);
            assert!(lease.release().await.unwrap().is_released());
        }
    }
}

/// What a queued client saw from its queue node's create to its grant.
#[derive(Debug, Default)]
struct Turn {
    /// Its listings of the leases.
    listings: usize,
    /// The creates of leases by each other client.
    tries: HashMap<i64, usize>,
}

/// The turns of a session, from the requests in the order in which the server answered them.
fn turns(requests: &[LoggedRequest], session: i64) -> Vec<Turn> {
    let mut turns = Vec::new();
    let mut turn = None;
    for request in requests.iter().filter(|request| request.error == 0) {
        let path = request.path.as_deref().unwrap_or_default();
        let (in_queue, in_leases) = (path.starts_with("/semaphore/locks/"), path.starts_with("/semaphore/leases/"));
        let is_ours = request.session_id == session;
        match request.op {
            OpCode::Create | OpCode::Create2 if is_ours && in_queue => turn = Some(Turn::default()),
            OpCode::GetChildren | OpCode::GetChildren2 if is_ours && path == "/semaphore/leases" => {
                turn.iter_mut().for_each(|turn| turn.listings += 1);
            }
            OpCode::Create | OpCode::Create2 if !is_ours && in_leases => {
                turn.iter_mut().for_each(|turn| *turn.tries.entry(request.session_id).or_default() += 1);
            }
            OpCode::Delete if is_ours && in_queue => turns.extend(turn.take()),
            _ => {}
        }
    }
    turns
}

async fn a_queued_java_client_is_hardly_delayed(object: Object) {
    let server = TestingServer::start().unwrap();
    let proxy = FaultProxy::start(server.address()).unwrap();
    proxy.latency(LATENCY);
    let java = Peer::start(Language::Java, proxy.address(), Duration::from_secs(30)).await;
    let (grants, stop) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicBool::new(false)));
    let mut trying = JoinSet::new();
    for _ in 0..TRYING {
        let client = connected(builder(proxy.address())).await;
        trying.spawn(try_over_and_over(client, object, Arc::clone(&grants), Arc::clone(&stop)));
    }
    eventually("the clients that try are granted leases", async || grants.load(Ordering::SeqCst) > TRYING).await;
    let mut thread = java.thread("queued");
    for round in 0..ROUNDS {
        let before = grants.load(Ordering::SeqCst);
        thread.begin(&format!("acquire semaphore:2:1:10000 {PATH} 0"));
        let answer = thread.answer().await.unwrap();
        assert!(answer.starts_with("held "), "{answer} in round {round}");
        thread.release("semaphore:2:1:10000", PATH).await;
        eventually("the others are granted leases again", async || grants.load(Ordering::SeqCst) > before + 2).await;
    }
    stop.store(true, Ordering::SeqCst);
    while let Some(done) = trying.join_next().await {
        done.unwrap();
    }
    let turns = turns(&server.requests(), java.session().await);
    let most_tries = turns.iter().flat_map(|turn| turn.tries.values()).max().copied().unwrap_or_default();
    let most_delayed = turns.iter().map(|turn| turn.listings.saturating_sub(1)).max().unwrap();
    println!(
        "{} turns among {} grants: at most {most_tries} tries of a client in a turn, and {most_delayed} round trips",
        turns.len(),
        grants.load(Ordering::SeqCst)
    );
    assert_eq!(turns.len(), ROUNDS);
    assert!(most_tries <= 1, "{turns:?}");
    assert!(most_delayed <= MOST_ROUND_TRIPS, "{turns:?}");
    java.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_stream_of_tries_hardly_delays_a_queued_java_client() {
    a_queued_java_client_is_hardly_delayed(Object::Kept).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn tries_by_ever_new_objects_hardly_delay_a_queued_java_client() {
    a_queued_java_client_is_hardly_delayed(Object::Fresh).await;
}

//! Both sides see the same contenders in the same order.

use curator_framework::{SessionId, Zxid};
use curator_integration::env::{Env, Kind, children, in_time};
use curator_recipes::{InterProcessMutex, InterProcessReadWriteLock, InterProcessSemaphoreV2, Participant};

use crate::peer::{Peer, Thread};

async fn seen_by_java(thread: &mut Thread, kind: &str, path: &str) -> Vec<String> {
    let answer = thread.ask(&format!("participants {kind} {path}")).await;
    answer.split(' ').map(ToOwned::to_owned).collect()
}

/// Returns the language of each participant, by its session, and whether it holds.
fn of_whom(participants: &[Participant], java: i64) -> Vec<(&'static str, bool)> {
    let whose = |one: &Participant| (if one.session == SessionId::new(java) { "java" } else { "rust" }, one.holds);
    participants.iter().map(whose).collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn both_see_the_same_contenders_in_the_same_order() {
    let env = Env::new(Kind::InProcess);
    let java = Peer::java(&env).await;
    let (client, session) = (env.client().await, java.session().await);
    let mut asks = java.thread("asks");
    let mut threads = [java.thread("one"), java.thread("two")];
    // Each thread of ours has waited when it is stopped.
    let mut waiting = tokio::task::JoinSet::new();

    let path = env.path("mutex");
    let mutex = InterProcessMutex::new(client.clone(), &path).unwrap();
    let token = threads[0].acquire("mutex", &path).await;
    waiting.spawn({
        let mutex = mutex.clone();
        async move { drop(mutex.acquire().await) }
    });
    env.wait_for_children(&client, &path, 2).await;
    threads[1].begin_to_acquire("mutex", &path);
    env.wait_for_children(&client, &path, 3).await;
    let ours = mutex.participants().await.unwrap();
    assert_eq!(of_whom(&ours, session), [("java", true), ("rust", false), ("java", false)]);
    assert_eq!(ours[0].czxid, Zxid::new(token));
    // What Java writes by default: its address.
    assert_eq!(ours[0].data, ours[2].data);
    let nodes: Vec<_> = ours.iter().map(|one| one.path.clone()).collect();
    assert_eq!(seen_by_java(&mut asks, "mutex", &path).await, nodes);
    waiting.shutdown().await;
    env.wait_for_children(&client, &path, 2).await;
    threads[0].release("mutex", &path).await;
    threads[1].holds().await;
    threads[1].release("mutex", &path).await;

    let path = env.path("read-write");
    let lock = InterProcessReadWriteLock::new(client.clone(), &path).unwrap();
    let reading = in_time(lock.read_lock().acquire()).await.unwrap();
    threads[0].acquire("read", &path).await;
    threads[1].begin_to_acquire("write", &path);
    env.wait_for_children(&client, &path, 3).await;
    let all = lock.participants().await.unwrap();
    assert_eq!(of_whom(&all, session), [("rust", true), ("java", true), ("java", false)]);
    assert_eq!(seen_by_java(&mut asks, "read", &path).await, lock.read_lock().participant_nodes().await.unwrap());
    assert_eq!(seen_by_java(&mut asks, "write", &path).await, lock.write_lock().participant_nodes().await.unwrap());
    assert!(reading.release().await.unwrap().is_released());
    threads[0].release("read", &path).await;
    threads[1].holds().await;
    threads[1].release("write", &path).await;

    let path = env.path("semaphore");
    let semaphore = InterProcessSemaphoreV2::new(client.clone(), &path, 2).unwrap();
    let lease = in_time(semaphore.acquire()).await.unwrap();
    threads[0].acquire("semaphore:2", &path).await;
    env.wait_for_children(&client, &format!("{path}/locks"), 0).await;
    threads[1].begin_to_acquire("semaphore:2", &path);
    env.wait_for_children(&client, &format!("{path}/leases"), 3).await;
    let leases: Vec<_> = semaphore.participants().await.unwrap().into_iter().take(3).collect();
    assert_eq!(of_whom(&leases, session), [("rust", true), ("java", true), ("java", false)]);
    // Java's come in no order.
    let mut theirs = seen_by_java(&mut asks, "semaphore:2", &path).await;
    let mut ours = semaphore.participant_nodes().await.unwrap();
    theirs.sort();
    ours.sort();
    assert_eq!(theirs, ours);
    assert!(lease.release().await.unwrap().is_released());
    threads[1].holds().await;
    for thread in &mut threads {
        thread.release("semaphore:2", &path).await;
    }
    assert_eq!(children(&client, &format!("{path}/leases")).await, [""; 0]);
    java.end().await;
}

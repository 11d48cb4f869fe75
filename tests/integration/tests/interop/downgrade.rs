//! Turning a write lock into a read lock beside others of the other kind.

use std::time::Duration;

use curator_integration::env::{Env, Kind, eventually, in_time, watchers};
use curator_integration::on_every_server;
use curator_recipes::InterProcessReadWriteLock;

use crate::peer::Peer;
use crate::record::{Clock, Report};

/// Long enough for a contender that is wrongly granted to come in.
const A_WHILE: Duration = Duration::from_millis(200);

on_every_server! {
    async fn javas_queued_writer_does_not_get_in_over_ours_but_its_readers_do(env) {
        let java = Peer::java(&env).await;
        let (client, path) = (env.client().await, env.path("lock"));
        let lock = InterProcessReadWriteLock::new(client.clone(), &path).unwrap();
        let (mut reader, mut writer) = (java.thread("reader"), java.thread("writer"));

        let writing = in_time(lock.write_lock().acquire()).await.unwrap();
        reader.begin_to_acquire("read", &path);
        env.wait_for_children(&client, &path, 2).await;
        writer.begin(&format!("compete write {path} 1 0"));
        env.wait_for_children(&client, &path, 3).await;
        let reading = in_time(writing.downgrade()).await.unwrap();
        assert!(reader.holds().await > reading.token().czxid().get());
        reader.release("read", &path).await;
        env.wait_for_children(&client, &path, 2).await;
        tokio::time::sleep(A_WHILE).await;
        let until = Clock::now();
        assert!(reading.is_held());
        assert!(reading.release().await.unwrap().is_released());
        assert!(Report::of(&mut writer).await.first_grant() > until, "it wrote while we read");
        env.wait_for_children(&client, &path, 0).await;
        java.end().await;
    }
}

/// CURATOR-621, in Java's Curator before 5.5: the read node of a downgrade is queued last, so any queued
/// writer is granted. This side cannot prevent it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn our_queued_writer_gets_in_over_javas_before_curator_5_5() {
    let env = Env::new(Kind::InProcess);
    let java = Peer::java(&env).await;
    let (client, path) = (env.client().await, env.path("lock"));
    let lock = InterProcessReadWriteLock::new(client.clone(), &path).unwrap().write_lock();
    let mut both = java.thread("both");
    both.acquire("write", &path).await;
    let writer = tokio::spawn(async move { lock.acquire().await.unwrap() });
    env.wait_for_children(&client, &path, 2).await;
    both.acquire("read", &path).await;
    both.release("write", &path).await;
    let gets_in = java.curator_version().await < [5, 5];
    // The notification of the writer precedes this listing.
    env.wait_for_children(&client, &path, 2).await;
    match gets_in {
        true => eventually("it writes", async || writer.is_finished()).await,
        // For the node ahead, and for its own.
        false => eventually("it waits for the reader", async || watchers(std::slice::from_ref(&client)) == 2).await,
    }
    assert_eq!(writer.is_finished(), gets_in);
    assert_eq!(both.ask(&format!("holds read {path}")).await, "true");
    both.release("read", &path).await;
    let writing = in_time(writer).await.unwrap();
    assert!(writing.is_held());
    assert!(writing.release().await.unwrap().is_released());
    env.wait_for_children(&client, &path, 0).await;
    java.end().await;
}

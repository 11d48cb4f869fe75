//! One owner in several tasks at once.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use curator_integration::in_process::{client, server};
use curator_recipes::{InterProcessReadWriteLock, LockError, LockOwner};

const SOON: Duration = Duration::from_secs(4);

/// An owner that writes may read, also while another of its tasks enters the write lock once more.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_writer_may_always_read() {
    let server = server();
    let lock = InterProcessReadWriteLock::new(client(&server).await, "/rw").unwrap();
    let owner = LockOwner::new();
    let writing = lock.write_lock().acquire_as(&owner).await.unwrap();
    let stop = Arc::new(AtomicBool::new(false));
    let busy = {
        let (lock, owner, stop) = (lock.write_lock(), owner.clone(), Arc::clone(&stop));
        tokio::spawn(async move {
            while !stop.load(Ordering::SeqCst) {
                for _ in 0..1000 {
                    assert!(lock.acquire_as(&owner).await.unwrap().release().await.unwrap().is_released());
                }
                tokio::task::yield_now().await;
            }
        })
    };
    let mut waited = None;
    for round in 0..2000 {
        let reading = lock.read_lock().acquire_as_timeout(&owner, SOON).await.unwrap();
        let Some(reading) = reading else {
            waited = Some(round);
            break;
        };
        assert!(reading.release().await.unwrap().is_released());
    }
    stop.store(true, Ordering::SeqCst);
    busy.await.unwrap();
    drop(writing);
    assert_eq!(waited, None, "in that round a writer that reads waited for itself");
}

/// Both at once, by one owner: the read waits for the write and exists beside it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_write_and_a_read_of_one_owner_at_once_do_not_block_each_other() {
    let server = server();
    let lock = InterProcessReadWriteLock::new(client(&server).await, "/rw").unwrap();
    let (write, read) = (lock.write_lock(), lock.read_lock());
    let (writing, reading) =
        LockOwner::scope(async { tokio::join!(write.acquire_timeout(SOON), read.acquire_timeout(SOON)) }).await;
    assert!(writing.unwrap().is_some());
    assert!(reading.unwrap().is_some(), "the reader waited for the writer of its own owner");
}

/// Both at once, by one owner, the other way round: that is an upgrade, which is refused and not waited for.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_read_and_a_write_of_one_owner_at_once_are_an_upgrade() {
    let server = server();
    let lock = InterProcessReadWriteLock::new(client(&server).await, "/rw").unwrap();
    let (write, read) = (lock.write_lock(), lock.read_lock());
    let (reading, writing) =
        LockOwner::scope(async { tokio::join!(read.acquire_timeout(SOON), write.acquire_timeout(SOON)) }).await;
    assert!(reading.unwrap().is_some());
    assert!(matches!(writing, Err(LockError::Upgrade { .. })), "it waited for itself: {writing:?}");
}

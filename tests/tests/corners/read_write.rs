//! Readers and writers.

use std::time::Duration;

use curator_recipes::{InterProcessReadWriteLock, LockError};
use curator_test::SimulatedEnsemble;

use crate::simulated;

/// The write node is deleted by somebody, the next writer has the lock, and only then the downgrade is asked for.
#[tokio::test(start_paused = true)]
async fn a_downgrade_does_not_read_beside_the_next_writer() {
    let ensemble = SimulatedEnsemble::new(1, Duration::from_millis(1));
    let (one, other) = (simulated(&ensemble, 1).await, simulated(&ensemble, 2).await);
    let first = InterProcessReadWriteLock::new(one, "/rw").unwrap();
    let second = InterProcessReadWriteLock::new(other, "/rw").unwrap();
    let writing = first.write_lock().acquire().await.unwrap();
    let waiter = tokio::spawn(async move { second.write_lock().acquire().await.unwrap() });
    tokio::time::sleep(Duration::from_millis(500)).await;
    ensemble.delete(writing.path());
    let next = waiter.await.unwrap();
    let reading = writing.downgrade().await;
    tokio::time::sleep(Duration::from_secs(40)).await;
    match reading {
        Err(LockError::LockLost { .. }) => {}
        Err(other) => panic!("{other}"),
        Ok(reading) => assert!(
            !(reading.is_held() && next.is_held()),
            "a reader and a writer hold the lock at once; verified: {:?}",
            reading.verify().await
        ),
    }
}

//! Scenes on a simulated network, under paused time: moments are exact.

use std::time::Duration;

use curator_framework::{CuratorFramework, RetryNTimes};
use curator_test::{ClientId, SimulatedEnsemble};
use tokio::runtime;
use tokio::time::{Instant, sleep, timeout};

/// The longest time that a message takes.
pub const LATENCY: Duration = Duration::from_millis(10);
/// The session timeout of the clients.
pub const SESSION: Duration = Duration::from_secs(10);
pub const ONE: ClientId = ClientId(1);
pub const TWO: ClientId = ClientId(2);
/// The limit of each wait: longer than any step of a scene takes.
pub const PATIENCE: Duration = Duration::from_secs(60);

/// Runs a scene on an ensemble, in a runtime of its own: the tasks of other scenes do not count.
pub fn play<T>(seed: u64, scene: impl AsyncFnOnce(SimulatedEnsemble) -> T) -> T {
    let runtime = runtime::Builder::new_current_thread().enable_time().start_paused(true).build().unwrap();
    runtime.block_on(async { scene(SimulatedEnsemble::new(seed, LATENCY)).await })
}

/// Connects a client that retries for longer than any fault of a scene lasts, and sends nothing of its own.
pub async fn client(ensemble: &SimulatedEnsemble, id: ClientId) -> CuratorFramework {
    let options = ensemble.client(id).session_timeout(SESSION).connection_timeout(SESSION).reap_interval(None);
    // The closes of a scene outlast its faults too.
    let options = options.max_close_wait(PATIENCE);
    let client = options.retry_policy(RetryNTimes::new(1000, Duration::from_millis(100))).build().unwrap();
    client.start().unwrap();
    client.block_until_connected().await.unwrap();
    client
}

/// Waits for an event that must come within [`PATIENCE`].
pub async fn soon<T>(future: impl Future<Output = T>) -> T {
    timeout(PATIENCE, future).await.expect("it did not come in time")
}

/// Lets time pass until a condition is true, which must be within [`PATIENCE`].
pub async fn until(what: &str, mut is_true: impl FnMut() -> bool) {
    let begun = Instant::now();
    while !is_true() {
        assert!(begun.elapsed() < PATIENCE, "{what}: not in time");
        sleep(Duration::from_millis(1)).await;
    }
}

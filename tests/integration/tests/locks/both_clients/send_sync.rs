//! What moves between threads: checked by the compiler, nothing runs.

use std::time::Duration;

use curator_framework::recipe::OwnedNode;
use curator_framework::{CuratorFramework, RetryLoop, Session, Watch};
use curator_recipes::{InterProcessMutex, InterProcessSemaphoreV2, Lease, LockError, LockOwner, MutexGuard};

fn send<T: Send>(_: T) {}
fn shared<T: Send + Sync + 'static>() {}

#[test]
fn everything_is_send_and_sync() {
    shared::<CuratorFramework>();
    shared::<Session>();
    shared::<OwnedNode>();
    shared::<RetryLoop>();
    shared::<Watch>();
    shared::<InterProcessMutex>();
    shared::<MutexGuard>();
    shared::<InterProcessSemaphoreV2>();
    shared::<Lease>();
    shared::<LockError>();
    shared::<LockOwner>();
}

#[expect(dead_code, reason = "only compiled")]
fn every_future_is_send(
    client: &CuratorFramework,
    mutex: &InterProcessMutex,
    guard: &MutexGuard,
    semaphore: &InterProcessSemaphoreV2,
    lease: &Lease,
) {
    let second = Duration::from_secs(1);
    let owner = LockOwner::new();
    send(client.block_until_connected());
    send(client.close());
    send(client.session());
    send(client.create().with_protection().for_path("/a"));
    send(client.delete().guaranteed().for_path("/a"));
    send(client.check_exists().for_path("/a"));
    send(client.get_data().for_path("/a"));
    send(client.set_data().for_path("/a", "x"));
    send(client.get_children().for_path("/a"));
    send(mutex.acquire());
    send(mutex.acquire_timeout(second));
    send(mutex.try_acquire());
    send(mutex.acquire_as(&owner));
    send(mutex.acquire_as_timeout(&owner, second));
    send(mutex.participant_nodes());
    send(LockOwner::scope(mutex.acquire()));
    send(guard.release());
    send(guard.lost());
    send(semaphore.acquire());
    send(semaphore.acquire_timeout(second));
    send(semaphore.try_acquire());
    send(semaphore.participant_nodes());
    send(lease.release());
    send(lease.lost());
    send(lease.data());
}

//! Curator's two ways to run an operation, and the faults that most tests need.

use std::time::Duration;

use curator_framework::{Acl, ConnectionState, CuratorFramework, CuratorFrameworkBuilder, Permission, RetryNTimes};
use curator_integration::env::{Env, builder, connected, in_time};
use curator_test::FaultProxy;

/// Runs it here, or as a task of its own: Curator's foreground and background.
pub(crate) async fn run<T: Send + 'static>(background: bool, operation: impl Future<Output = T> + Send + 'static) -> T {
    match background {
        false => in_time(operation).await,
        true => in_time(tokio::spawn(operation)).await.unwrap(),
    }
}

/// Both of them.
pub(crate) const GROUNDS: [bool; 2] = [false, true];

/// A connected client in a namespace below the test's own root. Returns the namespace too, as a path.
pub(crate) async fn in_namespace(env: &Env, name: &str) -> (CuratorFramework, String) {
    let namespace = env.path(name);
    (connected(builder(env.address()).namespace(&namespace[1..])).await, namespace)
}

/// Options of a client behind a proxy that neither waits nor tries again for long.
pub(crate) fn impatient(proxy: &FaultProxy) -> CuratorFrameworkBuilder {
    builder(proxy.address())
        .session_timeout(Duration::from_secs(20))
        .connection_timeout(Duration::from_secs(1))
        .retry_policy(RetryNTimes::new(0, Duration::ZERO))
}

/// Breaks the connections, and refuses new connections.
pub(crate) fn take_down(proxy: &FaultProxy) {
    proxy.refuse();
    proxy.reset();
}

/// As [`take_down`], and waits until the client knows.
pub(crate) async fn cut_off(proxy: &FaultProxy, client: &CuratorFramework) {
    let mut state = client.watch_connection_state();
    take_down(proxy);
    in_time(state.wait_for(|state| *state == Some(ConnectionState::Suspended))).await.unwrap();
}

/// Every client may do this much.
pub(crate) fn world(permissions: Permission) -> Vec<Acl> {
    vec![Acl::new(permissions, "world", "anyone")]
}

pub(crate) async fn acl_of(client: &CuratorFramework, path: &str) -> Vec<Acl> {
    client.get_acl().for_path(path).await.unwrap().0
}

pub(crate) async fn exists(client: &CuratorFramework, path: &str) -> bool {
    in_time(client.check_exists().for_path(path)).await.unwrap().is_some()
}

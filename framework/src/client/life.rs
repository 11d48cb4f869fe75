//! The start of a client, its connection, and its close.
//!
//! If the factory opens sockets, `start` refuses a paused clock. tokio's clock jumps to the next timer while a reply is
//! on its way, so every limit would pass first. A separate clock for each limit would still leave the caller's limits
//! to those jumps. A custom `Connector` needs no sockets, so `start` checks the runtime for I/O only if the factory
//! asks for it.

use std::sync::Arc;
use std::time::Duration;

use tokio::runtime::Handle;

use crate::client::CuratorFramework;
#[cfg(doc)]
use crate::client::builder::CuratorFrameworkBuilder;
use crate::client::recipe::RecipeClient as _;
use crate::core::config::DefaultData;
use crate::core::{LifeCycle, Shutdown, TaskEnd};
use crate::error::{Error, INTERNAL_WAIT, Result};
use crate::model::AuthInfo;
use crate::state::connection_state::ConnectionState;
use crate::sync::budget::Budget;

impl CuratorFramework {
    /// Starts to connect, in the background. Must be called once, in a tokio runtime.
    ///
    /// # Errors
    ///
    /// * `Error::AlreadyStarted`, `Error::Closed`: a client starts once; build another one.
    /// * `Error::NoRuntime`, `Error::IncompleteRuntime`: call it in a tokio runtime with timers and I/O.
    /// * `Error::PausedClock`: the test pauses the runtime's clock, so timers would end before a server can answer.
    ///
    /// An unreachable server is not an error here: operations report it.
    pub fn start(&self) -> Result<()> {
        let runtime = Handle::try_current().map_err(|_no_runtime| Error::NoRuntime)?;
        let shared = self.core.shared();
        let needs_io = shared.config.factory.needs_io();
        check_drivers(needs_io)?;
        if needs_io && is_clock_paused() {
            return Err(Error::PausedClock);
        }
        let before = shared.life_cycle.modify(|life_cycle| {
            let before = *life_cycle;
            if before == LifeCycle::Latent {
                *life_cycle = LifeCycle::Started;
            }
            before
        });
        match before {
            LifeCycle::Latent => {}
            LifeCycle::Started => return Err(Error::AlreadyStarted),
            LifeCycle::Stopped => return Err(Error::Closed),
        }
        shared.finished.send_replace(false);
        // Set once: a client starts once.
        let _first = shared.runtime.set(runtime.clone());
        if let DefaultData::HostAddress(address) = shared.config.default_data {
            address.begin();
        }
        let shared = Arc::clone(shared);
        // `close` must not hang, even if the task ends with its runtime or by a panic in a clock or a factory.
        let finished = TaskEnd(Arc::clone(&shared));
        runtime.spawn(async move {
            crate::client::supervisor::run(shared).await;
            drop(finished);
        });
        Ok(())
    }

    /// Adds [credentials](crate::CuratorFrameworkBuilder::authorization) while the client runs: ZooKeeper's `addAuthInfo`.
    /// Requests from now on have them, and each later connection sends them first. They cannot be taken back.
    ///
    /// The call returns at once. [`who_am_i`](Self::who_am_i) shows the user if the server has accepted them. A server that
    /// refuses credentials ends the session, and operations fail with `Error::AuthFailed`. They fail as long as the client
    /// has these credentials, so only another client helps.
    ///
    /// With `zookeeper-async` they count from the next session on.
    #[doc(alias = "addAuthInfo")]
    pub fn add_authorization(&self, scheme: impl Into<String>, auth: impl Into<Vec<u8>>) {
        self.core.shared().add_auth(AuthInfo { scheme: scheme.into(), auth: auth.into() });
    }

    /// Resolves when the client is connected.
    ///
    /// # Errors
    ///
    /// * `Error::NotStarted`: call [`start`](Self::start). `Error::Closed`: the client was closed.
    /// * `Error::AuthFailed`: a server did not accept the credentials; correct them, or call it again to wait on.
    ///
    /// # Cancel safety
    ///
    /// Nothing is lost when the future is dropped.
    #[doc(alias = "blockUntilConnected")]
    pub async fn block_until_connected(&self) -> Result<()> {
        let shared = self.core.shared();
        let mut state = shared.state.subscribe();
        tokio::select! {
            biased;
            error = self.core.not_started() => Err(error),
            _ = state.wait_for(|state| state.is_some_and(ConnectionState::is_connected)) => Ok(()),
            refusal = shared.refused() => Err(refusal),
        }
    }

    /// Resolves when the client is connected. Waits for it up to this time.
    ///
    /// # Errors
    ///
    /// * `Error::ConnectionLoss`: the time has ended. The cause has the failure of each server.
    /// * `Error::NotStarted`: call [`start`](Self::start). `Error::Closed`: the client was closed.
    /// * `Error::AuthFailed`: a server did not accept the credentials; correct them, or call it again to wait on.
    ///
    /// # Cancel safety
    ///
    /// Nothing is lost when the future is dropped.
    pub async fn block_until_connected_timeout(&self, timeout: Duration) -> Result<()> {
        let connected = Budget::of(timeout).limit(self.block_until_connected()).await;
        connected.unwrap_or_else(|| Err(self.core.not_connected(INTERNAL_WAIT)))
    }

    /// Closes the client. Resolves within [`max_close_wait`](CuratorFrameworkBuilder::max_close_wait), 5 s by default, even
    /// in a silent network. Closing twice is fine.
    ///
    /// 1. From the first moment, every new operation fails with `Closed`.
    /// 2. Pending deletes (dropped guards, protected creates, guaranteed deletes) get up to half of `max_close_wait`.
    /// 3. The client closes the session, which loses its guards, and waits for the reply.
    ///
    /// A client that is just connecting waits up to half of `max_close_wait` for the attempt, which may still create a
    /// session. If no server can be reached, the session times out on the server. The default client leaves no task then; the
    /// tasks of the crate `zookeeper-async` stay until a server is back or the runtime ends.
    ///
    /// # Cancel safety
    ///
    /// The client continues to close when this future is dropped.
    pub async fn close(&self) {
        let shared = self.core.shared();
        let budget = self.close_budget();
        shared.stop(Shutdown::Graceful);
        let closed = async {
            // Never fails: `shared` has the sender.
            drop(shared.finished.subscribe().wait_for(|&finished| finished).await);
            let closing = std::mem::take(&mut *shared.closing.lock());
            futures_util::future::join_all(closing).await
        };
        let _in_time = budget.limit(closed).await;
        self.listeners.clear();
        shared.config.session.unhandled_errors.close();
    }

    /// Resolves when the client is closed, by [`close`](Self::close) or with its last clone that keeps it.
    ///
    /// # Cancel safety
    ///
    /// Nothing is lost when the future is dropped.
    pub async fn closed(&self) {
        self.core.shared().life_cycle.wait_for(|&life_cycle| life_cycle == LifeCycle::Stopped).await;
    }
}

/// Returns `true` if tokio's clock does not advance, as in a test with `start_paused`. tokio has no query for this.
fn is_clock_paused() -> bool {
    let paused = tokio::time::Instant::now();
    let running = std::time::Instant::now();
    while running.elapsed() < Duration::from_micros(10) {
        std::hint::spin_loop();
    }
    paused.elapsed().is_zero()
}

/// Checks that the runtime has timers, and I/O if the client needs it. Without them the client's task would panic.
///
/// tokio has no query for this and panics at the first use. So this uses both and catches the panic. The application's
/// panic hook still prints tokio's message; an application that aborts on panics aborts here.
pub(super) fn check_drivers(needs_io: bool) -> Result<()> {
    let is_there = |used: fn()| std::panic::catch_unwind(used).is_ok();
    if !is_there(|| drop(tokio::time::sleep(Duration::ZERO))) {
        return Err(Error::IncompleteRuntime { missing: "timers" });
    }
    let registers_a_socket = || {
        let socket = std::net::UdpSocket::bind((std::net::Ipv4Addr::LOCALHOST, 0));
        // A failed bind does not count: it says nothing about the runtime.
        if let Ok(socket) = socket.and_then(|socket| socket.set_nonblocking(true).map(|()| socket)) {
            drop(tokio::net::UdpSocket::from_std(socket));
        }
    };
    if needs_io && !is_there(registers_a_socket) {
        return Err(Error::IncompleteRuntime { missing: "I/O" });
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;
    use std::sync::LazyLock;
    use std::sync::mpsc::{Receiver, Sender, channel};

    use parking_lot::Mutex;

    use super::*;
    use crate::environment::local_address::LocalAddress;
    use crate::retry::RetryNTimes;

    #[test]
    fn start_needs_a_runtime_with_timers_and_io() {
        let start = |enable: fn(&mut tokio::runtime::Builder)| {
            let mut builder = tokio::runtime::Builder::new_current_thread();
            enable(&mut builder);
            let client = CuratorFramework::new_client("127.0.0.1:1", RetryNTimes::new(0, Duration::ZERO)).unwrap();
            builder.build().unwrap().block_on(async move { client.start() })
        };
        let missing = |enable| match start(enable) {
            Err(Error::IncompleteRuntime { missing }) => missing,
            other => panic!("{other:?}"),
        };
        assert_eq!(missing(|_| {}), "timers");
        assert_eq!(missing(|builder| _ = builder.enable_io()), "timers");
        assert_eq!(missing(|builder| _ = builder.enable_time()), "I/O");
        start(|builder| _ = builder.enable_all()).unwrap();
    }

    #[tokio::test]
    async fn build_and_start_do_not_wait_for_the_address_of_the_host() {
        static GATE: LazyLock<(Sender<()>, Mutex<Receiver<()>>)> = LazyLock::new(|| {
            let (open, gate) = channel();
            (open, Mutex::new(gate))
        });
        static ADDRESS: LazyLock<LocalAddress> = LazyLock::new(|| {
            LocalAddress::new(|| {
                GATE.1.lock().recv_timeout(Duration::from_secs(10)).ok()?;
                Some(Ipv4Addr::new(10, 0, 0, 7).into())
            })
        });
        let mut builder = CuratorFramework::builder("127.0.0.1:1").retry_policy(RetryNTimes::new(0, Duration::ZERO));
        builder.config.default_data = DefaultData::HostAddress(&ADDRESS);
        let client = builder.build().unwrap();
        client.start().unwrap();
        assert!(!ADDRESS.is_known(), "the lookup has not ended");
        assert_eq!(client.default_data(), b"");
        GATE.0.send(()).unwrap();
        ADDRESS.wait().await;
        while !ADDRESS.is_known() {
            ADDRESS.wait().await;
        }
        assert_eq!(client.default_data(), b"10.0.0.7");
        client.close().await;
    }
}

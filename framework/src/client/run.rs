//! A client that is closed however its program's work ends.

use std::panic::{AssertUnwindSafe, resume_unwind};

use futures_util::FutureExt as _;

use crate::client::CuratorFramework;
use crate::core::Shutdown;
use crate::error::Error;

/// Closes the client in the background if the future of [`run`] is dropped.
struct CloseOnDrop<'a>(&'a CuratorFramework);

impl Drop for CloseOnDrop<'_> {
    fn drop(&mut self) {
        self.0.core.shared().stop(Shutdown::Graceful);
    }
}

/// Runs `work` and closes the client.
pub(super) async fn run<T, E: From<Error>>(
    client: &CuratorFramework,
    work: impl Future<Output = Result<T, E>>,
) -> Result<T, E> {
    match client.start() {
        Ok(()) | Err(Error::AlreadyStarted) => {}
        Err(error) => return Err(error.into()),
    }
    let _dropped = CloseOnDrop(client);
    let mut signals = Signals::new()?;
    let ended = tokio::select! {
        biased;
        ended = AssertUnwindSafe(work).catch_unwind() => ended,
        signal = signals.next() => Ok(Err(Error::Interrupted { signal }.into())),
    };
    tokio::select! {
        biased;
        () = client.close() => {}
        signal = signals.next() => tracing::debug!(signal, "the close is not awaited"),
    }
    ended.unwrap_or_else(|panic| resume_unwind(panic))
}

/// The signals that ask the process to end.
#[cfg(all(unix, feature = "signal"))]
struct Signals {
    interrupt: tokio::signal::unix::Signal,
    terminate: tokio::signal::unix::Signal,
}

#[cfg(all(unix, feature = "signal"))]
impl Signals {
    /// # Errors
    ///
    /// * `Error::IncompleteRuntime`: signals need the runtime's I/O.
    /// * `Error::InvalidConfig`: the system refuses a handler.
    fn new() -> Result<Self, Error> {
        use tokio::signal::unix::{SignalKind, signal};
        super::check_drivers(true)?;
        let caught = |kind| signal(kind).map_err(|error| Error::invalid_config("signal handler", error.to_string()));
        Ok(Self { interrupt: caught(SignalKind::interrupt())?, terminate: caught(SignalKind::terminate())? })
    }

    async fn next(&mut self) -> &'static str {
        tokio::select! {
            _ = self.interrupt.recv() => "SIGINT",
            _ = self.terminate.recv() => "SIGTERM",
        }
    }
}

/// Ctrl-C, where it is not a Unix signal.
#[cfg(all(not(unix), feature = "signal"))]
struct Signals;

#[cfg(all(not(unix), feature = "signal"))]
impl Signals {
    #[allow(clippy::unnecessary_wraps, reason = "on Unix it can fail")]
    fn new() -> Result<Self, Error> {
        Ok(Self)
    }

    async fn next(&mut self) -> &'static str {
        match tokio::signal::ctrl_c().await {
            Ok(()) => "Ctrl-C",
            Err(_no_console) => std::future::pending().await,
        }
    }
}

#[cfg(not(feature = "signal"))]
struct Signals;

#[cfg(not(feature = "signal"))]
impl Signals {
    #[allow(clippy::unnecessary_wraps, reason = "with the feature `signal` it can fail")]
    fn new() -> Result<Self, Error> {
        static ONCE: std::sync::Once = std::sync::Once::new();
        ONCE.call_once(|| {
            crate::sync::report::report(|| {
                tracing::warn!("the cargo feature signal is off: Ctrl-C does not close the client")
            });
        });
        Ok(Self)
    }

    async fn next(&mut self) -> &'static str {
        std::future::pending().await
    }
}

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

impl CuratorFramework {
    /// Runs `work`, and closes the client however that ends, so that no lock stays until its session times out. Starts
    /// the client unless [`start`](Self::start) was called before.
    ///
    /// | `work` | the client is closed | result |
    /// | --- | --- | --- |
    /// | returns, also by `?` | and the close is awaited | the value or error of `work` |
    /// | panics | and the close is awaited | the panic continues |
    /// | runs when Ctrl-C, `SIGINT` or `SIGTERM` arrives | `work` is dropped first; a second signal ends the wait | `Interrupted` |
    /// | is dropped with this future | in the background | – |
    ///
    /// Tasks that `work` has spawned continue, and their guards are lost. The cargo feature `signal`, on by default,
    /// catches the signals; without it no signal closes the client, and a warning says so. From the first call on,
    /// tokio's handlers replace the system's for the rest of the process.
    /// A signal outside of `run` has no effect then, unless the program catches it too.
    ///
    /// The first signal drops `work` at once. A service that lets its requests end catches the signals itself and
    /// awaits `close`, as the example `axum_service` does.
    ///
    /// # Errors
    ///
    /// * the error of `work`
    /// * `Error::Interrupted`: a signal has ended `work`.
    /// * `Error::Closed`: a client runs once; build another one.
    /// * `Error::NoRuntime`, `Error::IncompleteRuntime`: call it in a tokio runtime with timers and I/O. Signals need
    ///   I/O.
    /// * `Error::PausedClock`: the test pauses the runtime's clock, so timers would end before a server can answer.
    ///
    /// # Cancel safety
    ///
    /// The client is closed when this future is dropped, as by [`close`](Self::close).
    ///
    /// # Examples
    ///
    /// ```no_run
    /// # use curator_framework::CuratorFramework;
    /// # async fn main_of_a_program(client: CuratorFramework) -> Result<(), Box<dyn std::error::Error>> {
    /// client
    ///     .run(async {
    ///         let (mode, _) = client.get_data().for_path("/settings/mode").await?;
    ///         println!("{}", String::from_utf8(mode)?);
    ///         Ok(())
    ///     })
    ///     .await
    /// # }
    /// ```
    pub async fn run<T, E: From<Error>>(&self, work: impl Future<Output = Result<T, E>>) -> Result<T, E> {
        run(self, work).await
    }
}

/// Runs `work` and closes the client.
async fn run<T, E: From<Error>>(client: &CuratorFramework, work: impl Future<Output = Result<T, E>>) -> Result<T, E> {
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
        signal = signals.next() => tracing::debug!(signal, "another signal ends the wait for the close"),
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
        super::life::check_drivers(true)?;
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

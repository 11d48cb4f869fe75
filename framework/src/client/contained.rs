//! Objects of the program in the options of a client. Each of their panics has the effect of a refusal:
//!
//! | object | effect of a panic |
//! | --- | --- |
//! | `AclProvider` | an empty list, with which the create fails as `Error::InvalidAcl` |
//! | `CompressionProvider` | the request fails as `Error::Compression` |
//! | `ConnectionStateErrorPolicy` | the state counts as an error: owned nodes are lost |
//! | `EnsembleProvider` | an empty connect string: the servers of before stay |
//! | `Randomness` | a number of [`ThreadRandomness`] |
//! | `RetryPolicy` | no retry |
//! | `ZooKeeperFactory` | the attempt to connect fails |
//!
//! Without this a panic would end the calling task: the session's task, with all locks, or the client's task.

use std::fmt;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use parking_lot::Mutex;

use crate::ensemble::provider::EnsembleProvider;
use crate::environment::clock::Clock;
use crate::environment::randomness::{Randomness, ThreadRandomness};
use crate::error::{ConnectError, Error};
use crate::model::Acl;
use crate::model::acl_provider::AclProvider;
use crate::model::compression::CompressionProvider;
use crate::retry::{RetryAttempt, RetryPolicy};
use crate::state::connection_state::{ConnectionState, ConnectionStateErrorPolicy};
use crate::sync::user_code::{catch_panic, catch_panic_of};
use crate::zookeeper::{Capabilities, ConnectConfig, Connection, ZooKeeperFactory};

/// An object of the program.
pub(super) struct Contained<T: ?Sized>(pub(super) Arc<T>);

impl<T: ?Sized + fmt::Debug> fmt::Debug for Contained<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// A clock of the program. Drops read the clock, and a panic there would abort the process. So a panic returns the newest
/// time that the clock has shown, and the deadline passes by the machine's own clock.
#[derive(Debug)]
pub(super) struct ContainedClock<T> {
    clock: T,
    newest: Mutex<Duration>,
}

impl<T> ContainedClock<T> {
    pub(super) fn new(clock: T) -> Self {
        Self { clock, newest: Mutex::default() }
    }
}

impl<T: Clock> Clock for ContainedClock<T> {
    fn now(&self) -> Duration {
        match catch_panic("clock", || self.clock.now()) {
            Ok(now) => {
                *self.newest.lock() = now;
                now
            }
            Err(_panic) => *self.newest.lock(),
        }
    }

    fn is_simulated(&self) -> bool {
        self.clock.is_simulated()
    }
}

impl AclProvider for Contained<dyn AclProvider> {
    fn default_acl(&self) -> Vec<Acl> {
        catch_panic("ACL provider", || self.0.default_acl()).unwrap_or_default()
    }

    fn acl_for_path(&self, path: &str) -> Option<Vec<Acl>> {
        catch_panic("ACL provider", || self.0.acl_for_path(path)).unwrap_or_else(|_panic| Some(Vec::new()))
    }
}

impl CompressionProvider for Contained<dyn CompressionProvider> {
    fn compress(&self, path: &str, data: &[u8]) -> io::Result<Vec<u8>> {
        catch_panic("compression provider", || self.0.compress(path, data)).map_err(io::Error::other)?
    }

    fn decompress(&self, path: &str, compressed: &[u8]) -> io::Result<Vec<u8>> {
        catch_panic("compression provider", || self.0.decompress(path, compressed)).map_err(io::Error::other)?
    }
}

impl ConnectionStateErrorPolicy for Contained<dyn ConnectionStateErrorPolicy> {
    fn is_error_state(&self, state: ConnectionState) -> bool {
        catch_panic("connection state error policy", || self.0.is_error_state(state)).unwrap_or(true)
    }
}

impl EnsembleProvider for Contained<dyn EnsembleProvider> {
    fn connect_string(&self) -> String {
        catch_panic("ensemble provider", || self.0.connect_string()).unwrap_or_default()
    }

    fn set_connect_string(&self, connect_string: &str) {
        // The event is enough: the next change of the configuration calls it again.
        let _reported = catch_panic("ensemble provider", || self.0.set_connect_string(connect_string));
    }
}

impl Randomness for Contained<dyn Randomness> {
    fn next(&self) -> u64 {
        catch_panic("source of random numbers", || self.0.next()).unwrap_or_else(|_panic| ThreadRandomness.next())
    }
}

impl RetryPolicy for Contained<dyn RetryPolicy> {
    fn next_pause(&self, attempt: RetryAttempt) -> Option<Duration> {
        catch_panic("retry policy", || self.0.next_pause(attempt)).unwrap_or_default()
    }

    fn allow_retry(&self, error: &Error) -> bool {
        catch_panic("retry policy", || self.0.allow_retry(error)).unwrap_or_default()
    }
}

#[async_trait]
impl ZooKeeperFactory for Contained<dyn ZooKeeperFactory> {
    async fn connect(&self, config: &ConnectConfig) -> Result<Connection, ConnectError> {
        let connected = catch_panic_of("ZooKeeper factory", || self.0.connect(config)).await;
        connected.unwrap_or_else(|panic| Err(ConnectError::new(self.0.client(), panic)))
    }

    fn capabilities(&self) -> Capabilities {
        self.0.capabilities()
    }

    fn client(&self) -> &'static str {
        self.0.client()
    }

    fn needs_io(&self) -> bool {
        self.0.needs_io()
    }
}

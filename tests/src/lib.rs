//! Servers for tests.

mod apache;
mod kill_session;
mod proxy;
mod server;
pub mod wire;

pub use apache::{ApacheError, ApacheServer, ApacheServerBuilder};
pub use kill_session::kill_session;
pub use proxy::FaultProxy;
pub use server::{LoggedRequest, TestingServer, TestingServerBuilder};

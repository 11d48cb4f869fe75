//! Servers for tests.

mod apache;
pub mod history;
mod kill_session;
mod proxy;
mod server;
mod simulation;
pub mod wire;

pub use apache::{ApacheError, ApacheServer, ApacheServerBuilder};
pub use kill_session::kill_session;
pub use proxy::FaultProxy;
pub use server::{LoggedRequest, TestingServer, TestingServerBuilder};
pub use simulation::{ClientId, SimulatedEnsemble};

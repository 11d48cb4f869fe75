//! Values that all processes share.

mod count;
mod error;
mod listeners;
mod node_follower;
mod value;
mod versioned;

#[allow(unused_imports, reason = "for recipes that follow a count")]
pub(crate) use count::CountObserver;
pub use count::{SharedCount, SharedCountListener, SharedCountReader};
pub use error::SharedError;
pub use listeners::{SharedValueListener, SharedValueReader};
pub use value::SharedValue;
pub use versioned::VersionedValue;

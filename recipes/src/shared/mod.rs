//! Values that all processes share.

mod count;
pub(crate) mod error;
mod listeners;
mod node_follower;
mod value;
mod versioned;

pub use count::{SharedCount, SharedCountListener, SharedCountReader};
pub use error::SharedError;
pub use listeners::{SharedValueListener, SharedValueReader};
pub use value::SharedValue;
pub use versioned::VersionedValue;

//! Values that all processes share.
//!
//! | file | contents |
//! | --- | --- |
//! | [`value`], [`count`] | the public names for bytes and for numbers |
//! | [`mechanism`] | what both are: the start, the reads, the changes, the listeners |
//! | [`local_copy`], [`follower`] | the copy of the node, and the task that keeps it up to date |
//! | [`versioned`] | a value with its transaction and version |

mod count;
pub(crate) mod error;
mod follower;
mod local_copy;
mod mechanism;
mod value;
mod versioned;

pub use count::SharedCount;
pub use error::SharedError;
pub use mechanism::Shared;
pub use value::SharedValue;
pub use versioned::VersionedValue;

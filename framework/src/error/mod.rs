//! Errors, sorted by what a caller can do about them.

mod chain;
mod connect;
mod kinds;
mod path_text;

pub use self::chain::Chain;
pub use self::connect::ConnectError;
pub use self::kinds::{Error, RecipeError};
pub(crate) use self::kinds::{INTERNAL_BARRIER, INTERNAL_EARLIER, INTERNAL_WAIT};
pub use self::path_text::PathText;

/// The result of an operation on ZooKeeper.
pub type Result<T, E = Error> = std::result::Result<T, E>;

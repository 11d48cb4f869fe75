//! The guards of the locks, and their kinds.

pub mod kinds;
pub(crate) mod lock_guard;

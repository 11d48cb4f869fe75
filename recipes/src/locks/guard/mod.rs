//! The caller's side of a grant: guards, the hold behind them, guarded transactions, revocation.

pub(crate) mod guarded_transaction;
pub(crate) mod hold;
pub mod kinds;
pub(crate) mod lock_guard;
pub(crate) mod protect;
pub(crate) mod revocation;

//! What a caller holds: guards, the hold behind them, and what a holder can do with it.

pub(crate) mod guarded_transaction;
pub(crate) mod hold;
pub(crate) mod lock_guard;
pub(crate) mod revocation;

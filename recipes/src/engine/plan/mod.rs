//! The decisions of a contender: pure, without I/O, clock or shared state.
//!
//! [`Plan::next`] takes the result of the last action and returns the next one; the [runner](super::run) performs it.
//! This is Curator's `internalLockLoop`, turned inside out:
//!
//! ```text
//! create ─▶ list ─▶ the driver decides ─┬─ acquired ─────────────────────────────▶ grant
//!            ▲                          └─ node to wait for ─▶ arm ─▶ wait ─┬─ the only blocker is gone ─▶ grant
//!            └──────────────────────────────────────────────────────────────┴─ anything else
//! ```
//!
//! A contender that knows another one of its session ahead waits for that one's node without a listing.
//!
//! A notification has the epoch of its connection, and so has the result of a read. A hand-off needs both watches and
//! the deletion to be of one epoch. No code compares a counter before and after.

mod messages;
mod planner;
mod two_ahead;

pub(crate) use self::messages::{Ahead, Arm, Armed, DeletedBy, Epoch, Input, Listing, Rules, WaitSet, Watched};
pub(crate) use self::planner::{Action, Plan, Proof};

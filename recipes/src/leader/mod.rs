//! Leader election: a lock with a term, over the engine of the locks.
//!
//! | file | contents |
//! | --- | --- |
//! | [`latch`], [`candidate`] | the leader latch, and its task |
//! | [`selector`] | the leader selector |
//! | [`term`] | one term: the leader's view, its end, its writes |
//! | [`held_nodes`] | the nodes that exist as long as a term |
//! | [`handover`] | the leader's part of a hand-over; the candidate's part is in `engine/run/calls.rs` |
//! | [`observer`] | the leaders, followed by any client |
//! | [`state`] | the state of a latch, and what the latch and its task share |
//! | [`record_io`] | reads and writes of the path's data; the format is in `engine/candidacy/record.rs` |

pub(crate) mod candidate;
pub(crate) mod error;
mod handover;
mod held_nodes;
pub(crate) mod latch;
pub(crate) mod observer;
pub(crate) mod options;
mod record_io;
pub(crate) mod selector;
pub(crate) mod state;
pub(crate) mod term;

pub use error::{LeaderError, TermEnd};
pub use latch::LeaderLatch;
pub use observer::{Leader, LeaderObserver, ObserverState};
pub use options::{CloseMode, LeaderLatchOptions, LeaderSelectorOptions};
pub use selector::{LeaderSelector, TermOutcome};
pub use state::LeaderState;
pub use term::Leadership;

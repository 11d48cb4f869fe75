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
//!
//! The life of a term:
//!
//! | file | function | step |
//! | --- | --- | --- |
//! | `latch.rs` | `start` | starts the latch's standing task |
//! | `candidate.rs` | `run`, `attempt` | makes one attempt after the other, over all sessions |
//! | `candidate.rs` | `wait_in_the_queue` | acquires as a lock does; publishes `Waiting` with the position in each listing |
//! | `engine/candidacy/mod.rs` | `Candidacy::list` | reads the election record with a watch, and lists. If the record does not change, the deletion of the leader's node is the grant |
//! | `candidate.rs` | `begin`, `claim` | finds the term's number, then waits out the delay after a leader that did not resign |
//! | `candidate.rs` | `lead` | publishes `Leading` with a view of the term, and calls the listeners |
//! | `term.rs` | `ended` | resolves at a loss, or at a resignation |
//! | `candidate.rs` | `lead` | ends all views, publishes the next state, calls the listeners |
//! | `term.rs` | `release` | after a resignation: deletes the node, if there is a record in one transaction with it |
//! | `candidate.rs` | `run` | joins again, or publishes `Closed` |
//!
//! A selector does the same in the future of its caller (`one_term` in `selector.rs`). It drops the work before it
//! deletes the node.

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

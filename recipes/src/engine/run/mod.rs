//! The runner of a contender.
//!
//! | file | what it does |
//! | --- | --- |
//! | [`contender`] | holds what one contender has in one session |
//! | [`runner`] | performs the planner's actions |
//! | [`prefetch`] | lists with the create |
//! | [`calls`] | follows the calls of a leader |

mod calls;
mod contender;
mod prefetch;
mod runner;

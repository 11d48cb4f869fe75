//! The writes that a client has seen, and whether the history of a server contains them.
//!
//! The transactions of an ensemble are one sequence, so a server that has one write has all writes before it. After a
//! restore from a backup, or a loss of all data, the sequence is another one. Its zxids may be larger than those that
//! the client has seen, so a zxid alone proves nothing.

mod comparison;
mod writes;

#[cfg(test)]
mod tests;

pub(crate) use self::comparison::{Comparison, Judgement, Question};
pub(crate) use self::writes::History;

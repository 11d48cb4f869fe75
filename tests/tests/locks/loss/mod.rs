//! How locks of all kinds are lost, and who is told when.

pub(crate) mod held;
mod one_session;
mod players;
mod silence;
mod silence_on_apache;
mod told;
mod told_for_real;

//! How locks of all kinds are lost, and when that is reported.

mod both_clients;
mod one_session;
mod other_tasks;
mod players;
mod refused;
mod silence;
mod silence_on_apache;
mod stopped_process;
mod told;
mod told_for_real;

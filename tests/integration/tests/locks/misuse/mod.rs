//! Wrong use of the locks.

mod both_clients;
mod every_lock;

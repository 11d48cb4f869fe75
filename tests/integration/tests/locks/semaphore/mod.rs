//! Semaphores, and the mutex that is one.

mod both_clients;
mod changing_limit;
mod cluster;
mod direct;
mod leases;
mod many;
mod mutex;
mod protocols;
mod signals;
mod slots;

//! Service discovery on both servers, over either client.

mod caches;
mod outages;
mod providers;
mod queries;
mod registrations;

//! Caches on both servers, over either client.

mod follow;

//! Nodes and groups on both servers, over either client.

mod acls;
mod data;
mod groups;
mod node;
mod outages;
mod sessions;

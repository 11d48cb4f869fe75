//! Groups: members that are registered under ids, processes that follow them, and items divided among them.

pub(crate) mod group;
pub(crate) mod member;
pub(crate) mod members;
pub(crate) mod partition;

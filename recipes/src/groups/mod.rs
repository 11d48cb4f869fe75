//! Groups: members that are registered under ids, and processes that follow them.

pub(crate) mod group;
pub(crate) mod member;
pub(crate) mod members;

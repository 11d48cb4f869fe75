//! Typed nodes: Curator's `modeled`.
//!
//! | file | contents |
//! | --- | --- |
//! | [`spec`], [`options`] | the path, the codec and the kind of nodes |
//! | [`directory`] | the nodes of all keys |
//! | [`node`] | one node |
//! | [`cache`] | a local copy of a directory |
//! | [`write`] | a write that settles a lost reply |
//! | [`versioned`], [`error`] | what callers get |

pub(crate) mod cache;
pub(crate) mod directory;
pub(crate) mod error;
pub(crate) mod node;
pub(crate) mod options;
pub(crate) mod spec;
pub(crate) mod versioned;
mod write;

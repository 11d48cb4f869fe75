//! Barriers and a count-down latch.
//!
//! | file | contents |
//! | --- | --- |
//! | [`barrier`], [`owned`] | a barrier that any client sets and removes, and one that is removed with its owner |
//! | [`double`] | a double barrier: members enter together and leave together |
//! | [`latch`] | a count-down latch |
//! | [`node_hold`](crate::node_hold) | the hold on that node: its loss, its end, its token |
//! | [`exact_node`] | creates the ephemeral node of an owner or a participant |
//! | [`checks`] | the checks of a path, of a client, and of a reply |
//! | [`waiting`] | the wait for one node, over connections and sessions |
//!
//! Double barriers and latches have one protocol, of transactions. A client without transactions is refused before its
//! first write. Single requests would count a member that gives up. They would leave a latch shut if its last counter
//! dies before it opens the latch.

pub(crate) mod barrier;
mod checks;
pub(crate) mod double;
pub(crate) mod error;
mod exact_node;
pub(crate) mod latch;
pub(crate) mod owned;
mod waiting;

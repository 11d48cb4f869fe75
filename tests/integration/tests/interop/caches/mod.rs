//! Caches of both languages over one tree.
//!
//! A [`Peer`](crate::peer::Peer) in Java follows a tree, with these verbs:
//!
//! | verb | answer |
//! | --- | --- |
//! | `cache KIND PATH start` | `started`, when the cache is initialized |
//! | `cache KIND PATH agrees TREE` | `agrees`, when the cache has exactly these nodes; else, after a while, the nodes that it has |
//! | `cache KIND PATH told MARKER` | the nodes that result from the events, when these have reported the node of this path |
//!
//! A kind is `curator` (`CuratorCache`) or `tree` (`TreeCache`); a tree is `PATH=CZXID,MZXID,VERSION,DATA;…` in the order of the
//! paths.

mod follower;
mod kills;
mod tree;
mod work;

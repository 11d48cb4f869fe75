//! Persistent nodes, and groups, of both languages at one path.
//!
//! A [`Peer`](crate::peer::Peer) keeps nodes and is a member of groups, with these verbs:
//!
//! | verb | answer |
//! | --- | --- |
//! | `group PATH ID join [DATA]` | `joined`, when its node exists |
//! | `group PATH ID members` | `ID=DATA,ID=DATA` in the order of the ids, as this member sees the group |
//! | `group PATH ID sees ID=DATA,ID=DATA` | `seen`, when it sees exactly these |
//! | `group PATH ID write DATA` | `written` |
//! | `group PATH ID leave` | `left` |
//! | `node PATH start KIND DATA` | `started` (Java alone) |
//! | `node PATH stands MILLIS` | `true` if Java takes the node for its own within this time, else `false` |
//! | `node PATH write DATA` | `written` |
//! | `node PATH close` | `closed` |
//!
//! A kind is `ephemeral`, `persistent` or `ttl:MILLIS`.

mod member;
mod members;
mod nodes;
mod ttl;

pub(crate) use member::group;

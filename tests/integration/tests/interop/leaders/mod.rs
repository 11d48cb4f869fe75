//! Leaders of both languages at one path.
//!
//! A [`Peer`](crate::peer::Peer) is a candidate, or several, with these verbs:
//!
//! | verb | answer |
//! | --- | --- |
//! | `join KIND PATH ID` | `joined` |
//! | `await PATH ID` | `leads`, when it leads |
//! | `leads PATH ID` | `true` or `false` |
//! | `node PATH ID` | the path of its node |
//! | `leader PATH ID` | the id of the leader |
//! | `candidates PATH ID` | the ids of all candidates in their order, the leader's with a `*` |
//! | `hand-over PATH ID TO` | `true` when a latch of ours has resigned in favour of another one, else `false` |
//! | `leave PATH ID` | `left` |
//! | `campaign KIND PATH ID PORT HOLD_MILLIS ENDING,ENDING` | `done`: it has led term after term until `stop PATH`, and used the resource in each |
//!
//! A kind is `latch` or `selector`. An ending of a term is `close`, `notify`, `client` (the client is closed), `resign`,
//! `return` or `interrupt`.

mod campaigns;
mod candidate;
mod defects;
mod ids;
mod resource;

pub(crate) use candidate::{campaign, elect};

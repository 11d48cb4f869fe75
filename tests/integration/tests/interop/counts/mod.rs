//! Counters and barriers of several languages at one path.
//!
//! A [`Peer`](crate::peer::Peer) of Java or kazoo counts and waits, with these verbs:
//!
//! | verb | answer |
//! | --- | --- |
//! | `number PATH KIND get` | the value |
//! | `number PATH KIND add DELTA ROUNDS` | `added`, behind so many changes |
//! | `number PATH promoted add DELTA ROUNDS LOCK` | `promoted COUNT`: so many of the changes were made under the lock |
//! | `number PATH cached next FACTOR ROUNDS` | the numbers, with commas between them |
//! | `number PATH KIND set VALUE` | `set`; with the kind `value` the value before |
//! | `number PATH KIND compare OLD NEW` | `true` if it was set |
//! | `number PATH long initialize VALUE` | `true` if it was set |
//! | `barrier PATH set` | `set` |
//! | `barrier PATH remove` | `removed` |
//! | `barrier PATH wait MILLIS` | `true`, or `false` if it is still set |
//! | `double PATH enter SIZE` | `entered`: each thread is one member |
//! | `double PATH leave` | `left` |
//!
//! A kind of Java's is `long`, `integer`, `promoted`, `value` or `cached`; of kazoo's, `integer` or `text`.

mod barriers;
mod counters;
mod double;

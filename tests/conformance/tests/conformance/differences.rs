//! Where the in-process server differs from Apache ZooKeeper 3.8, and why.

use std::time::Duration;

use curator_test::wire::OpCode;

use crate::request::Request::*;
use crate::request::*;
use crate::side::{Side, TIMEOUT_MS, both};

/// A difference that is known, and a request that shows it.
struct Difference {
    what: &'static str,
    why: &'static str,
    request: fn() -> Request,
    ours: &'static str,
    apaches: &'static str,
}

/// On a tree with `/a`, whose children another connection watches.
const DIFFERENCES: &[Difference] = &[
    Difference {
        what: "checkWatches looks at the watches of the connection that asks",
        why: "Apache 3.8 looks whether anyone watches the path, which is of no use to a client",
        request: || Watches(OpCode::CheckWatches, "/a", 1),
        ours: "NoWatcher",
        apaches: " (xid",
    },
    Difference {
        what: "the empty path is no other name for the root",
        why: "Apache has the root under both names by accident; no client sends the empty path",
        request: || exists("!"),
        ours: "NoNode",
        apaches: " v0 ",
    },
    Difference {
        what: "a multiRead of writes is answered with the error alone",
        why: "Apache sends an empty result behind the error, which no client reads",
        request: || Multi(OpCode::MultiRead, vec![set("/a", -1)]),
        ours: "MarshallingError and 0 bytes",
        apaches: "MarshallingError and 9 bytes",
    },
    Difference {
        what: "a multi with a null path is answered with the error alone",
        why: "as for a multiRead of writes",
        request: || multi([create("/a/b", 0), Delete(NULL, -1)]),
        ours: "MarshallingError and 0 bytes",
        apaches: "MarshallingError and 9 bytes",
    },
];

/// Differences that no single request shows:
///
/// - A session ends when its timeout is over. Apache rounds up to its next tick.
/// - Times are those of the process.
/// - A `check` outside of a `multi` is answered if it succeeds. Apache never answers.
/// - There is no SASL, and clients cannot send `createSession`.
/// - The burst that runs over the last sequence number is what is read at once. With
///   Apache it is what waits to be carried out.
/// - The properties of Java in `envi`, latencies and folders are unknown, and `mntr` says less. The four-letter words
///   about Java's traces and digests, `gtmk`, `stmk` and `hash`, are unknown.
#[tokio::test]
async fn known_differences_are_still_there() {
    let (ours, apaches) = both(async |side: &mut Side| {
        let watcher = side.connect(TIMEOUT_MS).await;
        side.call(0, create("/a", 0)).await;
        side.call(watcher, watch_children("/a")).await;
        for difference in DIFFERENCES {
            side.call(0, (difference.request)()).await;
        }
    })
    .await;
    let skipped = ours.len() - DIFFERENCES.len();
    for (known, (ours, apaches)) in DIFFERENCES.iter().zip(ours[skipped..].iter().zip(&apaches[skipped..])) {
        let Difference { what, why, .. } = known;
        assert!(ours.contains(known.ours), "{what} ({why}): {ours}");
        assert!(apaches.contains(known.apaches), "{what} ({why}): {apaches}");
        assert_ne!(ours, apaches, "{what}: no longer a difference");
    }
}

/// One of the list above.
#[tokio::test]
async fn only_apache_leaves_a_check_without_an_answer() {
    let is_answered = async |mut side: Side| {
        let client = side.connect(TIMEOUT_MS).await;
        let answer = side.call(client, Check("", -1));
        tokio::time::timeout(Duration::from_millis(500), answer).await.is_ok()
    };
    assert!(is_answered(Side::in_process().await).await);
    assert!(!is_answered(Side::apache().await).await);
}

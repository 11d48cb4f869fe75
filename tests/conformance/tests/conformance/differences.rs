//! Where the in-process server differs from Apache ZooKeeper 3.8, and why.

use std::time::Duration;

use curator_test::wire::OpCode;

use crate::request::Request::*;
use crate::request::*;
use crate::side::{Side, TIMEOUT_MS, both};
use crate::versions::Version;

/// A difference that is known, and a request that shows it.
struct Difference {
    what: &'static str,
    why: &'static str,
    request: fn() -> Request,
    ours: &'static str,
    apaches: &'static str,
    /// The version in which Apache ends the difference.
    ends: Option<Version>,
}

/// On a tree with `/a`, another connection watches its children.
const DIFFERENCES: &[Difference] = &[
    Difference {
        what: "checkWatches looks at the watches of the connection that asks",
        why: "Apache 3.8 looks whether anyone watches the path, which is of no use to a client",
        request: || Watches(OpCode::CheckWatches, "/a", 1),
        ours: "NoWatcher",
        apaches: " (xid",
        ends: Some(Version([3, 9, 0])),
    },
    Difference {
        what: "the empty path is no other name for the root",
        why: "Apache has the root under both names by accident; no client sends the empty path",
        request: || exists("!"),
        ours: "NoNode",
        apaches: " v0 ",
        ends: None,
    },
    Difference {
        what: "a multiRead of writes is answered with the error alone",
        why: "Apache sends an empty result behind the error, which no client reads",
        request: || Multi(OpCode::MultiRead, vec![set("/a", -1)]),
        ours: "MarshallingError and 0 bytes",
        apaches: "MarshallingError and 9 bytes",
        ends: None,
    },
    Difference {
        what: "a multi with a null path is answered with the error alone",
        why: "as for a multiRead of writes",
        request: || multi([create("/a/b", 0), Delete(NULL, -1)]),
        ours: "MarshallingError and 0 bytes",
        apaches: "MarshallingError and 9 bytes",
        ends: None,
    },
];

/// Differences that no single request shows:
///
/// - A session ends when its timeout has ended. Apache rounds up to its next tick.
/// - Times are the times of the process.
/// - A `check` outside of a `multi` is answered if it succeeds. Apache never answers; from 3.9.3 on it refuses, and
///   closes the connection.
/// - SASL is missing, and clients cannot send `createSession`.
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
    let version = Side::apache().await.version;
    let skipped = ours.len() - DIFFERENCES.len();
    for (known, (ours, apaches)) in DIFFERENCES.iter().zip(ours[skipped..].iter().zip(&apaches[skipped..])) {
        let Difference { what, why, .. } = known;
        if known.ends.is_some_and(|end| version >= end) {
            assert_eq!(ours, apaches, "{what} ({why})");
            continue;
        }
        assert!(ours.contains(known.ours), "{what} ({why}): {ours}");
        assert!(apaches.contains(known.apaches), "{what} ({why}): {apaches}");
        assert_ne!(ours, apaches, "{what}: no longer a difference");
    }
}

/// One of the list above.
#[tokio::test]
async fn only_apache_leaves_a_check_without_an_answer() {
    let answer = async |mut side: Side| {
        let client = side.connect(TIMEOUT_MS).await;
        side.send(client, &Check("", -1)).await;
        let answer = side.reply(client, &Check("", -1));
        let is_answered = tokio::time::timeout(Duration::from_millis(500), answer).await.is_ok();
        if side.version.forbids_a_lone_check() {
            side.closed(client).await;
        }
        is_answered.then(|| side.lines().split_off(3))
    };
    let ours = answer(Side::in_process().await).await.unwrap();
    assert!(ours[0].contains("->  (xid"), "{ours:?}");
    let apache = Side::apache().await;
    let is_forbidden = apache.version.forbids_a_lone_check();
    match answer(apache).await {
        Some(lines) => {
            assert!(is_forbidden && lines[0].contains("-> Unimplemented and") && lines[1] == "1: closed", "{lines:?}");
        }
        None => assert!(!is_forbidden),
    }
}

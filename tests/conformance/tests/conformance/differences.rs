//! Where the in-process server differs from Apache ZooKeeper 3.8, and why.

use std::time::Duration;

use curator_test::wire::OpCode;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

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
];

/// Differences that no single request shows:
///
/// - A session ends when its timeout is over. Apache rounds up to its next tick.
/// - Times are those of the process.
/// - A `check` outside of a `multi` is answered if it succeeds. Apache never answers.
/// - There is no SASL, and clients cannot send `createSession`.
/// - The burst that runs over the last sequence number is what is read at once. With
///   Apache it is what waits to be carried out.
/// - `srvr`, `stat` and `mntr` say less, and other four-letter words are unknown.
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

async fn word(side: &Side, word: &str) -> String {
    let mut stream = TcpStream::connect(side.address()).await.unwrap();
    stream.write_all(word.as_bytes()).await.unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await.unwrap();
    answer
}

/// The words that exist have the form of Apache's.
#[tokio::test]
async fn four_letter_words_are_answered() {
    let (ours, apaches) = (Side::in_process().await, Side::apache().await);
    for side in [&ours, &apaches] {
        assert_eq!(word(side, "ruok").await, "imok");
        for status in ["srvr", "stat"] {
            let answer = word(side, status).await;
            assert!(answer.starts_with("Zookeeper version: 3.8."), "{answer}");
            for line in ["Latency min/avg/max: ", "Connections: ", "Zxid: 0x", "Mode: standalone", "Node count: "] {
                assert!(answer.lines().any(|other| other.starts_with(line)), "{line}: {answer}");
            }
            assert_eq!(answer.contains("Clients:\n /127.0.0.1:"), status == "stat", "{answer}");
        }
        let answer = word(side, "mntr").await;
        for name in
            ["version", "server_state", "num_alive_connections", "znode_count", "watch_count", "ephemerals_count"]
        {
            let prefix = format!("zk_{name}\t");
            assert!(answer.lines().any(|line| line.starts_with(&prefix)), "{name}: {answer}");
        }
    }
}

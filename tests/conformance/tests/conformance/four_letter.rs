//! Four-letter words, with an Apache ZooKeeper of their own: they show all of its clients.

use curator_test::wire::OpCode;

use crate::request::Request::*;
use crate::request::*;
use crate::side::{Side, TIMEOUT_MS, both, compare_alone};
use crate::versions::Version;

/// Marks of values that differ from run to run, or that the in-process server does not have. A value ends at a comma, a
/// bracket or the end of the line.
const MASKED: [&str; 19] = [
    "clientPort=",
    "dataDir=",
    "dataDirSize=",
    "dataLogDir=",
    "dataLogSize=",
    "datadir_size: ",
    "logdir_size: ",
    "Zookeeper version: ",
    ", built on ",
    "Latency min/avg/max: ",
    " expire at ",
    "(queued=",
    "Sets (",
    ",est=",
    ",lresp=",
    ",llat=",
    ",minlat=",
    ",avglat=",
    ",maxlat=",
];
/// A transaction follows.
const ZXIDS: [&str; 2] = ["Zxid: 0x", ",lzxid=0x"];

/// Replaces what follows `mark`.
fn replace_after(line: &str, mark: &str, show: impl Fn(&str) -> String) -> String {
    let Some((before, rest)) = line.split_once(mark) else {
        return line.to_owned();
    };
    let end = rest.find([',', ')']).unwrap_or(rest.len());
    format!("{before}{mark}{}{}", show(&rest[..end]), &rest[end..])
}

/// Notes down the reply to a word: groups of lines and the lines of each in any order, as Apache prints them.
async fn note(side: &mut Side, word: &str) {
    let reply = side.word(word).await;
    let mut groups: Vec<Vec<String>> = Vec::new();
    for line in reply.lines() {
        let mut line = MASKED.iter().fold(line.to_owned(), |line, mark| replace_after(&line, mark, |_| "…".to_owned()));
        // Apache listens to a client again a moment after its answer.
        if line.contains("/client ") {
            line = line.replace("[0](", "[1](");
        }
        if line.starts_with("Connections Sets (") {
            line.truncate("Connections Sets (".len());
        }
        for mark in ZXIDS {
            line = replace_after(&line, mark, |zxid| {
                u64::from_str_radix(zxid, 16).map_or("none".to_owned(), |zxid| format!("<z{}>", zxid as i64))
            });
        }
        match groups.last_mut() {
            Some(group) if line.starts_with('\t') => group.push(line),
            _ => groups.push(vec![line]),
        }
    }
    groups.iter_mut().for_each(|group| group[1..].sort_unstable());
    // Apache rounds the times of sessions, has times at which nothing ends, and ends the connection that asks.
    for group in groups.iter_mut().filter(|group| group[0].contains(" expire at ")) {
        group.retain(|line| !line.contains(" expire at ") && !line.starts_with("\tip: /asker "));
    }
    groups.retain(|group| !group.is_empty());
    if matches!(word, "cons" | "dump" | "stat" | "wchc" | "wchp") {
        groups.sort_unstable();
    }
    let end = if reply.ends_with('\n') { "line" } else { "text" };
    for line in groups.concat() {
        side.note(format!("{word}: {line}"));
    }
    side.note(format!("{word}: the end of a {end}"));
}

async fn note_all(side: &mut Side, words: &str) {
    for word in words.split(' ') {
        note(side, word).await;
    }
}

#[tokio::test]
async fn words_report_the_server() {
    compare_alone(async |side| note_all(side, "ruok isro conf dirs crst srst srvr stat srvr").await).await;
}

#[tokio::test]
async fn words_report_sessions_and_their_nodes() {
    compare_alone(async |side| {
        note_all(side, "srst dump").await;
        let second = side.connect(5000).await;
        side.call(second, create("/e", 1)).await;
        side.call(second, create("/f", 1)).await;
        side.call(0, create("/p", 0)).await;
        note_all(side, "dump srvr").await;
        let third = side.attach(second, true).await;
        side.closed(second).await;
        note_all(side, "dump cons").await;
        side.call(third, Delete("/e", -1)).await;
        side.hang_up(third).await;
        note_all(side, "dump").await;
    })
    .await;
}

#[tokio::test]
async fn words_report_watches() {
    compare_alone(async |side| {
        note_all(side, "wchs wchc wchp").await;
        let second = side.connect(TIMEOUT_MS).await;
        side.call(0, watch_data("")).await;
        side.call(0, watch_exists("/none")).await;
        side.call(0, watch_children("")).await;
        side.call(second, watch_exists("/none")).await;
        note_all(side, "wchs wchc wchp").await;
        side.call(second, AddWatch("/below", 1)).await;
        side.call(second, create("/none", 0)).await;
        note_all(side, "wchs wchc wchp").await;
        side.events(0).await;
        side.events(second).await;
        side.call(second, Watches(OpCode::RemoveWatches, "/below", 3)).await;
        note_all(side, "wchs wchc wchp").await;
    })
    .await;
}

#[tokio::test]
async fn words_report_connections() {
    compare_alone(async |side| {
        note_all(side, "srst srvr cons stat").await;
        for request in [
            create2("/a", 0),
            set("/a", -1),
            set("/a", 7),
            get("/a"),
            get("/none"),
            exists("/none"),
            Read(OpCode::GetChildren, "/a", false),
            Path(OpCode::GetAcl, "/a"),
            SetAcl("/a", open(), -1),
            Path(OpCode::Sync, "/a"),
            Path(OpCode::GetEphemerals, "/a"),
            Path(OpCode::GetAllChildrenNumber, "/a"),
            Raw(OpCode::WhoAmI, b""),
            Auth("digest", "user:secret"),
            AddWatch("/a", 0),
            Watches(OpCode::RemoveWatches, "/a", 3),
            SetWatches(OpCode::SetWatches, [vec![""], vec![], vec![], vec![], vec![]]),
            multi([set("/a", -1)]),
            multi([set("/a", 7)]),
            Multi(OpCode::MultiRead, vec![get("/a")]),
            Raw(OpCode::Ping, b""),
            Delete("/a", -1),
            Delete("/a", -1),
        ] {
            side.call(0, request).await;
            note_all(side, "cons").await;
        }
        let second = side.connect(TIMEOUT_MS).await;
        note_all(side, "cons crst cons srvr srst srvr").await;
        side.call(second, exists("")).await;
        note_all(side, "cons srvr stat").await;
    })
    .await;
}

/// The names are Apache's, but many values are not known.
#[tokio::test]
async fn words_that_report_less() {
    let (ours, apaches) = both(async |side| {
        let Version([major, minor, patch]) = side.version;
        for (word, separator) in [("envi", '='), ("mntr", '\t')] {
            let reply = side.word(word).await;
            let known = reply.lines().filter(|line| !line.ends_with("=<NA>"));
            assert!(
                known.clone().any(|line| line.contains(&format!("version{separator}{major}.{minor}.{patch}"))),
                "{reply}"
            );
            for name in reply.lines().map(|line| line.split(separator).next().unwrap_or_default()) {
                side.note(format!("{word}: {name}"));
            }
        }
    })
    .await;
    let missing: Vec<_> = ours.iter().filter(|name| !apaches.contains(name)).collect();
    assert_eq!(missing, [""; 0]);
    let environment =
        |lines: &[String]| lines.iter().filter(|line| line.starts_with("envi")).cloned().collect::<Vec<_>>();
    assert_eq!(environment(&ours), environment(&apaches));
}

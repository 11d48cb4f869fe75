//! Requests that read and write nodes.

use curator_test::wire::OpCode;

use crate::request::Request::*;
use crate::request::*;
use crate::side::{Side, TIMEOUT_MS, compare, compare_alone, compare_reconfig};

/// Paths that are refused, or not, by one request or another.
const ODD_PATHS: [&str; 16] = [
    "/",
    "//",
    "/a/",
    "/a//b",
    "/.",
    "/..",
    "/a/.",
    "/a/..",
    "/\u{1}",
    "/\0",
    "/\u{7f}",
    "/\u{e000}",
    "/\u{ffff}",
    "/none/x",
    "!relative",
    "/e/child",
];

async fn call_all(side: &mut Side, requests: impl IntoIterator<Item = Request>) {
    for request in requests {
        side.call(0, request).await;
    }
}

#[tokio::test]
async fn creates() {
    compare(async |side| {
        for op in [OpCode::Create, OpCode::Create2, OpCode::CreateContainer] {
            for (flags, path) in [(0, "/p"), (1, "/e"), (2, "/ps-"), (3, "/es-"), (4, "/c"), (5, "/t"), (6, "/ts-")] {
                side.call(0, Create(op, path, open(), flags)).await;
                side.call(0, Delete(path, -1)).await;
            }
            for flags in [-1, 7, i32::MAX] {
                side.call(0, Create(op, "/bad", open(), flags)).await;
            }
        }
        for (flags, ttl) in [(5, 1000), (6, 1000), (5, 0), (5, -1), (5, i64::MAX), (0, 1000), (4, 0)] {
            side.call(0, CreateTtl("/ttl", flags, ttl)).await;
        }
        call_all(side, [create("/a", 0), create("/e", 1), create("/a", 0), create("/a/b", 0), create("/a/b/c", 2)])
            .await;
        for path in ODD_PATHS {
            call_all(side, [create(path, 0), create2(path, 2)]).await;
        }
        call_all(side, [create("!/", 0), create("!/zookeeper", 0), exists("/a"), exists("")]).await;
        side.call(0, Read(OpCode::GetChildren2, "", false)).await;
    })
    .await;
}

#[tokio::test]
async fn sequence_numbers_and_child_versions() {
    compare(async |side| {
        call_all(side, [create("/s", 0), create2("/s/n-", 2), create("/s/plain", 0), create("/s/", 2)]).await;
        call_all(side, [Delete("/s/n-0000000000", -1), create("/s/n-", 3), create("/s/plain", 0), exists("/s")]).await;
        call_all(side, [create("/s/n-", 2), create("/s/n-0000000004", 0), create("/s/x", 2), exists("/s")]).await;
        side.burst(0, (0..20).map(|n| create("/s/b-", if n % 2 == 0 { 2 } else { 3 })).collect()).await;
        side.call(0, Read(OpCode::GetChildren2, "/s", false)).await;
    })
    .await;
}

#[tokio::test]
async fn deletes_sets_and_versions() {
    compare(async |side| {
        call_all(side, [create("/a", 0), create("/a/b", 0), create("/e", 1)]).await;
        for version in [-2, -1, 0, 1, 1, 2, i32::MAX] {
            call_all(side, [set("/a", version), get("/a"), Check("/a", i32::MAX), SetAcl("/a", open(), version)]).await;
        }
        call_all(side, [SetData("/a", None, -1), get("/a"), SetData("/a", Some(b""), -1), get("/a")]).await;
        call_all(side, [Delete("/a", -1), Delete("/a", 0), Delete("/a/b", 1), Delete("/a/b", 0), exists("/a")]).await;
        call_all(side, [Delete("/none", -1), set("/none", -1), Check("/none", -1), SetAcl("/none", open(), -1)]).await;
        for path in ["!/", "!/zookeeper", "!/zookeeper/quota", "!/zookeeper/config"] {
            side.call(0, Delete(path, 7)).await;
        }
        for path in ODD_PATHS {
            call_all(side, [Delete(path, -1), set(path, -1), Check(path, -1), SetAcl(path, open(), -1)]).await;
        }
        call_all(side, [Delete("/a", -1), exists(""), Delete("/e", -1), exists("")]).await;
    })
    .await;
}

#[tokio::test]
async fn reads() {
    compare(async |side| {
        call_all(side, [create("/a", 0), create("/a/b", 0), create("/a/c", 0), create("/a/b/d", 0), create("/e", 1)])
            .await;
        let paths = ["", "/a", "/a/b", "/e", "/none"];
        for path in paths.into_iter().chain(ODD_PATHS) {
            for op in [OpCode::Exists, OpCode::GetData, OpCode::GetChildren, OpCode::GetChildren2] {
                side.call(0, Read(op, path, false)).await;
            }
            for op in [OpCode::GetAcl, OpCode::Sync, OpCode::GetAllChildrenNumber] {
                side.call(0, Path(op, path)).await;
            }
        }
        for op in [OpCode::GetData, OpCode::GetChildren2, OpCode::Exists] {
            side.call(0, Read(op, "!/zookeeper/config", false)).await;
        }
        side.call(0, Path(OpCode::GetAcl, "!/zookeeper/config")).await;
    })
    .await;
}

#[tokio::test]
async fn ephemerals_of_a_session() {
    compare(async |side| {
        let other = side.connect(TIMEOUT_MS).await;
        side.call(other, create("/e0", 1)).await;
        call_all(side, [create("/a", 0), create("/a/e1", 1), create("/a/e2", 3), create("/e3", 1)]).await;
        for prefix in ["", "!", "! ", "!/", "/a", "/a/e", "/a/e1", "/none"] {
            side.call(0, Path(OpCode::GetEphemerals, prefix)).await;
        }
        // A null prefix.
        side.call(0, Raw(OpCode::GetEphemerals, b"\xff\xff\xff\xff")).await;
        side.call(other, Raw(OpCode::CloseSession, b"")).await;
        side.closed(other).await;
        call_all(side, [exists("/e0"), exists("")]).await;
    })
    .await;
}

#[tokio::test]
async fn requests_that_make_no_sense() {
    compare(async |side| {
        let ops = [
            OpCode::Create,
            OpCode::Create2,
            OpCode::CreateContainer,
            OpCode::CreateTtl,
            OpCode::Delete,
            OpCode::SetData,
            OpCode::SetAcl,
            OpCode::Check,
            OpCode::Exists,
            OpCode::GetData,
            OpCode::GetAcl,
            OpCode::GetChildren,
            OpCode::GetChildren2,
            OpCode::Multi,
            OpCode::MultiRead,
            OpCode::Sync,
            OpCode::SetWatches,
            OpCode::SetWatches2,
            OpCode::AddWatch,
            OpCode::CheckWatches,
            OpCode::RemoveWatches,
            OpCode::GetEphemerals,
            OpCode::GetAllChildrenNumber,
            OpCode::DeleteContainer,
            OpCode::Reconfig,
            OpCode::WhoAmI,
            OpCode::Ping,
        ];
        for op in ops {
            for body in [&b""[..], b"\0", b"\0\0\0\x7f", b"\0\0\0\x02/a"] {
                side.call(0, Raw(op, body)).await;
            }
        }
        side.call(0, Raw(OpCode::Reconfig, &[0; 20])).await;
        side.call(0, Raw(OpCode::DeleteContainer, b"/a")).await;
        for code in [0, 10, 23, 99, 108, -1, -5, i32::MAX] {
            let client = side.connect(TIMEOUT_MS).await;
            side.call(client, Raw(OpCode::from_code(code), b"")).await;
            side.closed(client).await;
        }
        side.call(0, exists("")).await;
    })
    .await;
}

/// With an Apache ZooKeeper of its own: a watch on null stays with its connection.
#[tokio::test]
async fn null_paths() {
    compare_alone(async |side| {
        call_all(side, [create(NULL, 0), create2(NULL, 2), Delete(NULL, -1), set(NULL, -1), Check(NULL, 7)]).await;
        call_all(side, [create(NULL, 7), Create(OpCode::Create, NULL, vec![], 0)]).await;
        call_all(side, [Create(OpCode::CreateContainer, NULL, open(), 4), CreateTtl(NULL, 5, 1000)]).await;
        call_all(side, [SetAcl(NULL, open(), -1), SetAcl(NULL, vec![], -1)]).await;
        for watch in [false, true] {
            for op in [OpCode::Exists, OpCode::GetData, OpCode::GetChildren, OpCode::GetChildren2] {
                side.call(0, Read(op, NULL, watch)).await;
            }
        }
        for op in [OpCode::GetAcl, OpCode::Sync, OpCode::GetAllChildrenNumber, OpCode::GetEphemerals] {
            side.call(0, Path(op, NULL)).await;
        }
        for kind in [1, 2, 3] {
            call_all(side, [OpCode::RemoveWatches, OpCode::CheckWatches].map(|op| Watches(op, NULL, kind))).await;
        }
        call_all(side, [AddWatch(NULL, 2), AddWatch(NULL, 1)]).await;
        let second = side.connect(TIMEOUT_MS).await;
        side.call(second, AddWatch(NULL, 0)).await;
        for place in 0..5 {
            let mut lists = [const { Vec::new() }; 5];
            lists[place] = vec![NULL];
            side.call(0, SetWatches(OpCode::SetWatches2, lists)).await;
        }
        // The newest transaction, and three lists, one of them null.
        for body in [
            &[0, 0, 0, 0, 0, 0, 0, 0, 255, 255, 255, 255, 0, 0, 0, 0, 0, 0, 0, 0],
            &[0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 255, 255, 255, 255, 0, 0, 0, 0],
            &[0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 255, 255, 255, 255],
        ] {
            side.call(0, Raw(OpCode::SetWatches, body)).await;
        }
        side.call(0, exists("")).await;
    })
    .await;
}

#[tokio::test]
async fn other_servers_are_refused() {
    let no_servers = || Raw(OpCode::Reconfig, &[0xff; 20]);
    compare(async |side| side.call(0, no_servers()).await).await;
    compare_reconfig(async |side| {
        side.call(0, no_servers()).await;
        side.call(0, Raw(OpCode::Reconfig, &[0; 20])).await;
        side.call(0, Raw(OpCode::Reconfig, &[0; 3])).await;
        side.call(0, exists("")).await;
    })
    .await;
}

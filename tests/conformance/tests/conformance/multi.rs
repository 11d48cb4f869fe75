//! Several requests in one.

use curator_test::wire::OpCode;

use crate::request::Request::*;
use crate::request::*;
use crate::side::{TIMEOUT_MS, compare};

#[tokio::test]
async fn a_multi_does_all_of_its_writes() {
    compare(async |side| {
        side.call(0, multi([])).await;
        side.call(0, multi([create("/a", 0), create("/a/n-", 2), create2("/a/n-", 2), set("/a", 0), Check("/a", 1)]))
            .await;
        side.call(0, multi([create("/a/e", 1), create("/a/es-", 3), Delete("/a/e", 0)])).await;
        side.call(0, multi([create("/c", 4), Create(OpCode::CreateContainer, "/c2", open(), 0), create2("/c3", 4)]))
            .await;
        side.call(0, multi([CreateTtl("/t", 0, 1000), CreateTtl("/t-", 2, 0), CreateTtl("/t4", 4, -1)])).await;
        side.call(0, multi([create("/gone", 0), create("/gone/x", 0), Delete("/gone/x", 0), Delete("/gone", 0)])).await;
        side.call(0, multi([set("/a", -1), set("/a", 2), set("/a", 3), Check("/a", 4)])).await;
        for path in ["", "/a", "/c", "/gone"] {
            side.call(0, Read(OpCode::GetChildren2, path, false)).await;
        }
        side.call(0, Path(OpCode::GetEphemerals, "")).await;
    })
    .await;
}

#[tokio::test]
async fn a_multi_that_fails_does_nothing() {
    compare(async |side| {
        side.call(0, create("/a", 0)).await;
        side.call(0, create("/a/b", 1)).await;
        let last = || create("/never", 0);
        for failing in [
            create("/a", 0),
            create("/none/x", 0),
            create("/a/b/c", 0),
            create("!relative", 0),
            create("/a/", 0),
            create("/bad", 7),
            Create(OpCode::Create, "/bad", vec![], 0),
            CreateTtl("/ttl", 5, 1000),
            Delete("/none", -1),
            Delete("/a", -1),
            Delete("/a/b", 5),
            Delete("!/", -1),
            set("/none", -1),
            set("/a", 9),
            set("//", -1),
            Check("/a", 5),
            Check("/none", -1),
        ] {
            side.call(0, multi([create("/new", 0), set("/a", -1), create("/s-", 2), failing.clone(), last(), last()]))
                .await;
            side.call(0, multi([failing])).await;
            side.call(0, Read(OpCode::GetChildren2, "", false)).await;
            side.call(0, Read(OpCode::GetChildren2, "/a", false)).await;
        }
        side.call(0, create2("/s-", 2)).await;
        side.call(0, Path(OpCode::GetEphemerals, "")).await;
    })
    .await;
}

#[tokio::test]
async fn a_multi_that_makes_no_sense() {
    compare(async |side| {
        side.call(0, create("/a", 0)).await;
        for parts in [
            vec![get("/a")],
            vec![Read(OpCode::GetChildren, "/a", false)],
            vec![get("/a"), set("/a", -1)],
            vec![set("/a", -1), get("/a")],
            vec![exists("/a")],
            vec![SetAcl("/a", open(), -1)],
            vec![Path(OpCode::Sync, "/a")],
            vec![create("/ttl", 5)],
            vec![Create(OpCode::CreateContainer, "/ttl", open(), 6)],
            vec![create("/x", 0), create("/ttl", 5), create("/y", 0)],
            vec![Check("/none", -1), create("/ttl", 5)],
        ] {
            side.call(0, Multi(OpCode::Multi, parts)).await;
        }
        for parts in [
            vec![get("/a"), set("/a", -1)],
            vec![set("/a", -1), get("/a")],
            vec![exists("/a")],
            vec![Read(OpCode::GetChildren2, "/a", false)],
            vec![SetAcl("/a", open(), -1)],
        ] {
            side.call(0, Multi(OpCode::MultiRead, parts)).await;
        }
        side.call(0, exists("")).await;
    })
    .await;
}

#[tokio::test]
async fn a_multi_read_has_a_result_for_each() {
    compare(async |side| {
        let writer = side.connect(TIMEOUT_MS).await;
        side.call(writer, create("/a", 0)).await;
        side.call(writer, create("/a/b", 0)).await;
        let children = |path, watch| Read(OpCode::GetChildren, path, watch);
        let parts =
            vec![get("/a"), children("/a", true), watch_data("/a"), get("/none"), children("/none", false), get("!x")];
        side.call(0, Multi(OpCode::MultiRead, parts)).await;
        side.call(0, Multi(OpCode::MultiRead, vec![])).await;
        side.call(writer, set("/a", -1)).await;
        side.call(writer, create("/a/c", 0)).await;
        side.events(0).await;
    })
    .await;
}

#[tokio::test]
async fn events_of_a_multi_come_in_its_order_and_only_if_it_is_done() {
    compare(async |side| {
        let writer = side.connect(TIMEOUT_MS).await;
        side.call(writer, create("/a", 0)).await;
        side.call(0, AddWatch("", 1)).await;
        side.call(0, watch_children("/a")).await;
        side.call(writer, watch_data("/a")).await;
        side.call(writer, multi([create("/new", 0), set("/a", -1), Delete("/none", -1)])).await;
        side.events(0).await;
        side.events(writer).await;
        side.call(
            writer,
            multi([
                create("/a/b", 0),
                set("/a", 0),
                set("/a", 1),
                create("/x", 0),
                Delete("/x", -1),
                Delete("/a/b", -1),
            ]),
        )
        .await;
        side.events(0).await;
        side.events(writer).await;
    })
    .await;
}

#[tokio::test]
async fn sequence_numbers_within_a_multi() {
    compare(async |side| {
        side.call(0, create("/s", 0)).await;
        side.call(0, multi([create("/s/n-", 2), create("/s/n-", 3), create("/s/x", 0), create("/s/n-", 2)])).await;
        side.call(0, multi([create("/s/n-", 2), create("/s/n-", 3), Delete("/none", -1)])).await;
        side.call(0, multi([create("/s/n-", 2), Delete("/s/n-0000000004", -1), create("/s/n-", 2)])).await;
        side.call(0, Read(OpCode::GetChildren2, "/s", false)).await;
    })
    .await;
}

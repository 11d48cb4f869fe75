//! Watches: what fires, in which order, and how they are found and removed.

use curator_test::wire::OpCode;

use crate::request::Request::*;
use crate::request::*;
use crate::side::{Side, TIMEOUT_MS, compare, compare_modes};

const CHILDREN: i32 = 1;
const DATA: i32 = 2;
const ANY: i32 = 3;
const PERSISTENT: i32 = 0;
const RECURSIVE: i32 = 1;

fn writes() -> Vec<Request> {
    vec![
        create("/a/n", 0),
        set("/a/n", -1),
        create("/a/n/deep", 0),
        set("/a", -1),
        SetAcl("/a", open(), -1),
        Delete("/a/n/deep", -1),
        Delete("/a/n", -1),
        create("/a/n", 1),
        Delete("/a/b", -1),
        create("/top", 0),
        set("/none", -1),
        create("/a", 0),
        Delete("/top", -1),
        Delete("/a/n", -1),
        Delete("/a", -1),
        create("/a", 0),
    ]
}

/// Every kind of watch against every kind of write, seen by another and by the writer itself.
#[tokio::test]
async fn what_fires_when() {
    compare(async |side| {
        for watch in [
            watch_exists("/a"),
            watch_exists("/a/n"),
            watch_exists("/none"),
            watch_data("/a"),
            watch_data("/a/b"),
            watch_data("/a/n"),
            watch_children("/a"),
            Read(OpCode::GetChildren, "/a/b", true),
            watch_children("/none"),
            watch_children(""),
            AddWatch("/a", PERSISTENT),
            AddWatch("/a", RECURSIVE),
            AddWatch("/a/n", PERSISTENT),
            AddWatch("", RECURSIVE),
            AddWatch("/none/x", RECURSIVE),
        ] {
            let watcher = side.connect(TIMEOUT_MS).await;
            let writer = side.connect(TIMEOUT_MS).await;
            side.call(0, create("/a", 0)).await;
            side.call(0, create("/a/b", 0)).await;
            // Twice makes one.
            for number in [watcher, watcher, writer] {
                side.call(number, watch.clone()).await;
            }
            for write in writes() {
                side.call(writer, write).await;
                side.events(watcher).await;
            }
            side.call(0, Delete("/a", -1)).await;
            side.events(watcher).await;
        }
    })
    .await;
}

#[tokio::test]
async fn a_recursive_watch_of_the_root_sees_the_tree() {
    compare(async |side| {
        let watcher = side.connect(TIMEOUT_MS).await;
        side.call(watcher, AddWatch("", RECURSIVE)).await;
        side.call(watcher, AddWatch("/a", RECURSIVE)).await;
        side.call(watcher, AddWatch("/a", PERSISTENT)).await;
        for write in [create("/a", 0), create("/a/b", 0), create("/a/b/c", 0), set("/a/b/c", -1), Delete("/a/b/c", -1)]
        {
            side.call(0, write).await;
            side.events(watcher).await;
        }
    })
    .await;
}

/// As Apache 3.8 has it: the last watch set on a path counts, in any mode. From 3.9 on each mode counts.
#[tokio::test]
async fn a_watch_replaces_one_of_another_mode() {
    let of_the_others = [
        (9, "1: event 3 ~/a state 3 (zxid -1 error 0)"),
        (16, "1: event 4 ~/a state 3 (zxid -1 error 0)"),
        (18, "1: event 4 ~/a state 3 (zxid -1 error 0)"),
    ];
    let steps = async |side: &mut Side| {
        let watcher = side.connect(TIMEOUT_MS).await;
        side.call(0, create("/a", 0)).await;
        side.call(watcher, AddWatch("/a", PERSISTENT)).await;
        side.call(watcher, watch_data("/a")).await;
        for _ in 0..2 {
            side.call(0, set("/a", -1)).await;
            side.events(watcher).await;
        }
        side.call(0, create("/a/b", 0)).await;
        side.events(watcher).await;
        side.call(watcher, AddWatch("/a", RECURSIVE)).await;
        side.call(0, create("/a/c", 0)).await;
        side.call(0, Delete("/a/c", -1)).await;
        side.events(watcher).await;
        for mode in [-1, 2, 7] {
            side.call(watcher, AddWatch("/a", mode)).await;
        }
    };
    compare_modes(steps, &of_the_others).await;
}

/// The client relies on all of this where it serves a one-shot watch from a persistent one.
#[tokio::test]
async fn recursive_watch_keeps_its_events_beside_a_watch_of_the_children() {
    let of_the_others = [
        (9, "1: event 4 ~/a state 3 (zxid -1 error 0)"),
        (47, "1: event 1 ~/a/4 state 3 (zxid -1 error 0)"),
        (50, "1: event 2 ~/a/4 state 3 (zxid -1 error 0)"),
        (61, "1: event 4 ~/a state 3 (zxid -1 error 0)"),
        (64, "1: event 4 ~/a state 3 (zxid -1 error 0)"),
    ];
    let steps = async |side: &mut Side| {
        let watcher = side.connect(TIMEOUT_MS).await;
        side.call(0, create("/a", 0)).await;
        side.call(watcher, watch_children("/a")).await;
        // It takes the watch of the children, which is set again behind it.
        side.call(watcher, AddWatch("/a", RECURSIVE)).await;
        side.call(0, create("/a/1", 0)).await;
        side.events(watcher).await;
        let nothing = Vec::new;
        let children = || [nothing(), nothing(), vec!["/a"], nothing(), nothing()];
        side.mark(watcher);
        for _ in 0..2 {
            side.call(watcher, SetWatches(OpCode::SetWatches, children())).await;
            for write in [set("/a", -1), create("/a/2", 0), set("/a/2", -1), Delete("/a/2", -1)] {
                side.call(0, write).await;
                side.events(watcher).await;
            }
        }
        side.call(watcher, watch_children("/a")).await;
        side.call(watcher, Watches(OpCode::RemoveWatches, "/a", CHILDREN)).await;
        for write in [create("/a/3", 0), set("/a/3", -1), Delete("/a/3", -1), set("/a", -1)] {
            side.call(0, write).await;
            side.events(watcher).await;
        }
        // A reconnect sets one-shot watches ahead of a persistent one, which takes their place.
        side.mark(watcher);
        for list in 3..5 {
            let mut lists = [vec!["/a"], nothing(), vec!["/a"], nothing(), nothing()];
            lists[list] = vec!["/a"];
            side.call(watcher, SetWatches(OpCode::SetWatches2, lists)).await;
            for write in [set("/a", -1), set("/a", -1), create("/a/4", 0), Delete("/a/4", -1)] {
                side.call(0, write).await;
                side.events(watcher).await;
            }
        }
        side.call(watcher, Watches(OpCode::RemoveWatches, "/a", ANY)).await;
        side.call(watcher, SetWatches(OpCode::SetWatches, [vec!["/a"], nothing(), nothing(), nothing(), nothing()]))
            .await;
        for _ in 0..2 {
            side.call(0, set("/a", -1)).await;
            side.events(watcher).await;
        }
    };
    compare_modes(steps, &of_the_others).await;
}

#[tokio::test]
async fn watches_are_found_and_removed() {
    compare(async |side| {
        side.call(0, create("/a", 0)).await;
        for watch in [
            watch_exists("/a"),
            watch_exists("/none"),
            watch_children("/a"),
            AddWatch("/a", PERSISTENT),
            AddWatch("/a", RECURSIVE),
        ] {
            for kind in [CHILDREN, DATA, ANY, 0, 4] {
                if side.version.keeps_modes_apart() && (kind == 4 || kind < ANY && matches!(watch, AddWatch(..))) {
                    // The next test has these.
                    continue;
                }
                let watcher = side.connect(TIMEOUT_MS).await;
                side.call(watcher, Watches(OpCode::RemoveWatches, "/a", kind)).await;
                side.call(watcher, watch.clone()).await;
                for path in ["/a", "/none", "/a/below"] {
                    side.call(watcher, Watches(OpCode::CheckWatches, path, kind)).await;
                    side.call(watcher, Watches(OpCode::RemoveWatches, path, kind)).await;
                    side.call(watcher, Watches(OpCode::RemoveWatches, path, kind)).await;
                }
                side.call(0, set("/a", -1)).await;
                side.call(0, create("/a/x", 0)).await;
                side.call(0, Delete("/a/x", -1)).await;
                side.events(watcher).await;
                side.call(watcher, Raw(OpCode::CloseSession, b"")).await;
            }
        }
    })
    .await;
}

/// From 3.9 on the persistent modes have kinds of their own.
#[tokio::test]
async fn each_mode_has_its_kind_from_3_9_on() {
    for (mode, own) in [(PERSISTENT, 4), (RECURSIVE, 5)] {
        let mut side = Side::apache().await;
        side.call(0, create("/a", 0)).await;
        side.call(0, AddWatch("/a", mode)).await;
        for kind in [CHILDREN, DATA, 9 - own, own] {
            side.call(0, Watches(OpCode::CheckWatches, "/a", kind)).await;
        }
        side.call(0, Watches(OpCode::RemoveWatches, "/a", own)).await;
        side.call(0, set("/a", -1)).await;
        let (found, missing, unknown) = ("->  (xid +0)", "-> NoWatcher and", "-> MarshallingError and");
        let (expected, event) = match side.version.keeps_modes_apart() {
            true => ([missing, missing, missing, found, found], None),
            false => ([found, found, unknown, unknown, unknown], Some("0: event 3 ~/a state 3 (zxid -1 error 0)")),
        };
        let lines = side.lines().split_off(4);
        for (line, expected) in lines.iter().zip(expected) {
            assert!(line.contains(expected), "{expected}: {line}");
        }
        assert_eq!(lines.iter().map(String::as_str).find(|line| line.contains("event")), event, "{lines:?}");
    }
}

#[tokio::test]
async fn watches_set_again_fire_for_what_was_missed() {
    compare(async |side| {
        for path in ["/same", "/written", "/gone", "/child", "/deaf"] {
            side.call(0, create(path, 0)).await;
        }
        side.mark(0);
        side.call(0, exists("/same")).await;
        for write in [
            set("/written", -1),
            Delete("/gone", -1),
            create("/child/x", 0),
            create("/born", 0),
            SetAcl("/same", open(), -1),
        ] {
            side.call(0, write).await;
        }
        let all = || vec!["/same", "/written", "/gone", "/child", "/born", "/unborn"];
        for op in [OpCode::SetWatches, OpCode::SetWatches2] {
            side.call(0, SetWatches(op, [all(), all(), all(), vec!["/child"], vec!["/deaf"]])).await;
            for write in [
                set("/same", -1),
                create("/same/x", 0),
                create("/unborn", 0),
                set("/written", -1),
                set("/child", -1),
                create("/child/y", 0),
                Delete("/child/y", -1),
                create("/deaf/x", 0),
                Delete("/deaf/x", -1),
                Delete("/unborn", -1),
                Delete("/same/x", -1),
            ] {
                side.call(0, write).await;
            }
        }
        side.events(0).await;
    })
    .await;
}

#[tokio::test]
async fn the_end_of_a_session_is_watched() {
    compare(async |side| {
        let holder = side.connect(TIMEOUT_MS).await;
        side.call(0, create("/a", 0)).await;
        side.call(holder, create("/a/e", 1)).await;
        side.call(0, watch_data("/a/e")).await;
        side.call(0, watch_children("/a")).await;
        side.call(holder, watch_exists("/a/e")).await;
        side.call(holder, Raw(OpCode::CloseSession, b"")).await;
        side.closed(holder).await;
        side.events(0).await;
    })
    .await;
}

/// They go with the connection, not with the session.
#[tokio::test]
async fn watches_do_not_move_with_a_session() {
    compare(async |side| {
        side.call(0, create("/a", 0)).await;
        let first = side.connect(TIMEOUT_MS).await;
        side.call(first, watch_data("/a")).await;
        side.call(first, AddWatch("/a", RECURSIVE)).await;
        let second = side.attach(first, true).await;
        side.closed(first).await;
        side.call(second, watch_children("/a")).await;
        side.call(0, set("/a", -1)).await;
        side.call(0, create("/a/b", 0)).await;
        side.events(second).await;
    })
    .await;
}

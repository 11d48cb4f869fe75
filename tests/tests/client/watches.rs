//! Watches over reconnects that break.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use curator_framework::{Acl, CreateMode, EventType, Session, WakeReason, Watch};
use curator_test::TestingServer;
use curator_test::wire::{EventKind, OpCode};
use futures_util::future::join_all;

use crate::env::{builder, connected, eventually, in_time};
use crate::relay::{Pass, Way, relay};
use crate::scripted::{Scripted, Then};

const WATCHES: usize = 30;
const MAX_FRAME: usize = 4096;

fn path(number: usize) -> String {
    format!("/{}-{number}", "a-long-name".repeat(30))
}

async fn watched(session: &Session) -> Vec<Watch> {
    join_all((0..WATCHES).map(|number| async move { session.exists_watched(&path(number)).await.unwrap().1 })).await
}

/// Breaks the second connection behind `parts` answered parts of the list of watches, whose last reply is lost.
async fn assert_no_change_is_lost(parts: usize) {
    let server = TestingServer::start().unwrap();
    let (connections, answered) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
    let (opened, counted) = (Arc::clone(&connections), Arc::clone(&answered));
    let go = Arc::new(AtomicUsize::new(0));
    let goes = Arc::clone(&go);
    let relay = relay(server.address(), move |passing| {
        opened.fetch_max(passing.connection, Ordering::SeqCst);
        if passing.connection == 1 || goes.load(Ordering::SeqCst) == 0 {
            // Between the first connection and the second the nodes change.
            return if passing.connection == 1 { Pass::On } else { Pass::Close };
        }
        let is_part = passing.way == Way::ToClient && passing.int(0) == curator_test::wire::XID_SET_WATCHES;
        let before = counted.load(Ordering::SeqCst);
        if is_part && before <= parts {
            counted.fetch_add(1, Ordering::SeqCst);
            if before == parts {
                return Pass::Close;
            }
        }
        Pass::On
    });
    let client = connected(builder(relay.address).max_frame(MAX_FRAME)).await;
    let direct = connected(builder(server.address())).await;
    let session = client.session().await.unwrap();
    let other = direct.session().await.unwrap();
    for number in (0..WATCHES).step_by(2) {
        other.create(&path(number), Vec::new(), Acl::open_unsafe(), CreateMode::Persistent).await.unwrap();
    }
    let watches = watched(&session).await;
    relay.reset();
    eventually("disconnected", async || !session.is_connected()).await;
    for number in 0..WATCHES {
        match number % 2 {
            0 => other.delete(&path(number), None).await.unwrap(),
            _ => {
                other.create(&path(number), Vec::new(), Acl::open_unsafe(), CreateMode::Persistent).await.unwrap();
            }
        }
    }
    go.store(1, Ordering::SeqCst);
    for (number, reason) in in_time(join_all(watches)).await.into_iter().enumerate() {
        let event = if number % 2 == 0 { EventType::NodeDeleted } else { EventType::NodeCreated };
        assert_eq!(reason, WakeReason::Event(event), "{number}");
    }
    assert_eq!(answered.load(Ordering::SeqCst), parts + 1, "the connection broke");
    assert!(connections.load(Ordering::SeqCst) >= 3);
    assert_eq!((session.end_reason(), server.watch_count()), (None, 0));
}

/// The events that came with the part are held back, and delivered on a later connection.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn break_within_the_first_part_of_the_watches_loses_no_change() {
    assert_no_change_is_lost(0).await;
}

/// The part that was not sent is replayed from the zxid of the first break, not from that of the first part's reply.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn break_between_two_parts_of_the_watches_loses_no_change() {
    assert_no_change_is_lost(1).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn parts_of_the_watches_are_below_the_frame_limit() {
    let server = Scripted::start(|_, _| Then::Usual);
    let client = connected(builder(server.address()).max_frame(MAX_FRAME)).await;
    let session = client.session().await.unwrap();
    let watches = watched(&session).await;
    server.reset();
    eventually("attached again", async || session.epoch() == 2).await;
    let parts = server.frames().into_iter().filter(|frame| frame.op() == Some(OpCode::SetWatches));
    let sizes: Vec<_> = parts
        .map(|frame| match frame.asked {
            crate::scripted::Asked::Request { body, .. } => body.len(),
            crate::scripted::Asked::Connect(_) => 0,
        })
        .collect();
    assert!(sizes.len() > 2 && sizes.iter().all(|size| size + 8 <= MAX_FRAME), "{sizes:?}");
    drop(watches);
}

/// A server that sends events for ever while watches are restored does not fill the client's memory.
#[tokio::test]
async fn events_of_paths_without_a_watch_are_not_held_back() {
    const EVENTS: usize = 1000;
    let server = Scripted::start(|frame, peer| {
        if frame.op() == Some(OpCode::SetWatches) && frame.connection == 2 {
            for _ in 0..EVENTS {
                peer.event(EventKind::NodeCreated as i32, "/other");
            }
            peer.event(EventKind::NodeCreated as i32, "/a");
        }
        Then::Usual
    });
    let client = connected(builder(server.address())).await;
    let session = client.session().await.unwrap();
    let watch = session.exists_watched("/a").await.unwrap().1;
    server.reset();
    assert_eq!(in_time(watch).await, WakeReason::Event(EventType::NodeCreated));
}

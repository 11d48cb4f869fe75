//! Watches over reconnects that break.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use curator_framework::{Acl, CreateMode, EventType, Session, WakeReason, Watch};
use curator_integration::env::{builder, connected, eventually, in_time};
use curator_test::TestingServer;
use curator_test::wire::{EventKind, OpCode, XID_SET_WATCHES};
use futures_util::future::join_all;

use super::relay::{Pass, Way, relay};
use super::scripted::{Scripted, Then};

const WATCHES: usize = 30;
const MAX_FRAME: usize = 4096;

fn path(number: usize) -> String {
    format!("/{}-{number}", "a-long-name".repeat(30))
}

/// What happens to a node. The server replays a deletion and a creation in any case, a change only behind the zxid that it
/// is given.
fn change(number: usize) -> EventType {
    [EventType::NodeDeleted, EventType::NodeCreated, EventType::NodeDataChanged][number % 3]
}

async fn create(session: &Session, path: &str) {
    session.create(path, Vec::new(), Acl::open_unsafe(), CreateMode::Persistent).await.unwrap();
}

async fn watched(session: &Session) -> Vec<Watch> {
    let mut watches = Vec::new();
    for number in 0..WATCHES {
        watches.push(session.exists_watched(&path(number)).await.unwrap().1);
    }
    watches
}

/// Where a connection breaks while the watches are set again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Break {
    /// The events of the first part arrive, its reply does not.
    AtFirstReply,
    /// The reply to the first part arrives, and nothing behind it.
    BehindFirstReply,
}

async fn assert_no_change_is_lost(at: Break) {
    let server = TestingServer::start().unwrap();
    let (may_attach, broken) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicBool::new(false)));
    let (attaches, breaks) = (Arc::clone(&may_attach), Arc::clone(&broken));
    let mut is_answered = false;
    let relay = relay(server.address(), move |passing| {
        if passing.connection == 1 || breaks.load(Ordering::SeqCst) {
            return Pass::On;
        }
        // Between the first connection and the next the nodes change.
        if !attaches.load(Ordering::SeqCst) {
            return Pass::Close;
        }
        let is_reply = passing.way == Way::ToClient && passing.index > 0 && passing.int(0) == XID_SET_WATCHES;
        if passing.way == Way::ToClient && (is_answered || is_reply && at == Break::AtFirstReply) {
            breaks.store(true, Ordering::SeqCst);
            return Pass::Close;
        }
        is_answered |= is_reply;
        Pass::On
    });
    let client = connected(builder(relay.address).max_frame(MAX_FRAME)).await;
    let direct = connected(builder(server.address())).await;
    let session = client.session().await.unwrap();
    let other = direct.session().await.unwrap();
    for number in (0..WATCHES).filter(|number| change(*number) != EventType::NodeCreated) {
        create(&other, &path(number)).await;
    }
    let watches = watched(&session).await;
    relay.reset();
    eventually("disconnected", async || !session.is_connected()).await;
    for number in 0..WATCHES {
        match change(number) {
            EventType::NodeDeleted => other.delete(&path(number), None).await.unwrap(),
            EventType::NodeDataChanged => drop(other.set_data(&path(number), Vec::new(), None).await.unwrap()),
            _ => create(&other, &path(number)).await,
        }
    }
    may_attach.store(true, Ordering::SeqCst);
    for (number, reason) in in_time(join_all(watches)).await.into_iter().enumerate() {
        assert_eq!(reason, WakeReason::Event(change(number)), "{number}");
    }
    assert!(broken.load(Ordering::SeqCst), "the connection broke");
    assert_eq!((session.end_reason(), server.watch_count()), (None, 0));
}

/// The events that came with the part are held back, and delivered on a later connection.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn break_within_the_first_part_of_the_watches_loses_no_change() {
    assert_no_change_is_lost(Break::AtFirstReply).await;
}

/// The part that was not sent is replayed from the zxid of the first break, not from the zxid of the first part's
/// reply.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn break_between_two_parts_of_the_watches_loses_no_change() {
    assert_no_change_is_lost(Break::BehindFirstReply).await;
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
            super::scripted::Asked::Request { body, .. } => body.len(),
            super::scripted::Asked::Connect(_) => 0,
        })
        .collect();
    assert!(sizes.len() > 2 && sizes.iter().all(|size| size + 8 <= MAX_FRAME), "{sizes:?}");
    drop(watches);
}

/// A server that sends events forever while watches are restored does not fill the client's memory.
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

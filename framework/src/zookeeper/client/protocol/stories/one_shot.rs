//! Watches of reads, and their replays.

use super::*;

#[test]
fn watch_that_is_forgotten_while_it_is_set_again_is_removed_behind_that() {
    for is_lost in [false, true] {
        let mut story = Story::connected();
        story.watch_children("/a", 2);
        story.watch_children("/b", 2);
        story.lose();
        story.open();
        story.accept(TIMEOUT);
        assert_eq!(watches(&story.requests()[0]).1, [0, 0, 2]);
        story.protocol.forget("/a", WatchKind::Children, story.now);
        assert!(story.requests().is_empty(), "the server does not take requests yet");
        if is_lost {
            story.lose();
            story.open();
            story.accept(TIMEOUT);
            assert_eq!(watches(&story.requests()[0]).1, [0, 0, 1], "the next connection sets the other watch only");
        }
        story.reply(XID_SET_WATCHES, 3, &[]);
        let ops: Vec<_> = story.requests().iter().map(|request| request.op).collect();
        assert_eq!(ops, if is_lost { vec![] } else { vec![OpCode::RemoveWatches] });
    }
}

#[test]
fn watches_are_set_again_in_parts_from_a_base_that_is_frozen_until_all_are_answered() {
    let mut story = Story::connected();
    let paths: Vec<_> = (0..3).map(|number| format!("/{number}{}", "x".repeat(60_000))).collect();
    for path in &paths {
        story.watch_children(path, 40);
    }
    story.lose();
    assert_eq!(story.open().last_zxid_seen, 40);
    story.accept(TIMEOUT);
    let parts = story.requests();
    assert_eq!(parts.len(), 2, "128 KiB a part");
    assert!(parts.iter().all(|part| part.op == OpCode::SetWatches && watches(part).0 == 40));
    assert_eq!(parts.iter().map(|part| watches(part).1[2]).sum::<usize>(), 3);
    story.reply(XID_SET_WATCHES, 50, &[]);
    assert_eq!(story.events().len(), 0, "one part is not answered");

    story.lose();
    assert_eq!(story.open().last_zxid_seen, 50, "the connect request tells the newest transaction");
    story.accept(TIMEOUT);
    let parts = story.requests();
    assert!(parts.iter().all(|part| watches(part).0 == 40), "changes since 40 may be unknown");
    story.reply(XID_SET_WATCHES, 60, &[]);
    story.reply(XID_SET_WATCHES, 60, &[]);
    assert!(matches!(story.events()[..], [Event::Connected { .. }]));

    story.lose();
    story.open();
    story.accept(TIMEOUT);
    assert!(story.requests().iter().all(|part| watches(part).0 == 60));
}

#[test]
fn refused_watches_are_a_violation() {
    let mut story = Story::connected();
    story.watch_children("/a", 1);
    story.lose();
    story.open();
    story.accept(TIMEOUT);
    story.requests();
    assert!(violation(story.try_reply(XID_SET_WATCHES, 2, -1, &[])).contains("setWatches"));
}

#[test]
fn throttled_watches_are_set_again_after_a_pause_on_the_same_connection() {
    let mut story = Story::connected();
    story.watch_children("/a", 40);
    story.lose();
    story.open();
    story.accept(TIMEOUT);
    for _ in 0..2 {
        assert_eq!(watches(&story.requests()[0]), (40, vec![0, 0, 1]));
        story.try_reply(XID_SET_WATCHES, 50, ErrorCode::ThrottledOp.code(), &[]).unwrap();
        assert_eq!((story.events().len(), story.requests().len()), (0, 0), "the server needs a pause");
        let again = story.protocol.watches_again_at().unwrap();
        story.protocol.set_throttled_watches(again - Duration::from_nanos(1));
        assert_eq!(story.requests().len(), 0);
        story.protocol.set_throttled_watches(again);
    }
    assert_eq!(story.protocol.watches_again_at(), None);
    assert_eq!(watches(&story.requests()[0]), (40, vec![0, 0, 1]));
    story.reply(XID_SET_WATCHES, 60, &[]);
    assert!(matches!(story.events()[..], [Event::Connected { .. }]));
}

#[test]
fn watch_whose_reply_was_lost_is_not_set_again() {
    let mut story = Story::connected();
    let (to, _events) = WatchEvents::channel();
    story.protocol.add_watch("/a", Persistent, None, to, "added", story.now).unwrap();
    story.requests();
    story.lose();
    let (token, reply) = story.ended();
    assert!(token == "added" && reply.result.unwrap_err().outcome_unknown());
    story.open();
    story.accept(TIMEOUT);
    assert_eq!(story.requests().len(), 0);
}

#[test]
fn replayed_notifications_are_held_back_until_connected_also_over_a_second_loss() {
    let mut story = Story::connected();
    story.watch_children("/a", 1);
    story.watch_children("/b", 1);
    story.lose();
    story.open();
    story.accept(TIMEOUT);
    story.requests();
    story.notify(4, "/a");
    assert_eq!(story.events().len(), 0);
    story.lose();
    story.open();
    story.accept(TIMEOUT);
    assert_eq!(watches(&story.requests()[0]).1, [0, 0, 1], "the watch on /a has fired");
    story.reply(XID_SET_WATCHES, 9, &[]);
    let events = story.events();
    let [Event::Connected { .. }, Event::Notification(Notification::Event(event))] = &events[..] else {
        panic!("{events:?}")
    };
    assert_eq!((event.event_type, &event.path[..]), (EventType::NodeChildrenChanged, "/a"));
}

#[test]
fn watch_is_armed_by_the_reply_and_used_up_by_its_event() {
    let mut story = Story::connected();
    story.submit(Request::Exists { path: "/a".into(), watch: true }, "exists");
    let xid = story.requests()[0].xid;
    let mut stat = Writer::new();
    WireStat::default().encode(&mut stat);
    story.reply(xid, 1, &stat.into_bytes());
    assert!(story.protocol.watching.armed.is_armed("/a", WatchKind::Data));
    story.notify(2, "/a");
    assert!(!story.protocol.watching.armed.is_armed("/a", WatchKind::Data));
}

/// A cache that is notified of a deletion reads nothing after it, so no stat shows the newest change that it knows.
#[test]
fn children_that_have_changed_are_newer_than_the_stat_that_was_read() {
    for (event, path) in [(1, "/a/b"), (2, "/a/b"), (4, "/a")] {
        let mut story = Story::connected();
        story.submit(Request::SetData { path: "/a".into(), data: Vec::new(), version: None }, "write");
        let write = story.requests()[0].xid;
        story.reply(write, 40, &stat(40, 0));
        let _subscription = story.subscribed("/a", AddWatchMode::PersistentRecursive);
        story.notify(event, path);
        story.lose();
        for (pzxid, watched_from) in [(41, 40), (40, BEFORE_ALL)] {
            story.open();
            story.accept(TIMEOUT);
            let question = story.requests()[0].xid;
            story.reply(question, 40, &stat(40, pzxid));
            assert_eq!(watches(&story.requests()[0]).0, watched_from, "pzxid {pzxid}");
            story.lose();
        }
    }
}

/// A subscriber may not have taken the event of a creation yet. Servers repeat it, however old it is.
#[test]
fn repeated_creation_is_not_taken_for_a_newer_one() {
    let mut story = Story::connected();
    let nodes = [("/a", stat(40, 45)), ("/a/b", stat(45, 45))];
    for (path, stat) in &nodes {
        story.submit(Request::SetData { path: (*path).into(), data: Vec::new(), version: None }, "write");
        let write = story.requests()[0].xid;
        story.reply(write, 45, stat);
    }
    let missing = vec!["/a/b".to_owned()];
    let known = KnownNodes { zxid: Some(Zxid::new(45)), missing, ..KnownNodes::default() };
    let _subscription = story.subscribed_knowing("/a", PersistentRecursive, &Arc::new(Mutex::new(known)));
    for _ in 0..2 {
        story.lose();
        story.open();
        story.accept(TIMEOUT);
        for question in story.requests() {
            let path = Reader::new(&question.body).string().unwrap().to_owned();
            let (_, stat) = nodes.iter().find(|node| node.0 == path).unwrap();
            story.reply(question.xid, 45, stat);
        }
        let parts = story.requests();
        assert_eq!(watches(&parts[0]).0, 45, "the newest write is certain");
        story.notify(CREATED, "/a/b");
        parts.iter().for_each(|_| story.reply(XID_SET_WATCHES, 45, &[]));
        story.events();
    }
}

/// Servers repeat the events since the transaction that the client has named. Such an event may be older than the replies.
#[test]
fn repeated_event_is_not_taken_for_a_newer_one() {
    let mut story = Story::connected();
    story.submit(Request::SetData { path: "/a".into(), data: Vec::new(), version: None }, "write");
    let write = story.requests()[0].xid;
    story.reply(write, 40, &stat(40, 0));
    story.watch_children("/a", 60);
    for _ in 0..2 {
        story.lose();
        story.open();
        story.accept(TIMEOUT);
        let question = story.requests()[0].xid;
        story.reply(question, 60, &stat(40, 45));
        assert_eq!(watches(&story.requests()[0]).0, 40, "the newest write that is certain");
        story.notify(4, "/a");
        story.reply(XID_SET_WATCHES, 60, &[]);
        story.events();
        story.watch_children("/a", 60);
    }
}

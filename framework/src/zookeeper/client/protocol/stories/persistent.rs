//! Persistent watches, and the watches of reads that they serve.

use super::super::watches::WATCHER_CHILDREN;
use super::*;

#[test]
fn persistent_watches_take_the_second_request_and_are_told_of_the_gap() {
    let mut story = Story::connected();
    let (to, mut events) = WatchEvents::channel();
    story.protocol.add_watch("/a", PersistentRecursive, None, to, "added", story.now).unwrap();
    let xid = story.requests()[0].xid;
    story.reply(xid, 3, &[]);
    assert_eq!(story.ended().0, "added");
    story.lose();
    story.open();
    story.accept(TIMEOUT);
    let parts = story.requests();
    assert_eq!((parts[0].op, watches(&parts[0]).1), (OpCode::SetWatches2, vec![0, 0, 0, 0, 1]));
    assert_eq!(events.try_recv(), Err(TryRecvError::Empty));
    story.reply(XID_SET_WATCHES, 4, &[]);
    assert_eq!(events.try_recv(), Ok(SubscriptionEvent::Reset));
}

#[test]
fn watch_that_would_replace_a_persistent_one_is_not_sent() {
    use Watching::{Children, Data, Exists};
    for (mode, read, is_sent) in [
        (Persistent, Exists, false),
        (Persistent, Data, false),
        (Persistent, Children, false),
        (PersistentRecursive, Exists, false),
        (PersistentRecursive, Data, false),
        // The server has no watch of the recursive one for it.
        (PersistentRecursive, Children, true),
    ] {
        let mut story = Story::connected();
        assert!(story.watch(read, "/a", 1), "there is no persistent watch yet");
        let subscription = story.subscribe("/a", mode);
        assert_eq!(story.read(read, "/a").1, is_sent, "{mode:?} {read:?}, ahead of the reply");
        story.reply(subscription.xid, 1, &[0; 4]);
        assert_eq!(story.read(read, "/a").1, is_sent, "{mode:?} {read:?}");
        for other in ["/", "/a/b", "/ab"] {
            assert!(story.read(read, other).1, "{other}");
        }
        story.drop_subscription(&subscription);
        assert!(story.read(read, "/a").1, "{mode:?} {read:?}, without the subscription");
    }
}

#[test]
fn served_watch_fires_once_and_the_subscriber_hears_every_event() {
    use Watching::{Children, Data, Exists};
    for (mode, read, kind) in [
        (Persistent, Exists, CREATED),
        (Persistent, Data, DELETED),
        (Persistent, Children, CHILDREN_CHANGED),
        (Persistent, Children, DELETED),
        (PersistentRecursive, Exists, CREATED),
        (PersistentRecursive, Exists, DATA_CHANGED),
        (PersistentRecursive, Data, DELETED),
    ] {
        let mut story = Story::connected();
        let mut subscription = story.subscribed("/a", mode);
        story.notify(kind, "/a");
        assert_eq!(story.notifications().len(), 0, "no read has set a watch");
        let (xid, is_sent) = story.read(read, "/a");
        assert!(!is_sent);
        story.notify(kind, "/a");
        assert_eq!(story.notifications().len(), 0, "the read reflects it");
        story.reply(xid, 5, &read.body());
        story.events();
        for expected in [1, 0] {
            story.notify(kind, "/a");
            assert_eq!(story.notifications().len(), expected, "{mode:?} {read:?} {kind}");
        }
        assert_eq!(subscription.heard().len(), 4);
    }
}

#[test]
fn slow_subscriber_gets_one_reset_in_place_of_the_events_that_it_did_not_take() {
    let mut story = Story::connected();
    let mut slow = story.subscribed("/a", PersistentRecursive);
    let mut fast = story.subscribed("/a", PersistentRecursive);
    let mut heard = 0;
    for number in 0..25_000 {
        story.notify(DATA_CHANGED, &format!("/a/{number}"));
        heard += fast.heard().len();
    }
    let left = slow.heard();
    assert!(matches!(left[0], SubscriptionEvent::Reset), "{:?}", left[0]);
    assert!(left[1..].iter().all(|event| matches!(event, SubscriptionEvent::Event(_))));
    assert!(left.len() < 10_000, "{}", left.len());
    let SubscriptionEvent::Event(newest) = &left[left.len() - 1] else { panic!("{left:?}") };
    assert_eq!((heard, &newest.path[..]), (25_000, "/a/24999"));
    story.notify(DATA_CHANGED, "/a");
    assert_eq!(slow.heard().len(), 1, "it reads again, and hears of what follows");
}

#[test]
fn children_watch_that_a_recursive_one_removes_is_reported_with_the_reply() {
    let mut story = Story::connected();
    story.watch_children("/a", 10);
    story.watch(Watching::Data, "/a", 11);
    let mut subscription = story.subscribe("/a", PersistentRecursive);
    assert_eq!(story.removed(), []);
    story.reply(subscription.xid, 15, &[0; 4]);
    assert_eq!(story.removed(), [("/a".to_owned(), WatchKind::Children)]);
    story.watch_children("/a", 16);
    for (kind, event) in
        [(DATA_CHANGED, EventType::NodeDataChanged), (CHILDREN_CHANGED, EventType::NodeChildrenChanged)]
    {
        story.notify(kind, "/a");
        assert_eq!(story.notifications(), [(event, "/a".to_owned())]);
    }
    assert_eq!(subscription.heard().len(), 1);
}

#[test]
fn second_subscriber_of_a_path_costs_no_request() {
    for (first, second, costs) in [
        (Persistent, Persistent, 0),
        (PersistentRecursive, Persistent, 0),
        (PersistentRecursive, PersistentRecursive, 0),
        (Persistent, PersistentRecursive, 1),
    ] {
        let mut story = Story::connected();
        let one = story.subscribe("/a", first);
        let early = story.subscribe("/a", second);
        assert_ne!(early.xid, 0, "the server may refuse the first one");
        story.reply(one.xid, 1, &[0; 4]);
        story.drop_subscription(&early);
        story.reply(early.xid, 2, &[0; 4]);
        for replacing in story.requests() {
            story.reply(replacing.xid, 3, &[0; 4]);
        }
        let mut late = story.subscribe("/a", second);
        assert_eq!(u32::from(late.xid != 0), costs, "{first:?} {second:?}");
        if costs == 0 {
            story.drop_subscription(&one);
            assert_eq!(story.requests().len(), usize::from(first != second), "replaced");
            story.notify(DELETED, "/a");
            assert_eq!(late.heard(), [told(EventType::NodeDeleted, "/a")]);
        }
    }
}

#[test]
fn watches_that_a_dropped_subscription_served_are_reported_with_the_reply_to_the_removal() {
    for mode in [Persistent, PersistentRecursive] {
        let mut story = Story::connected();
        let subscription = story.subscribed("/a", mode);
        story.watch(Watching::Data, "/a", 20);
        story.watch(Watching::Children, "/a", 20);
        let (before, is_sent) = story.read(Watching::Exists, "/a");
        assert!(!is_sent);
        story.drop_subscription(&subscription);
        let removal = story.requests();
        assert_eq!((removal[0].op, removal.len()), (OpCode::RemoveWatches, 1));
        // A missing node.
        story.try_reply(before, 30, ErrorCode::NoNode.code(), &[]).unwrap();
        let (behind, is_sent) = story.read(Watching::Data, "/a");
        assert!(is_sent);
        story.events();
        story.reply(removal[0].xid, 30, &[]);
        assert_eq!(story.removed(), [WatchKind::Data, WatchKind::Children].map(|kind| ("/a".to_owned(), kind)));
        story.notify(DATA_CHANGED, "/a");
        assert_eq!(story.notifications(), [], "no watch is left");
        story.reply(behind, 31, &Watching::Data.body());
        story.notify(DATA_CHANGED, "/a");
        assert_eq!(story.notifications(), [(EventType::NodeDataChanged, "/a".to_owned())]);
        assert!(story.requests().is_empty());
    }
}

#[test]
fn subscribers_of_both_modes_at_one_path_share_its_recursive_watch() {
    for modes in [[Persistent, PersistentRecursive], [PersistentRecursive, Persistent]] {
        let mut story = Story::connected();
        let first = story.subscribe("/a", modes[0]);
        let (to, events) = WatchEvents::channel();
        let added = story.protocol.add_watch("/a", modes[1], None, to, "add", story.now);
        let (id, _sent) = added.map_err(|(_, error)| error).unwrap();
        let request = &story.requests()[0];
        assert_eq!(mode_of(request), PersistentRecursive, "a server before 3.9 has one watch for the path");
        let second = Subscription { path: "/a", mode: modes[1], id, events, xid: request.xid };
        let added = [first.xid, second.xid];
        story.reply(added[0], 1, &[0; 4]);
        let [mut persistent, mut recursive] = if modes[0] == Persistent { [first, second] } else { [second, first] };
        if modes[0] == Persistent {
            story.notify(CHILDREN_CHANGED, "/a");
            assert_eq!(persistent.heard().len(), 1, "the server has not set the recursive one yet");
        }
        story.reply(added[1], 1, &[0; 4]);
        for round in 0..2 {
            for (kind, path) in [(CREATED, "/a/b"), (DELETED, "/a/b/c"), (DATA_CHANGED, "/a/b"), (DELETED, "/a/b")] {
                story.notify(kind, path);
            }
            // The event of a one-shot watch of the children.
            story.notify(CHILDREN_CHANGED, "/a");
            story.notify(DELETED, "/a");
            assert_eq!(recursive.heard().len(), 5);
            let heard = persistent.heard();
            let changed = |event_type| SubscriptionEvent::Event(WatchedEvent { event_type, path: "/a".to_owned() });
            let children = changed(EventType::NodeChildrenChanged);
            assert_eq!(heard, [children.clone(), children, changed(EventType::NodeDeleted)]);
            if round == 0 {
                story.lose();
                story.open();
                story.accept(TIMEOUT);
                assert_eq!(watches(&story.requests()[0]).1, [0, 0, 0, 0, 1]);
                story.reply(XID_SET_WATCHES, 2, &[]);
                assert_eq!((recursive.heard().len(), persistent.heard().len()), (1, 1), "a reset");
            }
        }
    }
}

#[test]
fn persistent_watch_takes_the_place_of_a_recursive_one_that_is_dropped() {
    for is_early in [false, true] {
        let mut story = Story::connected();
        let mut persistent = story.subscribed("/a", Persistent);
        let recursive = story.subscribe("/a", PersistentRecursive);
        if is_early {
            story.drop_subscription(&recursive);
            assert!(story.requests().is_empty(), "the server has not set the recursive one yet");
        }
        story.reply(recursive.xid, 1, &[0; 4]);
        if !is_early {
            assert!(story.watch(Watching::Children, "/a", 1));
            story.drop_subscription(&recursive);
        }
        let replacing = &story.requests()[0];
        assert_eq!(mode_of(replacing), Persistent);
        story.notify(CREATED, "/a/b");
        story.reply(replacing.xid, 2, &[0; 4]);
        assert_eq!(persistent.heard().len(), 1, "from the recursive one");
        story.notify(CREATED, "/a/c");
        story.notify(CHILDREN_CHANGED, "/a");
        assert_eq!(persistent.heard().len(), 1, "from its own");
        story.drop_subscription(&persistent);
        assert_eq!(story.requests()[0].op, OpCode::RemoveWatches);
    }
}

/// The server may lose a watch for reads between the two requests, or while it has the recursive watch alone.
#[test]
fn children_watch_beside_a_recursive_one_is_reported_with_the_reply_to_the_replacement() {
    for is_early in [false, true] {
        let mut story = Story::connected();
        let _persistent = story.subscribed("/a", Persistent);
        assert!(!story.watch(Watching::Children, "/a", 1));
        story.watch(Watching::Data, "/a", 1);
        let recursive = story.subscribe("/a", PersistentRecursive);
        if is_early {
            story.drop_subscription(&recursive);
        }
        let read = is_early.then(|| story.read(Watching::Children, "/a").0);
        story.reply(recursive.xid, 2, &[0; 4]);
        assert_eq!(story.removed(), [("/a".to_owned(), WatchKind::Children)]);
        if !is_early {
            assert!(story.watch(Watching::Children, "/a", 2), "not served");
            story.drop_subscription(&recursive);
        }
        let mut replacing = story.requests().pop().unwrap();
        read.into_iter().for_each(|read| story.reply(read, 2, &Watching::Children.body()));
        story.events();
        for _ in 0..2 {
            story.try_reply(replacing.xid, 3, ErrorCode::ThrottledOp.code(), &[]).unwrap();
            assert_eq!((story.requests().len(), story.removed()), (0, Vec::new()));
            replacing = story.after_the_pause().pop().unwrap();
            assert_eq!(mode_of(&replacing), Persistent, "a busy server is asked again");
        }
        story.reply(replacing.xid, 4, &[0; 4]);
        assert_eq!(story.removed(), [("/a".to_owned(), WatchKind::Children)]);
        story.notify(DATA_CHANGED, "/a");
        assert_eq!(story.notifications(), [(EventType::NodeDataChanged, "/a".to_owned())], "served all the time");
    }
}

/// A read of the children since has taken the place of the persistent watch.
#[test]
fn persistent_watch_is_set_again_behind_a_refused_recursive_one() {
    for is_dropped in [false, true] {
        let mut story = Story::connected();
        let mut persistent = story.subscribed("/a", Persistent);
        let recursive = story.subscribe("/a", PersistentRecursive);
        let (read, is_sent) = story.read(Watching::Children, "/a");
        assert!(is_sent);
        if is_dropped {
            story.drop_subscription(&recursive);
        }
        story.try_reply(recursive.xid, 2, ErrorCode::ThrottledOp.code(), &[]).unwrap();
        let again = story.requests();
        assert_eq!((again.len(), mode_of(&again[0])), (1, Persistent));
        story.reply(read, 2, &Watching::Children.body());
        story.reply(again[0].xid, 3, &[0; 4]);
        assert_eq!(persistent.heard(), [SubscriptionEvent::Reset], "changes since may be lost");
        story.notify(CHILDREN_CHANGED, "/a");
        assert_eq!(persistent.heard().len(), 1);
    }
}

#[test]
fn children_watch_is_reported_with_any_persistent_watch_that_serves_it_at_last() {
    for is_known in [false, true] {
        let mut story = Story::connected();
        let _persistent = story.subscribed("/a", Persistent);
        let recursive = story.subscribed("/a", PersistentRecursive);
        story.drop_subscription(&recursive);
        let replacing = story.requests()[0].xid;
        story.try_reply(replacing, 2, ErrorCode::ThrottledOp.code(), &[]).unwrap();
        // The server has the recursive watch alone, which reports no change of the children.
        assert!(!story.watch(Watching::Children, "/a", 3));
        if is_known {
            let known = KnownNodes { zxid: Some(Zxid::new(1)), data: strings(["/a"]), ..KnownNodes::default() };
            let (_next, parts) = story.subscribe_knowing("/a", Persistent, &Arc::new(Mutex::new(known)));
            story.reply(parts[0].xid, 4, &[]);
        } else {
            let next = story.subscribe("/a", Persistent);
            story.reply(next.xid, 4, &[0; 4]);
        }
        assert_eq!(story.removed(), [("/a".to_owned(), WatchKind::Children)]);
        assert_eq!(story.after_the_pause().len(), 0);
    }
}

#[test]
fn recursive_subscription_that_is_dropped_ahead_of_the_lists_of_a_reconnect_leaves_nothing() {
    let mut story = Story::connected();
    story.submit(Request::SetData { path: "/a".into(), data: Vec::new(), version: None }, "write");
    let write = story.requests()[0].xid;
    story.reply(write, 20, &stat(20, 0));
    let mut persistent = story.subscribed("/a", Persistent);
    let recursive = story.subscribed("/a", PersistentRecursive);
    let questions = story.bounce();
    story.drop_subscription(&recursive);
    story.reply(questions[0].xid, 21, &stat(20, 0));
    assert_eq!(watches(&story.requests()[0]).1, [0, 0, 0, 1, 0]);
    story.reply(XID_SET_WATCHES, 21, &[]);
    assert_eq!((story.requests().len(), persistent.heard().len()), (0, 1));
    story.notify(CHILDREN_CHANGED, "/a");
    assert_eq!(persistent.heard(), [told(EventType::NodeChildrenChanged, "/a")]);
}

#[test]
fn subscriber_is_reset_when_another_recursive_watch_follows_a_refused_one() {
    for is_behind in [false, true] {
        let mut story = Story::connected();
        let mut persistent = story.subscribed("/a", Persistent);
        let refused = story.subscribe("/a", PersistentRecursive);
        let (read, _) = story.read(Watching::Children, "/a");
        let ahead = (!is_behind).then(|| story.subscribe("/a", PersistentRecursive));
        story.try_reply(refused.xid, 2, ErrorCode::ThrottledOp.code(), &[]).unwrap();
        let again = story.requests();
        assert_eq!(again.len(), usize::from(is_behind));
        let second = ahead.unwrap_or_else(|| story.subscribe("/a", PersistentRecursive));
        story.reply(read, 2, &Watching::Children.body());
        for again in again {
            story.try_reply(again.xid, 3, ErrorCode::ThrottledOp.code(), &[]).unwrap();
        }
        story.reply(second.xid, 4, &[0; 4]);
        assert_eq!(persistent.heard(), [SubscriptionEvent::Reset]);
        assert_eq!(story.after_the_pause().len(), 0);
    }
}

#[test]
fn watch_that_a_dropped_subscription_served_is_reported_beside_a_new_subscription() {
    for mode in [Persistent, PersistentRecursive] {
        let mut story = Story::connected();
        let dropped = story.subscribed("/a", mode);
        story.watch(Watching::Data, "/a", 1);
        story.drop_subscription(&dropped);
        let removal = story.requests()[0].xid;
        let next = story.subscribe("/a", mode);
        // The server has no watch between the two requests.
        story.reply(removal, 2, &[]);
        assert_eq!(story.removed(), [("/a".to_owned(), WatchKind::Data)]);
        story.reply(next.xid, 3, &[0; 4]);
    }
}

#[test]
fn busy_server_is_asked_to_remove_a_watch_again() {
    let mut story = Story::connected();
    let subscription = story.subscribed("/a", PersistentRecursive);
    story.drop_subscription(&subscription);
    let mut removal = story.requests().pop().unwrap();
    for _ in 0..3 {
        assert_eq!(removal.op, OpCode::RemoveWatches);
        story.try_reply(removal.xid, 2, ErrorCode::ThrottledOp.code(), &[]).unwrap();
        assert_eq!(story.requests().len(), 0);
        removal = story.after_the_pause().pop().unwrap();
    }
    story.reply(removal.xid, 3, &[]);
    assert_eq!(story.protocol.watches_again_at(), None);
}

#[test]
fn dropped_persistent_subscription_leaves_the_recursive_one_of_its_path() {
    let mut story = Story::connected();
    let persistent = story.subscribed("/a", Persistent);
    let mut recursive = story.subscribed("/a", PersistentRecursive);
    story.drop_subscription(&persistent);
    assert!(story.requests().is_empty());
    story.notify(DATA_CHANGED, "/a/b");
    assert_eq!(recursive.heard().len(), 1);
    story.drop_subscription(&recursive);
    assert_eq!(story.requests()[0].op, OpCode::RemoveWatches);
}

#[test]
fn watches_that_a_refused_subscription_should_serve_are_reported_at_once() {
    let mut story = Story::connected();
    let subscription = story.subscribe("/a", PersistentRecursive);
    let (read, is_sent) = story.read(Watching::Data, "/a");
    assert!(!is_sent);
    story.try_reply(subscription.xid, 40, ErrorCode::NoAuth.code(), &[]).unwrap();
    assert_eq!(story.removed(), [WatchKind::Data, WatchKind::Children].map(|kind| ("/a".to_owned(), kind)));
    let removal = story.requests()[0].xid;
    story.reply(read, 50, &Watching::Data.body());
    story.try_reply(removal, 60, ErrorCode::NoWatcher.code(), &[]).unwrap();
    assert_eq!(story.removed(), [("/a".to_owned(), WatchKind::Data)], "of the read since");
}

#[test]
fn served_watches_are_set_from_the_frozen_base_and_ahead_of_the_subscription() {
    let mut story = Story::connected();
    let mut recursive = story.subscribed("/a", PersistentRecursive);
    let _persistent = story.subscribed("/b", Persistent);
    for path in ["/a", "/b"] {
        story.watch(Watching::Data, path, 70);
        story.watch(Watching::Children, path, 70);
    }
    story.lose();
    story.open();
    story.accept(TIMEOUT);
    let parts: Vec<_> = story.requests().iter().map(|part| (part.op, watches(part))).collect();
    let all = (OpCode::SetWatches2, (70, vec![2, 0, 1, 1, 1]));
    let behind = (OpCode::SetWatches, (70, vec![0, 0, 1]));
    assert_eq!(parts, [all, behind], "the recursive watch would remove the one of the children of its path");
    story.notify(DATA_CHANGED, "/a");
    for _part in &parts {
        story.reply(XID_SET_WATCHES, 80, &[]);
    }
    assert_eq!(story.notifications(), [(EventType::NodeDataChanged, "/a".to_owned())]);
    assert!(matches!(recursive.heard()[..], [SubscriptionEvent::Event(_), SubscriptionEvent::Reset]));
    assert!(!story.read(Watching::Data, "/a").1, "served on this connection too");
}

#[test]
fn served_watch_without_waiters_is_not_set_again() {
    for mode in [Persistent, PersistentRecursive] {
        let mut story = Story::connected();
        let subscription = story.subscribed("/a", mode);
        story.watch(Watching::Data, "/a", 1);
        story.protocol.forget("/a", WatchKind::Data, story.now);
        assert!(story.requests().is_empty(), "the removal would take the persistent watch too");
        story.notify(DATA_CHANGED, "/a");
        assert_eq!(story.notifications().len(), 0);
        story.drop_subscription(&subscription);
        let removal = story.requests()[0].xid;
        story.reply(removal, 2, &[]);
        assert!(story.requests().is_empty());
    }
}

#[test]
fn served_watch_that_is_forgotten_ahead_of_its_reply_is_not_armed() {
    let mut story = Story::connected();
    let _subscription = story.subscribed("/a", Persistent);
    let data = story.read(Watching::Data, "/a").0;
    let children = story.read(Watching::Children, "/a").0;
    story.protocol.forget("/a", WatchKind::Data, story.now);
    story.reply(data, 1, &Watching::Data.body());
    story.reply(children, 1, &Watching::Children.body());
    story.events();
    story.notify(DATA_CHANGED, "/a");
    assert_eq!(story.notifications().len(), 0);
    story.notify(CHILDREN_CHANGED, "/a");
    assert_eq!(story.notifications().len(), 1);
}

#[test]
fn subscription_that_is_dropped_while_it_is_set_again_is_removed_behind_that() {
    for is_back in [false, true] {
        let mut story = Story::connected();
        let subscription = story.subscribed("/a", Persistent);
        story.watch(Watching::Data, "/a", 1);
        story.lose();
        story.open();
        story.accept(TIMEOUT);
        assert_eq!(watches(&story.requests()[0]).1, [1, 0, 0, 1, 0]);
        story.drop_subscription(&subscription);
        let (to, _events) = WatchEvents::channel();
        if is_back {
            story.protocol.watching.armed.subscribe("/a", PersistentRecursive, None, to);
        }
        story.reply(XID_SET_WATCHES, 5, &[]);
        let removal = story.requests();
        assert_eq!(
            removal.iter().map(|seen| seen.op).collect::<Vec<_>>(),
            if is_back { vec![] } else { vec![OpCode::RemoveWatches] }
        );
        if let [removal] = &removal[..] {
            story.reply(removal.xid, 6, &[]);
            assert_eq!(story.removed(), [("/a".to_owned(), WatchKind::Data)]);
        }
    }
}

#[test]
fn children_watch_at_a_recursive_one_is_removed_on_its_own() {
    let mut story = Story::connected();
    let _recursive = story.subscribed("/a", PersistentRecursive);
    story.watch_children("/a", 1);
    story.protocol.forget("/a", WatchKind::Children, story.now);
    let removal = story.requests();
    assert_eq!((removal[0].op, &removal[0].body[6..]), (OpCode::RemoveWatches, &WATCHER_CHILDREN.to_be_bytes()[..]));
}

#[test]
fn end_of_the_session_ends_its_subscriptions_and_what_they_serve() {
    let mut story = Story::connected();
    let mut subscription = story.subscribed("/a", PersistentRecursive);
    story.watch(Watching::Data, "/a", 1);
    story.protocol.close(story.now);
    assert_eq!(story.end(), SessionEnd::Closed);
    assert!(subscription.events.recv().now_or_never() == Some(None));
    assert_eq!(story.requests().len(), 1, "the close alone");
}

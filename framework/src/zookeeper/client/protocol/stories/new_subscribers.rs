//! New subscribers that know nodes already.

use super::*;

#[test]
fn known_nodes_are_sent_with_their_zxid_ahead_of_the_subscription_and_end_in_resynced() {
    for mode in [Persistent, PersistentRecursive] {
        let mut story = Story::connected();
        let known = Arc::new(Mutex::new(KnownNodes {
            zxid: Some(Zxid::new(30)),
            data: strings(["/a", "/a/b", "/elsewhere", "/ab"]),
            missing: strings(["/a/none"]),
            children: strings(["/a"]),
        }));
        let mut knowing = story.subscribed_knowing("/a", mode, &known);
        let mut plain = story.subscribed("/c", Persistent);
        story.watch(Watching::Data, "/a/b", 40);
        let parts = story.bounce();
        let zxids: Vec<_> = parts.iter().map(|part| watches(part).0).collect();
        assert_eq!(zxids, [30, 40], "those of the subscriber, and those of the session");
        let none = Vec::new();
        let [data, missing] = match mode {
            Persistent => [strings(["/a"]), none.clone()],
            PersistentRecursive => [strings(["/a", "/a/b"]), strings(["/a/none"])],
        };
        assert_eq!(paths(&parts[0]), [data, missing, strings(["/a"]), none.clone(), none.clone()]);
        let [persistent, recursive] = match mode {
            Persistent => [strings(["/a", "/c"]), none.clone()],
            PersistentRecursive => [strings(["/c"]), strings(["/a"])],
        };
        assert_eq!(paths(&parts[1]), [strings(["/a/b"]), none.clone(), none, persistent, recursive]);
        story.notify(DATA_CHANGED, "/a");
        story.notify(CHILDREN_CHANGED, "/a");
        story.reply(XID_SET_WATCHES, 50, &[]);
        let changes = [told(EventType::NodeDataChanged, "/a"), told(EventType::NodeChildrenChanged, "/a")];
        assert_eq!(knowing.heard(), changes);
        story.reply(XID_SET_WATCHES, 50, &[]);
        assert_eq!(
            (knowing.heard(), plain.heard()),
            (vec![SubscriptionEvent::Resynced], vec![SubscriptionEvent::Reset])
        );
        story.notify(CHILDREN_CHANGED, "/a");
        // The recursive watch sends the event of the child itself.
        assert_eq!(knowing.heard().len(), usize::from(mode == Persistent));
    }
}

#[test]
fn new_subscriber_hears_the_changes_of_its_known_nodes_up_to_the_reply_and_then_resynced() {
    for mode in [Persistent, PersistentRecursive] {
        let mut story = Story::connected();
        let known = Arc::new(Mutex::new(KnownNodes {
            zxid: Some(Zxid::new(30)),
            data: strings(["/a", "/a/b", "/elsewhere"]),
            missing: strings(["/a/none"]),
            children: strings(["/a", "/a/b"]),
        }));
        let (mut knowing, parts) = story.subscribe_knowing("/a", mode, &known);
        let seen: Vec<_> = parts.iter().map(|part| (part.op, watches(part).0)).collect();
        assert_eq!(seen, [(OpCode::SetWatches, 30)], "the zxid of the subscriber, whose session is new");
        let none = Vec::new();
        let [data, missing, children] = match mode {
            Persistent => [strings(["/a"]), none.clone(), strings(["/a"])],
            PersistentRecursive => [strings(["/a", "/a/b"]), strings(["/a/none"]), strings(["/a", "/a/b"])],
        };
        assert_eq!(paths(&parts[0]), [data, missing, children, none.clone(), none]);
        story.notify(DATA_CHANGED, "/a");
        story.reply(parts[0].xid, 40, &[]);
        // The one-shot watches hear of a change between the two requests.
        story.notify(CHILDREN_CHANGED, "/a");
        assert_eq!(
            knowing.heard(),
            [told(EventType::NodeDataChanged, "/a"), told(EventType::NodeChildrenChanged, "/a")]
        );
        story.reply(knowing.xid, 41, &[0; 4]);
        assert_eq!(story.ended().0, "add");
        assert_eq!(knowing.heard(), [SubscriptionEvent::Resynced]);
        // The watches that are left fire later, and do not belong to a waiter.
        story.notify(CHILDREN_CHANGED, "/a/b");
        story.notify(CHILDREN_CHANGED, "/a");
        assert_eq!(story.notifications(), []);
        assert_eq!(knowing.heard().len(), usize::from(mode == Persistent));
    }
}

#[test]
fn new_subscriber_that_knows_more_than_the_server_or_is_throttled_gets_a_reset() {
    let throttled = ErrorCode::ThrottledOp.code();
    for (newest, err, expected) in [
        (29, 0, SubscriptionEvent::Reset),
        (30, 0, SubscriptionEvent::Resynced),
        (30, throttled, SubscriptionEvent::Reset),
    ] {
        let mut story = Story::connected();
        let known = Arc::new(Mutex::new(KnownNodes {
            zxid: Some(Zxid::new(30)),
            data: strings(["/a"]),
            ..KnownNodes::default()
        }));
        let (mut knowing, parts) = story.subscribe_knowing("/a", PersistentRecursive, &known);
        story.try_reply(parts[0].xid, newest, err, &[]).unwrap();
        // The server has compared the nodes with its transactions of then.
        story.reply(knowing.xid, 31, &[0; 4]);
        assert_eq!(knowing.heard(), [expected]);
    }
}

/// A subscriber may know everything up to a transaction that no server reaches.
#[test]
fn event_ahead_of_a_new_subscriber_is_behind_the_newest_reply_at_most() {
    let mut story = Story::connected();
    story.submit(Request::SetData { path: "/a".into(), data: Vec::new(), version: None }, "write");
    let write = story.requests()[0].xid;
    story.reply(write, 20, &stat(20, 0));
    let known = KnownNodes { zxid: Some(Zxid::new(i64::MAX)), children: strings(["/a"]), ..KnownNodes::default() };
    let (knowing, parts) = story.subscribe_knowing("/a", PersistentRecursive, &Arc::new(Mutex::new(known)));
    story.notify(4, "/a");
    story.reply(parts[0].xid, 30, &[]);
    story.reply(knowing.xid, 30, &[0; 4]);
    let questions = story.bounce();
    story.reply(questions[0].xid, 40, &stat(20, 21));
    assert_eq!(watches(&story.requests()[0]).0, 20, "the change is as old as the server says");
}

/// The server replays every change since the zxid of the subscriber.
#[test]
fn replayed_change_does_not_reach_waiters_as_one_after_their_read() {
    let known = KnownNodes {
        zxid: Some(Zxid::new(30)),
        data: strings(["/a", "/a/b"]),
        children: strings(["/a"]),
        ..KnownNodes::default()
    };
    let known = Arc::new(Mutex::new(known));
    let mut story = Story::connected();
    story.watch(Watching::Data, "/a", 50);
    story.watch(Watching::Data, "/a/b", 50);
    story.watch(Watching::Children, "/a", 50);
    let (mut knowing, parts) = story.subscribe_knowing("/a", PersistentRecursive, &known);
    // Of the transactions 40 and 41.
    story.notify(CHILDREN_CHANGED, "/a");
    story.notify(DATA_CHANGED, "/a");
    let kinds = [WatchKind::Children, WatchKind::Data];
    assert_eq!(story.removed(), kinds.map(|kind| ("/a".to_owned(), kind)));
    story.notify(DELETED, "/a/b");
    assert_eq!(story.notifications(), [(EventType::NodeDeleted, "/a/b".to_owned())], "it is missing now");
    story.reply(parts[0].xid, 51, &[]);
    story.reply(knowing.xid, 51, &[0; 4]);
    assert_eq!(knowing.heard().len(), 4);
}

#[test]
fn new_subscriber_without_known_nodes_gets_no_marker() {
    let mut story = Story::connected();
    let known = Arc::new(Mutex::new(KnownNodes { zxid: Some(Zxid::new(30)), ..KnownNodes::default() }));
    let mut knowing = story.subscribed_knowing("/a", PersistentRecursive, &known);
    assert_eq!(knowing.heard(), []);
}

#[test]
fn connection_that_breaks_between_the_parts_of_a_new_subscriber_leaves_nothing_of_it() {
    let data: Vec<_> = (0..5_000).map(|number| format!("/a/a-node-with-a-long-name-{number:08}")).collect();
    let known = Arc::new(Mutex::new(KnownNodes { zxid: Some(Zxid::new(9)), data, ..KnownNodes::default() }));
    for answered in 0..3 {
        let mut story = Story::connected();
        let (mut knowing, parts) = story.subscribe_knowing("/a", PersistentRecursive, &known);
        assert_eq!(parts.len(), 2);
        for part in &parts[..answered] {
            story.reply(part.xid, 50, &[]);
        }
        story.lose();
        let (token, reply) = story.ended();
        assert!(token == "add" && matches!(reply.result, Err(Error::ConnectionLoss { sent: true, .. })));
        assert_eq!(knowing.heard(), []);
        story.open();
        story.accept(TIMEOUT);
        assert_eq!(story.requests().len(), 0, "no subscriber is left");
        let (mut again, parts) = story.subscribe_knowing("/a", PersistentRecursive, &known);
        for part in &parts {
            assert_eq!(watches(part).0, 9);
            story.reply(part.xid, 60, &[]);
        }
        story.reply(again.xid, 60, &[0; 4]);
        assert_eq!(again.heard(), [SubscriptionEvent::Resynced]);
    }
}

#[test]
fn refused_new_subscriber_with_known_nodes_leaves_nothing() {
    let mut story = Story::connected();
    let known =
        Arc::new(Mutex::new(KnownNodes { zxid: Some(Zxid::new(9)), data: strings(["/a"]), ..KnownNodes::default() }));
    let (mut knowing, parts) = story.subscribe_knowing("/a", Persistent, &known);
    // A server before 3.6 replies at once.
    story.try_reply(knowing.xid, 0, ErrorCode::Unimplemented.code(), &[]).unwrap();
    assert!(matches!(story.ended(), ("add", Reply { result: Err(Error::Unsupported { .. }), .. })));
    story.reply(parts[0].xid, 8, &[]);
    assert_eq!(knowing.heard(), []);
}

#[test]
fn watches_of_known_nodes_take_no_persistent_watch_of_their_paths() {
    let mut story = Story::connected();
    let persistent = story.subscribed("/a/p", Persistent);
    let recursive = story.subscribed("/a/r", PersistentRecursive);
    let _own = story.subscribed("/a", Persistent);
    let known = Arc::new(Mutex::new(KnownNodes {
        zxid: Some(Zxid::new(1)),
        data: strings(["/a", "/a/p", "/a/r", "/a/x"]),
        ..KnownNodes::default()
    }));
    story.watch_children("/a/r", 5);
    let (knowing, parts) = story.subscribe_knowing("/a", PersistentRecursive, &known);
    assert_eq!((parts.len(), parts[0].op), (1, OpCode::SetWatches2));
    let lists = paths(&parts[0]);
    assert_eq!(lists[0], ["/a", "/a/p", "/a/r", "/a/x"]);
    assert_eq!(lists[3..], [strings(["/a", "/a/p"]), strings(["/a/r"])]);
    // The recursive watch that was set again has taken the place of this one, of the children.
    story.reply(parts[0].xid, 6, &[]);
    // Ahead of replies that show later transactions.
    assert_eq!(story.removed(), [("/a/r".to_owned(), WatchKind::Children)]);
    story.reply(knowing.xid, 6, &[0; 4]);
    // The recursive watch that the server sets behind it still counts.
    let (_known, parts) = {
        story.drop_subscription(&persistent);
        let _late = story.subscribe("/a/p", Persistent);
        let dropped = story.subscribe("/a/p", PersistentRecursive);
        story.drop_subscription(&dropped);
        story.subscribe_knowing("/a", PersistentRecursive, &known)
    };
    assert_eq!(paths(&parts[0])[3..], [Vec::new(), strings(["/a", "/a/p", "/a/r"])]);
    drop(recursive);
}

#[test]
fn persistent_watch_that_is_set_again_with_known_nodes_counts_before_a_throttled_one() {
    let mut story = Story::connected();
    let mut persistent = story.subscribed("/a", Persistent);
    let recursive = story.subscribed("/a", PersistentRecursive);
    story.drop_subscription(&recursive);
    let replacing = story.requests()[0].xid;
    let known = KnownNodes { zxid: Some(Zxid::new(1)), data: strings(["/a"]), ..KnownNodes::default() };
    let (_knowing, parts) = story.subscribe_knowing("/a", Persistent, &Arc::new(Mutex::new(known)));
    story.try_reply(replacing, 3, ErrorCode::ThrottledOp.code(), &[]).unwrap();
    story.reply(parts[0].xid, 3, &[]);
    story.notify(CHILDREN_CHANGED, "/a");
    assert_eq!(persistent.heard(), [told(EventType::NodeChildrenChanged, "/a")]);
}

#[test]
fn resync_that_breaks_off_begins_anew_from_before_the_first_break() {
    let mut story = Story::connected();
    let known =
        Arc::new(Mutex::new(KnownNodes { zxid: Some(Zxid::new(20)), data: strings(["/a"]), ..KnownNodes::default() }));
    let mut knowing = story.subscribed_knowing("/a", PersistentRecursive, &known);
    story.watch(Watching::Data, "/x", 25);
    assert_eq!(story.bounce().iter().map(|part| watches(part).0).collect::<Vec<_>>(), [20, 25]);
    story.notify(DATA_CHANGED, "/a");
    story.reply(XID_SET_WATCHES, 60, &[]);
    // The subscriber has read the node again.
    *known.lock() = KnownNodes { zxid: Some(Zxid::new(60)), data: strings(["/a", "/a/b"]), ..KnownNodes::default() };
    let parts = story.bounce();
    assert_eq!(
        parts.iter().map(|part| watches(part).0).collect::<Vec<_>>(),
        [25, 25],
        "changes since 25 may be unknown"
    );
    assert_eq!(paths(&parts[0])[0], ["/a", "/a/b"]);
    for _part in parts {
        story.reply(XID_SET_WATCHES, 70, &[]);
    }
    assert_eq!(knowing.heard(), [told(EventType::NodeDataChanged, "/a"), SubscriptionEvent::Resynced]);
}

/// The server repeats a change of children for a subscriber that knows less than the rest of the session.
#[test]
fn change_that_is_repeated_for_a_subscriber_is_not_taken_for_a_newer_one() {
    let mut story = Story::connected();
    for (path, zxid) in [("/a", 20), ("/b", 50)] {
        story.submit(Request::SetData { path: path.into(), data: Vec::new(), version: None }, "write");
        let write = story.requests()[0].xid;
        story.reply(write, zxid, &stat(zxid, 0));
    }
    let known = Arc::new(Mutex::new(KnownNodes {
        zxid: Some(Zxid::new(20)),
        children: strings(["/a"]),
        ..KnownNodes::default()
    }));
    let mut knowing = story.subscribed_knowing("/a", PersistentRecursive, &known);
    for _ in 0..2 {
        let questions = story.bounce();
        assert_eq!(questions.len(), 1, "the newest write is the newest change");
        story.reply(questions[0].xid, 60, &stat(50, 0));
        let parts = story.requests();
        assert_eq!(parts.iter().map(|part| watches(part).0).collect::<Vec<_>>(), [20, 50]);
        // The change of transaction 30.
        story.notify(4, "/a");
        parts.iter().for_each(|_| story.reply(XID_SET_WATCHES, 60, &[]));
        assert_eq!(knowing.heard(), [told(EventType::NodeChildrenChanged, "/a"), SubscriptionEvent::Resynced]);
    }
}

#[test]
fn many_known_nodes_are_sent_in_parts_below_the_limit() {
    let mut story = Story::connected();
    let data: Vec<_> = (0..20_000).map(|number| format!("/a/a-node-with-a-long-name-{number:08}")).collect();
    let known =
        KnownNodes { zxid: Some(Zxid::new(9)), children: data[..5_000].to_vec(), data, ..KnownNodes::default() };
    let known = Arc::new(Mutex::new(known));
    let _knowing = story.subscribed_knowing("/a", PersistentRecursive, &known);
    let parts = story.bounce();
    assert!(parts.len() > 8 && parts.iter().all(|part| part.body.len() < 128 * 1024));
    let (last, others) = parts.split_last().unwrap();
    assert_eq!((last.op, paths(last)[4].clone()), (OpCode::SetWatches2, strings(["/a"])));
    let counts = others.iter().fold([0, 0], |[data, children], part| {
        let lists = watches(part).1;
        [data + lists[0], children + lists[2]]
    });
    assert_eq!(counts, [20_000, 5_000]);
    for _part in others {
        story.reply(XID_SET_WATCHES, 10, &[]);
    }
    assert!(!story.protocol.is_ready(), "no request goes ahead of the subscription");
    story.reply(XID_SET_WATCHES, 10, &[]);
    assert!(story.protocol.is_ready());
}

//! Requests, replies and their frames.

use super::super::connection::WINDOW;
use super::*;

#[test]
fn lost_request_is_not_sent_exactly_if_none_of_its_bytes_was_written() {
    for (written, sent) in [(0, [false, false]), (1, [true, false]), (21, [true, false]), (22, [true, true])] {
        let mut story = Story::connected();
        story.submit(delete("/"), "first");
        assert_eq!(story.protocol.output().len(), 21);
        story.submit(delete("/"), "second");
        story.protocol.written(written);
        story.lose();
        let outcomes: Vec<_> = story
            .events()
            .into_iter()
            .map(|event| match event {
                Event::Reply(_, reply) => (reply.sent.is_some(), reply.result.unwrap_err().outcome_unknown()),
                other => panic!("{other:?}"),
            })
            .collect();
        assert_eq!(outcomes, sent.map(|sent| (sent, sent)), "{written} bytes");
    }
}

#[test]
fn request_without_a_connection_of_its_epoch_is_not_sent() {
    let mut story = Story::connected();
    let (_, error) = story.protocol.submit(delete("/a"), 7, "other epoch", story.now).unwrap_err();
    assert!(!error.outcome_unknown());
    story.lose();
    let (_, error) = story.protocol.submit(delete("/a"), 1, "no connection", story.now).unwrap_err();
    assert!(matches!(error, Error::ConnectionLoss { sent: false, .. }));
}

#[test]
fn numbers_go_on_over_connections_and_wrap_to_one() {
    let mut story = Story::connected();
    story.protocol.next_xid = i32::MAX - 1;
    story.submit(delete("/a"), "a");
    story.lose();
    story.open();
    story.accept(TIMEOUT);
    story.events();
    for expected in [i32::MAX, 1, 2] {
        story.submit(delete("/a"), "b");
        let xid = story.requests()[0].xid;
        assert_eq!(xid, expected);
        story.reply(xid, 1, &[]);
        assert!(story.ended().1.result.is_ok());
    }
}

#[test]
fn reply_out_of_order_is_a_violation() {
    let mut story = Story::connected();
    story.submit(delete("/a"), "a");
    story.submit(delete("/b"), "b");
    let second = story.requests()[1].xid;
    assert!(violation(story.try_reply(second, 1, 0, &[])).contains("before that to"));
    story.lose();
    assert_eq!(story.events().len(), 2, "both are lost");
}

#[test]
fn unknown_operation_is_answered_ahead_of_older_requests() {
    let mut story = Story::connected();
    story.submit(delete("/a"), "a");
    story.submit(Request::Sync { path: "/".into() }, "sync");
    let requests = story.requests();
    story.try_reply(requests[1].xid, -1, ErrorCode::Unimplemented.code(), &[]).unwrap();
    let (token, reply) = story.ended();
    assert!(token == "sync" && matches!(reply.result, Err(Error::Unsupported { .. })));
    story.reply(requests[0].xid, 1, &[]);
    assert_eq!(story.ended().0, "a");
}

#[test]
fn unsolicited_replies_are_violations() {
    for xid in [1, 77, 0, -3, i32::MIN, XID_PING, XID_AUTH, XID_SET_WATCHES] {
        let mut story = Story::connected();
        let refused = violation(story.try_reply(xid, 1, 0, &[]));
        assert!(refused.contains("not sent"), "{xid}: {refused}");
    }
    let mut story = Story::connected();
    story.submit(delete("/a"), "unwritten");
    let xid = story.protocol.next_xid - 1;
    assert!(violation(story.try_reply(xid, 1, 0, &[])).contains("not sent yet"));
}

#[test]
fn frames_with_bad_lengths_are_violations() {
    for (length, text) in [
        (-1_i32, "negative length"),
        (i32::MIN, "negative length"),
        (i32::MAX, "above the limit"),
        ((1 << 30) + 1, "above the limit"),
    ] {
        let mut story = Story::connected();
        let refused = violation(story.protocol.receive(&length.to_be_bytes(), story.now));
        assert!(refused.contains(text), "{refused}");
    }
    let mut story = Story::new(settings());
    story.open();
    let refused = violation(story.protocol.receive(b"HTTP/1.1 400 Bad Request\r\n", story.now));
    assert_eq!(refused, "it does not speak ZooKeeper's protocol");
}

/// Returns the head of a reply that announces `length` bytes.
fn head(length: usize, header: ReplyHeader) -> Vec<u8> {
    let mut frame = Writer::new();
    frame.int(i32::try_from(length).unwrap());
    header.encode(&mut frame);
    frame.into_bytes()
}

#[test]
fn reply_above_the_limit_ends_its_read_alone_and_is_skipped_in_any_parts() {
    let length = DEFAULT_MAX_REPLY + 1;
    for part in [1, 7, 1000, length] {
        let mut story = Story::connected();
        story.submit(Request::GetChildren { path: "/big".into(), watch: true }, "list");
        story.submit(Request::Exists { path: "/small".into(), watch: false }, "exists");
        let xids: Vec<i32> = story.requests().iter().map(|request| request.xid).collect();
        let mut bytes = head(length, ReplyHeader { xid: xids[0], zxid: 5, err: 0 });
        for taken in 0..bytes.len() {
            assert_eq!(story.protocol.receive(&bytes[..taken], story.now), Ok(0));
        }
        assert_eq!(story.protocol.receive(&bytes, story.now), Ok(bytes.len()));
        let (token, reply) = story.ended();
        let Err(Error::ReplyTooLarge { path, size, limit }) = reply.result else { panic!("{reply:?}") };
        assert_eq!((token, path.as_str(), size, limit), ("list", "/big", length, DEFAULT_MAX_REPLY));
        bytes = vec![0xff; part.min(length)];
        let mut left = length - 16;
        while left > 0 {
            let more = left.min(bytes.len());
            assert_eq!(story.protocol.receive(&bytes[..more], story.now), Ok(more), "nothing is kept");
            left -= more;
        }
        story.try_reply(xids[1], 6, ErrorCode::NoNode.code(), &[]).unwrap();
        assert_eq!(story.ended().0, "exists");
    }
}

#[test]
fn only_the_reply_to_the_oldest_read_is_skipped() {
    for (xid_behind, err, request) in [
        (1, 0, Request::Exists { path: "/a".into(), watch: false }),
        (0, -101, Request::Exists { path: "/a".into(), watch: false }),
        (0, 0, delete("/a")),
    ] {
        let mut story = Story::connected();
        story.submit(request, "a");
        let xid = story.requests()[0].xid + xid_behind;
        let bytes = head(DEFAULT_MAX_REPLY + 1, ReplyHeader { xid, zxid: 5, err });
        assert!(violation(story.protocol.receive(&bytes, story.now)).contains("above the limit"));
    }
    for xid in [-1, -2, -8] {
        let mut story = Story::connected();
        let bytes = head(DEFAULT_MAX_REPLY + 1, ReplyHeader { xid, zxid: 5, err: 0 });
        assert!(violation(story.protocol.receive(&bytes, story.now)).contains("above the limit"));
    }
}

/// Sends a write of this length on a new connection each, and loses the connection. Returns the errors.
fn losses_during(story: &mut Story, lengths: &[usize]) -> Vec<Error> {
    let lose = |&length: &usize| {
        story.submit(Request::SetData { path: "/a".into(), data: vec![1; length], version: None }, "big");
        story.submit(delete("/behind"), "behind");
        story.requests();
        story.lose();
        let failed = |event| match event {
            Event::Reply(_, reply) => reply.result.err(),
            _ => None,
        };
        let mut errors: Vec<Error> = story.events().into_iter().filter_map(failed).collect();
        story.open();
        story.accept(TIMEOUT);
        story.events();
        assert!(matches!(errors[1], Error::ConnectionLoss { sent: true, .. }), "{errors:?}");
        errors.swap_remove(0)
    };
    lengths.iter().map(lose).collect()
}

#[test]
fn request_that_is_the_oldest_one_at_three_losses_in_a_row_is_blamed() {
    let is_blamed = |lengths: &[usize]| {
        let errors = losses_during(&mut Story::connected(), lengths);
        errors.iter().map(|error| matches!(error, Error::EndsConnections { .. })).collect::<Vec<bool>>()
    };
    assert_eq!(is_blamed(&[5000; 4]), [false, false, true, false]);
    assert_eq!(is_blamed(&[5000, 5000, 5001, 5000]), [false; 4]);
    assert_eq!(is_blamed(&[4000; 4]), [false; 4], "no server has so small a limit");
    let blamed = losses_during(&mut Story::connected(), &[5000; 3]).pop().unwrap();
    assert!(blamed.outcome_unknown() && !blamed.is_retryable());
    let text = blamed.to_string();
    assert!(
        text.contains("3 times in a row during setData /a, of 5022 bytes") && text.contains("jute.maxbuffer"),
        "{text}"
    );
}

#[test]
fn request_that_was_answered_since_is_not_blamed() {
    let mut story = Story::connected();
    for _ in 0..3 {
        let errors = losses_during(&mut story, &[5000]);
        assert!(!matches!(errors[0], Error::EndsConnections { .. }), "{errors:?}");
        story.submit(Request::SetData { path: "/a".into(), data: vec![1; 5000], version: None }, "big");
        let xid = story.requests()[0].xid;
        story.reply(xid, 1, &[0; 68]);
        assert!(matches!(story.events()[..], [Event::Reply(_, Reply { result: Ok(_), .. })]));
    }
}

#[test]
fn frame_is_taken_when_its_last_byte_has_come() {
    let mut story = Story::connected();
    story.submit(delete("/a"), "a");
    let xid = story.requests()[0].xid;
    let mut frame = Writer::new();
    frame.int(16);
    ReplyHeader { xid, zxid: 1, err: 0 }.encode(&mut frame);
    let bytes = frame.into_bytes();
    for length in 0..bytes.len() {
        assert_eq!(story.protocol.receive(&bytes[..length], story.now), Ok(0));
    }
    assert_eq!(story.protocol.receive(&[&bytes[..], &[0, 0]].concat(), story.now), Ok(bytes.len()));
    assert_eq!(story.ended().0, "a");
}

#[test]
fn reply_that_does_not_decode_is_a_violation_and_the_request_is_lost() {
    let mut story = Story::connected();
    story.submit(Request::GetChildren { path: "/a".into(), watch: false }, "list");
    let xid = story.requests()[0].xid;
    assert!(violation(story.try_reply(xid, 1, 0, &i32::MAX.to_be_bytes())).contains("getChildren /a"));
    story.lose();
    assert_eq!(story.ended().0, "list");
}

#[test]
fn connection_may_be_silent_for_two_thirds_of_the_timeout_and_while_owning_for_one() {
    let mut story = Story::connected();
    assert_eq!(story.protocol.silence_limit(), Some(story.now + TIMEOUT * 2 / 3));
    let begun = story.now + Duration::from_secs(2);
    story.protocol.set_owning(true, begun);
    assert_eq!(story.protocol.silence_limit(), Some(begun + TIMEOUT / 3), "counted from the first owned node");
    story.now = begun + Duration::from_secs(1);
    story.protocol.receive(&[0], story.now).unwrap();
    assert_eq!(story.protocol.silence_limit(), Some(story.now + TIMEOUT / 3), "any byte counts");
    story.protocol.set_owning(false, story.now);
    assert_eq!(story.protocol.silence_limit(), Some(story.now + TIMEOUT * 2 / 3));
    assert_eq!(story.protocol.reattach_limit(story.now), story.now + TIMEOUT / 3);
    story.lose();
    assert_eq!(story.protocol.silence_limit(), None);
}

#[test]
fn ping_is_answered_with_the_time_of_its_send() {
    let mut story = Story::connected();
    story.protocol.ping("ping", story.now).unwrap();
    let sent = story.now;
    assert_eq!(story.requests()[0].xid, XID_PING);
    story.now += Duration::from_secs(1);
    story.reply(XID_PING, 12, &[]);
    let (token, reply) = story.ended();
    assert_eq!((token, reply.sent, reply.zxid), ("ping", Some(sent), 12));
}

#[test]
fn request_above_the_frame_limit_is_refused_and_leaves_nothing() {
    let mut story = Story::connected();
    // Eight bytes of header, six of path, four of length, four of version.
    let request = |length| Request::SetData { path: "/a".into(), data: vec![7; length], version: None };
    let fits = DEFAULT_MAX_FRAME - 22;
    let (_, error) = story.protocol.submit(request(fits + 1), 1, "large", story.now).unwrap_err();
    let Error::RequestTooLarge { size, limit, .. } = error else { panic!("{error}") };
    assert_eq!((size, limit), (DEFAULT_MAX_FRAME + 1, DEFAULT_MAX_FRAME));
    assert!(story.protocol.output().is_empty());
    story.submit(request(fits), "fits");
    assert_eq!(story.requests()[0].xid, 1, "the refused one has used no number");
}

/// At a session's own large writes. The heartbeat is behind at most two of them.
#[test]
fn heartbeat_is_not_behind_megabytes_of_the_callers_writes() {
    let mut story = Story::connected();
    let large = || Request::SetData { path: "/a".into(), data: vec![1; 900_000], version: None };
    for _ in 0..24 {
        story.submit(large(), "large");
    }
    story.protocol.heartbeat("/".into(), "heartbeat", story.now).map_err(|(_, error)| error).unwrap();
    let sent = story.requests();
    let ops: Vec<OpCode> = sent.iter().map(|request| request.op).collect();
    assert_eq!(ops, [OpCode::SetData, OpCode::SetData, OpCode::Delete]);
    let stat = [0; 68];
    story.reply(sent[0].xid, 1, &stat);
    assert_eq!(story.requests().len(), 1, "each reply makes room");
    assert_eq!(story.ended().0, "large");
}

#[test]
fn requests_beyond_the_window_wait_and_are_known_to_be_unsent() {
    let mut story = Story::connected();
    for _ in 0..WINDOW {
        story.submit(delete("/a"), "inside");
    }
    story.submit(delete("/b"), "waits");
    story.submit(delete("/c"), "waits");
    let sent = story.requests();
    assert_eq!(sent.len(), WINDOW);
    story.protocol.heartbeat("/none".into(), "beat", story.now).unwrap();
    assert_eq!(story.requests().len(), 1, "a heartbeat does not wait");
    for sent in &sent[..2] {
        story.reply(sent.xid, 1, &[]);
    }
    assert_eq!(story.requests().len(), 1, "the heartbeat counts in the window");
    story.events();
    story.lose();
    let unsent = |event: &Event<_>| {
        matches!(event, Event::Reply("waits", Reply { result: Err(Error::ConnectionLoss { sent: false, .. }), .. }))
    };
    assert_eq!(story.events().iter().filter(|event| unsent(event)).count(), 1);
}

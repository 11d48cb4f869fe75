//! Connects, sessions and logins.

use super::*;

#[test]
fn new_session_takes_id_password_and_timeout_of_the_server() {
    let mut story = Story::new(settings());
    let request = story.open();
    assert_eq!((request.session_id, request.password, request.last_zxid_seen), (0, vec![0; 16], 0));
    assert_eq!(request.timeout_ms, 9000);
    story.accept(Duration::from_secs(4));
    let events = story.events();
    let [Event::Connected { reattached, read_only: false }] = &events[..] else { panic!("{events:?}") };
    assert_eq!((reattached.sent, reattached.timeout, reattached.epoch), (story.now, Duration::from_secs(4), 1));
    assert_eq!((story.protocol.session_id(), story.protocol.timeout()), (Some(SESSION), Duration::from_secs(4)));
}

#[test]
fn reattach_asks_for_the_smallest_timeout_ever_granted() {
    let mut story = Story::connected();
    for (granted, smallest) in [(4, 4), (20, 4), (6, 4), (3, 3), (20, 3)] {
        story.lose();
        story.open();
        story.accept(Duration::from_secs(granted));
        assert_eq!(story.protocol.timeout(), Duration::from_secs(smallest));
        story.lose();
        let request = story.open();
        assert_eq!((request.timeout_ms, request.session_id), (i32::try_from(smallest * 1000).unwrap(), SESSION));
        assert_eq!(request.password, [9; 16]);
        story.accept(Duration::from_secs(granted));
    }
}

#[test]
fn timeout_below_the_smallest_useful_one_is_a_violation() {
    let mut story = Story::new(settings());
    story.open();
    let refused = violation(story.respond(SESSION, MIN_SESSION_TIMEOUT - Duration::from_millis(1), false));
    assert!(refused.contains("session timeout"), "{refused}");
}

#[test]
fn another_session_id_ends_the_session() {
    let mut story = Story::connected();
    story.lose();
    story.open();
    story.respond(SESSION + 1, TIMEOUT, false).unwrap();
    assert_eq!(story.end(), SessionEnd::Inconsistent);
    let (_, error) = story.protocol.submit(delete("/a"), 2, "late", story.now).unwrap_err();
    assert!(matches!(error, Error::SessionExpired { .. }));
}

#[test]
fn refused_reattach_is_an_expired_session() {
    for (id, timeout) in [(0, TIMEOUT), (SESSION, Duration::ZERO)] {
        let mut story = Story::connected();
        story.lose();
        story.open();
        story.respond(id, timeout, false).unwrap();
        assert_eq!(story.end(), SessionEnd::Expired);
    }
}

#[test]
fn refused_new_session_is_a_violation() {
    let mut story = Story::new(settings());
    story.open();
    assert_eq!(violation(story.respond(0, TIMEOUT, false)), "the server refused a new session");
    assert_eq!(story.protocol.over(), None, "another server may make one");
}

#[test]
fn expired_reply_ends_the_session() {
    let mut story = Story::connected();
    story.submit(delete("/a"), "first");
    story.submit(delete("/b"), "second");
    let xid = story.requests()[0].xid;
    story.try_reply(xid, 5, ErrorCode::SessionExpired.code(), &[]).unwrap();
    let events = story.events();
    let [Event::Reply("first", _), Event::Reply("second", second), Event::Ended(SessionEnd::Expired)] = &events[..]
    else {
        panic!("{events:?}")
    };
    assert!(matches!(second.result, Err(Error::SessionExpired { .. })));
    assert_eq!(second.sent, Some(story.now), "it was written, so it may have been done");
}

#[test]
fn read_only_server_proves_nothing_of_the_history() {
    for read_only in [false, true] {
        let mut story = Story::new(Settings { read_only: true, ..settings() });
        story.open();
        story.accept(TIMEOUT);
        story.lose();
        story.open();
        story.respond(SESSION, TIMEOUT, read_only).unwrap();
        story.submit(Request::Exists { path: "/a".into(), watch: false }, "exists");
        let exists = story.requests()[0].xid;
        story.reply(exists, 20, &stat(20, 20));
        assert_eq!(story.bounce().len(), usize::from(!read_only), "a question about what it has shown");
    }
}

#[test]
fn read_only_server_is_used_only_if_that_is_allowed() {
    let mut story = Story::new(settings());
    assert_eq!(story.open().read_only, Some(false));
    assert_eq!(violation(story.respond(SESSION, TIMEOUT, true)), "the server is read-only");

    let mut story = Story::new(Settings { read_only: true, ..settings() });
    assert_eq!(story.open().read_only, Some(true));
    story.respond(SESSION, TIMEOUT, true).unwrap();
    assert!(matches!(story.events()[..], [Event::Connected { read_only: true, .. }]));
    story.lose();
    assert_eq!(story.end(), SessionEnd::Expired, "the other servers do not know the session");
}

#[test]
fn requests_wait_for_the_replies_to_credentials() {
    let auth = ["one", "two"].map(|auth| AuthInfo { scheme: "digest".into(), auth: auth.into() }).to_vec();
    let mut story = Story::new(Settings { auth, ..settings() });
    story.open();
    story.accept(TIMEOUT);
    let requests = story.requests();
    assert!(requests.iter().all(|seen| (seen.xid, seen.op) == (XID_AUTH, OpCode::Auth)) && requests.len() == 2);
    story.reply(XID_AUTH, 0, &[]);
    assert!(!story.protocol.is_ready());
    story.reply(XID_AUTH, 0, &[]);
    assert!(matches!(story.events()[..], [Event::Connected { .. }]));
    assert!(violation(story.try_reply(XID_AUTH, 0, 0, &[])).contains("not sent"));
}

#[test]
fn refused_credentials_end_the_session() {
    let auth = ["digest", "nothing", "ip"].map(|scheme| AuthInfo { scheme: scheme.into(), auth: Vec::new() }).to_vec();
    let mut story = Story::new(Settings { auth, ..settings() });
    story.open();
    story.accept(TIMEOUT);
    story.reply(XID_AUTH, 0, &[]);
    story.try_reply(XID_AUTH, 0, ErrorCode::AuthFailed.code(), &[]).unwrap();
    assert_eq!(story.end(), SessionEnd::AuthFailed);
    assert_eq!(story.protocol.refusal(), Some("the server did not accept the credentials of the scheme nothing"));
}

#[test]
fn credentials_of_a_connected_session_are_sent_ahead_of_later_requests_and_on_each_later_connection() {
    let late = AuthInfo { scheme: "digest".into(), auth: b"x".to_vec() };
    let mut story = Story::connected();
    story.protocol.add_auth(&late);
    story.protocol.add_auth(&late);
    story.submit(delete("/a"), "behind");
    let ops: Vec<_> = story.requests().iter().map(|seen| seen.op).collect();
    assert_eq!(ops, [OpCode::Auth, OpCode::Delete], "once");
    story.reply(XID_AUTH, 0, &[]);
    assert!(story.protocol.is_ready());
    assert!(violation(story.try_reply(XID_AUTH, 0, 0, &[])).contains("not sent"));
    story.lose();
    story.open();
    story.protocol.add_auth(&AuthInfo { scheme: "nothing".into(), auth: Vec::new() });
    assert!(story.requests().is_empty(), "the session is not attached");
    story.accept(TIMEOUT);
    let ops: Vec<_> = story.requests().iter().map(|seen| seen.op).collect();
    assert_eq!(ops[..2], [OpCode::Auth; 2]);
    story.reply(XID_AUTH, 0, &[]);
    assert!(!story.protocol.is_ready(), "the other reply is outstanding");
    story.events();
    story.try_reply(XID_AUTH, 0, ErrorCode::AuthFailed.code(), &[]).unwrap();
    assert_eq!(story.end(), SessionEnd::AuthFailed);
    assert!(story.protocol.refusal().unwrap().ends_with("of the scheme nothing"));
}

#[test]
fn sasl_comes_before_credentials() {
    let auth = vec![AuthInfo { scheme: "digest".into(), auth: b"x".to_vec() }];
    let mut story = Story::new(Settings { auth, sasl: true, ..settings() });
    story.open();
    story.accept(TIMEOUT);
    assert!(matches!(story.events()[..], [Event::LogIn]) && story.requests().is_empty(), "the mechanism works");
    story.protocol.send_token(b"", story.now);
    let first = story.requests();
    assert_eq!((first[0].op, &first[0].body[..], first.len()), (OpCode::Sasl, &[0; 4][..], 1));
    story.reply(first[0].xid, 0, b"\0\0\0\x02no");
    let events = story.events();
    assert!(matches!(&events[..], [Event::Challenge(Some(token))] if token == b"no"), "{events:?}");
    story.protocol.send_token(b"yes", story.now);
    let answer = story.requests();
    assert_eq!((answer[0].op, answer[0].xid), (OpCode::Sasl, first[0].xid + 1));
    story.reply(answer[0].xid, 0, &[0xff; 4]);
    assert!(matches!(story.events()[..], [Event::Challenge(None)]) && !story.protocol.is_ready());
    story.protocol.logged_in(story.now);
    assert_eq!(story.requests()[0].op, OpCode::Auth);
    story.reply(XID_AUTH, 0, &[]);
    assert!(story.protocol.is_ready());
}

#[test]
fn refused_login_ends_the_session() {
    let mut story = Story::new(Settings { sasl: true, ..settings() });
    story.open();
    story.accept(TIMEOUT);
    story.protocol.send_token(b"", story.now);
    let xid = story.requests()[0].xid;
    story.events();
    story.try_reply(xid, 0, ErrorCode::AuthFailed.code(), &[]).unwrap();
    assert_eq!(story.end(), SessionEnd::AuthFailed);
    assert_eq!(story.protocol.refusal(), Some("the server did not accept the credentials of the scheme sasl"));
}

#[test]
fn token_behind_the_loss_of_its_connection_is_not_sent() {
    let mut story = Story::new(Settings { sasl: true, ..settings() });
    story.open();
    story.accept(TIMEOUT);
    story.protocol.lost(None);
    story.open();
    story.protocol.send_token(b"", story.now);
    story.protocol.logged_in(story.now);
    assert!(story.requests().is_empty(), "the session is not attached yet");
}

#[test]
fn connect_response_before_the_request_was_written_is_a_violation() {
    let mut story = Story::new(settings());
    story.protocol.open(story.now);
    assert_eq!(violation(story.respond(SESSION, TIMEOUT, false)), "it spoke first");
}

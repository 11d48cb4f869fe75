//! The close of a session.

use super::*;

#[test]
fn close_answers_all_callers_and_waits_for_the_server() {
    let mut story = Story::connected();
    story.submit(delete("/a"), "a");
    let waiting = story.requests()[0].xid;
    story.protocol.close(story.now);
    let events = story.events();
    let [Event::Reply("a", reply), Event::Ended(SessionEnd::Closed)] = &events[..] else { panic!("{events:?}") };
    assert!(matches!(reply.result, Err(Error::SessionExpired { .. })));
    let close = story.requests();
    assert_eq!(close[0].op, OpCode::CloseSession);
    story.reply(waiting, 5, &[]);
    assert_eq!(story.events().len(), 0, "its caller was answered");
    story.reply(close[0].xid, 6, &[]);
    assert!(matches!(story.events()[..], [Event::Closed]));
}

#[test]
fn close_without_a_connection_goes_out_on_the_next_one() {
    let mut story = Story::connected();
    story.watch_children("/a", 1);
    story.lose();
    story.protocol.close(story.now);
    assert_eq!(story.end(), SessionEnd::Closed);
    assert_eq!(story.open().session_id, SESSION);
    story.accept(TIMEOUT);
    let close = story.requests();
    assert_eq!((close[0].op, close.len()), (OpCode::CloseSession, 1), "no watch is set for that");
    story.reply(close[0].xid, 2, &[]);
    assert!(matches!(story.events()[..], [Event::Closed]));
}

#[test]
fn close_before_the_reply_to_a_question_follows_that_reply() {
    let mut story = Story::connected();
    for (path, zxid) in [("/a", 40_i64), ("/b", 41)] {
        story.submit(Request::SetData { path: path.into(), data: Vec::new(), version: None }, "write");
        let write = story.requests()[0].xid;
        story.reply(write, zxid, &stat(zxid, 0));
    }
    reopen(&mut story);
    let questions = story.requests();
    assert!(questions.iter().all(|seen| seen.op == OpCode::Exists) && questions.len() == 1, "{questions:?}");
    story.events();
    story.protocol.close(story.now);
    assert_eq!(story.end(), SessionEnd::Closed);
    // A node that does not exist decides nothing, so an open session would ask for the other one.
    story.try_reply(questions[0].xid, 41, ErrorCode::NoNode.code(), &[]).unwrap();
    let close = story.requests();
    assert_eq!((close[0].op, close.len()), (OpCode::CloseSession, 1));
    story.reply(close[0].xid, 42, &[]);
    assert!(matches!(story.events()[..], [Event::Closed]));
}

/// Connects the session again.
fn reopen(story: &mut Story) {
    story.lose();
    story.open();
    story.accept(TIMEOUT);
}

/// Ends the session: the servers continue from a backup.
fn roll_back(story: &mut Story) {
    story.submit(Request::SetData { path: "/a".into(), data: Vec::new(), version: None }, "write");
    let write = story.requests()[0].xid;
    story.reply(write, 40, &stat(40, 0));
    reopen(story);
    if !story.protocol.settings.auth.is_empty() {
        story.try_reply(XID_AUTH, 0, 0, &[]).unwrap();
    }
    let question = story.requests().into_iter().find(|seen| seen.op == OpCode::Exists).unwrap().xid;
    story.reply(question, 41, &stat(39, 0));
    assert_eq!(story.end(), SessionEnd::RolledBack);
}

/// Closes the session, as its owner does.
fn close_by_owner(story: &mut Story) {
    assert!(story.requests().is_empty(), "the owner does not know of the end");
    story.protocol.close(story.now);
    let close = story.requests();
    assert_eq!((close[0].op, close.len()), (OpCode::CloseSession, 1));
    story.reply(close[0].xid, 42, &[]);
    assert!(matches!(story.events()[..], [Event::Closed]));
}

/// Its guards must be lost before the server deletes their nodes.
#[test]
fn session_of_another_history_is_closed_once_its_owner_knows() {
    for is_lost_first in [false, true] {
        let mut story = Story::connected();
        roll_back(&mut story);
        if is_lost_first {
            assert!(story.requests().is_empty());
            reopen(&mut story);
        }
        close_by_owner(&mut story);
    }
}

#[test]
fn refused_credentials_do_not_close_a_session_before_its_owner_knows() {
    let auth = vec![AuthInfo { scheme: "digest".into(), auth: b"x".to_vec() }];
    let mut story = Story::new(Settings { auth, ..settings() });
    story.open();
    story.accept(TIMEOUT);
    story.try_reply(XID_AUTH, 0, 0, &[]).unwrap();
    story.requests();
    roll_back(&mut story);
    reopen(&mut story);
    story.requests();
    story.try_reply(XID_AUTH, 0, ErrorCode::AuthFailed.code(), &[]).unwrap();
    assert!(story.requests().is_empty());
    // The server has closed that connection.
    reopen(&mut story);
    close_by_owner(&mut story);
}

#[test]
fn login_goes_on_after_the_close_of_its_session() {
    let mut story = Story::new(Settings { sasl: true, ..settings() });
    story.open();
    story.accept(TIMEOUT);
    story.protocol.send_token(b"", story.now);
    let xid = story.requests()[0].xid;
    story.events();
    story.protocol.close(story.now);
    assert_eq!(story.end(), SessionEnd::Closed);
    story.reply(xid, 0, b"\0\0\0\x02no");
    assert!(matches!(story.events()[..], [Event::Challenge(Some(_))]));
    story.protocol.send_token(b"yes", story.now);
    assert_eq!(story.requests()[0].op, OpCode::Sasl, "a server may refuse a close without the login");
}

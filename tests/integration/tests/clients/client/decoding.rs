//! Bytes from a server that are not what was asked for.

use std::net::SocketAddr;
use std::time::Duration;

use curator_framework::{AddWatchMode, CuratorFramework, Error, RetryNTimes, Session};
use curator_integration::env::{builder, connected, eventually, in_time};
use curator_test::wire::{
    ConnectResponse, OpCode, ReplyHeader, WatchEvent, Writer, XID_EVENT, XID_PING, XID_SET_WATCHES,
};
use futures_util::future::join_all;

use super::scripted::{Frame, Peer, SESSION, Scripted, Then, framed};

/// What a server does in place of the reply, and what the error says.
struct Case {
    name: &'static str,
    answer: fn(&Frame, &mut Peer),
    cause: &'static str,
}

/// A reply to the request with this body.
fn reply(frame: &Frame, peer: &mut Peer, body: impl FnOnce(&mut Writer)) {
    peer.reply(frame.xid(), 0, body);
}

fn event(peer: &mut Peer, body: impl FnOnce(&mut Writer)) {
    peer.frame(|to| {
        ReplyHeader { xid: XID_EVENT, zxid: -1, err: 0 }.encode(to);
        body(to);
    });
}

const CASES: &[Case] = &[
    Case {
        name: "a count of 2^31-1",
        answer: |frame, peer| reply(frame, peer, |to| _ = to.int(i32::MAX)),
        cause: "a bad reply to getChildren /a: input ends early",
    },
    Case {
        name: "a negative count",
        answer: |frame, peer| reply(frame, peer, |to| _ = to.int(-2)),
        cause: "a bad reply to getChildren /a: negative length -2",
    },
    Case {
        name: "a name of 2^31-1 bytes",
        answer: |frame, peer| reply(frame, peer, |to| _ = to.int(1).int(i32::MAX)),
        cause: "a bad reply to getChildren /a: input ends early",
    },
    Case {
        name: "a null name",
        answer: |frame, peer| reply(frame, peer, |to| _ = to.int(1).int(-1)),
        cause: "a bad reply to getChildren /a: null",
    },
    Case {
        name: "a name that is not UTF-8",
        answer: |frame, peer| reply(frame, peer, |to| _ = to.int(1).buffer(b"\xff")),
        cause: "a bad reply to getChildren /a: string is not UTF-8",
    },
    Case {
        name: "an empty body",
        answer: |frame, peer| reply(frame, peer, |_| {}),
        cause: "a bad reply to getChildren /a: input ends early",
    },
    Case {
        name: "half a header",
        answer: |_, peer| peer.frame(|to| _ = to.int(1)),
        cause: "a bad reply header: input ends early",
    },
    Case {
        name: "an empty frame",
        answer: |_, peer| peer.frame(|_| {}),
        cause: "a bad reply header: input ends early",
    },
    Case {
        name: "a frame of 2 GB",
        answer: |_, peer| peer.raw(&[0x7f, 0xff, 0xff, 0xff, 0, 0]),
        cause: "a frame of 2147483647 bytes is above the limit",
    },
    Case {
        name: "a frame of negative length",
        answer: |_, peer| peer.raw(&[0xff, 0xff, 0xff, 0xfe]),
        cause: "a frame of negative length -2",
    },
    Case {
        name: "a reply to a later request",
        answer: |frame, peer| peer.reply(frame.xid() + 1, 0, |_| {}),
        cause: "before that to",
    },
    Case { name: "a reply to request 0", answer: |_, peer| peer.reply(0, 0, |_| {}), cause: "a reply to request 0" },
    Case {
        name: "a reply twice",
        answer: |frame, peer| {
            let twice = framed(|to| ReplyHeader { xid: frame.xid() - 1, zxid: 1, err: -101 }.encode(to));
            peer.raw(&twice);
        },
        cause: "before that to",
    },
    Case {
        name: "a ping that was not sent",
        answer: |_, peer| peer.reply(XID_PING, 0, |_| {}),
        cause: "a reply to a ping that was not sent",
    },
    Case {
        name: "watches that were not set",
        answer: |_, peer| peer.reply(XID_SET_WATCHES, 0, |_| {}),
        cause: "a reply to credentials or watches that were not sent",
    },
    Case {
        name: "an unknown event type",
        answer: |_, peer| peer.event(9, "/a"),
        cause: "a bad notification: unknown event type 9",
    },
    Case {
        name: "an event without a path",
        answer: |_, peer| event(peer, |to| _ = to.int(1).int(3)),
        cause: "a bad notification: input ends early",
    },
    Case {
        name: "an event whose path is not UTF-8",
        answer: |_, peer| event(peer, |to| _ = to.int(1).int(3).buffer(b"/\xc3")),
        cause: "a bad notification: string is not UTF-8",
    },
];

async fn assert_reported(case: &Case) {
    let answer = case.answer;
    let server = Scripted::start(move |frame, peer| match frame.op() {
        Some(OpCode::GetChildren) if frame.connection == 1 => {
            answer(frame, peer);
            Then::Done
        }
        _ => Then::Usual,
    });
    let client = connected(builder(server.address())).await;
    let session = client.session().await.unwrap();
    session.exists("/before").await.unwrap();
    let lost = in_time(session.get_children("/a")).await.unwrap_err();
    let Error::ConnectionLoss { sent: true, cause: Some(cause), .. } = &lost else { panic!("{}: {lost:?}", case.name) };
    assert!(cause.to_string().contains(case.cause), "{}: {cause}", case.name);
    eventually(case.name, async || session.epoch() == 2).await;
    let again = in_time(session.get_children("/a")).await;
    assert!(matches!(again, Err(Error::NoNode { .. })), "{}: {again:?}", case.name);
    client.close().await;
}

#[tokio::test]
async fn bad_frame_ends_the_request_with_its_cause_and_the_session_goes_on() {
    join_all(CASES.iter().map(assert_reported)).await;
}

/// Bytes in place of a connect response, and what the error says.
fn bad_connect_responses() -> Vec<(&'static str, Vec<u8>)> {
    let response = |change: fn(&mut ConnectResponse)| {
        let password = vec![7; 16];
        let mut response =
            ConnectResponse { timeout_ms: 10_000, session_id: SESSION, password, ..ConnectResponse::default() };
        change(&mut response);
        framed(|to| response.encode(to))
    };
    let password_of = |length: i32| framed(|to| _ = to.int(0).int(9000).long(SESSION).int(length).raw(&[0; 17]));
    vec![
        (REFUSED, response(|bad| bad.timeout_ms = 0)),
        (REFUSED, response(|bad| bad.timeout_ms = i32::MIN)),
        (REFUSED, response(|bad| bad.session_id = 0)),
        (TOO_SHORT, response(|bad| bad.timeout_ms = 1)),
        (NO_ZOOKEEPER, response(|bad| bad.password = Vec::new())),
        (NO_ZOOKEEPER, response(|bad| bad.password = vec![7; 5000])),
        ("a bad connect response: input ends early", password_of(i32::MAX)),
        ("a bad connect response: negative length -5", password_of(-5)),
        (NO_ZOOKEEPER, vec![0, 0, 0, 3, 1, 2, 3]),
        (NO_ZOOKEEPER, b"HTTP/1.1 400 Bad Request\r\n\r\n".to_vec()),
        ("a frame of negative length -1", b"\xff\xff\xff\xff".to_vec()),
    ]
}

const REFUSED: &str = "the server refused a new session";
const TOO_SHORT: &str = "it grants a session timeout of 1ms";
const NO_ZOOKEEPER: &str = "it does not speak ZooKeeper's protocol";

fn once(address: SocketAddr, connection_timeout: Duration) -> CuratorFramework {
    let client = CuratorFramework::builder(address.to_string())
        .session_timeout(Duration::from_secs(10))
        .connection_timeout(connection_timeout)
        .retry_policy(RetryNTimes::new(0, Duration::ZERO))
        .build()
        .unwrap();
    client.start().unwrap();
    client
}

#[tokio::test]
async fn bad_connect_response_is_named_as_the_cause() {
    join_all(bad_connect_responses().into_iter().map(|(words, bytes)| async move {
        let server = Scripted::start(move |_, peer| {
            peer.raw(&bytes);
            Then::Done
        });
        let client = once(server.address(), Duration::from_secs(1));
        let lost = in_time(client.check_exists().for_path("/a")).await.unwrap_err();
        let Error::ConnectionLoss { sent: false, cause: Some(cause), .. } = &lost else { panic!("{lost:?}") };
        assert!(cause.to_string().contains(words), "{cause} is not {words}");
        client.close().await;
    }))
    .await;
}

/// The response to the first connect request is bad, and then that to the first re-attach.
#[tokio::test]
async fn client_connects_behind_a_bad_connect_response() {
    join_all(bad_connect_responses().into_iter().map(|(words, bytes)| async move {
        let server = Scripted::start(move |frame, peer| match (frame.op(), frame.connection) {
            (None, 1 | 3) => {
                peer.raw(&bytes);
                Then::Done
            }
            _ => Then::Usual,
        });
        let client = once(server.address(), Duration::from_secs(10));
        in_time(client.block_until_connected()).await.unwrap();
        let session = client.session().await.unwrap();
        server.reset();
        // The server does not know the session any more, or ends it within a millisecond.
        if [REFUSED, TOO_SHORT].contains(&words) {
            in_time(session.ended()).await;
            in_time(client.check_exists().for_path("/a")).await.unwrap();
        } else {
            eventually(words, async || session.epoch() == 2).await;
            assert!(server.connects()[2..].iter().all(|connect| connect.session_id == SESSION), "{words}");
        }
        assert!(server.connects().len() >= 4, "{words}");
        client.close().await;
    }))
    .await;
}

async fn ask(session: &Session, client: &CuratorFramework, op: OpCode) -> Result<(), Error> {
    match op {
        OpCode::Create2 => {
            let acl = curator_framework::Acl::open_unsafe();
            session.create("/a", Vec::new(), acl, curator_framework::CreateMode::Persistent).await.map(drop)
        }
        OpCode::Exists => session.exists("/a").await.map(drop),
        OpCode::GetData => session.get_data("/a").await.map(drop),
        OpCode::SetData => session.set_data("/a", Vec::new(), None).await.map(drop),
        OpCode::GetAcl => session.get_acl("/a").await.map(drop),
        OpCode::SetAcl => session.set_acl("/a", Vec::new(), None).await.map(drop),
        OpCode::Sync => session.sync("/a").await,
        OpCode::Multi => client.transaction().check("/a").commit().await.map(drop),
        OpCode::AddWatch => client.add_watch("/a", AddWatchMode::Persistent).await.map(drop),
        other => panic!("{other}"),
    }
}

#[tokio::test]
async fn truncated_body_of_each_request_ends_it_with_its_cause() {
    use OpCode::{Create2, Exists, GetAcl, GetData, Multi, SetAcl, SetData, Sync};
    join_all([Create2, Exists, GetData, SetData, GetAcl, SetAcl, Sync, Multi].map(|op| async move {
        let server = Scripted::start(move |frame, peer| {
            if frame.op() == Some(op) && frame.connection == 1 {
                peer.reply(frame.xid(), 0, |to| _ = to.raw(&[0; 3]));
                return Then::Done;
            }
            Then::Usual
        });
        let client = connected(builder(server.address()).retry_policy(RetryNTimes::new(0, Duration::ZERO))).await;
        let session = client.session().await.unwrap();
        let lost = in_time(ask(&session, &client, op)).await.unwrap_err();
        let Error::ConnectionLoss { cause: Some(cause), .. } = &lost else { panic!("{op}: {lost:?}") };
        assert!(cause.to_string().contains("a bad reply to"), "{op}: {cause}");
        eventually("attached again", async || session.epoch() == 2).await;
    }))
    .await;
}

/// An event that a subscriber did not ask for is nothing to it.
#[tokio::test]
async fn state_event_of_a_server_is_ignored() {
    let server = Scripted::start(|frame, peer| {
        if frame.op() == Some(OpCode::Exists) {
            event(peer, |to| WatchEvent { kind: -1, state: 0, path: String::new() }.encode(to));
        }
        Then::Usual
    });
    let client = connected(builder(server.address())).await;
    let session = client.session().await.unwrap();
    for _ in 0..3 {
        assert!(session.exists("/a").await.unwrap().is_none());
    }
    assert_eq!(session.epoch(), 1);
}

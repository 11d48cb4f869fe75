//! The core as a client sees it, without sockets and on a clock of the test's own.

mod golden;
mod stale;
mod world;

use world::*;

use super::*;
use crate::wire::Stat;

#[test]
fn the_timeout_is_clamped() {
    let mut world = World::new();
    for (asked, given) in [(-1, 4000), (0, 4000), (4001, 4001), (i32::MAX, 40_000)] {
        let request = ConnectRequest { timeout_ms: asked, ..ConnectRequest::default() };
        let (_, response, closed) = world.handshake(&request);
        let response = response.unwrap();
        assert_eq!((response.timeout_ms, closed), (given, false));
        assert_eq!(response.password, session_password(response.session_id));
        assert_eq!(response.read_only, None);
    }
    assert_eq!(world.core.session_ids(), [0x100, 0x101, 0x102, 0x103]);
}

#[test]
fn a_wrong_password_or_an_unknown_session_is_refused() {
    let mut world = World::new();
    let client = world.client();
    let refused = ConnectResponse { password: vec![0; 16], read_only: Some(false), ..ConnectResponse::default() };
    for (session_id, password) in [(client.session, vec![0; 16]), (999, session_password(999).to_vec())] {
        let request = ConnectRequest { session_id, password, read_only: Some(false), ..ConnectRequest::default() };
        let (_, response, closed) = world.handshake(&request);
        assert_eq!((response, closed), (Some(refused.clone()), true));
    }
    // Apache closes the old connection before it checks the password.
    assert_eq!(world.got(client), [Got::Closed]);
    assert_eq!(world.core.session_ids(), [client.session]);
}

#[test]
fn a_client_from_the_future_is_hung_up_on() {
    let mut world = World::new();
    let request = ConnectRequest { last_zxid_seen: 5, ..ConnectRequest::default() };
    let (_, response, closed) = world.handshake(&request);
    assert_eq!((response, closed), (None, true));
}

#[test]
fn a_session_moves_to_the_newer_connection_and_leaves_watches_and_credentials_behind() {
    let mut world = World::new();
    let client = world.client();
    assert_eq!(world.error(client, OpCode::Auth, auth("digest", b"user:pw")), ErrorCode::Ok);
    let secret = create("/secret", &[(31, "auth", "")], 1);
    assert_eq!(world.error(client, OpCode::Create, secret), ErrorCode::Ok);
    world.call(client, OpCode::GetData, path_watch("/secret", true));
    assert_eq!(world.core.watches.len(), 1);

    let request = ConnectRequest {
        session_id: client.session,
        password: session_password(client.session).to_vec(),
        timeout_ms: 5000,
        ..ConnectRequest::default()
    };
    let (connection, response, closed) = world.handshake(&request);
    assert!(!closed);
    let response = response.unwrap();
    assert_eq!((response.session_id, response.timeout_ms), (client.session, 5000));
    assert_eq!(world.got(client), [Got::Closed]);
    assert_eq!(world.core.watches.len(), 0);

    let moved = Client { connection, ..client };
    let read = || path_watch("/secret", false);
    assert_eq!(world.error(moved, OpCode::GetData, read()), ErrorCode::NoAuth);
    world.call(moved, OpCode::Auth, auth("digest", b"user:pw"));
    assert_eq!(world.error(moved, OpCode::GetData, read()), ErrorCode::Ok);
    // The old connection is closed: later frames of it are ignored.
    world.send(client, OpCode::Exists, read());
    assert_eq!(world.got(client), []);
}

#[test]
fn a_session_ends_when_its_timeout_has_passed_without_a_packet() {
    let mut world = World::new();
    let (holder, waiter) = (world.client(), world.client());
    world.create(holder, "/e", 1);
    world.call(waiter, OpCode::Exists, path_watch("/e", true));
    world.sleep(9_000);
    world.call(waiter, OpCode::Ping, Writer::new());
    world.sleep(999);
    assert!(world.stat(waiter, "/e").is_some());
    world.sleep(1);
    assert_eq!(world.got(holder), [Got::Closed]);
    assert_eq!(world.got(waiter), [event(EventKind::NodeDeleted, "/e")]);
    assert_eq!(world.core.session_ids(), [waiter.session]);
}

#[test]
fn any_packet_keeps_a_session_alive() {
    let mut world = World::new();
    let client = world.client();
    for op in [OpCode::Ping, OpCode::Multi, OpCode::Exists] {
        world.sleep(9_999);
        world.call(client, op, Writer::new());
    }
    world.sleep(9_999);
    assert_eq!(world.core.session_ids(), [client.session]);
}

#[test]
fn a_lost_connection_leaves_the_session_its_time() {
    let mut world = World::new();
    let client = world.client();
    world.create(client, "/e", 1);
    world.call(client, OpCode::GetData, path_watch("/e", true));
    world.core.closed(client.connection);
    assert_eq!(world.core.watches.len(), 0);
    world.sleep(9_999);
    assert!(world.core.tree.contains("/e"));
    world.sleep(1);
    assert!(!world.core.tree.contains("/e"));
}

#[test]
fn close_session_deletes_then_replies_then_closes() {
    let mut world = World::new();
    let (holder, waiter) = (world.client(), world.client());
    world.create(holder, "/b", 1);
    world.create(holder, "/a", 1);
    world.call(waiter, OpCode::GetChildren, path_watch("/", true));
    world.call(holder, OpCode::Exists, path_watch("/a", true));
    world.send(holder, OpCode::CloseSession, Writer::new());
    assert_eq!(world.got(holder), [event(EventKind::NodeDeleted, "/a"), Got::Reply(0, Vec::new()), Got::Closed]);
    assert_eq!(world.got(waiter), [event(EventKind::NodeChildrenChanged, "/")]);
    assert!(world.core.kill_session(holder.session, world.now).is_none());
}

#[test]
fn a_restart_keeps_data_and_sessions_and_drops_the_rest() {
    let mut world = World::new();
    let client = world.client();
    world.create(client, "/e", 1);
    world.call(client, OpCode::Exists, path_watch("/e", true));
    world.now += Duration::from_secs(60);
    world.core.restart(world.now);
    assert_eq!(world.core.watches.len(), 0);
    world.sleep(9_999);
    assert!(world.core.tree.contains("/e"));
    world.sleep(1);
    assert!(!world.core.tree.contains("/e"));
}

#[test]
fn create_modes_are_apaches() {
    let mut world = World::new();
    let client = world.client();
    for (op, flags, path, owner) in [
        (OpCode::Create2, 0, "/p", 0),
        (OpCode::Create2, 1, "/e", client.session),
        (OpCode::Create2, 2, "/ps0000000002", 0),
        (OpCode::Create2, 3, "/es0000000003", client.session),
        // The mode alone makes no container.
        (OpCode::Create2, 4, "/c", 0),
        (OpCode::CreateContainer, 4, "/cc", 0),
    ] {
        let asked = path.trim_end_matches(|c: char| c.is_ascii_digit());
        let (err, body) = world.call(client, op, create(asked, OPEN, flags));
        let mut reader = Reader::new(&body);
        assert_eq!((err, reader.string()), (0, Ok(path)));
        let stat = Stat::decode(&mut reader).unwrap();
        assert_eq!((stat.ephemeral_owner, stat.data_length), (owner, 4));
        assert_eq!(stat.ctime, 1_000_000);
        assert!(reader.is_empty());
    }
    for (op, flags, error) in [
        (OpCode::Create2, 5, ErrorCode::Unimplemented),
        (OpCode::Create2, 7, ErrorCode::BadArguments),
        (OpCode::CreateTtl, 6, ErrorCode::Unimplemented),
        (OpCode::CreateTtl, 4, ErrorCode::BadArguments),
    ] {
        let mut body = create("/x", OPEN, flags);
        body.long(1000);
        assert_eq!(world.error(client, op, body), error, "{op} {flags}");
    }
    let (err, body) = world.call(client, OpCode::Create, create("/short", OPEN, 0));
    let mut reader = Reader::new(&body);
    assert_eq!((err, reader.string()), (0, Ok("/short")));
    assert!(reader.is_empty());
}

#[test]
fn versions_and_paths_are_checked() {
    let mut world = World::new();
    let client = world.client();
    world.create(client, "/a", 0);
    world.create(client, "/a/b", 0);
    for (op, body, error) in [
        (OpCode::SetData, set_data("/a", 1), ErrorCode::BadVersion),
        (OpCode::SetData, set_data("/a", 0), ErrorCode::Ok),
        (OpCode::SetData, set_data("/a", -1), ErrorCode::Ok),
        (OpCode::SetData, set_data("a", -1), ErrorCode::BadArguments),
        (OpCode::SetData, set_data("/none", -1), ErrorCode::NoNode),
        (OpCode::Delete, delete("/a", 1), ErrorCode::BadVersion),
        (OpCode::Delete, delete("/a", 2), ErrorCode::NotEmpty),
        (OpCode::Delete, delete("/a/b", -1), ErrorCode::Ok),
        (OpCode::Delete, delete("/a/b", -1), ErrorCode::NoNode),
        (OpCode::Delete, delete("/none/b", -1), ErrorCode::NoNode),
        (OpCode::Delete, delete("none", -1), ErrorCode::BadArguments),
        (OpCode::Delete, delete("/", 7), ErrorCode::BadArguments),
        (OpCode::Create, create("/a", OPEN, 0), ErrorCode::NodeExists),
        (OpCode::Create, create("/x", &[], 0), ErrorCode::InvalidAcl),
        (OpCode::Exists, path_watch("/\0", false), ErrorCode::BadArguments),
        (OpCode::GetData, path_watch("//", false), ErrorCode::NoNode),
        (OpCode::GetChildren2, path_watch("/none", true), ErrorCode::NoNode),
        (OpCode::Check, delete("/a", 1), ErrorCode::BadVersion),
        (OpCode::Check, delete("/a", 2), ErrorCode::Ok),
        (OpCode::Multi, Writer::new(), ErrorCode::MarshallingError),
        (OpCode::Delete, Writer::new(), ErrorCode::MarshallingError),
    ] {
        let shown = format!("{op} {body:?}");
        assert_eq!(world.error(client, op, body), error, "{shown}");
    }
    assert_eq!(world.core.watches.len(), 0);
}

#[test]
fn each_write_takes_a_transaction_even_if_it_fails() {
    let mut world = World::new();
    let client = world.client();
    assert_eq!(world.core.zxid, 1);
    world.create(client, "/a", 0);
    world.create(client, "/a", 0);
    world.stat(client, "/a");
    assert_eq!(world.core.zxid, 3);
    world.create(client, "/b", 0);
    assert_eq!(world.stat(client, "/b").unwrap().czxid, 4);
}

#[test]
fn each_request_needs_its_permission() {
    let mut world = World::new();
    let (owner, stranger) = (world.client(), world.client());
    world.call(owner, OpCode::Auth, auth("digest", b"user:pw"));
    let id = "user:2Om+GBbT2q/tS6pdvACZbbm7/1A=";
    for (perms, path) in [(1, "/r"), (2, "/w"), (4, "/c"), (8, "/d"), (16, "/a")] {
        let acl = [(31, "auth", ""), (perms, "world", "anyone")];
        assert_eq!(world.error(owner, OpCode::Create, create(path, &acl, 0)), ErrorCode::Ok);
        let inner = create(&format!("{path}/x"), OPEN, 0);
        assert_eq!(world.error(owner, OpCode::Create, inner), ErrorCode::Ok);
    }
    for (op, allowed_by) in [
        (OpCode::Exists, &["/r", "/w", "/c", "/d", "/a"][..]),
        (OpCode::GetData, &["/r"]),
        (OpCode::GetChildren, &["/r"]),
        (OpCode::GetChildren2, &["/r"]),
        (OpCode::GetAcl, &["/r", "/a"]),
        (OpCode::SetData, &["/w"]),
        (OpCode::Create, &["/c"]),
        (OpCode::Delete, &["/d"]),
        (OpCode::SetAcl, &["/a"]),
    ] {
        for path in ["/r", "/w", "/c", "/d", "/a"] {
            let body = match op {
                OpCode::Create => create(&format!("{path}/y"), OPEN, 0),
                OpCode::Delete => delete(&format!("{path}/x"), -1),
                OpCode::SetData => set_data(path, -1),
                OpCode::SetAcl => {
                    let mut body = Writer::new();
                    body.string(path);
                    write_acl(&mut body, &[(31, "digest", id), (16, "world", "anyone")]);
                    body.int(-1);
                    body
                }
                _ => path_watch(path, false),
            };
            let expected = if allowed_by.contains(&path) { ErrorCode::Ok } else { ErrorCode::NoAuth };
            assert_eq!(world.error(stranger, op, body), expected, "{op} {path}");
        }
    }
}

#[test]
fn failed_credentials_end_the_connection() {
    let mut world = World::new();
    let client = world.client();
    world.send(client, OpCode::Auth, auth("nonsense", b"x"));
    assert_eq!(world.got(client), [Got::Reply(ErrorCode::AuthFailed.code(), Vec::new()), Got::Closed]);
    let client = world.client();
    world.send(client, OpCode::Unknown(77), Writer::new());
    assert_eq!(world.got(client), [Got::Reply(ErrorCode::Unimplemented.code(), Vec::new()), Got::Closed]);
}

#[test]
fn watches_fire_by_apaches_rules() {
    use EventKind::{NodeChildrenChanged, NodeCreated, NodeDataChanged, NodeDeleted};
    let exists = |path| (OpCode::Exists, path_watch(path, true));
    let get_data = |path| (OpCode::GetData, path_watch(path, true));
    let get_children = |path| (OpCode::GetChildren2, path_watch(path, true));
    let create = |path| (OpCode::Create, create(path, OPEN, 0));
    let delete = |path| (OpCode::Delete, delete(path, -1));
    let set_data = |path| (OpCode::SetData, set_data(path, -1));
    // On a tree with /a and /a/b: what is watched, what is written, what fires.
    for (watch, write, fires) in [
        (exists("/a/n"), create("/a/n"), vec![event(NodeCreated, "/a/n")]),
        (exists("/a/b"), delete("/a/b"), vec![event(NodeDeleted, "/a/b")]),
        (exists("/a/b"), set_data("/a/b"), vec![event(NodeDataChanged, "/a/b")]),
        (get_data("/a/b"), delete("/a/b"), vec![event(NodeDeleted, "/a/b")]),
        (get_data("/a/b"), set_data("/a/b"), vec![event(NodeDataChanged, "/a/b")]),
        (get_data("/a"), create("/a/n"), vec![]),
        (get_data("/a"), delete("/a/b"), vec![]),
        (get_children("/a"), create("/a/n"), vec![event(NodeChildrenChanged, "/a")]),
        (get_children("/a"), delete("/a/b"), vec![event(NodeChildrenChanged, "/a")]),
        (get_children("/a"), create("/a/b/deep"), vec![]),
        (get_children("/a"), set_data("/a"), vec![]),
        (get_children("/a/b"), delete("/a/b"), vec![event(NodeDeleted, "/a/b")]),
        (get_children("/"), create("/n"), vec![event(NodeChildrenChanged, "/")]),
        (get_data("/a/none"), create("/a/none"), vec![]),
    ] {
        let mut world = World::new();
        let (watcher, writer) = (world.client(), world.client());
        world.create(writer, "/a", 0);
        world.create(writer, "/a/b", 0);
        let shown = format!("{watch:?} {write:?}");
        world.call(watcher, watch.0, watch.1.clone());
        world.call(watcher, watch.0, watch.1);
        assert_eq!(world.error(writer, write.0, write.1), ErrorCode::Ok);
        assert_eq!(world.got(watcher), fires, "{shown}");
    }
}

/// Like Apache since CVE-2024-23944.
#[test]
fn client_without_read_permission_gets_no_notification() {
    let mut world = World::new();
    let (owner, stranger) = (world.client(), world.client());
    world.call(owner, OpCode::Auth, auth("digest", b"user:pw"));
    for watcher in [owner, stranger] {
        world.call(watcher, OpCode::Exists, path_watch("/secret", true));
    }
    world.send(owner, OpCode::Create, create("/secret", &[(31, "auth", "")], 0));
    assert_eq!(world.got(owner).len(), 2);
    assert_eq!(world.got(stranger), []);
    assert_eq!(world.core.watches.len(), 0);
}

#[test]
fn the_writer_hears_of_its_own_watch_before_the_reply() {
    let mut world = World::new();
    let client = world.client();
    world.create(client, "/a", 0);
    world.call(client, OpCode::GetData, path_watch("/a", true));
    world.call(client, OpCode::GetChildren, path_watch("/a", true));
    world.call(client, OpCode::GetChildren, path_watch("/", true));
    world.send(client, OpCode::Delete, delete("/a", -1));
    assert_eq!(
        world.got(client),
        [event(EventKind::NodeDeleted, "/a"), event(EventKind::NodeChildrenChanged, "/"), Got::Reply(0, Vec::new()),]
    );
}

#[test]
fn set_watches_fires_what_was_missed_and_sets_the_rest() {
    let mut world = World::new();
    let client = world.client();
    for path in ["/same", "/written", "/born"] {
        world.create(client, path, 0);
    }
    let seen = world.core.zxid;
    world.call(client, OpCode::SetData, set_data("/written", -1));
    world.create(client, "/written/child", 0);
    let mut body = Writer::new();
    body.long(seen);
    for paths in [&["/same", "/written", "/gone"][..], &["/born", "/unborn"], &["/same", "/written", "/gone"]] {
        body.vector(paths, |body, path| {
            body.string(path);
        });
    }
    world.send(client, OpCode::SetWatches, body);
    assert_eq!(
        world.got(client),
        [
            event(EventKind::NodeDataChanged, "/written"),
            event(EventKind::NodeDeleted, "/gone"),
            event(EventKind::NodeCreated, "/born"),
            event(EventKind::NodeChildrenChanged, "/written"),
            event(EventKind::NodeDeleted, "/gone"),
            Got::Reply(0, Vec::new()),
        ]
    );
    assert_eq!(world.core.watches.len(), 3);

    for (op, kind, error) in [
        (OpCode::CheckWatches, 3, ErrorCode::Ok),
        (OpCode::RemoveWatches, 1, ErrorCode::Ok),
        (OpCode::CheckWatches, 1, ErrorCode::NoWatcher),
        (OpCode::RemoveWatches, 3, ErrorCode::Ok),
        (OpCode::RemoveWatches, 3, ErrorCode::NoWatcher),
    ] {
        let mut body = Writer::new();
        body.string("/same").int(kind);
        assert_eq!(world.error(client, op, body), error, "{op} {kind}");
    }
}

#[test]
fn containers_are_deleted_once_they_are_empty_again() {
    let mut world = World::new();
    let client = world.client();
    for path in ["/used", "/unused", "/busy"] {
        assert_eq!(world.error(client, OpCode::CreateContainer, create(path, OPEN, 4)), ErrorCode::Ok);
    }
    world.create(client, "/used/x", 0);
    world.create(client, "/busy/x", 0);
    assert_eq!(world.error(client, OpCode::Delete, delete("/used/x", -1)), ErrorCode::Ok);
    world.call(client, OpCode::Exists, path_watch("/used", true));
    world.core.closed(client.connection);
    let client = world.client();
    world.call(client, OpCode::Exists, path_watch("/used", true));
    for _ in 0..7 {
        world.sleep(8_000);
        world.call(client, OpCode::Ping, Writer::new());
    }
    world.sleep(3_999);
    assert!(world.core.tree.contains("/used"));
    world.sleep(1);
    assert_eq!(world.got(client), [event(EventKind::NodeDeleted, "/used")]);
    assert!(world.core.tree.contains("/unused") && world.core.tree.contains("/busy"));
    assert_eq!(world.core.next_deadline(), Some(Duration::from_secs(66)));
}

#[test]
fn nodes_outlive_their_time_by_one_check_at_most() {
    let mut world = World::with_extended_types(true);
    let client = world.client();
    let ttl = |path: &str, flags: i32, ttl: i64| {
        let mut body = create(path, OPEN, flags);
        body.long(ttl);
        body
    };
    for (flags, millis, error) in [
        (5, 0, ErrorCode::BadArguments),
        (5, -1, ErrorCode::BadArguments),
        (5, 1 << 40, ErrorCode::BadArguments),
        (0, 1000, ErrorCode::BadArguments),
        (5, 59_999, ErrorCode::Ok),
        (5, 59_999, ErrorCode::NodeExists),
    ] {
        assert_eq!(world.error(client, OpCode::CreateTtl, ttl("/t", flags, millis)), error, "{flags} {millis}");
    }
    assert_eq!(world.create(client, "/t", 5), ErrorCode::BadArguments);
    assert_eq!(world.error(client, OpCode::CreateTtl, ttl("/s-", 6, 60_000)), ErrorCode::Ok);
    assert_eq!(world.create(client, "/t/child", 1), ErrorCode::Ok);
    assert_eq!(world.stat(client, "/t").unwrap().ephemeral_owner, 0);
    // The child is deleted with its session, after 10 s.
    world.sleep(60_000);
    assert!(!world.core.tree.contains("/t"));
    assert!(world.core.tree.contains("/s-0000000001"));
    world.sleep(60_000);
    assert!(!world.core.tree.contains("/s-0000000001"));
    assert_eq!(world.core.next_deadline(), None);
}

#[test]
fn server_that_restarts_empty_knows_no_session() {
    let mut world = World::new();
    let client = world.client();
    world.create(client, "/a", 1);
    world.core.restart_empty(0, world.now);
    assert!(!world.core.tree.contains("/a"));
    let mut attach = ConnectRequest {
        session_id: client.session,
        password: session_password(client.session).to_vec(),
        ..ConnectRequest::default()
    };
    assert_eq!(world.handshake(&attach).1.map(|response| response.session_id), Some(0));
    attach.last_zxid_seen = 2;
    assert_eq!(world.handshake(&attach).1, None);
    let new = world.client();
    assert_ne!(new.session, client.session);
    assert_eq!(world.stat(new, "/"), world.core.tree.get("/").ok().map(|node| node.stat()));
}

/// As measured with Apache: lone creates get the last number again, and a burst runs on.
#[test]
fn sequence_numbers_run_over_in_a_burst_only() {
    let mut world = World::new();
    let client = world.client();
    assert!(world.core.tree.set_next_sequence("/", i32::MAX - 1));
    let names = |world: &World| {
        let mut names: Vec<_> = world.core.tree.get("/").unwrap().children().cloned().collect();
        names.retain(|name| name != "zookeeper");
        names.sort_unstable();
        names
    };
    for prefix in ["/a", "/b", "/c"] {
        world.create(client, prefix, 2);
    }
    assert_eq!(names(&world), ["a2147483646", "b2147483647", "c2147483647"]);
    let frames: Vec<_> = (0..3)
        .map(|xid| {
            let mut frame = Writer::new();
            RequestHeader { xid, op: OpCode::Create }.encode(&mut frame);
            frame.raw(&create("/d", OPEN, 2).into_bytes());
            frame.into_bytes()
        })
        .collect();
    for frame in &frames {
        assert_eq!(world.core.frame_in_burst(client.connection, frame, world.now).len(), 1);
    }
    world.call(client, OpCode::Ping, Writer::new());
    world.create(client, "/e", 2);
    assert_eq!(names(&world)[3..], ["d-2147483647", "d-2147483648", "d2147483647", "e2147483647"]);
}

#[test]
fn requests_are_logged_with_their_outcome() {
    let mut world = World::new();
    let client = world.client();
    world.create(client, "/n-", 3);
    world.create(client, "/none/x", 0);
    world.call(client, OpCode::Ping, Writer::new());
    let log: Vec<_> = world
        .core
        .log()
        .to_vec()
        .into_iter()
        .map(|request| {
            assert_eq!(request.session_id, client.session);
            (request.op, request.path, request.error)
        })
        .collect();
    assert_eq!(
        log,
        [
            (OpCode::CreateSession, None, 0),
            (OpCode::Create, Some("/n-".to_owned()), 0),
            (OpCode::Create, Some("/none/x".to_owned()), ErrorCode::NoNode.code()),
            (OpCode::Ping, None, 0),
        ]
    );
    world.core.log().clear();
    assert_eq!(world.core.log().to_vec(), []);
}

/// Random bytes and valid frames with random damage: nothing panics, and the core's state stays consistent.
#[test]
fn no_input_makes_it_panic() {
    use rand::rngs::StdRng;
    use rand::{Rng, SeedableRng};

    let seed = 0x5eed;
    let mut random = StdRng::seed_from_u64(seed);
    let mut world = World::new();
    let mut client = world.client();
    for round in 0..5_000 {
        let path = ["/", "/a", "/a/b", "/a/n-", "/zookeeper", "a", "/a/"][random.random_range(0..7)];
        let mut frame = Writer::new();
        let code = [
            1, 1, 1, 2, 3, 4, 5, 6, 7, 8, 9, 11, 12, 13, 14, 14, 14, 15, 16, 17, 18, 19, 20, 21, 22, 100, 101, 103,
            104, 105, 106, 107,
        ];
        let code = code[random.random_range(0..code.len())];
        frame.int(round).int(code);
        let body = match code {
            1 | 15 | 19 | 21 => create(path, OPEN, random.random_range(0..7)),
            2 | 13 | 17 | 18 | 106 => delete(path, random.random_range(-1..3)),
            5 => set_data(path, -1),
            7 => {
                let mut body = Writer::new();
                body.string(path);
                write_acl(&mut body, OPEN);
                body.int(-1);
                body
            }
            14 => {
                let mut body = Writer::new();
                for _ in 0..random.random_range(0..3) {
                    body.int(1).bool(false).int(-1).raw(&create(path, OPEN, random.random_range(0..5)).into_bytes());
                    body.int(2).bool(false).int(-1).raw(&delete(path, -1).into_bytes());
                }
                body.int(-1).bool(true).int(-1);
                body
            }
            100 => auth("digest", path.as_bytes()),
            _ => path_watch(path, random.random()),
        };
        frame.raw(&body.into_bytes());
        let mut bytes = frame.into_bytes();
        match random.random_range(0..6) {
            0 => bytes = (0..random.random_range(0..64)).map(|_| random.random()).collect(),
            1 => bytes.truncate(random.random_range(0..=bytes.len())),
            2..5 => {
                let at = random.random_range(0..bytes.len());
                bytes[at] = random.random();
            }
            _ => {}
        }
        let unconnected = world.core.open(IpAddr::from([127, 0, 0, 1]));
        for connection in [unconnected, client.connection] {
            let outputs = world.core.frame(connection, &bytes, world.now);
            drop(outputs);
        }
        world.core.closed(unconnected);
        if !world.core.connections.contains_key(&client.connection) {
            client = world.client();
        }
        world.got.clear();
        world.sleep(1);
    }
    world.sleep(60_000);
    assert_eq!(world.core.session_ids(), [0; 0], "seed {seed}");
    assert_eq!(world.core.watches.len(), 0, "seed {seed}");
    assert!(world.core.connections.is_empty(), "seed {seed}");
}

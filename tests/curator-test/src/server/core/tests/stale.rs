//! Stale reads.

use super::*;

/// A writer, a reader with a watch on the root's children, and stale reads.
fn stale_world() -> (World, Client, Client) {
    let mut world = World::new();
    let (writer, reader) = (world.client(), world.client());
    world.create(writer, "/old", 0);
    world.call(reader, OpCode::GetChildren, path_watch("/", true));
    set(&mut world, true);
    (world, writer, reader)
}

fn set(world: &mut World, stale: bool) {
    let outputs = world.core.set_stale_reads(stale);
    world.deliver(outputs);
}

#[test]
fn writes_of_others_are_not_seen() {
    let (mut world, writer, reader) = stale_world();
    assert_eq!(world.create(writer, "/new", 0), ErrorCode::Ok);
    assert_eq!(world.error(writer, OpCode::Delete, delete("/old", -1)), ErrorCode::Ok);
    assert!(world.stat(writer, "/new").is_some() && world.stat(writer, "/old").is_none());
    assert!(world.stat(reader, "/new").is_none() && world.stat(reader, "/old").is_some());
    assert!(world.core.tree.contains("/new"));
    // A second call changes nothing.
    set(&mut world, true);
    assert!(world.stat(reader, "/new").is_none());
    assert_eq!(world.got(reader), []);
}

#[test]
fn an_own_write_shows_everything_up_to_it_even_if_it_fails() {
    let (mut world, writer, reader) = stale_world();
    world.create(writer, "/one", 0);
    world.send(reader, OpCode::Create, create("/old", OPEN, 0));
    let failed = Got::Reply(ErrorCode::NodeExists.code(), Vec::new());
    assert_eq!(world.got(reader), [event(EventKind::NodeChildrenChanged, "/"), failed]);
    assert!(world.stat(reader, "/one").is_some());
    world.create(writer, "/two", 0);
    assert!(world.stat(reader, "/two").is_none());
}

#[test]
fn sync_shows_everything() {
    let (mut world, writer, reader) = stale_world();
    world.create(writer, "/new", 0);
    let mut body = Writer::new();
    body.string("/");
    world.send(reader, OpCode::Sync, body);
    assert_eq!(world.got(reader)[0], event(EventKind::NodeChildrenChanged, "/"));
    assert!(world.stat(reader, "/new").is_some());
}

#[test]
fn a_watch_set_on_the_past_fires_when_the_present_is_seen() {
    let (mut world, writer, reader) = stale_world();
    world.create(writer, "/new", 0);
    assert_eq!(world.call(reader, OpCode::Exists, path_watch("/new", true)).0, ErrorCode::NoNode.code());
    set(&mut world, false);
    let events = [event(EventKind::NodeCreated, "/new"), event(EventKind::NodeChildrenChanged, "/")];
    assert_eq!(world.got(reader), events);
    assert!(world.stat(reader, "/new").is_some());
    assert_eq!(world.core.watches.len(), 0);
}

#[test]
fn a_session_begins_in_the_present() {
    let (mut world, writer, _) = stale_world();
    world.create(writer, "/new", 0);
    let late = world.client();
    assert!(world.stat(late, "/new").is_some());
    world.create(writer, "/newer", 0);
    assert!(world.stat(late, "/newer").is_none());
}

#[test]
fn sessions_end_unseen() {
    let (mut world, writer, reader) = stale_world();
    world.create(writer, "/held", 1);
    set(&mut world, false);
    set(&mut world, true);
    world.got(reader);
    let ended = world.core.kill_session(writer.session, world.now);
    assert!(ended.is_some());
    assert!(world.stat(reader, "/held").is_some());
    assert_eq!(world.create(reader, "/held", 1), ErrorCode::Ok);
    assert_eq!(world.stat(reader, "/held").unwrap().ephemeral_owner, reader.session);
}

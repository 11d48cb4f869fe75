//! A cache beside a server that changes at random: the changes replay to the tree at every moment, and once all
//! requests are answered the tree is the server's.

use std::collections::{BTreeMap, BTreeSet};

use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};

use super::*;

const PATHS: [&str; 8] = ["", "/a", "/b", "/a/1", "/a/2", "/b/1", "/a/1/x", "/a/1/y"];

/// Paths without children. The last one always has a node, which is replaced now and then.
const EPHEMERAL: [&str; 4] = ["/a/2", "/b/1", "/a/1/x", "/stands"];

type Nodes = BTreeMap<String, (Stat, Vec<u8>)>;

/// A server with one client that watches all nodes.
#[derive(Default)]
struct Server {
    nodes: Nodes,
    zxid: i64,
    /// The messages that the client has not received, in order.
    wire: VecDeque<(i64, Message)>,
    /// The `mzxid` of each node, at each transaction.
    history: Vec<BTreeMap<String, i64>>,
    refused: BTreeMap<String, Refused>,
    /// Nodes of [`EPHEMERAL`] belong to a session.
    has_sessions: bool,
}

enum Message {
    Event(EventType, String),
    Reply(Request, Option<(Stat, Vec<u8>)>, Vec<String>, Option<Error>),
}

/// The part of a node that a client cannot get.
#[derive(Debug, Clone, Copy)]
enum Refused {
    /// The data cannot be decoded.
    Data,
    LargeData,
    LargeListing,
    /// Data and listing.
    All,
}

impl Refused {
    fn error(self, request: &Request) -> Option<Error> {
        let path = &**request.path();
        let too_large = || Error::ReplyTooLarge { path: path.into(), size: 2, limit: 1 };
        match (self, request) {
            (Self::Data, Request::Read(_)) => Some(Error::Compression { path: path.into(), reason: String::new() }),
            (Self::LargeData, Request::Read(_)) | (Self::LargeListing, Request::List(_)) => Some(too_large()),
            (Self::All, _) => Some(Error::NoAuth { path: path.into() }),
            _ => None,
        }
    }
}

impl Server {
    fn children(&self, path: &str) -> Vec<String> {
        let below = |other: &&String| other.rsplit_once('/').is_some_and(|(parent, _)| parent == path);
        self.nodes.keys().filter(below).map(|child| child[path.len() + 1..].to_owned()).collect()
    }

    fn change(&mut self, random: &mut SmallRng) {
        let path = PATHS[random.random_range(0..PATHS.len())];
        self.change_one(path, random.random());
    }

    /// Deletes a node with all nodes below it, and creates them again.
    fn create_again(&mut self, random: &mut SmallRng) {
        let top = PATHS[random.random_range(0..PATHS.len())];
        let is_there = |path: &&str| path.starts_with(top) && self.nodes.contains_key(*path);
        let mut paths: Vec<_> = PATHS.into_iter().filter(is_there).collect();
        paths.sort_unstable();
        let up = paths.clone().into_iter().rev();
        up.chain(paths).for_each(|path| self.change_one(path, false));
    }

    /// Creates a node that does not exist. Sets the data of one that does, or deletes it if it has no children.
    fn change_one(&mut self, path: &str, sets_data: bool) {
        let zxid = self.zxid + 1;
        let parent = path.rsplit_once('/').map(|(parent, _)| parent.to_owned());
        let is_leaf = self.children(path).is_empty();
        let has_parent = parent.as_ref().is_none_or(|parent| self.nodes.contains_key(parent));
        let event = match self.nodes.get_mut(path) {
            Some((stat, data)) if sets_data => {
                (stat.mzxid, stat.version) = (zxid, stat.version + 1);
                *data = zxid.to_string().into_bytes();
                EventType::NodeDataChanged
            }
            Some(_) if !is_leaf => return,
            Some(_) => {
                self.nodes.remove(path);
                EventType::NodeDeleted
            }
            None if !has_parent => return,
            None => {
                let ephemeral_owner = i64::from(self.has_sessions && EPHEMERAL.contains(&path));
                let stat = Stat { czxid: zxid, mzxid: zxid, pzxid: zxid, ephemeral_owner, ..Stat::default() };
                self.nodes.insert(path.to_owned(), (stat, zxid.to_string().into_bytes()));
                EventType::NodeCreated
            }
        };
        if event != EventType::NodeDataChanged {
            if let Some(parent) = parent {
                let num_children = i32::try_from(self.children(&parent).len()).unwrap();
                let stat = &mut self.nodes.get_mut(&parent).unwrap().0;
                (stat.pzxid, stat.num_children) = (zxid, num_children);
            }
        }
        self.zxid = zxid;
        self.history.push(self.nodes.iter().map(|(path, (stat, _))| (path.clone(), stat.mzxid)).collect());
        self.wire.push_back((zxid, Message::Event(event, path.to_owned())));
    }

    /// Deletes a node and creates the next one in one transaction.
    fn replace(&mut self, path: &str) {
        let zxid = self.zxid;
        self.change_one(path, false);
        self.history.pop();
        self.zxid = zxid;
        self.change_one(path, false);
    }

    fn answer(&mut self, request: Request) {
        let (Request::Read(path) | Request::List(path)) = &request;
        let (found, children) = (self.nodes.get(&**path).cloned(), self.children(path));
        let error = self.refused.get(&**path).and_then(|refused| refused.error(&request)).filter(|_| found.is_some());
        self.wire.push_back((self.zxid, Message::Reply(request, found, children, error)));
    }

    /// Starts or stops refusing a node.
    fn refuse(&mut self, random: &mut SmallRng) {
        let path = PATHS[random.random_range(0..PATHS.len())].to_owned();
        let kinds = [Refused::Data, Refused::LargeData, Refused::LargeListing, Refused::All];
        match random.random() {
            true => _ = self.refused.insert(path, kinds[random.random_range(0..kinds.len())]),
            false => _ = self.refused.remove(&path),
        }
    }

    /// Returns the events by which `setWatches` reports the changes of known nodes since `applied`.
    fn missed(&self, known: &Known, applied: i64) -> Vec<(EventType, String)> {
        let stat = |path: &String| self.nodes.get(path).map(|(stat, _)| stat);
        let data = known.data.iter().filter_map(|path| match stat(path) {
            None => Some((EventType::NodeDeleted, path.clone())),
            Some(stat) if stat.mzxid > applied => Some((EventType::NodeDataChanged, path.clone())),
            Some(_) => None,
        });
        let children = known.children.iter().filter(|path| stat(path).is_some_and(|stat| stat.pzxid > applied));
        let missing = known.missing.iter().filter(|path| stat(path).is_some());
        let children = children.map(|path| (EventType::NodeChildrenChanged, path.clone()));
        data.chain(children).chain(missing.map(|path| (EventType::NodeCreated, path.clone()))).collect()
    }
}

/// The nodes as a listener knows them.
#[derive(Default)]
struct Listener {
    nodes: BTreeMap<String, Arc<ChildData>>,
    /// The paths that were reported as failed, and not otherwise since.
    failed: BTreeSet<String>,
    /// The newest node of each path that was deleted.
    deleted: BTreeMap<String, i64>,
    /// An ephemeral node in the place of an earlier one may be reported as a change.
    merges: bool,
}

fn replay(listener: &mut Listener, changes: VecDeque<CacheEvent>) {
    let Listener { nodes, failed, deleted, merges } = listener;
    for change in changes {
        match change {
            CacheEvent::Created(node) => {
                failed.remove(&node.path);
                assert!(
                    deleted.get(&node.path).is_none_or(|&earlier| earlier < node.stat.czxid),
                    "created twice: {node:?} {deleted:?}"
                );
                assert_eq!(nodes.insert(node.path.clone(), node), None);
            }
            CacheEvent::Changed { old, new } => {
                let is_readable_again = failed.remove(&new.path) && old.stat.mzxid == new.stat.mzxid;
                assert!(old.stat.mzxid < new.stat.mzxid || is_readable_again);
                let merges = *merges && [&old, &new].iter().all(|node| node.stat.ephemeral_owner != 0);
                assert!(merges || old.stat.czxid == new.stat.czxid);
                let before = nodes.insert(new.path.clone(), new).unwrap();
                assert_eq!((before.stat.mzxid, &before.data), (old.stat.mzxid, &old.data));
            }
            CacheEvent::Deleted(node) => {
                failed.remove(&node.path);
                assert_eq!(nodes.remove(&node.path).unwrap().stat.czxid, node.stat.czxid);
                deleted.insert(node.path.clone(), node.stat.czxid);
            }
            CacheEvent::Failed { path, .. } => _ = failed.insert(path),
            CacheEvent::Initialized | CacheEvent::Reset => unreachable!(),
        }
    }
}

fn is_tree(tree: &Tree, Listener { nodes, failed, .. }: &Listener) {
    let mut paths = Vec::new();
    tree.for_each(|path, entry| {
        if entry.value != Value::Unknown {
            assert_eq!((entry.stat.mzxid, entry.data), (nodes[path].stat.mzxid, &*nodes[path].data));
            paths.push(path.to_owned());
        }
        assert!(entry.is_present() || failed.contains(path), "{path:?} fails in secret");
    });
    assert_eq!(paths.len(), nodes.len());
}

/// A cache and its connection.
struct Client {
    engine: Engine,
    listener: Listener,
    /// Replies that have arrived and were not handed in.
    replies: VecDeque<Message>,
    sent: Vec<Request>,
    /// The newest transaction that an arrived message reflects.
    zxid: i64,
}

impl Client {
    fn new() -> Self {
        Self::of(false)
    }

    fn of(merges_replacements: bool) -> Self {
        let mut engine = Engine::new(EngineOptions { merges_replacements, ..EngineOptions::default() });
        engine.record_changes(true);
        engine.read_all();
        let listener = Listener { merges: merges_replacements, ..Listener::default() };
        Self { engine, listener, replies: VecDeque::new(), sent: Vec::new(), zxid: 0 }
    }

    fn send(&mut self, server: &mut Server) -> bool {
        let Some(request) = self.engine.next_request() else { return false };
        self.sent.push(request.clone());
        server.answer(request);
        true
    }

    /// Takes all messages off the wire: notifications are handed in at once, replies wait.
    fn receive(&mut self, server: &mut Server) {
        for (zxid, message) in server.wire.drain(..) {
            match message {
                Message::Event(event, path) => self.engine.notified(event, &path),
                reply => {
                    self.zxid = zxid;
                    self.replies.push_back(reply);
                }
            }
        }
    }

    fn apply(&mut self) {
        let Some(Message::Reply(request, found, names, error)) = self.replies.pop_front() else { return };
        self.sent.retain(|sent| *sent != request);
        if let Some(error) = error {
            let stat = found.map(|(stat, _)| stat).filter(|_| matches!(error, Error::Compression { .. }));
            self.engine.was_refused(&request, stat.as_ref(), &error);
            return;
        }
        match request {
            Request::Read(path) => self.engine.was_read(&path, found),
            Request::List(path) => self.engine.was_listed(&path, found.map(|_| names)),
        }
    }

    /// Loses the connection, while the server keeps running, and gets a new one. The server reports the changes of the
    /// known nodes, or the caller knows that they are not reported.
    fn reconnect(&mut self, server: &mut Server, random: &mut SmallRng) {
        let overflows = random.random_bool(0.3);
        let arrived = match overflows {
            true => server.wire.len(),
            false => random.random_range(0..=server.wire.len()),
        };
        let lost = server.wire.split_off(arrived);
        drop(lost);
        let dropped_events = overflows && random.random();
        if dropped_events {
            server.wire.retain(|(_, message)| !matches!(message, Message::Event(..)));
        }
        self.receive(server);
        for _ in 0..random.random_range(0..6) {
            server.change(random);
        }
        if random.random() {
            server.create_again(random);
        }
        if random.random() {
            self.sent.drain(..).for_each(|request| self.engine.was_lost(request));
        }
        let known = self.engine.known();
        // Late replies are ignored.
        while !self.replies.is_empty() {
            self.apply();
        }
        self.sent.clear();
        if random.random_bool(0.3) {
            server.wire.clear();
            return self.engine.restart();
        }
        let mut missed = server.missed(&known, self.zxid);
        // The tables of the server have no order.
        missed.sort_by_key(|_| random.random::<u32>());
        server.wire.clear();
        if dropped_events {
            self.engine.read_all();
        }
        for (event, path) in missed {
            self.engine.notified(event, &path);
        }
        self.engine.resynced();
    }

    /// Returns `true` if the cache cannot tell about a path.
    fn is_unknown(&self, path: &str) -> bool {
        self.engine.tree().get(path).map_or_else(|| self.engine.is_hidden(path), |entry| !entry.is_present())
    }

    fn check(&mut self, server: &Server) {
        replay(&mut self.listener, self.engine.take_changes());
        is_tree(self.engine.tree(), &self.listener);
        let Some(fresh) = self.engine.mark(self.zxid) else { return };
        let since = usize::try_from(fresh).unwrap();
        for path in PATHS {
            if self.is_unknown(path) {
                continue;
            }
            let shown = self.engine.tree().get(path).map(|entry| entry.stat.mzxid);
            let is_fresh = server.history[since..].iter().any(|nodes| nodes.get(path).copied() == shown);
            assert!(is_fresh, "{path:?} is shown as {shown:?}, fresh at {fresh}");
        }
    }
}

fn round(seed: u64, refuses: bool, merges: bool) {
    let mut random = SmallRng::seed_from_u64(seed);
    let (mut server, mut client) = (Server { has_sessions: merges, ..Server::default() }, Client::of(merges));
    server.history.push(BTreeMap::new());
    let [.., stands] = EPHEMERAL;
    if merges {
        ["", stands].into_iter().for_each(|path| server.change_one(path, false));
    }
    let mut has_stood = false;
    for _ in 0..400 {
        if merges && random.random_bool(0.1) {
            match random.random() {
                true => server.change_one(stands, true),
                false => server.replace(stands),
            }
        }
        match random.random_range(0..9) {
            _ if refuses && random.random_bool(0.1) => server.refuse(&mut random),
            8 => client.engine.pause_ended(),
            0..2 => server.change(&mut random),
            2..4 => _ = client.send(&mut server),
            4 if random.random_bool(0.1) => client.reconnect(&mut server, &mut random),
            4..6 => client.receive(&mut server),
            _ => client.apply(),
        }
        client.check(&server);
        let is_known = client.listener.nodes.contains_key(stands);
        assert!(is_known || !has_stood, "a replaced node is missing");
        has_stood = is_known;
    }
    assert!(merges || !has_stood);
    let mut is_calm = false;
    loop {
        client.receive(&mut server);
        client.check(&server);
        let is_sent = client.send(&mut server);
        if !is_sent && client.replies.is_empty() && server.wire.is_empty() {
            for path in PATHS.into_iter().filter(|path| !client.is_unknown(path)) {
                let shown = client.engine.tree().get(path).map(|entry| entry.stat.mzxid);
                assert_eq!(shown, server.nodes.get(path).map(|(stat, _)| stat.mzxid), "{path:?}");
            }
            assert_eq!(client.engine.mark(client.zxid), Some(client.zxid), "a refused request holds nothing up");
            if !refuses || is_calm && !client.engine.awaits_pause() {
                break;
            }
            if !is_calm {
                (is_calm, server.refused) = (true, BTreeMap::new());
                client.engine.read_all();
            }
            client.engine.pause_ended();
        }
        client.apply();
        client.check(&server);
    }
    assert_eq!(client.engine.mark(client.zxid), Some(client.zxid));
    assert!(client.engine.refused().is_empty() && !client.engine.has_repeated());
    let cached: BTreeMap<_, _> =
        client.listener.nodes.iter().map(|(path, node)| (path, (node.stat.mzxid, &node.data))).collect();
    let there: BTreeMap<_, _> = server.nodes.iter().map(|(path, (stat, data))| (path, (stat.mzxid, data))).collect();
    assert_eq!(cached, there);
}

#[test]
fn a_cache_follows_a_server_that_changes_at_random() {
    for seed in 0..1_500 {
        let result = std::panic::catch_unwind(|| round(seed, seed % 2 == 1, seed % 4 >= 2));
        assert!(result.is_ok(), "seed {seed}");
    }
}

/// The notification of the create may be late, be here already, or be lost with its connection.
#[test]
fn replaced_node_is_one_change_and_never_missing() {
    let path = EPHEMERAL[3];
    for arrives in ["late", "with the deletion", "after a reconnect"] {
        let (mut server, mut client) = (Server { has_sessions: true, ..Server::default() }, Client::of(true));
        ["", path].into_iter().for_each(|path| server.change_one(path, false));
        server.wire.clear();
        settle(&mut server, &mut client);
        client.engine.take_changes();
        assert_eq!((client.engine.mark(2), client.engine.mark(2)), (Some(2), Some(2)));
        server.replace(path);
        let created = server.wire.pop_back();
        client.receive(&mut server);
        assert!(client.engine.tree().get(path).is_some() && client.engine.take_changes().is_empty());
        assert_eq!(client.engine.mark(3), Some(2), "the read of the next node is not done");
        let reads = match arrives {
            "late" => {
                assert_eq!(settle(&mut server, &mut client), 1);
                server.wire.extend(created);
                1
            }
            "with the deletion" => {
                server.wire.extend(created);
                client.receive(&mut server);
                0
            }
            _ => {
                let known = client.engine.known();
                assert_eq!(server.missed(&known, 3), []);
                client.engine.resynced();
                0
            }
        };
        client.receive(&mut server);
        assert_eq!(reads + settle(&mut server, &mut client), 1 + reads, "{arrives}");
        let changes = Vec::from(client.engine.take_changes());
        let [CacheEvent::Changed { old, new }] = &*changes else { panic!("{arrives}: {changes:?}") };
        assert_eq!((old.stat.czxid, new.stat.czxid, &*new.data), (2, 3, &b"3"[..]));
        assert_eq!(client.engine.mark(3), Some(3));
        // A deletion without a successor costs one read.
        server.change_one(path, false);
        client.receive(&mut server);
        assert_eq!(settle(&mut server, &mut client), 1);
        let changes = client.engine.take_changes();
        assert!(matches!(changes.front(), Some(CacheEvent::Deleted(node)) if node.stat.czxid == 3), "{changes:?}");
        assert_eq!(changes.len(), 1);
    }
}

/// Answers all requests, and returns their number.
fn settle(server: &mut Server, client: &mut Client) -> usize {
    let mut count = 0;
    while client.send(server) {
        count += 1;
        client.receive(server);
        client.apply();
    }
    assert!(client.engine.pending.is_empty());
    count
}

fn flat(parents: usize, children: usize) -> Server {
    let mut server = Server { zxid: 1, ..Server::default() };
    let mut paths = vec![String::new()];
    paths.extend((0..parents).map(|number| format!("/{number}")));
    paths.extend((0..children).map(|number| format!("/{}/{number}", number % parents)));
    for path in &paths {
        server.nodes.insert(path.clone(), (Stat { czxid: 1, mzxid: 1, ..Stat::default() }, Vec::new()));
    }
    for path in &paths {
        let num_children = i32::try_from(server.children(path).len()).unwrap();
        server.nodes.get_mut(path).unwrap().0.num_children = num_children;
    }
    server
}

#[test]
fn a_load_reads_each_node_once_and_lists_those_with_children() {
    let (mut server, mut client) = (flat(10, 100), Client::new());
    assert_eq!(client.engine.mark(1), None);
    assert_eq!(settle(&mut server, &mut client), 111 + 11);
    assert_eq!((client.engine.tree().len(), client.engine.mark(1)), (111, Some(1)));

    let scope = Scope { max_depth: Some(1), accepts: Some(Arc::new(|path| path != "/3")), ..Scope::default() };
    client.engine = Engine::new(EngineOptions { scope, ..EngineOptions::default() });
    client.engine.read_all();
    assert_eq!(settle(&mut server, &mut client), 10 + 1);
}

#[test]
fn a_full_read_confirms_the_nodes_without_a_change() {
    let (mut server, mut client) = (flat(10, 100), Client::new());
    settle(&mut server, &mut client);
    assert_eq!(client.engine.take_changes().len(), 111);
    client.engine.read_all();
    assert_eq!(settle(&mut server, &mut client), 111 + 11);
    assert!(client.engine.take_changes().is_empty());
}

#[test]
fn node_that_is_refused_keeps_its_children_and_is_not_shown() {
    let (mut server, mut client) = (flat(3, 3), Client::new());
    settle(&mut server, &mut client);
    client.engine.take_changes();
    refuse(&mut client, "/1");
    assert!(
        matches!(client.engine.take_changes().make_contiguous(), [CacheEvent::Failed { path, .. }] if path == "/1")
    );
    assert!(client.engine.tree().get("/1/1").is_some_and(|child| child.is_present()));
    assert_eq!((client.engine.present(), client.engine.tree().len()), (6, 7));
    server.change_one("/1", true);
    client.receive(&mut server);
    assert_eq!(settle(&mut server, &mut client), 1, "the children are known");
    let changes = client.engine.take_changes();
    assert!(matches!(changes.front(), Some(CacheEvent::Changed { old, .. }) if old.stat.mzxid == 1), "{changes:?}");
    assert_eq!((client.engine.present(), changes.len()), (7, 1));
}

fn too_large() -> Error {
    Error::ReplyTooLarge { path: "/1".into(), size: 2, limit: 1 }
}

#[test]
fn large_reply_is_asked_for_again_after_a_pause_and_a_reason() {
    let (mut server, mut client) = (flat(3, 3), Client::new());
    settle(&mut server, &mut client);
    client.engine.take_changes();
    for (request, event) in [
        (Request::Read("/1".into()), EventType::NodeDataChanged),
        (Request::List("/2".into()), EventType::NodeChildrenChanged),
    ] {
        let path = Arc::clone(request.path());
        client.engine.notified(event, &path);
        assert_eq!(client.engine.next_request().as_ref(), Some(&request));
        // Notified again before the reply.
        client.engine.notified(event, &path);
        assert!(client.engine.was_refused(&request, None, &too_large()));
        assert_eq!((client.engine.next_request(), client.engine.take_changes().len()), (None, 1));
        client.engine.pause_ended();
        assert_eq!(client.engine.next_request().as_ref(), Some(&request), "the notification is a reason");
        assert!(client.engine.was_refused(&request, None, &too_large()));
        assert!(client.engine.take_changes().is_empty(), "it was reported before");
        let is_listing = matches!(request, Request::List(_));
        assert_eq!(client.engine.awaits_pause(), is_listing, "the next change of a node notifies");
        client.engine.notified(event, &path);
        assert_eq!((client.engine.next_request(), client.engine.awaits_pause()), (None, true));
        client.engine.pause_ended();
        assert_eq!(settle(&mut server, &mut client), 1);
        assert!(!client.engine.has_repeated() && client.engine.refused().is_empty());
        client.engine.take_changes();
    }
    assert_eq!(client.engine.mark(9), Some(9));
}

#[test]
fn full_read_takes_known_children_where_a_listing_is_refused() {
    let (mut server, mut client) = (flat(3, 6), Client::new());
    settle(&mut server, &mut client);
    server.refused = BTreeMap::from([("/0".to_owned(), Refused::LargeListing), ("/1".to_owned(), Refused::All)]);
    for _ in 0..2 {
        client.engine.read_all();
        settle(&mut server, &mut client);
        assert_eq!((client.engine.tree().len(), client.engine.present()), (10, 9));
        assert!(client.engine.is_hidden("/0/9") && client.engine.is_hidden("/1/9") && !client.engine.is_hidden("/2/9"));
        assert_eq!(client.engine.mark(1), Some(1));
    }
    // A child that was deleted in the meantime is found, although nothing lists it.
    server.nodes.remove("/0/0");
    client.engine.read_all();
    settle(&mut server, &mut client);
    assert_eq!(client.engine.tree().len(), 9);
    server.nodes.remove("/1/1");
    server.refused.clear();
    client.engine.read_all();
    settle(&mut server, &mut client);
    client.engine.pause_ended();
    settle(&mut server, &mut client);
    assert_eq!((client.engine.tree().len(), client.engine.present()), (8, 8));
    assert!(client.engine.refused().is_empty());
}

#[test]
fn nothing_is_missing_below_a_list_that_could_not_be_read_before_all_of_it_is_read() {
    let (mut server, mut client) = (Server::default(), Client::new());
    ["", "/a", "/a/1", "/a/1/x"].into_iter().for_each(|path| server.change_one(path, false));
    server.wire.clear();
    server.refused = BTreeMap::from([("/a".to_owned(), Refused::LargeListing)]);
    settle(&mut server, &mut client);
    assert_eq!((client.engine.mark(4), client.engine.mark(4)), (Some(4), Some(4)));
    server.refused.clear();
    client.engine.pause_ended();
    while client.engine.tree().get("/a/1").is_none() {
        assert!(client.engine.is_hidden("/a/1/x"));
        client.send(&mut server);
        client.receive(&mut server);
        client.apply();
        assert_eq!(client.engine.mark(4), None);
    }
    assert!(client.engine.is_hidden("/a/1/x") && client.engine.is_hidden("/a/2") && !client.engine.is_hidden("/b"));
    settle(&mut server, &mut client);
    assert_eq!(client.engine.mark(4), Some(4));
    assert!(client.engine.tree().get("/a/1/x").is_some() && !client.engine.is_hidden("/a/2"));
}

#[test]
fn event_shares_its_old_value_with_the_event_before() {
    let (mut server, mut client) = (flat(1, 0), Client::new());
    settle(&mut server, &mut client);
    client.engine.take_changes();
    let mut last = None;
    for version in 1..5 {
        let (stat, data) = server.nodes.get_mut("/0").unwrap();
        (stat.mzxid, *data) = (stat.mzxid + 1, vec![version; SHARED]);
        client.engine.notified(EventType::NodeDataChanged, "/0");
        settle(&mut server, &mut client);
        let change = client.engine.take_changes().pop_front();
        let Some(CacheEvent::Changed { old, new }) = change else { panic!("{change:?}") };
        assert!(last.is_none_or(|last| Arc::ptr_eq(&last, &old)), "a copy");
        assert!(Arc::ptr_eq(&new, &client.engine.tree().get("/0").unwrap().to_node(|| unreachable!())));
        last = Some(new);
    }
}

#[test]
fn a_cache_is_fresh_once_the_changes_of_a_resync_are_read() {
    let (mut server, mut client) = (flat(2, 0), Client::new());
    settle(&mut server, &mut client);
    assert_eq!(client.engine.mark(1), Some(1));
    client.engine.known();
    client.engine.notified(EventType::NodeDataChanged, "/1");
    client.engine.resynced();
    assert_eq!(client.engine.mark(5), None, "a read has no reply");
    assert_eq!(settle(&mut server, &mut client), 1);
    assert_eq!(client.engine.mark(5), Some(5));
    client.engine.known();
    client.engine.resynced();
    assert_eq!(client.engine.mark(7), Some(7), "nothing has changed");
}

/// Lets the server refuse to show a node, which the cache reads again.
fn refuse(client: &mut Client, path: &str) {
    client.engine.notified(EventType::NodeDataChanged, path);
    let read = client.engine.next_request().unwrap();
    assert!(client.engine.was_refused(&read, None, &Error::NoAuth { path: path.into() }));
    assert!(!client.engine.tree().get(path).unwrap().is_present());
}

#[test]
fn a_resync_has_refused_nodes_too() {
    let (mut server, mut client) = (flat(3, 3), Client::new());
    settle(&mut server, &mut client);
    refuse(&mut client, "/1");
    assert!(client.engine.known().data.contains(&"/1".to_owned()));
    client.engine.notified(EventType::NodeDataChanged, "/1");
    client.engine.resynced();
    assert_eq!(settle(&mut server, &mut client), 1);
    assert!(client.engine.tree().get("/1").unwrap().is_present() && client.engine.tree().get("/1/1").is_some());
}

/// As after a return to a backup that does not have the node, or not its parent, or not even the root.
#[test]
fn large_node_that_is_gone_is_read_without_a_pause() {
    for gone in ["/0/0", "/0", ""] {
        for siblings in [1, 3] {
            let (mut server, mut client) = (flat(2, siblings), Client::new());
            settle(&mut server, &mut client);
            let large = if gone.is_empty() { "" } else { "/0/0" };
            server.refused = BTreeMap::from([(large.to_owned(), Refused::LargeData)]);
            client.engine.read_all();
            settle(&mut server, &mut client);
            assert!(!client.engine.tree().get(large).unwrap().is_present());
            server.nodes.retain(|path, _| path != gone && !path.starts_with(&format!("{gone}/")));
            for parent in ["", "/0"] {
                let children = i32::try_from(server.children(parent).len()).unwrap();
                server.nodes.entry(parent.to_owned()).and_modify(|(stat, _)| stat.num_children = children);
            }
            client.engine.read_all();
            settle(&mut server, &mut client);
            assert!(client.engine.tree().get(large).is_none(), "{gone:?} of {siblings}");
        }
    }
}

/// It was deleted between the read of its parent's stat and the listing. A backup may have it.
#[test]
fn parent_that_is_listed_with_fewer_children_than_its_stat_has_is_read_again() {
    let (mut server, mut client) = (flat(2, 4), Client::new());
    server.nodes.get_mut("/0").unwrap().0.num_children += 1;
    settle(&mut server, &mut client);
    server.nodes.get_mut("/0").unwrap().0.num_children -= 1;
    for requests in [vec![Request::Read("/0".into()), Request::List("/0".into())], Vec::new()] {
        client.engine.known();
        let queue = Vec::from(client.engine.queue.clone());
        assert_eq!(queue, requests);
        client.engine.resynced();
        settle(&mut server, &mut client);
    }
}

#[test]
fn parent_of_a_child_that_is_deleted_before_its_first_read_has_an_old_stat() {
    let (mut server, mut client) = (flat(2, 4), Client::new());
    settle(&mut server, &mut client);
    client.engine.notified(EventType::NodeDeleted, "/0/listed");
    assert_eq!(client.engine.tree().old_stats(), ["/0"]);
}

/// Its refused read does not show that it has no children, so its list counts as refused too.
#[test]
fn nothing_is_unknown_below_an_ephemeral_node_that_can_be_read_again() {
    let (mut server, mut client) = (flat(1, 1), Client::new());
    server.nodes.get_mut("/0/0").unwrap().0.ephemeral_owner = 1;
    server.refused = BTreeMap::from([("/0/0".to_owned(), Refused::All)]);
    client.engine.read_all();
    settle(&mut server, &mut client);
    assert!(client.engine.is_hidden("/0/0/child"));
    server.refused.clear();
    client.engine.notified(EventType::NodeDataChanged, "/0/0");
    settle(&mut server, &mut client);
    assert!(client.engine.refused().is_empty() && !client.engine.is_hidden("/0/0/child"));
}

#[test]
fn refused_nodes_are_forgotten_with_their_deletion() {
    let (mut server, mut client) = (flat(2, 4), Client::new());
    settle(&mut server, &mut client);
    for path in ["/0/0", "/0/2", "/1/1", "/1/3"] {
        refuse(&mut client, path);
    }
    client.engine.notified(EventType::NodeDeleted, "/0/0");
    client.engine.notified(EventType::NodeDeleted, "/0");
    assert_eq!(client.engine.refused().keys().map(|request| &**request.path()).collect::<Vec<_>>(), ["/1/1", "/1/3"]);
    // Without a notification a full read finds that they are deleted, even if no other child is left.
    server.nodes.retain(|path, _| !["/0", "/1/1", "/1/3"].iter().any(|gone| path.starts_with(gone)));
    server.nodes.get_mut("/1").unwrap().0.num_children = 0;
    client.engine.read_all();
    settle(&mut server, &mut client);
    assert_eq!(client.engine.refused().len(), 0);
}

#[test]
fn data_that_cannot_be_decoded_is_told_once_a_version() {
    let (mut server, mut client) = (flat(1, 1), Client::new());
    settle(&mut server, &mut client);
    client.engine.take_changes();
    server.refused = BTreeMap::from([("/0".to_owned(), Refused::Data)]);
    for (mzxid, told) in [(7, 1), (7, 0), (8, 1)] {
        server.nodes.get_mut("/0").unwrap().0.mzxid = mzxid;
        client.engine.notified(EventType::NodeDataChanged, "/0");
        settle(&mut server, &mut client);
        let changes = client.engine.take_changes();
        assert!(changes.iter().all(|change| matches!(change, CacheEvent::Failed { .. })), "{changes:?}");
        assert_eq!(changes.len(), told, "{mzxid}");
    }
}

#[test]
fn a_root_that_a_resync_reports_as_deleted_is_looked_for() {
    let (mut server, mut client) = (flat(1, 1), Client::new());
    settle(&mut server, &mut client);
    client.engine.known();
    for path in ["/0/0", "/0", ""] {
        client.engine.notified(EventType::NodeDeleted, path);
    }
    client.engine.resynced();
    assert_eq!(client.engine.next_request(), Some(Request::Read("".into())));
    assert_eq!(client.engine.mark(9), None);
}

#[test]
fn the_reply_of_a_server_that_lags_does_not_take_a_node_back() {
    let (mut server, mut client) = (flat(2, 2), Client::new());
    settle(&mut server, &mut client);
    let old = server.nodes.clone();
    server.change_one("/1", true);
    client.receive(&mut server);
    assert_eq!(settle(&mut server, &mut client), 1);
    let newest = client.engine.take_changes();
    assert!(matches!(newest.back(), Some(CacheEvent::Changed { .. })), "{newest:?}");
    server.nodes = old;
    client.engine.notified(EventType::NodeDataChanged, "/1");
    assert_eq!(settle(&mut server, &mut client), 1);
    assert!(client.engine.take_changes().is_empty());
    assert_eq!(client.engine.tree().get("/1").unwrap().stat.mzxid, 2);
}

#[test]
fn requests_that_were_sent_ahead_of_the_end_of_a_resync_are_sent_again() {
    let (mut server, mut client) = (flat(2, 0), Client::new());
    settle(&mut server, &mut client);
    client.engine.notified(EventType::NodeDataChanged, "/1");
    let read = client.engine.next_request();
    assert!(read.is_some());
    client.engine.resynced();
    assert_eq!(client.engine.next_request(), read);
}

/// A simulated storm repeats its log only if a cache repeats its requests.
#[test]
fn requests_that_are_sent_again_have_an_order() {
    let (mut server, mut client) = (flat(10, 0), Client::new());
    settle(&mut server, &mut client);
    let paths: Vec<_> = (0..10).map(|number| format!("/{number}")).collect();
    for path in paths.iter().rev() {
        client.engine.notified(EventType::NodeDataChanged, path);
    }
    while client.engine.next_request().is_some() {}
    client.engine.resynced();
    let sent_again = std::iter::from_fn(|| client.engine.next_request());
    let expected = paths.iter().map(|path| Request::Read(path.as_str().into()));
    assert!(sent_again.eq(expected));
}

#[test]
fn a_full_read_during_a_resync_begins_at_its_end() {
    let (mut server, mut client) = (flat(2, 2), Client::new());
    settle(&mut server, &mut client);
    client.engine.known();
    client.engine.read_all();
    assert_eq!(client.engine.next_request(), None);
    client.engine.resynced();
    assert_eq!(settle(&mut server, &mut client), 5 + 3);
}

#[test]
fn a_full_read_takes_the_nodes_of_a_server_that_has_lost_its_data() {
    let (mut server, mut client) = (flat(2, 2), Client::new());
    for (stat, _) in server.nodes.values_mut() {
        (stat.czxid, stat.mzxid) = (100, 200);
    }
    settle(&mut server, &mut client);
    let mut listener = Listener::default();
    replay(&mut listener, client.engine.take_changes());
    let mut server = flat(1, 1);
    client.engine.read_all();
    settle(&mut server, &mut client);
    replay(&mut Listener { deleted: BTreeMap::new(), ..listener }, {
        let changes = client.engine.take_changes();
        assert!(changes.iter().all(|change| !matches!(change, CacheEvent::Changed { .. })), "{changes:?}");
        changes.into_iter().filter(|change| matches!(change, CacheEvent::Deleted(_))).collect()
    });
    assert_eq!((client.engine.tree().len(), client.engine.tree().get("/0/0").unwrap().stat.mzxid), (3, 1));
}

#[test]
fn refused_requests_are_sent_alone_and_failed_ones_first() {
    let (mut server, mut client) = (flat(6, 0), Client::new());
    settle(&mut server, &mut client);
    let read = |number: usize| Request::Read(format!("/{number}").into());
    let changed = |client: &mut Client, numbers: std::ops::Range<usize>| {
        numbers.for_each(|number| client.engine.notified(EventType::NodeDataChanged, &format!("/{number}")));
    };
    changed(&mut client, 0..2);
    for request in client.engine.next_requests(9) {
        client.engine.notified(EventType::NodeDataChanged, request.path());
        assert!(client.engine.was_refused(&request, None, &too_large()));
    }
    changed(&mut client, 2..4);
    client.engine.pause_ended();
    let mut sent: Vec<_> =
        std::iter::from_fn(|| Some(client.engine.next_requests(9)).filter(|all| !all.is_empty())).collect();
    sent.sort();
    assert_eq!(sent, [vec![read(0)], vec![read(1)], vec![read(2), read(3)]]);
    changed(&mut client, 4..6);
    client.engine.was_not_read(vec![read(2), read(3)]);
    assert_eq!(client.engine.next_requests(9), [read(2), read(3), read(4), read(5)]);
}

//! One of the two servers, with clients, and what they have heard.

use std::net::SocketAddr;
use std::sync::{Arc, Mutex, Weak};
use std::time::Duration;

use curator_test::wire::{
    ConnectRequest, ConnectResponse, ErrorCode, MAX_FRAME, OpCode, Reader, ReplyHeader, RequestHeader, Writer,
    XID_AUTH, XID_PING, XID_SET_WATCHES, read_frame, write_frame,
};
use curator_test::{
    ApacheServer, ApacheServerBuilder, TestingServer, TestingServerBuilder, server_version, unique_root,
};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use crate::request::{Request, create, get, show_error};
use crate::versions::Version;

/// Nothing here takes this long unless it is broken.
const BOUND: Duration = Duration::from_secs(20);
const TICK: Duration = Duration::from_secs(1);
const SESSIONS: (Duration, Duration) = (Duration::from_secs(2), Duration::from_secs(60));
/// What a session asks for unless the test is about it.
pub(crate) const TIMEOUT_MS: i32 = 30_000;

/// Runs the same steps on both servers and compares what their clients have heard.
pub(crate) async fn compare(steps: impl AsyncFn(&mut Side)) {
    let (ours, apaches) = both(steps).await;
    assert_same(&ours, &apaches);
}

fn assert_same(ours: &[String], apaches: &[String]) {
    for (number, (ours, apaches)) in ours.iter().zip(apaches).enumerate() {
        assert!(ours == apaches, "line {number}:\n  ours:   {ours}\n  Apache: {apaches}");
    }
    assert_eq!(ours.len(), apaches.len());
}

/// As [`compare`]. Where a path can have watches of several modes, Apache has these lines besides, each at its place.
pub(crate) async fn compare_modes(steps: impl AsyncFn(&mut Side), besides: &[(usize, &str)]) {
    let apache = Side::apache().await;
    let besides = if apache.version.keeps_modes_apart() { besides } else { &[] };
    let (ours, mut apaches) = on_each(Side::in_process_beside(&apache).await, apache, steps).await;
    for (place, line) in besides.iter().rev() {
        assert_eq!(apaches.get(*place).map(String::as_str), Some(*line), "line {place}");
        apaches.remove(*place);
    }
    assert_same(&ours, &apaches);
}

/// As [`compare`], with an Apache ZooKeeper that no other test uses: it may be restarted.
pub(crate) async fn compare_alone(steps: impl AsyncFn(&mut Side)) {
    let apache = Side::new(Server::Apache(Arc::new(start_apache(|builder| builder)))).await;
    let (ours, apaches) = on_each(Side::in_process_beside(&apache).await, apache, steps).await;
    assert_same(&ours, &apaches);
}

/// As [`compare_alone`], with servers that let a client ask for others.
pub(crate) async fn compare_reconfig(steps: impl AsyncFn(&mut Side)) {
    let ours = Side::new(start_ours(|builder| builder.reconfig(true))).await;
    let apache = Side::new(Server::Apache(Arc::new(start_apache(ApacheServerBuilder::reconfig)))).await;
    let (ours, apaches) = on_each(ours, apache, steps).await;
    assert_same(&ours, &apaches);
}

/// What the clients of either server have heard.
pub(crate) async fn both(steps: impl AsyncFn(&mut Side)) -> (Vec<String>, Vec<String>) {
    let apache = Side::apache().await;
    on_each(Side::in_process_beside(&apache).await, apache, steps).await
}

async fn on_each(mut ours: Side, mut apache: Side, steps: impl AsyncFn(&mut Side)) -> (Vec<String>, Vec<String>) {
    steps(&mut ours).await;
    steps(&mut apache).await;
    (ours.finish(), apache.finish())
}

#[derive(Clone)]
enum Server {
    InProcess(Arc<TestingServer>),
    Apache(Arc<ApacheServer>),
    Shared(SocketAddr),
}

impl Server {
    fn address(&self) -> SocketAddr {
        match self {
            Self::InProcess(server) => server.address(),
            Self::Apache(server) => server.address(),
            Self::Shared(address) => *address,
        }
    }
}

/// The Apache ZooKeeper of this process, while a test uses it.
fn apache() -> Server {
    static RUNNING: Mutex<Weak<ApacheServer>> = Mutex::new(Weak::new());
    if let Ok(address) = std::env::var("CURATOR_TEST_APACHE") {
        return Server::Shared(address.parse().expect("CURATOR_TEST_APACHE is host:port"));
    }
    let mut running = RUNNING.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
    let server = running.upgrade().unwrap_or_else(|| Arc::new(start_apache(|builder| builder)));
    *running = Arc::downgrade(&server);
    Server::Apache(server)
}

fn start_apache(set: impl FnOnce(ApacheServerBuilder) -> ApacheServerBuilder) -> ApacheServer {
    let (min, max) = SESSIONS;
    let started = set(ApacheServer::builder().tick(TICK).session_timeouts(min, max)).start();
    started.unwrap_or_else(|error| panic!("{error}"))
}

fn start_ours(set: impl FnOnce(TestingServerBuilder) -> TestingServerBuilder) -> Server {
    let (min, max) = SESSIONS;
    Server::InProcess(Arc::new(set(TestingServer::builder().tick(TICK).session_timeouts(min, max)).start().unwrap()))
}

struct Client {
    stream: TcpStream,
    session: i64,
    password: Vec<u8>,
    xid: i32,
    /// The newest transaction that a reply has reported.
    zxid: i64,
    /// What it says it has seen when it sets its watches again.
    seen: i64,
}

/// A server, clients, and what they have heard.
pub(crate) struct Side {
    server: Server,
    /// The version by which the side is expected to answer.
    pub(crate) version: Version,
    pub(crate) root: String,
    clients: Vec<Option<Client>>,
    /// All sessions so far: a session is shown as its number here.
    sessions: Vec<i64>,
    lines: Vec<String>,
}

impl Side {
    pub(crate) async fn in_process() -> Self {
        Self::new(start_ours(|builder| builder)).await
    }

    /// The in-process server, compared with another one.
    pub(crate) async fn in_process_beside(other: &Self) -> Self {
        Self { version: other.version, ..Self::in_process().await }
    }

    pub(crate) async fn apache() -> Self {
        Self::new(apache()).await
    }

    /// Client 0 is connected, and the root is there.
    async fn new(server: Server) -> Self {
        let root = unique_root("conform");
        // One reply may be late on a busy machine.
        let asked = std::iter::repeat_with(|| server_version(server.address())).take(100);
        let version = Version(asked.flatten().next().expect("the server names its version"));
        let mut side = Self { server, version, root, clients: Vec::new(), sessions: Vec::new(), lines: Vec::new() };
        side.connect(TIMEOUT_MS).await;
        side.call(0, create("", 0)).await;
        side
    }

    /// Connects a client and says its number.
    pub(crate) async fn connect(&mut self, timeout_ms: i32) -> usize {
        let request = ConnectRequest { timeout_ms, read_only: Some(false), ..ConnectRequest::default() };
        self.handshake(&request).await
    }

    /// A client that continues with the session of client `of`.
    pub(crate) async fn attach(&mut self, of: usize, right_password: bool) -> usize {
        let client = self.clients[of].as_ref().expect("a client");
        let mut password = client.password.clone();
        password[0] ^= u8::from(!right_password);
        let session_id = client.session;
        let request = ConnectRequest { session_id, password, timeout_ms: TIMEOUT_MS, ..ConnectRequest::default() };
        self.handshake(&request).await
    }

    pub(crate) async fn handshake(&mut self, request: &ConnectRequest) -> usize {
        let mut stream = TcpStream::connect(self.server.address()).await.unwrap();
        stream.set_nodelay(true).unwrap();
        let mut frame = Writer::new();
        request.encode(&mut frame);
        write_frame(&mut stream, &frame.into_bytes()).await.unwrap();
        let number = self.clients.len();
        let mut client = Client { stream, session: 0, password: Vec::new(), xid: 0, zxid: 0, seen: 0 };
        let Some(frame) = client.frame().await else {
            self.lines.push(format!("{number}: refused without a word"));
            self.clients.push(None);
            return number;
        };
        let response = ConnectResponse::decode(&mut Reader::new(&frame)).unwrap();
        client.session = response.session_id;
        client.password = response.password.clone();
        if client.session != 0 && !self.sessions.contains(&client.session) {
            self.sessions.push(client.session);
        }
        self.lines.push(format!(
            "{number}: connected, version {} timeout {} session <s{}> password {} read-only {:?}",
            response.protocol_version,
            response.timeout_ms,
            response.session_id,
            if response.password == [0; 16] { "of zeroes" } else { "given" },
            response.read_only,
        ));
        self.clients.push(Some(client));
        number
    }

    /// Restarts the server, and then the next sequential child of `parent` gets the number `next`. All connections
    /// break.
    pub(crate) fn restart_with_next_sequence(&self, parent: &str, next: i32) {
        let parent = format!("{}{parent}", self.root);
        match &self.server {
            Server::InProcess(server) => {
                server.restart().unwrap();
                assert!(server.set_next_sequence(&parent, next));
            }
            Server::Apache(server) => server.restart_with_next_sequence(&parent, next).unwrap(),
            Server::Shared(_) => panic!("a shared server cannot be restarted"),
        }
    }

    /// Sends a request; what comes until its reply, and the reply, is noted down.
    pub(crate) async fn call(&mut self, number: usize, request: Request) {
        if self.version.forbids_a_lone_check() && request.op() == OpCode::Check {
            return;
        }
        if let Some(refusal) = self.expected_refusal(number, &request).await {
            return self.lines.push(format!("{number}: {request:?} -> {refusal:?} and 0 bytes (xid +0)"));
        }
        self.send(number, &request).await;
        self.reply(number, &request).await;
    }

    /// Returns how the version that the in-process server is compared with refuses a request that this server accepts.
    async fn expected_refusal(&mut self, number: usize, request: &Request) -> Option<ErrorCode> {
        if !matches!(self.server, Server::InProcess(_)) {
            return None;
        }
        if self.version.refuses(request) {
            return Some(ErrorCode::MarshallingError);
        }
        let path = match request {
            Request::Read(OpCode::Exists, path, _) if self.version.exists_needs_read() => path,
            Request::Raw(OpCode::DeleteContainer, body) if self.version.reads_deletes_of_containers() => {
                let is_path = Reader::new(body).string().is_ok();
                return Some(if is_path { ErrorCode::NoNode } else { ErrorCode::MarshallingError });
            }
            _ => return None,
        };
        let read = get(path);
        self.send(number, &read).await;
        self.reply(number, &read).await;
        let is_refused = self.lines.pop().is_some_and(|line| line.contains("-> NoAuth and"));
        is_refused.then_some(ErrorCode::NoAuth)
    }

    /// Sends all requests, then takes their replies.
    pub(crate) async fn burst(&mut self, number: usize, requests: Vec<Request>) {
        let root = self.root.clone();
        let mut bytes = Vec::new();
        for request in &requests {
            let frame = self.client(number).next_frame(&root, request);
            bytes.extend_from_slice(&i32::try_from(frame.len()).unwrap().to_be_bytes());
            bytes.extend_from_slice(&frame);
        }
        let client = self.client(number);
        client.stream.write_all(&bytes).await.unwrap();
        let counts = |request: &Request| i32::from(request.op() != OpCode::Ping);
        client.xid -= requests.iter().map(counts).sum::<i32>();
        for request in &requests {
            self.client(number).xid += counts(request);
            self.reply(number, request).await;
        }
    }

    pub(crate) async fn send(&mut self, number: usize, request: &Request) {
        let root = self.root.clone();
        let client = self.client(number);
        let frame = client.next_frame(&root, request);
        write_frame(&mut client.stream, &frame).await.unwrap();
    }

    pub(crate) async fn reply(&mut self, number: usize, request: &Request) {
        let expected = xid_of(request.op()).unwrap_or(self.client(number).xid);
        loop {
            let Some(frame) = self.client(number).frame().await else {
                return self.lines.push(format!("{number}: closed instead of a reply to {request:?}"));
            };
            if let Some(event) = self.version.event(&frame) {
                self.lines.push(format!("{number}: event {event}"));
                continue;
            }
            let mut reader = Reader::new(&frame);
            let header = ReplyHeader::decode(&mut reader).unwrap();
            let client = self.client(number);
            client.zxid = client.zxid.max(header.zxid);
            let zxid = match request.op() {
                OpCode::Auth | OpCode::Unknown(_) => format!(" at {}", header.zxid),
                _ => String::new(),
            };
            let result = match header.err {
                0 => request.show_reply(reader.rest(), self.version),
                error => format!("{} and {} bytes", show_error(error), reader.rest().len()),
            };
            let xid = header.xid.wrapping_sub(expected);
            self.lines.push(format!("{number}: {request:?} -> {result}{zxid} (xid {xid:+})"));
            return;
        }
    }

    /// Notes down the events that have come to a client.
    pub(crate) async fn events(&mut self, number: usize) {
        let events = self.take_events(number).await;
        self.lines.extend(events.into_iter().map(|event| format!("{number}: event {event}")));
    }

    pub(crate) async fn take_events(&mut self, number: usize) -> Vec<String> {
        self.send(number, &Request::Raw(OpCode::Ping, b"")).await;
        let mut events = Vec::new();
        loop {
            let frame = self.client(number).frame().await.expect("an answer to a ping");
            match self.version.event(&frame) {
                Some(event) => events.push(event),
                None => return events,
            }
        }
    }

    /// Waits for one event, however long it takes.
    pub(crate) async fn wait_for_event(&mut self, number: usize) {
        let frame = self.client(number).frame().await.expect("an event");
        let event = self.version.event(&frame).unwrap_or_else(|| "none, but a reply".to_owned());
        self.lines.push(format!("{number}: event {event}"));
    }

    /// Sends a four-letter word and returns the reply. Sessions and transactions are marked, clients numbered.
    pub(crate) async fn word(&mut self, word: &str) -> String {
        let mut stream = TcpStream::connect(self.address()).await.unwrap();
        let asker = stream.local_addr().unwrap();
        stream.write_all(word.as_bytes()).await.unwrap();
        let mut reply = String::new();
        stream.read_to_string(&mut reply).await.unwrap();
        reply = reply.replace(&format!("/{asker}"), "/asker");
        for (number, client) in self.clients.iter().enumerate() {
            if let Some(client) = client {
                let address = client.stream.local_addr().unwrap();
                reply = reply.replace(&format!("/{address}"), &format!("/client {number}"));
            }
        }
        for session in &self.sessions {
            reply = reply.replace(&format!("{session:#x}"), &format!("<s{session}>"));
        }
        reply
    }

    /// Notes down that the server closes the connection, after what it still sends.
    pub(crate) async fn closed(&mut self, number: usize) {
        while let Some(frame) = self.client(number).frame().await {
            let event = self.version.event(&frame).unwrap_or_else(|| "none, but a reply".to_owned());
            self.lines.push(format!("{number}: event {event}"));
        }
        self.lines.push(format!("{number}: closed"));
    }

    /// What the client has heard of so far is what it has seen.
    pub(crate) fn mark(&mut self, number: usize) {
        let client = self.client(number);
        client.seen = client.zxid;
    }

    /// Closes the connection from the client's end, and waits until the server has closed its end. The session lives.
    pub(crate) async fn hang_up(&mut self, number: usize) {
        let mut client = self.clients[number].take().expect("a client");
        client.stream.shutdown().await.unwrap();
        while client.frame().await.is_some() {}
    }

    pub(crate) fn note(&mut self, line: String) {
        self.lines.push(line);
    }

    pub(crate) fn address(&self) -> SocketAddr {
        self.server.address()
    }

    /// From line `from` on the order means nothing.
    pub(crate) fn sort_from(&mut self, from: usize) {
        self.lines[from..].sort_unstable();
    }

    pub(crate) fn lines_len(&self) -> usize {
        self.lines.len()
    }

    /// The lines so far; sessions and transactions are numbered, the root is `~`.
    pub(crate) fn lines(&self) -> Vec<String> {
        let mut zxids: Vec<i64> = self.lines.iter().flat_map(|line| marked(line, "<z")).collect();
        zxids.sort_unstable();
        zxids.dedup();
        let number = |all: &[i64], value: i64| all.iter().position(|other| *other == value);
        self.lines
            .iter()
            .map(|line| {
                let line = replace_marked(line, "<z", |zxid| match zxid {
                    0 => "zero".to_owned(),
                    zxid => format!("z{}", number(&zxids, zxid).unwrap_or(usize::MAX)),
                });
                let line = replace_marked(&line, "<s", |session| match session {
                    0 => "none".to_owned(),
                    session => number(&self.sessions, session).map_or("unknown".to_owned(), |n| format!("s{n}")),
                });
                line.replace(&self.root, "~")
            })
            .collect()
    }

    fn finish(self) -> Vec<String> {
        self.lines()
    }

    fn client(&mut self, number: usize) -> &mut Client {
        self.clients[number].as_mut().expect("a client")
    }
}

impl Client {
    /// The next frame; `None` if the server has closed the connection.
    async fn frame(&mut self) -> Option<Vec<u8>> {
        let read = read_frame(&mut self.stream, MAX_FRAME);
        tokio::time::timeout(BOUND, read).await.expect("takes too long").unwrap_or_default()
    }

    fn next_frame(&mut self, root: &str, request: &Request) -> Vec<u8> {
        let op = request.op();
        self.xid += i32::from(op != OpCode::Ping);
        let xid = xid_of(op).unwrap_or(self.xid);
        let mut frame = Writer::new();
        RequestHeader { xid, op }.encode(&mut frame);
        request.encode(root, self.seen, &mut frame);
        frame.into_bytes()
    }
}

const fn xid_of(op: OpCode) -> Option<i32> {
    match op {
        OpCode::Ping => Some(XID_PING),
        OpCode::Auth => Some(XID_AUTH),
        OpCode::SetWatches | OpCode::SetWatches2 => Some(XID_SET_WATCHES),
        _ => None,
    }
}

fn marked<'a>(line: &'a str, mark: &'a str) -> impl Iterator<Item = i64> + 'a {
    line.split(mark).skip(1).map(|rest| rest[..rest.find('>').unwrap()].parse().unwrap())
}

fn replace_marked(line: &str, mark: &str, show: impl Fn(i64) -> String) -> String {
    let mut parts = line.split(mark);
    let mut text = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        let (number, rest) = part.split_once('>').unwrap();
        text.push_str(&show(number.parse().unwrap()));
        text.push_str(rest);
    }
    text
}

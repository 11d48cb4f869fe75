//! A client of the simulation: one session, a new link whenever one breaks.

use std::collections::BTreeMap;
use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use curator_framework::mutants::{Mutant, is_broken};
use curator_framework::{
    Acl, Capabilities, Clock, ConnectConfig, ConnectError, Connection, CreateMode, Done, Error, EventType, HandleEvent,
    Operation, Permission, Randomness, Reply, ReplyFuture, Request, Response, Result, SessionEnd, Stat, WatchedEvent,
    ZooKeeperHandle,
};
use parking_lot::Mutex;
use tokio::sync::{mpsc, oneshot, watch};

use super::ClientId;
use super::world::{FromServer, LinkId, World};
use crate::wire::{
    self, ConnectRequest, ConnectResponse, ErrorCode, OpCode, Reader, ReplyHeader, RequestHeader, Writer, XID_EVENT,
};

const CLIENT: &str = "simulated";
/// The pause before a new link is tried.
const RETRY_PAUSE: Duration = Duration::from_millis(50);
/// How long a server may take to answer a connect.
const CONNECT_PATIENCE: Duration = Duration::from_secs(2);

/// Establishes a session.
pub(super) async fn connect(
    world: &Arc<World>,
    client: ClientId,
    config: &ConnectConfig,
) -> Result<Connection, ConnectError> {
    let established = config.clock.now();
    let timeout_ms = i32::try_from(config.session_timeout.as_millis()).unwrap_or(i32::MAX);
    let mut greeting = ConnectRequest { timeout_ms, password: vec![0; 16], ..ConnectRequest::default() };
    let (link, inbox, response) = loop {
        if let Some(greeted) = greet(world, client, &greeting).await {
            break greeted;
        }
        tokio::time::sleep(RETRY_PAUSE).await;
    };
    if response.session_id == 0 {
        return Err(ConnectError::new("simulated:1", "the server refused a new session"));
    }
    greeting.session_id = response.session_id;
    greeting.password = response.password;
    let (events, event_receiver) = mpsc::unbounded_channel();
    let shared = Arc::new(Shared {
        world: Arc::clone(world),
        clock: Arc::clone(&config.clock),
        randomness: Arc::clone(&config.randomness),
        negotiated: Duration::from_millis(u64::from(response.timeout_ms.unsigned_abs())),
        ended: AtomicBool::new(false),
        open: Mutex::new(Open { link: Some(link), next_xid: 1, waiting: BTreeMap::new() }),
    });
    let (end, ending) = watch::channel(false);
    let (closed_sender, closed) = watch::channel(false);
    let session = SessionTask {
        shared: Arc::clone(&shared),
        client,
        greeting,
        events,
        relinked: AtomicBool::new(false),
        shifted: Mutex::new(None),
    };
    tokio::spawn(async move {
        session.run(link, inbox, ending).await;
        closed_sender.send_replace(true);
    });
    let handle = Handle { shared, end, closed };
    Ok(Connection { handle: Arc::new(handle), events: event_receiver, sent: established, established })
}

/// Opens a link and attaches the session. `None` if the link breaks or nothing is answered.
async fn greet(
    world: &World,
    client: ClientId,
    greeting: &ConnectRequest,
) -> Option<(LinkId, mpsc::UnboundedReceiver<FromServer>, ConnectResponse)> {
    let (link, mut inbox) = world.open(client);
    let closing = CloseOnDrop { world, link: Some(link) };
    let mut frame = Writer::new();
    greeting.encode(&mut frame);
    world.send(link, frame.into_bytes());
    match tokio::time::timeout(CONNECT_PATIENCE, inbox.recv()).await {
        Ok(Some(FromServer::Frame(bytes))) => {
            let response = ConnectResponse::decode(&mut Reader::new(&bytes)).ok()?;
            closing.keep();
            Some((link, inbox, response))
        }
        _ => None,
    }
}

struct CloseOnDrop<'a> {
    world: &'a World,
    link: Option<LinkId>,
}

impl CloseOnDrop<'_> {
    fn keep(mut self) {
        self.link = None;
    }
}

impl Drop for CloseOnDrop<'_> {
    fn drop(&mut self) {
        if let Some(link) = self.link {
            self.world.close(link);
        }
    }
}

struct Shared {
    world: Arc<World>,
    clock: Arc<dyn Clock>,
    randomness: Arc<dyn Randomness>,
    negotiated: Duration,
    ended: AtomicBool,
    open: Mutex<Open>,
}

/// The link there is, and what is asked on it.
#[derive(Debug)]
struct Open {
    link: Option<LinkId>,
    next_xid: i32,
    waiting: BTreeMap<i32, (Request, oneshot::Sender<Result<Response>>)>,
}

impl Shared {
    fn has_ended(&self) -> bool {
        self.ended.load(Ordering::SeqCst)
    }

    /// Sends a request at once; the answer comes by the receiver.
    fn post(&self, request: Request) -> Result<oneshot::Receiver<Result<Response>>> {
        if self.has_ended() {
            return Err(Error::SessionExpired { request: request.to_string() });
        }
        let mut open = self.open.lock();
        let Some(link) = open.link else {
            return Err(Error::ConnectionLoss { request: request.to_string(), sent: false, cause: None });
        };
        let xid = open.next_xid;
        open.next_xid += 1;
        let (answer, answered) = oneshot::channel();
        let frame = encode(xid, &request);
        open.waiting.insert(xid, (request, answer));
        drop(open);
        self.world.send(link, frame);
        Ok(answered)
    }

    async fn answer(&self, name: String, answered: oneshot::Receiver<Result<Response>>) -> Result<Response> {
        let result =
            answered.await.unwrap_or(Err(Error::ConnectionLoss { request: name.clone(), sent: true, cause: None }));
        if self.has_ended() { Err(Error::SessionExpired { request: name }) } else { result }
    }
}

struct Handle {
    shared: Arc<Shared>,
    end: watch::Sender<bool>,
    closed: watch::Receiver<bool>,
}

impl fmt::Debug for Handle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SimulatedHandle").field("ended", &self.shared.has_ended()).finish_non_exhaustive()
    }
}

impl ZooKeeperHandle for Handle {
    fn submit(&self, request: Request) -> ReplyFuture {
        let shared = Arc::clone(&self.shared);
        Box::pin(async move {
            let name = request.to_string();
            let sent = shared.clock.now();
            match shared.post(request) {
                Ok(answered) => Reply { sent: Some(sent), result: shared.answer(name, answered).await },
                Err(error) => Reply { sent: None, result: Err(error) },
            }
        })
    }

    fn heartbeat(&self, through_leader: bool) -> Pin<Box<dyn Future<Output = Result<Duration>> + Send>> {
        let path = format!("/nowhere-{:016x}", self.shared.randomness.next());
        let request = if through_leader {
            Request::Delete { path, version: None }
        } else {
            Request::Exists { path, watch: false }
        };
        let reply = self.submit(request);
        Box::pin(async move {
            let reply = reply.await;
            match (reply.result, reply.sent) {
                (Ok(_) | Err(Error::NoNode { .. }), Some(sent)) => Ok(sent),
                (Err(error), _) => Err(error),
                (Ok(_), None) => Ok(Duration::ZERO),
            }
        })
    }

    fn negotiated_timeout(&self) -> Duration {
        self.shared.negotiated
    }

    fn capabilities(&self) -> Capabilities {
        let mut can = Capabilities::default();
        can.transactions = true;
        can
    }

    fn client(&self) -> &'static str {
        CLIENT
    }

    fn end(&self) {
        self.shared.ended.store(true, Ordering::SeqCst);
        self.end.send_replace(true);
    }

    fn closed(&self) -> Pin<Box<dyn Future<Output = ()> + Send>> {
        let mut closed = self.closed.clone();
        Box::pin(async move {
            let _gone = closed.wait_for(|&closed| closed).await;
        })
    }
}

impl Drop for Handle {
    fn drop(&mut self) {
        self.end();
    }
}

async fn told_to_end(ending: &mut watch::Receiver<bool>) {
    // Without a handle it is to end as well.
    let _gone = ending.wait_for(|&end| end).await;
}

/// The handle's task: takes what comes, and links again.
struct SessionTask {
    shared: Arc<Shared>,
    client: ClientId,
    greeting: ConnectRequest,
    events: mpsc::UnboundedSender<HandleEvent>,
    /// It has linked again at least once.
    relinked: AtomicBool,
    /// The newest answer, where answers are shifted.
    shifted: Mutex<Option<(i32, Vec<u8>)>>,
}

impl SessionTask {
    async fn run(
        self,
        mut link: LinkId,
        mut inbox: mpsc::UnboundedReceiver<FromServer>,
        mut ending: watch::Receiver<bool>,
    ) {
        loop {
            tokio::select! {
                biased;
                () = told_to_end(&mut ending) => break,
                message = inbox.recv() => match message {
                    Some(FromServer::Frame(bytes)) => self.take(&bytes),
                    Some(FromServer::Closed) | None => {
                        self.unlink();
                        self.tell(HandleEvent::Disconnected);
                        let relinked = tokio::select! {
                            biased;
                            () = told_to_end(&mut ending) => None,
                            relinked = self.relink() => Some(relinked),
                        };
                        match relinked {
                            Some(Some((new_link, new_inbox, sent))) => {
                                self.relinked.store(true, Ordering::SeqCst);
                                (link, inbox) = (new_link, new_inbox);
                                self.tell(HandleEvent::Reconnected { sent, leader_sent: None });
                            }
                            Some(None) => {
                                self.shared.ended.store(true, Ordering::SeqCst);
                                self.tell(HandleEvent::Ended(SessionEnd::Expired));
                                return;
                            }
                            None => return self.close(None).await,
                        }
                    }
                },
            }
        }
        self.unlink();
        self.close(Some((link, inbox))).await;
    }

    fn tell(&self, event: HandleEvent) {
        let _gone = self.events.send(event);
    }

    /// What was asked on a link that is gone is lost.
    fn unlink(&self) {
        let mut open = self.shared.open.lock();
        open.link = None;
        open.waiting.clear();
    }

    /// Links again; `None` if the session is over.
    async fn relink(&self) -> Option<(LinkId, mpsc::UnboundedReceiver<FromServer>, Duration)> {
        loop {
            let sent = self.shared.clock.now();
            if let Some((link, inbox, response)) = greet(&self.shared.world, self.client, &self.greeting).await {
                if response.session_id == 0 {
                    self.shared.world.close(link);
                    return None;
                }
                self.shared.open.lock().link = Some(link);
                return Some((link, inbox, sent));
            }
            tokio::time::sleep(RETRY_PAUSE).await;
        }
    }

    fn take(&self, bytes: &[u8]) {
        let mut reader = Reader::new(bytes);
        let Ok(header) = ReplyHeader::decode(&mut reader) else { return };
        if header.xid == XID_EVENT {
            if let Some(event) = decode_event(&mut reader) {
                self.tell(HandleEvent::Watched(event));
            }
            return;
        }
        let waiting = self.shared.open.lock().waiting.remove(&header.xid);
        if let Some((request, answer)) = waiting {
            let result = if is_broken(Mutant::ShiftTheReplies) && self.relinked.load(Ordering::SeqCst) {
                // Each request gets its predecessor's answer.
                let newer = (header.err, reader.rest().to_vec());
                let (err, body) = self.shifted.lock().replace(newer).unwrap_or((ErrorCode::NoNode.code(), Vec::new()));
                decode(&request, err, &mut Reader::new(&body))
            } else {
                decode(&request, header.err, &mut reader)
            };
            // Whoever asked may be gone.
            let _gone = answer.send(result);
        }
    }

    /// Closes the session, on a new link if need be, until the server has answered or does not know it any more.
    async fn close(&self, mut linked: Option<(LinkId, mpsc::UnboundedReceiver<FromServer>)>) {
        loop {
            let (link, mut inbox) = match linked.take() {
                Some(linked) => linked,
                None => match greet(&self.shared.world, self.client, &self.greeting).await {
                    Some((link, inbox, response)) if response.session_id != 0 => (link, inbox),
                    Some((link, ..)) => return self.shared.world.close(link),
                    None => {
                        tokio::time::sleep(RETRY_PAUSE).await;
                        continue;
                    }
                },
            };
            let xid = self.shared.open.lock().next_xid;
            let mut frame = Writer::new();
            RequestHeader { xid, op: OpCode::CloseSession }.encode(&mut frame);
            self.shared.world.send(link, frame.into_bytes());
            let answered = async {
                loop {
                    match inbox.recv().await {
                        Some(FromServer::Frame(bytes)) => {
                            let header = ReplyHeader::decode(&mut Reader::new(&bytes));
                            if header.is_ok_and(|header| header.xid == xid) {
                                return true;
                            }
                        }
                        Some(FromServer::Closed) | None => return false,
                    }
                }
            };
            let answered = tokio::time::timeout(CONNECT_PATIENCE, answered).await;
            self.shared.world.close(link);
            if answered == Ok(true) {
                return;
            }
        }
    }
}

fn encode(xid: i32, request: &Request) -> Vec<u8> {
    let mut frame = Writer::new();
    let version = |version: &Option<i32>| version.unwrap_or(-1);
    match request {
        Request::Create { path, data, acl, mode } => {
            RequestHeader { xid, op: OpCode::Create2 }.encode(&mut frame);
            encode_create(&mut frame, path, data, acl, *mode);
        }
        Request::Delete { path, version: wanted } => {
            RequestHeader { xid, op: OpCode::Delete }.encode(&mut frame);
            frame.string(path).int(version(wanted));
        }
        Request::Exists { path, watch } => encode_read(&mut frame, xid, OpCode::Exists, path, *watch),
        Request::GetData { path, watch } => encode_read(&mut frame, xid, OpCode::GetData, path, *watch),
        Request::GetChildren { path, watch } => encode_read(&mut frame, xid, OpCode::GetChildren, path, *watch),
        Request::SetData { path, data, version: wanted } => {
            RequestHeader { xid, op: OpCode::SetData }.encode(&mut frame);
            frame.string(path).buffer(data).int(version(wanted));
        }
        Request::GetAcl { path } => {
            RequestHeader { xid, op: OpCode::GetAcl }.encode(&mut frame);
            frame.string(path);
        }
        Request::SetAcl { path, acl, version: wanted } => {
            RequestHeader { xid, op: OpCode::SetAcl }.encode(&mut frame);
            frame.string(path);
            encode_acl(&mut frame, acl);
            frame.int(version(wanted));
        }
        Request::Transaction { operations } => {
            RequestHeader { xid, op: OpCode::Multi }.encode(&mut frame);
            for operation in operations {
                encode_operation(&mut frame, operation);
            }
            frame.int(-1).bool(true).int(-1);
        }
        // A request that the framework learned since is answered as one without a name.
        _ => RequestHeader { xid, op: OpCode::Unknown(0) }.encode(&mut frame),
    }
    frame.into_bytes()
}

fn encode_create(frame: &mut Writer, path: &str, data: &[u8], acl: &[Acl], mode: CreateMode) {
    frame.string(path).buffer(data);
    encode_acl(frame, acl);
    frame.int(match mode {
        CreateMode::Ephemeral => 1,
        CreateMode::PersistentSequential => 2,
        CreateMode::EphemeralSequential => 3,
        _ => 0,
    });
}

fn encode_operation(frame: &mut Writer, operation: &Operation) {
    let mut part = |op: OpCode, path: &str| {
        frame.int(op.code()).bool(false).int(-1);
        frame.string(path);
    };
    match operation {
        Operation::Create { path, data, acl, mode } => {
            frame.int(OpCode::Create2.code()).bool(false).int(-1);
            encode_create(frame, path, data, acl, *mode);
        }
        Operation::Delete { path, version } => {
            part(OpCode::Delete, path);
            frame.int(version.unwrap_or(-1));
        }
        Operation::SetData { path, data, version } => {
            part(OpCode::SetData, path);
            frame.buffer(data).int(version.unwrap_or(-1));
        }
        Operation::Check { path, version } => {
            part(OpCode::Check, path);
            frame.int(version.unwrap_or(-1));
        }
        // The server has no answer to an operation that the framework learned since.
        _ => part(OpCode::Unknown(0), operation.path()),
    }
}

fn encode_read(frame: &mut Writer, xid: i32, op: OpCode, path: &str, watch: bool) {
    RequestHeader { xid, op }.encode(frame);
    frame.string(path).bool(watch);
}

fn encode_acl(frame: &mut Writer, acl: &[Acl]) {
    frame.vector(acl, |frame, entry| {
        frame.int(i32::try_from(entry.permissions.bits()).unwrap_or(0)).string(&entry.scheme).string(&entry.id);
    });
}

fn decode(request: &Request, err: i32, reader: &mut Reader<'_>) -> Result<Response> {
    if err != 0 {
        return match (ErrorCode::from_code(err), request) {
            (Some(ErrorCode::NoNode), Request::Exists { .. }) => Ok(Response::Exists(None)),
            (code, request) => Err(error(code, err, request)),
        };
    }
    let unreadable = || Error::ZooKeeper { code: ErrorCode::MarshallingError.code(), request: request.to_string() };
    if let Request::Transaction { operations } = request {
        let results = decode_results(reader).map_err(|_| unreadable())?;
        for (index, (operation, result)) in operations.iter().zip(&results).enumerate() {
            // Those before the one that failed have 0, those behind it another error.
            let Err(err) = *result else { continue };
            if err != 0 {
                let path = operation.path().to_owned();
                // Of the path, which is all that is asked of it.
                let about = Request::Delete { path, version: None };
                let source = Box::new(error(ErrorCode::from_code(err), err, &about));
                return Err(Error::Transaction { index, operation: operation.to_string(), source });
            }
        }
        return results.into_iter().collect::<Result<_, _>>().map(Response::Done).map_err(|_| unreadable());
    }
    decode_body(request, reader).map_err(|_| unreadable())
}

/// The results of a transaction: of each operation, or its error.
fn decode_results(reader: &mut Reader<'_>) -> Result<Vec<Result<Done, i32>>, wire::DecodeError> {
    let mut results = Vec::new();
    loop {
        let (kind, end, _err) = (reader.int()?, reader.bool()?, reader.int()?);
        if end {
            return Ok(results);
        }
        results.push(match OpCode::from_code(kind) {
            OpCode::Create => Ok(Done::Created { path: reader.string()?.to_owned(), stat: Stat::default() }),
            OpCode::Create2 => Ok(Done::Created { path: reader.string()?.to_owned(), stat: decode_stat(reader)? }),
            OpCode::SetData => Ok(Done::Set(decode_stat(reader)?)),
            OpCode::Delete => Ok(Done::Deleted),
            OpCode::Check => Ok(Done::Checked),
            _ => Err(reader.int()?),
        });
    }
}

fn error(code: Option<ErrorCode>, err: i32, request: &Request) -> Error {
    let path = request.path().to_owned();
    match code {
        Some(ErrorCode::NoNode) => Error::NoNode { path },
        Some(ErrorCode::NodeExists) => Error::NodeExists { path },
        Some(ErrorCode::NotEmpty) => Error::NotEmpty { path },
        Some(ErrorCode::BadVersion) => Error::BadVersion { path },
        Some(ErrorCode::NoAuth) => Error::NoAuth { path },
        Some(ErrorCode::InvalidAcl) => Error::InvalidAcl { path },
        Some(ErrorCode::NoChildrenForEphemerals) => Error::NoChildrenForEphemerals { path },
        Some(ErrorCode::SessionExpired) => Error::SessionExpired { request: request.to_string() },
        _ => Error::ZooKeeper { code: err, request: request.to_string() },
    }
}

fn decode_body(request: &Request, reader: &mut Reader<'_>) -> Result<Response, wire::DecodeError> {
    Ok(match request {
        Request::Create { .. } => {
            let path = reader.string()?.to_owned();
            Response::Created { path, stat: decode_stat(reader)? }
        }
        Request::Delete { .. } => Response::Deleted,
        Request::Exists { .. } => Response::Exists(Some(decode_stat(reader)?)),
        Request::GetData { .. } => {
            let data = reader.buffer()?.to_vec();
            Response::Data(data, decode_stat(reader)?)
        }
        Request::GetChildren { .. } => {
            Response::Children(reader.vector(|reader| reader.string().map(ToOwned::to_owned))?)
        }
        Request::GetAcl { .. } => {
            let acl = reader.vector(|reader| {
                let bits = reader.int()?;
                Ok(Acl::new(permissions(bits), reader.string()?, reader.string()?))
            })?;
            Response::Acl(acl, decode_stat(reader)?)
        }
        _ => Response::Stat(decode_stat(reader)?),
    })
}

fn permissions(bits: i32) -> Permission {
    [Permission::READ, Permission::WRITE, Permission::CREATE, Permission::DELETE, Permission::ADMIN]
        .into_iter()
        .filter(|permission| i64::from(bits) & i64::from(permission.bits()) != 0)
        .fold(Permission::NONE, |all, permission| all | permission)
}

fn decode_stat(reader: &mut Reader<'_>) -> Result<Stat, wire::DecodeError> {
    let stat = wire::Stat::decode(reader)?;
    Ok(Stat {
        czxid: stat.czxid,
        mzxid: stat.mzxid,
        ctime: stat.ctime,
        mtime: stat.mtime,
        version: stat.version,
        cversion: stat.cversion,
        aversion: stat.aversion,
        ephemeral_owner: stat.ephemeral_owner,
        data_length: stat.data_length,
        num_children: stat.num_children,
        pzxid: stat.pzxid,
    })
}

fn decode_event(reader: &mut Reader<'_>) -> Option<WatchedEvent> {
    let event_type = match reader.int().ok()? {
        1 => EventType::NodeCreated,
        2 => EventType::NodeDeleted,
        3 => EventType::NodeDataChanged,
        4 => EventType::NodeChildrenChanged,
        _ => return None,
    };
    let _state = reader.int().ok()?;
    Some(WatchedEvent { event_type, path: reader.string().ok()?.to_owned() })
}

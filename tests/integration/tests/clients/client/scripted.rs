//! A server that answers by a closure. It runs in threads of its own, so that a test can count the tasks of its runtime.

use std::io::{self, Read as _, Write as _};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};
use std::thread::JoinHandle;

use curator_test::wire::{
    ConnectRequest, ConnectResponse, ErrorCode, OpCode, Reader, ReplyHeader, RequestHeader, Stat, WatchEvent, Writer,
    XID_EVENT,
};
use parking_lot::Mutex;

/// The session that a scripted server grants.
pub(crate) const SESSION: i64 = 0x7700_0000_0000_0001;
/// The timeout that it grants.
pub(crate) const TIMEOUT_MS: i32 = 10_000;

/// What a client sent.
#[derive(Debug, Clone)]
pub(crate) enum Asked {
    Connect(ConnectRequest),
    Request { xid: i32, op: OpCode, body: Vec<u8> },
}

/// A frame, with the number of its connection, from 1.
#[derive(Debug, Clone)]
pub(crate) struct Frame {
    pub(crate) connection: usize,
    pub(crate) asked: Asked,
}

impl Frame {
    pub(crate) fn op(&self) -> Option<OpCode> {
        match &self.asked {
            Asked::Connect(_) => None,
            Asked::Request { op, .. } => Some(*op),
        }
    }

    pub(crate) fn xid(&self) -> i32 {
        match &self.asked {
            Asked::Connect(_) => 0,
            Asked::Request { xid, .. } => *xid,
        }
    }
}

/// What becomes of a frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Then {
    /// It is answered as a server without nodes would.
    Usual,
    /// The closure has answered it, or it gets no answer.
    Done,
    /// The connection is closed.
    Close,
}

/// The client's end of a connection.
pub(crate) struct Peer {
    stream: TcpStream,
    zxid: Arc<AtomicI64>,
}

impl Peer {
    /// Sends bytes as they are.
    pub(crate) fn raw(&mut self, bytes: &[u8]) {
        // The client may have closed the connection.
        let _gone = self.stream.write_all(bytes);
    }

    pub(crate) fn frame(&mut self, write: impl FnOnce(&mut Writer)) {
        self.raw(&framed(write));
    }

    pub(crate) fn grant(&mut self, session_id: i64, timeout_ms: i32) {
        let response = ConnectResponse {
            protocol_version: 0,
            timeout_ms,
            session_id,
            password: vec![7; 16],
            read_only: Some(false),
        };
        self.frame(|to| response.encode(to));
    }

    pub(crate) fn reply(&mut self, xid: i32, err: i32, body: impl FnOnce(&mut Writer)) {
        let zxid = self.zxid.fetch_add(1, Ordering::SeqCst);
        self.frame(|to| {
            ReplyHeader { xid, zxid, err }.encode(to);
            body(to);
        });
    }

    pub(crate) fn event(&mut self, kind: i32, path: &str) {
        self.frame(|to| {
            ReplyHeader { xid: XID_EVENT, zxid: -1, err: 0 }.encode(to);
            WatchEvent { kind, state: 3, path: path.to_owned() }.encode(to);
        });
    }

    /// Answers as a server would that has no nodes and creates what it is asked for.
    fn usual(&mut self, asked: &Asked) -> Then {
        match asked {
            Asked::Connect(_) => self.grant(SESSION, TIMEOUT_MS),
            Asked::Request { xid, op, body } => match op {
                OpCode::Ping | OpCode::SetWatches | OpCode::SetWatches2 | OpCode::AddWatch | OpCode::Auth => {
                    self.reply(*xid, 0, |_| {});
                }
                OpCode::Create2 | OpCode::CreateContainer => {
                    let path = Reader::new(body).string().unwrap_or_default().to_owned();
                    let stat = Stat { czxid: 1, ephemeral_owner: SESSION, ..Stat::default() };
                    self.reply(*xid, 0, |to| {
                        to.string(&path);
                        stat.encode(to);
                    });
                }
                OpCode::Sync => self.reply(*xid, 0, |to| _ = to.string("/")),
                OpCode::CloseSession => {
                    self.reply(*xid, 0, |_| {});
                    return Then::Close;
                }
                _ => self.reply(*xid, ErrorCode::NoNode.code(), |_| {}),
            },
        }
        Then::Done
    }
}

pub(crate) fn framed(write: impl FnOnce(&mut Writer)) -> Vec<u8> {
    let mut to = Writer::new();
    to.int(0);
    write(&mut to);
    let mut bytes = to.into_bytes();
    let length = u32::try_from(bytes.len() - 4).unwrap();
    bytes[..4].copy_from_slice(&length.to_be_bytes());
    bytes
}

/// Reads one frame, without its length.
pub(crate) fn read_frame(from: &mut TcpStream) -> io::Result<Vec<u8>> {
    let mut length = [0; 4];
    from.read_exact(&mut length)?;
    let mut frame = vec![0; u32::from_be_bytes(length) as usize];
    from.read_exact(&mut frame)?;
    Ok(frame)
}

/// Threads that serve the connections of a port until this is dropped.
pub(crate) struct Port {
    pub(crate) address: SocketAddr,
    shared: Arc<Open>,
    accepting: Option<JoinHandle<()>>,
}

#[derive(Default)]
struct Open {
    stopped: AtomicBool,
    streams: Mutex<Vec<TcpStream>>,
}

impl Port {
    /// Calls `serve` in a thread of its own for each connection, with its number, from 1.
    pub(crate) fn open(serve: impl Fn(TcpStream, usize) + Send + Sync + 'static) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let (shared, serve) = (Arc::new(Open::default()), Arc::new(serve));
        let open = Arc::clone(&shared);
        let accepting = std::thread::spawn(move || {
            for (index, stream) in listener.incoming().enumerate() {
                let Ok(stream) = stream else { continue };
                if open.stopped.load(Ordering::SeqCst) {
                    return;
                }
                stream.set_nodelay(true).unwrap();
                open.streams.lock().push(stream.try_clone().unwrap());
                let serve = Arc::clone(&serve);
                std::thread::spawn(move || serve(stream, index + 1));
            }
        });
        Self { address, shared, accepting: Some(accepting) }
    }

    /// Closes all connections.
    pub(crate) fn reset(&self) {
        for stream in self.shared.streams.lock().drain(..) {
            // It may be closed.
            let _closed = stream.shutdown(Shutdown::Both);
        }
    }
}

impl Drop for Port {
    fn drop(&mut self) {
        self.shared.stopped.store(true, Ordering::SeqCst);
        // Wakes the thread that accepts.
        let _woken = TcpStream::connect(self.address);
        if let Some(accepting) = self.accepting.take() {
            accepting.join().unwrap();
        }
        self.reset();
    }
}

/// A fake server.
pub(crate) struct Scripted {
    port: Port,
    frames: Arc<Mutex<Vec<Frame>>>,
}

impl Scripted {
    /// Starts a server that asks `answer` what becomes of each frame.
    pub(crate) fn start(answer: impl FnMut(&Frame, &mut Peer) -> Then + Send + 'static) -> Self {
        let frames = Arc::new(Mutex::new(Vec::new()));
        let (seen, answer, zxid) = (Arc::clone(&frames), Mutex::new(answer), Arc::new(AtomicI64::new(1)));
        let port = Port::open(move |stream, connection| {
            let mut from = stream.try_clone().unwrap();
            let mut peer = Peer { stream, zxid: Arc::clone(&zxid) };
            let mut is_first = true;
            while let Ok(bytes) = read_frame(&mut from) {
                let frame = Frame { connection, asked: parsed(&bytes, std::mem::take(&mut is_first)) };
                seen.lock().push(frame.clone());
                let then = (answer.lock())(&frame, &mut peer);
                let then = if then == Then::Usual { peer.usual(&frame.asked) } else { then };
                if then == Then::Close {
                    break;
                }
            }
            let _closed = from.shutdown(Shutdown::Both);
        });
        Self { port, frames }
    }

    pub(crate) fn address(&self) -> SocketAddr {
        self.port.address
    }

    /// What was sent so far.
    pub(crate) fn frames(&self) -> Vec<Frame> {
        self.frames.lock().clone()
    }

    /// The connect requests so far.
    pub(crate) fn connects(&self) -> Vec<ConnectRequest> {
        let is_connect = |frame: Frame| match frame.asked {
            Asked::Connect(request) => Some(request),
            Asked::Request { .. } => None,
        };
        self.frames().into_iter().filter_map(is_connect).collect()
    }

    /// Closes all connections.
    pub(crate) fn reset(&self) {
        self.port.reset();
    }
}

fn parsed(bytes: &[u8], is_first: bool) -> Asked {
    let mut from = Reader::new(bytes);
    if is_first {
        return Asked::Connect(ConnectRequest::decode(&mut from).unwrap());
    }
    let RequestHeader { xid, op } = RequestHeader::decode(&mut from).unwrap();
    Asked::Request { xid, op, body: from.rest().to_vec() }
}

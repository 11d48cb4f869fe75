//! One connection through the proxy.

use std::collections::VecDeque;
use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Waker};
use std::time::Duration;

use tokio::io::AsyncWrite as _;
use tokio::net::TcpStream;
use tokio::sync::watch;
use tokio::task::yield_now;
use tokio::time::{Instant, sleep, sleep_until, timeout};

use super::Speech;
use super::lane::{Chunk, End, Lane};
use super::state::{Fault, Shared, State};
use crate::wire::{ConnectRequest, DecodeError, OpCode, Reader, ReplyHeader, RequestHeader, Writer, XID_EVENT};

/// The time that a reset waits for a connection to the server in progress.
const RESET_LIMIT: Duration = Duration::from_millis(10);

/// The time that a follower's connection waits for a leader that does not listen yet. The follower would retry if it
/// were refused, but a proxy cannot refuse a connection that it has accepted.
const EARLY_LIMIT: Duration = Duration::from_secs(1);
const EARLY_PAUSE: Duration = Duration::from_millis(10);

/// The proxy's state when it accepted a connection.
#[derive(Debug, Clone, Copy)]
pub(super) struct Ticket {
    pub(super) epoch: u64,
    pub(super) in_partition: bool,
}

/// The end of a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Ending {
    /// Both sides have closed, or the client never reached the server.
    Quiet,
    /// One side broke, or all connections were reset.
    Abrupt,
    /// A fault of this connection's own.
    Fault,
}

/// Passes all bytes between `client` and the server at `upstream`.
pub(super) async fn run(shared: Arc<Shared>, ticket: Ticket, client: TcpStream, upstream: SocketAddr, speech: Speech) {
    let ending = pass(&shared, ticket, client, upstream, speech).await;
    // The sockets are closed by now.
    shared.change(|state| {
        if state.epoch == ticket.epoch {
            state.open -= 1;
        }
        if ending == Ending::Fault {
            state.faults += 1;
        }
    });
}

/// Closes with a TCP reset.
pub(super) fn close_abruptly(stream: TcpStream) {
    // If it cannot be set, the peer has closed already.
    drop(stream.set_zero_linger());
}

async fn pass(shared: &Shared, ticket: Ticket, client: TcpStream, upstream: SocketAddr, speech: Speech) -> Ending {
    let mut changed = shared.subscribe();
    let mut up = Lane::up(speech);
    let server = match reach(shared, ticket, &client, &mut up, (upstream, speech), &mut changed).await {
        Ok(server) => server,
        Err(ending) => {
            if ending == Ending::Abrupt {
                close_abruptly(client);
            }
            return ending;
        }
    };
    let down = Lane::down(speech);
    let mut connection = Connection { epoch: ticket.epoch, client, server, up, down, dialogue: Dialogue::default() };
    let ending = connection.pump(shared, &mut changed).await;
    match ending {
        Ending::Quiet => {}
        Ending::Abrupt => {
            close_abruptly(connection.client);
            close_abruptly(connection.server);
        }
        // The server still gets what was passed on before.
        Ending::Fault => close_abruptly(connection.client),
    }
    ending
}

/// Connects to the server once no partition is in effect.
async fn reach(
    shared: &Shared,
    ticket: Ticket,
    client: &TcpStream,
    up: &mut Lane,
    (upstream, speech): (SocketAddr, Speech),
    changed: &mut watch::Receiver<()>,
) -> Result<TcpStream, Ending> {
    let broken = |_: io::Error| Ending::Abrupt;
    client.set_nodelay(true).map_err(broken)?;
    let mut is_held = ticket.in_partition;
    loop {
        let (is_over, partitioned) = {
            let state = shared.lock();
            (state.epoch != ticket.epoch, state.partitioned)
        };
        if is_over {
            return Err(Ending::Abrupt);
        }
        if !partitioned {
            break;
        }
        is_held = true;
        wait_for(changed).await;
    }
    if is_held {
        // A client that gave up in the partition must not start a session after it. Yield, so that the runtime sees the
        // end of its socket.
        yield_now().await;
        up.receive(client, Duration::ZERO, Duration::ZERO);
        if up.has_ended() {
            return Err(Ending::Quiet);
        }
    }
    let mut connecting = std::pin::pin!(connect(upstream, speech));
    loop {
        tokio::select! {
            biased;
            () = wait_for(changed) => {
                if shared.lock().epoch != ticket.epoch {
                    // The server may have accepted the connection already: it sees the reset as well.
                    if let Ok(Ok(server)) = timeout(RESET_LIMIT, connecting).await {
                        close_abruptly(server);
                    }
                    return Err(Ending::Abrupt);
                }
            }
            server = &mut connecting => {
                let server = server.map_err(broken)?;
                server.set_nodelay(true).map_err(broken)?;
                return Ok(server);
            }
        }
    }
}

async fn connect(upstream: SocketAddr, speech: Speech) -> io::Result<TcpStream> {
    let began = Instant::now();
    loop {
        match TcpStream::connect(upstream).await {
            Err(error)
                if speech == Speech::Quorum
                    && error.kind() == io::ErrorKind::ConnectionRefused
                    && began.elapsed() < EARLY_LIMIT =>
            {
                sleep(EARLY_PAUSE).await;
            }
            done => return done,
        }
    }
}

/// Waits until the proxy's state changes.
async fn wait_for(changed: &mut watch::Receiver<()>) {
    // The sender lives as long as the caller's reference to the state.
    drop(changed.changed().await);
}

#[derive(Debug)]
struct Connection {
    epoch: u64,
    client: TcpStream,
    server: TcpStream,
    /// From the client to the server.
    up: Lane,
    /// From the server to the client.
    down: Lane,
    dialogue: Dialogue,
}

impl Connection {
    async fn pump(&mut self, shared: &Shared, changed: &mut watch::Receiver<()>) -> Ending {
        loop {
            let (flow, partitioned, swapped) = {
                let mut state = shared.lock();
                let before = state.faults;
                let flow = self.step(&mut state);
                (flow, state.partitioned, state.faults != before)
            };
            if swapped {
                // The lock must not be held while other tasks are notified.
                shared.change(|_| ());
            }
            if let Err(ending) = flow {
                return ending;
            }

            let due = [self.up.due(), self.down.due()].into_iter().flatten().min();
            tokio::select! {
                biased;
                () = wait_for(changed) => {}
                _ = self.client.readable(), if !partitioned && self.up.wants_input() => {}
                _ = self.server.readable(), if !partitioned && self.down.wants_input() => {}
                _ = self.client.writable(), if !partitioned && self.down.is_blocked() => {}
                _ = self.server.writable(), if !partitioned && self.up.is_blocked() => {}
                () = sleep_until(due.unwrap_or_else(Instant::now)), if !partitioned && due.is_some() => {}
            }
        }
    }

    /// Reads the received bytes and passes on all that may pass now.
    ///
    /// Both under the lock, so that a change of the state is never overtaken.
    fn step(&mut self, state: &mut State) -> Result<(), Ending> {
        if self.epoch != state.epoch {
            return Err(Ending::Abrupt);
        }
        if state.partitioned {
            // Unread bytes, and a close, stay in the socket.
            return Ok(());
        }
        let no_time = Duration::ZERO;
        self.up.receive(&self.client, state.latency, no_time);
        self.down.receive(&self.server, state.latency, state.late_answer);
        let now = Instant::now();
        let broken = |_: io::Error| Ending::Abrupt;

        self.up.flush(&self.server).map_err(broken)?;
        while !self.up.is_blocked() {
            let Some(mut chunk) = self.up.take_due(now) else {
                break;
            };
            if !self.dialogue.request(&mut chunk, state) {
                return Err(Ending::Fault);
            }
            state.traffic.received += chunk.bytes.len() as u64;
            self.up.send(&self.server, chunk.bytes).map_err(broken)?;
        }

        self.down.flush(&self.client).map_err(broken)?;
        while !self.down.is_blocked() {
            let Some(mut chunk) = self.down.take_due(now) else {
                break;
            };
            match self.dialogue.reply(&chunk, state) {
                None => {
                    state.traffic.sent += chunk.bytes.len() as u64;
                    self.down.send(&self.client, chunk.bytes).map_err(broken)?;
                }
                Some(Fault::CutReply) => {
                    chunk.bytes.truncate(chunk.bytes.len() / 2);
                    // The client may have closed; the fault has happened anyway.
                    drop(self.down.send(&self.client, chunk.bytes));
                    return Err(Ending::Fault);
                }
                Some(_) => return Err(Ending::Fault),
            }
        }

        self.pass_ends(state)
    }

    fn pass_ends(&mut self, state: &State) -> Result<(), Ending> {
        if !self.up.closed && !self.keeps_server(state) {
            self.up.closed = pass_end(self.up.end(), &mut self.server)?;
        }
        if !self.down.closed {
            self.down.closed = pass_end(self.down.end(), &mut self.client)?;
        }
        if self.up.closed && self.down.closed {
            return Err(Ending::Quiet);
        }
        Ok(())
    }

    /// Returns whether the client's end must be hidden from the server, as the reply to the handshake is delayed.
    fn keeps_server(&self, state: &State) -> bool {
        self.dialogue.is_in_handshake()
            && (self.down.has_chunks() || (!self.down.has_ended() && !state.late_answer.is_zero()))
    }
}

fn pass_end(end: Option<End>, to: &mut TcpStream) -> Result<bool, Ending> {
    match end {
        None => Ok(false),
        Some(End::Broken) => Err(Ending::Abrupt),
        Some(End::Closed) => {
            // A TCP stream is shut down at once, or it is broken already.
            let mut context = Context::from_waker(Waker::noop());
            drop(Pin::new(to).poll_shutdown(&mut context));
            Ok(true)
        }
    }
}

/// The requests of a connection so far, which identify its replies.
#[derive(Debug, Default)]
struct Dialogue {
    /// True once the client's first chunk was passed on.
    asked: bool,
    /// True once the server's first chunk was passed on.
    answered: bool,
    /// Each with its reads.
    waiting: VecDeque<(i32, OpCode, Vec<OpCode>)>,
}

impl Dialogue {
    fn is_in_handshake(&self) -> bool {
        self.asked && !self.answered
    }

    /// Records a request that is about to be passed on. Returns whether it may pass.
    fn request(&mut self, chunk: &mut Chunk, state: &mut State) -> bool {
        let is_first = !std::mem::replace(&mut self.asked, true);
        let Some(frame) = chunk.frame() else {
            return true;
        };
        if is_first {
            if let Some(swapped) = swap(frame, state) {
                chunk.bytes = swapped;
            }
            return !state.strikes_request(OpCode::CreateSession);
        }
        let mut body = Reader::new(frame);
        let Ok(header) = RequestHeader::decode(&mut body) else {
            return true;
        };
        if state.strikes_request(header.op) {
            return false;
        }
        let reads = match header.op {
            OpCode::GetData | OpCode::GetChildren | OpCode::GetChildren2 => vec![header.op],
            OpCode::MultiRead => reads(&mut body).unwrap_or_default(),
            _ => Vec::new(),
        };
        self.waiting.push_back((header.xid, header.op, reads));
        true
    }

    /// Records a reply that is about to be passed on. Returns the fault that hits it.
    fn reply(&mut self, chunk: &Chunk, state: &mut State) -> Option<Fault> {
        let is_first = !std::mem::replace(&mut self.answered, true);
        let frame = chunk.frame()?;
        if is_first {
            return state.strikes_reply(OpCode::CreateSession);
        }
        let header = ReplyHeader::decode(&mut Reader::new(frame)).ok()?;
        if header.xid == XID_EVENT {
            return None;
        }
        // Replies come in order, except those to `auth` and the like.
        let place = self.waiting.iter().position(|&(xid, ..)| xid == header.xid)?;
        let (_, op, reads) = self.waiting.remove(place)?;
        let struck = state.strikes_reply(op);
        if struck.is_none() {
            reads.into_iter().for_each(|read| *state.reads.entry(read).or_default() += 1);
        }
        struck
    }
}

/// Returns the kinds of the reads in a `multiRead`.
fn reads(body: &mut Reader<'_>) -> Result<Vec<OpCode>, DecodeError> {
    let mut reads = Vec::new();
    loop {
        let (op, is_end, _error) = (OpCode::from_code(body.int()?), body.bool()?, body.int()?);
        if is_end {
            return Ok(reads);
        }
        let (_path, _watch) = (body.string()?, body.bool()?);
        reads.push(op);
    }
}

/// Returns the connect request to pass on in place of `frame`, if its session is to be swapped.
fn swap(frame: &[u8], state: &mut State) -> Option<Vec<u8>> {
    if state.swaps == 0 {
        return None;
    }
    let mut request = ConnectRequest::decode(&mut Reader::new(frame)).ok()?;
    if request.session_id == 0 {
        return None;
    }
    request.session_id = 0;
    request.password.fill(0);
    let mut body = Writer::new();
    request.encode(&mut body);
    let mut swapped = Writer::new();
    swapped.buffer(&body.into_bytes());
    state.swaps -= 1;
    state.faults += 1;
    Some(swapped.into_bytes())
}

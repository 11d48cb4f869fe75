//! The TCP side: a thread with a runtime of its own around the [`Core`].

use std::collections::BTreeMap;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc as blocking;
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use tokio::io::{AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::{TcpListener, TcpSocket, TcpStream};
use tokio::sync::{Notify, mpsc};
use tokio::task::JoinSet;

use super::core::{Backup, ConnectionId, Core, Output};
use super::four_letter::{self, Answer, Asked};
use super::log::Traffic;
use crate::wire::{MAX_FRAME, read_frame, write_frame};

/// The number of connections that may wait to be accepted.
const BACKLOG: u32 = 1024;
/// The queued bytes of a connection from which no more requests are read from it.
const PAUSE_READING: usize = 4 << 20;
/// The queued bytes from which a connection is closed: its peer does not read.
const MAX_PENDING: usize = 64 << 20;
/// The limit of the time in which a closing connection sends its queue.
const LINGER: Duration = Duration::from_secs(1);
/// The pause after a failed accept, for instance when file descriptors have run out.
const ACCEPT_PAUSE: Duration = Duration::from_millis(10);

/// A command to the thread, which sends something back when it is done.
#[derive(Debug)]
pub(super) enum Command {
    /// Close the port and all connections.
    Stop(blocking::Sender<()>),
    /// Open the port, after closing it if need be.
    Listen(blocking::Sender<io::Result<()>>),
    /// Do nothing until the receiver gets something or its sender is dropped.
    Freeze(blocking::Sender<()>, blocking::Receiver<blocking::Sender<()>>),
}

/// The state that the thread and the test's side share.
#[derive(Debug)]
pub(super) struct Front {
    state: Mutex<State>,
    began: Instant,
    /// The next deadline may be earlier than the thread knows.
    deadline_changed: Notify,
}

#[derive(Debug)]
struct State {
    core: Core,
    peers: BTreeMap<ConnectionId, Peer>,
    traffic: Traffic,
}

/// The sending side of a connection.
#[derive(Debug)]
struct Peer {
    address: SocketAddr,
    queue: mpsc::UnboundedSender<Vec<u8>>,
    flow: Arc<Flow>,
}

/// The queue length of a connection.
#[derive(Debug, Default)]
struct Flow {
    pending: AtomicUsize,
    sent: Notify,
    closing: Notify,
}

impl State {
    fn carry_out(&mut self, outputs: Vec<Output>) {
        for output in outputs {
            match output {
                Output::Frame { to, bytes } => self.send(to, bytes),
                Output::Close(connection) => self.close(connection),
            }
        }
    }

    fn send(&mut self, to: ConnectionId, bytes: Vec<u8>) {
        let Some(peer) = self.peers.get(&to) else {
            return;
        };
        let length = bytes.len();
        self.traffic.sent += frame_bytes(length);
        let before = peer.flow.pending.fetch_add(length, Ordering::Relaxed);
        let is_sent = before.saturating_add(length) <= MAX_PENDING && peer.queue.send(bytes).is_ok();
        if !is_sent {
            self.core.closed(to);
            self.close(to);
        }
    }

    /// The end of the queue makes the connection's task send the rest and end.
    fn close(&mut self, connection: ConnectionId) {
        if let Some(peer) = self.peers.remove(&connection) {
            peer.flow.closing.notify_one();
        }
    }
}

impl Front {
    pub(super) fn new(core: Core) -> Self {
        Self {
            state: Mutex::new(State { core, peers: BTreeMap::new(), traffic: Traffic::default() }),
            began: Instant::now(),
            deadline_changed: Notify::new(),
        }
    }

    /// Runs a function on the core.
    pub(super) fn with_core<T>(&self, look: impl FnOnce(&mut Core) -> T) -> T {
        look(&mut self.state.lock().core)
    }

    pub(super) fn traffic(&self) -> Traffic {
        self.state.lock().traffic
    }

    pub(super) fn kill_session(&self, session: i64) -> bool {
        let mut state = self.state.lock();
        match state.core.kill_session(session, self.began.elapsed()) {
            Some(outputs) => {
                state.carry_out(outputs);
                true
            }
            None => false,
        }
    }

    fn tick(&self) {
        let mut state = self.state.lock();
        let outputs = state.core.tick(self.began.elapsed());
        state.carry_out(outputs);
    }

    pub(super) fn set_stale_reads(&self, stale: bool) {
        let mut state = self.state.lock();
        let outputs = state.core.set_stale_reads(stale);
        state.carry_out(outputs);
    }

    fn frame(&self, connection: ConnectionId, frame: &[u8], is_last: bool) {
        let mut state = self.state.lock();
        state.traffic.received += frame_bytes(frame.len());
        let before = state.core.next_deadline();
        let now = self.began.elapsed();
        let outputs = if is_last {
            state.core.frame(connection, frame, now)
        } else {
            state.core.frame_in_burst(connection, frame, now)
        };
        state.carry_out(outputs);
        let is_earlier = match (before, state.core.next_deadline()) {
            (Some(before), Some(after)) => after < before,
            (before, after) => before.is_none() && after.is_some(),
        };
        if is_earlier {
            self.deadline_changed.notify_one();
        }
    }

    /// Answers a four-letter word of the client at `asker`, which has come to `port`.
    fn answer(&self, answer: Answer, asker: SocketAddr, port: u16) -> String {
        let mut state = self.state.lock();
        let peers = state.peers.iter().map(|(id, peer)| (*id, peer.address)).collect();
        let core = &mut state.core;
        core.packets.received += 1;
        let reply = answer(&mut Asked { core, peers, asker, port });
        state.core.packets.sent += 1;
        reply
    }

    fn open(&self, peer: Peer) -> ConnectionId {
        let mut state = self.state.lock();
        let connection = state.core.open(peer.address.ip());
        state.peers.insert(connection, peer);
        connection
    }

    fn closed(&self, connection: ConnectionId) {
        let mut state = self.state.lock();
        state.core.closed(connection);
        state.peers.remove(&connection);
    }

    /// Drops all connections; sessions have their full time again.
    fn restart(&self) {
        let mut state = self.state.lock();
        state.peers.clear();
        state.core.restart(self.began.elapsed());
    }

    /// Drops all data, sessions and connections.
    pub(super) fn restart_empty(&self) {
        let mut state = self.state.lock();
        state.peers.clear();
        state.core.restart_empty(0, self.began.elapsed());
    }

    /// Drops all connections, and replaces data and sessions by a backup's.
    pub(super) fn restore(&self, backup: &Backup) {
        let mut state = self.state.lock();
        state.peers.clear();
        state.core.restore(backup, self.began.elapsed());
    }

    fn next_deadline(&self) -> Option<Instant> {
        self.with_core(|core| core.next_deadline()).map(|deadline| self.began + deadline)
    }
}

/// A reserved port. It stays bound between two listeners, so that no other process gets it.
#[derive(Debug)]
pub(super) struct Port {
    address: SocketAddr,
    reserved: Option<TcpSocket>,
    listener: Option<TcpListener>,
}

impl Port {
    /// Binds `address`; its port may be 0 for any free one.
    pub(super) fn reserve(address: SocketAddr) -> io::Result<Self> {
        let socket = Self::bind(address)?;
        Ok(Self { address: socket.local_addr()?, reserved: Some(socket), listener: None })
    }

    pub(super) const fn address(&self) -> SocketAddr {
        self.address
    }

    fn bind(address: SocketAddr) -> io::Result<TcpSocket> {
        let socket = TcpSocket::new_v4()?;
        // Closed connections must not keep the port reserved.
        socket.set_reuseaddr(true)?;
        socket.bind(address)?;
        Ok(socket)
    }

    fn listen(&mut self) -> io::Result<()> {
        if self.listener.is_none() {
            let socket = match self.reserved.take() {
                Some(socket) => socket,
                None => Self::bind(self.address)?,
            };
            self.listener = Some(socket.listen(BACKLOG)?);
        }
        Ok(())
    }

    fn close(&mut self) {
        if self.listener.take().is_some() {
            // If this fails, `listen` tries again and reports it.
            self.reserved = Self::bind(self.address).ok();
        }
    }

    async fn accept(&self) -> (TcpStream, SocketAddr) {
        let Some(listener) = &self.listener else {
            return std::future::pending().await;
        };
        loop {
            match listener.accept().await {
                Ok(accepted) => return accepted,
                Err(error) => {
                    tracing::debug!(%error, "accept failed");
                    tokio::time::sleep(ACCEPT_PAUSE).await;
                }
            }
        }
    }
}

/// Serves until the sender of `commands` is dropped.
pub(super) async fn serve(front: Arc<Front>, mut port: Port, mut commands: mpsc::UnboundedReceiver<Command>) {
    let mut connections = JoinSet::new();
    loop {
        // A stopped server ends no session.
        let deadline = port.listener.as_ref().and_then(|_| front.next_deadline());
        tokio::select! {
            biased;
            command = commands.recv() => match command {
                None => break,
                Some(Command::Stop(done)) => {
                    stop(&front, &mut port, &mut connections).await;
                    done.send(()).ok();
                }
                Some(Command::Listen(done)) => {
                    stop(&front, &mut port, &mut connections).await;
                    done.send(port.listen()).ok();
                }
                Some(Command::Freeze(done, thawed)) => {
                    done.send(()).ok();
                    // Blocks the whole runtime, as a freeze must.
                    let done = thawed.recv();
                    front.tick();
                    if let Ok(done) = done {
                        done.send(()).ok();
                    }
                }
            },
            () = sleep_until(deadline) => front.tick(),
            () = front.deadline_changed.notified() => {}
            (stream, address) = port.accept() => {
                connections.spawn(connection(Arc::clone(&front), stream, address));
            }
            Some(_) = connections.join_next(), if !connections.is_empty() => {}
        }
    }
}

async fn stop(front: &Front, port: &mut Port, connections: &mut JoinSet<()>) {
    port.close();
    connections.shutdown().await;
    front.restart();
}

async fn sleep_until(deadline: Option<Instant>) {
    match deadline {
        Some(deadline) => tokio::time::sleep_until(deadline.into()).await,
        None => std::future::pending().await,
    }
}

/// Serves one connection until either end closes it.
async fn connection(front: Arc<Front>, mut stream: TcpStream, address: SocketAddr) {
    if let Err(error) = stream.set_nodelay(true) {
        tracing::debug!(%error, "TCP_NODELAY is not set");
    }
    let mut first = [0; 4];
    if stream.read_exact(&mut first).await.is_err() {
        return;
    }
    if let Some(answer) = four_letter::word(first) {
        let port = stream.local_addr().map_or(0, |address| address.port());
        let answer = front.answer(answer, address, port);
        let sent = stream.write_all(answer.as_bytes()).await;
        if sent.is_ok() {
            stream.shutdown().await.ok();
        }
        return;
    }
    let (queue, mut to_send) = mpsc::unbounded_channel::<Vec<u8>>();
    let flow = Arc::new(Flow::default());
    let id = front.open(Peer { address, queue, flow: Arc::clone(&flow) });
    let (reader, mut writer) = stream.split();

    let read = async {
        let mut reader = BufReader::new(first.as_slice().chain(reader));
        while let Ok(Some(frame)) = read_frame(&mut reader, MAX_FRAME).await {
            front.frame(id, &frame, !holds_frame(reader.buffer()));
            while flow.pending.load(Ordering::Relaxed) > PAUSE_READING {
                flow.sent.notified().await;
            }
        }
    };
    let write = async {
        while let Some(frame) = to_send.recv().await {
            if write_frame(&mut writer, &frame).await.is_err() {
                return;
            }
            flow.pending.fetch_sub(frame.len(), Ordering::Relaxed);
            flow.sent.notify_one();
        }
        writer.shutdown().await.ok();
    };
    let linger = async {
        flow.closing.notified().await;
        tokio::time::sleep(LINGER).await;
    };
    tokio::select! {
        biased;
        () = write => {}
        () = read => {}
        () = linger => {}
    }
    front.closed(id);
}

/// Returns the bytes of a frame on the wire: its length is in front.
fn frame_bytes(length: usize) -> u64 {
    length as u64 + 4
}

/// Returns whether a whole frame has arrived already.
fn holds_frame(buffered: &[u8]) -> bool {
    buffered.split_first_chunk().is_some_and(|(length, rest)| {
        let length = usize::try_from(i32::from_be_bytes(*length));
        length.is_ok_and(|length| length <= rest.len())
    })
}

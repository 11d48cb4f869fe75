//! A TCP proxy that injects faults on command.

mod connection;
mod lane;
mod state;

use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::{Arc, mpsc};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use tokio::net::TcpListener;
use tokio::runtime::Runtime;
use tokio::sync::oneshot;

use self::connection::Ticket;
use self::state::{Fault, Shared};
use crate::server::Traffic;
use crate::wire::OpCode;

/// The pause of the proxy when the system has no room for a connection.
const ACCEPT_PAUSE: Duration = Duration::from_millis(10);

/// A TCP proxy on loopback, before a ZooKeeper server, that injects faults on command.
///
/// It understands frames, so that a fault can hit one request or one reply: for instance between a server that has
/// created the node and a client that does not know it. It works with any server and any client.
///
/// The proxy runs in a thread with its own clock, so a test may pause its clock. All calls but the `wait_for_` ones are
/// synchronous, may be made from any thread and hold from the moment they return: after [`partition`](Self::partition)
/// not one byte gets through. The effect on a client or server, such as a reset, arrives a moment later.
///
/// In the counts of requests and replies the handshake of a connection is an [`OpCode::CreateSession`], even when it
/// attaches to an old session. A ping is an [`OpCode::Ping`]. Watch events are never counted.
///
/// Other protocols, such as four-letter commands, pass unchanged.
///
/// A drop of the proxy closes its port and all of its connections.
///
/// # Examples
/// ```
/// use curator_test::{FaultProxy, TestingServer};
/// use curator_test::wire::OpCode;
///
/// let server = TestingServer::start()?;
/// let proxy = FaultProxy::start(server.address())?;
/// println!("give {} to the client", proxy.connect_string());
///
/// // The node will be there, but its creator sees a broken connection.
/// proxy.drop_reply(OpCode::Create, 1);
/// # Ok::<(), std::io::Error>(())
/// ```
#[derive(Debug)]
pub struct FaultProxy {
    shared: Arc<Shared>,
    address: SocketAddr,
    stop: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl FaultProxy {
    /// Starts a proxy on a free port, before the server at `upstream`.
    ///
    /// The server may start later: the proxy connects to it for each connection that it accepts, and resets that one if
    /// the server cannot be reached.
    ///
    /// # Errors
    /// If the port or the thread cannot be created.
    pub fn start(upstream: SocketAddr) -> io::Result<Self> {
        Self::listen()?.start(upstream, Speech::Client)
    }

    /// Binds a port for a proxy that is started later.
    pub(crate) fn listen() -> io::Result<Listening> {
        Ok(Listening(std::net::TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?))
    }

    fn on(listener: std::net::TcpListener, upstream: SocketAddr, speech: Speech) -> io::Result<Self> {
        listener.set_nonblocking(true)?;
        let address = listener.local_addr()?;
        let shared = Arc::new(Shared::default());
        let (stop, stopped) = oneshot::channel();
        let (ready, started) = mpsc::channel();
        let thread = thread::Builder::new().name("fault-proxy".to_owned()).spawn({
            let shared = Arc::clone(&shared);
            // The runtime is created and dropped here: the caller may be inside another one.
            move || match runtime(listener) {
                Ok((runtime, listener)) => {
                    // The starting thread waits for it, so this cannot fail.
                    drop(ready.send(Ok(())));
                    serve(&runtime, &listener, (upstream, speech), &shared, stopped);
                }
                Err(error) => drop(ready.send(Err(error))),
            }
        })?;
        started.recv().map_err(io::Error::other)??;
        Ok(Self { shared, address, stop: Some(stop), thread: Some(thread) })
    }

    /// Returns the connect string: `127.0.0.1:<port>`.
    #[must_use]
    pub fn connect_string(&self) -> String {
        self.address.to_string()
    }

    /// Returns the proxy's address.
    #[must_use]
    pub const fn address(&self) -> SocketAddr {
        self.address
    }

    /// Returns the proxy's port on `127.0.0.1`.
    #[must_use]
    pub const fn port(&self) -> u16 {
        self.address.port()
    }

    /// Cuts the network in silence, until [`repair`](Self::repair).
    ///
    /// No byte passes in either direction, and no connection is closed: if one side closes its connection, the other
    /// can notice only by its own timer. New connections are accepted, but the server does not see them.
    pub fn partition(&self) {
        self.shared.change(|state| state.partitioned = true);
    }

    /// Ends a [`partition`](Self::partition).
    ///
    /// Held bytes are delivered in order, then the connections that a side has closed are closed, as TCP does after a
    /// short partition. A connection made during the partition now reaches the server, unless its client has closed it.
    pub fn repair(&self) {
        self.shared.change(|state| state.partitioned = false);
    }

    /// Closes all connections abruptly, on both sides (TCP `RST`).
    ///
    /// Bytes in transit are lost. New connections are accepted.
    pub fn reset(&self) {
        self.shared.change(|state| {
            state.epoch += 1;
            state.open = 0;
        });
    }

    /// Closes new connections at once, until [`accept`](Self::accept).
    ///
    /// Open connections stay.
    pub fn refuse(&self) {
        self.shared.change(|state| state.refusing = true);
    }

    /// Ends [`refuse`](Self::refuse).
    pub fn accept(&self) {
        self.shared.change(|state| state.refusing = false);
    }

    /// Adds `delay` to all bytes that arrive from now on, in both directions. The order is kept.
    ///
    /// [`Duration::ZERO`] ends it.
    pub fn latency(&self, delay: Duration) {
        self.shared.change(|state| state.latency = delay);
    }

    /// Loses a reply: the `nth` one to a request of kind `op`, counted from now.
    ///
    /// The client's connection is reset instead. So the server has carried out the request, and the client cannot know.
    /// This happens once.
    ///
    /// Each call counts for itself. If two faults meet at one reply, the earlier call wins, and the other fault happens
    /// at the next reply of that kind.
    ///
    /// # Panics
    /// If `nth` is 0: the first is 1.
    pub fn drop_reply(&self, op: OpCode, nth: usize) {
        self.shared.plan(Fault::DropReply, op, nth);
    }

    /// Loses a request: the `nth` one of kind `op`, counted from now.
    ///
    /// It does not reach the server, and the client's connection is reset instead. The client cannot distinguish that
    /// from [`drop_reply`](Self::drop_reply). This happens once.
    ///
    /// # Panics
    /// If `nth` is 0: the first is 1.
    pub fn drop_request(&self, op: OpCode, nth: usize) {
        self.shared.plan(Fault::DropRequest, op, nth);
    }

    /// Cuts a reply: the `nth` one to a request of kind `op`, counted from now. The client gets its first half, then
    /// its connection is reset. This happens once.
    ///
    /// # Panics
    /// If `nth` is 0: the first is 1.
    pub fn cut_frame(&self, op: OpCode, nth: usize) {
        self.shared.plan(Fault::CutReply, op, nth);
    }

    /// Delays the server's replies to connect requests by `delay`, until cleared with [`Duration::ZERO`].
    ///
    /// The request itself is passed on at once. The proxy keeps the server's connection until the reply is due, even if
    /// the client has closed its own. So the server has a session that no client knows. A reply that is delayed already
    /// stays delayed.
    pub fn late_connect_answer(&self, delay: Duration) {
        self.shared.change(|state| state.late_answer = delay);
    }

    /// Swaps a session: the next connect request for an old session is changed into one for a new session.
    ///
    /// So the server grants a session that the client did not request. The old session lives until its timeout. Each
    /// call swaps one session.
    pub fn swap_session(&self) {
        self.shared.change(|state| state.swaps += 1);
    }

    /// Returns the number of connections that are open now.
    ///
    /// A connection is open until both sides have closed it.
    #[must_use]
    pub fn connections(&self) -> usize {
        self.shared.lock().open
    }

    /// Returns the number of connections so far, including refused ones.
    #[must_use]
    pub fn total_connections(&self) -> usize {
        self.shared.lock().total
    }

    /// Returns the number of replies to requests of kind `op` that were passed on whole so far.
    #[must_use]
    pub fn replies(&self, op: OpCode) -> usize {
        self.shared.lock().replies.get(&op).copied().unwrap_or_default()
    }

    /// Returns the number of reads of data and of lists of children with a reply that was passed on whole so far. Each read
    /// of a `multiRead` counts.
    #[must_use]
    pub fn reads(&self) -> usize {
        self.shared.lock().reads.values().sum()
    }

    /// Returns the number of [reads](Self::reads) of this kind.
    #[must_use]
    pub fn reads_of(&self, op: OpCode) -> usize {
        self.shared.lock().reads.get(&op).copied().unwrap_or_default()
    }

    /// Returns the bytes passed on whole so far, as the server sees them.
    #[must_use]
    pub fn traffic(&self) -> Traffic {
        self.shared.lock().traffic
    }

    /// Returns the number of one-time faults that have happened so far.
    ///
    /// One-time faults are the faults of [`drop_reply`](Self::drop_reply), [`drop_request`](Self::drop_request),
    /// [`cut_frame`](Self::cut_frame) and [`swap_session`](Self::swap_session). A counted fault is complete: the
    /// connection is closed.
    #[must_use]
    pub fn faults_done(&self) -> usize {
        self.shared.lock().faults
    }

    /// Waits until [`faults_done`](Self::faults_done) is `count` or more.
    ///
    /// # Cancel safety
    /// Nothing is lost if the future is dropped.
    pub async fn wait_for_faults(&self, count: usize) {
        self.shared.wait_until(|state| state.faults >= count).await;
    }

    /// Waits until [`total_connections`](Self::total_connections) is `count` or more.
    ///
    /// # Cancel safety
    /// Nothing is lost if the future is dropped.
    pub async fn wait_for_connections(&self, count: usize) {
        self.shared.wait_until(|state| state.total >= count).await;
    }
}

impl Drop for FaultProxy {
    fn drop(&mut self) {
        // The thread sees that the sender is dropped.
        drop(self.stop.take());
        if let Some(thread) = self.thread.take() {
            // Its panic was printed already.
            drop(thread.join());
        }
    }
}

/// The protocol through a proxy.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Speech {
    /// ZooKeeper's protocol for clients.
    Client,
    /// The protocol between a follower and its leader, not parsed.
    Quorum,
    /// The elections of servers. The connecting server names `announced` to its peer as the address where it listens.
    #[cfg_attr(not(feature = "apache"), expect(dead_code, reason = "only clusters have elections"))]
    Election {
        /// The address of a proxy for connections in the other direction.
        announced: SocketAddr,
    },
}

/// A bound port without a running proxy.
#[derive(Debug)]
pub(crate) struct Listening(std::net::TcpListener);

impl Listening {
    #[cfg(feature = "apache")]
    pub(crate) fn address(&self) -> io::Result<SocketAddr> {
        self.0.local_addr()
    }

    pub(crate) fn start(self, upstream: SocketAddr, speech: Speech) -> io::Result<FaultProxy> {
        FaultProxy::on(self.0, upstream, speech)
    }
}

fn runtime(listener: std::net::TcpListener) -> io::Result<(Runtime, TcpListener)> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let inside = runtime.enter();
    let listener = TcpListener::from_std(listener)?;
    drop(inside);
    Ok((runtime, listener))
}

fn serve(
    runtime: &Runtime,
    listener: &TcpListener,
    upstream: (SocketAddr, Speech),
    shared: &Arc<Shared>,
    stopped: oneshot::Receiver<()>,
) {
    runtime.block_on(async {
        tokio::select! {
            biased;
            _ = stopped => {}
            () = accept_all(listener, upstream, shared) => {}
        }
    });
}

async fn accept_all(listener: &TcpListener, (upstream, speech): (SocketAddr, Speech), shared: &Arc<Shared>) {
    loop {
        let Ok((client, _)) = listener.accept().await else {
            tokio::time::sleep(ACCEPT_PAUSE).await;
            continue;
        };
        let ticket = shared.change(|state| {
            state.total += 1;
            if state.refusing {
                return None;
            }
            state.open += 1;
            Some(Ticket { epoch: state.epoch, in_partition: state.partitioned })
        });
        match ticket {
            Some(ticket) => {
                let shared = Arc::clone(shared);
                tokio::spawn(connection::run(shared, ticket, client, upstream, speech));
            }
            None => connection::close_abruptly(client),
        }
    }
}

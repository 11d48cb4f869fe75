//! A runtime that ends while its client has a session: the drop of the client's task closes the session, within 200 ms.

use std::io::{self, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::panic::resume_unwind;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc;
use std::task::{Context, Wake, Waker};
use std::time::{Duration, Instant};

use async_trait::async_trait;
use curator_framework::spi::{ByteStream, Capabilities, ConnectConfig, Connection, Connector, ZooKeeperFactory};
use curator_framework::{
    ConnectError, CuratorFramework, CuratorFrameworkBuilder, DefaultZooKeeperFactory, LossReason, SessionEnd,
    TlsOptions,
};
use curator_integration::env::{PATIENCE, builder, connected, in_time};
use curator_recipes::{InterProcessMutex, MutexGuard};
use curator_test::wire::{ConnectResponse, OpCode, Reader, RequestHeader};
use curator_test::{FaultProxy, TestAuthority, TestingServer};
use futures_util::FutureExt;
use parking_lot::Mutex;
use tokio::runtime::{Handle, Runtime};

use super::scripted::{Port, SESSION, Scripted, TIMEOUT_MS, Then, framed, read_frame};

/// The time for which a client may block the end of its runtime.
const LIMIT: Duration = Duration::from_millis(200);
/// The slack for a busy machine.
const SLACK: Duration = Duration::from_millis(800);

fn runtimes() -> [Runtime; 2] {
    let many = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    [tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap(), many]
}

fn options(address: SocketAddr) -> CuratorFrameworkBuilder {
    builder(address).zookeeper_factory(DefaultZooKeeperFactory::new()).session_timeout(Duration::from_secs(60))
}

/// Drops a runtime. Returns the time that it took.
fn end(runtime: Runtime) -> Duration {
    let began = Instant::now();
    drop(runtime);
    began.elapsed()
}

async fn hold(options: CuratorFrameworkBuilder, path: &str) -> MutexGuard {
    acquire(&connected(options).await, path).await
}

async fn acquire(client: &CuratorFramework, path: &str) -> MutexGuard {
    in_time(InterProcessMutex::new(client.clone(), path).unwrap().acquire()).await.unwrap()
}

/// Returns the reason of a loss after the end of the guard's runtime.
fn reason(guard: &MutexGuard) -> LossReason {
    tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(in_time(guard.lost()))
}

fn wait_until(what: &str, is_true: impl Fn() -> bool) {
    let began = Instant::now();
    while !is_true() {
        assert!(began.elapsed() < PATIENCE, "{what}: not in time");
        std::thread::sleep(Duration::from_millis(5));
    }
}

fn op_of(frame: &[u8]) -> (i32, OpCode) {
    let header = RequestHeader::decode(&mut Reader::new(frame)).unwrap();
    (header.xid, header.op)
}

fn write_frame(to: &mut TcpStream, frame: &[u8]) -> io::Result<()> {
    to.write_all(&framed(|to| _ = to.raw(frame)))
}

#[test]
fn guards_are_lost_before_the_server_gets_the_close() {
    let server = TestingServer::start().unwrap();
    for runtime in runtimes() {
        let guard = Arc::new(Mutex::new(None::<MutexGuard>));
        let (seen, closes) = mpsc::channel();
        let (held, upstream) = (Arc::clone(&guard), server.address());
        let relay = Port::open(move |mut from, _| {
            let mut to = TcpStream::connect(upstream).unwrap();
            let (mut back, mut client) = (to.try_clone().unwrap(), from.try_clone().unwrap());
            std::thread::spawn(move || io::copy(&mut back, &mut client));
            // The connect request has no header.
            let mut frame = read_frame(&mut from).unwrap();
            while write_frame(&mut to, &frame).is_ok() {
                let Ok(next) = read_frame(&mut from) else { return };
                frame = next;
                if op_of(&frame).1 == OpCode::CloseSession {
                    seen.send(held.lock().as_ref().map(|guard| guard.is_held())).unwrap();
                }
            }
        });
        *guard.lock() = Some(runtime.block_on(hold(options(relay.address), "/lock")));
        end(runtime);
        assert_eq!(closes.recv_timeout(PATIENCE).unwrap(), Some(false));
        let lost = guard.lock().take().unwrap();
        assert_eq!(reason(&lost), LossReason::Session(SessionEnd::ClientFailed));
        wait_until("the session is closed", || server.sessions().is_empty());
    }
}

/// A factory that opens its sessions in another runtime.
#[derive(Debug)]
struct Elsewhere(Handle);

#[async_trait]
impl ZooKeeperFactory for Elsewhere {
    async fn connect(&self, config: &ConnectConfig) -> Result<Connection, ConnectError> {
        let config = config.clone();
        self.0.spawn(async move { DefaultZooKeeperFactory::new().connect(&config).await }).await.unwrap()
    }

    fn capabilities(&self) -> Capabilities {
        DefaultZooKeeperFactory::new().capabilities()
    }
}

#[test]
fn loss_at_the_end_of_a_runtime_is_a_close_only_if_the_client_was_closed() {
    let server = TestingServer::start().unwrap();
    let [_, sessions] = runtimes();
    for (is_closed, expected) in [(false, SessionEnd::ClientFailed), (true, SessionEnd::Closed)] {
        for runtime in runtimes() {
            let factory = Elsewhere(sessions.handle().clone());
            let guard = runtime.block_on(async {
                let client = connected(options(server.address()).zookeeper_factory(factory)).await;
                let guard = acquire(&client, "/lock").await;
                if is_closed {
                    // Only orders the close.
                    let _closed = client.close().now_or_never();
                }
                guard
            });
            end(runtime);
            assert_eq!(reason(&guard), LossReason::Session(expected));
        }
    }
}

#[test]
fn server_that_never_reads_blocks_no_end_for_longer_than_the_limit() {
    let server = TestingServer::start().unwrap();
    for runtime in runtimes() {
        let (client, guard) = runtime.block_on(async {
            let client = connected(options(server.address())).await;
            let guard = acquire(&client, "/lock").await;
            (client, guard)
        });
        server.freeze();
        // More than the socket takes.
        runtime.block_on(async {
            for _ in 0..20 {
                let client = client.clone();
                tokio::spawn(async move { client.set_data().for_path("/lock", vec![0; 900_000]).await });
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        });
        let blocked = end(runtime);
        assert!(blocked < LIMIT + SLACK, "{blocked:?}");
        assert!(!guard.is_held());
        server.thaw();
        for session in server.sessions() {
            server.kill_session(session);
        }
    }
}

#[test]
fn each_client_of_a_runtime_closes_its_session() {
    let server = TestingServer::start().unwrap();
    for runtime in runtimes() {
        let guards = ["/one", "/two"].map(|path| runtime.block_on(hold(options(server.address()), path)));
        server.freeze();
        let blocked = end(runtime);
        assert!(blocked < 2 * LIMIT + SLACK, "{blocked:?}");
        assert!(guards.iter().all(|guard| !guard.is_held()));
        server.thaw();
        wait_until("both sessions are closed", || server.sessions().is_empty());
    }
}

/// A connector of sockets with small buffers.
#[derive(Debug)]
struct SmallBuffers;

#[async_trait]
impl Connector for SmallBuffers {
    async fn connect(&self, server: &str) -> io::Result<Box<dyn ByteStream>> {
        let socket = tokio::net::TcpSocket::new_v4()?;
        socket.set_send_buffer_size(16 * 1024)?;
        socket.set_nodelay(true)?;
        Ok(Box::new(socket.connect(server.parse().map_err(io::Error::other)?).await?))
    }
}

#[test]
fn half_written_request_is_finished_before_the_close() {
    for runtime in runtimes() {
        let (go, goes) = mpsc::channel::<()>();
        let (tell, told) = mpsc::channel();
        let goes = Mutex::new(goes);
        let port = Port::open(move |mut stream, _| {
            drop(read_frame(&mut stream));
            let response = ConnectResponse {
                timeout_ms: TIMEOUT_MS,
                session_id: SESSION,
                password: vec![7; 16],
                ..ConnectResponse::default()
            };
            stream.write_all(&framed(|to| response.encode(to))).unwrap();
            goes.lock().recv().unwrap();
            let mut frames = Vec::new();
            while let Ok(frame) = read_frame(&mut stream) {
                frames.push(op_of(&frame));
            }
            tell.send(frames).unwrap();
        });
        let options = options(port.address).zookeeper_factory(DefaultZooKeeperFactory::with_connector(SmallBuffers));
        runtime.block_on(async {
            let client = connected(options).await;
            for _ in 0..4 {
                let client = client.clone();
                tokio::spawn(async move { client.set_data().for_path("/node", vec![0; 40_000]).await });
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        });
        go.send(()).unwrap();
        end(runtime);
        let frames = told.recv_timeout(PATIENCE).unwrap();
        assert_eq!(frames.last().map(|(_, op)| *op), Some(OpCode::CloseSession), "{frames:?}");
        let numbers: Vec<_> = frames.iter().map(|(xid, _)| *xid).filter(|xid| *xid > 0).collect();
        assert_eq!(numbers, (1..=5).collect::<Vec<_>>());
    }
}

#[test]
fn runtime_that_ends_while_no_session_is_attached_sends_no_request() {
    let authority = TestAuthority::new().unwrap();
    for kind in 0..2 {
        for runtime in runtimes() {
            let silent = Scripted::start(|_, _| Then::Done);
            let proxy = FaultProxy::start(silent.address()).unwrap();
            let mut options = options(proxy.address());
            if kind == 1 {
                // The handshake of TLS does not end.
                options = options.tls(TlsOptions::new(authority.certificate_pem()));
            }
            let client = runtime.block_on(async {
                let client = options.build().unwrap();
                client.start().unwrap();
                in_time(proxy.wait_for_connections(1)).await;
                client
            });
            let blocked = end(runtime);
            assert!(blocked < LIMIT + SLACK, "{blocked:?}");
            assert!(silent.frames().iter().all(|frame| frame.op().is_none()));
            drop(client);
        }
    }
}

#[test]
fn session_whose_watches_are_being_set_again_is_closed() {
    for runtime in runtimes() {
        let (asked, asks) = mpsc::channel();
        let server = Scripted::start(move |frame, _| match frame.op() {
            Some(OpCode::SetWatches | OpCode::SetWatches2) => {
                asked.send(()).unwrap();
                Then::Done
            }
            _ => Then::Usual,
        });
        let _watching = runtime.block_on(async {
            let client = connected(options(server.address())).await;
            let (_, watch) = client.check_exists().watched().for_path("/missing").await.unwrap();
            server.reset();
            tokio::task::spawn_blocking(move || asks.recv_timeout(PATIENCE).unwrap()).await.unwrap();
            (client, watch)
        });
        end(runtime);
        let last = server.frames().pop().unwrap();
        assert_eq!((last.connection, last.op()), (2, Some(OpCode::CloseSession)));
    }
}

#[test]
fn session_that_has_just_expired_blocks_no_end() {
    let server = TestingServer::start().unwrap();
    for runtime in runtimes() {
        let guard = runtime.block_on(hold(options(server.address()), "/lock"));
        for session in server.sessions() {
            server.kill_session(session);
        }
        let blocked = end(runtime);
        assert!(blocked < LIMIT + SLACK, "{blocked:?}");
        assert!(!guard.is_held());
    }
}

/// A waker that panics once, in the task that delivers the reply.
#[derive(Default)]
struct Panics(AtomicBool);

impl Wake for Panics {
    fn wake(self: Arc<Self>) {
        if !self.0.swap(true, Ordering::SeqCst) {
            // Unlike `panic!` it prints nothing.
            resume_unwind(Box::new("in the client's task"));
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn session_of_a_task_that_panics_is_closed_and_the_client_goes_on() {
    let server = TestingServer::start().unwrap();
    let client = connected(options(server.address())).await;
    let guard = acquire(&client, "/lock").await;
    let session = server.sessions();
    let mut reply = Box::pin(client.check_exists().for_path("/").into_future());
    let waker = Waker::from(Arc::new(Panics::default()));
    // Otherwise the reply could arrive during the poll.
    server.freeze();
    assert!(reply.as_mut().poll(&mut Context::from_waker(&waker)).is_pending());
    server.thaw();
    let reason = in_time(guard.lost()).await;
    assert_eq!(reason, LossReason::Session(SessionEnd::ClientFailed));
    // In the next session of the same client.
    let next = acquire(&client, "/lock").await;
    assert!(next.is_held());
    assert!(!server.sessions().contains(&session[0]));
}

/// A connector of Unix sockets, bridged to a server in another runtime.
#[derive(Debug)]
struct Unix(Handle);

#[async_trait]
impl Connector for Unix {
    async fn connect(&self, server: &str) -> io::Result<Box<dyn ByteStream>> {
        let (own, far) = std::os::unix::net::UnixStream::pair()?;
        own.set_nonblocking(true)?;
        far.set_nonblocking(true)?;
        let server = server.to_owned();
        self.0.spawn(async move {
            let mut far = tokio::net::UnixStream::from_std(far)?;
            let mut server = tokio::net::TcpStream::connect(server).await?;
            tokio::io::copy_bidirectional(&mut far, &mut server).await
        });
        Ok(Box::new(tokio::net::UnixStream::from_std(own)?))
    }
}

#[test]
fn session_over_a_unix_socket_is_closed() {
    let server = TestingServer::start().unwrap();
    let [_, bridge] = runtimes();
    for runtime in runtimes() {
        let factory = DefaultZooKeeperFactory::with_connector(Unix(bridge.handle().clone()));
        let guard = runtime.block_on(hold(options(server.address()).zookeeper_factory(factory), "/lock"));
        end(runtime);
        assert_eq!(server.sessions(), [0; 0]);
        assert!(!guard.is_held());
    }
}

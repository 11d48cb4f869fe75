//! Sessions of the crate, from their connect on.

use std::convert::Infallible;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::time::Duration;

use async_trait::async_trait;
use futures_util::stream::FuturesUnordered;
use parking_lot::Mutex;
use tokio::sync::{mpsc, watch};
use zookeeper_async as crate_api;
use zookeeper_async::{ZkState, ZooKeeper};

use super::convert::from_crate_event;
use super::ephemerals::Ephemerals;
use super::handle::Handle;
use super::handshake::probe_ensemble;
use super::link::Link;
use super::monitor::Monitor;
use super::slots::SlotQueue;
use super::window::{PLACES, Shared};
use super::{CLIENT, RETRY_PAUSE};
use crate::error::{ConnectError, Result};
use crate::model::protected::ProtectedId;
use crate::zookeeper::{
    ConnectConfig, Connection, HandleEvent, Notification, Reattached, SessionEnd, ZooKeeperFactory,
};

/// The most requests of one session. The crate's 32-bit numbers continue into the reserved ones: it would take the
/// reply to request −1 for a notification, that to −2 for a ping's, and each later reply for its predecessor's. The
/// session ends below 2^31, with room for the requests of its close.
const MAX_REQUESTS: u64 = (1 << 31) - (1 << 20);

/// Connects with the crate `zookeeper-async`: `.zookeeper_factory(ZooKeeperAsyncFactory)`.
///
/// The adapter ends the session if the crate cannot continue it safely:
///
/// | case | the session ends with |
/// | --- | --- |
/// | a reply does not match its request, or a reconnect carries another session | [`SessionEnd::Inconsistent`] |
/// | a reconnect cannot be proven: the reply to the session's first ephemeral create was lost, or no node may be created below the root or beside the session's nodes | [`SessionEnd::Inconsistent`] |
/// | 2^31 requests (less a million) were sent: the crate's numbers run out | [`SessionEnd::ClientFailed`] |
///
/// # Logging
///
/// The crate logs the id **and the password** of each session: the `tracing` event `Connected` of the target
/// `zookeeper_async::io`, at the level *info*. A client that knows both can take the session over or close it. The
/// adapter cannot prevent that, because a task of the crate logs it. Keep the crate's target at *warn*:
/// `RUST_LOG=info,zookeeper_async=warn`, or with `tracing-subscriber`
///
/// ```text
/// Targets::new().with_default(LevelFilter::INFO).with_target("zookeeper_async", LevelFilter::WARN)
/// ```
#[derive(Debug, Clone, Copy, Default)]
pub struct ZooKeeperAsyncFactory;

#[async_trait]
impl ZooKeeperFactory for ZooKeeperAsyncFactory {
    fn client(&self) -> &'static str {
        CLIENT
    }

    async fn connect(&self, config: &ConnectConfig) -> Result<Connection, ConnectError> {
        Self::connect_for(MAX_REQUESTS, config).await
    }
}

impl ZooKeeperAsyncFactory {
    /// Connects a session that sends at most `max_requests` requests.
    async fn connect_for(max_requests: u64, config: &ConnectConfig) -> Result<Connection, ConnectError> {
        let started = tokio::time::Instant::now();
        let greeting = probe_ensemble(
            &config.servers.current()?,
            config.session_timeout,
            config.connection_timeout,
            &*config.randomness,
        )
        .await?;
        let server = greeting.addresses[0].to_string();
        let failed = |reason: String| ConnectError::new(server.clone(), reason);

        let left = config.connection_timeout.saturating_sub(started.elapsed());
        let until = tokio::time::Instant::now() + left;
        let established = config.clock.now();
        let (events, event_receiver) = mpsc::unbounded_channel();
        let ephemerals = Arc::new(Mutex::new(Ephemerals::default()));
        let (crate_lives, crate_gone) = mpsc::channel(1);
        let (watched, proving) = (events.clone(), Arc::clone(&ephemerals));
        let connect_string = join_addresses(&greeting.addresses);
        let connecting = ZooKeeper::connect_with_retry_time(
            &connect_string,
            greeting.negotiated,
            // The closure only converts and sends: a panic in it would kill the crate's tasks.
            move |event: crate_api::WatchedEvent| {
                let _lives: &mpsc::Sender<Infallible> = &crate_lives;
                let Some(event) = from_crate_event(event) else { return };
                // The monitor reports a new connection under this lock, so its events arrive behind that report.
                let _not_meanwhile = proving.lock();
                // Without a receiver the handle was dropped.
                let _gone = watched.send(HandleEvent::Watched(Notification::Event(event)));
            },
            RETRY_PAUSE,
        );
        let zookeeper = match tokio::time::timeout_at(until, connecting).await {
            Ok(Ok(zookeeper)) => zookeeper,
            Ok(Err(error)) => return Err(failed(error.to_string())),
            Err(_elapsed) => return Err(failed(format!("not connected within {:?}", config.connection_timeout))),
        };

        let handle =
            start(zookeeper, Seam { events, ephemerals, crate_gone }, config, greeting.negotiated, max_requests);
        let mut events = event_receiver;
        match tokio::time::timeout_at(until, events.recv()).await {
            Ok(Some(HandleEvent::Reconnected(Reattached { sent, epoch, .. }))) => {
                Ok(Connection { handle: Arc::new(handle), events, sent, established, epoch })
            }
            Ok(Some(HandleEvent::Ended(end @ SessionEnd::AuthFailed))) => {
                // The crate does not say which of them.
                let schemes: Vec<&str> = config.auth.iter().map(|auth| &*auth.scheme).collect();
                Err(failed(end.refusing(&schemes.join(" or "))).refusing_credentials())
            }
            Ok(Some(HandleEvent::Ended(end))) => Err(failed(end.to_string())),
            Ok(_) => Err(failed(SessionEnd::ClientFailed.to_string())),
            Err(_elapsed) => {
                Err(failed(format!("no answer to the first request within {:?}", config.connection_timeout)))
            }
        }
    }
}

fn join_addresses(addresses: &[SocketAddr]) -> String {
    addresses.iter().map(ToString::to_string).collect::<Vec<_>>().join(",")
}

/// The state that the crate's event closure shares with the handle's task.
struct Seam {
    events: mpsc::UnboundedSender<HandleEvent>,
    ephemerals: Arc<Mutex<Ephemerals>>,
    /// Ends when the crate's tasks drop the event closure.
    crate_gone: mpsc::Receiver<Infallible>,
}

/// Adds the listener to the crate, and spawns the monitor that owns the session until it is closed.
fn start(
    zookeeper: ZooKeeper,
    Seam { events, ephemerals, crate_gone }: Seam,
    config: &ConnectConfig,
    negotiated: Duration,
    max_requests: u64,
) -> Handle {
    let (commands, driven) = mpsc::unbounded_channel();
    let shared = Arc::new(Shared {
        zookeeper,
        clock: Arc::clone(&config.clock),
        randomness: Arc::clone(&config.randomness),
        negotiated,
        auth: config.auth.clone(),
        link: watch::Sender::new(Link::new()),
        requests: AtomicU64::new(0),
        max_requests,
        slots: SlotQueue::new(PLACES),
        submitting: Mutex::new(()),
        in_flight: Mutex::default(),
        commands,
        identity: format!("{}session", ProtectedId::new(&*config.randomness).prefix()),
        ephemerals,
    });
    let listening = Arc::downgrade(&shared);
    // Runs inside the crate's I/O task: changes the link, nothing else.
    shared.zookeeper.add_listener(move |state| {
        let Some(shared) = listening.upgrade() else { return };
        shared.link.send_modify(|link| match state {
            ZkState::Connected | ZkState::ConnectedReadOnly => link.connected(),
            ZkState::Connecting => link.lost(),
            // The adapter itself closes. Each of the crate's other states means that the session has ended.
            ZkState::Closed => {}
            _ => link.ended(SessionEnd::Expired),
        });
    });
    let (closed_sender, closed) = watch::channel(false);
    let monitor = Monitor { shared: Arc::clone(&shared), events, running: FuturesUnordered::new(), driven, crate_gone };
    tokio::spawn(async move {
        monitor.run().await;
        closed_sender.send_replace(true);
    });
    Handle { shared, closed }
}

#[cfg(test)]
mod tests {
    use curator_wire::{ConnectResponse, ErrorCode, OpCode, ReplyHeader, RequestHeader, Writer};
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::net::{TcpListener, TcpStream};

    use super::*;
    use crate::error::Error;
    use crate::zookeeper::Request;

    fn frame(record: impl FnOnce(&mut Writer)) -> Vec<u8> {
        let mut writer = Writer::new();
        record(&mut writer);
        let bytes = writer.into_bytes();
        [&u32::try_from(bytes.len()).unwrap().to_be_bytes()[..], &bytes].concat()
    }

    async fn read_frame(stream: &mut TcpStream) -> std::io::Result<Vec<u8>> {
        let mut bytes = vec![0; stream.read_u32().await? as usize];
        stream.read_exact(&mut bytes).await?;
        Ok(bytes)
    }

    /// Serves one connection with the root as the only node, and sends the number of each request to `xids`.
    async fn serve(mut stream: TcpStream, xids: mpsc::UnboundedSender<i32>) -> std::io::Result<()> {
        read_frame(&mut stream).await?;
        let granted = ConnectResponse {
            timeout_ms: 4000,
            session_id: 7,
            password: vec![0; 16],
            read_only: Some(false),
            ..Default::default()
        };
        stream.write_all(&frame(|to| granted.encode(to))).await?;
        loop {
            let request = read_frame(&mut stream).await?;
            let header = RequestHeader::decode(&mut curator_wire::Reader::new(&request)).unwrap();
            let is_root = request.windows(5).any(|bytes| bytes == [0, 0, 0, 1, b'/']);
            let err = match header.op {
                OpCode::CloseSession => return Ok(()),
                OpCode::Exists if !is_root => ErrorCode::NoNode.code(),
                _ => 0,
            };
            if header.xid > 0 {
                xids.send(header.xid).unwrap();
            }
            let reply = frame(|to| {
                ReplyHeader { xid: header.xid, zxid: 1, err }.encode(to);
                if header.op == OpCode::Exists && err == 0 {
                    curator_wire::Stat::default().encode(to);
                }
            });
            stream.write_all(&reply).await?;
        }
    }

    #[tokio::test]
    async fn session_ends_before_the_numbers_of_the_requests_run_out() {
        const MAX: u64 = 10;
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let config = ConnectConfig::for_tests(vec![listener.local_addr().unwrap().to_string()]);
        let (xids, mut numbers) = mpsc::unbounded_channel();
        let server = tokio::spawn(async move {
            loop {
                let (stream, _) = listener.accept().await.unwrap();
                tokio::spawn(serve(stream, xids.clone()));
            }
        });
        let Connection { handle, mut events, epoch, .. } =
            ZooKeeperAsyncFactory::connect_for(MAX, &config).await.unwrap();
        let exists = || handle.submit(Request::Exists { path: "/".into(), watch: false }, epoch);
        let mut answered = 0;
        let refused = loop {
            match exists().await.result {
                Ok(_) => answered += 1,
                Err(error) => break error,
            }
            assert!(answered <= MAX, "the session goes on");
        };
        assert!(matches!(refused, Error::SessionExpired { .. }), "{refused}");
        // The other two were the probes of the connection.
        assert_eq!(answered, MAX - 2);
        assert_eq!(events.recv().await, Some(HandleEvent::Ended(SessionEnd::ClientFailed)));
        handle.closed().await;
        server.abort();
        // The request that ended the session, and the read before its close.
        let last = std::iter::from_fn(|| numbers.try_recv().ok()).max().unwrap();
        assert!(i64::from(last) <= MAX as i64 + 2, "{last} requests");
    }
}

//! The task of one session, which proves its connections and closes it.

use std::convert::Infallible;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Waker};

use futures_util::stream::{FuturesUnordered, StreamExt as _};
use tokio::sync::mpsc;
use zookeeper_async::ZkError;

use super::link::Link;
use super::session_proof::VerifiedConnection;
use super::window::{DriverCommand, Shared, number_of};
use super::{CLIENT, RETRY_PAUSE};
use crate::environment::randomness::nonexistent_path;
use crate::error::{Chain, ConnectError};
use crate::zookeeper::{HandleEvent, Reattached, SessionEnd};

/// The handle's task.
pub(super) struct Monitor {
    pub(super) shared: Arc<Shared>,
    pub(super) events: mpsc::UnboundedSender<HandleEvent>,
    pub(super) running: FuturesUnordered<Pin<Box<dyn Future<Output = ()> + Send>>>,
    pub(super) driven: mpsc::UnboundedReceiver<DriverCommand>,
    /// Ends when the crate's tasks drop the event closure.
    pub(super) crate_gone: mpsc::Receiver<Infallible>,
}

impl Monitor {
    pub(super) async fn run(mut self) {
        let end = self.watch_over().await;
        self.shared.end_because(end);
        self.shared.refuse_waiting();
        self.drive(DriverCommand::All);
        self.tell(HandleEvent::Ended(end));
        self.close().await;
    }

    fn drive(&mut self, what: DriverCommand) {
        match what {
            DriverCommand::One(request) => self.running.push(Box::pin(request.finish())),
            DriverCommand::All => {
                let requests = self.shared.take_over().into_iter();
                self.running.extend(requests.map(|request| Box::pin(request.finish()) as _));
            }
        }
    }

    fn tell(&self, event: HandleEvent) {
        // Without a receiver the handle was dropped, and its drop ends the monitor.
        let _gone = self.events.send(event);
    }

    fn tell_connected(&self, VerifiedConnection { epoch, sent, leader_sent }: VerifiedConnection) {
        // Under this lock no watch of this connection delivers an event before the report.
        let _no_event = self.shared.ephemerals.lock();
        self.shared.link.send_modify(|link| link.proven(epoch));
        let (timeout, epoch) = (self.shared.negotiated, number_of(epoch));
        self.tell(HandleEvent::Reconnected(Reattached { sent, leader_sent, timeout, epoch }));
    }

    fn on_lost(&mut self, told_connected: &mut bool) {
        self.shared.refuse_waiting();
        self.drive(DriverCommand::All);
        if std::mem::take(told_connected) {
            self.tell(HandleEvent::Disconnected(ConnectError::new(CLIENT, "the connection was lost").in_session()));
        }
    }

    async fn watch_over(&mut self) -> SessionEnd {
        let (mut links, mut epoch, mut told_connected) = (self.shared.link.subscribe(), 0, false);
        let mut establishing: Option<Pin<Box<dyn Future<Output = _> + Send>>> =
            Some(Box::pin(Arc::clone(&self.shared).verify_until_ok()));
        loop {
            let is_news = |link: &Link| link.end().is_some() || link.epoch() != epoch;
            tokio::select! {
                biased;
                // Never an error: the sender is in `self`.
                Ok(link) = async { links.wait_for(is_news).await.map(|link| *link) } => {
                    if let Some(end) = link.end() {
                        return end;
                    }
                    epoch = link.epoch();
                    self.on_lost(&mut told_connected);
                    establishing.get_or_insert_with(|| Box::pin(Arc::clone(&self.shared).verify_until_ok()));
                }
                _ = self.crate_gone.recv() => return SessionEnd::ClientFailed,
                Some(what) = self.driven.recv() => self.drive(what),
                Some(()) = self.running.next() => {}
                proof = async { match &mut establishing { Some(future) => future.await, None => std::future::pending().await } } => {
                    establishing = None;
                    match proof {
                        // A loss in between is reported next.
                        Ok(verified) => self.tell_connected(verified),
                        // An expiry has its own reason.
                        Err(SessionEnd::Inconsistent) => self.shared.end_because(SessionEnd::Inconsistent),
                        Err(end) => return end,
                    }
                    told_connected = true;
                }
            }
        }
    }

    /// Closes the session behind all requests in the crate's queue, and repeats that until it is sent: a reconnect
    /// discards the queue. The crate cannot be stopped otherwise, and would keep an abandoned session alive.
    async fn close(mut self) {
        loop {
            let shared = Arc::clone(&self.shared);
            let closing = async move {
                // The crate drops the connection as soon as the close is written. So the close needs a connection that
                // has just carried a reply: not a broken one, and not one that still waits for its connect response.
                shared.connected().await;
                shared.count_request();
                match shared.zookeeper.exists(&nonexistent_path(&*shared.randomness), false).await {
                    Err(ZkError::ConnectionLoss) => Err(ZkError::ConnectionLoss),
                    _answered => shared.zookeeper.close().await,
                }
            };
            tokio::pin!(closing);
            let closed = loop {
                tokio::select! {
                    biased;
                    closed = &mut closing => break closed,
                    Some(what) = self.driven.recv() => self.drive(what),
                    Some(()) = self.running.next() => {}
                }
            };
            match closed {
                Ok(()) => return,
                // Without its tasks the crate refuses at once, and its connection is gone too.
                Err(_) if self.crate_gone.is_closed() && self.shared.is_dead() => return,
                Err(error) => tracing::debug!(error = %Chain(&error), "the session is not closed yet"),
            }
            tokio::time::sleep(RETRY_PAUSE).await;
        }
    }
}

impl Shared {
    /// Returns `true` if the crate's I/O task is gone: its queue then refuses every request at once.
    fn is_dead(&self) -> bool {
        let path = nonexistent_path(&*self.randomness);
        self.count_request();
        let asking = std::pin::pin!(self.zookeeper.exists(&path, false));
        asking.poll(&mut Context::from_waker(Waker::noop())).is_ready()
    }
}

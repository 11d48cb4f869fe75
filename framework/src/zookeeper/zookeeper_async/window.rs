//! The requests of one session inside the crate, and those that wait for a slot.

use std::future::Future;
use std::panic::AssertUnwindSafe;
use std::pin::Pin;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Weak};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use futures_util::FutureExt as _;
use parking_lot::{Mutex, MutexGuard};
use tokio::sync::{mpsc, watch};
use tokio::time::timeout;
use zookeeper_async::{ZkError, ZooKeeper};

use super::FIRST_CONNECT;
use super::convert::crate_request;
use super::ephemerals::Ephemerals;
use super::in_flight;
use super::link::Link;
use super::slots::SlotQueue;
use crate::environment::clock::Clock;
use crate::environment::randomness::Randomness;
use crate::error::{Error, PathText};
use crate::model::AuthInfo;
use crate::sync::report::report;
use crate::zookeeper::{Reply, Request, SessionEnd};

/// The most requests inside the crate. Its queue has 64 slots; the rest is for probe, credentials, heartbeat, close
/// and its own ping.
pub(super) const PLACES: usize = 58;

/// The state that handle, callback and monitor share.
pub(super) struct Shared {
    pub(super) zookeeper: ZooKeeper,
    pub(super) clock: Arc<dyn Clock>,
    pub(super) randomness: Arc<dyn Randomness>,
    pub(super) negotiated: Duration,
    pub(super) auth: Vec<AuthInfo>,
    /// Written by the state callback, and by everything that ends the handle.
    pub(super) link: watch::Sender<Link>,
    /// The number of requests that the crate has numbered, or may have. Its own pings have a reserved number.
    pub(super) requests: AtomicU64,
    pub(super) max_requests: u64,
    pub(super) slots: SlotQueue<Submission>,
    /// Held during the first poll of a request's future, when the crate takes the request: one by one, none waits for
    /// another there.
    pub(super) submitting: Mutex<()>,
    /// The requests that their callers drive.
    pub(super) in_flight: Mutex<Vec<Weak<InFlight>>>,
    /// The requests for the monitor to drive.
    pub(super) commands: mpsc::UnboundedSender<DriverCommand>,
    /// The name of the node that shows the session's id. A proof that was cut off may leave one.
    pub(super) identity: String,
    pub(super) ephemerals: Arc<Mutex<Ephemerals>>,
}

pub(super) type InFlight = in_flight::InFlight<Option<Slot>>;

pub(super) type Responder = in_flight::Responder<Option<Slot>>;

pub(super) type RequestDriver = in_flight::RequestDriver<Option<Slot>>;

/// A request that was not started. Its data is apart, because the crate takes it by value.
pub(super) struct Submission {
    pub(super) data: Vec<u8>,
    /// The only connection on which the request may be sent.
    pub(super) epoch: u64,
    pub(super) answer: Responder,
}

impl Submission {
    pub(super) fn new(mut request: Request, epoch: u64) -> (Self, Arc<InFlight>) {
        let data = match &mut request {
            Request::Create { data, .. } | Request::SetData { data, .. } => std::mem::take(data),
            _ => Vec::new(),
        };
        let (in_flight, answer) = InFlight::new(request);
        (Self { data, epoch, answer }, in_flight)
    }

    /// Replies that the request was not sent.
    pub(super) fn refuse(self, error: impl FnOnce(PathText) -> Error) {
        let error = error(self.answer.in_flight().request().to_string().into());
        self.answer.send(Reply::not_sent(error));
    }
}

/// A request's slot inside the crate, freed when it is dropped.
pub(super) struct Slot(pub(super) Arc<Shared>);

impl Drop for Slot {
    fn drop(&mut self) {
        self.0.leave_slot();
    }
}

/// The requests that the monitor drives from now on.
pub(super) enum DriverCommand {
    /// A request that its caller has dropped, or that has waited for a slot.
    One(RequestDriver),
    /// All requests that callers drive: another one waits for a slot, or the connection is gone.
    All,
}

/// The future of a reply. Dropping it leaves the request to the monitor.
pub(super) struct PendingReply {
    pub(super) shared: Arc<Shared>,
    pub(super) in_flight: Arc<InFlight>,
}

impl Future for PendingReply {
    type Output = Reply;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Reply> {
        let reply = std::task::ready!(self.in_flight.poll(cx));
        // Without the monitor the request's outcome is unknown.
        Poll::Ready(reply.unwrap_or_else(|| {
            let request = self.in_flight.request().to_string().into();
            Reply::not_sent(Error::ConnectionLoss { request, sent: true, cause: None })
        }))
    }
}

impl Drop for PendingReply {
    fn drop(&mut self) {
        if let Some(driven) = self.in_flight.cancel() {
            self.shared.leave_to_monitor(driven);
        }
    }
}

/// Returns the framework's number of a connection, which counts from 1.
pub(super) const fn number_of(epoch: u64) -> u64 {
    epoch + 1
}

impl Shared {
    pub(super) fn has_ended(&self) -> bool {
        self.link.borrow().end().is_some()
    }

    pub(super) fn epoch(&self) -> u64 {
        self.link.borrow().epoch()
    }

    pub(super) fn is_ready(&self, epoch: u64) -> bool {
        self.link.borrow().is_proven(epoch)
    }

    /// Sends a request without a slot: a probe, which is alone, or a heartbeat, which must not wait.
    pub(super) async fn send(self: &Arc<Self>, request: Request, epoch: u64) -> Reply {
        let (asked, in_flight) = Submission::new(request, epoch);
        let driven = self.begin(asked, None, &self.submitting.lock());
        self.leave_to_caller(&in_flight, driven, epoch);
        PendingReply { shared: Arc::clone(self), in_flight }.await
    }

    fn leave_to_monitor(&self, driven: RequestDriver) {
        // Without a monitor the handle has ended, and the dropped request notifies its caller.
        let _monitor_gone = self.commands.send(DriverCommand::One(driven));
    }

    pub(super) fn leave_to_caller(&self, request: &Arc<InFlight>, driven: RequestDriver, epoch: u64) {
        request.hand_to_caller(driven);
        {
            let mut in_flight = self.in_flight.lock();
            if in_flight.len() >= 2 * PLACES {
                in_flight.retain(|request| request.strong_count() > 0);
            }
            in_flight.push(Arc::downgrade(request));
        }
        // The monitor may have taken over all requests just before this one was added.
        if self.epoch() != epoch || self.has_ended() {
            if let Some(driven) = request.take() {
                self.leave_to_monitor(driven);
            }
        }
    }

    /// Takes all requests from their callers.
    pub(super) fn take_over(&self) -> Vec<RequestDriver> {
        let in_flight = std::mem::take(&mut *self.in_flight.lock());
        in_flight.into_iter().filter_map(|request| request.upgrade()?.take()).collect()
    }

    /// Passes a request to the crate. The result must be driven until the reply arrives.
    ///
    /// The crate takes a request at its future's first poll, unless it is taking another. So the caller holds the lock,
    /// and the poll ignores the task's budget.
    fn begin(self: &Arc<Self>, asked: Submission, place: Option<Slot>, _alone: &MutexGuard<'_, ()>) -> RequestDriver {
        let Submission { data, epoch, answer } = asked;
        let in_flight = Arc::clone(answer.in_flight());
        self.count_request();
        let sent = self.clock.now();
        let shared = Arc::clone(self);
        let mut reply: Pin<Box<dyn Future<Output = Reply> + Send>> = Box::pin(async move {
            // The crate decodes a reply in the request's future, and panics on some replies.
            let answered =
                AssertUnwindSafe(crate_request(&shared.zookeeper, in_flight.request(), data)).catch_unwind().await;
            let answered = answered.unwrap_or(Err(ZkError::MarshallingError));
            let result = shared.judge(answered, epoch, in_flight.request());
            Reply { sent: Some(sent), epoch: number_of(epoch), zxid: 0, result }
        });
        let first = {
            let mut context = Context::from_waker(Waker::noop());
            std::pin::pin!(tokio::task::coop::unconstrained(&mut reply)).poll(&mut context)
        };
        if let Poll::Ready(refused) = first {
            reply = Box::pin(std::future::ready(refused));
        }
        RequestDriver { reply, answer, occupied: place }
    }

    /// Counts a request that the crate numbers, and ends the session before the numbers run out.
    pub(super) fn count_request(&self) {
        if self.requests.fetch_add(1, Ordering::SeqCst) >= self.max_requests {
            self.end_because(SessionEnd::ClientFailed);
            let requests = self.max_requests;
            report(move || tracing::warn!(requests, "the crate's request numbers run out: the handle ends"));
        }
    }

    /// Ends the handle. The first reason stays.
    pub(super) fn end_because(&self, end: SessionEnd) {
        self.link.send_modify(|link| link.ended(end));
    }

    /// Waits until a server has accepted the crate's connect. Returns the epoch.
    pub(super) async fn connected(&self) -> u64 {
        let mut link = self.link.subscribe();
        loop {
            let epoch = self.epoch();
            // Never an error: the sender is in `self`.
            let connected = link.wait_for(|link| link.is_up() || link.epoch() != epoch);
            if epoch == 0 {
                // The crate may have reported the first connection before the listener was added.
                let _told = timeout(FIRST_CONNECT, connected).await;
            } else {
                let _told = connected.await;
            }
            if self.epoch() == epoch {
                return epoch;
            }
        }
    }

    /// Starts a request that has a slot; `None` if its caller has dropped it, or if it is refused.
    pub(super) fn begin_in_slot(
        self: &Arc<Self>,
        asked: Submission,
        alone: &MutexGuard<'_, ()>,
    ) -> Option<(RequestDriver, u64)> {
        let epoch = asked.epoch;
        // Without a monitor the dropped request ends as lost for its caller.
        if asked.answer.in_flight().is_over() || self.commands.is_closed() {
            return None;
        }
        if self.has_ended() {
            asked.refuse(|request| Error::SessionExpired { request });
            return None;
        }
        if !self.is_ready(epoch) {
            asked.refuse(|request| Error::ConnectionLoss { request, sent: false, cause: None });
            return None;
        }
        Some((self.begin(asked, Some(Slot(Arc::clone(self))), alone), epoch))
    }

    /// Passes a slot on to the next request in the queue that can start.
    pub(super) fn leave_slot(self: &Arc<Self>) {
        loop {
            let begun = {
                // Under the lock, queued requests start in their order. A caller's clean-up needs the lock too, so a
                // request that the caller has dropped never starts after its clean-up.
                let alone = self.submitting.lock();
                let Some(next) = self.slots.leave() else { return };
                self.begin_in_slot(next, &alone)
            };
            if let Some((driven, _)) = begun {
                return self.leave_to_monitor(driven);
            }
        }
    }

    /// Refuses the queued requests: they were not sent, and must not wait for another connection.
    pub(super) fn refuse_waiting(&self) {
        for asked in self.slots.take_waiting() {
            asked.refuse(|request| Error::ConnectionLoss { request, sent: false, cause: None });
        }
    }
}

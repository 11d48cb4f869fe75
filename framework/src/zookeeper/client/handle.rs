//! The caller's end of a session.

use std::fmt;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::watch;

use super::link::{Gathering, SessionIo};
use super::{CAPABILITIES, CLIENT};
use crate::environment::randomness::nonexistent_path;
use crate::model::{AddWatchMode, AuthInfo, WatchKind};
use crate::zookeeper::{
    AddedWatch, Capabilities, Evidence, NotificationCall, Reply, ReplyFuture, Request, Response, Resync, WatchEvents,
    ZooKeeperHandle,
};

/// The caller's end of a session.
pub(super) struct Handle {
    pub(super) shared: Arc<SessionIo>,
    pub(super) closed: watch::Receiver<bool>,
}

impl fmt::Debug for Handle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let link = self.shared.link.lock();
        f.debug_struct("Handle")
            .field("session", &format_args!("{:#x}", link.protocol.session_id().unwrap_or_default()))
            .field("over", &link.protocol.over())
            .finish_non_exhaustive()
    }
}

impl ZooKeeperHandle for Handle {
    fn submit(&self, request: Request, epoch: u64) -> ReplyFuture {
        self.shared.send(|protocol, token, now| protocol.submit(request, epoch, token, now))
    }

    fn write_together(&self, submit: &mut dyn FnMut()) {
        let _gathering = Gathering::new(&self.shared);
        submit();
    }

    fn heartbeat(&self, evidence: Evidence) -> ReplyFuture {
        self.shared.send(|protocol, token, now| match evidence {
            Evidence::Leader => protocol.heartbeat(nonexistent_path(&*self.shared.randomness).into(), token, now),
            Evidence::AnyServer => protocol.ping(token, now),
        })
    }

    fn negotiated_timeout(&self) -> Duration {
        self.shared.link.lock().protocol.timeout()
    }

    fn session_id(&self) -> Option<i64> {
        self.shared.link.lock().protocol.session_id()
    }

    fn add_auth(&self, auth: &AuthInfo) {
        let mut link = self.shared.link.lock();
        link.protocol.add_auth(auth);
        link.flush_some_time();
    }

    fn set_owning(&self, owning: bool) {
        self.shared.link.lock().protocol.set_owning(owning, self.shared.clock.now());
    }

    fn capabilities(&self) -> Capabilities {
        CAPABILITIES
    }

    fn add_watch(&self, path: &str, mode: AddWatchMode, resync: Option<Arc<dyn Resync>>) -> AddedWatch {
        let (to, events) = WatchEvents::channel();
        let mut id = 0;
        let reply = self.shared.send(|protocol, token, now| {
            let unsent;
            (id, unsent) = protocol.add_watch(path, mode, resync, to, token, now)?;
            if let Some(token) = unsent {
                let reply = Reply { sent: None, epoch: 0, zxid: 0, result: Ok(Response::Acknowledged) };
                // Never an error: the receiver still exists.
                let _received = token.send(reply);
            }
            Ok(())
        });
        let (shared, path) = (Arc::clone(&self.shared), path.to_owned());
        // The watch is removed even if the future is dropped before the reply.
        let events = events.on_drop(move || {
            let mut link = shared.link.lock();
            link.protocol.unsubscribe(&path, mode, id, shared.clock.now());
            link.flush_some_time();
        });
        Box::pin(async move { reply.await.result.map(|_acknowledged| events) })
    }

    fn forget_watch(&self, path: &str, kind: WatchKind) {
        let mut link = self.shared.link.lock();
        link.protocol.forget(path, kind, self.shared.clock.now());
        link.flush_some_time();
    }

    fn is_read_only(&self) -> bool {
        self.shared.link.lock().read_only
    }

    fn client(&self) -> &'static str {
        CLIENT
    }

    fn end(&self) {
        self.shared.end();
    }

    fn on_task_dropped(&self, call: Box<dyn FnOnce() + Send>) {
        *self.shared.task_dropped.lock() = Some(call);
    }

    fn on_notification(&self, call: NotificationCall) {
        // The session sets it once, before it sends a read.
        let _first = self.shared.notify.set(call);
    }

    fn closed(&self) -> Pin<Box<dyn Future<Output = ()> + Send>> {
        let mut closed = self.closed.clone();
        Box::pin(async move {
            // An error means that the task is gone, and the connection with it.
            let _gone = closed.wait_for(|&closed| closed).await;
        })
    }
}

impl Drop for Handle {
    fn drop(&mut self) {
        self.shared.end();
    }
}

//! The handle of one session of the crate.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::watch;

use super::CLIENT;
use super::convert::refused_here;
use super::window::{DriverCommand, PendingReply, Shared, Submission, number_of};
use crate::environment::randomness::nonexistent_path;
use crate::error::Error;
use crate::zookeeper::{Capabilities, Evidence, Reply, ReplyFuture, Request, SessionEnd, ZooKeeperHandle};

/// One session of the crate.
pub(super) struct Handle {
    pub(super) shared: Arc<Shared>,
    pub(super) closed: watch::Receiver<bool>,
}

impl fmt::Debug for Handle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ZookeeperAsyncHandle")
            .field("ended", &self.shared.has_ended())
            .field("epoch", &self.shared.epoch())
            .finish_non_exhaustive()
    }
}

impl ZooKeeperHandle for Handle {
    fn submit(&self, request: Request, epoch: u64) -> ReplyFuture {
        if let Some(error) = refused_here(&request) {
            return ReplyFuture::new(std::future::ready(Reply::not_sent(error)));
        }
        let shared = Arc::clone(&self.shared);
        let current = shared.epoch();
        let (asked, in_flight) = Submission::new(request, current);
        // A request does not wait in the queue for a connection.
        let is_current = number_of(current) == epoch && shared.is_ready(current);
        if !is_current && !shared.has_ended() {
            asked.refuse(|request| Error::ConnectionLoss { request, sent: false, cause: None });
        } else if let Some(asked) = shared.slots.enter(asked) {
            let begun = shared.begin_in_slot(asked, &shared.submitting.lock());
            match begun {
                Some((driven, epoch)) => shared.leave_to_caller(&in_flight, driven, epoch),
                None => shared.leave_slot(),
            }
        } else {
            // A caller that has a slot may not poll: from now on the monitor drives its request.
            let _monitor_gone = shared.commands.send(DriverCommand::All);
        }
        ReplyFuture::new(PendingReply { shared, in_flight })
    }

    fn heartbeat(&self, evidence: Evidence) -> ReplyFuture {
        let shared = Arc::clone(&self.shared);
        ReplyFuture::new(async move {
            let path = nonexistent_path(&*shared.randomness);
            let request = match evidence {
                Evidence::Leader => Request::Delete { path: path.into(), version: None },
                Evidence::AnyServer => Request::Exists { path: path.into(), watch: false },
            };
            let epoch = shared.epoch();
            if !shared.is_ready(epoch) {
                let request = request.to_string().into();
                return Reply::not_sent(Error::ConnectionLoss { request, sent: false, cause: None });
            }
            shared.send(request, epoch).await
        })
    }

    fn negotiated_timeout(&self) -> Duration {
        self.shared.negotiated
    }

    fn session_id(&self) -> Option<i64> {
        self.shared.ephemerals.lock().session_id()
    }

    fn capabilities(&self) -> Capabilities {
        Capabilities::default()
    }

    fn client(&self) -> &'static str {
        CLIENT
    }

    fn end(&self) {
        self.shared.end_because(SessionEnd::Closed);
    }

    fn closed(&self) -> Pin<Box<dyn Future<Output = ()> + Send>> {
        let mut closed = self.closed.clone();
        Box::pin(async move {
            // An error means that the monitor is gone, and the session with it.
            let _gone = closed.wait_for(|&closed| closed).await;
        })
    }
}

impl Drop for Handle {
    fn drop(&mut self) {
        self.end();
    }
}

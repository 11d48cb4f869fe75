//! A request between its caller, the task that drives it, and its reply.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use parking_lot::Mutex;

use crate::zookeeper::{Reply, Request};

/// A submitted request. `P` is what it occupies until its reply.
pub(crate) struct InFlight<P> {
    request: Request,
    state: Mutex<State<P>>,
}

struct State<P> {
    stage: Stage<P>,
    /// The caller's waker.
    waker: Option<Waker>,
}

enum Stage<P> {
    /// The request is queued, or another task drives it.
    Elsewhere,
    /// The caller drives the request. `RequestDriver` refers back to it, so it must be taken out in the end.
    Here(RequestDriver<P>),
    Answered(Reply),
    /// No task is left that could reply.
    Forsaken,
    /// The caller has the reply, or is gone.
    Over,
}

/// A request that was sent, the sender of its reply, and what it occupies.
pub(crate) struct RequestDriver<P> {
    pub(crate) reply: Pin<Box<dyn Future<Output = Reply> + Send>>,
    pub(crate) answer: Responder<P>,
    pub(crate) occupied: P,
}

/// The sender of a reply. Dropping it notifies the caller that no reply will come.
pub(crate) struct Responder<P>(Arc<InFlight<P>>);

impl<P> InFlight<P> {
    pub(crate) fn new(request: Request) -> (Arc<Self>, Responder<P>) {
        let state = Mutex::new(State { stage: Stage::Elsewhere, waker: None });
        let own = Arc::new(Self { request, state });
        (Arc::clone(&own), Responder(own))
    }

    pub(crate) fn request(&self) -> &Request {
        &self.request
    }

    /// Lets the caller drive the request from now on.
    pub(crate) fn hand_to_caller(&self, driven: RequestDriver<P>) {
        self.state.lock().stage = Stage::Here(driven);
    }

    /// Takes the request from its caller, if the caller drives it.
    pub(crate) fn take(&self) -> Option<RequestDriver<P>> {
        let stage = &mut self.state.lock().stage;
        match stage {
            Stage::Here(_) => std::mem::replace(stage, Stage::Elsewhere).into_driven(),
            _ => None,
        }
    }

    /// Records that the caller is gone. Returns the request that it drove, for another task to finish.
    pub(crate) fn cancel(&self) -> Option<RequestDriver<P>> {
        let stage = std::mem::replace(&mut self.state.lock().stage, Stage::Over);
        stage.into_driven()
    }

    /// Returns `true` if the caller has the reply, or is gone.
    pub(crate) fn is_over(&self) -> bool {
        matches!(self.state.lock().stage, Stage::Over)
    }

    /// Drives the request, if the caller does, and resolves with the reply; `None` if none will come.
    pub(crate) fn poll(&self, cx: &mut Context<'_>) -> Poll<Option<Reply>> {
        let mut state = self.state.lock();
        let reply = match &mut state.stage {
            Stage::Here(driven) => match driven.reply.as_mut().poll(cx) {
                Poll::Ready(reply) => Some(reply),
                Poll::Pending => None,
            },
            Stage::Elsewhere => None,
            Stage::Answered(_) | Stage::Forsaken | Stage::Over => {
                let stage = std::mem::replace(&mut state.stage, Stage::Over);
                return Poll::Ready(match stage {
                    Stage::Answered(reply) => Some(reply),
                    _ => None,
                });
            }
        };
        if reply.is_none() {
            if !state.waker.as_ref().is_some_and(|waker| waker.will_wake(cx.waker())) {
                state.waker = Some(cx.waker().clone());
            }
            return Poll::Pending;
        }
        let driven = std::mem::replace(&mut state.stage, Stage::Over);
        // Dropped without the lock: the answerer's drop takes it.
        drop(state);
        drop(driven);
        Poll::Ready(reply)
    }
}

impl<P> Stage<P> {
    fn into_driven(self) -> Option<RequestDriver<P>> {
        match self {
            Self::Here(driven) => Some(driven),
            _ => None,
        }
    }
}

impl<P> RequestDriver<P> {
    /// Drives the request until its reply, and sends that to the caller.
    pub(crate) async fn finish(self) {
        let Self { reply, answer, occupied } = self;
        answer.send(reply.await);
        drop(occupied);
    }
}

impl<P> Responder<P> {
    pub(crate) fn in_flight(&self) -> &Arc<InFlight<P>> {
        &self.0
    }

    pub(crate) fn send(self, reply: Reply) {
        self.end(Stage::Answered(reply));
    }

    /// Ends the request for a waiting caller. Changes nothing if the caller itself drives it.
    fn end(&self, stage: Stage<P>) {
        let waker = {
            let mut state = self.0.state.lock();
            if !matches!(state.stage, Stage::Elsewhere) {
                return;
            }
            state.stage = stage;
            state.waker.take()
        };
        if let Some(waker) = waker {
            waker.wake();
        }
    }
}

impl<P> Drop for Responder<P> {
    fn drop(&mut self) {
        self.end(Stage::Forsaken);
    }
}

#[cfg(test)]
mod tests {
    use std::future::poll_fn;
    use std::sync::Weak;
    use std::time::Duration;

    use tokio::sync::oneshot;
    use tokio::task::JoinHandle;

    use super::*;
    use crate::zookeeper::Response;

    type Own = Arc<InFlight<Arc<()>>>;

    fn asked() -> (Own, Responder<Arc<()>>) {
        InFlight::new(Request::GetChildren { path: "/a".into(), watch: false })
    }

    fn reply() -> Reply {
        Reply { sent: Some(Duration::from_secs(7)), epoch: 1, zxid: 0, result: Ok(Response::Deleted) }
    }

    /// Returns a request, the sender that triggers its reply, and a weak reference to what it occupies.
    fn driven(answer: Responder<Arc<()>>) -> (RequestDriver<Arc<()>>, oneshot::Sender<()>, Weak<()>) {
        let (word, told) = oneshot::channel::<()>();
        let in_flight = Arc::clone(answer.in_flight());
        let reply = Box::pin(async move {
            told.await.unwrap();
            drop(in_flight);
            reply()
        });
        let occupied = Arc::new(());
        let occupies = Arc::downgrade(&occupied);
        (RequestDriver { reply, answer, occupied }, word, occupies)
    }

    /// Spawns a caller that waits for the reply, and then returns the moment at which the request was sent.
    async fn waiting(own: &Own) -> JoinHandle<Option<Duration>> {
        let own = Arc::clone(own);
        let waits = tokio::spawn(async move { poll_fn(|cx| own.poll(cx)).await?.sent });
        tokio::task::yield_now().await;
        assert!(!waits.is_finished());
        waits
    }

    #[tokio::test]
    async fn caller_drives_its_request() {
        let (own, answer) = asked();
        let (driven, word, occupies) = driven(answer);
        own.hand_to_caller(driven);
        let waits = waiting(&own).await;
        assert!(occupies.upgrade().is_some());
        word.send(()).unwrap();
        assert_eq!(waits.await.unwrap(), reply().sent);
        assert!(own.is_over() && occupies.upgrade().is_none());
        assert_eq!(Arc::strong_count(&own), 1, "it keeps itself");
    }

    #[tokio::test]
    async fn another_client_takes_it_over_during_the_wait() {
        let (own, answer) = asked();
        let (driven, word, occupies) = driven(answer);
        own.hand_to_caller(driven);
        let waits = waiting(&own).await;
        let taken = own.take().unwrap();
        assert!(own.take().is_none());
        word.send(()).unwrap();
        taken.finish().await;
        assert_eq!(waits.await.unwrap(), reply().sent);
        assert!(occupies.upgrade().is_none());
        assert_eq!(Arc::strong_count(&own), 1);
    }

    #[tokio::test]
    async fn responder_that_is_dropped_ends_the_request() {
        let (own, answer) = asked();
        let waits = waiting(&own).await;
        drop(answer);
        assert!(waits.await.unwrap().is_none());
    }

    #[tokio::test]
    async fn caller_that_is_dropped_hands_its_request_over() {
        let (own, answer) = asked();
        let (driven, word, occupies) = driven(answer);
        own.hand_to_caller(driven);
        let left = own.cancel().unwrap();
        assert!(own.is_over() && occupies.upgrade().is_some());
        word.send(()).unwrap();
        left.finish().await;
        assert!(own.is_over() && occupies.upgrade().is_none());
        let (own, answer) = asked();
        answer.send(reply());
        assert!(own.cancel().is_none() && own.is_over());
    }
}

//! An optimisation: contenders of one lock in one session share listings, and the write that orders them.
//!
//! A listing that was sent after a contender asked for one is as good as its own. An older one of the same connection
//! shows at least which nodes a contender has ahead: none ever joins there. So of thousands that lose a reply or the node
//! ahead at once, one lists. `tests/integration/tests/cost/queues.rs` shows it.
//!
//! A request is a [`Shared`] future: each contender that awaits it drives it. So a contender that is dropped, or not
//! polled, delays no other, and none has to list for itself because the server is slow.

use std::sync::{Arc, OnceLock};

use curator_framework::{Error, Session};
use futures_util::FutureExt as _;
use futures_util::future::{BoxFuture, Shared, WeakShared};
use parking_lot::Mutex;

use crate::engine::driver::SortedChildren;
use crate::engine::internals::LockInternals;
use crate::engine::plan::Epoch;
use crate::engine::requests::children_of;

/// The contenders ahead that an earlier listing is asked for, if it has so many: at least, and of a long listing at most.
/// With fewer ahead, each of them and the contender's node are read one by one rather than listed.
const NEAREST: [usize; 2] = [6, 64];
/// The size of a listing for each such read: the replies to the reads are smaller than those to the listing.
const LISTED_A_READ: usize = 8;

/// The state that the contenders of one lock share in one session.
#[derive(Debug, Default)]
pub(super) struct SharedReads {
    // Set by the first use: most contenders are alone.
    barriers: OnceLock<Arc<Requests<Epoch>>>,
    listings: OnceLock<Arc<Requests<Arc<Shown>>>>,
    newest: Mutex<Option<Snapshot>>,
}

/// The contenders of a lock, as a connection has shown them.
#[derive(Debug)]
pub(super) struct Shown {
    pub(super) epoch: Epoch,
    pub(super) queue: SortedChildren,
}

/// A contender, behind those ahead that an earlier listing has shown.
#[derive(Debug)]
pub(super) struct KnownAhead {
    pub(super) queue: SortedChildren,
    /// The contender waits for no other one.
    pub(super) is_all: bool,
}

/// A listing that the contenders keep.
#[derive(Debug)]
struct Snapshot {
    shown: Arc<Shown>,
    /// All before this position have left since: a contender of the session was first.
    first: usize,
    /// By position: the contender has left since.
    gone: Vec<bool>,
}

type Request<T> = BoxFuture<'static, Result<T, Error>>;

/// The requests of one kind. One is outstanding at a time.
#[derive(Debug)]
struct Requests<T> {
    turns: Mutex<Turns<T>>,
    /// Held while a contender polls a request.
    polls: Mutex<()>,
}

/// Weak: a request ends with the last contender that awaits it, and a later one does not get its reply.
#[derive(Debug)]
struct Turns<T> {
    sent: Option<WeakShared<Request<T>>>,
    next: Option<WeakShared<Request<T>>>,
}

impl<T> Default for Requests<T> {
    fn default() -> Self {
        Self { turns: Mutex::new(Turns { sent: None, next: None }), polls: Mutex::default() }
    }
}

impl<T: Clone + Send + Sync + 'static> Requests<T> {
    /// Returns the reply to the next request. All contenders share it that ask until it is sent, after the reply to the
    /// outstanding one. The first of them creates it.
    fn share(self: &Arc<Self>, create: impl FnOnce() -> Request<T>) -> impl Future<Output = Result<T, Error>> {
        let mut request = self.next(create);
        std::future::poll_fn(move |cx| {
            // A poll beside another one returns at once, and the reply may wake it before that. If the other contender is
            // then dropped or not polled any more, the request would end for neither (issue 2706 of futures-rs).
            let _turn = request.peek().is_none().then(|| self.polls.lock());
            request.poll_unpin(cx)
        })
    }

    fn next(self: &Arc<Self>, create: impl FnOnce() -> Request<T>) -> Shared<Request<T>> {
        let mut turns = self.turns.lock();
        if let Some(next) = turns.next.as_ref().and_then(WeakShared::upgrade) {
            return next;
        }
        let (requests, request) = (Arc::clone(self), create());
        let sent = turns.sent.as_ref().and_then(WeakShared::upgrade);
        let next = async move {
            if let Some(sent) = sent {
                // Its error is for those that have asked for it.
                drop(sent.await);
            }
            requests.next_is_sent();
            request.await
        };
        let next = next.boxed().shared();
        turns.next = next.downgrade();
        next
    }

    /// Records that the next request is sent: a contender that asks from now on shares a later one.
    fn next_is_sent(&self) {
        let mut turns = self.turns.lock();
        turns.sent = turns.next.take();
    }
}

impl SharedReads {
    /// Sends a write that changes nothing, or shares one. A later listing on its connection reflects every earlier write of
    /// the session. Returns the connection.
    pub(super) async fn order(&self, session: &Session) -> Result<Epoch, Error> {
        self.barriers.get_or_init(Arc::default).share(|| order(session.clone()).boxed()).await
    }

    /// Lists on the session's present connection, or shares a listing.
    pub(super) async fn list(self: &Arc<Self>, lock: &LockInternals, session: &Session) -> Result<Arc<Shown>, Error> {
        let create = || {
            let (reads, listing) = (Arc::clone(self), list(lock, session));
            let kept = async move {
                let shown = Arc::new(listing.await?);
                reads.keep(&shown);
                Ok(shown)
            };
            kept.boxed()
        };
        self.listings.get_or_init(Arc::default).share(create).await
    }

    /// Lists after a write that changes nothing, on one connection.
    pub(super) async fn list_in_order(
        self: &Arc<Self>,
        lock: &LockInternals,
        session: &Session,
    ) -> Result<Arc<Shown>, Error> {
        loop {
            let epoch = self.order(session).await?;
            let shown = self.list(lock, session).await?;
            if shown.epoch == epoch {
                return Ok(shown);
            }
        }
    }

    /// Forgets the newest listing.
    pub(super) fn forget(&self) {
        self.newest.lock().take();
    }

    fn keep(&self, shown: &Arc<Shown>) {
        // Near the end of the counter numbers do not show the order.
        if !shown.queue.is_near_the_end() {
            let gone = vec![false; shown.queue.len()];
            *self.newest.lock() = Some(Snapshot { shown: Arc::clone(shown), first: 0, gone });
        }
    }

    /// Records that the contender with this number was first, as a connection has shown.
    pub(super) fn was_first(&self, epoch: Epoch, number: i64) {
        if let Some(newest) = self.newest.lock().as_mut().filter(|newest| newest.shown.epoch == epoch) {
            newest.first = newest.first.max(newest.shown.queue.numbers_below(number));
        }
    }

    /// Records that a contender has left, as a connection has shown.
    pub(super) fn is_gone(&self, epoch: Epoch, number: i64, name: &str) {
        if let Some(newest) = self.newest.lock().as_mut().filter(|newest| newest.shown.epoch == epoch) {
            if let Some(position) = newest.shown.queue.position_of(number, name) {
                newest.gone[position] = true;
            }
        }
    }

    /// Returns a contender, and the [nearest](NEAREST) ahead that it waits for, of the newest listing of a connection,
    /// without those that are known to have left. `None` if the contender is not in it.
    pub(super) fn ahead_of(
        &self,
        epoch: Epoch,
        own: i64,
        name: &str,
        waits_for: impl Fn(&str) -> bool,
    ) -> Option<KnownAhead> {
        let newest = self.newest.lock();
        let newest = newest.as_ref().filter(|newest| newest.shown.epoch == epoch)?;
        let queue = &newest.shown.queue;
        let own = queue.position_of(own, name)?;
        let is_ahead = |position: &usize| !newest.gone[*position] && queue.get(*position).is_some_and(&waits_for);
        let mut ahead = (newest.first..own).rev().filter(is_ahead);
        let [least, most] = NEAREST;
        let nearest: Vec<_> = ahead.by_ref().take((queue.len() / LISTED_A_READ).clamp(least, most)).collect();
        let is_all = ahead.next().is_none();
        Some(KnownAhead { queue: queue.at(nearest.into_iter().rev().chain([own])), is_all })
    }
}

/// Sends a write that changes nothing. Returns its connection.
pub(super) async fn order(session: Session) -> Result<Epoch, Error> {
    let at = session.pinned();
    at.write_barrier().await?;
    Ok(at.epoch())
}

/// Lists on the connection that the session has when the future is polled.
fn list(lock: &LockInternals, session: &Session) -> impl Future<Output = Result<Shown, Error>> + Send + use<> {
    let (session, base_path) = (session.clone(), lock.base_path.clone());
    let (lock_name, driver) = (lock.spec.lock_name, Arc::clone(&lock.spec.driver));
    async move {
        let at = session.pinned();
        let children = children_of(&at, &base_path).await?;
        // The locks that share listings have no further patterns.
        Ok(Shown { epoch: at.epoch(), queue: SortedChildren::new(children, lock_name, &*driver) })
    }
}

#[cfg(test)]
mod tests {
    use std::pin::pin;
    use std::sync::mpsc;
    use std::task::{Context, Poll, Waker};
    use std::time::Duration;

    use futures_util::poll;
    use tokio::sync::oneshot;

    use super::*;
    use crate::engine::driver::StandardLockInternalsDriver;

    fn shown(epoch: Epoch, numbers: impl IntoIterator<Item = i64>) -> Arc<Shown> {
        let names = numbers.into_iter().map(|number| format!("lock-{number}"));
        Arc::new(Shown { epoch, queue: SortedChildren::new(names, "lock-", &StandardLockInternalsDriver) })
    }

    #[test]
    fn an_older_listing_shows_the_nearest_contender_that_has_not_gone() {
        let reads = SharedReads::default();
        reads.keep(&shown(1, 1..=6));
        let ahead_of = |own: i64, gone: i64| {
            reads.is_gone(1, gone, &format!("lock-{gone}"));
            let found = reads.ahead_of(1, own, &format!("lock-{own}"), |_| true)?;
            assert!(found.is_all);
            Some(found.queue.numbered().map(|(number, _)| number).collect::<Vec<_>>())
        };
        reads.is_gone(2, 2, "lock-2");
        assert_eq!(ahead_of(6, 5), Some(vec![1, 2, 3, 4, 6]));
        assert_eq!(ahead_of(4, 3), Some(vec![1, 2, 4]));
        assert_eq!(ahead_of(6, 4), Some(vec![1, 2, 6]));
        reads.was_first(1, 2);
        assert_eq!(ahead_of(4, 3), Some(vec![2, 4]));
        assert_eq!(ahead_of(2, 1), Some(vec![2]), "it is first now, which a read of its node proves");
        assert_eq!(ahead_of(7, 6), None, "it joined later");
    }

    #[test]
    fn of_a_long_listing_an_eighth_is_shown() {
        for (length, shown_ahead, is_all) in [(7, 6, true), (8, 6, false), (80, 10, false), (800, 64, false)] {
            let reads = SharedReads::default();
            reads.keep(&shown(1, 1..=length));
            let known = reads.ahead_of(1, length, &format!("lock-{length}"), |_| true).unwrap();
            assert_eq!((known.queue.len() - 1, known.is_all), (shown_ahead, is_all), "{length}");
        }
    }

    #[test]
    fn a_reader_is_shown_the_writers_ahead_of_any_number_of_readers() {
        let reads = SharedReads::default();
        reads.keep(&shown(1, 1..=800));
        let known = reads.ahead_of(1, 800, "lock-800", |name| name == "lock-1").unwrap();
        assert_eq!(known.queue.names().collect::<Vec<_>>(), ["lock-1", "lock-800"]);
        assert!(known.is_all);
    }

    #[test]
    fn only_a_listing_of_the_same_connection_counts() {
        let reads = SharedReads::default();
        reads.keep(&shown(1, 1..=3));
        assert!(reads.ahead_of(1, 3, "lock-3", |_| true).is_some());
        assert!(reads.ahead_of(2, 3, "lock-3", |_| true).is_none());
    }

    /// A server that answers when the test does.
    #[derive(Default)]
    struct Server(Mutex<Vec<oneshot::Sender<Result<u32, Error>>>>);

    impl Server {
        fn request(self: &Arc<Self>) -> Request<u32> {
            let server = Arc::clone(self);
            let request = async move {
                let (sender, reply) = oneshot::channel();
                server.0.lock().push(sender);
                reply.await.unwrap()
            };
            request.boxed()
        }

        /// Returns the number of outstanding requests.
        fn outstanding(&self) -> usize {
            self.0.lock().len()
        }

        fn answer(&self, reply: Result<u32, Error>) {
            self.0.lock().remove(0).send(reply).unwrap();
        }
    }

    #[tokio::test]
    async fn each_contender_shares_a_request_that_was_sent_after_it_asked() {
        let (requests, server) = (Arc::new(Requests::default()), Arc::new(Server::default()));
        let mut first = pin!(requests.share(|| server.request()));
        assert!(poll!(&mut first).is_pending());
        let mut second = pin!(requests.share(|| server.request()));
        let mut third = pin!(requests.share(|| server.request()));
        assert!(poll!(&mut second).is_pending());
        assert!(poll!(&mut third).is_pending());
        assert_eq!(server.outstanding(), 1);
        // The second contender does not need the first one, which is not polled.
        server.answer(Ok(1));
        assert!(poll!(&mut second).is_pending());
        assert_eq!(server.outstanding(), 1);
        let mut fourth = pin!(requests.share(|| server.request()));
        assert!(poll!(&mut fourth).is_pending());
        server.answer(Err(Error::Closed));
        assert!(matches!(third.await, Err(Error::Closed)));
        assert!(poll!(&mut fourth).is_pending());
        server.answer(Ok(3));
        assert_eq!(fourth.await.unwrap(), 3);
        assert!(matches!(second.await, Err(Error::Closed)));
        assert_eq!(first.await.unwrap(), 1);
        assert_eq!(server.outstanding(), 0);
    }

    #[tokio::test]
    async fn request_that_all_contenders_have_left_answers_none() {
        let (requests, server) = (Arc::new(Requests::default()), Arc::new(Server::default()));
        assert!(requests.share(|| server.request()).now_or_never().is_none());
        let mut next = pin!(requests.share(|| server.request()));
        assert!(poll!(&mut next).is_pending());
        assert_eq!(server.outstanding(), 2);
        assert!(server.0.lock().remove(0).is_closed());
        server.answer(Ok(2));
        assert_eq!(next.await.unwrap(), 2);
    }

    #[test]
    fn reply_during_a_poll_of_a_contender_that_is_then_dropped_reaches_the_other() {
        let requests = Arc::new(Requests::default());
        let ((starts, has_started), (ends, has_ended)) = (mpsc::channel(), mpsc::channel());
        let mut is_answered = false;
        let request = std::future::poll_fn(move |cx| {
            if is_answered {
                return Poll::Ready(Ok(1));
            }
            is_answered = true;
            cx.waker().wake_by_ref();
            starts.send(()).unwrap();
            // The other contender polls now, or waits for the end of this poll.
            let _polled = has_ended.recv_timeout(Duration::from_millis(100));
            Poll::Pending
        });
        let (first, mut second) = (requests.share(|| request.boxed()), Box::pin(requests.share(|| unreachable!())));
        std::thread::scope(|scope| {
            let second = scope.spawn(move || {
                has_started.recv().unwrap();
                let polled = second.poll_unpin(&mut Context::from_waker(Waker::noop()));
                ends.send(()).unwrap_or_default();
                polled
            });
            assert!(first.now_or_never().is_none());
            assert!(matches!(second.join().unwrap(), Poll::Ready(Ok(1))));
        });
    }
}

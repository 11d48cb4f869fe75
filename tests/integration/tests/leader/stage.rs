//! The common parts of the tests of elections: started latches, the calls of their listeners, the terms of selectors.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use curator_framework::{ConnectionState, CuratorFramework};
use curator_integration::env::{Env, eventually, in_time};
use curator_recipes::{
    FencingToken, Leader, LeaderError, LeaderLatch, LeaderLatchOptions, LeaderSelector, LeaderState, Leadership,
    ObserverState, TermEnd,
};
use curator_test::FaultProxy;
use futures_util::FutureExt;
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio::sync::watch;
use tokio::task::JoinHandle;

/// The shortest session: it is lost 1.5 s after the newest answer.
pub(crate) const SHORT: Duration = Duration::from_secs(2);
/// A session that outlives the test.
pub(crate) const LONG: Duration = Duration::from_secs(60);

/// A started latch without an id.
pub(crate) fn started(client: &CuratorFramework, path: &str) -> LeaderLatch {
    named(client, path, "")
}

/// A started latch with an id.
pub(crate) fn named(client: &CuratorFramework, path: &str, id: &str) -> LeaderLatch {
    started_with(client, path, LeaderLatchOptions::new().id(id))
}

pub(crate) fn started_with(client: &CuratorFramework, path: &str, options: LeaderLatchOptions) -> LeaderLatch {
    let latch = LeaderLatch::with_options(client.clone(), path, options).unwrap();
    latch.start().unwrap();
    latch
}

/// Waits until the latch leads.
pub(crate) async fn leads(latch: &LeaderLatch) -> Leadership {
    let leadership = in_time(latch.leading()).await.unwrap();
    assert!(leadership.node_path().starts_with(latch.path()), "{leadership:?}");
    leadership
}

/// Waits for the end of a term.
pub(crate) async fn end_of(leadership: &Leadership) -> TermEnd {
    let end = in_time(leadership.ended()).await;
    assert!(!leadership.is_held() && leadership.remaining().is_zero(), "{leadership:?}");
    end
}

/// The indexes of the latches that lead now.
pub(crate) fn leaders(latches: &[LeaderLatch]) -> Vec<usize> {
    (0..latches.len()).filter(|index| latches[*index].has_leadership()).collect()
}

/// Waits until one of the latches leads, and returns its index.
pub(crate) async fn one_leads(latches: &[LeaderLatch]) -> usize {
    eventually("one of the latches leads", async || !leaders(latches).is_empty()).await;
    let leaders = leaders(latches);
    assert_eq!(leaders.len(), 1, "{leaders:?} lead at once");
    leaders[0]
}

/// Closes all connections through a proxy, and refuses new ones.
pub(crate) fn take_down(proxy: &FaultProxy) {
    proxy.refuse();
    proxy.reset();
}

/// Waits until the client's state is this one.
pub(crate) async fn becomes(client: &CuratorFramework, wanted: ConnectionState) {
    curator_integration::connection_stage::comes_to(client, wanted).await;
}

/// A call of a listener.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Call {
    State(ConnectionState),
    IsLeader,
    NotLeader,
}

impl Call {
    /// Returns the call with a state.
    pub(crate) fn with(state: &LeaderState) -> Self {
        match state {
            LeaderState::Leading(_) => Self::IsLeader,
            _ => Self::NotLeader,
        }
    }
}

/// Returns a listener that sends its calls to a channel.
fn reporter(calls: UnboundedSender<Call>) -> impl Fn(&LeaderState) + Send + Sync + 'static {
    move |state| {
        calls.send(Call::with(state)).ok();
    }
}

/// The calls of listeners, in order.
#[derive(Debug)]
pub(crate) struct Calls(UnboundedReceiver<Call>);

impl Calls {
    /// Listens to a latch from now on.
    pub(crate) fn of(latch: &LeaderLatch) -> Self {
        let (sender, calls) = unbounded_channel();
        latch.add_listener(reporter(sender));
        Self(calls)
    }

    /// Listens to a client and to a latch from now on.
    pub(crate) fn of_both(client: &CuratorFramework, latch: &LeaderLatch) -> Self {
        let (sender, calls) = unbounded_channel();
        let states = sender.clone();
        client.connection_state_listenable().add_listener(move |_, state| {
            states.send(Call::State(state)).ok();
        });
        latch.add_listener(reporter(sender));
        Self(calls)
    }

    pub(crate) async fn next(&mut self) -> Call {
        in_time(self.0.recv()).await.expect("the listener is there")
    }

    /// The next two calls, of two listeners that know nothing of each other.
    pub(crate) async fn next_two(&mut self) -> [Call; 2] {
        let mut two = [self.next().await, self.next().await];
        two.sort_by_key(|call| !matches!(call, Call::State(_)));
        two
    }

    /// All calls up to the end of the listeners.
    pub(crate) async fn all(mut self) -> Vec<Call> {
        let mut all = Vec::new();
        while let Some(call) = in_time(self.0.recv()).await {
            all.push(call);
        }
        all
    }

    /// Returns `true` if no call has come since the last one.
    pub(crate) fn is_quiet(&mut self) -> bool {
        self.0.try_recv().is_err()
    }
}

/// A report of a term.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Report {
    Began { id: String, term: FencingToken, path: String },
    Ended { id: String },
}

/// The terms of several selectors: they report, and exclude each other.
#[derive(Debug)]
pub(crate) struct Terms {
    inside: Arc<AtomicUsize>,
    sender: UnboundedSender<Report>,
    reports: UnboundedReceiver<Report>,
}

/// A term that lasts, and reports its end when it is dropped.
#[derive(Debug)]
pub(crate) struct Term {
    id: String,
    inside: Arc<AtomicUsize>,
    sender: UnboundedSender<Report>,
}

impl Drop for Term {
    fn drop(&mut self) {
        self.inside.fetch_sub(1, Ordering::SeqCst);
        self.sender.send(Report::Ended { id: self.id.clone() }).ok();
    }
}

/// Starts the terms of one selector.
#[derive(Debug, Clone)]
pub(crate) struct Begin {
    id: String,
    inside: Arc<AtomicUsize>,
    sender: UnboundedSender<Report>,
}

impl Begin {
    pub(crate) fn term(&self, leadership: &Leadership) -> Term {
        // Another thread of the test may interrupt the term before the work starts.
        let is_interrupted = leadership.ended().now_or_never() == Some(TermEnd::Resigned);
        assert!(leadership.is_held() || is_interrupted, "a term begins after its end: {leadership:?}");
        let others = self.inside.fetch_add(1, Ordering::SeqCst);
        let (id, path) = (self.id.clone(), leadership.node_path().to_owned());
        self.sender.send(Report::Began { id, term: leadership.token(), path }).ok();
        let term = Term { id: self.id.clone(), inside: Arc::clone(&self.inside), sender: self.sender.clone() };
        assert_eq!(others, 0, "two terms at once");
        term
    }

    /// A term without an end of its own.
    pub(crate) async fn stay(self, leadership: Leadership) {
        let _term = self.term(&leadership);
        std::future::pending::<()>().await;
    }
}

impl Terms {
    pub(crate) fn new() -> Self {
        let (sender, reports) = unbounded_channel();
        Self { inside: Arc::default(), sender, reports }
    }

    pub(crate) fn of(&self, id: &str) -> Begin {
        Begin { id: id.to_owned(), inside: Arc::clone(&self.inside), sender: self.sender.clone() }
    }

    /// Runs a selector. Each of its terms lasts until it is dropped.
    pub(crate) fn run(&self, selector: &LeaderSelector, id: &str) -> JoinHandle<Result<(), LeaderError>> {
        let (selector, begin) = (selector.clone(), self.of(id));
        tokio::spawn(async move {
            selector
                .run(|leadership| {
                    let begin = begin.clone();
                    async move {
                        begin.stay(leadership).await;
                        Ok::<(), std::convert::Infallible>(())
                    }
                })
                .await
        })
    }

    pub(crate) fn inside(&self) -> usize {
        self.inside.load(Ordering::SeqCst)
    }

    pub(crate) async fn next(&mut self) -> Report {
        in_time(self.reports.recv()).await.unwrap()
    }

    /// Waits for the start of a term, and returns the selector's id and the term's number.
    pub(crate) async fn begins(&mut self) -> (String, FencingToken) {
        match self.next().await {
            Report::Began { id, term, .. } => (id, term),
            ended => panic!("{ended:?}"),
        }
    }

    /// Waits for the end of a term, and returns the selector's id.
    pub(crate) async fn ends(&mut self) -> String {
        match self.next().await {
            Report::Ended { id } => id,
            began => panic!("{began:?}"),
        }
    }

    /// Returns `true` if no report has come since the last one.
    pub(crate) fn is_quiet(&mut self) -> bool {
        self.reports.try_recv().is_err()
    }
}

/// Three candidates of three clients, of which the first leads.
pub(crate) async fn three(env: &Env, path: &str) -> (Vec<CuratorFramework>, Vec<LeaderLatch>) {
    let (mut clients, mut latches) = (Vec::new(), Vec::new());
    for (number, id) in ["ann", "bob", "cat"].into_iter().enumerate() {
        let client = env.client().await;
        latches.push(named(&client, path, id));
        env.wait_for_children(&client, path, number + 1).await;
        clients.push(client);
    }
    leads(&latches[0]).await;
    (clients, latches)
}

/// Waits for a leader that satisfies a condition.
pub(crate) async fn sees(
    observed: &mut watch::Receiver<ObserverState>,
    mut is_wanted: impl FnMut(&Leader) -> bool,
) -> Leader {
    let wanted = |observed: &ObserverState| matches!(observed, ObserverState::Leader(leader) if is_wanted(leader));
    match &*in_time(observed.wait_for(wanted)).await.unwrap() {
        ObserverState::Leader(leader) => leader.clone(),
        other => panic!("{other:?}"),
    }
}

//! The common parts of the tests of nodes: started nodes, and waits for their states.

use std::time::Duration;

use curator_framework::{CreateMode, CuratorFramework, CuratorFrameworkBuilder, Error, RetryForever, SessionId, Stat};
use curator_integration::env::{builder, in_time};
use curator_recipes::{ListenerId, NodeError, NodeState, PersistentNode, PersistentNodeOptions, StandingNode};
use curator_test::FaultProxy;
use tokio::sync::mpsc::{UnboundedReceiver, unbounded_channel};

/// The shortest session: it is lost 1.5 s after the newest answer.
pub(crate) const SHORT: Duration = Duration::from_secs(2);
/// A session that outlives the test.
pub(crate) const LONG: Duration = Duration::from_secs(60);

/// A started node.
pub(crate) fn started(client: &CuratorFramework, mode: CreateMode, path: &str, data: &str) -> PersistentNode {
    started_with(client, mode, path, data, PersistentNodeOptions::new())
}

/// A started ephemeral node.
pub(crate) fn ephemeral(client: &CuratorFramework, path: &str, data: &str) -> PersistentNode {
    started(client, CreateMode::Ephemeral, path, data)
}

pub(crate) fn started_with(
    client: &CuratorFramework,
    mode: CreateMode,
    path: &str,
    data: &str,
    options: PersistentNodeOptions,
) -> PersistentNode {
    let node = PersistentNode::with_options(client.clone(), path, data, options.mode(mode)).unwrap();
    node.start().unwrap();
    node
}

pub(crate) fn is_standing(node: &PersistentNode) -> bool {
    matches!(node.state(), NodeState::Standing(_))
}

/// Waits until the node exists.
pub(crate) async fn stands(node: &PersistentNode) -> StandingNode {
    in_time(node.created()).await.unwrap()
}

/// Waits until the node's state is as wanted.
pub(crate) async fn reaches(node: &PersistentNode, wanted: impl FnMut(&NodeState) -> bool) -> NodeState {
    in_time(node.watch().wait_for(wanted)).await.unwrap().clone()
}

/// Waits until the node exists with another `czxid`.
pub(crate) async fn stands_again(node: &PersistentNode, before: &StandingNode) -> StandingNode {
    let again = |state: &NodeState| matches!(state, NodeState::Standing(now) if now.czxid != before.czxid);
    match reaches(node, again).await {
        NodeState::Standing(now) => now,
        other => panic!("{other:?}"),
    }
}

/// Waits until the node is refused.
pub(crate) async fn fails(node: &PersistentNode) -> NodeError {
    match reaches(node, |state| matches!(state, NodeState::Failed(_))).await {
        NodeState::Failed(error) => error,
        other => panic!("{other:?}"),
    }
}

/// Waits until another node has the path, and returns the session that owns it.
pub(crate) async fn is_taken(node: &PersistentNode) -> Option<SessionId> {
    match reaches(node, |state| matches!(state, NodeState::TakenBy { .. })).await {
        NodeState::TakenBy { session, .. } => session,
        other => panic!("{other:?}"),
    }
}

pub(crate) async fn stat_of(client: &CuratorFramework, path: &str) -> Option<Stat> {
    client.check_exists().for_path(path).await.unwrap()
}

/// The text of a node's data; `None` if the node does not exist.
pub(crate) async fn text_of(client: &CuratorFramework, path: &str) -> Option<String> {
    match client.get_data().for_path(path).await {
        Ok((data, _)) => Some(String::from_utf8(data).unwrap()),
        Err(Error::NoNode { .. }) => None,
        Err(error) => panic!("{error}"),
    }
}

/// Options of a client through a proxy, which tries forever.
pub(crate) fn through(proxy: &FaultProxy, session: Duration) -> CuratorFrameworkBuilder {
    let retry = RetryForever::new(Duration::from_millis(50)).unwrap();
    builder(proxy.address()).session_timeout(session).retry_policy(retry)
}

/// Closes all connections through a proxy, and refuses new ones.
pub(crate) fn take_down(proxy: &FaultProxy) {
    proxy.refuse();
    proxy.reset();
}

/// The modes of both clients.
pub(crate) const MODES: [CreateMode; 4] =
    [CreateMode::Persistent, CreateMode::PersistentSequential, CreateMode::Ephemeral, CreateMode::EphemeralSequential];

/// The calls of a listener, in order.
#[derive(Debug)]
pub(crate) struct Created(UnboundedReceiver<String>);

impl Created {
    /// Listens to a node from now on.
    pub(crate) fn of(node: &PersistentNode) -> Self {
        Self::removable(node).1
    }

    /// Listens to a node until the listener is removed.
    pub(crate) fn removable(node: &PersistentNode) -> (ListenerId, Self) {
        let (sender, calls) = unbounded_channel();
        let listener = move |node: &StandingNode| drop(sender.send(node.path.clone()));
        (node.add_listener(listener), Self(calls))
    }

    pub(crate) async fn next(&mut self) -> String {
        in_time(self.0.recv()).await.expect("the listener is there")
    }

    /// All calls up to the end of the listeners.
    pub(crate) async fn rest(mut self) -> Vec<String> {
        let mut rest = Vec::new();
        while let Some(call) = in_time(self.0.recv()).await {
            rest.push(call);
        }
        rest
    }

    /// The next call, if it has come.
    pub(crate) fn try_next(&mut self) -> Option<String> {
        self.0.try_recv().ok()
    }
}

//! The nodes, the servers that show them, and the sessions.
//!
//! | part | model |
//! | --- | --- |
//! | log | each node has the transactions that created, wrote and deleted it; a server's state is a prefix |
//! | server | one for each session, at a position of the log; one that lags shows the newest data of the nodes that it has |
//! | requests | in order for each session |
//! | notifications | one queue for each session; a transaction sends its notifications in every order |
//! | watches | one-shot, set by reads; a model may derive them from the waiters of its clients instead |
//! | reconnect | at any position; changes are replayed in every order |
//! | stragglers | a write of a lost connection may still commit, until a later write of its session does |
//! | end | the server ends a session before its client knows of it, or after |
//!
//! Positions, versions and sessions are small, as states are hashed by the million.

/// A number of transactions, committed by the leader or applied by a server.
pub(crate) type Position = u8;

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) struct Node<P, D> {
    pub(crate) path: P,
    pub(crate) data: D,
    /// The number of writes.
    pub(crate) version: u8,
    /// The session that it ends with.
    pub(crate) session: Option<u8>,
    pub(crate) created: Position,
    pub(crate) deleted: Option<Position>,
    /// The newest write.
    pub(crate) written: Option<Position>,
}

impl<P, D> Node<P, D> {
    pub(crate) fn exists_at(&self, position: Position) -> bool {
        self.created <= position && self.deleted.is_none_or(|deleted| deleted > position)
    }
}

/// The target of a watch.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Target<P> {
    /// A node that exists.
    Node(P),
    /// A path without a node.
    Missing(P),
    Children,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Event {
    Created,
    Changed,
    Deleted,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) struct Session<P, R> {
    pub(crate) epoch: u64,
    /// The position of its server.
    pub(crate) position: Position,
    /// The newest transaction that the session has caused or been notified of. A lag that the session cannot know of is
    /// not a separate world: the transactions may as well come later.
    pub(crate) known: Position,
    /// The position of its server at the newest reply.
    pub(crate) last_seen: Position,
    pub(crate) requests: Vec<R>,
    pub(crate) stragglers: Vec<R>,
    /// The watches on the server, unless the model derives them.
    pub(crate) armed: Vec<Target<P>>,
    pub(crate) mail: Vec<(Target<P>, Event)>,
    /// The number of notifications that came before a received reply: they are not lost with the connection.
    pub(crate) received: usize,
    /// The transaction that ended it.
    pub(crate) closed: Option<Position>,
    /// Its client knows of its end.
    pub(crate) is_over: bool,
}

impl<P, R> Default for Session<P, R> {
    fn default() -> Self {
        Self {
            epoch: 0,
            position: 0,
            known: 0,
            last_seen: 0,
            requests: Vec::new(),
            stragglers: Vec::new(),
            armed: Vec::new(),
            mail: Vec::new(),
            received: 0,
            closed: None,
            is_over: false,
        }
    }
}

impl<P: Eq, R: Clone> Session<P, R> {
    pub(crate) fn has_replied(&mut self) {
        (self.last_seen, self.received) = (self.position, self.mail.len());
    }

    /// Connects to a server at a position that replays these changes. Returns the requests that are lost.
    pub(crate) fn reconnect(
        &mut self,
        position: Position,
        replayed: Vec<(Target<P>, Event)>,
        is_open_write: impl Fn(&R) -> bool,
    ) -> Vec<R> {
        self.armed.retain(|armed| !replayed.iter().any(|(target, _)| target == armed));
        (self.mail, self.position) = (replayed, position);
        self.epoch += 1;
        self.lose(is_open_write)
    }

    /// Returns the requests that are lost. The open writes remain as stragglers.
    pub(crate) fn lose(&mut self, is_open_write: impl Fn(&R) -> bool) -> Vec<R> {
        let lost = std::mem::take(&mut self.requests);
        self.stragglers.extend(lost.iter().filter(|request| is_open_write(request)).cloned());
        lost
    }
}

/// Nodes with data `D` at paths `P`, and sessions that send requests `R`.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) struct World<P, D, R> {
    /// The newest transaction.
    pub(crate) log: Position,
    /// By age.
    pub(crate) nodes: Vec<Node<P, D>>,
    pub(crate) sessions: Vec<Session<P, R>>,
}

impl<P: Copy + Eq, D, R: Clone> World<P, D, R> {
    pub(crate) fn new(sessions: usize) -> Self {
        let session = |_| Session { epoch: 1, ..Session::default() };
        Self { log: 0, nodes: Vec::new(), sessions: (0..sessions).map(session).collect() }
    }

    /// Creates a node in the newest transaction.
    pub(crate) fn create(&mut self, path: P, data: D, session: Option<u8>) {
        let created = self.log;
        self.nodes.push(Node { path, data, version: 0, session, created, deleted: None, written: None });
    }

    /// Deletes a node in the newest transaction.
    pub(crate) fn delete(&mut self, node: usize) {
        self.nodes[node].deleted.get_or_insert(self.log);
    }

    /// Writes a node in the newest transaction. Returns its data, to change it.
    pub(crate) fn write(&mut self, node: usize) -> &mut D {
        let node = &mut self.nodes[node];
        (node.version, node.written) = (node.version + 1, Some(self.log));
        &mut node.data
    }

    /// Deletes the nodes of a session in a transaction of their own.
    pub(crate) fn end(&mut self, session: usize) {
        self.log += 1;
        for node in self.nodes.iter_mut().filter(|node| node.session.map(usize::from) == Some(session)) {
            node.deleted.get_or_insert(self.log);
        }
    }

    /// Lists the nodes that the leader has, by their indices.
    pub(crate) fn there(&self) -> impl Iterator<Item = usize> {
        (0..self.nodes.len()).filter(|node| self.nodes[*node].exists_at(self.log))
    }

    /// Returns the node at a path on the leader.
    pub(crate) fn at(&self, path: P) -> Option<usize> {
        self.there().find(|node| self.nodes[*node].path == path)
    }

    /// Lists the notifications of a transaction for these watches.
    pub(crate) fn events_at(
        &self,
        position: Position,
        is_armed: impl Fn(Target<P>) -> bool,
    ) -> Vec<(Target<P>, Event)> {
        let is_now = |at: Option<Position>| at == Some(position);
        let event = |node: &Node<P, D>| match node {
            node if is_now(node.deleted) => Some((Target::Node(node.path), Event::Deleted)),
            node if node.created == position => Some((Target::Missing(node.path), Event::Created)),
            node if is_now(node.written) => Some((Target::Node(node.path), Event::Changed)),
            _ => None,
        };
        let changes_children = |node: &Node<P, D>| node.created == position || is_now(node.deleted);
        let children = self.nodes.iter().any(changes_children).then_some((Target::Children, Event::Changed));
        let events = self.nodes.iter().filter_map(event).chain(children);
        events.filter(|(target, _)| is_armed(*target)).collect()
    }

    /// Lists the notifications that a server at a position replays for these watches of a session that has seen `base`.
    pub(crate) fn replayed_at(
        &self,
        position: Position,
        base: Position,
        armed: impl IntoIterator<Item = Target<P>>,
    ) -> Vec<(Target<P>, Event)> {
        let is_since = |at: Position| base < at && at <= position;
        let at = |path| self.nodes.iter().find(|node| node.path == path && node.exists_at(position));
        let is_changed = |node: &Node<P, D>| is_since(node.created) || node.deleted.is_some_and(is_since);
        let event = |target| match target {
            Target::Node(path) => match at(path) {
                None => Some(Event::Deleted),
                Some(node) => (is_since(node.created) || node.written.is_some_and(is_since)).then_some(Event::Changed),
            },
            Target::Missing(path) => at(path).map(|_| Event::Created),
            Target::Children => self.nodes.iter().any(is_changed).then_some(Event::Changed),
        };
        armed.into_iter().filter_map(|target| Some((target, event(target)?))).collect()
    }

    /// Lets a session's server apply the next transaction, and send these notifications.
    pub(crate) fn apply(&mut self, session: usize, events: Vec<(Target<P>, Event)>) {
        let session = &mut self.sessions[session];
        session.position += 1;
        session.known = session.known.max(session.position);
        session.armed.retain(|armed| !events.iter().any(|(target, _)| target == armed));
        session.mail.extend(events);
    }

    /// Lets all servers apply the newest transaction at once, for a model without servers that lag, and forgets the
    /// deleted nodes.
    pub(crate) fn apply_everywhere(&mut self) {
        for session in 0..self.sessions.len() {
            let armed = &self.sessions[session].armed;
            let events = self.events_at(self.log, |target| armed.contains(&target));
            debug_assert!(events.len() < 2, "their order is to be chosen");
            self.sessions[session].position = self.log - 1;
            self.apply(session, events);
        }
        self.nodes.retain(|node| node.deleted.is_none());
    }
}

pub(crate) fn factorial(count: usize) -> usize {
    (1..=count).product()
}

/// Permutes items into one of their orders, by its number.
pub(crate) fn permute<T>(items: &mut [T], mut order: usize) {
    for begin in 0..items.len() {
        let left = items.len() - begin;
        items[begin..].rotate_left(order % left);
        order /= left;
    }
}

//! `watch`: the nodes at and below a path, and their changes.

use std::collections::BTreeSet;
use std::ops::ControlFlow;
use std::time::SystemTime;

use clap::Args;
use clap::builder::BoolishValueParser;
use curator_cli::fields::{DataFields, shown_data};
use curator_cli::text::{rfc3339, shown, shown_session};
use curator_framework::recipe::owning_session;
use curator_framework::{Chain, Error};
use curator_recipes::{CacheEvent, CacheState, Changes, ChildData, CuratorCache, CuratorCacheOptions, Lookup};
use serde::Serialize;

use crate::failure::Failure;
use crate::outages::Outages;
use crate::output::{print, tell};
use crate::show::{StreamState, change, line, tell_anew};
use crate::site::Site;

#[derive(Debug, Args)]
#[command(after_help = NOTES)]
pub(crate) struct WatchOptions {
    /// The number of levels below the path that are read: 0 for the node alone, 1 for its children too [default: all]
    #[arg(long, value_name = "LEVELS", env = "CURATOR_DEPTH")]
    depth: Option<usize>,
    /// Print JSON, a line for each node, change and state
    #[arg(long, value_parser = BoolishValueParser::new(), env = "CURATOR_JSON")]
    json: bool,
    /// End behind the present nodes, with status 1 if the path does not exist
    #[arg(long, value_parser = BoolishValueParser::new(), env = "CURATOR_ONCE")]
    once: bool,
    /// The path of the topmost node; it may be created later
    path: String,
}

const NOTES: &str = "\
Each line has a word for the node:
  present   it was there when the watch began
  created   it was created, or created again behind a line with its deletion
  changed   its data was written
  deleted   it was deleted; the line has its last data

Standard error tells when all present nodes are printed, and when the connection is lost and back. Then the changes of the
time between are printed, and only nodes that have changed are read. Values that were overwritten before they could be read
are left out. Data that is not text is shown as hexadecimal digits or as its length; JSON has all digits.

With --json the states are lines among the changes, with `state` in place of `change`:
  loading   all nodes follow; forget those before
  fresh     all nodes and changes up to the transaction `zxid` are printed
  stale     the connection is lost; later changes than `zxid` are printed when it is back";

/// The exit status of `--once` without nodes.
const NO_NODES: u8 = 1;

/// The exit status, if the program is to end.
type Flow = Result<ControlFlow<u8>, Failure>;

const GO_ON: Flow = Ok(ControlFlow::Continue(()));

/// Prints the nodes and each change, until the reader of the pipe closes it.
pub(crate) async fn watch(site: &Site, options: &WatchOptions) -> Result<u8, Failure> {
    let client = &site.client;
    site.first_session(None).await?;
    site.check_chroot().await?;
    let mut scope = CuratorCacheOptions::new();
    if let Some(depth) = options.depth {
        scope = scope.max_depth(depth);
    }
    let cache = CuratorCache::with_options(client.clone(), &options.path, scope)?;
    let (mut states, mut outages) = (cache.watch(), Outages::of(client));
    let mut view = View::new(&cache, options);
    let mut flow = view.loads().await?;
    cache.start()?;
    loop {
        if let ControlFlow::Break(code) = flow {
            return Ok(code);
        }
        flow = tokio::select! {
            biased;
            event = view.events.recv() => view.event(event.ok_or(Error::Closed)?).await?,
            Ok(()) = states.changed() => {
                let state = states.borrow_and_update().clone();
                view.state(state).await?
            }
            // After the load the state of the cache reports it.
            is_connected = outages.change(), if !view.is_complete => {
                if !is_connected {
                    tell("no connection: the load goes on when it is back");
                }
                ControlFlow::Continue(())
            }
        };
    }
}

/// The part of the printed lines on which later ones depend.
struct View<'a> {
    cache: &'a CuratorCache,
    options: &'a WatchOptions,
    /// The events that are not printed.
    events: Changes<CacheEvent>,
    /// The number of present nodes that are printed; `None` once this number is printed too.
    nodes: Option<usize>,
    /// The transaction up to which the nodes are loaded, if known before they are printed.
    loaded: Option<i64>,
    /// All present nodes are printed.
    is_complete: bool,
    /// The newest line about the state says that all changes are printed.
    is_fresh: bool,
    /// The nodes that could not be read.
    left_out: BTreeSet<String>,
    /// The reason why the path itself, or the list of its children, could not be read last.
    path_reason: Option<String>,
    problem: Option<String>,
}

impl<'a> View<'a> {
    fn new(cache: &'a CuratorCache, options: &'a WatchOptions) -> Self {
        let (events, nodes) = (cache.changes(), Some(0));
        let left_out = BTreeSet::new();
        Self {
            cache,
            options,
            events,
            nodes,
            loaded: None,
            is_complete: false,
            is_fresh: false,
            left_out,
            path_reason: None,
            problem: None,
        }
    }

    /// Prints that all nodes follow, for the first time or again.
    async fn loads(&mut self) -> Flow {
        (self.nodes, self.is_complete, self.is_fresh) = (Some(0), false, false);
        self.report(&StreamState::new("loading"), || format!("loads {}", self.options.path)).await
    }

    /// Starts again with the present nodes, because events were dropped.
    async fn reset(&mut self) -> Flow {
        // The state is read before the nodes, so the nodes are not older than it.
        self.loaded = match self.cache.state() {
            CacheState::Fresh { zxid } => Some(zxid.get()),
            _ => None,
        };
        self.events = self.cache.changes();
        tell("changes came faster than they were printed: all nodes follow");
        self.loads().await
    }

    /// Prints an event.
    async fn event(&mut self, event: CacheEvent) -> Flow {
        match event {
            CacheEvent::Created(node) => {
                let is_present = !self.is_complete;
                self.nodes = self.nodes.map(|nodes| nodes + usize::from(is_present));
                self.change(if is_present { "present" } else { "created" }, &node).await
            }
            CacheEvent::Changed { new, .. } => self.change("changed", &new).await,
            CacheEvent::Deleted(node) => self.change("deleted", &node).await,
            CacheEvent::Initialized => {
                self.is_complete = true;
                match self.loaded.take() {
                    Some(zxid) => self.fresh(zxid).await,
                    None => GO_ON,
                }
            }
            CacheEvent::Reset => self.reset().await,
            // The state reports a failure of the path itself. Otherwise the path alone is left out.
            CacheEvent::Failed { path, error } if path == self.options.path => {
                self.path_reason = Some(Chain(&error).to_string());
                GO_ON
            }
            CacheEvent::Failed { path, error } => self.leave_out(path, &Chain(&error).to_string()).await,
            _ => GO_ON,
        }
    }

    async fn leave_out(&mut self, path: String, reason: &str) -> Flow {
        tell(&format!("{} is left out: {reason}", shown(path.as_bytes())));
        let state = StreamState { path: Some(&path), reason: Some(reason), ..StreamState::new("left_out") };
        let flow = if self.options.json { flow(print(line(&state)?).await?) } else { GO_ON };
        self.left_out.insert(path);
        flow
    }

    async fn change(&mut self, word: &'static str, node: &ChildData) -> Flow {
        if !is_left_out(self.cache, &node.path) {
            self.left_out.remove(&node.path);
        }
        flow(print(node_line(word, node, self.options.json)?).await?)
    }

    /// Prints that all changes up to a transaction are printed.
    async fn fresh(&mut self, zxid: i64) -> Flow {
        self.is_fresh = true;
        // The servers do not notify a client of the deletion of a node that it may not read.
        self.left_out.retain(|path| is_left_out(self.cache, path));
        let path = &self.options.path;
        if let Some(reason) = self.path_reason.take().filter(|_| is_left_out(self.cache, path)) {
            let path = path.clone();
            if self.leave_out(path, &reason).await?.is_break() {
                return Ok(ControlFlow::Break(0));
            }
        }
        let (path, nodes) = (&self.options.path, self.nodes.take());
        let (complete, left_out) = (Some(self.left_out.is_empty()), Some(&self.left_out));
        let state = StreamState { zxid: Some(zxid), nodes, complete, left_out, ..StreamState::new("fresh") };
        let text = || match nodes {
            None => format!("the connection is back: all changes up to zxid {zxid} are printed"),
            Some(0) => format!("{path} does not exist: its nodes are printed when they are created"),
            Some(1) => format!("1 node at zxid {zxid}, changes follow"),
            Some(nodes) => format!("{nodes} nodes at zxid {zxid}, changes follow"),
        };
        let flow = self.report(&state, text).await?;
        match (self.options.once, nodes) {
            (true, Some(0)) => Err(Failure(NO_NODES, format!("no node {path}"))),
            (true, _) => Ok(ControlFlow::Break(0)),
            (false, _) => Ok(flow),
        }
    }

    /// Prints a state of the cache, after the changes that precede it.
    async fn state(&mut self, state: CacheState) -> Flow {
        while let Ok(event) = self.events.try_recv() {
            let flow = self.event(event).await?;
            if flow.is_break() {
                return Ok(flow);
            }
        }
        match state {
            CacheState::Fresh { zxid } => {
                self.problem = None;
                if self.is_complete && !self.is_fresh { self.fresh(zxid.get()).await } else { GO_ON }
            }
            CacheState::Stale { since, zxid } if self.is_fresh => {
                self.is_fresh = false;
                let zxid = zxid.get();
                let since = rfc3339(SystemTime::now() - since.elapsed());
                let text =
                    format!("no connection since {since}: changes behind zxid {zxid} are printed when it is back");
                self.report(&StreamState { zxid: Some(zxid), since: Some(since), ..StreamState::new("stale") }, || text)
                    .await
            }
            // Before the first load the error ends the program, as in the other commands.
            CacheState::Failed(error) if !self.is_complete => Err(error.into()),
            CacheState::Failed(error) => {
                tell_anew(&mut self.problem, format!("{} cannot be read: {}", self.options.path, Chain(&error)));
                GO_ON
            }
            _ => GO_ON,
        }
    }

    /// Prints a state: as JSON among the changes, otherwise on standard error.
    async fn report(&self, state: &StreamState<'_>, text: impl FnOnce() -> String) -> Flow {
        if self.options.json {
            return flow(print(line(state)?).await?);
        }
        if !self.options.once {
            tell(&text());
        }
        GO_ON
    }
}

/// Ends the program if the reader of the pipe has closed it.
const fn flow(is_open: bool) -> Flow {
    if is_open { GO_ON } else { Ok(ControlFlow::Break(0)) }
}

/// Formats a node as a line, with the word for its change.
fn node_line(word: &'static str, node: &ChildData, json: bool) -> Result<String, Failure> {
    let ChildData { path, stat, data, .. } = node;
    let (data, session) = (shown_data(data), shown_session(owning_session(stat.ephemeral_owner)));
    let (version, mzxid) = (stat.version, stat.mzxid);
    let facts = format!("data {data}, version {version}, session {session}, mzxid {mzxid}");
    change(json, word, &Change { node: NodeFields::new(node) }, path, &facts)
}

/// The JSON of a node that is present, or of its change.
#[derive(Serialize)]
struct Change<'a> {
    node: NodeFields<'a>,
}

#[derive(Serialize)]
struct NodeFields<'a> {
    path: &'a str,
    #[serde(flatten)]
    data: DataFields<'a>,
    version: i32,
    session: Option<String>,
    czxid: i64,
    mzxid: i64,
}

impl<'a> NodeFields<'a> {
    fn new(ChildData { path, stat, data, .. }: &'a ChildData) -> Self {
        let session = owning_session(stat.ephemeral_owner).map(|session| session.to_string());
        Self { path, data: DataFields::new(data), version: stat.version, session, czxid: stat.czxid, mzxid: stat.mzxid }
    }
}

/// Returns `true` if a node, or the list of its children, cannot be read.
fn is_left_out(cache: &CuratorCache, path: &str) -> bool {
    // No node has this name, so it is missing if the children are known.
    let child = format!("{}/.", path.trim_end_matches('/'));
    [path, &child].iter().any(|path| matches!(cache.get(path), Lookup::NotLoaded))
}

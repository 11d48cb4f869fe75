//! Servers, links and messages in transit, in the order of time.

use std::collections::BTreeMap;
use std::sync::{Arc, Weak};
use std::time::Duration;

use parking_lot::Mutex;
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use tokio::sync::{Notify, mpsc};
use tokio::time::Instant;

use super::ClientId;
use super::follower::TouchTable;
use super::recorder::Recorder;
use crate::nodes::Change;
use crate::server::Backup;
use crate::server::simulated::{Connection, Delivery, SimulatedServer};
use crate::versions;
use crate::wire::{ConnectRequest, OpCode, Reader, RequestHeader};

/// A message to a client's end of a link.
#[derive(Debug)]
pub(super) enum FromServer {
    Frame(Vec<u8>),
    Closed,
}

/// The name of a link. Never used twice.
pub(super) type LinkId = u64;

#[derive(Debug)]
pub(super) struct World {
    state: Mutex<State>,
    origin: Instant,
    changed: Notify,
}

#[derive(Debug)]
struct State {
    server: SimulatedServer,
    random: StdRng,
    latency: Duration,
    /// The interval of the leader's pings, which followers answer with the sessions of their clients.
    half_tick: Duration,
    /// The messages in transit by arrival; the number orders those that arrive at once.
    arriving: BTreeMap<(Duration, u64), Parcel>,
    next_parcel: u64,
    links: BTreeMap<LinkId, Link>,
    next_link: LinkId,
    clients: BTreeMap<ClientId, Client>,
    /// Records the changes below a node, once that is asked for.
    recorder: Option<Recorder>,
}

/// A message in transit.
#[derive(Debug)]
enum Parcel {
    ToServer(LinkId, Vec<u8>),
    /// The client closed its end.
    ClosedByClient(LinkId),
    ToClient(LinkId, Vec<u8>),
    ClosedByServer(LinkId),
}

#[derive(Debug)]
struct Link {
    client: ClientId,
    connection: Connection,
    inbox: mpsc::UnboundedSender<FromServer>,
    /// The arrival of the newest message in this direction: no message overtakes another.
    last_up: Duration,
    last_down: Duration,
    /// Its connect request has arrived.
    greeted: bool,
    behind: Option<Behind>,
}

/// A server that has fallen behind the leader.
#[derive(Debug)]
struct Behind {
    /// Its state then, with the watches that it has set since.
    server: SimulatedServer,
    /// The end of the connection, which it does not know yet.
    missed: Vec<Delivery>,
}

impl Behind {
    fn new(server: &SimulatedServer) -> Self {
        Self { server: server.clone(), missed: Vec::new() }
    }
}

/// A client with its own server, and the faults that hit them.
#[derive(Debug, Default)]
struct Client {
    /// The sessions that its server has not reported yet.
    touched: TouchTable,
    partitioned: bool,
    /// Held by a partition.
    held: Vec<Parcel>,
    /// Its server does not follow the leader.
    cut_off: bool,
    /// The reply to its next write is lost, with the connection.
    drops_reply: bool,
    /// Its server has too many requests, and carries out only some.
    throttled: bool,
    /// Its server does not accept its credentials.
    refuses: bool,
    /// The newest state of the servers that it can reach.
    lagging: Option<SimulatedServer>,
    skipped: Arc<Mutex<Duration>>,
}

impl World {
    /// Sessions last from two ticks on, as in Apache, and up to a minute or twenty ticks.
    pub(super) fn new(seed: u64, latency: Duration, tick: Duration) -> Arc<Self> {
        Arc::new(Self {
            state: Mutex::new(State {
                server: SimulatedServer::new(tick * 2, (tick * 20).max(Duration::from_secs(60))),
                random: StdRng::seed_from_u64(seed),
                latency,
                half_tick: tick / 2,
                arriving: BTreeMap::new(),
                next_parcel: 0,
                links: BTreeMap::new(),
                next_link: 0,
                clients: BTreeMap::new(),
                recorder: None,
            }),
            origin: Instant::now(),
            changed: Notify::new(),
        })
    }

    pub(super) fn origin(&self) -> Instant {
        self.origin
    }

    pub(super) fn now(&self) -> Duration {
        self.origin.elapsed()
    }

    pub(super) fn skipped(&self, client: ClientId) -> Arc<Mutex<Duration>> {
        Arc::clone(&self.state.lock().clients.entry(client).or_default().skipped)
    }

    pub(super) fn with_server<T>(&self, look: impl FnOnce(&mut SimulatedServer) -> T) -> T {
        look(&mut self.state.lock().server)
    }

    pub(super) fn record_changes(&self, root: &str, max_reply: usize) {
        self.change(|state, _| state.recorder = Some(Recorder::new(root, max_reply)));
    }

    pub(super) fn take_changes(&self) -> Vec<(Duration, Change)> {
        self.state.lock().recorder.as_mut().map(Recorder::take).unwrap_or_default()
    }

    pub(super) fn take_versions(&self) -> Vec<(Duration, versions::Event)> {
        self.state.lock().recorder.as_mut().map(Recorder::take_versions).unwrap_or_default()
    }

    /// Changes the state, and wakes the simulation to check what is due.
    fn change<T>(&self, change: impl FnOnce(&mut State, Duration) -> T) -> T {
        let now = self.now();
        let changed = {
            let mut state = self.state.lock();
            let changed = change(&mut state, now);
            state.record(now);
            changed
        };
        self.changed.notify_one();
        changed
    }

    /// Opens a new link of a client.
    pub(super) fn open(&self, client: ClientId) -> (LinkId, mpsc::UnboundedReceiver<FromServer>) {
        let (inbox, messages) = mpsc::unbounded_channel();
        let link = self.change(|state, now| {
            let id = state.next_link;
            state.next_link += 1;
            let connection = state.server.open();
            let behind = state.clients.entry(client).or_default().cut_off.then(|| Behind::new(&state.server));
            state
                .links
                .insert(id, Link { client, connection, inbox, last_up: now, last_down: now, greeted: false, behind });
            id
        });
        (link, messages)
    }

    pub(super) fn send(&self, link: LinkId, bytes: Vec<u8>) {
        self.change(|state, now| state.post_up(link, Parcel::ToServer(link, bytes), now));
    }

    pub(super) fn close(&self, link: LinkId) {
        self.change(|state, now| state.post_up(link, Parcel::ClosedByClient(link), now));
    }

    pub(super) fn reset(&self, client: ClientId) {
        self.change(|state, _| {
            let links: Vec<_> = state.links_of(client);
            for link in links {
                state.break_link(link);
            }
        });
    }

    pub(super) fn partition(&self, client: ClientId) {
        self.change(|state, _| state.clients.entry(client).or_default().partitioned = true);
    }

    pub(super) fn repair(&self, client: ClientId) {
        self.change(|state, now| {
            let healed = state.clients.entry(client).or_default();
            healed.partitioned = false;
            healed.drops_reply = false;
            healed.throttled = false;
            healed.refuses = false;
            if std::mem::take(&mut healed.cut_off) {
                // It is another server from now on, without sessions to report.
                healed.touched.take();
            }
            healed.lagging = None;
            let held = std::mem::take(&mut healed.held);
            // Those in transit left later than the held ones, and no message overtakes another.
            let in_transit = state.take_in_transit(client);
            for parcel in held.into_iter().chain(in_transit) {
                state.post(parcel, now);
            }
            // A server that was behind catches up by moving its clients to another one.
            let behind: Vec<_> = state
                .links
                .iter()
                .filter(|(_, link)| link.client == client && link.behind.is_some())
                .map(|(id, _)| *id)
                .collect();
            for link in behind {
                state.break_link(link);
            }
        });
    }

    pub(super) fn throttle(&self, client: ClientId) {
        self.change(|state, _| state.clients.entry(client).or_default().throttled = true);
    }

    pub(super) fn refuse_credentials(&self, client: ClientId) {
        self.change(|state, _| state.clients.entry(client).or_default().refuses = true);
    }

    pub(super) fn lag(&self, client: ClientId, cut_off: bool) {
        self.change(|state, _| {
            let known = state.server.clone();
            let lagging = state.clients.entry(client).or_default();
            lagging.cut_off |= cut_off;
            if !cut_off {
                lagging.lagging.get_or_insert(known);
            }
            for link in state.links_of(client) {
                let behind = Behind::new(&state.server);
                if let Some(link) = state.links.get_mut(&link) {
                    // A server that is behind already keeps its state.
                    link.behind.get_or_insert(behind);
                }
            }
        });
    }

    /// Has an administrator change nodes at the leader.
    pub(super) fn administer(&self, change: impl FnOnce(&mut SimulatedServer, Duration) -> Vec<Delivery>) {
        self.change(|state, now| {
            let outputs = change(&mut state.server, now);
            state.deliver(outputs, now);
        });
    }

    pub(super) fn drop_reply(&self, client: ClientId) {
        self.change(|state, _| state.clients.entry(client).or_default().drops_reply = true);
    }

    pub(super) fn restart(&self, empty_at: Option<i64>) {
        self.change(|state, now| {
            state.disconnect();
            match empty_at {
                Some(zxid) => state.server.restart_empty(zxid, now),
                None => state.server.restart(now),
            }
        });
    }

    pub(super) fn restore(&self, backup: &Backup) {
        self.change(|state, now| {
            state.disconnect();
            // No server has the newer state any more.
            state.clients.values_mut().for_each(|client| client.lagging = None);
            state.server.restore(backup, now);
            if let Some(recorder) = &mut state.recorder {
                recorder.restarted(&state.server, now);
            }
        });
    }
}

impl State {
    fn links_of(&self, client: ClientId) -> Vec<LinkId> {
        self.links.iter().filter(|(_, link)| link.client == client).map(|(id, _)| *id).collect()
    }

    /// Breaks all links. The followers forget the sessions that they have not reported.
    fn disconnect(&mut self) {
        let links: Vec<_> = self.links.keys().copied().collect();
        for link in links {
            self.break_link(link);
        }
        for client in self.clients.values_mut() {
            client.touched.take();
        }
    }

    /// Breaks the link for both ends; messages in transit are lost.
    fn break_link(&mut self, id: LinkId) {
        let Some(link) = self.links.remove(&id) else { return };
        self.server.closed(link.connection);
        // The client's end may be gone.
        let _gone = link.inbox.send(FromServer::Closed);
        if let Some(client) = self.clients.get_mut(&link.client) {
            client.held.retain(|parcel| parcel.link() != id);
        }
        self.arriving.retain(|_, parcel| parcel.link() != id);
    }

    /// Records the changes since the last call. One transaction changes a node once, or deletes and creates it.
    fn record(&mut self, now: Duration) {
        if let Some(recorder) = &mut self.recorder {
            recorder.record(&self.server, now);
        }
    }

    fn post_up(&mut self, id: LinkId, parcel: Parcel, now: Duration) {
        if self.links.contains_key(&id) {
            self.post(parcel, now);
        }
    }

    /// Sends a message, behind all earlier ones of its link and direction.
    fn post(&mut self, parcel: Parcel, now: Duration) {
        let delay = self.latency.mul_f64(self.random.random::<f64>());
        let Some(link) = self.links.get_mut(&parcel.link()) else { return };
        let last = if parcel.goes_up() { &mut link.last_up } else { &mut link.last_down };
        *last = (now + delay).max(*last);
        self.arriving.insert((*last, self.next_parcel), parcel);
        self.next_parcel += 1;
    }

    /// Takes the messages that are on their way to or from a client, in the order of their arrival.
    fn take_in_transit(&mut self, client: ClientId) -> Vec<Parcel> {
        let links = &self.links;
        let is_meant = |parcel: &Parcel| links.get(&parcel.link()).is_some_and(|link| link.client == client);
        let (taken, others): (BTreeMap<_, _>, _) =
            std::mem::take(&mut self.arriving).into_iter().partition(|(_, parcel)| is_meant(parcel));
        self.arriving = others;
        taken.into_values().collect()
    }

    /// Sends the leader's messages; a server that is behind does not get them.
    fn deliver(&mut self, outputs: Vec<Delivery>, now: Duration) {
        for output in outputs {
            let connection = match &output {
                Delivery::Frame { to, .. } => *to,
                Delivery::Close(connection) => *connection,
            };
            match self.links.iter_mut().find(|(_, link)| link.connection == connection) {
                // It sends the events when it has caught up.
                Some((_, Link { behind: Some(behind), .. })) => {
                    if matches!(output, Delivery::Close(_)) {
                        behind.missed.push(output);
                    }
                }
                Some((id, _)) => {
                    let id = *id;
                    self.post(parcel_of(output, id), now);
                }
                None => {}
            }
        }
    }

    /// Passes the followers' reports on to the leader.
    fn report(&mut self, now: Duration) {
        for client in self.clients.values_mut().filter(|client| client.touched.due().is_some_and(|due| due <= now)) {
            let sessions = client.touched.take();
            for session in sessions.into_iter().filter(|_| !client.cut_off) {
                self.server.touch(session, now);
            }
        }
    }

    /// Delivers all messages that are due, and returns the time of the next event.
    fn step(&mut self, now: Duration) -> Option<Duration> {
        loop {
            let expiry = self.server.next_deadline();
            let arrival = self.arriving.first_key_value().map(|((at, _), _)| *at);
            let report = self.clients.values().filter_map(|client| client.touched.due()).min();
            let next = [expiry, arrival, report].into_iter().flatten().min()?;
            if next > now {
                return Some(next);
            }
            if arrival == Some(next) {
                if let Some((_, parcel)) = self.arriving.pop_first() {
                    self.arrive(parcel, now);
                }
            } else if report == Some(next) {
                self.report(now);
            } else {
                let outputs = self.server.tick(now);
                self.record(now);
                self.deliver(outputs, now);
            }
        }
    }

    fn arrive(&mut self, parcel: Parcel, now: Duration) {
        let id = parcel.link();
        let Some(link) = self.links.get_mut(&id) else { return };
        let client = self.clients.entry(link.client).or_default();
        if client.partitioned {
            client.held.push(parcel);
            return;
        }
        match parcel {
            Parcel::ToServer(_, bytes) => {
                let is_greeting = !std::mem::replace(&mut link.greeted, true);
                let is_write = is_greeting || goes_through_leader(&bytes);
                if let Some(session) = self.server.session_of(link.connection) {
                    client.touched.note(session, now, self.half_tick, &mut self.random);
                }
                if client.refuses && !is_greeting && is_login(&bytes) {
                    link.behind = None;
                    for output in self.server.refuse_credentials(link.connection, &bytes, now) {
                        self.post(parcel_of(output, id), now);
                    }
                    return;
                }
                if client.throttled && !is_greeting && self.random.random_ratio(1, 4) {
                    let server = link.behind.as_mut().map_or(&mut self.server, |behind| &mut behind.server);
                    if let Some(outputs) = server.throttle(link.connection, &bytes, now) {
                        for output in outputs {
                            self.post(parcel_of(output, id), now);
                        }
                        return;
                    }
                }
                if let Some(behind) = &mut link.behind {
                    if !is_write {
                        for output in behind.server.frame(link.connection, &bytes, now) {
                            self.post(parcel_of(output, id), now);
                        }
                        return;
                    }
                    if client.cut_off {
                        client.held.push(Parcel::ToServer(id, bytes));
                        return;
                    }
                }
                let connection = link.connection;
                let mut outputs = Vec::new();
                let drops = is_write && !is_greeting && std::mem::take(&mut client.drops_reply);
                // Only a server that has caught up answers a write; if the reply is lost, the next server may lag too.
                if let Some(behind) = link.behind.take() {
                    if !drops {
                        client.lagging = None;
                    }
                    outputs = self.server.catch_up(behind.server, connection);
                    outputs.extend(behind.missed);
                }
                outputs.extend(self.server.frame(connection, &bytes, now));
                // A server that is behind the client's state refuses it; the client then connects to another.
                let seen = if is_greeting { last_seen(&bytes) } else { 0 };
                let known = client.lagging.as_ref().filter(|known| is_greeting && known.has_seen(seen));
                let behind = known.map(|known| Behind::new(&self.server.with_nodes_of(known)));
                self.record(now);
                self.deliver(outputs, now);
                if drops {
                    self.break_link(id);
                } else if let Some(link) = self.links.get_mut(&id) {
                    link.behind = behind;
                }
            }
            Parcel::ClosedByClient(_) => {
                let connection = link.connection;
                self.links.remove(&id);
                self.server.closed(connection);
            }
            Parcel::ToClient(_, bytes) => {
                let _gone = link.inbox.send(FromServer::Frame(bytes));
            }
            Parcel::ClosedByServer(_) => {
                let _gone = link.inbox.send(FromServer::Closed);
                self.links.remove(&id);
            }
        }
    }
}

impl Parcel {
    fn link(&self) -> LinkId {
        match self {
            Self::ToServer(link, _)
            | Self::ClosedByClient(link)
            | Self::ToClient(link, _)
            | Self::ClosedByServer(link) => *link,
        }
    }

    fn goes_up(&self) -> bool {
        matches!(self, Self::ToServer(..) | Self::ClosedByClient(_))
    }
}

fn parcel_of(output: Delivery, link: LinkId) -> Parcel {
    match output {
        Delivery::Frame { bytes, .. } => Parcel::ToClient(link, bytes),
        Delivery::Close(_) => Parcel::ClosedByServer(link),
    }
}

/// Returns whether a server needs the leader to answer this frame.
fn goes_through_leader(frame: &[u8]) -> bool {
    let header = RequestHeader::decode(&mut Reader::new(frame));
    !header.is_ok_and(|header| {
        matches!(
            header.op,
            OpCode::Exists
                | OpCode::GetData
                | OpCode::GetChildren
                | OpCode::GetAcl
                | OpCode::Ping
                | OpCode::Auth
                | OpCode::SetWatches
                | OpCode::SetWatches2
                | OpCode::AddWatch
                | OpCode::RemoveWatches
        )
    })
}

/// Returns whether this frame has credentials.
fn is_login(frame: &[u8]) -> bool {
    RequestHeader::decode(&mut Reader::new(frame)).is_ok_and(|header| header.op == OpCode::Auth)
}

/// Returns the newest transaction that a connect request names.
fn last_seen(connect: &[u8]) -> i64 {
    ConnectRequest::decode(&mut Reader::new(connect)).map_or(0, |request| request.last_zxid_seen)
}

/// Delivers each message at its time, while the world has an owner.
pub(super) async fn run(world: Weak<World>) {
    loop {
        let Some(alive) = world.upgrade() else { return };
        let now = alive.now();
        let next = alive.state.lock().step(now);
        let due = async {
            match next {
                Some(at) => tokio::time::sleep_until(alive.origin + at).await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            biased;
            () = alive.changed.notified() => {}
            () = due => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MESSAGES: u8 = 60;

    #[tokio::test(start_paused = true)]
    async fn no_message_overtakes_one_that_a_partition_holds() {
        let (client, latency) = (ClientId(0), Duration::from_millis(100));
        for seed in 0..20 {
            let world = World::new(seed, latency, Duration::from_secs(1));
            let (link, mut inbox) = world.open(client);
            for number in 0..MESSAGES {
                match number {
                    20 => world.partition(client),
                    40 => world.repair(client),
                    _ => {}
                }
                world.change(|state, now| {
                    state.post(Parcel::ToClient(link, vec![number]), now);
                    state.step(now);
                });
                tokio::time::advance(latency / 10).await;
            }
            tokio::time::advance(latency * 2).await;
            world.change(|state, now| state.step(now));
            let arrived = std::iter::from_fn(|| inbox.try_recv().ok()).map(|message| match message {
                FromServer::Frame(bytes) => bytes[0],
                FromServer::Closed => unreachable!("the server closes no connection"),
            });
            assert!(arrived.eq(0..MESSAGES), "seed {seed}");
        }
    }
}

//! The requests of a session that set, set again and remove watches, and its events.

use std::sync::Arc;
use std::time::Duration;

use curator_wire::{OpCode, RequestHeader, XID_SET_WATCHES};

use super::connection::{Asked, Phase, THROTTLED, THROTTLED_PAUSE, Violation, Waiting, refused_watches, watch_of};
use super::machine::{Event, Protocol};
use crate::error::Error;
use crate::model::{AddWatchMode, EventType, WatchKind, WatchedEvent};
use crate::zookeeper::client::armed_watches::{Armed, SetWatches, known_of, parts_of_known};
use crate::zookeeper::client::records;
use crate::zookeeper::{KnownNodes, Notification, Response, Resync, WatchSender};

/// The bytes of an addWatch request beside the path: header, length and mode.
const ADD_WATCH_OVERHEAD: usize = 16;
/// `ZooDefs.WatcherType`.
pub(super) const WATCHER_CHILDREN: i32 = 1;
const WATCHER_DATA: i32 = 2;
const WATCHER_ANY: i32 = 3;

/// The watches of the session, and the events that are not passed on yet.
#[derive(Debug, Default)]
pub(super) struct Watching {
    pub(super) armed: Armed,
    /// The zxid from which the server replays missed events of watches. Frozen from the loss of a connection until all
    /// watches are set again, however many connections that takes.
    pub(super) base: Option<i64>,
    /// Events that arrived while watches were set again. They follow the next `Connected`, even on a later connection.
    pub(super) held_back: Vec<WatchedEvent>,
}

impl<T> Protocol<T> {
    /// Sets a persistent watch, and returns the number of the subscriber. Watches on the nodes that the subscriber knows
    /// are set ahead of it, because before 3.9 the newest watch of a path counts. They hear every change from the
    /// subscriber's zxid up to the reply to this request. Returns the token too if the server has the watch already, so
    /// that no reply will follow.
    pub(crate) fn add_watch(
        &mut self,
        path: &str,
        mode: AddWatchMode,
        resync: Option<Arc<dyn Resync>>,
        to: WatchSender,
        token: T,
        now: Duration,
    ) -> Result<(u64, Option<T>), (T, Error)> {
        if let Err(error) = self.check_ready(self.epoch, &format!("addWatch {path}")) {
            return Err((token, error));
        }
        let size = path.len() + ADD_WATCH_OVERHEAD;
        if size > self.settings.max_frame {
            let (request, limit) = (format!("addWatch {path}").into(), self.settings.max_frame);
            return Err((token, Error::RequestTooLarge { request, size, limit }));
        }
        // After a panic the subscriber has to read everything.
        let (known, is_lost) = match resync.as_ref().map(|resync| known_of(&**resync)) {
            Some(None) => (None, true),
            known => (known.flatten().filter(|known| !known.is_empty()), false),
        };
        let parts = known.as_ref().map_or_else(Vec::new, |known| {
            parts_of_known(path, mode, known, |path| self.mode_on_server(path), self.settings.max_frame)
        });
        let is_there = known.is_none() && self.server_has(path, mode);
        // Subscribed before the reply, because the first event may arrive with it.
        let id = self.watching.armed.subscribe(path, mode, resync, to);
        if let Some(zxid) = known.as_ref().map(KnownNodes::since) {
            self.watching.armed.resyncs(id);
            for part in parts {
                let op = part.op();
                let SetWatches { body, persistent } = part;
                self.numbered(op, now, Asked::Known { id, zxid, persistent }, |to| _ = to.raw(&body));
            }
        }
        if is_lost {
            self.watching.armed.is_ahead(id);
        }
        if is_there {
            self.watching.armed.resynced(id, self.epoch);
            return Ok((id, Some(token)));
        }
        let sent = self.watching.armed.mode_at(path).unwrap_or(mode);
        let asked = Asked::AddWatch { path: path.to_owned(), mode, sent, id, token };
        self.numbered(OpCode::AddWatch, now, asked, |to| records::encode_add_watch(path, sent, to));
        Ok((id, None))
    }

    /// Returns `true` if the server has a persistent watch of a path that serves a subscriber of this mode too.
    fn server_has(&self, path: &str, mode: AddWatchMode) -> bool {
        let serves = |of| of == mode || of == AddWatchMode::PersistentRecursive;
        let armed = &self.watching.armed;
        armed.mode_at(path).is_some_and(serves)
            && !armed.lacks_persistent(path)
            && self.modes_on_their_way(path).next().is_none()
    }

    /// Returns the mode of the persistent watch of a path that the server has when it gets the next request.
    fn mode_on_server(&self, path: &str) -> Option<AddWatchMode> {
        let needed = self.watching.armed.mode_at(path)?;
        Some(self.modes_on_their_way(path).next().unwrap_or(needed))
    }

    /// Returns the modes of the outstanding requests for a persistent watch of a path, the newest one first.
    fn modes_on_their_way(&self, path: &str) -> impl Iterator<Item = AddWatchMode> {
        let outstanding = self.connection.iter().flat_map(|connection| connection.outstanding.iter().rev());
        outstanding.filter_map(move |outstanding| match &outstanding.asked {
            Asked::AddWatch { path: of, sent, .. } if of == path => Some(*sent),
            Asked::Replace(of) if of == path => Some(AddWatchMode::Persistent),
            _ => None,
        })
    }

    /// Removes a subscriber and, with the last one of its path, the watch on the server. With the last recursive one a
    /// persistent watch takes the place of the recursive one.
    pub(crate) fn unsubscribe(&mut self, path: &str, mode: AddWatchMode, id: u64, now: Duration) {
        if !self.watching.armed.unsubscribe(path, mode, id) {
            return;
        }
        if self.is_ready() {
            self.fit_watch(path, now);
        } else if let Some(connection) = &mut self.connection {
            connection.waiting.push_back(Waiting::FitWatch(path.to_owned()));
        }
    }

    /// Removes the persistent watch of a path, or sets another one, if its subscribers need that.
    pub(super) fn fit_watch(&mut self, path: &str, now: Duration) {
        if self.watching.armed.mode_at(path).is_none() {
            self.remove_watch(path, None, now);
        } else {
            self.replace(path, now);
        }
    }

    /// Sets the persistent watch that the subscribers of a path lack. A server from 3.9 on keeps a recursive one beside
    /// it, and its events are ignored.
    fn replace(&mut self, path: &str, now: Duration) {
        let mode = AddWatchMode::Persistent;
        if self.watching.armed.lacks_persistent(path) && self.modes_on_their_way(path).next() != Some(mode) {
            let asked = Asked::Replace(path.to_owned());
            self.numbered(OpCode::AddWatch, now, asked, |to| records::encode_add_watch(path, mode, to));
        }
    }

    /// Removes a one-shot watch without waiters.
    pub(crate) fn forget(&mut self, path: &str, kind: WatchKind, now: Duration) {
        let is_ready = self.is_ready();
        match &mut self.connection {
            // The next connection does not set it again.
            None => self.watching.armed.disarm(path, kind),
            Some(connection) if is_ready && connection.waiting.is_empty() => self.remove_one_shot(path, kind, now),
            // Sent behind the requests that wait, or behind the watches that are being set again.
            Some(connection) => connection.waiting.push_back(Waiting::Forget(path.to_owned(), kind)),
        }
    }

    pub(super) fn remove_one_shot(&mut self, path: &str, kind: WatchKind, now: Duration) {
        if self.watching.armed.can_remove(path, kind) {
            if self.watching.armed.is_armed(path, kind) || self.reads_that_set(path, kind).next().is_some() {
                self.remove_watch(path, Some(kind), now);
            }
            return;
        }
        self.watching.armed.disarm(path, kind);
        // Reads on their way have lost their waiters too: their replies must not arm it.
        self.reads_that_set(path, kind).for_each(|watch| *watch = false);
    }

    /// Returns the flags of the reads on their way that set a one-shot watch of this kind.
    fn reads_that_set(&mut self, path: &str, kind: WatchKind) -> impl Iterator<Item = &mut bool> {
        let outstanding = self.connection.iter_mut().flat_map(|connection| &mut connection.outstanding);
        outstanding.filter_map(move |outstanding| {
            let Asked::Request(request, _) = &mut outstanding.asked else { return None };
            let (read, of, watch) = watch_of(request)?;
            (*watch && (read, of) == (path, kind)).then_some(watch)
        })
    }

    fn remove_watch(&mut self, path: &str, kind: Option<WatchKind>, now: Duration) {
        let watcher = match kind {
            Some(WatchKind::Children) => WATCHER_CHILDREN,
            Some(WatchKind::Data) => WATCHER_DATA,
            None => WATCHER_ANY,
        };
        let asked = Asked::RemoveWatch { path: path.to_owned(), kind };
        self.numbered(OpCode::RemoveWatches, now, asked, |to| _ = to.string(path).int(watcher));
    }

    /// Records that the server has set a persistent watch, and reports the watch of the children if it may have missed a
    /// change.
    pub(super) fn is_set(&mut self, path: &str, mode: AddWatchMode) {
        if self.watching.armed.is_set(path, mode, self.epoch) {
            self.report_armed(path, &[WatchKind::Children]);
        }
    }

    /// Records the reply to a request for watches on the nodes that a new subscriber knows.
    pub(super) fn known_set(
        &mut self,
        id: u64,
        zxid: i64,
        persistent: &[(String, AddWatchMode)],
        err: i32,
    ) -> Result<(), Violation> {
        match err {
            0 => persistent.iter().for_each(|(path, mode)| self.is_set(path, *mode)),
            THROTTLED => {}
            _ => return refused_watches(err),
        }
        if err == THROTTLED || zxid > self.last_seen {
            self.watching.armed.is_ahead(id);
        }
        Ok(())
    }

    /// Reports the one-shot watches that the server has removed with the persistent watch of their path. A subscriber
    /// since serves them only from its own reply on.
    pub(super) fn report_removed(&mut self, path: &str) {
        self.report_armed(path, &[WatchKind::Data, WatchKind::Children]);
    }

    /// Records that the server has refused a persistent watch. It has no watch for reads since, which were to be served.
    /// A watch of the children, which was not, may have taken the place of an earlier persistent one.
    pub(super) fn refused(&mut self, path: &str, mode: AddWatchMode, id: u64, now: Duration) {
        if mode == AddWatchMode::PersistentRecursive {
            self.watching.armed.may_be_displaced(path);
        }
        self.unsubscribe(path, mode, id, now);
        // Its subscriber may be gone already.
        self.replace(path, now);
        self.report(path, WatchKind::Data);
        self.report(path, WatchKind::Children);
    }

    fn report_armed(&mut self, path: &str, kinds: &[WatchKind]) {
        for kind in kinds {
            if self.watching.armed.is_armed(path, *kind) {
                self.report(path, *kind);
            }
        }
    }

    /// Has the waiters of a one-shot watch read again. If the client set the watch again, the replay of a change would
    /// come behind notifications of later changes. The reply that shows the loss comes ahead of them.
    fn report(&mut self, path: &str, kind: WatchKind) {
        self.watching.armed.disarm(path, kind);
        self.events.push_back(Event::Notification(Notification::WatchRemoved(path.to_owned(), kind)));
    }

    /// Removes or replaces a persistent watch later, because the server is busy.
    pub(super) fn throttled(&mut self, path: String, now: Duration) {
        if let Some(connection) = &mut self.connection {
            connection.throttled_paths.push(path);
            connection.throttled_until.get_or_insert(now + THROTTLED_PAUSE);
        }
    }

    pub(super) fn notified(&mut self, event: WatchedEvent) {
        let Some(connection) = &self.connection else { return };
        let [is_ready, is_restoring] = match connection.phase {
            Phase::Ready => [true, false],
            Phase::Restoring { .. } => [false, true],
            _ => [false, false],
        };
        let was_armed = self.watching.armed.fired(&event);
        let known_since = match connection.outstanding.front().map(|oldest| &oldest.asked) {
            Some(Asked::Known { zxid, .. }) => Some(*zxid),
            _ => None,
        };
        let repeated_since = match &connection.phase {
            Phase::Restoring { parts, .. } => parts.front().copied(),
            _ => known_since,
        };
        // A server sends an event ahead of every reply that shows a transaction as new as the event's. But it repeats the
        // changes since the transaction that the client has named, and deletions and creations since any.
        let before = match (repeated_since, event.event_type) {
            (Some(_), EventType::NodeCreated | EventType::NodeDeleted) => None,
            // A subscriber may name a transaction that no server has reached.
            (since, _) => Some(since.unwrap_or(self.last_seen).min(self.last_seen)),
        };
        if !connection.read_only {
            self.history.notified(&event, before);
        }
        self.watching.armed.tell(&event, is_restoring);
        // At most one event for each watch, however many the server sends. The others are for subscribers.
        if was_armed && is_restoring {
            self.watching.held_back.push(event);
        } else if was_armed && is_ready {
            match (known_since.is_some(), event.event_type) {
                // It may be older than the read that has set the watch, so that it proves nothing.
                (true, EventType::NodeCreated | EventType::NodeDataChanged) => {
                    self.report(&event.path, WatchKind::Data)
                }
                (true, EventType::NodeChildrenChanged) => self.report(&event.path, WatchKind::Children),
                _ => self.events.push_back(Event::Notification(Notification::Event(event))),
            }
        }
    }

    /// Sends the watches of the session.
    pub(super) fn restore_watches(&mut self) {
        self.watching.armed.restoring();
        let zxid = self.watching.base.unwrap_or(self.last_seen);
        let lists = self.watching.armed.parts(zxid, self.settings.max_frame);
        for list in &lists {
            self.frame(|to| {
                RequestHeader { xid: XID_SET_WATCHES, op: list.op() }.encode(to);
                to.raw(&list.body);
            });
        }
        if let Some(Phase::Restoring { parts, .. }) = self.connection.as_mut().map(|connection| &mut connection.phase) {
            let zxids = lists.iter().filter_map(|list| list.body.first_chunk().copied());
            *parts = zxids.map(i64::from_be_bytes).collect();
        }
    }

    /// Returns the moment from which the socket task calls [`set_throttled_watches`](Self::set_throttled_watches), at a
    /// ready connection within a second of it. At a reconnect the server has answered all lists by then: another one must
    /// not take the place of a persistent watch.
    pub(crate) fn watches_again_at(&self) -> Option<Duration> {
        let connection = self.connection.as_ref()?;
        connection.throttled_until.filter(|_| self.is_ready() || connection.phase.has_restored())
    }

    /// Sets, replaces and removes the watches that a busy server has refused, if the pause has passed.
    pub(crate) fn set_throttled_watches(&mut self, now: Duration) {
        if self.watches_again_at().is_none_or(|until| until > now) {
            return;
        }
        let Some(connection) = &mut self.connection else { return };
        connection.throttled_until = None;
        if matches!(connection.phase, Phase::Ready) {
            for path in std::mem::take(&mut connection.throttled_paths) {
                self.fit_watch(&path, now);
            }
            return;
        }
        if self.over.is_none() {
            self.restore_watches();
        }
        self.finish_restoring(now);
    }

    /// Records that the server has set a persistent watch.
    pub(super) fn added(&mut self, path: &str, sent: AddWatchMode, id: u64, now: Duration) -> Response {
        self.is_set(path, sent);
        self.watching.armed.resynced(id, self.epoch);
        self.replace(path, now);
        Response::Acknowledged
    }
}

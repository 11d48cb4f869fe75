//! The requests that only set, find and remove watches.

use super::core::{Caller, Core, Failure};
use super::watch::{WatchKind, WatchMode};
use crate::wire::{DecodeError, ErrorCode, EventKind, OpCode, Reader, Writer};

impl Core {
    /// Sets the watches that a returning client names. Those that would have fired in the meantime fire now.
    pub(super) fn set_watches(&mut self, caller: Caller, op: OpCode, body: &mut Reader<'_>) -> Result<Writer, Failure> {
        fn paths<'a>(body: &mut Reader<'a>) -> Result<Vec<&'a str>, DecodeError> {
            // Apache fails on a null list as on a null path.
            if body.clone().int()? == -1 {
                return Err(DecodeError::Null);
            }
            body.vector(Reader::string)
        }
        let seen = body.long()?;
        let (data, exists, child) = (paths(body)?, paths(body)?, paths(body)?);
        let (persistent, recursive) = match op {
            OpCode::SetWatches2 => (paths(body)?, paths(body)?),
            _ => (Vec::new(), Vec::new()),
        };
        let stat = |core: &Self, path: &str| core.view(caller.session).get(path).map(|node| node.stat()).ok();
        for path in data {
            let event = match stat(self, path) {
                None => Some(EventKind::NodeDeleted),
                Some(stat) => (stat.mzxid > seen).then_some(EventKind::NodeDataChanged),
            };
            self.fire_or_set(caller, WatchKind::Data, path, event);
        }
        for path in exists {
            let event = stat(self, path).map(|_| EventKind::NodeCreated);
            self.fire_or_set(caller, WatchKind::Data, path, event);
        }
        for path in child {
            let event = match stat(self, path) {
                None => Some(EventKind::NodeDeleted),
                Some(stat) => (stat.pzxid > seen).then_some(EventKind::NodeChildrenChanged),
            };
            self.fire_or_set(caller, WatchKind::Child, path, event);
        }
        // These get no missed events.
        for (paths, mode) in [(persistent, WatchMode::Persistent), (recursive, WatchMode::Recursive)] {
            for path in paths {
                self.watches.add_both(path, caller.connection, mode);
            }
        }
        Ok(Writer::new())
    }

    /// Handles `addWatch`. The node need not exist.
    pub(super) fn add_watch(&mut self, caller: Caller, body: &mut Reader<'_>) -> Result<Writer, Failure> {
        let path = body.optional_string()?;
        let mode = match body.int()? {
            0 => WatchMode::Persistent,
            1 => WatchMode::Recursive,
            _ => return Err(Failure::Unreadable),
        };
        // No event comes to a watch on null.
        if let Some(path) = path {
            self.watches.add_both(path, caller.connection, mode);
        }
        let mut reply = Writer::new();
        reply.int(ErrorCode::Ok.code());
        Ok(reply)
    }

    fn fire_or_set(&mut self, caller: Caller, kind: WatchKind, path: &str, event: Option<EventKind>) {
        match event {
            Some(event) => self.send_event(caller.connection, event, path),
            None => self.watches.add(kind, path, caller.connection),
        }
    }

    /// Handles `checkWatches` and `removeWatches`.
    pub(super) fn find_watches(
        &mut self,
        caller: Caller,
        op: OpCode,
        body: &mut Reader<'_>,
    ) -> Result<Writer, Failure> {
        let path = match op {
            OpCode::RemoveWatches => body.optional_string()?.unwrap_or_default(),
            _ => body.string()?,
        };
        let kinds: &[WatchKind] = match body.int()? {
            1 => &[WatchKind::Child],
            2 => &[WatchKind::Data],
            3 => &[WatchKind::Child, WatchKind::Data],
            _ => return Err(Failure::Unreadable),
        };
        let mut found = false;
        for kind in kinds {
            found |= if op == OpCode::RemoveWatches {
                self.watches.remove(*kind, path, caller.connection)
            } else {
                self.watches.contains(*kind, path, caller.connection)
            };
        }
        if found { Ok(Writer::new()) } else { Err(ErrorCode::NoWatcher.into()) }
    }
}

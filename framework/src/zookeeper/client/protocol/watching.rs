//! The watches of a session, and the events that are not passed on yet.

use curator_wire::XID_EVENT;

use super::connection::{Asked, Outstanding};
use crate::model::WatchedEvent;
use crate::zookeeper::client::armed_watches::Armed;

/// The watches of the session, and the events that are not passed on yet.
#[derive(Debug, Default)]
pub(super) struct Watching {
    pub(super) armed: Armed,
    /// The zxid from which the server replays missed events of watches. Frozen from the loss of a connection until all
    /// watches are set again, however many connections that takes.
    pub(super) base: Option<i64>,
    /// Events that arrived while watches were set again. They follow the next `Connected`, even on a later connection.
    pub(super) held_back: Vec<WatchedEvent>,
    /// Events of changes that may be replays for watches that are set again. Subscribers must not get a replay. The
    /// next frame decides.
    undecided: Vec<WatchedEvent>,
}

impl Watching {
    /// Notifies subscribers of an event, at once or when the next frame has decided that it is not a replay ahead of the
    /// reply to `oldest`.
    pub(super) fn hear<T>(&mut self, event: &WatchedEvent, oldest: Option<&Outstanding<T>>, is_restoring: bool) {
        match oldest.map(|oldest| &oldest.asked) {
            Some(Asked::SetAgain { path, .. }) if *path == event.path => self.undecided.push(event.clone()),
            _ => {
                self.decide(oldest, XID_EVENT);
                self.armed.tell(event, is_restoring);
            }
        }
    }

    /// Notifies subscribers of the undecided events, apart from those that the server has replayed ahead of its reply to
    /// this request. The replays come directly before the reply, and each repeats an event that subscribers got.
    pub(super) fn decide<T>(&mut self, oldest: Option<&Outstanding<T>>, xid: i32) {
        let undecided = std::mem::take(&mut self.undecided);
        let replayed = match oldest {
            Some(Outstanding { xid: of, asked: Asked::SetAgain { watches, .. }, .. }) if *of == xid => {
                watches.replayed(&undecided)
            }
            _ => 0,
        };
        for event in &undecided[..undecided.len() - replayed] {
            self.armed.tell(event, false);
        }
    }
}

//! Requests of an owner to the background task while it holds its node.

use std::sync::{Arc, Weak};
use std::time::Duration;

use super::OwnedNode;
use crate::model::Stat;
use crate::session::background::rearm_watch;
use crate::session::known_node::{LossListener, OwnerDelete};
use crate::session::loss_signal::LossSignal;
use crate::session::watches::Watch;

impl OwnedNode {
    /// Has the background task watch the node from `after` on, to notice a deletion that is not the owner's. The watch
    /// is set again after each reconnect.
    pub fn watch_node(&self, after: Duration) {
        if let Some(node) = &self.node {
            let now = self.session.clock().now();
            let due = now.saturating_add(after);
            self.session.background().watch_from(&self.session, now, due, Arc::downgrade(node));
        }
    }

    /// Calls `observer` with the node's data and stat, now and after each change. A change that another one follows at
    /// once may be missed; the last one never is. `observer` must not block.
    pub fn observe_data(&self, observer: impl Fn(&[u8], &Stat) + Send + Sync + 'static) {
        if let Some(node) = &self.node {
            // The first observer stays.
            let _set = node.observer.set(Box::new(observer));
            self.watch_node(Duration::ZERO);
        }
    }

    /// Calls `call` after this time if the node is still held. `call` must not block, and a later one replaces it.
    pub fn when_held_for(&self, long: Duration, call: impl FnOnce() + Send + 'static) {
        if let Some(node) = &self.node {
            let now = self.session.clock().now();
            let due = now.saturating_add(long);
            if node.long_hold().lock().set(due, Box::new(call)) {
                self.session.background().call(now, due, Arc::downgrade(node));
            }
        }
    }

    /// Withdraws the callback of [`when_held_for`](Self::when_held_for) and the listener for the loss: another holder
    /// gets the node.
    pub fn changes_hands(&self) {
        if let Some(node) = &self.node {
            node.long_hold().lock().forget();
            drop(node.loss_listener.lock().take());
        }
    }

    /// Sets the listener for the node's loss. A later one replaces it.
    pub fn set_loss_listener(&self, listener: Weak<dyn LossListener>) {
        if let Some(node) = &self.node {
            *node.loss_listener.lock() = Some(listener);
        }
    }

    /// Writes the node's data in the background, if it was never written since the create, to fire the data watches of
    /// waiters. A deletion of the node makes that superfluous, because it fires them too.
    pub fn signal_grant(&self, data: Vec<u8>) {
        if let Some(node) = &self.node {
            let now = self.session.clock().now();
            self.session.background().touch(&self.session, now, Arc::downgrade(node), data);
        }
    }

    /// Returns the state of the owner's delete, or `None` while the node is not known. A dropped owned node leaves its
    /// delete to the session's background task, and then it is never [done](OwnerDelete::is_done).
    #[must_use]
    pub fn owner_delete(&self) -> Option<OwnerDelete> {
        self.node.clone().map(OwnerDelete)
    }

    /// Watches the node as [`watch_node`](Self::watch_node) does, with a watch that is set already: on the node, or on the
    /// children of its parent by a listing that shows the node. The first event of the children that is not caused by
    /// the owner's delete costs a read, which sets a watch on the node.
    pub fn watch_node_with(&self, watch: Watch) {
        match &self.node {
            // The observer's watch is on the node already, and only the newest one is set again.
            Some(node) if node.observer.get().is_some() => watch.leave(),
            Some(node) => rearm_watch(self.session.clone(), &Arc::downgrade(node), watch),
            None => {}
        }
    }

    /// Returns the signal of the node's loss, which can outlive the owned node.
    #[must_use]
    pub fn loss_signal(&self) -> LossSignal {
        LossSignal { session: self.session.clone(), node: self.node.clone(), error_states: self.session.error_states() }
    }
}

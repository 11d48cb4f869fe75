//! The listeners of a shared value.

use std::fmt;
use std::sync::Arc;

use curator_framework::{ConnectionState, ListenerId};

use crate::shared::versioned::VersionedValue;

/// The reads of a shared value that need no request: Curator's `SharedValueReader`.
pub trait SharedValueReader: fmt::Debug {
    /// Returns the path of the node.
    fn path(&self) -> &str;

    /// Returns the newest value that this process knows.
    fn value(&self) -> Vec<u8>;

    /// Returns the newest value that this process knows, with its version.
    fn versioned_value(&self) -> VersionedValue<Vec<u8>>;

    /// Adds a listener. It is called for each later change, not for the present value.
    fn add_listener_object(&self, listener: Arc<dyn SharedValueListener>) -> ListenerId;

    /// Removes a listener. A call that is already queued may still reach it.
    fn remove_listener(&self, id: ListenerId);
}

/// A callback for changes of a shared value that this process sees: Curator's `SharedValueListener`.
///
/// Implemented for closures `Fn(&dyn SharedValueReader, &[u8])`.
///
/// Both methods are called on the listener's own thread, one call at a time, in the order of the events. They may
/// block, panic, and add or remove listeners, without harm to the session, the value or another listener. Calls to a
/// slow listener queue in memory; [`SharedValue::watch`](crate::SharedValue::watch) keeps the newest value only.
pub trait SharedValueListener: Send + Sync + 'static {
    /// Called with each new value, once. As with every ZooKeeper watch, only the last of several quick changes is seen.
    /// `shared` may already have a newer value.
    #[doc(alias = "valueHasChanged")]
    fn value_changed(&self, shared: &dyn SharedValueReader, value: &[u8]);

    /// Called when the connection's state has changed. Without a connection the value may be out of date. It is read
    /// again after `Reconnected`, and reported if it has changed. Does nothing by default.
    fn state_changed(&self, state: ConnectionState) {
        // Most listeners need only the values.
        let _: ConnectionState = state;
    }
}

impl<F> SharedValueListener for F
where
    F: Fn(&dyn SharedValueReader, &[u8]) + Send + Sync + 'static,
{
    fn value_changed(&self, shared: &dyn SharedValueReader, value: &[u8]) {
        self(shared, value);
    }
}

//! The shared count.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use curator_framework::{Chain, ConnectionState, CuratorFramework, ListenerId};
use parking_lot::Mutex;
use tokio::sync::watch;

use crate::shared::error::SharedError;
use crate::shared::listeners::{SharedValueListener, SharedValueReader};
use crate::shared::node_follower::{Bytes, ChangeSink};
use crate::shared::value::SharedValue;
use crate::shared::versioned::VersionedValue;

/// The reads of a shared count that need no request: Curator's `SharedCountReader`.
pub trait SharedCountReader: fmt::Debug {
    /// Returns the newest count that this process knows.
    ///
    /// # Errors
    ///
    /// `SharedError::NotACount`: the node's data is not four bytes; set the count to repair it.
    fn count(&self) -> Result<i32, SharedError>;

    /// Returns the newest count that this process knows, with its version.
    ///
    /// # Errors
    ///
    /// As [`count`](Self::count).
    fn versioned_value(&self) -> Result<VersionedValue<i32>, SharedError>;

    /// Adds a listener. It is called for each later change, not for the present count.
    fn add_listener_object(&self, listener: Arc<dyn SharedCountListener>) -> ListenerId;

    /// Removes a listener. A call that is already queued may still reach it.
    fn remove_listener(&self, id: ListenerId);
}

/// A callback for changes of a shared count that this process sees: Curator's `SharedCountListener`. It is called like
/// a [`SharedValueListener`].
///
/// Implemented for closures `Fn(&dyn SharedCountReader, i32)`.
pub trait SharedCountListener: Send + Sync + 'static {
    /// Called with each new count. Data that is not a count causes no call.
    #[doc(alias = "countHasChanged")]
    fn count_changed(&self, shared: &dyn SharedCountReader, count: i32);

    /// Called when the connection's state changes: see [`SharedValueListener::state_changed`]. Does nothing by default.
    fn state_changed(&self, state: ConnectionState) {
        // Most listeners need only the counts.
        let _: ConnectionState = state;
    }
}

impl<F> SharedCountListener for F
where
    F: Fn(&dyn SharedCountReader, i32) + Send + Sync + 'static,
{
    fn count_changed(&self, shared: &dyn SharedCountReader, count: i32) {
        self(shared, count);
    }
}

/// A number that all processes share, with a local copy that is kept up to date: Curator's `SharedCount`.
///
/// It is a [`SharedValue`] with a signed number of 32 bits as its data. Cheap to clone; all clones are one count.
///
/// # Examples
///
/// ```
/// # #[tokio::main]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let server = curator_test::TestingServer::start()?;
/// # let retry = curator_framework::RetryOneTime::new(std::time::Duration::from_millis(50));
/// # let client = curator_framework::CuratorFramework::new_client(server.connect_string(), retry)?;
/// # client.start()?;
/// use curator_recipes::SharedCount;
///
/// let visitors = SharedCount::new(client, "/office/visitors", 0)?;
/// visitors.start()?;
/// visitors.initialized().await?;
/// loop {
///     let before = visitors.versioned_value()?;
///     if visitors.try_set_count(&before, before.value() + 1).await? {
///         break;
///     }
/// }
/// # Ok(())
/// # }
/// ```
///
/// # ZooKeeper layout
///
/// One persistent node at the path. Its data is the number in four bytes, the highest first, as in Curator.
#[derive(Clone)]
pub struct SharedCount {
    value: SharedValue,
    broadcast: Arc<CountBroadcast>,
}

impl SharedCount {
    /// Creates a count at a path. No request. `seed` is the count until the first read, or of a missing node.
    ///
    /// # Errors
    ///
    /// `Error::InvalidPath`: the path is not valid in ZooKeeper.
    pub fn new(client: CuratorFramework, path: impl Into<String>, seed: i32) -> Result<Self, SharedError> {
        let path = path.into();
        let broadcast = Arc::new(CountBroadcast::new(path.clone(), seed));
        let sink: Arc<dyn ChangeSink> = Arc::<CountBroadcast>::clone(&broadcast);
        Ok(Self { value: SharedValue::with_sink(client, path, to_bytes(seed), Some(sink))?, broadcast })
    }

    /// Starts to read the count, and to keep the copy up to date, in the background. Creates the node if it is missing.
    ///
    /// # Errors
    ///
    /// As [`SharedValue::start`].
    pub fn start(&self) -> Result<(), SharedError> {
        self.value.start()
    }

    /// Waits for the first read. Data that is not a count is not an error here, so that
    /// [`set_count`](Self::set_count) can repair it.
    ///
    /// # Errors
    ///
    /// As [`SharedValue::initialized`].
    ///
    /// # Cancel safety
    ///
    /// Nothing is lost when the future is dropped.
    pub async fn initialized(&self) -> Result<(), SharedError> {
        self.value.initialized().await
    }

    /// Waits like [`initialized`](Self::initialized) for at most `budget`. Returns `Ok(None)` if the budget ends while the
    /// client is connected.
    ///
    /// # Errors
    ///
    /// As [`SharedValue::initialized_timeout`].
    ///
    /// # Cancel safety
    ///
    /// Nothing is lost when the future is dropped.
    pub async fn initialized_timeout(&self, budget: Duration) -> Result<Option<()>, SharedError> {
        self.value.initialized_timeout(budget).await
    }

    /// Returns the path of the node.
    #[must_use]
    pub fn path(&self) -> &str {
        self.value.path()
    }

    /// Returns the newest count that this process knows. No request.
    ///
    /// # Errors
    ///
    /// `SharedError::NotACount`: the node's data is not four bytes; repair it with [`set_count`](Self::set_count).
    pub fn count(&self) -> Result<i32, SharedError> {
        Ok(self.versioned_value()?.into_value())
    }

    /// Returns the newest count that this process knows, with its version. No request.
    ///
    /// # Errors
    ///
    /// As [`count`](Self::count).
    pub fn versioned_value(&self) -> Result<VersionedValue<i32>, SharedError> {
        decode(self.path(), &self.value.versioned_value())
    }

    /// Returns a channel of counts, for async code: see [`SharedValue::watch`]. Data that is not a count is left out.
    #[must_use]
    pub fn watch(&self) -> watch::Receiver<VersionedValue<i32>> {
        self.broadcast.watch()
    }

    /// Sets the count, whatever it is now.
    ///
    /// # Errors
    ///
    /// As [`SharedValue::set_value`].
    ///
    /// # Cancel safety
    ///
    /// When the future is dropped the count may be set.
    pub async fn set_count(&self, count: i32) -> Result<(), SharedError> {
        self.value.set_value(to_bytes(count)).await
    }

    /// Sets the count if it is still the previous one: see [`SharedValue::try_set_value`], also for lost replies. After
    /// a lost reply an increment must not be repeated blindly: equal counts of several processes look the same.
    ///
    /// # Errors
    ///
    /// As [`SharedValue::try_set_value`].
    ///
    /// # Cancel safety
    ///
    /// When the future is dropped the count may be set.
    pub async fn try_set_count(&self, previous: &VersionedValue<i32>, count: i32) -> Result<bool, SharedError> {
        self.value.try_set_value(&previous.with(to_bytes(*previous.value())), to_bytes(count)).await
    }

    /// Adds a closure as a listener: see [`SharedValue::add_listener`].
    pub fn add_listener(&self, listener: impl Fn(&dyn SharedCountReader, i32) + Send + Sync + 'static) -> ListenerId {
        self.add_listener_object(Arc::new(listener))
    }

    /// Removes a listener. A call that is already queued may still reach it.
    pub fn remove_listener(&self, id: ListenerId) {
        self.value.remove_listener(id);
    }

    /// Stops the count: see [`SharedValue::close`].
    ///
    /// # Cancel safety
    ///
    /// As [`SharedValue::close`].
    pub async fn close(&self) {
        self.value.close().await;
    }
}

impl SharedCountReader for SharedCount {
    fn count(&self) -> Result<i32, SharedError> {
        self.count()
    }

    fn versioned_value(&self) -> Result<VersionedValue<i32>, SharedError> {
        self.versioned_value()
    }

    fn add_listener_object(&self, listener: Arc<dyn SharedCountListener>) -> ListenerId {
        self.value.add_listener_object(Arc::new(Decoding(listener)))
    }

    fn remove_listener(&self, id: ListenerId) {
        self.remove_listener(id);
    }
}

impl fmt::Debug for SharedCount {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("SharedCount").field(&self.value).finish()
    }
}

fn to_bytes(count: i32) -> Vec<u8> {
    count.to_be_bytes().to_vec()
}

fn decode(path: &str, value: &Bytes) -> Result<VersionedValue<i32>, SharedError> {
    let bytes = value.value();
    match <[u8; 4]>::try_from(bytes.as_slice()) {
        Ok(count) => Ok(value.with(i32::from_be_bytes(count))),
        Err(_wrong_length) => Err(SharedError::NotACount { path: path.into(), length: bytes.len() }),
    }
}

/// A count, decoded from its value.
#[derive(Debug)]
struct CountView<'a>(&'a dyn SharedValueReader);

impl SharedCountReader for CountView<'_> {
    fn count(&self) -> Result<i32, SharedError> {
        Ok(self.versioned_value()?.into_value())
    }

    fn versioned_value(&self) -> Result<VersionedValue<i32>, SharedError> {
        decode(self.0.path(), &self.0.versioned_value())
    }

    fn add_listener_object(&self, listener: Arc<dyn SharedCountListener>) -> ListenerId {
        self.0.add_listener_object(Arc::new(Decoding(listener)))
    }

    fn remove_listener(&self, id: ListenerId) {
        self.0.remove_listener(id);
    }
}

/// A listener to the value that decodes it for a listener to the count.
struct Decoding(Arc<dyn SharedCountListener>);

impl SharedValueListener for Decoding {
    fn value_changed(&self, shared: &dyn SharedValueReader, value: &[u8]) {
        // The value's task has already logged data that is not a count.
        if let Ok(count) = value.try_into() {
            self.0.count_changed(&CountView(shared), i32::from_be_bytes(count));
        }
    }

    fn state_changed(&self, state: ConnectionState) {
        self.0.state_changed(state);
    }
}

/// The channel of counts.
struct CountBroadcast {
    path: String,
    /// `None` after the close.
    channel: Mutex<Option<watch::Sender<VersionedValue<i32>>>>,
    /// The newest count, for channels that are opened after the close.
    last: Mutex<VersionedValue<i32>>,
}

impl CountBroadcast {
    fn new(path: String, seed: i32) -> Self {
        let seed = VersionedValue::seed(seed);
        Self { path, channel: Mutex::new(Some(watch::Sender::new(seed))), last: Mutex::new(seed) }
    }

    fn watch(&self) -> watch::Receiver<VersionedValue<i32>> {
        match &*self.channel.lock() {
            Some(sender) => sender.subscribe(),
            None => watch::channel(*self.last.lock()).1,
        }
    }

    fn decode(&self, value: &Bytes) -> Option<VersionedValue<i32>> {
        decode(&self.path, value)
            .inspect_err(|error| tracing::warn!(error = %Chain(&error), "the last count stays"))
            .ok()
    }
}

impl ChangeSink for CountBroadcast {
    fn changed(&self, value: &Bytes) {
        let Some(count) = self.decode(value) else { return };
        *self.last.lock() = count;
        if let Some(sender) = &*self.channel.lock() {
            sender.send_replace(count);
        }
    }

    fn closed(&self) {
        let sender = self.channel.lock().take();
        drop(sender);
    }
}

#[cfg(test)]
mod tests {
    use curator_framework::{RetryOneTime, Zxid};
    use std::time::Duration;

    use super::*;

    fn count(seed: i32) -> SharedCount {
        let client = CuratorFramework::new_client("localhost", RetryOneTime::new(Duration::ZERO)).unwrap();
        SharedCount::new(client, "/count", seed).unwrap()
    }

    #[test]
    fn a_count_is_four_bytes_the_highest_first() {
        for (number, bytes) in [
            (0, [0, 0, 0, 0]),
            (1, [0, 0, 0, 1]),
            (-2, [0xff, 0xff, 0xff, 0xfe]),
            (i32::MAX, [0x7f, 0xff, 0xff, 0xff]),
            (i32::MIN, [0x80, 0, 0, 0]),
        ] {
            assert_eq!(to_bytes(number), bytes);
            let read = VersionedValue::new(Zxid::new(7), 3, bytes.to_vec());
            assert_eq!(decode("/count", &read).unwrap(), VersionedValue::new(Zxid::new(7), 3, number));
        }
        for length in [0, 3, 5] {
            let error = decode("/count", &VersionedValue::new(Zxid::new(7), 3, vec![0; length])).unwrap_err();
            assert_eq!(error.to_string(), format!("the data of /count is not a count: it has {length} bytes, not 4"));
        }
    }

    /// A backup to which the servers return has older transactions.
    #[test]
    fn the_channel_has_each_count_at_once_in_the_order_of_the_changes() {
        let count = count(5);
        let (cache, counts) = (count.value.cache(), count.watch());
        let value = |zxid, bytes: Vec<u8>| VersionedValue::new(Zxid::new(zxid), 0, bytes);
        cache.update(value(5, to_bytes(6)));
        assert_eq!(*counts.borrow(), VersionedValue::new(Zxid::new(5), 0, 6));
        cache.update(value(4, to_bytes(8)));
        assert_eq!(*counts.borrow().value(), 6, "an older read");
        cache.update(value(6, vec![1, 2, 3]));
        assert_eq!(*counts.borrow().value(), 6, "not a count");
        cache.replace(&value(6, vec![1, 2, 3]), value(3, to_bytes(7)));
        assert_eq!(*counts.borrow(), VersionedValue::new(Zxid::new(3), 0, 7));
    }
}

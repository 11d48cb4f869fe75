//! An announced instance, as its announcer sees it.

use std::fmt;
use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use curator_framework::Changes;
use curator_framework::recipe::Budget;
use curator_recipes::{Change, NodeError, NodeState, PersistentNode, StandingNode};
use parking_lot::Mutex;
use tokio::sync::watch;

use crate::claims::Claim;
use crate::error::DiscoveryError;
use crate::instance::payload::Payload;
use crate::instance::service_instance::ServiceInstance;
use crate::json::serializer::InstanceSerializer;

/// The codec of a discovery.
pub(crate) type Codec<P> = Arc<dyn InstanceSerializer<P>>;

/// Returns the data of an instance.
pub(crate) fn encode<P: Payload>(codec: &Codec<P>, instance: &ServiceInstance<P>) -> Result<Vec<u8>, DiscoveryError> {
    codec.serialize(instance).map_err(|source| DiscoveryError::Encode {
        name: instance.name.clone(),
        id: instance.id.clone(),
        source: source.into(),
    })
}

/// The node of a registration. The discovery knows it too, to close it.
pub(crate) struct Announced {
    pub(crate) name: String,
    pub(crate) id: String,
    pub(crate) service: String,
    pub(crate) node: PersistentNode,
    /// Taken at the end of the registration.
    pub(crate) claim: Mutex<Option<Claim>>,
}

impl Announced {
    pub(crate) async fn close(&self) {
        self.node.close().await;
        self.claim.lock().take();
    }
}

/// An announced instance of a service. A task keeps its node: see [`PersistentNode`].
///
/// | event | the node |
/// | --- | --- |
/// | the connection is reset | stays, without a request |
/// | the session ends | is created again in the next session; the old one, if it is still there, is replaced in one transaction |
/// | another client deletes it | is created again |
/// | another client writes it | keeps that data until the next [`update`](Self::update) or session |
/// | another session has a node at the path | waits: [`TakenBy`](NodeState::TakenBy). Its own node follows when that one is deleted |
/// | [`unregister`](Self::unregister) | is deleted, even if it is [`Permanent`](crate::ServiceType::Permanent) |
/// | [`close`](Self::close) of the registration or the discovery, the drop of the registration | is deleted, unless it is `Permanent`; after a drop in the background |
///
/// A lost reply to a create leaves one node, even of a [`DynamicSequential`](crate::ServiceType::DynamicSequential) instance,
/// although the number of its node is in the reply alone. Over `zookeeper-async`, which has no transactions, it may leave a
/// second one, and the node of an earlier session is deleted before the new one is created.
///
/// After a crash the node of the earlier process exists until its session expires. A process that registers the same id
/// waits for that; a process with a random id, the default, does not.
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
/// use std::time::Duration;
/// use curator_discovery::{ServiceDiscovery, ServiceInstance};
///
/// let discovery = ServiceDiscovery::new(client.clone(), "/services")?;
/// let instance = ServiceInstance::builder("web").id("host-7").address("10.0.0.7").port(8080).payload(1_u32).build()?;
/// let registration = discovery.register(instance).await?;
/// registration.update(|instance| instance.payload = 2).await?;
/// assert_eq!(discovery.instance("web", "host-7").await?.map(|instance| instance.payload), Some(2));
///
/// // At the end of the program: consumers stop to send requests, then the node is deleted.
/// registration.drain(Duration::from_millis(10)).await?;
/// assert!(discovery.instances("web").await?.found.is_empty());
/// client.close().await;
/// # Ok(())
/// # }
/// ```
///
/// # Cost
///
/// | case | requests |
/// | --- | --- |
/// | register | 1 create, and 1 read that sets a watch, in one round trip |
/// | lost connection | none |
/// | [`update`](Self::update) | 1 write, and 1 read that sets a watch |
///
/// [`PersistentNode`] has the whole table.
#[must_use = "the drop of a registration deletes its node"]
pub struct Registration<P: Payload> {
    announced: Arc<Announced>,
    codec: Codec<P>,
    /// Held while an update reads the data and hands the changed one to the node, so that no update undoes another one.
    updates: Mutex<()>,
}

/// The write of a node's data.
type Write<'a> = Pin<Box<dyn Future<Output = Result<(), NodeError>> + Send + 'a>>;

impl<P: Payload> Registration<P> {
    pub(crate) const fn new(announced: Arc<Announced>, codec: Codec<P>) -> Self {
        Self { announced, codec, updates: Mutex::new(()) }
    }

    /// Returns the name of the service.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.announced.name
    }

    /// Returns the id of the instance.
    #[must_use]
    pub fn id(&self) -> &str {
        &self.announced.id
    }

    /// Returns the instance as it was registered or last updated by this process. It decodes the data of the node.
    ///
    /// # Errors
    ///
    /// `DiscoveryError::Decode`: the program's own codec or payload cannot read what it has written.
    pub fn instance(&self) -> Result<ServiceInstance<P>, DiscoveryError> {
        self.decode(&self.announced.node.data())
    }

    fn decode(&self, data: &[u8]) -> Result<ServiceInstance<P>, DiscoveryError> {
        let node = self.announced.id.clone();
        self.codec.deserialize(data).map_err(|source| DiscoveryError::Decode { node, source })
    }

    /// Returns the path of the service, not of the instance's node: that is [`node_path`](Self::node_path).
    #[must_use]
    pub fn path(&self) -> &str {
        &self.announced.service
    }

    /// Returns the path of the instance's node; `None` for a
    /// [`DynamicSequential`](crate::ServiceType::DynamicSequential) one until its first create has given it a number.
    #[must_use]
    pub fn node_path(&self) -> Option<String> {
        self.announced.node.actual_path()
    }

    /// Returns the present state.
    #[must_use]
    pub fn state(&self) -> NodeState {
        self.announced.node.state()
    }

    /// Returns the state as a channel. It may skip states; [`changes`](Self::changes) does not.
    #[must_use]
    pub fn watch(&self) -> watch::Receiver<NodeState> {
        self.announced.node.watch()
    }

    /// Returns the changes of the state from now on, as a bounded stream.
    pub fn changes(&self) -> Changes<Change<NodeState>> {
        self.announced.node.changes()
    }

    /// Waits until the node exists, even while a node of another session has the path.
    ///
    /// # Errors
    ///
    /// * `NodeError::Closed`: the registration, its discovery or its client was closed.
    /// * An error that waiting does not fix, such as `Error::NoAuth`: give the client the permission to create the node.
    ///   The task tries again with pauses.
    ///
    /// # Cancel safety
    ///
    /// Nothing is lost when the future is dropped.
    pub async fn registered(&self) -> Result<StandingNode, DiscoveryError> {
        Ok(self.announced.node.created().await?)
    }

    /// Waits like [`registered`](Self::registered) for at most `budget`. Returns `Ok(None)` if the budget ends while the
    /// client is connected. The task still tries to create the node.
    ///
    /// # Errors
    ///
    /// * `NodeError::Closed`: the registration, its discovery or its client was closed.
    /// * `NodeError::TakenBy`: another session has the path at the end of the budget. Give the instance another id, or
    ///   wait for the end of that session.
    /// * `Error::ConnectionLoss`: the budget ended without a connection.
    /// * An error that waiting does not fix, such as `Error::NoAuth`: give the client the permission to create the
    ///   node. The task tries again with pauses.
    ///
    /// # Cancel safety
    ///
    /// Nothing is lost when the future is dropped.
    pub async fn registered_timeout(&self, budget: Duration) -> Result<Option<StandingNode>, DiscoveryError> {
        Ok(self.announced.node.created_timeout(budget).await?)
    }

    /// Changes the instance, and writes it. Resolves when the server has this data, or newer data of this registration.
    /// In an outage it waits for the next connection. Later creates of the node have the changed instance at once.
    ///
    /// `change` gets the instance as this process has written it last, not as another client has changed it. Updates of
    /// several tasks are applied one after the other. `change` must not call this registration.
    ///
    /// # Errors
    ///
    /// * `DiscoveryError::InvalidArgument`: `change` has set another name, id or type. Register another instance.
    /// * `DiscoveryError::Decode`: the program's own codec cannot read the present instance. It stays as it was.
    /// * `DiscoveryError::Encode`: the instance stays as it was.
    /// * `Error::NoAuth`, `Error::RequestTooLarge` and other refusals: the instance stays as it was.
    /// * `NodeError::TakenBy`: the changed instance is kept for the next create.
    /// * `NodeError::Closed`: the registration or the client was closed.
    ///
    /// # Cancel safety
    ///
    /// Once the future was polled, the data is written even if the future is dropped.
    #[doc(alias = "updateService")]
    pub async fn update(&self, change: impl FnOnce(&mut ServiceInstance<P>) + Send) -> Result<(), DiscoveryError> {
        let (mut change, mut write) = (Some(change), None::<Write<'_>>);
        // The first poll of a write hands the data to the node.
        let written = poll_fn(|cx| {
            let Some(change) = change.take() else {
                return write.as_mut().map_or(Poll::Pending, |write| write.as_mut().poll(cx)).map_err(Into::into);
            };
            let _one_at_a_time = self.updates.lock();
            let data = match self.changed(change) {
                Ok(data) => data,
                Err(error) => return Poll::Ready(Err(error)),
            };
            let write = write.insert(Box::pin(self.announced.node.set_data(data)));
            write.as_mut().poll(cx).map_err(Into::into)
        });
        written.await
    }

    /// Returns the data of the changed instance.
    fn changed(&self, change: impl FnOnce(&mut ServiceInstance<P>)) -> Result<Vec<u8>, DiscoveryError> {
        let mut instance = self.instance()?;
        let service_type = instance.service_type;
        change(&mut instance);
        let has_other = (instance.name != self.announced.name).then_some("name");
        let has_other = has_other.or_else(|| (instance.id != self.announced.id).then_some("id"));
        match has_other.or_else(|| (instance.service_type != service_type).then_some("service_type")) {
            Some(argument) => Err(DiscoveryError::InvalidArgument {
                argument,
                reason: "an update cannot change it, as the node stays the same".to_owned(),
            }),
            None => encode(&self.codec, &instance),
        }
    }

    /// Takes the instance out of service, or back into it: writes `enabled`, and the payload's
    /// [own status](Payload::set_available).
    ///
    /// # Errors
    ///
    /// * `DiscoveryError::Decode`: the program's own codec cannot read the present instance. It stays as it was.
    /// * `DiscoveryError::Encode`: the codec or the payload refuses the change. The instance stays as it was.
    /// * `Error::NoAuth`, `Error::RequestTooLarge` and other refusals: the instance stays as it was.
    /// * `NodeError::TakenBy`: the changed instance is kept for the next create.
    /// * `NodeError::Closed`: the registration or the client was closed.
    ///
    /// # Cancel safety
    ///
    /// Once the future was polled, the data is written even if the future is dropped.
    pub async fn set_enabled(&self, enabled: bool) -> Result<(), DiscoveryError> {
        let set = |instance: &mut ServiceInstance<P>| {
            instance.enabled = enabled;
            instance.payload.set_available(enabled);
        };
        self.update(set).await
    }

    /// Takes the instance out of service, waits until `time` has passed since the call, and unregisters it. In this time
    /// consumers learn of the change, and requests end. In an outage it does not wait longer.
    ///
    /// # Errors
    ///
    /// The write that takes the instance out of service may fail. The instance is unregistered even then:
    /// * `DiscoveryError::Decode`, `DiscoveryError::Encode`: the program's own codec cannot read or write the instance.
    /// * `Error::NoAuth`, `Error::RequestTooLarge` and other refusals of the write.
    /// * `NodeError::TakenBy`: another session has a node at the path.
    /// * `NodeError::Closed`: the registration or the client was closed.
    ///
    /// If the write succeeds, the delete may fail:
    /// * `Error::NoAuth`: the server refuses the delete. Give the client the permission on the service's node. In the
    ///   meantime the client tries again in the background.
    /// * `Error::NotEmpty`: the node of a persistent instance has children. The same applies once they are deleted.
    ///
    /// # Cancel safety
    ///
    /// When the future is dropped the instance stays registered, and out of service once the future was polled.
    pub async fn drain(&self, time: Duration) -> Result<(), DiscoveryError> {
        let budget = Budget::of(time);
        let disabled = budget.limit(self.set_enabled(false)).await.unwrap_or(Ok(()));
        // Nothing resolves it: the budget ends it.
        let _time_is_up = budget.limit(std::future::pending::<()>()).await;
        let unregistered = self.unregister().await;
        disabled.and(unregistered)
    }

    /// Deletes the node, a [`Permanent`](crate::ServiceType::Permanent) one too, and ends the registration. Resolves when
    /// the server has deleted it. It waits at most for the client's
    /// [`max_close_wait`](curator_framework::CuratorFrameworkBuilder::max_close_wait), 5 s by default. Then the client
    /// deletes the node in the background. A node of another session, or of another registration, is never deleted.
    /// Unregistering twice is fine. After [`close`](Self::close) it has no effect.
    ///
    /// # Errors
    ///
    /// * `Error::NoAuth`: the server refuses the delete. Give the client the permission on the service's node. In the
    ///   meantime the client tries again in the background.
    /// * `Error::NotEmpty`: the node of a persistent instance has children. The same applies once they are deleted.
    ///
    /// A lost connection is not an error: the client deletes the node later.
    ///
    /// # Cancel safety
    ///
    /// The client deletes the node even if the future is dropped after its first poll.
    #[doc(alias = "unregisterService")]
    pub async fn unregister(&self) -> Result<(), DiscoveryError> {
        let deleted = self.announced.node.delete().await;
        self.announced.claim.lock().take();
        Ok(deleted?)
    }

    /// Ends the registration like [`unregister`](Self::unregister), but leaves the node of a
    /// [`Permanent`](crate::ServiceType::Permanent) instance.
    ///
    /// # Cancel safety
    ///
    /// The closing continues when the future is dropped after its first poll.
    pub async fn close(&self) {
        self.announced.close().await;
    }
}

impl<P: Payload> fmt::Debug for Registration<P> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Registration")
            .field("name", &self.announced.name)
            .field("id", &self.announced.id)
            .field("node", &self.announced.node)
            .finish_non_exhaustive()
    }
}

//! Registers and finds instances.

use std::fmt;
use std::net::IpAddr;
use std::sync::{Arc, Weak};
use std::time::Duration;

use curator_framework::recipe::RecipeClient as _;
use curator_framework::{Acl, CreateMode, CuratorFramework, Error, make_path, validate_path};
use curator_recipes::{PersistentNode, PersistentNodeOptions};
use futures_util::future::join_all;
use futures_util::stream::{StreamExt as _, iter};
use parking_lot::Mutex;

use crate::address::local_address;
use crate::claims::Claim;
use crate::error::{DecodeError, DiscoveryError};
use crate::instance::payload::Payload;
use crate::instance::service_instance::{ServiceInstance, ServiceType};
use crate::json::serializer::{InstanceSerializer, JsonInstanceSerializer};
use crate::layout::{Layout, PathOfName, RESERVED, check_id};
use crate::registration::{Announced, Codec, Registration, encode};

/// The reads of a listing that are in flight together.
const IN_FLIGHT: usize = 64;

/// The options of a [`ServiceDiscovery`].
#[must_use = "options do nothing by themselves"]
pub struct ServiceDiscoveryOptions<P: Payload> {
    codec: Codec<P>,
    path: Option<PathOfName>,
    acl: Option<Vec<Acl>>,
}

impl<P: Payload> Clone for ServiceDiscoveryOptions<P> {
    fn clone(&self) -> Self {
        Self { codec: Arc::clone(&self.codec), path: self.path.clone(), acl: self.acl.clone() }
    }
}

impl<P: Payload> Default for ServiceDiscoveryOptions<P> {
    fn default() -> Self {
        Self { codec: Arc::new(JsonInstanceSerializer::new()), path: None, acl: None }
    }
}

impl<P: Payload> ServiceDiscoveryOptions<P> {
    /// Returns the defaults.
    pub fn new() -> Self {
        Self::default()
    }

    /// Sets the codec of the nodes' data. Default: [`JsonInstanceSerializer::new`], the bytes of Java's default.
    pub fn serializer(mut self, serializer: impl InstanceSerializer<P>) -> Self {
        self.codec = Arc::new(serializer);
        self
    }

    /// Sets the path of a service by its name. Default: `<base path>/<name>`. [`ServiceDiscovery::names`] still lists the
    /// children of the base path.
    ///
    /// # Examples
    ///
    /// ```
    /// use curator_discovery::ServiceDiscoveryOptions;
    ///
    /// let options = ServiceDiscoveryOptions::<()>::new().path(|name| format!("/eu-1/{name}/instances"));
    /// # drop(options);
    /// ```
    #[doc(alias = "DiscoveryPathConstructor")]
    #[doc(alias = "pathConstructor")]
    pub fn path(mut self, path: impl Fn(&str) -> String + Send + Sync + 'static) -> Self {
        self.path = Some(Arc::new(path));
        self
    }

    /// Sets the access control list of the instances' nodes, which all consumers must be able to read. Default: the list
    /// of the client's [`AclProvider`](curator_framework::AclProvider).
    pub fn acl(mut self, acl: impl Into<Vec<Acl>>) -> Self {
        self.acl = Some(acl.into());
        self
    }
}

impl<P: Payload> fmt::Debug for ServiceDiscoveryOptions<P> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ServiceDiscoveryOptions").field("has_path", &self.path.is_some()).finish_non_exhaustive()
    }
}

/// The instances of a service at one moment.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct Instances<P> {
    /// The instances, in the order of their nodes' names.
    pub found: Vec<ServiceInstance<P>>,
    /// The names of the nodes that are not instances, each with the reason.
    pub broken: Vec<(String, DecodeError)>,
}

/// Registers instances of services, and finds the instances of all processes: Curator's `ServiceDiscovery`.
///
/// `P` is the [payload](Payload) of the instances, the program's own data; `()` if there is nothing to say.
///
/// [Clones](curator_recipes#handles) are cheap, and all clones are one discovery. They keep the client open. It needs no
/// start: a [registration](Registration) has a task of its own. [`close`](Self::close) ends all of them. The drop of the
/// last clone has no effect.
///
/// A program that asks often follows the service with a [`ServiceCache`](crate::ServiceCache), which costs a read for each
/// change in place of reads for each question.
///
/// # The address of an instance
///
/// An instance without an [address](crate::ServiceInstanceBuilder::address) gets the source address of this host's packets
/// to ZooKeeper's servers. Other hosts that reach those servers can mostly reach it too. It never has a zone. In a container
/// it is the container's address.
///
/// If ZooKeeper runs on this host alone, the address is a loopback address. Then the instance is registered, and a warning
/// names `.address(…)`.
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
/// use curator_discovery::{ServiceDiscovery, ServiceInstance};
///
/// let discovery = ServiceDiscovery::new(client.clone(), "/services")?;
/// let instance = ServiceInstance::builder("web").address("10.0.0.7").port(8080).payload("eu-1".to_owned()).build()?;
/// let registration = discovery.register(instance).await?;
/// assert_eq!(discovery.names().await?, ["web"]);
/// for instance in discovery.instances("web").await?.found {
///     println!("{:?} in {}", instance.host_and_port(), instance.payload);
/// }
/// registration.unregister().await?;
/// # client.close().await;
/// # Ok(())
/// # }
/// ```
///
/// # Differences from Curator
///
/// | Curator | here |
/// | --- | --- |
/// | each reconnect deletes and creates all instances, so consumers lose them for a moment | the nodes stay; a new session replaces them |
/// | one id for two services: `unregister` deletes the wrong node | a registration has its own node |
/// | a second registration of an id: two versions of the instance, and a reconnect restores the first | `AlreadyRegistered` |
/// | a node of another process with the same id is deleted | is not touched, and [reported](curator_recipes::NodeState::TakenBy) |
/// | `DYNAMIC_SEQUENTIAL`: one more node after each reconnect, and none can be unregistered | one node, which is unregistered |
/// | `PERMANENT` nodes are deleted by `close` | stay |
/// | one broken instance fails the whole query | is [reported](Instances::broken) beside the others |
/// | names and ids that no query finds are accepted | are refused |
/// | `queryForNames` fails without a base node | is empty |
/// | the instances are read one after the other | 64 reads are in flight |
///
/// Curator's `watchInstances` does not exist: data that another client writes into the node of a registration stays until
/// the next [`update`](Registration::update) or the next session of this process.
///
/// # ZooKeeper layout
///
/// `<base path>/<name>/<id>` with the instance's [JSON](JsonInstanceSerializer), below containers, as in Curator. Java's
/// `ServiceDiscovery` and this one share the services.
///
/// | [type](ServiceType) | node |
/// | --- | --- |
/// | `Dynamic` | ephemeral |
/// | `Static`, `Permanent` | persistent |
/// | `DynamicSequential` | ephemeral, with a number of 10 digits behind the id |
///
/// Over `zookeeper-async`, a lost reply to the first create of a `DynamicSequential` node leaves a second node until the
/// session ends.
///
/// # Cost
///
/// | call | requests |
/// | --- | --- |
/// | [`names`](Self::names) | 1 listing |
/// | [`instances`](Self::instances) | 1 listing, and 1 read for each instance; 64 reads are in flight |
/// | [`instance`](Self::instance) | 1 read |
/// | [`register`](Self::register) | 1 create, and 1 read that sets a watch: see [`PersistentNode`] |
pub struct ServiceDiscovery<P: Payload> {
    shared: Arc<Shared<P>>,
}

struct Shared<P> {
    client: CuratorFramework,
    layout: Layout,
    codec: Codec<P>,
    acl: Option<Vec<Acl>>,
    /// `None` once the discovery is closed.
    announced: Mutex<Option<Vec<Weak<Announced>>>>,
}

impl<P: Payload> Clone for ServiceDiscovery<P> {
    fn clone(&self) -> Self {
        Self { shared: Arc::clone(&self.shared) }
    }
}

impl<P: Payload> ServiceDiscovery<P> {
    /// Returns a discovery of the services below a base path, without a request.
    ///
    /// # Errors
    ///
    /// `Error::InvalidPath`: ZooKeeper does not allow this path.
    pub fn new(client: CuratorFramework, base_path: impl Into<String>) -> Result<Self, DiscoveryError> {
        Self::with_options(client, base_path, ServiceDiscoveryOptions::new())
    }

    /// Returns a discovery with options.
    ///
    /// # Errors
    ///
    /// `Error::InvalidPath`: ZooKeeper does not allow this path.
    #[doc(alias = "ServiceDiscoveryBuilder")]
    pub fn with_options(
        client: CuratorFramework,
        base_path: impl Into<String>,
        options: ServiceDiscoveryOptions<P>,
    ) -> Result<Self, DiscoveryError> {
        let base = base_path.into();
        validate_path(&base)?;
        let ServiceDiscoveryOptions { codec, path, acl } = options;
        let (layout, announced) = (Layout { base, path }, Mutex::new(Some(Vec::new())));
        Ok(Self { shared: Arc::new(Shared { client, layout, codec, acl, announced }) })
    }

    /// Returns the base path.
    #[must_use]
    pub fn path(&self) -> &str {
        &self.shared.layout.base
    }

    pub(crate) fn client(&self) -> &CuratorFramework {
        &self.shared.client
    }

    pub(crate) fn codec(&self) -> &Codec<P> {
        &self.shared.codec
    }

    /// Returns the path of a service.
    ///
    /// # Errors
    ///
    /// `DiscoveryError::InvalidArgument`, `Error::InvalidPath`: a service cannot have this name.
    pub fn service_path(&self, name: &str) -> Result<String, DiscoveryError> {
        self.shared.layout.service(name)
    }

    /// Registers an instance, and waits until its node exists. Waits even while a node of another session has the path.
    ///
    /// # Errors
    ///
    /// * `DiscoveryError::AlreadyRegistered`: this client has a registration with this name and id.
    /// * `DiscoveryError::InvalidArgument`, `Error::InvalidPath`: the name or the id is not valid, or the type is
    ///   `None`.
    /// * `DiscoveryError::NoAddress`: set an address.
    /// * `DiscoveryError::Encode`: the codec or the payload refuses the instance.
    /// * `DiscoveryError::Closed`: the discovery was closed; create another one. `NodeError::Closed`: it was closed
    ///   during the wait.
    /// * `Error::NoRuntime`: call it in a tokio runtime.
    /// * An error that waiting does not fix, such as `Error::NoAuth`: the instance is not registered. Give the client
    ///   the permission to create the node.
    ///
    /// # Cancel safety
    ///
    /// When the future is dropped the instance is unregistered in the background.
    #[doc(alias = "registerService")]
    pub async fn register(&self, instance: ServiceInstance<P>) -> Result<Registration<P>, DiscoveryError> {
        let registration = self.announce(instance).await?;
        registration.registered().await?;
        Ok(registration)
    }

    /// Registers an instance like [`register`](Self::register), and waits for at most `budget`. Returns `Ok(None)`,
    /// without a registration, if the budget ends while the client is connected.
    ///
    /// # Errors
    ///
    /// * `DiscoveryError::AlreadyRegistered`: this client has a registration with this name and id.
    /// * `DiscoveryError::InvalidArgument`, `Error::InvalidPath`: the name or the id is not valid, or the type is
    ///   `None`.
    /// * `DiscoveryError::NoAddress`: set an address. `DiscoveryError::Encode`: the codec or the payload refuses the
    ///   instance.
    /// * `DiscoveryError::Closed`: the discovery was closed; create another one. `NodeError::Closed`: it was closed
    ///   during the wait.
    /// * `Error::NoRuntime`: call it in a tokio runtime.
    /// * `NodeError::TakenBy`: another session has the path at the end of the budget. Give the instance another id, or
    ///   a budget above the session timeout.
    /// * `Error::ConnectionLoss`: the budget ended without a connection.
    /// * An error that waiting does not fix, such as `Error::NoAuth`: the instance is not registered. Give the client
    ///   the permission to create the node.
    ///
    /// # Cancel safety
    ///
    /// When the future is dropped the instance is unregistered in the background.
    pub async fn register_timeout(
        &self,
        instance: ServiceInstance<P>,
        budget: Duration,
    ) -> Result<Option<Registration<P>>, DiscoveryError> {
        let registration = self.announce(instance).await?;
        Ok(registration.registered_timeout(budget).await?.map(|_node| registration))
    }

    /// Starts to register an instance, and does not wait for its node: the node is created when a server answers. The
    /// wait for an instance without an [address](Self#the-address-of-an-instance) is at most 2 s.
    ///
    /// # Errors
    ///
    /// * `DiscoveryError::AlreadyRegistered`: this client has a registration with this name and id.
    /// * `DiscoveryError::InvalidArgument`, `Error::InvalidPath`: the name or the id is not valid, or the type is `None`.
    /// * `DiscoveryError::NoAddress`: set an address.
    /// * `DiscoveryError::Encode`: the codec or the payload refuses the instance.
    /// * `DiscoveryError::Closed`: the discovery was closed; create another one.
    /// * `Error::NoRuntime`: call it in a tokio runtime.
    ///
    /// # Cancel safety
    ///
    /// When the future is dropped nothing is registered.
    pub async fn announce(&self, mut instance: ServiceInstance<P>) -> Result<Registration<P>, DiscoveryError> {
        let Shared { client, layout, codec, acl, .. } = &*self.shared;
        let (service, path) = (layout.service(&instance.name)?, layout.instance(&instance.name, &instance.id)?);
        let mut options = node_options(&instance)?;
        let claim = Claim::new(client, &path)
            .ok_or_else(|| DiscoveryError::AlreadyRegistered { path: client.path_text(&path) })?;
        if instance.address.is_none() {
            instance.address = Some(self.find_address(&instance.name).await?);
        }
        if let Some(acl) = acl {
            options = options.acl(acl.clone());
        }
        let data = encode(codec, &instance)?;
        let node = PersistentNode::with_options(client.clone(), path, data, options)?;
        let (claim, ServiceInstance { name, id, .. }) = (Mutex::new(Some(claim)), instance);
        let announced = Arc::new(Announced { name, id, service, node, claim });
        // Under the lock: a close that comes later finds the registration.
        let mut all = self.shared.announced.lock();
        let Some(all) = &mut *all else {
            return Err(DiscoveryError::Closed { path: client.path_text(self.path()) });
        };
        announced.node.start()?;
        all.retain(|known| known.strong_count() > 0);
        all.push(Arc::downgrade(&announced));
        Ok(Registration::new(announced, Arc::clone(codec)))
    }

    /// Returns the address that an instance without one gets: this host's address towards the servers, without a request.
    /// `None` if none is found within 2 s.
    ///
    /// # Cancel safety
    ///
    /// Nothing is lost when the future is dropped.
    pub async fn local_address(&self) -> Option<IpAddr> {
        local_address(&self.shared.client).await
    }

    async fn find_address(&self, name: &str) -> Result<String, DiscoveryError> {
        let address = self.local_address().await;
        let address = address.ok_or_else(|| DiscoveryError::NoAddress { name: name.to_owned() })?;
        if address.is_loopback() {
            tracing::warn!(
                service = name,
                %address,
                "an instance is registered with a loopback address: other hosts need one that is set with .address(…)"
            );
        }
        Ok(address.to_string())
    }

    /// Returns the names of the services: the children of the base path, in order. A service without instances
    /// may be among them until the server removes its container. A name with a slash shows its first part alone.
    ///
    /// # Errors
    ///
    /// `Error::ConnectionLoss`, `Error::NoAuth` and other errors of a listing.
    ///
    /// # Cancel safety
    ///
    /// Nothing is lost when the future is dropped.
    #[doc(alias = "queryForNames")]
    pub async fn names(&self) -> Result<Vec<String>, DiscoveryError> {
        let mut names = self.children(self.path()).await?;
        names.retain(|name| name != RESERVED);
        Ok(names)
    }

    /// Lists the children of a node in order; empty if the node does not exist.
    async fn children(&self, path: &str) -> Result<Vec<String>, DiscoveryError> {
        match self.shared.client.get_children().for_path(path).await {
            Ok(mut names) => {
                names.sort_unstable();
                Ok(names)
            }
            Err(Error::NoNode { .. }) => Ok(Vec::new()),
            Err(error) => Err(error.into()),
        }
    }

    /// Reads the instances of a service, disabled ones too. A node that is not an instance is reported beside the others,
    /// apart from one without data that has children: a service with a longer name. A service without instances is empty.
    ///
    /// # Errors
    ///
    /// * `DiscoveryError::InvalidArgument`, `Error::InvalidPath`: a service cannot have this name.
    /// * `Error::ConnectionLoss`, and other errors that may pass: call it again. A node that the server refuses to show is
    ///   [broken](Instances::broken).
    /// * `Error::NoAuth` and other refusals of the listing.
    ///
    /// # Cancel safety
    ///
    /// Nothing is lost when the future is dropped.
    #[doc(alias = "queryForInstances")]
    pub async fn instances(&self, name: &str) -> Result<Instances<P>, DiscoveryError> {
        let service = self.service_path(name)?;
        let names = self.children(&service).await?;
        let read = async |node: String| {
            let data = self.shared.client.get_data().for_path(&make_path(&service, &node)).await;
            (node, data)
        };
        let mut reads = iter(names.into_iter().map(read)).buffered(IN_FLIGHT);
        let mut all = Instances { found: Vec::new(), broken: Vec::new() };
        while let Some((node, data)) = reads.next().await {
            let decoded = match data {
                // The part of a longer name, such as `shop` of `shop/cart`.
                Ok((data, stat)) if data.is_empty() && stat.num_children > 0 => continue,
                Ok((data, _)) => self.shared.codec.deserialize(&data),
                // Deleted since the listing.
                Err(Error::NoNode { .. }) => continue,
                Err(error) if error.is_retryable() || matches!(error, Error::Closed | Error::NotStarted) => {
                    return Err(error.into());
                }
                Err(error) => Err(DecodeError::Unreadable(Arc::new(error))),
            };
            match decoded {
                Ok(instance) => all.found.push(instance),
                Err(error) => all.broken.push((node, error)),
            }
        }
        Ok(all)
    }

    /// Reads one instance by its node's name: the id, with the number behind it for a
    /// [`DynamicSequential`](ServiceType::DynamicSequential) one. Returns `None` if it does not exist.
    ///
    /// # Errors
    ///
    /// * `DiscoveryError::InvalidArgument`, `Error::InvalidPath`: the name or the id is not valid.
    /// * `DiscoveryError::Decode`: the node is not an instance.
    /// * `Error::ConnectionLoss`, `Error::NoAuth` and other errors of a read.
    ///
    /// # Cancel safety
    ///
    /// Nothing is lost when the future is dropped.
    #[doc(alias = "queryForInstance")]
    pub async fn instance(&self, name: &str, id: &str) -> Result<Option<ServiceInstance<P>>, DiscoveryError> {
        let service = self.service_path(name)?;
        check_id(id)?;
        match self.shared.client.get_data().for_path(&make_path(&service, id)).await {
            Ok((data, _)) => {
                let decoded = self.shared.codec.deserialize(&data);
                let broken = |source| DiscoveryError::Decode { node: id.to_owned(), source };
                decoded.map(Some).map_err(broken)
            }
            Err(Error::NoNode { .. }) => Ok(None),
            Err(error) => Err(error.into()),
        }
    }

    /// Ends all registrations, as [`Registration::close`] does: the nodes are deleted, except of
    /// [`Permanent`](ServiceType::Permanent) instances. All deletes leave together. Resolves within the client's
    /// [`max_close_wait`](curator_framework::CuratorFrameworkBuilder::max_close_wait). Closing twice is fine.
    ///
    /// # Cancel safety
    ///
    /// The closing continues when the future is dropped after its first poll.
    pub async fn close(&self) {
        let announced = self.shared.announced.lock().take().unwrap_or_default();
        let announced: Vec<_> = announced.iter().filter_map(Weak::upgrade).collect();
        join_all(announced.iter().map(|announced| announced.close())).await;
    }
}

/// Returns the options of an instance's node.
fn node_options<P>(instance: &ServiceInstance<P>) -> Result<PersistentNodeOptions, DiscoveryError> {
    let options = PersistentNodeOptions::new();
    Ok(match instance.service_type {
        Some(ServiceType::Dynamic) => options.mode(CreateMode::Ephemeral),
        Some(ServiceType::DynamicSequential) => options.mode(CreateMode::EphemeralSequential),
        Some(ServiceType::Static) => options.mode(CreateMode::Persistent),
        Some(ServiceType::Permanent) => options.mode(CreateMode::Persistent).stays_when_closed(),
        None => {
            let reason = "the life of the node is not known".to_owned();
            return Err(DiscoveryError::InvalidArgument { argument: "service_type", reason });
        }
    })
}

impl<P: Payload> fmt::Debug for ServiceDiscovery<P> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ServiceDiscovery").field("layout", &self.shared.layout).finish_non_exhaustive()
    }
}

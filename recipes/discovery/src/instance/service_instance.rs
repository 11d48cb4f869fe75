//! An instance of a service.

use std::fmt;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use curator_framework::{Randomness as _, ThreadRandomness};
use uuid::Uuid;

use crate::error::DiscoveryError;
use crate::instance::uri_spec::{UriSpec, in_uri};
use crate::layout::{check_id, check_name};

/// The life of an instance's node: Curator's `ServiceType`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum ServiceType {
    /// An ephemeral node, which ends with the session.
    #[default]
    Dynamic,
    /// A node that stays when the session ends, until its registration ends.
    Static,
    /// A node that stays until [`Registration::unregister`](crate::Registration::unregister), or until an
    /// administrator deletes it. The end of the process and [`close`](crate::Registration::close) leave it.
    Permanent,
    /// An ephemeral node with a number behind its id, so that several processes may have one id.
    DynamicSequential,
}

impl ServiceType {
    /// All types, in the order of Java's ordinals.
    pub(crate) const ALL: [Self; 4] = [Self::Dynamic, Self::Static, Self::Permanent, Self::DynamicSequential];

    /// Returns Java's name of the type, such as `DYNAMIC`.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Dynamic => "DYNAMIC",
            Self::Static => "STATIC",
            Self::Permanent => "PERMANENT",
            Self::DynamicSequential => "DYNAMIC_SEQUENTIAL",
        }
    }
}

impl fmt::Display for ServiceType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// An instance of a service: Curator's `ServiceInstance`.
///
/// The fields are also the fields of the JSON in the instance's node. An instance that was read keeps the fields that this crate
/// does not know, and writes them again.
///
/// # Examples
///
/// ```
/// use curator_discovery::ServiceInstance;
///
/// let instance = ServiceInstance::builder("web").address("10.0.0.7").port(8080).payload("eu-1".to_owned()).build()?;
/// assert_eq!(instance.host_and_port().as_deref(), Some("10.0.0.7:8080"));
/// # Ok::<(), curator_discovery::DiscoveryError>(())
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct ServiceInstance<P = ()> {
    /// The name of the service; empty if a reader found none.
    pub name: String,
    /// The id; empty if a reader found none. The node's name is the id, with a number behind it for
    /// [`DynamicSequential`](ServiceType::DynamicSequential).
    pub id: String,
    /// The address, an IP address or a host name. A registration of an instance without one
    /// [finds it](crate::ServiceDiscovery#the-address-of-an-instance).
    pub address: Option<String>,
    /// The port. An `i32`, as Java's readers and writers allow any `int`: [`port_number`](Self::port_number) checks it.
    pub port: Option<i32>,
    /// The port for TLS, an `i32` too.
    pub ssl_port: Option<i32>,
    /// The program's own data.
    pub payload: P,
    /// The time of the registration in milliseconds since 1970.
    pub registration_time_utc: i64,
    /// The type; `None` for JSON with `null` or with a type that this crate does not know.
    pub service_type: Option<ServiceType>,
    /// The template of the instance's URI.
    pub uri_spec: Option<UriSpec>,
    /// `false` if consumers are to pass over the instance.
    pub enabled: bool,
    /// The fields that this crate does not know, each with its JSON, in the order of the text that was read.
    pub(crate) unknown: Vec<(String, String)>,
    /// The JSON of a type that this crate does not know.
    pub(crate) unknown_type: Option<String>,
}

impl ServiceInstance {
    /// Returns a builder of an instance of the service with this name. The payload is `()`, `null` in JSON, until
    /// [`payload`](ServiceInstanceBuilder::payload) sets another one.
    pub fn builder(name: impl Into<String>) -> ServiceInstanceBuilder {
        ServiceInstanceBuilder { instance: Self::empty(name.into(), ()), is_timed: false }
    }
}

impl<P> ServiceInstance<P> {
    /// Returns an instance with the values that a reader of Java gives to missing fields.
    pub(crate) const fn empty(name: String, payload: P) -> Self {
        Self {
            name,
            id: String::new(),
            address: None,
            port: None,
            ssl_port: None,
            payload,
            registration_time_utc: 0,
            service_type: Some(ServiceType::Dynamic),
            uri_spec: None,
            enabled: true,
            unknown: Vec::new(),
            unknown_type: None,
        }
    }

    /// Returns the same instance with another payload.
    pub fn with_payload<Q>(self, payload: Q) -> ServiceInstance<Q> {
        let Self { name, id, address, port, ssl_port, registration_time_utc, service_type, uri_spec, .. } = self;
        let (enabled, unknown, unknown_type) = (self.enabled, self.unknown, self.unknown_type);
        ServiceInstance {
            name,
            id,
            address,
            port,
            ssl_port,
            payload,
            registration_time_utc,
            service_type,
            uri_spec,
            enabled,
            unknown,
            unknown_type,
        }
    }

    /// Returns the port, if it is one.
    #[must_use]
    pub fn port_number(&self) -> Option<u16> {
        self.port.and_then(|port| u16::try_from(port).ok())
    }

    /// Returns the port for TLS, if it is one.
    #[must_use]
    pub fn ssl_port_number(&self) -> Option<u16> {
        self.ssl_port.and_then(|port| u16::try_from(port).ok())
    }

    /// Returns `address:port`, with brackets around an IPv6 address; `None` without an address or a port.
    #[must_use]
    pub fn host_and_port(&self) -> Option<String> {
        let (address, port) = (self.address.as_deref()?, self.port_number()?);
        Some(format!("{}:{port}", in_uri(address)))
    }

    /// Returns the time of the registration; `None` for a time that `SystemTime` cannot represent.
    #[must_use]
    pub fn registered_at(&self) -> Option<SystemTime> {
        let distance = Duration::from_millis(self.registration_time_utc.unsigned_abs());
        if self.registration_time_utc < 0 { UNIX_EPOCH.checked_sub(distance) } else { UNIX_EPOCH.checked_add(distance) }
    }
}

/// Builds a [`ServiceInstance`]: Curator's `ServiceInstanceBuilder`.
#[derive(Debug, Clone)]
#[must_use = "a builder does nothing by itself"]
pub struct ServiceInstanceBuilder<P = ()> {
    instance: ServiceInstance<P>,
    is_timed: bool,
}

impl<P> ServiceInstanceBuilder<P> {
    /// Sets the id. Default: a random UUID.
    pub fn id(mut self, id: impl Into<String>) -> Self {
        self.instance.id = id.into();
        self
    }

    /// Sets the address, an IP address or a host name that consumers can reach. Default: the registration
    /// [finds it](crate::ServiceDiscovery#the-address-of-an-instance).
    pub fn address(mut self, address: impl Into<String>) -> Self {
        self.instance.address = Some(address.into());
        self
    }

    /// Sets the port. Default: none.
    pub fn port(mut self, port: u16) -> Self {
        self.instance.port = Some(port.into());
        self
    }

    /// Sets the port for TLS. Default: none.
    pub fn ssl_port(mut self, port: u16) -> Self {
        self.instance.ssl_port = Some(port.into());
        self
    }

    /// Sets the payload. Default: `()`, `null` in JSON.
    pub fn payload<Q>(self, payload: Q) -> ServiceInstanceBuilder<Q> {
        ServiceInstanceBuilder { instance: self.instance.with_payload(payload), is_timed: self.is_timed }
    }

    /// Sets the time of the registration in milliseconds since 1970. Default: the time of [`build`](Self::build).
    pub fn registration_time_utc(mut self, millis: i64) -> Self {
        self.instance.registration_time_utc = millis;
        self.is_timed = true;
        self
    }

    /// Sets the life of the node. Default: [`Dynamic`](ServiceType::Dynamic).
    pub fn service_type(mut self, service_type: ServiceType) -> Self {
        self.instance.service_type = Some(service_type);
        self
    }

    /// Sets the template of the URI. Default: none.
    pub fn uri_spec(mut self, spec: UriSpec) -> Self {
        self.instance.uri_spec = Some(spec);
        self
    }

    /// Sets whether consumers may use the instance. Default: `true`.
    pub fn enabled(mut self, enabled: bool) -> Self {
        self.instance.enabled = enabled;
        self
    }

    /// Returns the instance.
    ///
    /// # Errors
    ///
    /// `DiscoveryError::InvalidArgument`:
    ///
    /// * the name is empty or `zookeeper`, starts or ends with a slash, or has two slashes in a row;
    /// * the id is empty or `zookeeper`, or has a slash;
    /// * one of them has a character that ZooKeeper does not allow in a path.
    pub fn build(self) -> Result<ServiceInstance<P>, DiscoveryError> {
        let Self { mut instance, is_timed } = self;
        check_name(&instance.name)?;
        if instance.id.is_empty() {
            instance.id = random_id();
        }
        check_id(&instance.id)?;
        if !is_timed {
            let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
            instance.registration_time_utc = i64::try_from(since.as_millis()).unwrap_or(i64::MAX);
        }
        Ok(instance)
    }
}

/// Returns a random UUID, as Java's builder does.
fn random_id() -> String {
    let (high, low) = (ThreadRandomness.next(), ThreadRandomness.next());
    let bytes = (u128::from(high) << 64 | u128::from(low)).to_be_bytes();
    let id: Uuid = uuid::Builder::from_random_bytes(bytes).into_uuid();
    id.hyphenated().to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn defaults_are_those_of_java() {
        let instance = ServiceInstance::builder("web").build().unwrap();
        assert_eq!(Uuid::parse_str(&instance.id).unwrap().get_version_num(), 4);
        assert_ne!(ServiceInstance::builder("web").build().unwrap().id, instance.id);
        assert!(instance.enabled && instance.service_type == Some(ServiceType::Dynamic));
        let age = instance.registered_at().unwrap().elapsed().unwrap();
        assert!(age < Duration::from_secs(60), "{age:?}");
    }

    #[test]
    fn names_and_ids_that_no_listing_finds_are_refused() {
        for name in ["", "/a", "a/", "a//b", "zookeeper", "a/../b", ".", "a\u{0}b"] {
            let built = ServiceInstance::builder(name).build();
            assert!(matches!(built, Err(DiscoveryError::InvalidArgument { argument: "name", .. })), "{name:?}");
        }
        for id in ["x/y", "zookeeper", "..", "a\u{1}"] {
            let built = ServiceInstance::builder("web").id(id).build();
            assert!(matches!(built, Err(DiscoveryError::InvalidArgument { argument: "id", .. })), "{id:?}");
        }
        // Dependencies of Spring have slashes in their names; ids of Dubbo have colons.
        assert!(ServiceInstance::builder("shop/cart").id("10.0.0.7:20880").build().is_ok());
    }

    #[test]
    fn ports_that_java_allows_are_not_all_ports() {
        let mut instance = ServiceInstance::builder("web").address("fd00::2").port(65_535).build().unwrap();
        assert_eq!(instance.host_and_port().as_deref(), Some("[fd00::2]:65535"));
        for port in [-1, 65_536, i32::MIN] {
            instance.port = Some(port);
            assert_eq!((instance.port_number(), instance.host_and_port()), (None, None));
        }
    }
}

//! Instances of a service, as values.

pub(crate) mod dubbo;
pub(crate) mod payload;
pub(crate) mod service_instance;
pub(crate) mod spring;
mod uri;
pub(crate) mod uri_spec;
mod zookeeper_instance;

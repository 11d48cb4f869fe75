//! The JSON of `/api/services`. README describes it.

use serde::Serialize;
use serde_json::value::RawValue;

use super::page::reason;
use super::{Instance, Service, Services, State};
use crate::serve::api::LinkJson;
use crate::serve::link::Link;

/// The most addresses of a service in the list.
const ADDRESSES: usize = 16;

/// The top of each answer.
#[derive(Debug, Serialize)]
struct Head<'a> {
    #[serde(flatten)]
    link: LinkJson<'a>,
    base: &'a str,
    exists: Option<bool>,
    complete: bool,
    as_of_ms: i64,
    problems: &'a [String],
}

impl<'a> Head<'a> {
    fn new(services: &'a Services, link: &'a Link) -> Self {
        Self {
            link: LinkJson::new(link),
            base: &services.base,
            exists: services.exists,
            complete: link.is_connected() && services.is_fresh && services.problems.is_empty(),
            as_of_ms: services.at,
            problems: &services.problems,
        }
    }
}

#[derive(Debug, Serialize)]
struct ServiceJson<'a> {
    name: &'a str,
    enabled: usize,
    disabled: usize,
    broken: usize,
    addresses: Vec<&'a str>,
}

impl<'a> ServiceJson<'a> {
    fn new(service: &'a Service) -> Self {
        let mut addresses = service.addresses();
        addresses.truncate(ADDRESSES);
        let count = |state| service.count(state);
        Self {
            name: &service.name,
            enabled: count(State::Enabled),
            disabled: count(State::Disabled),
            broken: count(State::Broken),
            addresses,
        }
    }
}

#[derive(Debug, Serialize)]
struct InstanceJson<'a> {
    node: &'a str,
    id: &'a str,
    address: Option<&'a str>,
    port: Option<i32>,
    ssl_port: Option<i32>,
    enabled: bool,
    out_of_service: bool,
    #[serde(rename = "type")]
    service_type: Option<&'static str>,
    registered_ms: i64,
    payload: Option<&'a RawValue>,
    payload_bytes: usize,
}

impl<'a> InstanceJson<'a> {
    fn new(node: &'a str, instance: &'a Instance) -> serde_json::Result<Self> {
        Ok(Self {
            node,
            id: &instance.id,
            address: instance.address.as_deref(),
            port: instance.port,
            ssl_port: instance.ssl_port,
            enabled: instance.enabled,
            out_of_service: instance.is_out_of_service,
            service_type: instance.service_type,
            registered_ms: instance.registered,
            payload: instance.payload.as_deref().map(serde_json::from_str).transpose()?,
            payload_bytes: instance.payload_bytes,
        })
    }
}

#[derive(Debug, Serialize)]
struct BrokenJson<'a> {
    node: &'a str,
    reason: &'a str,
}

/// Returns the answer to `/api/services`.
pub(crate) fn services(services: &Services, link: &Link) -> serde_json::Result<String> {
    #[derive(Serialize)]
    struct Answer<'a> {
        #[serde(flatten)]
        head: Head<'a>,
        services: Vec<ServiceJson<'a>>,
    }
    let all = services.by_name.values().map(|service| ServiceJson::new(service)).collect();
    serde_json::to_string(&Answer { head: Head::new(services, link), services: all })
}

/// Returns the answer to `/api/services/{name}`.
pub(crate) fn service(services: &Services, link: &Link, service: &Service) -> serde_json::Result<String> {
    #[derive(Serialize)]
    struct Answer<'a> {
        #[serde(flatten)]
        head: Head<'a>,
        #[serde(flatten)]
        service: ServiceJson<'a>,
        instances: Vec<InstanceJson<'a>>,
        broken_nodes: Vec<BrokenJson<'a>>,
    }
    let entries = || service.entries.iter().map(|(node, entry)| (node.as_str(), &**entry));
    let instances = entries().filter_map(|(node, entry)| Some(InstanceJson::new(node, entry.instance()?)));
    let broken = entries().filter_map(|(node, entry)| Some(BrokenJson { node, reason: reason(entry)? }));
    serde_json::to_string(&Answer {
        head: Head::new(services, link),
        service: ServiceJson::new(service),
        instances: instances.collect::<Result<_, _>>()?,
        broken_nodes: broken.collect(),
    })
}

/// Returns the answer to `/api/services/{name}` without a service.
pub(crate) fn no_service(services: &Services, link: &Link, error: &str) -> serde_json::Result<String> {
    #[derive(Serialize)]
    struct Answer<'a> {
        error: &'a str,
        #[serde(flatten)]
        head: Head<'a>,
    }
    serde_json::to_string(&Answer { error, head: Head::new(services, link) })
}

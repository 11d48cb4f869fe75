//! The services below the base path, as the events of their nodes show them: pure, without I/O.

use std::collections::BTreeMap;
use std::ops::Bound;
use std::sync::Arc;

use curator_discovery::{
    InstanceSerializer as _, JsonInstanceSerializer, Payload as _, RawPayload, ServiceInstance, SpringPayload,
};
use curator_framework::{Chain, make_path};
use curator_recipes::CacheEvent;

/// The class of Spring's payload, which has a status of its own.
const SPRING: &str = "org.springframework.cloud.zookeeper.discovery.ZookeeperInstance";
/// The longest payload that is kept, in bytes.
const MOST_PAYLOAD: usize = 4096;

/// The services at a time.
#[derive(Debug, Clone, Default)]
pub(crate) struct Services {
    pub(crate) base: String,
    /// `None` while it is not known whether the base path exists.
    pub(crate) exists: Option<bool>,
    pub(crate) by_name: BTreeMap<String, Arc<Service>>,
    /// No change is missing.
    pub(crate) is_fresh: bool,
    /// The time of the newest complete look, in milliseconds since 1970.
    pub(crate) at: i64,
    /// The reasons for which services may be missing.
    pub(crate) problems: Vec<String>,
}

impl Services {
    /// Returns the services before the first look.
    pub(crate) fn unknown(base: &str) -> Self {
        Self { base: base.to_owned(), ..Self::default() }
    }

    /// Returns `true` if there is something to show: the base path exists, or cannot be read.
    pub(crate) fn are_shown(&self) -> bool {
        self.exists == Some(true) || !self.problems.is_empty()
    }
}

/// A service with its instances, by the names of their nodes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Service {
    pub(crate) name: String,
    pub(crate) entries: Vec<(String, Arc<Entry>)>,
}

impl Service {
    /// Returns the number of entries in a state.
    pub(crate) fn count(&self, state: State) -> usize {
        self.entries.iter().filter(|(_, entry)| entry.state() == state).count()
    }

    /// Returns the addresses of the instances that consumers use, or of all if consumers use none.
    pub(crate) fn addresses(&self) -> Vec<&str> {
        let of = |only: Option<State>| -> Vec<&str> {
            let entries = self.entries.iter().filter(|(_, entry)| only.is_none_or(|state| entry.state() == state));
            entries.filter_map(|(_, entry)| entry.instance()?.host_and_port.as_deref()).collect()
        };
        let used = of(Some(State::Enabled));
        if used.is_empty() { of(None) } else { used }
    }
}

/// The state of an instance.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum State {
    Enabled,
    /// Consumers pass over it.
    Disabled,
    /// Its node is not an instance, or cannot be read.
    Broken,
}

/// The contents of a node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Entry {
    Instance(Instance),
    /// The reason why it is not an instance.
    Broken(String),
    /// It has no data. With nodes below it, it is a part of a name; otherwise it is not an instance.
    Empty,
}

impl Entry {
    pub(crate) fn state(&self) -> State {
        match self {
            Self::Instance(instance) if instance.enabled && !instance.is_out_of_service => State::Enabled,
            Self::Instance(_) => State::Disabled,
            Self::Broken(_) | Self::Empty => State::Broken,
        }
    }

    pub(crate) const fn instance(&self) -> Option<&Instance> {
        match self {
            Self::Instance(instance) => Some(instance),
            Self::Broken(_) | Self::Empty => None,
        }
    }

    fn of(data: &[u8]) -> Self {
        if data.is_empty() {
            return Self::Empty;
        }
        match JsonInstanceSerializer::new().deserialize(data) {
            Ok(instance) => Self::Instance(Instance::of(instance)),
            Err(error) => Self::Broken(Chain(&error).to_string()),
        }
    }
}

/// The shown part of an instance.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Instance {
    pub(crate) id: String,
    pub(crate) address: Option<String>,
    pub(crate) host_and_port: Option<String>,
    pub(crate) port: Option<i32>,
    pub(crate) ssl_port: Option<i32>,
    pub(crate) enabled: bool,
    /// Spring's payload says so.
    pub(crate) is_out_of_service: bool,
    pub(crate) service_type: Option<&'static str>,
    /// The registration in milliseconds since 1970; 0 if the node does not say it.
    pub(crate) registered: i64,
    /// The JSON of the payload, unless it is too long.
    pub(crate) payload: Option<String>,
    pub(crate) payload_bytes: usize,
}

impl Instance {
    fn of(instance: ServiceInstance<RawPayload>) -> Self {
        let host_and_port = instance.host_and_port();
        let payload = instance.payload.as_json();
        let is_of_spring = instance.payload.java_class().is_some_and(|class| class == SPRING);
        let is_out_of_service =
            is_of_spring && SpringPayload::from_json(payload).is_ok_and(|payload| !payload.is_available());
        Self {
            host_and_port,
            port: instance.port,
            ssl_port: instance.ssl_port,
            enabled: instance.enabled,
            is_out_of_service,
            service_type: instance.service_type.map(curator_discovery::ServiceType::as_str),
            registered: instance.registration_time_utc,
            payload_bytes: payload.len(),
            payload: (payload.len() <= MOST_PAYLOAD).then(|| payload.to_owned()),
            id: instance.id,
            address: instance.address,
        }
    }
}

/// The nodes below the base path.
#[derive(Debug)]
pub(crate) struct Model {
    base: String,
    /// The nodes by their paths below the base path.
    nodes: BTreeMap<String, Arc<Entry>>,
    /// The nodes with a list of children that cannot be read, by full paths, with the reasons.
    unlisted: BTreeMap<String, String>,
    is_loaded: bool,
}

impl Model {
    pub(crate) fn new(base: &str) -> Self {
        Self { base: base.to_owned(), nodes: BTreeMap::new(), unlisted: BTreeMap::new(), is_loaded: false }
    }

    /// Returns `false` while the nodes are read for the first time, and after events were dropped.
    pub(crate) const fn is_loaded(&self) -> bool {
        self.is_loaded
    }

    pub(crate) fn apply(&mut self, event: &CacheEvent) {
        match event {
            CacheEvent::Created(node) | CacheEvent::Changed { new: node, .. } => {
                if let Some(path) = self.below(&node.path) {
                    self.nodes.insert(path, Arc::new(Entry::of(&node.data)));
                }
            }
            CacheEvent::Deleted(node) => {
                if let Some(path) = self.below(&node.path) {
                    self.nodes.remove(&path);
                }
                self.unlisted.remove(&node.path);
            }
            CacheEvent::Failed { path, error } => {
                let reason = Chain(error).to_string();
                match self.below(path) {
                    Some(below) if below.contains('/') => {
                        self.nodes.insert(below, Arc::new(Entry::Broken(reason)));
                    }
                    _ => drop(self.unlisted.insert(path.clone(), reason)),
                }
            }
            CacheEvent::Reset => {
                self.nodes.clear();
                self.unlisted.clear();
                self.is_loaded = false;
            }
            CacheEvent::Initialized => self.is_loaded = true,
            _ => {}
        }
    }

    /// Returns a path below the base path without the base path.
    fn below(&self, path: &str) -> Option<String> {
        let rest = path.strip_prefix(&*self.base).filter(|_| self.base != "/").or_else(|| path.strip_prefix('/'));
        let rest = rest?.trim_start_matches('/');
        (!rest.is_empty()).then(|| rest.to_owned())
    }

    /// Forgets the lists of children that can be read again. `is_known` says it of the path of a child.
    pub(crate) fn settle(&mut self, is_known: impl Fn(&str) -> bool) {
        self.unlisted.retain(|path, _| !is_known(&make_path(path, "instance")));
    }

    fn has_nodes_below(&self, path: &str) -> bool {
        let from = format!("{path}/");
        let mut after = self.nodes.range::<str, _>((Bound::Excluded(from.as_str()), Bound::Unbounded));
        after.next().is_some_and(|(next, _)| next.starts_with(&from))
    }

    /// Returns the services. A node directly below the base path is a service even without instances.
    pub(crate) fn services(&self) -> Services {
        let mut by_name: BTreeMap<&str, Vec<(String, Arc<Entry>)>> = BTreeMap::new();
        for (path, entry) in &self.nodes {
            match path.rsplit_once('/') {
                None => drop(by_name.entry(path).or_default()),
                // A part of a longer name.
                Some(_) if **entry == Entry::Empty && self.has_nodes_below(path) => {}
                Some((name, node)) => {
                    by_name.entry(name).or_default().push((node.to_owned(), Arc::clone(entry)));
                }
            }
        }
        // The first part of a longer name is not a service if it has no instances.
        by_name.retain(|name, entries| !entries.is_empty() || !self.has_nodes_below(name));
        let service =
            |(name, entries): (&str, Vec<_>)| (name.to_owned(), Arc::new(Service { name: name.to_owned(), entries }));
        Services {
            base: self.base.clone(),
            by_name: by_name.into_iter().map(service).collect(),
            problems: self.unlisted.values().cloned().collect(),
            ..Services::default()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const UP: &str = r#"{"name":"web","id":"one","address":"10.0.0.7","port":80}"#;

    fn model(base: &str, nodes: &[(&str, &str)]) -> Model {
        let mut model = Model::new(base);
        for (path, data) in nodes {
            model.nodes.insert(model.below(path).unwrap(), Arc::new(Entry::of(data.as_bytes())));
        }
        model
    }

    fn shown(model: &Model) -> Vec<(String, Vec<(String, State)>)> {
        let entries =
            |service: &Service| service.entries.iter().map(|(node, entry)| (node.clone(), entry.state())).collect();
        model.services().by_name.values().map(|service| (service.name.clone(), entries(service))).collect()
    }

    #[test]
    fn services_are_the_nodes_above_instances() {
        let nodes = [
            ("/s/web", ""),
            ("/s/web/one", UP),
            ("/s/web/two", r#"{"name":"web","enabled":false}"#),
            ("/s/web/three", "{"),
            ("/s/web/four", ""),
            ("/s/idle", ""),
            ("/s/shop", ""),
            ("/s/shop/cart", ""),
            ("/s/shop/cart/one", UP),
        ];
        let [enabled, disabled, broken] = [State::Enabled, State::Disabled, State::Broken];
        let web = [("four", broken), ("one", enabled), ("three", broken), ("two", disabled)];
        let entries = |entries: &[(&str, State)]| entries.iter().map(|(n, s)| ((*n).to_owned(), *s)).collect();
        let expected: Vec<(String, Vec<(String, State)>)> = vec![
            ("idle".to_owned(), Vec::new()),
            ("shop/cart".to_owned(), entries(&[("one", enabled)])),
            ("web".to_owned(), entries(&web)),
        ];
        assert_eq!(shown(&model("/s", &nodes)), expected);
        // The same below the root.
        let nodes = nodes.map(|(path, data)| (path.strip_prefix("/s").unwrap(), data));
        assert_eq!(shown(&model("/", &nodes)), expected);
    }

    #[test]
    fn instance_of_spring_may_be_out_of_service() {
        let json = |status: &str| {
            format!(r#"{{"id":"i","payload":{{"@class":"{SPRING}","metadata":{{"instance_status":"{status}"}}}}}}"#)
        };
        assert_eq!(Entry::of(json("UP").as_bytes()).state(), State::Enabled);
        assert_eq!(Entry::of(json("OUT_OF_SERVICE").as_bytes()).state(), State::Disabled);
    }

    #[test]
    fn long_payloads_are_not_kept() {
        let json = format!(r#"{{"id":"i","payload":"{}"}}"#, "x".repeat(MOST_PAYLOAD));
        let entry = Entry::of(json.as_bytes());
        let instance = entry.instance().unwrap();
        assert_eq!((&instance.payload, instance.payload_bytes), (&None, MOST_PAYLOAD + 2));
    }
}

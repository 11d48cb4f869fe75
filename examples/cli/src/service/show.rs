//! `service ls` and `service watch`: services and instances.

use curator_cli::text::{rfc3339, shown};
use curator_discovery::{InstanceChange, RawPayload, ServiceCache, ServiceInstance};
use curator_framework::Chain;
use serde::Serialize;
use serde_json::value::RawValue;

use super::{Ls, Watch, discovery};
use crate::failure::Failure;
use crate::outages::Outages;
use crate::output::{print, tell};
use crate::show::{change, line};
use crate::site::Site;

/// The exit status without services, or without instances.
const NONE: u8 = 1;

type Instance = ServiceInstance<RawPayload>;

/// Prints the services, or the instances of one, and returns the exit status.
pub(super) async fn list(site: &Site, ls: &Ls) -> Result<u8, Failure> {
    site.first_session(None).await?;
    let discovery = discovery(site, &ls.base)?;
    let (text, is_empty) = match &ls.name {
        None => {
            let names = discovery.names().await?;
            let text = match (ls.json, names.is_empty()) {
                (true, _) => line(&Services { base: discovery.path(), services: &names })?,
                (false, true) => format!("{} has no services\n", discovery.path()),
                (false, false) => names.iter().map(|name| shown(name.as_bytes()) + "\n").collect(),
            };
            (text, names.is_empty())
        }
        Some(name) => {
            let instances = discovery.instances(name).await?;
            let broken: Vec<_> =
                instances.broken.iter().map(|(node, error)| (&**node, Chain(error).to_string())).collect();
            let is_empty = instances.found.is_empty() && broken.is_empty();
            let text = match (ls.json, is_empty) {
                (true, _) => {
                    let broken = broken.iter().map(|(node, reason)| Broken { node, reason }).collect();
                    let instances = instances.found.iter().map(Row::of).collect::<Result<_, _>>()?;
                    line(&Instances { service: name, instances, broken })?
                }
                (false, true) => format!("{name} has no instances\n"),
                (false, false) => table(&instances.found, &broken),
            };
            (text, is_empty)
        }
    };
    if is_empty {
        site.check_chroot().await?;
    }
    print(text).await?;
    Ok(if is_empty { NONE } else { 0 })
}

/// Prints each change of a service, until the reader of the pipe closes it.
pub(super) async fn watch(site: &Site, watch: &Watch) -> Result<u8, Failure> {
    site.first_session(None).await?;
    site.check_chroot().await?;
    let cache = ServiceCache::new(&discovery(site, &watch.base)?, &watch.name)?;
    cache.start()?;
    let mut outages = Outages::of(&site.client);
    let mut changes = cache.changes();
    // The first look has the exit status of the other commands.
    cache.initialized().await?;
    if cache.instances().is_empty() {
        tell(&format!("{} has no instances", watch.name));
    }
    loop {
        tokio::select! {
            biased;
            change = changes.recv() => match change {
                Some(change) => {
                    if !print(event(&change, watch.json)?).await? {
                        return Ok(0);
                    }
                }
                None => return Err(curator_framework::Error::Closed.into()),
            },
            is_connected = outages.change() => tell(if is_connected {
                "the connection is back"
            } else {
                "no connection: changes of the service are printed when it is back"
            }),
        }
    }
}

/// Formats a change as a line.
fn event(event: &InstanceChange<RawPayload>, json: bool) -> Result<String, Failure> {
    let (word, node, instance, reason) = match event {
        InstanceChange::Added { node, instance } => ("added", node, Some(instance), None),
        InstanceChange::Updated { node, new, .. } => ("updated", node, Some(new), None),
        InstanceChange::Removed { node, instance } => ("removed", node, Some(instance), None),
        InstanceChange::Broken { node, error } => ("broken", node, None, Some(Chain(error).to_string())),
        _ => return Ok(String::new()),
    };
    let facts = match (instance, &reason) {
        (Some(instance), _) => format!("{}, {}, payload {}", address(instance), state(instance), payload(instance)),
        (None, reason) => reason.clone().unwrap_or_default(),
    };
    let instance = instance.map(|instance| Row::of(instance)).transpose()?;
    change(json, word, &Event { node, instance, reason }, node, &facts)
}

fn address(instance: &Instance) -> String {
    shown(instance.host_and_port().unwrap_or_default().as_bytes())
}

fn state(instance: &Instance) -> &'static str {
    if instance.enabled { "enabled" } else { "disabled" }
}

fn payload(instance: &Instance) -> String {
    shown(instance.payload.as_json().as_bytes())
}

/// Formats the instances as a table.
fn table(instances: &[Instance], broken: &[(&str, String)]) -> String {
    let ids = instances.iter().map(|instance| instance.id.as_str()).chain(broken.iter().map(|(node, _)| *node));
    let ids: Vec<String> = ids.map(|id| shown(id.as_bytes())).collect();
    let width = ids.iter().map(|id| id.chars().count()).max().unwrap_or_default();
    let format = |id: &str, address: &str, state: &str, since: &str, rest: &str| {
        format!("{id:<width$}  {address:<21}  {state:<8}  {since:<20}  {rest}\n")
    };
    let mut text = format("ID", "ADDRESS", "STATE", "SINCE", "PAYLOAD");
    for (id, instance) in ids.iter().zip(instances) {
        let since = instance.registered_at().map_or_else(|| "-".to_owned(), rfc3339);
        text += &format(id, &address(instance), state(instance), &since, &payload(instance));
    }
    for (id, (_, reason)) in ids.iter().skip(instances.len()).zip(broken) {
        text += &format(id, "-", "broken", "-", &shown(reason.as_bytes()));
    }
    text
}

#[derive(Serialize)]
struct Services<'a> {
    base: &'a str,
    services: &'a [String],
}

#[derive(Serialize)]
struct Instances<'a> {
    service: &'a str,
    instances: Vec<Row<'a>>,
    broken: Vec<Broken<'a>>,
}

#[derive(Serialize)]
struct Broken<'a> {
    node: &'a str,
    reason: &'a str,
}

/// The JSON of an instance.
#[derive(Serialize)]
struct Row<'a> {
    id: &'a str,
    address: Option<&'a str>,
    port: Option<i32>,
    ssl_port: Option<i32>,
    enabled: bool,
    #[serde(rename = "type")]
    service_type: Option<&'static str>,
    since: Option<String>,
    payload: Box<RawValue>,
}

impl<'a> Row<'a> {
    fn of(instance: &'a Instance) -> Result<Self, Failure> {
        let payload = RawValue::from_string(instance.payload.as_json().to_owned());
        Ok(Self {
            id: &instance.id,
            address: instance.address.as_deref(),
            port: instance.port,
            ssl_port: instance.ssl_port,
            enabled: instance.enabled,
            service_type: instance.service_type.map(curator_discovery::ServiceType::as_str),
            since: instance.registered_at().map(rfc3339),
            payload: payload.map_err(|error| Failure(70, error.to_string()))?,
        })
    }
}

/// The JSON of a change.
#[derive(Serialize)]
struct Event<'a> {
    node: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    instance: Option<Row<'a>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    reason: Option<String>,
}

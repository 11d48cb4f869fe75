//! The HTML of the services. Every text that comes from ZooKeeper passes `escape`.

use std::fmt::Write as _;

use super::{Entry, Instance, Service, Services, State};
use crate::serve::follow::Snapshot;
use crate::serve::link::Link;
use crate::serve::page::{
    self, NOT_KNOWN_YET, NOTHING, Row, SHOWN, count, encode, escape, fill, listed, notice, time, visible,
};

/// Returns the row of a service in the list.
pub(crate) fn service_row(service: &Service) -> Row {
    let html = format!(
        r#"<tr data-id="{id}" data-key="{id}">
<th scope="row"><a href="/services/{href}">{name}</a></th>
<td data-label="Instances" class="number">{instances}</td>
<td data-label="State">{states}</td>
<td data-label="Addresses" class="text">{addresses}{broken}</td></tr>"#,
        id = escape(&service.name),
        href = encode(&service.name),
        name = escape(&visible(&service.name)),
        instances = service.entries.len(),
        states = states(service),
        addresses = listed(service.addresses().into_iter().map(|text| escape(&visible(text)))),
        broken = broken(service),
    );
    Row { id: service.name.clone(), html }
}

/// Returns a mark for each state that instances of a service have.
fn states(service: &Service) -> String {
    let marks = [
        (State::Enabled, "held", "enabled"),
        (State::Disabled, "waiting", "disabled"),
        (State::Broken, "lost", "cannot be read"),
    ];
    let mark = |(state, class, word)| match service.count(state) {
        0 => None,
        number => Some(format!(r#"<span class="state {class}">{number} {word}</span>"#)),
    };
    let marks: Vec<String> = marks.into_iter().filter_map(mark).collect();
    if marks.is_empty() { r#"<span class="state free">no instances</span>"#.to_owned() } else { marks.join(" ") }
}

/// Returns the nodes of a service that are not instances, with the reasons.
fn broken(service: &Service) -> String {
    let broken = service.entries.iter().filter_map(|(node, entry)| {
        let reason = reason(entry)?;
        Some(format!("<code>{}</code> {}", escape(&visible(node)), escape(&visible(reason))))
    });
    match service.count(State::Broken) {
        0 => String::new(),
        _ => format!(r#"<div class="lost">{}</div>"#, listed(broken)),
    }
}

pub(super) fn reason(entry: &Entry) -> Option<&str> {
    match entry {
        Entry::Instance(_) => None,
        Entry::Broken(reason) => Some(reason),
        Entry::Empty => Some("the node has no data"),
    }
}

/// Returns the row of an instance on the page of its service.
pub(crate) fn instance_row(node: &str, entry: &Entry, now: i64) -> Row {
    let (class, state) = match (entry.state(), entry.instance()) {
        (State::Enabled, _) => ("held", "enabled"),
        (State::Disabled, Some(Instance { is_out_of_service: true, enabled: true, .. })) => {
            ("waiting", "out of service")
        }
        (State::Disabled, _) => ("waiting", "disabled"),
        (State::Broken, _) => ("lost", "cannot be read"),
    };
    let address = entry.instance().map_or_else(|| NOTHING.to_owned(), address);
    let registered = entry.instance().map(|instance| instance.registered).filter(|at| *at > 0);
    let payload = match (entry.instance(), reason(entry)) {
        (Some(instance), _) => payload(instance),
        (None, reason) => escape(&visible(reason.unwrap_or_default())),
    };
    let html = format!(
        r#"<tr data-id="{id}" data-key="{id}">
<th scope="row">{name}</th>
<td data-label="State"><span class="state {class}">{state}</span></td>
<td data-label="Address">{address}</td>
<td data-label="Registered for" class="number">{registered}</td>
<td data-label="Payload" class="text">{payload}</td></tr>"#,
        id = escape(node),
        name = escape(&visible(node)),
        registered = registered.map_or_else(|| NOTHING.to_owned(), |at| time(at, now, false)),
    );
    Row { id: node.to_owned(), html }
}

fn address(instance: &Instance) -> String {
    let shown = match (&instance.host_and_port, &instance.address) {
        (Some(text), _) | (None, Some(text)) => escape(&visible(text)),
        (None, None) => return NOTHING.to_owned(),
    };
    match instance.ssl_port {
        Some(port) => format!(r#"{shown} <span class="dim">TLS {port}</span>"#),
        None => shown,
    }
}

fn payload(instance: &Instance) -> String {
    let Some(payload) = &instance.payload else {
        return format!(r#"<span class="dim">{} bytes</span>"#, instance.payload_bytes);
    };
    if payload == "null" {
        return NOTHING.to_owned();
    }
    let mut shown = visible(payload);
    if let Some((end, _)) = shown.char_indices().nth(SHOWN) {
        shown.truncate(end);
        let _written = write!(shown, "… ({} bytes)", instance.payload_bytes);
    }
    escape(&shown)
}

/// Returns the line above the list of services, or the reasons for which it is not complete.
pub(crate) fn summary(services: &Services) -> String {
    if !services.are_shown() {
        return String::new();
    }
    let instances: usize = services.by_name.values().map(|service| service.entries.len()).sum();
    let mut summary = format!(
        "{} below <code>{}</code> · {}",
        count(services.by_name.len(), "service", "services"),
        escape(&visible(&services.base)),
        count(instances, "instance", "instances")
    );
    if !services.is_fresh && services.problems.is_empty() {
        summary.push_str(" · not up to date");
    }
    for problem in &services.problems {
        let _written = write!(summary, r#" · <span class="lost">{}</span>"#, escape(&visible(problem)));
    }
    summary
}

/// Returns the section of the page of all locks.
pub(crate) fn section(services: &Services) -> String {
    let rows: String = services.by_name.values().map(|service| service_row(service).html).collect();
    let heads = r#"<th scope="col">Service</th><th scope="col" class="number">Instances</th>
<th scope="col">State</th><th scope="col">Addresses</th>"#;
    page::section("services", "Services", heads, services.are_shown(), &summary(services), &rows)
}

/// Returns the state above the instances of a service.
pub(crate) fn service_summary(services: &Services, name: &str) -> String {
    match services.by_name.get(name) {
        Some(service) => {
            format!("{} · {}", count(service.entries.len(), "instance", "instances"), states(service))
        }
        None if services.at == 0 && services.problems.is_empty() => NOT_KNOWN_YET.to_owned(),
        None => {
            let problems: String =
                services.problems.iter().map(|problem| format!(" {}", escape(&visible(problem)))).collect();
            format!(r#"<span class="state gone">no such service</span>{problems}"#)
        }
    }
}

/// Returns the page of one service.
pub(crate) fn service(name: &str, services: &Services, snapshot: &Snapshot, link: &Link, now: i64) -> String {
    let entries = services.by_name.get(name).into_iter().flat_map(|service| &service.entries);
    let rows: String = entries.map(|(node, entry)| instance_row(node, entry, now).html).collect();
    let title = visible(name);
    let main = format!(
        r#"<header><nav><a href="/">All locks and services</a></nav><h1 class="path">{title}</h1>
<p id="summary" class="summary">{summary}</p></header>
<table class="instances"><thead><tr><th scope="col">Node</th><th scope="col">State</th><th scope="col">Address</th>
<th scope="col" class="number">Registered for</th><th scope="col">Payload</th></tr></thead>
<tbody id="rows">{rows}</tbody></table>
<p class="empty" id="empty">{empty}</p>"#,
        title = escape(&title),
        summary = service_summary(services, name),
        empty = EMPTY,
    );
    fill(&title, &format!("/service-events/{}", encode(name)), &notice(snapshot, link), snapshot, link, &main)
}

/// The text in place of instances.
pub(crate) const EMPTY: &str = "No instances.";

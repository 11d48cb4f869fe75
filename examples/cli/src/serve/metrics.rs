//! The answer to `/metrics`, in Prometheus's text format.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;

use curator_framework::ConnectionState;

use super::follow::Snapshot;
use super::link::Link;
use super::lock::Lock;
use super::named::{Kind, Named, fields};
use super::page::{is_complete, is_live};
use super::services::{Services, State};

/// The most locks, and the most services, with series of their own.
const MOST_LABELS: usize = 500;

/// The locks that have series of their own. A lock keeps them as long as it exists.
#[derive(Debug, Default)]
pub(crate) struct Labels(BTreeSet<String>);

impl Labels {
    fn update<'a>(&mut self, snapshot: &'a Snapshot) -> impl Iterator<Item = &'a Lock> + use<'a, '_> {
        self.0.retain(|path| snapshot.locks.contains_key(path));
        for path in snapshot.locks.keys() {
            if self.0.len() >= MOST_LABELS {
                break;
            }
            if !self.0.contains(path) {
                self.0.insert(path.clone());
            }
        }
        self.0.iter().filter_map(|path| snapshot.locks.get(path)).map(|lock| &**lock)
    }
}

/// The numbers that are not of the locks.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Counts {
    pub(crate) read_errors: u64,
    pub(crate) connects: u64,
    pub(crate) streams: usize,
}

/// Writes all metrics. The metrics of locks and services are left out while these are not up to date, and so are the
/// series of a path that an option names.
pub(crate) fn text(
    (snapshot, services, named): (&Snapshot, &Services, &Named),
    link: &Link,
    labels: &mut Labels,
    counts: Counts,
    now: i64,
) -> String {
    let mut text = String::new();
    let mut single = |name: &str, kind: &str, help: &str, value: u64| {
        let _written = write!(text, "# HELP {name} {help}\n# TYPE {name} {kind}\n{name} {value}\n");
    };
    single("curator_connected", "gauge", "1 if connected to ZooKeeper, else 0.", u64::from(link.is_connected()));
    single("curator_up_to_date", "gauge", "1 if no change is missing, else 0.", u64::from(is_live(snapshot, link)));
    let complete = is_complete(snapshot, link);
    single("curator_complete", "gauge", "1 if all locks are known and no change is missing, else 0.", complete.into());
    if snapshot.is_known() {
        let left_out: BTreeSet<&str> = snapshot.left_out.keys().map(String::as_str).chain(named.unread()).collect();
        single("curator_left_out", "gauge", "Nodes that could not be read.", left_out.len() as u64);
    }
    single("curator_connects_total", "counter", "Times that a connection to ZooKeeper was made.", counts.connects);
    single("curator_read_errors_total", "counter", "Requests to ZooKeeper that failed.", counts.read_errors);
    single("curator_event_streams", "gauge", "Pages that are kept up to date.", counts.streams as u64);
    let name = "curator_connection_state";
    let _written = writeln!(text, "# HELP {name} 1 for the present state, else 0.\n# TYPE {name} gauge");
    for state in [
        ConnectionState::Connected,
        ConnectionState::Suspended,
        ConnectionState::Reconnected,
        ConnectionState::Lost,
        ConnectionState::ReadOnly,
    ] {
        let value = u8::from(link.state == Some(state));
        let _written = writeln!(text, "{name}{{state=\"{state}\"}} {value}");
    }
    if is_live(snapshot, link) {
        locks(&mut text, snapshot, labels, now);
    }
    if link.is_connected() && services.is_fresh && services.exists == Some(true) {
        instances(&mut text, services);
    }
    if link.is_connected() {
        states(&mut text, named, now);
    }
    text
}

fn locks(text: &mut String, snapshot: &Snapshot, labels: &mut Labels, now: i64) {
    let labelled: Vec<&Lock> = labels.update(snapshot).collect();
    let all = || snapshot.locks.values();
    let sum = |count: fn(&Lock) -> usize| all().map(|lock| count(lock)).sum::<usize>();
    for (name, help, value) in [
        ("curator_locks", "Locks below the path.", all().len()),
        ("curator_holders", "Holders of all locks.", sum(|lock| lock.holders().count())),
        ("curator_waiters", "Waiters for all locks.", sum(Lock::waiters)),
        (
            "curator_longest_queue",
            "Waiters for the lock with the most.",
            all().map(|lock| lock.waiters()).max().unwrap_or_default(),
        ),
        ("curator_locks_without_series", "Locks without series of their own.", all().len() - labelled.len()),
    ] {
        let _written = write!(text, "# HELP {name} {help}\n# TYPE {name} gauge\n{name} {value}\n");
    }
    let age = |lock: &Lock| Some(now.saturating_sub(lock.held_since()?).max(0));
    if let Some(oldest) = all().filter_map(|lock| age(lock)).max() {
        let (name, help) = ("curator_oldest_holder_seconds", "Time since the oldest grant of all locks.");
        let _written = write!(text, "# HELP {name} {help}\n# TYPE {name} gauge\n{name} {}\n", seconds(oldest));
    }
    let mut each = |name: &str, help: &str, value: &dyn Fn(&Lock) -> Option<String>| {
        let _written = writeln!(text, "# HELP {name} {help}\n# TYPE {name} gauge");
        for lock in &labelled {
            if let Some(value) = value(lock) {
                let _written = writeln!(text, "{name}{{path=\"{}\"}} {value}", label(&lock.path));
            }
        }
    };
    each("curator_lock_holders", "Holders of the lock.", &|lock| Some(lock.holders().count().to_string()));
    each("curator_lock_waiters", "Waiters for the lock.", &|lock| Some(lock.waiters().to_string()));
    each("curator_lock_oldest_holder_seconds", "Time since the oldest holder's grant, or its creation.", &|lock| {
        Some(seconds(age(lock)?))
    });
}

fn instances(text: &mut String, services: &Services) {
    let all = &services.by_name;
    for (name, help, value) in [
        ("curator_services", "Services below the base path.", all.len()),
        (
            "curator_services_without_series",
            "Services without series of their own.",
            all.len().saturating_sub(MOST_LABELS),
        ),
    ] {
        let _written = write!(text, "# HELP {name} {help}\n# TYPE {name} gauge\n{name} {value}\n");
    }
    let name = "curator_service_instances";
    let _written = writeln!(text, "# HELP {name} Instances of the service in the state.\n# TYPE {name} gauge");
    for service in all.values().take(MOST_LABELS) {
        for (word, state) in [("enabled", State::Enabled), ("disabled", State::Disabled), ("broken", State::Broken)] {
            let (service_name, count) = (label(&service.name), service.count(state));
            let _written = writeln!(text, "{name}{{service=\"{service_name}\",state=\"{word}\"}} {count}");
        }
    }
}

fn states(text: &mut String, named: &Named, now: i64) {
    let mut series: BTreeMap<_, String> = BTreeMap::new();
    for kind in Kind::ALL {
        for thing in named.of(kind).by_path.values().filter(|thing| thing.is_fresh) {
            for field in fields(kind, thing.state.as_ref(), now) {
                let (Some(metric), Some(value)) = (field.metric, field.number) else { continue };
                let lines = series.entry(metric).or_default();
                let _written = writeln!(lines, "{}{{path=\"{}\"}} {value}", metric.0, label(&thing.path));
            }
        }
    }
    for ((name, help), lines) in series {
        let _written = write!(text, "# HELP {name} {help}\n# TYPE {name} gauge\n{lines}");
    }
}

/// Writes milliseconds as seconds.
pub(super) fn seconds(milliseconds: i64) -> String {
    format!("{}.{:03}", milliseconds / 1000, milliseconds % 1000)
}

fn label(value: &str) -> String {
    value.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n")
}

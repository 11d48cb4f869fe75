//! Registrants with an instance of a service, and observers of the service.

use std::sync::Weak;
use std::time::Duration;

use curator_checkers::registrations::{Plan, Registration};
use curator_checkers::services::{Event, Observer};
use curator_discovery::{
    DiscoveryError, InstanceChange, InstanceSerializer as _, JsonInstanceSerializer, ServiceCache, ServiceDiscovery,
    ServiceInstance, ServiceType,
};
use curator_recipes::NodeError;
use tokio::time::timeout;

use super::node::follow;
use super::{Registrant, Scribe};

/// The name of the service.
pub(crate) const SERVICE: &str = "web";
/// The time between two checks of the instances of a cache.
const LOOK: Duration = Duration::from_millis(300);

type Instance = ServiceInstance<String>;
type Announced = curator_discovery::Registration<String>;

/// Returns the data of an instance's node.
fn data_of(instance: &Instance) -> Vec<u8> {
    JsonInstanceSerializer::new().serialize(instance).expect("a text has JSON")
}

impl Registrant {
    /// Registers one instance.
    pub(super) async fn service(&mut self, is_last: bool) {
        let own = format!("own-{}-{}", self.name.0, self.worker);
        let (id, kind) = match self.one_of(8) {
            // Workers of other clients may want it too.
            0..=2 => (format!("shared-{}", self.one_of(2) * 2 + self.worker), ServiceType::Dynamic),
            3 | 4 => (own, ServiceType::Dynamic),
            5 => (format!("static-{own}"), ServiceType::Static),
            _ => (format!("sequence-{own}-"), ServiceType::DynamicSequential),
        };
        let builder = ServiceInstance::builder(SERVICE).id(&*id).address("h").port(1).registration_time_utc(1);
        let mut instance = builder.service_type(kind).payload(self.payload()).build().expect("a valid instance");
        let path = self.place.at_the_server(&self.place.node(&format!("{SERVICE}/{id}")));
        let plan = Plan {
            ephemeral: kind != ServiceType::Static,
            exact: kind != ServiceType::DynamicSequential,
            ..Plan::ephemeral(self.name, path)
        };
        let registration = self.scribe.starts(plan, data_of(&instance));
        let discovery = ServiceDiscovery::new(self.client.clone(), self.place.path.clone()).expect("a valid path");
        // It sends no request, as the instance has an address.
        let announced = match discovery.announce(instance.clone()).await {
            Ok(announced) => announced,
            Err(error) => return self.scribe.wrong(format!("{registration:?} is refused: {error}")),
        };
        let states = announced.changes();
        let follows = tokio::spawn(follow(self.scribe.clone(), registration, self.place.clone(), states));
        for _ in 0..1 + self.one_of(6) {
            self.use_instance(&announced, registration, &mut instance).await;
        }
        if is_last {
            self.stay().await;
        }
        self.unregister(announced, registration).await;
        if follows.await.is_err() {
            self.scribe.wrong(format!("{registration:?} cannot be followed"));
        }
    }

    fn payload(&self) -> String {
        String::from_utf8(self.scribe.data()).unwrap_or_default()
    }

    async fn use_instance(&mut self, announced: &Announced, registration: Registration, instance: &mut Instance) {
        match self.one_of(6) {
            0..=2 => self.pause(0..4000).await,
            3 => {
                // A wait that is dropped has no effect.
                let soon = self.time(0..6000);
                if let Ok(registered) = self.call(timeout(soon, announced.registered())).await {
                    self.may_fail(registered);
                }
            }
            4 => {
                let budget = self.time(0..6000);
                self.may_fail(self.call(announced.registered_timeout(budget)).await);
            }
            _ => {
                instance.payload = self.payload();
                let (data, payload) = (data_of(instance), instance.payload.clone());
                self.scribe.wants(registration, data.clone());
                let soon = if self.one_of(2) == 0 { self.time(0..200) } else { Duration::from_secs(20) };
                let update = announced.update(|instance| instance.payload = payload);
                match self.call(timeout(soon, update)).await {
                    Ok(Ok(())) => self.scribe.wrote(registration, data),
                    Ok(failed) => self.may_fail(failed),
                    // The data is still wanted.
                    Err(_elapsed) => {}
                }
            }
        }
    }

    async fn unregister(&mut self, announced: Announced, registration: Registration) {
        self.scribe.closes(registration);
        match self.one_of(4) {
            0 => drop(announced),
            1 => {
                // It continues by itself.
                let soon = self.time(0..200);
                let _unregistered = self.call(timeout(soon, announced.unregister())).await;
            }
            2 => self.call(announced.close()).await,
            _ => self.may_fail(self.call(announced.unregister()).await),
        }
    }

    fn may_fail<T>(&self, outcome: Result<T, DiscoveryError>) {
        match outcome {
            Ok(_) => {}
            Err(DiscoveryError::Node(error)) => self.scribe.error(&error),
            Err(DiscoveryError::Framework(error)) => self.scribe.error(&NodeError::Framework(error)),
            Err(error) => self.scribe.wrong(format!("an error: {error}")),
        }
    }
}

/// Notes what a cache shows and reports until it is closed. The task does not keep the cache.
pub async fn observe_service(scribe: Scribe, cache: Weak<ServiceCache<String>>) {
    let observer = scribe.observer();
    let Some(mut changes) = cache.upgrade().map(|cache| cache.changes()) else { return };
    loop {
        match timeout(LOOK, changes.recv()).await {
            Ok(Some(change)) => scribe.observes_service(event_of(observer, &change)),
            Ok(None) => return scribe.observes_service(Event::Stopped(observer)),
            Err(_elapsed) => {
                let Some(cache) = cache.upgrade() else { continue };
                let shown = cache.instances().iter().map(|instance| data_of(instance)).collect();
                scribe.observes_service(Event::Shows(observer, shown));
            }
        }
    }
}

fn event_of(observer: Observer, change: &InstanceChange<String>) -> Event {
    match change {
        InstanceChange::Added { node, instance } => Event::Added(observer, node.to_string(), data_of(instance)),
        InstanceChange::Updated { node, new, .. } => Event::Updated(observer, node.to_string(), data_of(new)),
        InstanceChange::Removed { node, .. } => Event::Removed(observer, node.to_string()),
        other => Event::Reports(observer, format!("{other:?}")),
    }
}

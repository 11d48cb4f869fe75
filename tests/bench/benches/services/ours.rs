//! The service discovery of this project in a process of its own, with the same words as `main`.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use curator_bench::clients::{SESSION, connect};
use curator_bench::process::{Commands, Result};
use curator_discovery::{Registration, ServiceCache, ServiceDiscovery, ServiceInstance};
use curator_framework::CuratorFramework;
use tokio::time::sleep;

type Payload = String;

#[derive(Default)]
pub(crate) struct All {
    clients: BTreeMap<String, CuratorFramework>,
    registrations: Vec<Registration<Payload>>,
    cache: Option<ServiceCache<Payload>>,
    changes: Arc<AtomicUsize>,
}

impl All {
    fn discovery(&self, name: &str) -> Result<ServiceDiscovery<Payload>> {
        Ok(ServiceDiscovery::new(self.clients.get(name).ok_or("no such client")?.clone(), "/services")?)
    }

    async fn register(&mut self, name: &str, count: usize) -> Result<()> {
        let discovery = self.discovery(name)?;
        for number in 0..count {
            let instance = ServiceInstance::builder("web").id(format!("instance-{number:04}")).address("10.0.0.7");
            let instance = instance.port(8080).payload("first".to_owned()).build()?;
            self.registrations.push(discovery.register(instance).await?);
        }
        Ok(())
    }

    async fn watch(&mut self, name: &str) -> Result<Duration> {
        let cache = ServiceCache::new(&self.discovery(name)?, "web")?;
        let began = Instant::now();
        cache.start()?;
        cache.initialized().await?;
        let instances = cache.instances().len();
        let time = began.elapsed();
        if instances == 0 {
            return Err("no instances".into());
        }
        let changes = Arc::clone(&self.changes);
        cache.add_listener(move |_| {
            changes.fetch_add(1, Ordering::Relaxed);
        });
        self.cache = Some(cache);
        Ok(time)
    }

    /// Waits until the cache shows the update.
    async fn update(&self) -> Result<()> {
        let registration = self.registrations.first().ok_or("no registration")?;
        registration.update(|instance| instance.payload = "second".to_owned()).await?;
        let cache = self.cache.as_ref().ok_or("no cache")?;
        while !cache.instances().iter().any(|instance| instance.payload == "second") {
            sleep(Duration::from_millis(1)).await;
        }
        Ok(())
    }
}

impl Commands for All {
    async fn run(&mut self, words: &[&str]) -> Result<String> {
        Ok(match *words {
            ["connect", name, servers] => {
                self.clients.insert(name.to_owned(), connect(servers, SESSION).await?);
                "connected".to_owned()
            }
            ["register", name, count] => {
                self.register(name, count.parse()?).await?;
                "registered".to_owned()
            }
            ["watch", name] => self.watch(name).await?.as_nanos().to_string(),
            ["changes"] => self.changes.swap(0, Ordering::Relaxed).to_string(),
            ["update", _] => {
                self.update().await?;
                "updated".to_owned()
            }
            ["end"] => {
                (self.cache, self.registrations) = (None, Vec::new());
                for (_, client) in std::mem::take(&mut self.clients) {
                    client.close().await;
                }
                "ended".to_owned()
            }
            _ => return Err(format!("{words:?} is unknown").into()),
        })
    }
}

//! This project's caches, in a process of their own. `main.rs` lists the words.

use std::fmt::Write as _;
use std::sync::Arc;
use std::time::{Duration, Instant};

use curator_bench::clients::Clients;
use curator_bench::process::{Commands, Result, now};
use curator_framework::CuratorFramework;
use curator_recipes::{ChildData, CuratorCache, CuratorCacheListener, InterProcessMutex};
use parking_lot::Mutex;
use tokio::time::{sleep, timeout};

use crate::ALLOCATOR;

/// A little less than the patience of the other process.
const PATIENCE: Duration = Duration::from_secs(30);
const POLL: Duration = Duration::from_millis(1);

/// A change that was reported: the path, the version and the time.
type Told = (String, i32, Duration);

#[derive(Default)]
pub(crate) struct All {
    clients: Clients,
    caches: Vec<CuratorCache>,
    told: Arc<Mutex<Vec<Told>>>,
}

async fn until(is_true: impl Fn() -> bool) -> Result<()> {
    let poll = async {
        while !is_true() {
            sleep(POLL).await;
        }
    };
    Ok(timeout(PATIENCE, poll).await.map_err(|_| "not in time")?)
}

/// Returns the bytes in use, when they have stopped to change.
async fn heap() -> usize {
    let mut looks = (0, 0);
    while looks.1 < 5 {
        sleep(Duration::from_millis(50)).await;
        let stats = ALLOCATOR.stats();
        let used = stats.bytes_allocated.saturating_sub(stats.bytes_deallocated);
        looks = (used, if used.abs_diff(looks.0) < 4096 { looks.1 + 1 } else { 0 });
    }
    looks.0
}

/// Takes and releases a mutex until it must stop; returns the nanoseconds of each cycle.
async fn cycles(client: CuratorFramework, path: &str, goes_on: impl Fn(usize) -> bool) -> Result<String> {
    let mutex = InterProcessMutex::new(client, path)?;
    let mut times = String::new();
    for cycle in 0.. {
        if !goes_on(cycle) {
            break;
        }
        let began = Instant::now();
        assert!(mutex.acquire().await?.release().await?.is_released());
        let blank = if cycle == 0 { "" } else { " " };
        write!(times, "{blank}{}", began.elapsed().as_nanos())?;
    }
    Ok(times)
}

impl All {
    /// Starts a cache in each client, and waits until all have their nodes.
    async fn load(&mut self, path: &str, nodes: usize) -> Result<String> {
        let began = Instant::now();
        for client in &self.clients.0 {
            let cache = CuratorCache::new(client.clone(), path)?;
            cache.start()?;
            self.caches.push(cache);
        }
        for cache in &self.caches {
            timeout(PATIENCE, cache.initialized()).await.map_err(|_| "not in time")??;
            if cache.len() != nodes {
                return Err(format!("{} nodes, not {nodes}", cache.len()).into());
            }
        }
        Ok(format!("{} initialized", began.elapsed().as_nanos()))
    }

    /// Waits until so many nodes were reported with this version, and writes all reports to a file.
    async fn recorded(&self, nodes: usize, version: i32, file: &str) -> Result<String> {
        until(|| self.told.lock().iter().filter(|(_, told, _)| *told == version).count() >= nodes).await?;
        let mut text = String::new();
        for (path, version, at) in self.told.lock().drain(..) {
            writeln!(text, "{path} {version} {}", at.as_nanos())?;
        }
        std::fs::write(file, text)?;
        Ok("recorded".to_owned())
    }

    /// Takes and releases a mutex as long as a cache is loaded in the same client.
    async fn mutex_beside(&mut self, path: &str, cached: &str, nodes: usize) -> Result<String> {
        let client = self.clients.first()?;
        let cache = CuratorCache::new(client.clone(), cached)?;
        self.caches.push(cache.clone());
        cache.start()?;
        let loading = tokio::spawn(async move { (cache.initialized().await, cache.len()) });
        let times = cycles(client, path, |_| !loading.is_finished()).await?;
        let (outcome, loaded) = loading.await?;
        outcome?;
        if loaded == nodes { Ok(times) } else { Err(format!("{loaded} nodes, not {nodes}").into()) }
    }
}

impl Commands for All {
    async fn run(&mut self, words: &[&str]) -> Result<String> {
        Ok(match *words {
            ["connect", count, servers] => self.clients.connect(count, servers).await?,
            ["load", path, nodes] => self.load(path, nodes.parse()?).await?,
            ["heap"] => heap().await.to_string(),
            ["shows", path, data] => {
                for cache in &self.caches {
                    until(|| cache.get(path).present().is_some_and(|node| node.data == data.as_bytes())).await?;
                }
                "shown".to_owned()
            }
            ["record"] => {
                let told = Arc::clone(&self.told);
                let on_change = move |_: &ChildData, new: &ChildData| {
                    told.lock().push((new.path.clone(), new.stat.version, now()));
                };
                let listener = CuratorCacheListener::builder().for_changes(on_change).build();
                self.caches.first().ok_or("no cache")?.add_listener(listener);
                "recording".to_owned()
            }
            ["recorded", nodes, version, file] => self.recorded(nodes.parse()?, version.parse()?, file).await?,
            ["mutex", path, count] => {
                let count: usize = count.parse()?;
                cycles(self.clients.first()?, path, |cycle| cycle < count).await?
            }
            ["mutex-beside", path, cached, nodes] => self.mutex_beside(path, cached, nodes.parse()?).await?,
            ["close"] => {
                for cache in self.caches.drain(..) {
                    cache.close().await;
                }
                "closed".to_owned()
            }
            ["end"] => self.clients.end().await?,
            _ => return Err(format!("{words:?} is unknown").into()),
        })
    }
}

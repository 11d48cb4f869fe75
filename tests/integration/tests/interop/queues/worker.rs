//! The consumers of the process in Rust.

use std::collections::HashMap;

use curator_framework::{CreateMode, CuratorFramework, CuratorOp};
use curator_recipes::{Delivery, QueueConsumer, QueueError, QueueOptions};
use tokio::sync::oneshot;
use tokio::task::JoinHandle;
use tokio::time::{Duration, sleep};

use super::Ours;
use crate::rust_peer::{Answer, say};

/// The consumers of a thread, by their paths, with what ends each one.
pub(crate) type Workers = HashMap<String, (oneshot::Sender<()>, JoinHandle<Result<(), QueueError>>)>;

/// Does what these words say, without the name of the thread and `queue`.
pub(crate) async fn queue(
    client: &CuratorFramework,
    thread: &str,
    words: &[&str],
    workers: &mut Workers,
) -> Answer<String> {
    match *words {
        [kind, path, lock, "consume", millis, effects] => {
            let is_locked = lock != "-";
            let options = QueueOptions::new();
            let options = if is_locked { options.lock_path(lock) } else { options.at_most_once() };
            let consumer = Ours::new(client.clone(), kind, path, options)?.consumer();
            let worker = Worker {
                client: client.clone(),
                thread: thread.to_owned(),
                time: Duration::from_millis(millis.parse()?),
                effects: is_locked.then(|| effects.to_owned()),
            };
            let (stop, stopped) = oneshot::channel();
            workers.insert(path.to_owned(), (stop, tokio::spawn(worker.run(consumer, stopped))));
            Ok("consuming".to_owned())
        }
        [_, path, _, "close"] => {
            let (stop, run) = workers.remove(path).ok_or("no consumer")?;
            drop(stop);
            run.await??;
            Ok("closed".to_owned())
        }
        _ => Err(format!("{words:?}").into()),
    }
}

/// Says each item in the name of a thread, and works on it.
struct Worker {
    client: CuratorFramework,
    thread: String,
    time: Duration,
    /// The folder of the nodes that tell which items were completed.
    effects: Option<String>,
}

impl Worker {
    async fn run(self, mut consumer: QueueConsumer<String>, stopped: oneshot::Receiver<()>) -> Result<(), QueueError> {
        let work = |delivery| self.work(delivery);
        consumer.run_until(stopped, 4, work).await
    }

    async fn work(&self, delivery: Delivery<String>) {
        let items = delivery.items();
        for item in items {
            say(&self.thread, &format!("got {item}"));
        }
        sleep(self.time).await;
        let Some(effects) = &self.effects else { return };
        let effect = |item| CuratorOp::create(format!("{effects}/{item}-")).with_mode(CreateMode::PersistentSequential);
        let effects = self.client.transaction().operations(items.iter().map(effect));
        loop {
            match delivery.complete_with(&effects).await {
                Err(error) if error.is_retryable() => {}
                // A session that has ended, or Java, has taken the item away.
                Ok(()) | Err(QueueError::Lost { .. } | QueueError::AlreadyGone { .. } | QueueError::Unknown { .. }) => {
                    return;
                }
                Err(error) => return say(&self.thread, &format!("error {error}")),
            }
        }
    }
}

//! Closes in a silent network. In the simulation, to the millisecond.

use std::any::Any;
use std::pin::Pin;
use std::time::Duration;

use curator_framework::{
    CreateMode, CuratorFramework, DEFAULT_MAX_CLOSE_WAIT, DEFAULT_SESSION_TIMEOUT, Error, ExponentialBackoffRetry,
};
use curator_integration::held::Way;
use curator_integration::simulated_stage::{LATENCY, ONE, TWO, play, soon, until};
use curator_recipes::{
    BarrierError, CuratorCache, DistributedAtomicLong, DistributedBarrier, DistributedDoubleBarrier, GroupMember,
    InterProcessMutex, InterProcessReadWriteLock, InterProcessSemaphoreV2, LeaderError, LeaderLatch, LeaderSelector,
    LockError, LockGuard, NodeCache, Partition, PathChildrenCache, PersistentNode, PersistentTtlNode, Release,
    SharedCount, SharedValue, TreeCache,
};
use curator_test::{ClientId, SimulatedEnsemble};
use futures_util::FutureExt as _;
use futures_util::future::join_all;
use tokio::time::{Instant, sleep, timeout};

const PATH: &str = "/closes/it";
/// The timers of a runtime count milliseconds, and one close may have several in turn.
const ROUNDING: Duration = Duration::from_millis(10);

/// A close that runs, with the closed object as its output: its drop must not be what deletes the node.
struct Close(Pin<Box<dyn Future<Output = Box<dyn Any>>>>);

/// Sets an object up, and returns its close, which does not start before its first poll.
type Opened = Pin<Box<dyn Future<Output = Close>>>;

type Open = fn(CuratorFramework) -> Opened;

/// A client with the default timeouts.
async fn client(ensemble: &SimulatedEnsemble, id: ClientId) -> CuratorFramework {
    let policy = ExponentialBackoffRetry::new(Duration::from_secs(1), 3).unwrap();
    let client = ensemble.client(id).retry_policy(policy).reap_interval(None).build().unwrap();
    client.start().unwrap();
    client.block_until_connected().await.unwrap();
    client
}

/// Wraps the close of an object that is kept.
fn closing<T: 'static>(object: T, close: impl AsyncFnOnce(&T) + 'static) -> Close {
    Close(Box::pin(async move {
        close(&object).await;
        Box::new(object) as Box<dyn Any>
    }))
}

fn is_unanswered(error: &Error) -> bool {
    matches!(error, Error::ConnectionLoss { sent: true, .. })
}

/// Releases guards at once, and then again.
async fn release_unanswered(guards: &[LockGuard]) {
    let released = join_all(guards.iter().map(LockGuard::release)).await;
    let unanswered = |error: &LockError| matches!(error, LockError::Framework(error) if is_unanswered(error));
    assert!(released.iter().any(Result::is_err), "{released:?}");
    for outcome in released {
        assert!(outcome.as_ref().err().is_none_or(unanswered), "{outcome:?}");
    }
}

fn release_of(way: Way, client: CuratorFramework) -> Opened {
    Box::pin(async move {
        let guards = Box::pin(way.take(&client, PATH, |_| {})).await.unwrap();
        closing(guards, async |guards| release_unanswered(guards).await)
    })
}

/// The other objects. Each function sets one up.
const CLOSES: [(&str, Open); 29] = [
    ("the leases of a semaphore", |client| {
        Box::pin(async move {
            let leases = InterProcessSemaphoreV2::new(client, PATH, 5).unwrap().acquire_many(3).await.unwrap();
            closing(leases, async |leases| assert!(leases.release().await.is_err()))
        })
    }),
    ("a read lock", |client| {
        Box::pin(async move {
            let guard = InterProcessReadWriteLock::new(client, PATH).unwrap().read_lock().acquire().await.unwrap();
            closing(guard, async |guard| assert!(guard.release().await.is_err()))
        })
    }),
    ("a latch", |client| Box::pin(async move { closing(leading(client).await, async |latch| latch.close().await) })),
    ("the resignation of a latch", |client| {
        Box::pin(async move {
            closing(leading(client).await, async |latch| {
                let resigned = latch.resign().await;
                let is_right = matches!(&resigned, Err(LeaderError::Framework(error)) if is_unanswered(error));
                assert!(is_right, "{resigned:?}");
                latch.close().now_or_never();
            })
        })
    }),
    ("a latch in the queue", |client| {
        Box::pin(async move {
            let first = leading(client.clone()).await;
            let second = LeaderLatch::new(client, PATH).unwrap();
            second.start().unwrap();
            sleep(LATENCY * 10).await;
            closing((first, second), async |(first, second)| drop(join_all([first.close(), second.close()]).await))
        })
    }),
    ("a selector", |client| {
        Box::pin(async move {
            let selector = LeaderSelector::new(client, PATH).unwrap();
            let running = selector.clone();
            let run =
                tokio::spawn(
                    async move { running.run(async |_| std::future::pending::<Result<(), Error>>().await).await },
                );
            until("it leads", || selector.has_leadership()).await;
            closing((selector, run), async |(selector, _)| selector.close().await)
        })
    }),
    ("a selector with a run that is not polled", |client| {
        Box::pin(async move {
            let selector = LeaderSelector::new(client, PATH).unwrap();
            let running = selector.clone();
            let mut run = Box::pin(async move { running.run_once(async |_| std::future::pending::<()>().await).await });
            tokio::select! {
                _ = &mut run => unreachable!("the work does not end"),
                () = until("it leads", || selector.has_leadership()) => {}
            }
            closing((selector, run), async |(selector, _)| selector.close().await)
        })
    }),
    ("a selector that runs until a shutdown", |client| {
        Box::pin(async move {
            let selector = LeaderSelector::new(client, PATH).unwrap();
            let running = selector.clone();
            let (shutdown, stopped) = tokio::sync::oneshot::channel::<()>();
            let run = tokio::spawn(async move {
                running.run_until(stopped, async |_| std::future::pending::<Result<(), Error>>().await).await
            });
            until("it leads", || selector.has_leadership()).await;
            Close(Box::pin(async move {
                shutdown.send(()).unwrap();
                run.await.unwrap().unwrap();
                Box::new(selector) as Box<dyn Any>
            }))
        })
    }),
    ("a partition", |client| {
        Box::pin(async move {
            let partition = Partition::new(client, PATH, "one", ["a", "b"]).unwrap();
            let running = partition.clone();
            let run = tokio::spawn(async move { running.run(async |item| item.revoked().await).await });
            until("it owns both", || partition.share().owned.len() == 2).await;
            closing((partition, run), async |(partition, _)| partition.close().await)
        })
    }),
    ("a partition with a run that is not polled", |client| {
        Box::pin(async move {
            let options = curator_recipes::PartitionOptions::new().grace(Duration::ZERO);
            let partition = Partition::with_options(client, PATH, "one", ["a", "b"], options).unwrap();
            let running = partition.clone();
            let mut run = Box::pin(async move { running.run(async |item| item.revoked().await).await });
            tokio::select! {
                _ = &mut run => unreachable!("the work does not end"),
                () = until("it owns both", || partition.share().owned.len() == 2) => {}
            }
            closing((partition, run), async |(partition, _)| partition.close().await)
        })
    }),
    ("a partition that runs until a shutdown", |client| {
        Box::pin(async move {
            let partition = Partition::new(client, PATH, "one", ["a", "b"]).unwrap();
            let running = partition.clone();
            let (shutdown, stopped) = tokio::sync::oneshot::channel::<()>();
            let run = tokio::spawn(async move { running.run_until(stopped, async |item| item.revoked().await).await });
            until("it owns both", || partition.share().owned.len() == 2).await;
            Close(Box::pin(async move {
                shutdown.send(()).unwrap();
                run.await.unwrap().unwrap();
                Box::new(partition) as Box<dyn Any>
            }))
        })
    }),
    ("a node", |client| {
        Box::pin(async move {
            let node = PersistentNode::new(client, PATH, "data").unwrap();
            node.start().unwrap();
            node.created().await.unwrap();
            closing(node, async |node| node.close().await)
        })
    }),
    ("a protected sequential node", |client| {
        Box::pin(async move {
            let options = curator_recipes::PersistentNodeOptions::new().protected();
            let mode = CreateMode::EphemeralSequential;
            let node = PersistentNode::with_options(client, PATH, "data", options.mode(mode)).unwrap();
            node.start().unwrap();
            node.created().await.unwrap();
            closing(node, async |node| node.close().await)
        })
    }),
    ("a node with a time to live", |client| {
        Box::pin(async move {
            let node = PersistentTtlNode::new(client, PATH, Duration::from_secs(60), "data").unwrap();
            node.start().unwrap();
            closing(node, async |node| node.close().await)
        })
    }),
    ("a member of a group", |client| {
        Box::pin(async move {
            let member = GroupMember::new(client, PATH, "one").unwrap();
            member.start().unwrap();
            member.join().await.unwrap();
            closing(member, async |member| member.close().await)
        })
    }),
    ("a group", |client| {
        Box::pin(async move {
            let group = curator_integration::following::group(client, PATH);
            closing(group, async |group| group.close().await)
        })
    }),
    ("an observer", |client| {
        Box::pin(async move {
            let observer = curator_integration::following::observer(client, PATH);
            closing(observer, async |observer| observer.close().await)
        })
    }),
    ("an owned barrier", |client| {
        Box::pin(async move {
            let barrier = DistributedBarrier::new(client, PATH).unwrap().set_owned().await.unwrap();
            Close(Box::pin(async move {
                let removed = barrier.release().await;
                let is_right = matches!(&removed, Err(BarrierError::Framework(error)) if is_unanswered(error));
                assert!(is_right, "{removed:?}");
                Box::new(()) as Box<dyn Any>
            }))
        })
    }),
    ("a member of a double barrier", |client| {
        Box::pin(async move {
            let member = DistributedDoubleBarrier::new(client, PATH, 1).unwrap().enter().await.unwrap();
            Close(Box::pin(async move {
                let left = member.leave().await;
                let is_right = matches!(&left, Err(BarrierError::Framework(error)) if is_unanswered(error));
                assert!(is_right, "{left:?}");
                // The drop of the member deletes its node.
                Box::new(()) as Box<dyn Any>
            }))
        })
    }),
    ("a cache", |client| {
        Box::pin(async move {
            let cache = CuratorCache::new(client, "/closes").unwrap();
            cache.start().unwrap();
            closing(cache, async |cache| cache.close().await)
        })
    }),
    ("a cache of a node", |client| {
        Box::pin(async move {
            let cache = NodeCache::new(client, PATH).unwrap();
            cache.start().unwrap();
            closing(cache, async |cache| cache.close().await)
        })
    }),
    ("a cache of children", |client| {
        Box::pin(async move {
            let cache = PathChildrenCache::new(client, PATH).unwrap();
            cache.start().unwrap();
            closing(cache, async |cache| cache.close().await)
        })
    }),
    ("a cache of a tree", |client| {
        Box::pin(async move {
            let cache = TreeCache::new(client, PATH).unwrap();
            cache.start().unwrap();
            closing(cache, async |cache| cache.close().await)
        })
    }),
    ("a shared value", |client| {
        Box::pin(async move {
            let value = SharedValue::new(client, PATH, "seed").unwrap();
            value.start().unwrap();
            value.initialized().await.unwrap();
            closing(value, async |value| value.close().await)
        })
    }),
    ("a shared count", |client| {
        Box::pin(async move {
            let count = SharedCount::new(client, PATH, 1).unwrap();
            count.start().unwrap();
            count.initialized().await.unwrap();
            closing(count, async |count| count.close().await)
        })
    }),
    ("a counter", |client| {
        Box::pin(async move {
            let policy = ExponentialBackoffRetry::new(Duration::from_secs(1), 3).unwrap();
            let counter = DistributedAtomicLong::new(client, PATH, policy).unwrap();
            counter.increment().await.unwrap();
            closing(counter, async |counter| counter.release_marker().await)
        })
    }),
    ("a counter with a change in flight", |client| {
        Box::pin(async move {
            let policy = ExponentialBackoffRetry::new(Duration::from_secs(1), 3).unwrap();
            let counter = DistributedAtomicLong::new(client, PATH, policy).unwrap();
            counter.increment().await.unwrap();
            Close(Box::pin(async move {
                // The close waits for a change in flight, even if nothing polls it.
                let mut change = Box::pin(counter.increment());
                assert!(futures_util::poll!(&mut change).is_pending());
                counter.release_marker().await;
                drop(change);
                // The drop of the counter deletes its marker.
                Box::new(()) as Box<dyn Any>
            }))
        })
    }),
    ("a client", |client| Box::pin(async move { closing(client, async |client| client.close().await) })),
    ("a client with dropped guards", |client| {
        Box::pin(async move {
            let guard = InterProcessMutex::new(client.clone(), PATH).unwrap().acquire().await.unwrap();
            Close(Box::pin(async move {
                drop(guard);
                client.close().await;
                Box::new(client) as Box<dyn Any>
            }))
        })
    }),
];

async fn leading(client: CuratorFramework) -> LeaderLatch {
    let latch = LeaderLatch::new(client, PATH).unwrap();
    latch.start().unwrap();
    latch.leading().await.unwrap();
    latch
}

/// The nodes of sessions at or below a path.
fn owned_nodes(ensemble: &SimulatedEnsemble, path: &str) -> Vec<String> {
    let children = ensemble.children(path).into_iter().map(|child| format!("{path}/{child}"));
    let mut nodes: Vec<_> = children.flat_map(|child| owned_nodes(ensemble, &child)).collect();
    if ensemble.owner(path).is_some_and(|owner| owner != 0) {
        nodes.push(path.to_owned());
    }
    nodes
}

/// Cuts a client off, closes an object, and connects the client again. Returns what was wrong.
fn fault_of_close(name: &str, rest: Duration, open: impl FnOnce(CuratorFramework) -> Opened) -> Option<String> {
    play(7, async |ensemble| {
        let one = client(&ensemble, ONE).await;
        let close = soon(open(one.clone())).await;
        sleep(rest).await;
        ensemble.partition(ONE);
        let from = Instant::now();
        let closed = timeout(DEFAULT_SESSION_TIMEOUT * 2, close.0).await;
        let took = from.elapsed();
        if closed.is_err() || took > DEFAULT_MAX_CLOSE_WAIT + ROUNDING {
            return Some(format!("{name}, cut off after {rest:?}: closed after {took:?}"));
        }
        ensemble.repair(ONE);
        // Before the end of the session.
        sleep(DEFAULT_SESSION_TIMEOUT / 2).await;
        let left = owned_nodes(&ensemble, "/closes");
        drop((closed, one));
        (!left.is_empty()).then(|| format!("{name}, cut off after {rest:?}: {left:?} are left"))
    })
}

#[test]
fn a_close_in_a_silent_network_ends_within_max_close_wait() {
    let releases = Way::ALL.map(|way| {
        let open = move |client| release_of(way, client);
        (way.to_string(), Box::new(open) as Box<dyn Fn(CuratorFramework) -> Opened>)
    });
    let others = CLOSES.map(|(name, open)| (name.to_owned(), Box::new(open) as Box<_>));
    let mut faults = Vec::new();
    for (name, open) in releases.into_iter().chain(others) {
        for rest in [Duration::ZERO, DEFAULT_SESSION_TIMEOUT / 2] {
            faults.extend(fault_of_close(&name, rest, &open));
        }
    }
    assert!(faults.is_empty(), "{faults:#?}");
}

#[test]
fn a_release_without_a_reply_is_repeated() {
    for way in Way::ALL {
        play(7, async |ensemble| {
            let (one, two) = (client(&ensemble, ONE).await, client(&ensemble, TWO).await);
            let guards = Box::pin(way.take(&one, PATH, |_| {})).await.unwrap();
            ensemble.partition(ONE);
            release_unanswered(&guards).await;
            release_unanswered(&guards).await;
            ensemble.repair(ONE);
            for guard in guards.iter().rev() {
                let mut released = guard.release().await;
                while released.is_err() {
                    released = soon(guard.release()).await;
                }
                assert_eq!(released.unwrap(), Release::Released, "{way}");
            }
            let next = Box::pin(soon(way.plain().take(&two, PATH, |_| {}))).await.unwrap();
            assert!(next.iter().all(LockGuard::is_held), "{way}");
        });
    }
}

#[cfg(curator_mutants)]
#[test]
fn close_without_a_bound_is_found() {
    let latch = |client| -> Opened {
        Box::pin(async move { closing(leading(client).await, async |latch| latch.close().await) })
    };
    let fault = || fault_of_close("a latch", Duration::ZERO, latch);
    assert_eq!(fault(), None);
    assert!(curator_framework::mutants::with("close-without-a-bound", fault).is_some());
}

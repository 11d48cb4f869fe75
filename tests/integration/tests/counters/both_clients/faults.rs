//! Lost replies, lost requests, sessions that end: each change is applied once, or its outcome is unknown.

use std::time::Duration;

use curator_framework::{ConnectionState, CuratorFramework};
use curator_integration::clients::is_zookeeper_async;
use curator_integration::connection_stage::comes_to;
use curator_integration::env::{Env, connected, in_time};
use curator_integration::on_every_server;
use curator_recipes::{CounterError, DistributedAtomicLong};
use curator_test::wire::OpCode;
use curator_test::{FaultProxy, kill_session};

use crate::stage::{LONG, long, session_of, through, values};

/// The operations that change a number, with the value behind each one. All start at 5, if the node exists.
const OPERATIONS: [(&str, i64); 8] = [
    ("increment", 6),
    ("decrement", 4),
    ("add", 12),
    ("subtract", -2),
    ("try_set", 70),
    ("compare_and_set", 71),
    ("force_set", 72),
    ("initialize", 73),
];

/// Calls an operation. Returns the value behind it, if the operation tells it.
async fn call(number: &DistributedAtomicLong, operation: &str) -> Result<i64, CounterError> {
    let post = |(pre, post)| {
        assert_eq!(pre, 5, "{operation}");
        post
    };
    match operation {
        "increment" => number.increment().await.map(|change| post(values(&change))),
        "decrement" => number.decrement().await.map(|change| post(values(&change))),
        "add" => number.add(7).await.map(|change| post(values(&change))),
        "subtract" => number.subtract(7).await.map(|change| post(values(&change))),
        "try_set" => number.try_set(70).await.map(|change| post(values(&change))),
        "compare_and_set" => number.compare_and_set(5, 71).await.map(|compared| {
            assert!(compared.is_set(), "{compared:?}");
            71
        }),
        "force_set" => number.force_set(72).await.map(|()| 72),
        "initialize" => number.initialize(73).await.map(|is_created| {
            assert!(is_created);
            73
        }),
        other => panic!("{other}"),
    }
}

/// A fault at the nth request of a kind.
#[derive(Debug, Clone, Copy)]
enum Lost {
    Reply(OpCode, usize),
    Request(OpCode, usize),
    HalfReply(OpCode, usize),
}

impl Lost {
    fn plan(self, proxy: &FaultProxy) {
        match self {
            Self::Reply(op, nth) => proxy.drop_reply(op, nth),
            Self::Request(op, nth) => proxy.drop_request(op, nth),
            Self::HalfReply(op, nth) => proxy.cut_frame(op, nth),
        }
    }
}

/// The faults of one call. With `zookeeper-async` a change is a request of its own.
fn faults() -> Vec<Vec<Lost>> {
    let writes = if is_zookeeper_async() { vec![OpCode::SetData, OpCode::Create2] } else { vec![OpCode::Multi] };
    let mut faults = vec![vec![Lost::Reply(OpCode::GetData, 1)], vec![Lost::Request(OpCode::GetData, 1)]];
    for write in writes {
        faults.extend([
            vec![Lost::Reply(write, 1)],
            vec![Lost::Request(write, 1)],
            vec![Lost::HalfReply(write, 1)],
            vec![Lost::Reply(write, 2)],
            vec![Lost::Request(write, 2)],
            vec![Lost::Reply(write, 1), Lost::Reply(write, 3)],
            vec![Lost::Reply(write, 1), Lost::Reply(OpCode::Delete, 1)],
            vec![Lost::Reply(write, 1), Lost::Request(OpCode::Delete, 1)],
            vec![Lost::Request(write, 1), Lost::Reply(write, 2)],
            vec![Lost::Request(write, 1), Lost::Request(write, 2), Lost::HalfReply(write, 3)],
        ]);
    }
    faults
}

/// The kind of request that changes a number, and its number among the requests of a call. The first transaction of an
/// object that changes a node creates its marker.
fn write_of(is_first: bool) -> (OpCode, usize) {
    if is_zookeeper_async() { (OpCode::SetData, 1) } else { (OpCode::Multi, 1 + usize::from(is_first)) }
}

/// A counter of its own client through a proxy.
async fn proxied(env: &Env, path: &str) -> (FaultProxy, CuratorFramework, DistributedAtomicLong) {
    let proxy = env.proxy();
    let client = connected(through(&proxy, LONG)).await;
    let number = long(&client, path);
    (proxy, client, number)
}

async fn value_of(direct: &CuratorFramework, path: &str) -> i64 {
    long(direct, path).get().await.unwrap()
}

/// Waits until a fault has cut the client off.
async fn cut_off(proxy: &FaultProxy, client: &CuratorFramework) {
    in_time(proxy.wait_for_faults(1)).await;
    comes_to(client, ConnectionState::Suspended).await;
}

on_every_server! {
    async fn a_lost_message_at_any_request_never_counts_twice(env) {
        let direct = env.client().await;
        for (index, lost) in faults().into_iter().enumerate() {
            for (operation, post) in OPERATIONS {
                for is_first in [true, false] {
                    let what = format!("{operation}, {lost:?}, first: {is_first}");
                    let path = env.path(&format!("a/{operation}-{index}-{is_first}"));
                    let (proxy, client, number) = proxied(&env, &path).await;
                    let other = long(&direct, &path);
                    if operation == "initialize" {
                        direct.create_containers(&env.path("a")).await.unwrap();
                    } else {
                        other.force_set(5).await.unwrap();
                    }
                    if !is_first && operation != "initialize" {
                        // The marker exists, and the value is known.
                        assert_eq!(values(&in_time(number.add(0)).await.unwrap()), (5, 5));
                    }
                    lost.iter().for_each(|fault| fault.plan(&proxy));
                    let result = in_time(call(&number, operation)).await;
                    let value = value_of(&direct, &path).await;
                    match result {
                        Ok(told) => assert_eq!((told, value), (post, post), "{what}"),
                        // Without transactions a lost reply leaves the outcome open.
                        Err(error) if is_zookeeper_async() => {
                            assert!(error.outcome_unknown(), "{what}: {error}");
                            assert!(value == post || value == 5 || operation == "initialize", "{what}: {value}");
                        }
                        // A create has a marker only if it was applied.
                        Err(error) if operation == "initialize" => {
                            assert!(error.outcome_unknown(), "{what}: {error}");
                        }
                        Err(error) => panic!("{what}: {error}"),
                    }
                    client.close().await;
                    other.release_marker().await;
                }
            }
        }
    }

    async fn a_lost_message_of_the_first_change_of_a_path_never_counts_twice(env) {
        let direct = env.client().await;
        let create = [vec![Lost::Reply(OpCode::Create2, 1)], vec![Lost::Request(OpCode::Create2, 1)]];
        for (index, lost) in faults().into_iter().chain(create).enumerate() {
            let path = env.path(&format!("new-{index}"));
            let (proxy, client, number) = proxied(&env, &path).await;
            lost.iter().for_each(|fault| fault.plan(&proxy));
            match in_time(number.add(7)).await {
                Ok(change) => assert_eq!((values(&change), value_of(&direct, &path).await), ((0, 7), 7), "{lost:?}"),
                // Without transactions a lost reply leaves the outcome open.
                Err(error) => assert!(is_zookeeper_async() && error.outcome_unknown(), "{lost:?}: {error}"),
            }
            client.close().await;
        }
    }

    /// Curator's counts twice here, and says that it has succeeded.
    async fn a_lost_reply_before_another_clients_change_counts_once(env) {
        let direct = env.client().await;
        for (is_reply, is_first) in [(true, true), (true, false), (false, true), (false, false)] {
            let path = env.path(&format!("count-{is_reply}-{is_first}"));
            let (proxy, client, number) = proxied(&env, &path).await;
            let other = long(&direct, &path);
            let first = if is_first { &other } else { &number };
            in_time(first.increment()).await.unwrap();
            let (write, nth) = write_of(is_first);
            if is_reply { proxy.drop_reply(write, nth) } else { proxy.drop_request(write, nth) }
            proxy.refuse();
            let change = tokio::spawn({
                let number = number.clone();
                async move { number.increment().await }
            });
            cut_off(&proxy, &client).await;
            let others = values(&in_time(other.add(10)).await.unwrap());
            proxy.accept();
            let change = in_time(change).await.unwrap();
            let value = value_of(&direct, &path).await;
            match change {
                Ok(change) => {
                    let chain = if is_reply { ((1, 2), (2, 12)) } else { ((11, 12), (1, 11)) };
                    assert_eq!((values(&change), others, value), (chain.0, chain.1, 12), "{is_reply} {is_first}");
                }
                Err(error) => {
                    assert!(is_zookeeper_async() && error.outcome_unknown(), "{error}");
                    assert_eq!(value, if is_reply { 12 } else { 11 });
                }
            }
            assert_eq!(values(&in_time(number.increment()).await.unwrap()), (value, value + 1));
        }
    }

    async fn a_session_that_ends_before_the_reply_leaves_the_outcome_unknown_or_counts_once(env) {
        let direct = env.client().await;
        for operation in ["increment", "force_set", "try_set"] {
            for is_reply in [true, false] {
                let what = format!("{operation}, reply lost: {is_reply}");
                let path = env.path(&format!("{operation}-{is_reply}"));
                let (proxy, client, number) = proxied(&env, &path).await;
                in_time(number.add(5)).await.unwrap();
                let session = session_of(&client, &format!("{path}-own")).await;
                let (write, nth) = write_of(false);
                if is_reply { proxy.drop_reply(write, nth) } else { proxy.drop_request(write, nth) }
                proxy.refuse();
                let change = tokio::spawn({
                    let number = number.clone();
                    async move { call(&number, operation).await }
                });
                cut_off(&proxy, &client).await;
                kill_session(env.address(), session).await.unwrap();
                proxy.accept();
                let change = in_time(change).await.unwrap();
                let (value, post) = (value_of(&direct, &path).await, if operation == "increment" { 6 } else { 70 });
                match change {
                    Ok(told) => assert!(!is_reply && (told, value) == (post, post), "{what}: {told} {value}"),
                    Err(error) => {
                        assert!(error.outcome_unknown(), "{what}: {error}");
                        assert!(is_reply || operation == "force_set", "{what}: {error}");
                        assert_eq!(value != 5, is_reply, "{what}: {value}");
                    }
                }
                // The counter continues in the new session.
                assert_eq!(values(&in_time(number.increment()).await.unwrap()), (value, value + 1), "{what}");
            }
        }
    }

    async fn a_marker_deleted_with_the_reply_leaves_the_outcome_unknown_or_counts_once(env) {
        if is_zookeeper_async() {
            return;
        }
        let direct = env.client().await;
        for (is_reply, is_first) in [(true, false), (false, false), (true, true)] {
            for is_changed in [true, false] {
                let path = env.path(&format!("count-{is_reply}-{is_changed}-{is_first}"));
                let (proxy, client, number) = proxied(&env, &path).await;
                let other = long(&direct, &path);
                in_time(if is_first { &other } else { &number }.increment()).await.unwrap();
                other.release_marker().await;
                let (write, nth) = write_of(is_first);
                if is_reply { proxy.drop_reply(write, nth) } else { proxy.drop_request(write, nth) }
                proxy.refuse();
                let change = tokio::spawn({
                    let number = number.clone();
                    async move { number.increment().await }
                });
                cut_off(&proxy, &client).await;
                let marker = env.wait_for_children(&direct, &path, 1).await.remove(0);
                direct.delete().for_path(&format!("{path}/{marker}")).await.unwrap();
                if is_changed {
                    direct.set_data().for_path(&path, 100_i64.to_be_bytes()).await.unwrap();
                }
                proxy.accept();
                match in_time(change).await.unwrap() {
                    Ok(change) => assert!(!is_reply && !is_changed && values(&change) == (1, 2), "{change:?}"),
                    Err(error) => assert!((is_reply || is_changed) && error.outcome_unknown(), "{error}"),
                }
                let value = if is_changed { 100 } else { 2 };
                assert_eq!(value_of(&direct, &path).await, value);
                assert_eq!(values(&in_time(number.increment()).await.unwrap()), (value, value + 1));
            }
        }
    }

    async fn callers_go_on_when_the_one_that_sends_is_dropped(env) {
        let (direct, path) = (env.client().await, env.path("count"));
        let (proxy, _client, number) = proxied(&env, &path).await;
        in_time(number.add(0)).await.unwrap();
        for round in 0..20 {
            let before = value_of(&direct, &path).await;
            proxy.latency(Duration::from_millis(5));
            let mut sender = Box::pin(number.add(1000));
            assert!(futures_util::poll!(&mut sender).is_pending());
            let others: Vec<_> = (0..5)
                .map(|_| {
                    let number = number.clone();
                    tokio::spawn(async move { number.increment().await })
                })
                .collect();
            // Sometimes before the request has left, sometimes after its reply.
            tokio::select! {
                biased;
                _ = &mut sender => {}
                () = tokio::time::sleep(Duration::from_millis(round)) => {}
            }
            drop(sender);
            let (mut changes, mut unknown) = (Vec::new(), 0);
            for other in others {
                match in_time(other).await.unwrap() {
                    Ok(change) => changes.push(values(&change)),
                    // Without transactions, if it was in the write of the dropped future.
                    Err(error) => {
                        assert!(is_zookeeper_async() && error.outcome_unknown(), "{error}");
                        unknown += 1;
                    }
                }
            }
            proxy.latency(Duration::ZERO);
            let behind = value_of(&direct, &path).await;
            let known = before + i64::try_from(changes.len()).unwrap();
            let sums = [known, known + unknown, known + 1000, known + 1000 + unknown];
            assert!(sums.contains(&behind), "{before} {behind} {changes:?}");
            changes.sort_unstable();
            assert!(changes.iter().all(|(pre, post)| pre + 1 == *post), "{changes:?}");
            assert!(changes.windows(2).all(|pair| pair[0].1 <= pair[1].0), "{changes:?}");
        }
    }
}

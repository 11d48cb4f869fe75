//! Numbers and values that processes of several languages change.

use std::collections::BTreeSet;
use std::time::Duration;

use curator_framework::{CuratorFramework, RetryNTimes};
use curator_integration::env::{Env, Kind, in_time};
use curator_integration::on_every_server;
use curator_recipes::{
    CachedAtomicLong, Compared, CounterError, CounterOptions, DistributedAtomicInteger, DistributedAtomicLong,
    DistributedAtomicNumber, DistributedAtomicValue, PromotedToLock, SharedCount,
};
use tokio::task::JoinSet;

use crate::peer::{Language, Peer, Thread};

const SESSION: Duration = Duration::from_secs(30);
/// The changes of each thread.
const ROUNDS: i32 = 60;

fn tries() -> RetryNTimes {
    RetryNTimes::new(100_000, Duration::from_millis(1))
}

fn long(client: &CuratorFramework, path: &str) -> DistributedAtomicLong {
    DistributedAtomicLong::new(client.clone(), path, tries()).unwrap()
}

fn integer(client: &CuratorFramework, path: &str) -> DistributedAtomicInteger {
    DistributedAtomicInteger::new(client.clone(), path, tries()).unwrap()
}

/// A thread of a process, and a number there.
struct Remote {
    thread: Thread,
    /// The verb, the path and the kind.
    number: String,
}

impl Remote {
    fn new(peer: &Peer, name: &str, path: &str, kind: &str) -> Self {
        Self { thread: peer.thread(name), number: format!("number {path} {kind}") }
    }

    async fn ask(&mut self, what: &str) -> String {
        self.thread.ask(&format!("{} {what}", self.number)).await
    }

    fn begin(&self, what: &str) {
        self.thread.begin(&format!("{} {what}", self.number));
    }
}

/// Adds so often, and returns the values behind the changes.
async fn add<N: curator_recipes::AtomicNumber>(number: DistributedAtomicNumber<N>, delta: N) -> Vec<N> {
    let mut values = Vec::new();
    for _ in 0..ROUNDS {
        values.push(number.add(delta).await.unwrap().post_value);
    }
    number.release_marker().await;
    values
}

on_every_server! {
    async fn java_and_rust_count_with_one_long(env) {
        let java = Peer::java(&env).await;
        let path = env.path("long");
        let mut javas = [Remote::new(&java, "one", &path, "long"), Remote::new(&java, "two", &path, "long")];
        let mut ours = JoinSet::new();
        for _ in 0..2 {
            let number = long(&env.client().await, &path);
            ours.spawn(add(number, 1));
        }
        javas.iter().for_each(|remote| remote.begin(&format!("add 1 {ROUNDS}")));
        let counted = in_time(ours.join_all()).await;
        for remote in &mut javas {
            remote.thread.says("added").await;
        }
        assert_eq!(counted.iter().flatten().collect::<BTreeSet<_>>().len(), 2 * ROUNDS as usize, "each value once");
        let number = long(&env.client().await, &path);
        assert_eq!(in_time(number.get()).await.unwrap(), i64::from(4 * ROUNDS));
        assert_eq!(javas[0].ask("get").await, (4 * ROUNDS).to_string());
    }

    async fn each_reads_compares_and_initializes_the_numbers_of_the_other(env) {
        let java = Peer::java(&env).await;
        let (client, path) = (env.client().await, env.path("long"));
        let (number, mut javas) = (long(&client, &path), Remote::new(&java, "one", &path, "long"));
        assert_eq!(in_time(number.compare_and_set(0, 1)).await.unwrap(), Compared::Missing);
        assert_eq!(javas.ask("compare 0 1").await, "false");
        assert_eq!(javas.ask("initialize 7").await, "true");
        assert!(!in_time(number.initialize(8)).await.unwrap());
        for value in [i64::MIN, -1, 0, 1, i64::MAX] {
            in_time(number.force_set(value)).await.unwrap();
            assert_eq!(javas.ask("get").await, value.to_string());
            let back = value ^ 0x55;
            assert_eq!(javas.ask(&format!("compare {value} {back}")).await, "true");
            assert_eq!(javas.ask(&format!("compare {value} {back}")).await, "false");
            assert_eq!(in_time(number.compare_and_set(value, 5)).await.unwrap(), Compared::Differs(back));
            assert!(in_time(number.compare_and_set(back, 5)).await.unwrap().is_set());
            assert_eq!(javas.ask(&format!("set {value}")).await, "set");
            assert_eq!(in_time(number.get()).await.unwrap(), value);
        }
    }

    async fn java_and_rust_count_with_one_integer_that_is_a_shared_count(env) {
        let java = Peer::java(&env).await;
        let path = env.path("integer");
        let mut javas = Remote::new(&java, "atomic", &path, "integer");
        let shared = SharedCount::new(env.client().await, &path, 5).unwrap();
        shared.start().unwrap();
        shared.initialized().await.unwrap();
        let mut javas_shared = java.thread("shared");
        assert_eq!(javas_shared.ask(&format!("count get {path}")).await, "5");
        let number = integer(&env.client().await, &path);
        let ours = tokio::spawn(add(number, 3));
        javas.begin(&format!("add -2 {ROUNDS}"));
        javas_shared.begin(&format!("count increment {path} {ROUNDS}"));
        for _ in 0..ROUNDS {
            while {
                let now = shared.versioned_value().unwrap();
                !shared.try_set_count(&now, now.value() + 10).await.unwrap()
            } {}
        }
        in_time(ours).await.unwrap();
        javas.thread.says("added").await;
        javas_shared.says("done").await;
        let sum = 5 + (3 - 2 + 1 + 10) * ROUNDS;
        in_time(shared.watch().wait_for(|count| *count.value() == sum)).await.unwrap();
        assert_eq!(javas.ask("get").await, sum.to_string());
        assert_eq!(javas_shared.ask(&format!("count await {path} {sum}")).await, format!("is {sum}"));
        java.end().await;
    }

    async fn java_and_rust_compare_and_set_one_value(env) {
        let java = Peer::java(&env).await;
        let (client, path) = (env.client().await, env.path("value"));
        let value = DistributedAtomicValue::new(client, &path, tries()).unwrap();
        let mut javas = Remote::new(&java, "one", &path, "value");
        assert_eq!(in_time(value.get()).await.unwrap(), None);
        assert!(in_time(value.initialize("first")).await.unwrap());
        assert_eq!(javas.ask("get").await, "first");
        assert_eq!(javas.ask("set second").await, "first");
        assert_eq!(in_time(value.compare_and_set("first", "x")).await.unwrap(), Compared::Differs(b"second".to_vec()));
        assert!(in_time(value.compare_and_set("second", "third")).await.unwrap().is_set());
        assert_eq!(javas.ask("compare second y").await, "false");
        assert_eq!(javas.ask("compare third fourth").await, "true");
        assert_eq!(in_time(value.try_set("fifth")).await.unwrap().pre_value, b"fourth");
        in_time(value.force_set("sixth")).await.unwrap();
        assert_eq!(javas.ask("get").await, "sixth");
    }

    async fn no_number_is_taken_from_both_caches(env) {
        let java = Peer::java(&env).await;
        let path = env.path("cached");
        let mut javas = Remote::new(&java, "one", &path, "cached");
        let cached = CachedAtomicLong::new(long(&env.client().await, &path), 7).unwrap();
        javas.begin(&format!("next 9 {ROUNDS}"));
        let mut taken = Vec::new();
        for _ in 0..ROUNDS {
            taken.push(in_time(cached.next()).await.unwrap());
        }
        let theirs = javas.thread.answer().await.unwrap();
        taken.extend(theirs.split(',').map(|number| number.parse::<i64>().unwrap()));
        assert_eq!(taken.iter().collect::<BTreeSet<_>>().len(), 2 * ROUNDS as usize, "{taken:?}");
        // Both count from 1.
        assert!(taken.contains(&1) && taken.iter().all(|number| *number > 0), "{taken:?}");
    }

    async fn changes_under_one_lock_of_java_and_rust_are_counted_once(env) {
        let java = Peer::java(&env).await;
        let (path, lock) = (env.path("number"), env.path("lock"));
        let names = ["one", "two"];
        let mut javas = names.map(|name| Remote::new(&java, name, &path, "promoted"));
        let mut ours = JoinSet::new();
        for _ in 0..2 {
            let promoted = PromotedToLock::new(&lock).timeout(SESSION).retry_policy(tries());
            let options = CounterOptions::new().promoted_to_lock(promoted);
            let once = RetryNTimes::new(0, Duration::ZERO);
            let number =
                DistributedAtomicLong::with_options(env.client().await, &path, once, options).unwrap();
            ours.spawn(add(number, 1));
        }
        javas.iter().for_each(|remote| remote.begin(&format!("add 1 {ROUNDS} {lock}")));
        in_time(ours.join_all()).await;
        let mut promoted = 0;
        for remote in &mut javas {
            let answer = remote.thread.answer().await.unwrap();
            promoted += answer.strip_prefix("promoted ").unwrap().parse::<i32>().unwrap();
        }
        assert!(promoted > 0, "Java has not used the lock");
        assert_eq!(in_time(long(&env.client().await, &path).get()).await.unwrap(), i64::from(4 * ROUNDS));
    }

    async fn kazoo_and_rust_count_with_one_integer(env) {
        let kazoo = Peer::start(Language::Python, env.address(), SESSION).await;
        let path = env.path("integer");
        let mut theirs = Remote::new(&kazoo, "one", &path, "integer");
        let number = integer(&env.client().await, &path);
        let ours = tokio::spawn(add(number.clone(), 1));
        theirs.begin(&format!("add 1 {ROUNDS}"));
        assert_eq!(in_time(ours).await.unwrap().len(), ROUNDS as usize);
        theirs.thread.says("added").await;
        assert_eq!(in_time(number.get()).await.unwrap(), 2 * ROUNDS);
        assert_eq!(theirs.ask("get").await, (2 * ROUNDS).to_string());
        in_time(number.force_set(-3)).await.unwrap();
        assert_eq!(theirs.ask("get").await, "-3");
        kazoo.end().await;
    }
}

/// kazoo's counter writes its number as a text, unless it supports Curator.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_text_of_kazoos_counter_is_not_a_number() {
    let env = Env::new(Kind::InProcess);
    let kazoo = Peer::start(Language::Python, env.address(), SESSION).await;
    let (client, path) = (env.client().await, env.path("text"));
    let mut theirs = Remote::new(&kazoo, "one", &path, "text");
    assert_eq!(theirs.ask("add 12 1").await, "added");
    let (number, integer) = (long(&client, &path), integer(&client, &path));
    for answer in [
        in_time(number.get()).await.map(drop),
        in_time(number.increment()).await.map(drop),
        in_time(number.compare_and_set(0, 1)).await.map(drop),
        in_time(number.try_set(1)).await.map(drop),
        in_time(integer.get()).await.map(drop),
        in_time(integer.increment()).await.map(drop),
    ] {
        assert!(matches!(answer, Err(CounterError::NotANumber { length: 2, .. })), "{answer:?}");
    }
    assert_eq!(theirs.ask("get").await, "12");
    kazoo.end().await;
}

//! Each language takes the items that the other one puts, from nodes with the same names and bytes.

use curator_framework::CuratorFramework;
use curator_integration::env::{children, eventually, in_time};
use curator_integration::on_every_server;
use curator_recipes::SimpleDistributedQueue;

use super::{KINDS, Queue, drained};
use crate::peer::Peer;

/// Items and their arguments in the order of the puts. Several items with commas between them are one node.
fn items(kind: &str) -> [(&'static str, &'static str); 5] {
    match kind {
        "id" => [("a", "job"), ("b", "a/b|c"), ("c", "ü"), ("d", "job"), ("", "empty")],
        "priority" => [("a", "10"), ("b,c", "-1"), ("d", "2147483647"), ("e", "-2147483648"), ("ü", "10")],
        "delay" => [("a", "5000"), ("b,c", "1"), ("d", "900000000000"), ("e", "16777216"), ("ü", "4096")],
        _ => [("a", ""), ("b,c", ""), ("d", ""), ("ü", ""), ("e", "")],
    }
}

/// Items in the order of their delivery.
fn sorted(kind: &str) -> Vec<&'static str> {
    match kind {
        "id" => vec!["a", "b", "c", "d", ""],
        "priority" => vec!["e", "b", "c", "a", "ü", "d"],
        "delay" => vec!["b", "c", "ü", "a", "e", "d"],
        _ => vec!["a", "b", "c", "d", "ü", "e"],
    }
}

/// The names of the children, and their data.
async fn nodes(client: &CuratorFramework, path: &str) -> Vec<(String, Vec<u8>)> {
    let mut names = children(client, path).await;
    names.sort_unstable();
    let mut nodes = Vec::new();
    for name in names {
        let (data, stat) = in_time(client.get_data().for_path(&format!("{path}/{name}"))).await.unwrap();
        assert_eq!(stat.ephemeral_owner, 0);
        nodes.push((name, data));
    }
    nodes
}

/// Puts the same items by each language at a path of its own, and takes them by the other one.
async fn crossed(client: &CuratorFramework, java: &Peer, javas: &Queue, ours: &Queue) {
    let kind = javas.kind;
    let mut producer = javas.of(java, "producer");
    let queue = ours.ours(client);
    for (texts, argument) in items(kind) {
        let is_batch = texts.contains(',');
        let verb = if is_batch { "multi" } else { "put" };
        producer.does(format!("{verb} {texts} {argument}").trim_end(), "put").await;
        queue.put(&texts.split(',').collect::<Vec<_>>(), argument, is_batch).await;
    }
    assert_eq!(nodes(client, &javas.path).await, nodes(client, &ours.path).await, "{kind}");

    let expected = sorted(kind);
    assert_eq!(drained(&mut javas.ours(client).consumer(), expected.len()).await, expected, "{kind}");
    let mut consumer = ours.of(java, "consumer");
    consumer.does("consume 0", "consuming").await;
    for item in expected {
        consumer.gets(item).await;
    }
    // Java deletes an item with a lock after its work, and does not wait for that when it is closed.
    for queue in [javas, ours] {
        for folder in [Some(&queue.path), queue.lock.as_ref()].into_iter().flatten() {
            eventually("nothing is left", async || children(client, folder).await.is_empty()).await;
        }
    }
    consumer.does("close", "closed").await;
}

async fn crossed_simple(client: &CuratorFramework, java: &Peer, path: &str) {
    let [javas, ours] = ["javas", "ours"].map(|name| format!("{path}-{name}"));
    let queues = [&javas, &ours].map(|path| SimpleDistributedQueue::new(client.clone(), path).unwrap());
    let mut thread = Queue::at_most_once("simple", &javas).of(java, "simple");
    for item in ["a", "", "ü"] {
        thread.does(&format!("put {item}"), "put").await;
        in_time(queues[1].offer(item)).await.unwrap();
    }
    assert_eq!(nodes(client, &javas).await, nodes(client, &ours).await);
    thread.queue.path.clone_from(&ours);
    for item in ["a", "", "ü"] {
        assert_eq!(in_time(queues[0].take()).await.unwrap(), item.as_bytes());
        thread.does("take 5000", item).await;
    }
    assert_eq!(in_time(queues[0].poll()).await.unwrap(), None);
    thread.does("poll", "none").await;
    // Each one waits for an offer of the other one.
    thread.thread.begin(&thread.queue.line("take 30000"));
    in_time(queues[1].offer("late")).await.unwrap();
    thread.thread.says("late").await;
    thread.queue.path.clone_from(&javas);
    let (taken, ()) = tokio::join!(in_time(queues[0].take()), thread.does("put late", "put"));
    assert_eq!(taken.unwrap(), b"late");
}

on_every_server! {
    async fn each_takes_what_the_other_puts(env) {
        let (java, client) = (Peer::java(&env).await, env.client().await);
        for kind in KINDS {
            let [javas, ours] = ["javas", "ours"].map(|name| env.path(&format!("{kind}-{name}")));
            crossed(&client, &java, &Queue::at_most_once(kind, &javas), &Queue::at_most_once(kind, &ours)).await;
            let [javas, ours] = [javas, ours].map(|path| format!("{path}-locked"));
            crossed(&client, &java, &Queue::locked(kind, &javas), &Queue::locked(kind, &ours)).await;
        }
        crossed_simple(&client, &java, &env.path("simple")).await;
        java.end().await;
    }

    // Java compares the id as it was given with the cleaned one in the name.
    async fn each_removes_the_ids_of_the_other(env) {
        let (java, client) = (Peer::java(&env).await, env.client().await);
        for queue in [Queue::at_most_once("id", &env.path("plain")), Queue::locked("id", &env.path("locked"))] {
            let super::Ours::Id(ours) = queue.ours(&client) else { unreachable!() };
            let mut javas = queue.of(&java, "producer");
            for id in ["a/b", "a/b", "a/b", "other"] {
                in_time(ours.put(&"item".to_owned(), id)).await.unwrap();
                javas.does(&format!("put item {id}"), "put").await;
            }
            javas.does("remove a/b", "0").await;
            assert_eq!(in_time(ours.remove("a/b")).await.unwrap(), 6);
            javas.does("remove other", "2").await;
            assert!(in_time(ours.is_empty()).await.unwrap());
        }
        java.end().await;
    }
}

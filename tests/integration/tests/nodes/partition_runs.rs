//! The life of a run: its start, its end by a close, a drop or a panic of its work.

use std::panic::AssertUnwindSafe;
use std::time::Duration;

use curator_framework::{CuratorFramework, Error};
use curator_integration::env::{eventually, in_time};
use curator_integration::in_process::{client, server};
use curator_integration::on_every_server;
use curator_recipes::{NodeError, OwnedItem, Partition, PartitionOptions, Share};
use futures_util::FutureExt as _;
use tokio::sync::mpsc::unbounded_channel;
use tokio::sync::oneshot;

use crate::partition_stage::{Ledger, Member, are_calm, items, soon};

const PATH: &str = "/work";

fn partition(client: &CuratorFramework, id: &str) -> Partition {
    Partition::with_options(client.clone(), PATH, id, items(4), soon()).unwrap()
}

async fn owns_all(member: &Member, ledger: &Ledger) {
    eventually("one member owns all", async || are_calm([member], 4, ledger)).await;
    ledger.assert_one_owner_each();
}

#[tokio::test]
async fn a_partition_runs_once_at_a_time_and_again_after_a_drop() {
    let (server, ledger) = (server(), Ledger::default());
    let client = client(&server).await;
    let partition = partition(&client, "ann");
    assert_eq!((partition.share(), partition.path(), partition.id()), (Share::default(), PATH, "ann"));
    for _ in 0..3 {
        let member = Member::run(partition.clone(), &ledger);
        owns_all(&member, &ledger).await;
        let second = in_time(partition.run(async |_| {})).await;
        assert!(matches!(second, Err(NodeError::AlreadyStarted { .. })), "{second:?}");
        member.run.abort();
        assert!(in_time(member.run).await.unwrap_err().is_cancelled());
        assert_eq!((partition.share(), ledger.owners().len()), (Share::default(), 0));
        let children = |path: &str| server.children(path).unwrap_or_default().len();
        let locks = || items(4).iter().map(|item| children(&format!("{PATH}/items/{item}"))).sum::<usize>();
        eventually("nothing is left", async || children(&format!("{PATH}/members")) + locks() == 0).await;
    }
}

/// A close gives the work its grace, and says that the run has ended.
#[tokio::test]
async fn a_close_waits_for_the_work() {
    let (server, ledger) = (server(), Ledger::default());
    let client = client(&server).await;
    let partition = partition(&client, "ann");
    let (running, book, (end, ended)) = (partition.clone(), ledger.clone(), tokio::sync::watch::channel(false));
    let run = tokio::spawn(async move {
        let work = running.run(async |item| {
            let _work = book.begin("ann", &item);
            item.revoked().await;
            ended.clone().wait_for(|&ended| ended).await.unwrap();
            assert!(item.is_held());
        });
        work.await
    });
    let member = Member { partition, run };
    owns_all(&member, &ledger).await;
    let other = Member::run(self::partition(&client, "bob"), &ledger);
    eventually("the other is a member", async || other.partition.share().is_member).await;
    let closing = tokio::spawn({
        let partition = member.partition.clone();
        async move { partition.close().await }
    });
    // The other one learns at once that the member leaves.
    eventually("the other wants all", async || other.partition.share().wanted.len() == 4).await;
    assert!(!closing.is_finished() && !member.run.is_finished());
    assert_eq!(ledger.items_of("ann").len(), 4);
    end.send_replace(true);
    in_time(closing).await.unwrap();
    in_time(member.run).await.unwrap().unwrap();
    owns_all(&other, &ledger).await;
    in_time(member.partition.close()).await;
    let again = in_time(member.partition.run(async |_| {})).await;
    assert!(matches!(again, Err(NodeError::Closed { .. })), "{again:?}");
}

#[tokio::test]
async fn a_run_ends_with_its_client() {
    let (server, ledger) = (server(), Ledger::default());
    let client = client(&server).await;
    let member = Member::run(partition(&client, "ann"), &ledger);
    owns_all(&member, &ledger).await;
    in_time(client.close()).await;
    let ended = in_time(member.run).await.unwrap();
    assert!(matches!(ended, Err(NodeError::Framework(Error::Closed))), "{ended:?}");
    assert_eq!(ledger.owners().len(), 0);
}

/// The views of items that a dropped run leaves behind hold nothing up.
#[tokio::test]
async fn views_of_a_dropped_run_own_nothing() {
    let (server, ledger) = (server(), Ledger::default());
    let client = client(&server).await;
    let (sender, mut owned) = unbounded_channel();
    let running = partition(&client, "ann");
    let run = tokio::spawn(async move {
        let work = running.run(async |item| {
            sender.send(item).unwrap();
            std::future::pending::<()>().await;
        });
        work.await
    });
    let mut views: Vec<OwnedItem> = Vec::new();
    while views.len() < 4 {
        views.push(in_time(owned.recv()).await.unwrap());
    }
    assert!(views.iter().all(OwnedItem::is_held));
    let other = Member::run(partition(&client, "bob"), &ledger);
    eventually("the other wants two items", async || other.partition.share().wanted.len() == 2).await;
    run.abort();
    owns_all(&other, &ledger).await;
    for view in &views {
        in_time(view.revoked()).await;
        assert!(!view.is_held());
    }
}

/// Work that panics, in its call or in its future.
#[tokio::test]
async fn a_panic_of_work_ends_the_run_and_leaves_no_item_locked() {
    let (server, ledger) = (server(), Ledger::default());
    let client = client(&server).await;
    for in_call in [true, false] {
        let (panicking, book) = (partition(&client, "ann"), ledger.clone());
        let (told, ended) = oneshot::channel();
        let run = tokio::spawn(async move {
            let work = |item: OwnedItem| {
                let work = book.begin("ann", &item);
                let is_last = item.name() == "item-003";
                assert!(!(in_call && is_last), "on purpose");
                async move {
                    assert!(!is_last, "on purpose");
                    item.revoked().await;
                    drop(work);
                }
            };
            let run = AssertUnwindSafe(panicking.run(work)).catch_unwind();
            let mut run = std::pin::pin!(run);
            assert!(run.as_mut().await.is_err());
            told.send(()).unwrap();
            // The future is kept.
            std::future::pending::<()>().await;
            run.await.is_ok()
        });
        in_time(ended).await.unwrap();
        let other = Member::run(partition(&client, "bob"), &ledger);
        owns_all(&other, &ledger).await;
        assert!(!run.is_finished());
        run.abort();
        in_time(other.close()).await.unwrap();
    }
}

on_every_server! {
    /// Each item moves once its work has returned, and the other work continues: 100 items, ten members.
    async fn all_items_of_a_leaving_fleet_end_with_the_last_member(env) {
        let (path, ledger, client) = (env.path("work"), Ledger::default(), env.client().await);
        let options = || PartitionOptions::new().settle(Duration::from_millis(100));
        let mut members = Vec::new();
        for number in 0..10 {
            let id = format!("member-{number}");
            let partition = Partition::with_options(client.clone(), &path, id, items(100), options()).unwrap();
            members.push(Member::run(partition, &ledger));
        }
        eventually("all items have their owners", async || are_calm(&members, 100, &ledger)).await;
        while members.len() > 1 {
            in_time(members.pop().unwrap().close()).await.unwrap();
        }
        eventually("one member owns all", async || are_calm(&members, 100, &ledger)).await;
        in_time(members.remove(0).close()).await.unwrap();
        ledger.assert_one_owner_each();
        assert_eq!(ledger.owners().len(), 0);
    }
}

//! An ensemble that changes, and clients that follow it: Curator's `TestReconfiguration`.

use std::sync::Arc;
use std::time::Duration;

use curator_framework::recipe::RecipeClient as _;
use curator_framework::spi::ZooKeeperFactory;
use curator_framework::{
    CuratorFramework, CuratorFrameworkBuilder, DefaultZooKeeperFactory, EnsembleConfig, EnsembleProvider, Error,
    FixedEnsembleProvider, RetryForever, ZooKeeperAsyncFactory,
};
use curator_integration::env::{connected as connect, eventually, in_time};
use curator_test::wire::OpCode;
use curator_test::{ApacheCluster, ApacheError, FaultProxy, TestingServer};
use tokio::task::block_in_place;

use super::{connected, second};

fn cluster() -> Arc<ApacheCluster> {
    let sessions = (Duration::from_secs(2), Duration::from_secs(60));
    let builder = ApacheCluster::builder().reconfig().tick(Duration::from_secs(1));
    Arc::new(block_in_place(|| builder.session_timeouts(sessions.0, sessions.1).start()).unwrap())
}

fn options(
    provider: &FixedEnsembleProvider,
    factory: impl ZooKeeperFactory,
    session: Duration,
) -> CuratorFrameworkBuilder {
    CuratorFramework::builder("")
        .ensemble_provider(provider.clone())
        .zookeeper_factory(factory)
        .session_timeout(session)
        .connection_timeout(Duration::from_secs(30))
        .retry_policy(RetryForever::new(Duration::from_millis(100)).unwrap())
}

/// A client that may change the ensemble, and does not follow it.
async fn administrator(cluster: &ApacheCluster) -> CuratorFramework {
    let provider = FixedEnsembleProvider::new(cluster.connect_string());
    let options = options(&provider, DefaultZooKeeperFactory::new(), Duration::from_secs(20));
    connect(options.authorization("digest", "super:secret")).await
}

fn sorted(connect_string: &str) -> Vec<String> {
    let mut servers: Vec<_> = connect_string.split(',').map(str::to_owned).collect();
    servers.sort();
    servers
}

/// The line of a server, and its number.
fn member(config: &EnsembleConfig, client: &str) -> (String, String) {
    let line = config.members().into_iter().find(|line| line.ends_with(&format!(";{client}"))).unwrap();
    let number = line.trim_start_matches("server.").split('=').next().unwrap().to_owned();
    (line, number)
}

/// A server that may be cut off: the first one that neither leads nor serves us. The others are equal.
fn expendable(cluster: &ApacheCluster) -> String {
    let leader = block_in_place(|| cluster.wait_until_serving()).unwrap();
    cluster.server((leader + 1) % cluster.servers()).unwrap().to_string()
}

/// Curator's `testBasicGetConfig`, `testAddWithoutEnsembleTracker`, `testAdd`, `testAddAsync`, `testAddAndRemove` and
/// `testAddAndRemoveWithEmptyList`.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_goes_and_comes_and_clients_follow() {
    let cluster = cluster();
    let all = sorted(&cluster.connect_string());
    let administrator = administrator(&cluster).await;
    let (old, watch) = administrator.get_config().watched().for_ensemble().await.unwrap();
    assert_eq!(old.client_addresses(), all);
    assert_eq!(old.members().len(), 3);

    // Both clients follow; a client without the option does not.
    let providers = [0, 1, 2].map(|_| FixedEnsembleProvider::new(cluster.connect_string() + "/chroot"));
    administrator.create().for_path("/chroot").await.unwrap();
    let session = Duration::from_secs(20);
    let followers = [
        connect(
            options(&providers[0], DefaultZooKeeperFactory::new(), session).namespace("apart").ensemble_tracker(true),
        )
        .await,
        connect(options(&providers[1], ZooKeeperAsyncFactory, session).ensemble_tracker(true)).await,
        connect(options(&providers[2], DefaultZooKeeperFactory::new(), session)).await,
    ];
    let told = |provider: &FixedEnsembleProvider| {
        let connect_string = provider.connect_string();
        sorted(connect_string.strip_suffix("/chroot").unwrap())
    };
    for client in &followers {
        let read = client.get_config().for_ensemble().await.unwrap();
        assert_eq!(read.data(), old.data(), "whatever the chroot and the namespace");
        assert_eq!(Some(read.stat().mzxid), old.version());
    }

    // One goes.
    let gone = expendable(&cluster);
    let (line, number) = member(&old, &gone);
    let fewer: Vec<_> = all.iter().filter(|server| **server != gone).cloned().collect();
    let new = administrator.reconfig().leaving([&number]).from_config(old.version()).for_ensemble().await.unwrap();
    assert_eq!(new.client_addresses(), fewer);
    assert!(new.version() > old.version(), "{new:?}");
    in_time(watch).await;
    for provider in &providers[..2] {
        eventually("they know of it", async || told(provider) == fewer).await;
    }
    // Another one does not know the newest version.
    let stale = administrator.reconfig().joining([&line]).from_config(old.version()).for_ensemble().await;
    assert!(matches!(&stale, Err(Error::BadVersion { path }) if path == "/zookeeper/config"), "{stale:?}");

    // It comes again, and nothing at all.
    let new = administrator.reconfig().joining([&line]).from_config(new.version()).for_ensemble().await.unwrap();
    assert_eq!(new.client_addresses(), all);
    for provider in &providers[..2] {
        eventually("they know of it", async || told(provider) == all).await;
    }
    let same = administrator.reconfig().joining([""; 0]).leaving([""; 0]).for_ensemble().await.unwrap();
    assert_eq!(same.members(), new.members());
    assert!(same.version() > new.version(), "{same:?}");
    assert_eq!(told(&providers[2]), all, "never told, so in another order");
    for client in followers {
        client.close().await;
    }
    administrator.close().await;
}

/// Curator's `testNewMembers` and `testNewMembersWithEmptyList`.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_whole_ensemble_is_named_and_what_is_wrong_is_told() {
    let cluster = cluster();
    let administrator = administrator(&cluster).await;
    let old = administrator.get_config().for_ensemble().await.unwrap();
    let same =
        administrator.reconfig().with_new_members([""; 0]).from_config(old.version()).for_ensemble().await.unwrap();
    assert_eq!(same.members(), old.members());
    let (line, number) = member(&old, &expendable(&cluster));
    let fewer: Vec<_> = old.members().into_iter().filter(|member| *member != line).collect();
    let new = administrator.reconfig().with_new_members(&fewer).for_ensemble().await.unwrap();
    assert_eq!(new.members(), fewer);
    let both = administrator.reconfig().with_new_members(&fewer).leaving([&number]).for_ensemble().await;
    assert!(matches!(both, Err(Error::InvalidConfig { option: "reconfig", .. })), "{both:?}");
    for (asked, wanted) in [
        (administrator.reconfig().joining(["no words"]), -8),
        // Of four two are a majority only if the others have been seen.
        (administrator.reconfig().joining([8, 9].map(|id| format!("server.{id}=127.0.0.1:{id}:1;127.0.0.1:2"))), -13),
    ] {
        let refused = asked.for_ensemble().await;
        assert!(matches!(&refused, Err(Error::ZooKeeper { code, .. }) if *code == wanted), "{wanted}: {refused:?}");
    }
    let provider = FixedEnsembleProvider::new(cluster.connect_string());
    let nobody = connect(options(&provider, DefaultZooKeeperFactory::new(), Duration::from_secs(20))).await;
    let refused = nobody.reconfig().joining([&line]).for_ensemble().await;
    assert!(matches!(&refused, Err(Error::NoAuth { path }) if path == "/zookeeper/config"), "{refused:?}");
    assert_eq!(administrator.get_config().for_ensemble().await.unwrap().members(), fewer);
    for cut in [cluster.cut(0, 1), cluster.isolate(0), cluster.cut_from_leader(0).map(drop)] {
        assert!(matches!(cut, Err(ApacheError::InvalidOption(_))), "{cut:?}");
    }
}

/// Its use: the only server that the client was given is gone forever.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_client_moves_to_servers_that_only_the_ensemble_knew() {
    let cluster = cluster();
    let first = expendable(&cluster);
    let index = (0..3).find(|index| cluster.server(*index).unwrap().to_string() == first).unwrap();
    let providers = [FixedEnsembleProvider::new(&first), FixedEnsembleProvider::new(&first)];
    let session = Duration::from_secs(6);
    let clients = [
        connect(options(&providers[0], DefaultZooKeeperFactory::new(), session).ensemble_tracker(true)).await,
        connect(options(&providers[1], ZooKeeperAsyncFactory, session).ensemble_tracker(true)).await,
    ];
    let all = sorted(&cluster.connect_string());
    for provider in &providers {
        let told = || provider.connect_string();
        eventually("the list is there", async || sorted(&told()) == all).await;
    }
    let sessions = [clients[0].session().await.unwrap(), clients[1].session().await.unwrap()];
    block_in_place(|| cluster.kill(index)).unwrap();
    // Our client asks for the list at each attempt, so its session continues; the crate's session ends.
    for ((client, first), number) in clients.iter().zip(sessions).zip([1, 2]) {
        if number == 2 {
            in_time(first.ended()).await;
        }
        in_time(client.create().or_set_data().for_path("/moved")).await.unwrap();
        assert_eq!(client.session().await.unwrap().number(), number);
    }
}

/// As the docs of `ensemble_tracker` say.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn servers_with_a_client_port_of_their_own_line_do_not_know_each_others() {
    let cluster = block_in_place(|| ApacheCluster::start(3)).unwrap();
    let provider = FixedEnsembleProvider::new(cluster.connect_string());
    let client = connect(options(&provider, ZooKeeperAsyncFactory, Duration::from_secs(20))).await;
    let config = client.get_config().for_ensemble().await.unwrap();
    assert_eq!((config.members().len(), config.client_addresses().len()), (3, 0), "{config:?}");
}

/// Curator's `TestWatcherRemovalManager.testEnsembleTracker`.
#[tokio::test]
async fn watch_of_an_ensemble_tracker_survives_reconnects_and_ends_with_the_client() {
    let server = TestingServer::start().unwrap();
    let proxy = FaultProxy::start(server.address()).unwrap();
    let client = connect(second(proxy.address()).ensemble_tracker(true)).await;
    let reads = || server.requests().iter().filter(|request| request.op == OpCode::GetData).count();
    let session = client.session().await.unwrap();
    for epoch in 1..=3 {
        eventually("it is attached", async || session.epoch() == epoch).await;
        eventually("it watches", async || (reads(), server.watch_count()) == (1, 1)).await;
        eventually("it waits", async || client.watched_paths() == ["/zookeeper/config"]).await;
        // The reply that set the watch has come before this one.
        client.check_exists().for_path("/").await.unwrap();
        proxy.reset();
    }
    in_time(client.close()).await;
    assert_eq!(client.watchers(), 0);
    eventually("the session is closed", async || server.watch_count() == 0).await;
    // A client that does not follow does not read it. A server that is alone says nothing.
    server.clear_requests();
    let client = connected(server.address()).await;
    client.check_exists().for_path("/").await.unwrap();
    assert_eq!((reads(), server.watch_count()), (0, 0));
    assert_eq!(client.get_config().for_ensemble().await.unwrap().client_addresses(), [""; 0]);
    let refused = client.reconfig().leaving(["1"]).for_ensemble().await;
    assert!(matches!(refused, Err(Error::ZooKeeper { code: -123, .. })), "{refused:?}");
}

/// It would be refused because of itself.
#[tokio::test]
async fn a_change_of_a_certain_version_whose_reply_was_lost_is_not_sent_again() {
    let server = TestingServer::start().unwrap();
    let proxy = FaultProxy::start(server.address()).unwrap();
    let client = connect(second(proxy.address())).await;
    proxy.drop_reply(OpCode::Reconfig, 1);
    let lost = in_time(client.reconfig().leaving(["1"]).from_config(7).for_ensemble()).await.unwrap_err();
    assert!(matches!(lost, Error::ConnectionLoss { .. }) && lost.outcome_unknown(), "{lost}");
    in_time(client.block_until_connected()).await.unwrap();
    proxy.drop_reply(OpCode::Reconfig, 1);
    let again = in_time(client.reconfig().leaving(["1"]).for_ensemble()).await;
    assert!(matches!(again, Err(Error::ZooKeeper { code: -123, .. })), "{again:?}");
    let sent = server.requests().iter().filter(|request| request.op == OpCode::Reconfig).count();
    assert_eq!(sent, 3);
}

//! What of Curator's `TestFramework` has no other place here.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use curator_framework::spi::{ConnectConfig, Connection, ZooKeeperFactory};
use curator_framework::{
    Acl, Chain, ConnectError, CreateMode, DefaultZooKeeperFactory, EnsembleProvider, Error, FixedEnsembleProvider,
    validate_path,
};
use curator_integration::env::{builder, connected, eventually, in_time};
use curator_integration::on_every_server;
use parking_lot::Mutex;

use crate::ground::{GROUNDS, cut_off, exists, impatient, run};

/// Notes what it is asked for.
#[derive(Debug, Clone, Default)]
struct Noting(Arc<Mutex<Vec<ConnectConfig>>>);

#[async_trait]
impl ZooKeeperFactory for Noting {
    async fn connect(&self, config: &ConnectConfig) -> Result<Connection, ConnectError> {
        self.0.lock().push(config.clone());
        DefaultZooKeeperFactory::new().connect(config).await
    }
}

/// The ends of the ranges of characters that servers refuse, and their neighbours.
const EDGES: [char; 16] = [
    '\u{1e}',
    '\u{1f}',
    '\u{20}',
    '\u{7e}',
    '\u{7f}',
    '\u{80}',
    '\u{9f}',
    '\u{a0}',
    '\u{d7ff}',
    '\u{e000}',
    '\u{f8ff}',
    '\u{f900}',
    '\u{ffef}',
    '\u{fff0}',
    '\u{ffff}',
    '\u{10000}',
];

on_every_server! {
    async fn paths_are_refused_as_the_server_refuses_them(env) {
        let client = env.client().await;
        let root = env.path("edges");
        client.create().creating_parents_if_needed().for_path(&root).await.unwrap();
        let session = client.session().await.unwrap();
        for edge in EDGES {
            let path = format!("{root}/a{edge}");
            let created = session.create(&path, Vec::new(), Acl::open_unsafe(), CreateMode::Persistent).await;
            match (validate_path(&path), created) {
                (Ok(()), Ok(_)) | (Err(Error::InvalidPath { .. }), Err(Error::ZooKeeper { code: -8, .. })) => {}
                other => panic!("{path:?}: {other:?}"),
            }
        }
    }

    /// Curator's `TestFramework.testSimple` and `testBackgroundCreate`: data as it was given, and the default.
    async fn a_node_has_the_data_it_was_given(env) {
        let client = connected(builder(env.address()).default_data("default")).await;
        for background in GROUNDS {
            for (name, data) in [("given", Some("given")), ("empty", Some("")), ("default", None)] {
                let node = env.path(&format!("{name}-{background}"));
                let (creator, path) = (client.clone(), node.clone());
                let created = run(background, async move {
                    let create = creator.create().creating_parents_if_needed();
                    match data {
                        Some(data) => create.with_data(data).for_path(&path).await,
                        None => create.for_path(&path).await,
                    }
                });
                assert_eq!(created.await.unwrap(), node);
                assert_eq!(client.get_data().for_path(&node).await.unwrap().0, name.replace("empty", "").as_bytes());
                client.set_data().for_path(&node, "changed").await.unwrap();
                assert_eq!(client.get_data().for_path(&node).await.unwrap().0, b"changed");
            }
        }
    }

    /// Curator's `TestFramework.testConfigurableZookeeper`: the options of the client reach the factory.
    async fn the_factory_is_given_the_clients_options(env) {
        let factory = Noting::default();
        let options = builder(env.address()).zookeeper_factory(factory.clone()).authorization("digest", "me:pass");
        let options = options.session_timeout(Duration::from_secs(7)).connection_timeout(Duration::from_secs(5));
        let client = connected(options.namespace("never/told")).await;
        client.check_exists().for_path("/").await.unwrap();
        let asked = factory.0.lock().remove(0);
        assert_eq!(asked.servers.current().unwrap(), [env.address().to_string()], "no chroot, no namespace");
        assert_eq!(asked.session_timeout, Duration::from_secs(7));
        // A little less than the caller waits.
        assert!(asked.connection_timeout <= Duration::from_secs(5) && asked.connection_timeout > Duration::from_secs(4));
        assert_eq!((asked.auth[0].scheme.as_str(), asked.auth[0].auth.as_slice()), ("digest", &b"me:pass"[..]));
        assert_eq!(client.session().await.unwrap().timeout(), Duration::from_secs(7));
    }

    /// The provider is asked before each new session.
    async fn a_client_moves_with_its_ensemble(env) {
        let (old, new) = (env.proxy(), env.proxy());
        let provider = FixedEnsembleProvider::new(old.connect_string());
        let options = impatient(&old).session_timeout(Duration::from_secs(2)).ensemble_provider(provider.clone());
        let client = connected(options).await;
        assert_eq!(provider.connect_string(), old.connect_string());
        provider.set_connect_string(new.connect_string());
        assert_eq!(new.total_connections(), 0, "a session in hand stays");
        cut_off(&old, &client).await;
        in_time(new.wait_for_connections(1)).await;
        eventually("it is connected there", async || client.check_exists().for_path("/").await.is_ok()).await;
        in_time(client.close()).await;
    }

    /// A caller that is not served gets an error that says where and why.
    async fn an_error_names_the_server(env) {
        let proxy = env.proxy();
        let client = connected(impatient(&proxy)).await;
        cut_off(&proxy, &client).await;
        let error = in_time(client.check_exists().for_path("/")).await.unwrap_err();
        assert!(Chain(&error).to_string().contains(&proxy.connect_string()), "{error:?}");
        let error = in_time(client.block_until_connected_timeout(Duration::from_millis(10))).await.unwrap_err();
        assert!(matches!(error, Error::ConnectionLoss { sent: false, .. }), "{error:?}");
        assert!(Chain(&error).to_string().contains(&proxy.connect_string()), "{error:?}");
        proxy.accept();
        eventually("it is connected again", async || client.check_exists().for_path("/").await.is_ok()).await;
        assert!(exists(&client, "/zookeeper").await);
    }
}

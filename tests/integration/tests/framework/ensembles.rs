//! Where the servers are: Curator's `TestEnsembleProvider`.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use curator_framework::{ConnectionState, EnsembleProvider, FixedEnsembleProvider};
use curator_integration::connection_stage::comes_to;
use curator_integration::env::{builder, connected, eventually, in_time};
use curator_integration::on_every_server;
use curator_test::TestingServer;

/// Counts how often it is asked.
#[derive(Debug, Clone)]
struct Asked {
    of: FixedEnsembleProvider,
    times: Arc<AtomicUsize>,
}

impl Asked {
    fn new(connect_string: String) -> Self {
        Self { of: FixedEnsembleProvider::new(connect_string), times: Arc::default() }
    }

    fn times(&self) -> usize {
        self.times.load(Ordering::SeqCst)
    }
}

impl EnsembleProvider for Asked {
    fn connect_string(&self) -> String {
        self.times.fetch_add(1, Ordering::SeqCst);
        self.of.connect_string()
    }

    fn set_connect_string(&self, connect_string: &str) {
        self.of.set_connect_string(connect_string);
    }
}

on_every_server! {
    /// Curator's `TestEnsembleProvider.testBasic`.
    async fn the_provider_is_asked_and_not_the_connect_string(env) {
        let provider = Asked::new(env.address().to_string());
        let nobody = ([127, 0, 0, 1], 1).into();
        let client = connected(builder(nobody).ensemble_provider(provider.clone())).await;
        assert!(provider.times() >= 1);
        assert!(client.check_exists().for_path("/").await.unwrap().is_some());
    }

    /// Curator's `TestEnsembleProvider.testAfterSessionExpiration`.
    async fn the_provider_is_asked_as_long_as_there_is_no_session(env) {
        let old = TestingServer::builder().session_timeouts(Duration::from_secs(2), Duration::from_secs(60)).start();
        let old = old.unwrap();
        let provider = Asked::new(old.connect_string());
        let options = builder(old.address()).session_timeout(Duration::from_secs(2));
        let client = connected(options.ensemble_provider(provider.clone())).await;
        old.stop();
        comes_to(&client, ConnectionState::Lost).await;
        let before = provider.times();
        eventually("it is asked again and again", async || provider.times() >= before + 3).await;
        assert_eq!(client.connection_state(), Some(ConnectionState::Lost));
        provider.of.set_connect_string(env.address().to_string());
        comes_to(&client, ConnectionState::Reconnected).await;
        assert!(in_time(client.check_exists().for_path("/")).await.unwrap().is_some());
        assert_eq!(client.session().await.unwrap().number(), 2);
    }
}

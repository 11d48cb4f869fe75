//! A client that follows its ensemble.

use std::convert::Infallible;
use std::time::Duration;

use crate::ensemble::config::EnsembleConfig;
use crate::ensemble::provider::{EnsembleProvider, parse_connect_string};
use crate::error::{Chain, Error};
use crate::model::namespace::Namespace;
use crate::session::{Session, WatchedData};
use crate::sync::report::report;
use crate::zookeeper::CONFIG_NODE;

/// The pause after a read that may succeed later.
const PAUSE: Duration = Duration::from_secs(1);

/// Passes the ensemble's configuration to the provider, after each connect and each change: Curator's
/// `EnsembleTracker`. Dropping the future removes its watch.
pub(crate) async fn track(ensemble: &dyn EnsembleProvider, chroot: &str, session: &Session) -> Infallible {
    let session = session.in_namespace(Namespace::default());
    loop {
        let epoch = session.epoch();
        match session.get_data_watched(CONFIG_NODE).await {
            Ok(WatchedData { data, stat, watch: changed }) => {
                tell(ensemble, chroot, &EnsembleConfig::new(data, stat));
                changed.await;
            }
            Err(error) if error.is_retryable() => tokio::time::sleep(PAUSE).await,
            Err(error) => {
                // Servers before 3.5 have no such node; the next one may be newer.
                report(move || match error {
                    Error::NoNode { .. } => {
                        tracing::debug!("the servers have no configuration (before 3.5): the list of servers stays")
                    }
                    error => {
                        tracing::warn!(error = %Chain(&error), "the ensemble's configuration cannot be read: the list of servers stays")
                    }
                });
                session.epoch_above(epoch).await;
            }
        }
        // A session that has ended cannot be read; its caller drops this future.
        if session.connected().await.is_err() {
            return std::future::pending().await;
        }
    }
}

fn tell(ensemble: &dyn EnsembleProvider, chroot: &str, config: &EnsembleConfig) {
    let servers = config.client_addresses();
    if servers.is_empty() {
        report(|| {
            tracing::debug!("the ensemble's configuration has no address for clients: the list of servers stays")
        });
        return;
    }
    let connect_string = servers.join(",") + chroot;
    if let Err(error) = parse_connect_string(&connect_string) {
        report(
            move || tracing::warn!(error = %Chain(&error), "the ensemble's configuration cannot be used: the list of servers stays"),
        );
        return;
    }
    if ensemble.connect_string() != connect_string {
        ensemble.set_connect_string(&connect_string);
        report(move || tracing::info!(connect_string, "the ensemble"));
    }
}

//! The connections of the web page, with limits for clients that say nothing.

use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use hyper::server::conn::http1;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::server::graceful::GracefulShutdown;
use hyper_util::service::TowerToHyperService;
use tokio::net::TcpListener;
use tokio::sync::{Semaphore, watch};
use tokio::time::sleep;

/// The longest time for the head of a request. A connection without a request is closed after it.
const HEAD: Duration = Duration::from_secs(5);
/// The most connections at once. With one more, the next client waits until another one ends.
const MOST_CONNECTIONS: usize = 512;
/// The pause after a connection that could not be accepted, as when the process has no descriptor left.
const PAUSE: Duration = Duration::from_millis(100);

/// Serves the page until `stopping` is true. Returns once the open connections have ended.
pub(super) async fn serve(listener: TcpListener, app: Router, mut stopping: watch::Receiver<bool>) {
    let (graceful, room) = (GracefulShutdown::new(), Arc::new(Semaphore::new(MOST_CONNECTIONS)));
    loop {
        let accepted = async {
            let permit = Arc::clone(&room).acquire_owned().await;
            (listener.accept().await, permit)
        };
        let (accepted, permit) = tokio::select! {
            accepted = accepted => accepted,
            _stop_or_gone = stopping.wait_for(|stop| *stop) => break,
        };
        let Ok((stream, _)) = accepted else {
            sleep(PAUSE).await;
            continue;
        };
        let service = TowerToHyperService::new(app.clone());
        let mut http = http1::Builder::new();
        http.timer(TokioTimer::new()).header_read_timeout(HEAD);
        let connection = graceful.watch(http.serve_connection(TokioIo::new(stream), service));
        tokio::spawn(async move {
            // The client has ended it, or broken it.
            let _ended = connection.await;
            drop(permit);
        });
    }
    graceful.shutdown().await;
}

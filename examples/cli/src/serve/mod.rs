//! `curator serve`: locks, services, and what options name, as a web page, as JSON and as metrics. It never writes to
//! ZooKeeper.
//!
//! One task follows the nodes (`follow`), for all browsers. It applies what it reads to a model without I/O (`tree`),
//! and publishes snapshots of the locks. Each browser has a stream (`http`) that compares the newest snapshot with the
//! one that it sent last: a slow browser skips snapshots, it does not queue them. Another task follows the services
//! (`services`) in the same way, with a cache, and a third one reads the paths that options name (`named`).

mod access;
mod api;
mod follow;
mod history;
mod http;
mod link;
mod lock;
mod metrics;
mod named;
mod names;
mod page;
mod server;
mod services;
mod tree;

use std::future::{Future, pending};
use std::net::{SocketAddr, ToSocketAddrs as _};
use std::sync::atomic::AtomicU64;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use clap::Args;
use curator_framework::validate_path;
use tokio::net::TcpListener;
use tokio::sync::watch;

use self::access::Access;
use self::follow::{Snapshot, now};
use self::history::History;
use self::link::Link;
use self::named::{Named, Paths};
use self::services::Services;
use crate::connection::Connection;
use crate::failure::Failure;
use crate::output::print;
use crate::service::Base;
use crate::site::Site;

/// The longest time that open connections get to end.
const DRAIN: Duration = Duration::from_secs(2);

const ABOUT: &str = "\
The page needs no token on a loopback address. There it answers only requests for a loopback host. Any other address
needs a token of at least 16 characters: requests then have it in `Authorization: Bearer TOKEN`, or a browser opens
/login?token=TOKEN once. `ps` shows --token, so prefer CURATOR_TOKEN. The page has no TLS of its own.

/               all that is shown           /api/locks          the locks and elections as JSON
/locks/PATH     one lock, its queue         /api/locks/PATH     the same as JSON
/services/NAME  the instances of a service  /api/services/NAME  the same as JSON; /api/services has all services
/metrics        for Prometheus              /healthz            200 if connected and no change is missing, else 503
/api/groups, /api/counters, /api/barriers, /api/latches, /api/queues  what the options name, as JSON

INT and TERM end the program with status 0.";

/// Parses an address, or the name of a host, with a port.
fn address(text: &str) -> Result<SocketAddr, String> {
    let form = || "it is an address and a port, as 127.0.0.1:8080".to_owned();
    let (host, _port) = text.rsplit_once(':').filter(|(host, _)| !host.is_empty()).ok_or_else(form)?;
    let found = text.to_socket_addrs().map_err(|error| format!("{host}: {error}"))?;
    // A name of this host may have addresses of both kinds.
    found.min_by_key(SocketAddr::is_ipv6).ok_or_else(form)
}

/// The options of `curator serve`.
#[derive(Debug, Args)]
#[command(after_help = ABOUT)]
pub(crate) struct Serve {
    /// Address and port of the web page; port 0 takes a free one
    #[arg(long, default_value = "127.0.0.1:8080", value_name = "ADDRESS:PORT", value_parser = address, env = "CURATOR_LISTEN")]
    listen: SocketAddr,
    /// A secret that requests must show; needed for addresses other than loopback
    #[arg(long, env = "CURATOR_TOKEN", hide_env_values = true)]
    token: Option<String>,
    #[command(flatten)]
    base: Base,
    #[command(flatten)]
    named: Paths,
    /// The path at and below which locks and elections are shown
    #[arg(default_value = "/")]
    path: String,
}

/// The state that the follower and the requests share.
#[derive(Debug)]
pub(crate) struct Shared {
    /// The start of this process in milliseconds since 1970, which tells its numbers from another process's.
    started: i64,
    root: String,
    /// The root behind the chroot, as the servers know it.
    full_root: String,
    access: Access,
    history: Mutex<History>,
    labels: Mutex<metrics::Labels>,
    read_errors: AtomicU64,
    connects: Arc<AtomicU64>,
}

impl Shared {
    fn history(&self) -> MutexGuard<'_, History> {
        self.history.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Serves the page until `end` resolves, and then ends open connections.
pub(crate) async fn run(
    site: &Site,
    options: &Serve,
    connection: &Connection,
    end: impl Future<Output: Send> + Send,
) -> Result<u8, Failure> {
    let (client, Serve { listen, token, base, named, path }) = (&site.client, options);
    validate_path(path)?;
    let readers = named::readers(client, named)?;
    let cache = services::cache(site, &base.base)?;
    let access =
        Access::new(*listen, token.clone().filter(|token| !token.is_empty())).map_err(|text| Failure(2, text))?;
    let listener = TcpListener::bind(listen).await.map_err(|error| Failure(70, format!("{listen}: {error}")))?;
    let address = listener.local_addr()?;
    let shared = Arc::new(Shared {
        started: now(),
        root: path.clone(),
        full_root: match connection.chroot() {
            Some(chroot) if path == "/" => chroot,
            chroot => chroot.unwrap_or_default() + path,
        },
        access,
        history: Mutex::default(),
        labels: Mutex::default(),
        read_errors: AtomicU64::new(0),
        connects: Arc::default(),
    });
    let (snapshots, seen) = watch::channel(Arc::new(Snapshot::default()));
    let (links, link) = watch::channel(Link::new(&connection.servers(), &connection.identities()));
    let (stop, stopping) = watch::channel(false);
    let (service_lists, services_seen) = watch::channel(Arc::new(Services::unknown(&base.base)));
    let mut following = tokio::spawn(follow::follow(client.clone(), path.clone(), Arc::clone(&shared), snapshots));
    let watching = tokio::spawn(link::follow_connection(client.clone(), links, Arc::clone(&shared.connects)));
    cache.start()?;
    let listing = tokio::spawn(services::follow(cache, service_lists));
    let (looks, named_seen) = watch::channel(Arc::new(Named::unknown(named)));
    let looking = tokio::spawn(named::follow(readers, looks));
    let seen = http::Seen { snapshots: seen, services: services_seen, named: named_seen, links: link };
    let app = http::router(http::Served::new(shared, seen, stopping.clone()));
    let server = tokio::spawn(server::serve(listener, app, stopping));
    let announced = async {
        // The page needs no reader of this line.
        let _gone = print(format!("the locks at and below {path} are at http://{address}/\n")).await;
        pending().await
    };
    let is_following = tokio::select! {
        _ = end => true,
        _ = &mut following => false,
        never = announced => never,
    };
    stop.send_replace(true);
    // A connection that does not read its answer does not end by itself.
    let _late = tokio::time::timeout(DRAIN, server).await;
    following.abort();
    watching.abort();
    listing.abort();
    looking.abort();
    match is_following {
        true => Ok(0),
        false => Err(Failure(70, "the task that follows the locks has ended".to_owned())),
    }
}

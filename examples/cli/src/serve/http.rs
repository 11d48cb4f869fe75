//! The requests and the streams of events.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::convert::Infallible;
use std::sync::atomic::Ordering;
use std::sync::{Arc, PoisonError};
use std::time::Duration;

use axum::Router;
use axum::extract::{Path, RawQuery, Request, State};
use axum::http::{HeaderValue, Method, StatusCode, header};
use axum::middleware::{self, Next};
use axum::response::sse::{Event, KeepAlive, Sse};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use futures_util::stream;
use serde::Serialize;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, watch};
use tokio::time::{Instant, sleep_until};
use tower_http::compression::CompressionLayer;

use super::access::{Access, COOKIE, Refusal};
use super::follow::{Snapshot, now};
use super::link::Link;
use super::lock::{Contender, Lock};
use super::metrics::{self, Counts};
use super::named::{self, Kind, Named, Thing, Things};
use super::page::{self, Row};
use super::services::{self, Entry, Service, Services};
use super::{Shared, api};

/// The shortest time between two events of a stream.
const PACE: Duration = Duration::from_millis(300);
/// The most streams at once.
const MOST_STREAMS: usize = 256;
/// The most changes of a lock in `/api/locks/{path}`.
const MOST_CHANGES: usize = 100;

/// No script, style or image but this program's own; `data:` is the icon.
const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src data:; \
                      base-uri 'none'; form-action 'none'; frame-ancestors 'none'";

/// The newest states that were seen.
#[derive(Debug, Clone)]
pub(crate) struct Seen {
    pub(crate) snapshots: watch::Receiver<Arc<Snapshot>>,
    pub(crate) services: watch::Receiver<Arc<Services>>,
    pub(crate) named: watch::Receiver<Arc<Named>>,
    pub(crate) links: watch::Receiver<Link>,
}

/// The state of the handlers.
#[derive(Debug, Clone)]
pub(crate) struct Served {
    shared: Arc<Shared>,
    seen: Seen,
    stopping: watch::Receiver<bool>,
    streams: Arc<Semaphore>,
}

impl Served {
    pub(crate) fn new(shared: Arc<Shared>, seen: Seen, stopping: watch::Receiver<bool>) -> Self {
        Self { shared, seen, stopping, streams: Arc::new(Semaphore::new(MOST_STREAMS)) }
    }

    fn services(&self) -> Arc<Services> {
        Arc::clone(&self.seen.services.borrow())
    }

    fn named(&self) -> Arc<Named> {
        Arc::clone(&self.seen.named.borrow())
    }

    fn present(&self) -> (Arc<Snapshot>, Link) {
        (Arc::clone(&self.seen.snapshots.borrow()), self.seen.links.borrow().clone())
    }
}

pub(crate) fn router(served: Served) -> Router {
    let router = Kind::ALL.into_iter().fold(Router::new(), |router, kind| {
        let answer = async move |State(served): State<Served>| api_named(&served, kind);
        router.route(&format!("/api/{}", kind.words().1), get(answer))
    });
    router
        .route("/", get(list))
        .route("/locks/", get(async |State(served): State<Served>| lock_page(&served, "/")))
        .route(
            "/locks/{*path}",
            get(async |served: State<Served>, path: Path<String>| lock_page(&served, &rooted(path))),
        )
        .route("/services/{*name}", get(service_page))
        .route("/events", get(async |served: State<Served>, request: Request| events(served.0, &request, View::List)))
        .route(
            "/events/",
            get(async |s: State<Served>, request: Request| events(s.0, &request, View::Lock("/".to_owned()))),
        )
        .route("/events/{*path}", get(lock_events))
        .route("/service-events/{*name}", get(service_events))
        .route("/api/locks", get(api_locks))
        .route("/api/locks/", get(async |State(served): State<Served>| api_lock(&served, "/")))
        .route(
            "/api/locks/{*path}",
            get(async |served: State<Served>, path: Path<String>| api_lock(&served, &rooted(path))),
        )
        .route("/api/services", get(api_services))
        .route("/api/services/{*name}", get(api_service))
        .route("/metrics", get(metrics))
        .route("/healthz", get(health))
        .route("/login", get(login))
        .route("/style.css", get(async || asset("text/css; charset=utf-8", include_str!("style.css"))))
        .route("/script.js", get(async || asset("text/javascript; charset=utf-8", include_str!("script.js"))))
        .fallback(async || (StatusCode::NOT_FOUND, "no such page\n"))
        // Streams of events are left as they are.
        .layer(CompressionLayer::new())
        .layer(middleware::from_fn_with_state(served.clone(), guard))
        .with_state(served)
}

/// Answers only requests that read and that may, and sets the headers of every answer.
async fn guard(State(served): State<Served>, request: Request, next: Next) -> Response {
    let is_login = request.uri().path() == "/login" && matches!(served.shared.access, Access::Token(_));
    let allowed = if is_login { Ok(()) } else { served.shared.access.check(request.uri(), request.headers()) };
    let mut response = if !matches!(*request.method(), Method::GET | Method::HEAD) {
        (StatusCode::METHOD_NOT_ALLOWED, [(header::ALLOW, "GET, HEAD")], "this server only reads\n").into_response()
    } else {
        match allowed {
            Ok(()) => next.run(request).await,
            Err(Refusal::Host) => {
                let text = "this server answers requests for a loopback host, such as localhost, or with a token\n";
                (StatusCode::MISDIRECTED_REQUEST, text).into_response()
            }
            Err(Refusal::Token) => {
                let text = "a token is needed: open /login?token=TOKEN, or send Authorization: Bearer TOKEN\n";
                (StatusCode::UNAUTHORIZED, [(header::WWW_AUTHENTICATE, "Bearer")], text).into_response()
            }
        }
    };
    let headers = response.headers_mut();
    for (name, value) in [
        (header::CONTENT_SECURITY_POLICY, POLICY),
        (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
        (header::X_FRAME_OPTIONS, "DENY"),
        (header::REFERRER_POLICY, "no-referrer"),
        (header::CACHE_CONTROL, "no-store"),
        (header::HeaderName::from_static("cross-origin-resource-policy"), "same-origin"),
        (header::HeaderName::from_static("cross-origin-opener-policy"), "same-origin"),
    ] {
        headers.insert(name, HeaderValue::from_static(value));
    }
    response
}

/// Returns the time of the newest known state, if that is not the present one.
fn frozen(link: &Link) -> Option<i64> {
    (!link.is_connected()).then_some(link.since)
}

fn rooted(Path(path): Path<String>) -> String {
    format!("/{path}")
}

fn html(status: StatusCode, page: String) -> Response {
    (status, [(header::CONTENT_TYPE, "text/html; charset=utf-8")], page).into_response()
}

fn asset(kind: &'static str, text: &'static str) -> Response {
    ([(header::CONTENT_TYPE, kind)], text).into_response()
}

fn json(text: serde_json::Result<String>) -> Response {
    match text {
        Ok(text) => ([(header::CONTENT_TYPE, "application/json")], text).into_response(),
        Err(error) => (StatusCode::INTERNAL_SERVER_ERROR, format!("{error}\n")).into_response(),
    }
}

async fn list(State(served): State<Served>) -> Response {
    let (snapshot, link) = served.present();
    let time = frozen(&link).unwrap_or_else(now);
    let (services, named) = (served.services(), served.named());
    html(StatusCode::OK, page::list(&served.shared.root, &snapshot, &services, &named, &link, time))
}

fn lock_page(served: &Served, path: &str) -> Response {
    let (snapshot, link) = served.present();
    let status = if snapshot.locks.contains_key(path) { StatusCode::OK } else { status_without(&snapshot, path) };
    html(status, page::lock(path, &snapshot, &link, frozen(&link).unwrap_or_else(now)))
}

/// Returns the status of an answer about a path without a lock.
fn status_without(snapshot: &Snapshot, path: &str) -> StatusCode {
    match snapshot.unknown(path) {
        None => StatusCode::NOT_FOUND,
        Some(_) if snapshot.is_known() => StatusCode::FORBIDDEN,
        Some(_) => StatusCode::SERVICE_UNAVAILABLE,
    }
}

async fn api_locks(State(served): State<Served>, RawQuery(query): RawQuery) -> Response {
    let (snapshot, link) = served.present();
    let contended = query.is_some_and(|query| query.split('&').any(|part| part == "contended=1"));
    json(api::locks(&snapshot, &link, contended))
}

fn api_lock(served: &Served, path: &str) -> Response {
    let (snapshot, link) = served.present();
    let Some(lock) = snapshot.locks.get(path) else {
        let error = snapshot.unknown(path).unwrap_or("no lock at this path");
        return (status_without(&snapshot, path), json(api::no_lock(&snapshot, &link, error))).into_response();
    };
    let (mut changes, _) = served.shared.history().since(0, path);
    changes.drain(..changes.len().saturating_sub(MOST_CHANGES));
    json(api::lock(&snapshot, &link, lock, &changes))
}

/// Returns the status of an answer about a service that is not known.
fn status_without_service(services: &Services) -> StatusCode {
    match services.at {
        0 => StatusCode::SERVICE_UNAVAILABLE,
        _ => StatusCode::NOT_FOUND,
    }
}

async fn service_page(State(served): State<Served>, Path(name): Path<String>) -> Response {
    let ((snapshot, link), services) = (served.present(), served.services());
    let is_known = services.by_name.contains_key(&name);
    let status = if is_known { StatusCode::OK } else { status_without_service(&services) };
    let time = frozen(&link).unwrap_or_else(now);
    html(status, services::page::service(&name, &services, &snapshot, &link, time))
}

async fn api_services(State(served): State<Served>) -> Response {
    let (_, link) = served.present();
    json(services::api::services(&served.services(), &link))
}

async fn api_service(State(served): State<Served>, Path(name): Path<String>) -> Response {
    let ((_, link), services) = (served.present(), served.services());
    match services.by_name.get(&name) {
        Some(service) => json(services::api::service(&services, &link, service)),
        None => {
            let error = json(services::api::no_service(&services, &link, "no such service"));
            (status_without_service(&services), error).into_response()
        }
    }
}

fn api_named(served: &Served, kind: Kind) -> Response {
    let (_, link) = served.present();
    json(named::api::things(kind, &served.named(), &link, now()))
}

async fn metrics(State(served): State<Served>) -> Response {
    let (snapshot, link) = served.present();
    let counts = Counts {
        read_errors: served.shared.read_errors.load(Ordering::Relaxed),
        connects: served.shared.connects.load(Ordering::Relaxed),
        streams: MOST_STREAMS - served.streams.available_permits(),
    };
    let mut labels = served.shared.labels.lock().unwrap_or_else(PoisonError::into_inner);
    let text = metrics::text((&snapshot, &served.services(), &served.named()), &link, &mut labels, counts, now());
    ([(header::CONTENT_TYPE, "text/plain; version=0.0.4; charset=utf-8")], text).into_response()
}

async fn health(State(served): State<Served>) -> Response {
    let (snapshot, link) = served.present();
    if page::is_live(&snapshot, &link) {
        let missing = snapshot.missing.as_ref().map(|path| format!("{path} does not exist"));
        let problems: Vec<&str> = missing.iter().chain(&snapshot.problems).map(String::as_str).collect();
        let but = if problems.is_empty() { String::new() } else { format!(", but {}", problems.join("; ")) };
        return format!("ok{but}\n").into_response();
    }
    let seconds = now().saturating_sub(link.since) / 1000;
    let text = if link.is_connected() {
        "the locks are not read yet\n".to_owned()
    } else {
        let cause = link.cause.as_ref().map_or_else(String::new, |cause| format!(": {cause}"));
        format!("no connection to ZooKeeper for {seconds} s, at {}{cause}\n", link.servers)
    };
    (StatusCode::SERVICE_UNAVAILABLE, text).into_response()
}

/// Passes the token of a login link on to a cookie.
async fn login(State(served): State<Served>, request: Request) -> Response {
    let given = request.uri().query().and_then(|query| query.strip_prefix("token="));
    let home = (header::LOCATION, "/".to_owned());
    match (&served.shared.access, given) {
        (Access::Loopback, _) => (StatusCode::SEE_OTHER, [home]).into_response(),
        (Access::Token(token), Some(given)) if token.is(given) => {
            // Not `Strict`: a browser would not send such a cookie to the page behind a link in a message.
            let cookie = format!("{COOKIE}={given}; Path=/; HttpOnly; SameSite=Lax");
            (StatusCode::SEE_OTHER, [home, (header::SET_COOKIE, cookie)]).into_response()
        }
        _ => (StatusCode::FORBIDDEN, "this is not the token; the link is /login?token=TOKEN\n").into_response(),
    }
}

async fn lock_events(State(served): State<Served>, path: Path<String>, request: Request) -> Response {
    events(served, &request, View::Lock(rooted(path)))
}

async fn service_events(State(served): State<Served>, Path(name): Path<String>, request: Request) -> Response {
    events(served, &request, View::Service(name))
}

/// The page that a stream updates.
enum View {
    /// All locks, the services, and the paths that options name.
    List,
    /// The lock at a path.
    Lock(String),
    /// The service with a name.
    Service(String),
}

/// Returns a stream of updates.
fn events(served: Served, request: &Request, view: View) -> Response {
    let Ok(permit) = Arc::clone(&served.streams).try_acquire_owned() else {
        let text = format!("there are {MOST_STREAMS} pages open already\n");
        return (StatusCode::SERVICE_UNAVAILABLE, text).into_response();
    };
    let (started, next) = (served.shared.started, served.shared.history().next());
    // A page that was without a stream for a time continues its history.
    let last = request.headers().get("last-event-id").and_then(|id| id.to_str().ok());
    let last = last.or_else(|| request.uri().query()?.strip_prefix("from="));
    let resumed = last.and_then(|id| {
        let (process, change) = id.split_once('-')?;
        (process.parse() == Ok(started)).then(|| change.parse().ok())?
    });
    let viewer =
        Viewer { from: resumed.unwrap_or(next), served, view, sent: None, next_at: Instant::now(), _permit: permit };
    let updates = stream::unfold(viewer, |mut viewer| async move {
        let update = viewer.next().await?;
        Some((Ok::<_, Infallible>(update), viewer))
    });
    let updates = Sse::new(updates).keep_alive(KeepAlive::new().interval(Duration::from_secs(15)));
    // nginx would collect the events.
    ([("x-accel-buffering", "no")], updates).into_response()
}

/// The update of a page. The script applies it.
#[derive(Debug, Serialize)]
struct Update {
    now: i64,
    /// The time of the newest known state, if that is not the present one.
    frozen: Option<i64>,
    live: bool,
    notice: String,
    summary: String,
    /// The text in place of rows.
    empty: String,
    /// The rows are all that there are.
    all: bool,
    rows: Vec<Row>,
    gone: Vec<String>,
    history: Vec<String>,
    /// Older changes were dropped before this page got them.
    dropped: bool,
    /// The other sections of the page that lists all, by their names.
    #[serde(flatten)]
    sections: BTreeMap<&'static str, SectionUpdate>,
}

/// The update of a section of the page of all locks.
#[derive(Debug, Serialize)]
struct SectionUpdate {
    hidden: bool,
    summary: String,
    rows: Vec<Row>,
    gone: Vec<String>,
}

/// The rows of a page that are new or have changed, and the names of the rows that are gone.
type Rows = (Vec<Row>, Vec<String>);

/// One stream. Its memory does not depend on how slowly the browser reads: `next` runs when the last update is sent.
struct Viewer {
    served: Served,
    view: View,
    sent: Option<(Arc<Snapshot>, Arc<Services>, Arc<Named>)>,
    from: u64,
    next_at: Instant,
    _permit: OwnedSemaphorePermit,
}

impl Viewer {
    /// Resolves with the next update, or with `None` when the server stops.
    async fn next(&mut self) -> Option<Event> {
        let Served { seen: Seen { snapshots, services, named, links }, stopping, .. } = &mut self.served;
        let wait = async {
            if self.sent.is_some() {
                let changed = async {
                    tokio::select! {
                        changed = snapshots.changed() => changed,
                        changed = services.changed() => changed,
                        // Without such paths nothing follows them.
                        Ok(()) = named.changed() => Ok(()),
                        changed = links.changed() => changed,
                    }
                };
                changed.await.ok()?;
                sleep_until(self.next_at).await;
            }
            Some(())
        };
        tokio::select! {
            biased;
            _ = stopping.wait_for(|stop| *stop) => return None,
            waited = wait => waited?,
        }
        let snapshot = Arc::clone(&snapshots.borrow_and_update());
        let services = Arc::clone(&services.borrow_and_update());
        let named = Arc::clone(&named.borrow_and_update());
        let link = links.borrow_and_update().clone();
        self.next_at = Instant::now() + PACE;
        let update = self.update(&snapshot, &services, &named, &link);
        let id = format!("{}-{}", self.served.shared.started, self.from);
        self.sent = Some((snapshot, services, named));
        Some(Event::default().id(id).data(serde_json::to_string(&update).unwrap_or_default()))
    }

    fn update(&mut self, snapshot: &Snapshot, services: &Services, named: &Named, link: &Link) -> Update {
        let time = frozen(link).unwrap_or_else(now);
        let sent = self.sent.as_ref();
        let (mut history, mut sections) = ((Vec::new(), false), BTreeMap::new());
        let (summary, empty, (rows, gone)) = match &self.view {
            View::List => {
                sections.insert("services", SectionUpdate::of_services(sent.map(|sent| &*sent.1), services));
                sections.extend(Kind::ALL.map(|kind| {
                    let sent = sent.map(|sent| sent.2.of(kind));
                    (kind.words().1, SectionUpdate::of_things(kind, sent, named.of(kind), time))
                }));
                let rows = rows_of(sent.map(|sent| &sent.0.locks), &snapshot.locks, |lock| page::lock_row(lock, time));
                (page::list_summary(snapshot, services, named), page::empty_list(snapshot), rows)
            }
            View::Lock(path) => {
                let changes = self.served.shared.history();
                history = changes.since(self.from, path);
                self.from = changes.next();
                drop(changes);
                let was = sent.and_then(|sent| sent.0.locks.get(path));
                let rows = rows_of_contenders(was, snapshot.locks.get(path), time);
                (page::lock_summary(snapshot, path), page::empty_queue(snapshot, path).to_owned(), rows)
            }
            View::Service(name) => {
                let was = sent.and_then(|sent| sent.1.by_name.get(name));
                let rows = rows_of_instances(was, services.by_name.get(name), time);
                (services::page::service_summary(services, name), services::page::EMPTY.to_owned(), rows)
            }
        };
        Update {
            now: now(),
            frozen: frozen(link),
            live: page::is_live(snapshot, link),
            notice: page::notice(snapshot, link),
            summary,
            empty,
            all: sent.is_none(),
            rows,
            gone,
            history: history.0.iter().map(page::change_item).collect(),
            dropped: history.1,
            sections,
        }
    }
}

impl SectionUpdate {
    fn of_services(sent: Option<&Services>, services: &Services) -> Self {
        let (rows, gone) = rows_of(sent.map(|sent| &sent.by_name), &services.by_name, services::page::service_row);
        Self { hidden: !services.are_shown(), summary: services::page::summary(services), rows, gone }
    }

    fn of_things(kind: Kind, sent: Option<&Things>, things: &Things, now: i64) -> Self {
        let row = |thing: &Thing| named::page::row(kind, thing, now);
        let (rows, gone) = rows_of(sent.map(|sent| &sent.by_path), &things.by_path, row);
        Self { hidden: things.by_path.is_empty(), summary: named::page::summary(kind, things), rows, gone }
    }
}

/// Returns the rows that are not as they were sent.
fn rows_of<T: PartialEq>(
    sent: Option<&BTreeMap<String, Arc<T>>>,
    present: &BTreeMap<String, Arc<T>>,
    row: impl Fn(&T) -> Row,
) -> Rows {
    let is_sent = |key, value| sent.is_some_and(|sent| sent.get(key) == Some(value));
    let rows = present.iter().filter(|(key, value)| !is_sent(*key, *value)).map(|(_, value)| row(value));
    let gone = sent.into_iter().flat_map(BTreeMap::keys).filter(|key| !present.contains_key(*key));
    (rows.collect(), gone.cloned().collect())
}

fn rows_of_contenders(was: Option<&Arc<Lock>>, lock: Option<&Arc<Lock>>, now: i64) -> Rows {
    let sent: HashMap<_, _> = page::shown(was).map(|node| (node.path.as_str(), node)).collect();
    let present: HashSet<_> = page::shown(lock).map(|node| node.path.as_str()).collect();
    let is_new = |node: &&Arc<Contender>| sent.get(node.path.as_str()) != Some(node);
    let rows = page::shown(lock).filter(is_new).map(|node| page::contender_row(node, now)).collect();
    let gone = sent.keys().filter(|path| !present.contains(*path)).map(|path| (*path).to_owned()).collect();
    (rows, gone)
}

fn rows_of_instances(was: Option<&Arc<Service>>, service: Option<&Arc<Service>>, now: i64) -> Rows {
    fn entries(service: Option<&Arc<Service>>) -> impl Iterator<Item = (&str, &Entry)> {
        let entries = service.into_iter().flat_map(|service| &service.entries);
        entries.map(|(node, entry)| (node.as_str(), &**entry))
    }
    let sent: HashMap<_, _> = entries(was).collect();
    let present: HashSet<_> = entries(service).map(|(node, _)| node).collect();
    let rows = entries(service).filter(|(node, entry)| sent.get(node) != Some(entry));
    let rows = rows.map(|(node, entry)| services::page::instance_row(node, entry, now)).collect();
    let gone = sent.keys().filter(|node| !present.contains(*node)).map(|node| (*node).to_owned()).collect();
    (rows, gone)
}

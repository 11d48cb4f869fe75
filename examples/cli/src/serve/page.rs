//! The HTML of both pages. Every text that comes from ZooKeeper passes `escape`.

use std::fmt::Write as _;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use curator_cli::kinds::{LockKind, not_a_contender};
use curator_cli::text::{age, kind};
use curator_recipes::ParticipantKind;
use serde::Serialize;

use super::follow::Snapshot;
use super::history::{Change, ChangeKind};
use super::link::Link;
use super::lock::{Contender, Detail, Lock};
use super::named::{self, Kind, Named};
use super::services::{self, Services};

/// The one page, with a mark `{{name}}` for each part that is filled in.
const PAGE: &str = include_str!("page.html");
/// The state above a page before the nodes have been read.
pub(super) const NOT_KNOWN_YET: &str = r#"<span class="state gone">not known yet</span>"#;
/// The cell of a table without a value.
pub(super) const NOTHING: &str = r#"<span class="dim">–</span>"#;
/// The most holders, members or addresses that a row names.
const NAMED: usize = 3;
/// The most characters of data that are shown.
pub(super) const SHOWN: usize = 120;

/// Writes a text so that it is only a text in HTML, also within the quotes of an attribute.
pub(crate) fn escape(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '&' => escaped.push_str("&amp;"),
            '<' => escaped.push_str("&lt;"),
            '>' => escaped.push_str("&gt;"),
            '"' => escaped.push_str("&quot;"),
            '\'' => escaped.push_str("&#39;"),
            c => escaped.push(c),
        }
    }
    escaped
}

/// Writes a path of ZooKeeper as the path of an address.
pub(crate) fn encode(path: &str) -> String {
    let mut encoded = String::with_capacity(path.len());
    for byte in path.bytes() {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'.' | b'_' | b'~' | b'/' => {
                encoded.push(char::from(byte))
            }
            // Writing to a string does not fail.
            byte => drop(write!(encoded, "%{byte:02X}")),
        }
    }
    encoded
}

/// Writes a text without control characters, marks of direction and other characters that cannot be seen.
pub(crate) fn visible(text: &str) -> String {
    let mut shown = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '"' | '\'' => shown.push(c),
            c => shown.extend(c.escape_debug()),
        }
    }
    shown
}

/// Writes data as text, or in hexadecimal digits if it is not text.
pub(crate) fn data(detail: &Detail) -> String {
    // The kept part may end within a character.
    let text = match std::str::from_utf8(&detail.data) {
        Ok(text) => Some(text),
        Err(error) if error.error_len().is_none() && detail.data.len() < detail.length => {
            std::str::from_utf8(&detail.data[..error.valid_up_to()]).ok()
        }
        Err(_) => None,
    };
    let is_text = |text: &&str| !text.chars().any(|c| c.is_control() && !c.is_ascii_whitespace());
    let mut shown = match text.filter(is_text) {
        Some(text) => visible(text),
        None => detail.data.iter().take(16).fold("0x".to_owned(), |hex, byte| format!("{hex}{byte:02x}")),
    };
    let is_cut = match text.filter(is_text) {
        Some(text) => text.len() < detail.length,
        None => detail.length > 16,
    };
    if let Some((end, _)) = shown.char_indices().nth(SHOWN) {
        shown.truncate(end);
    }
    if is_cut || shown.chars().count() == SHOWN {
        let _written = write!(shown, "… ({} bytes)", detail.length);
    }
    shown
}

/// Writes a ZooKeeper session as its logs do.
pub(crate) fn session(id: i64) -> String {
    format!("{id:#x}")
}

/// Returns a time in milliseconds since 1970.
pub(super) fn milliseconds(time: SystemTime) -> i64 {
    let since = time.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    i64::try_from(since.as_millis()).unwrap_or(i64::MAX)
}

/// The length of time since a moment, which the script keeps up to date.
pub(super) fn time(at: i64, now: i64, is_limit: bool) -> String {
    let elapsed = Duration::from_millis(u64::try_from(now.saturating_sub(at)).unwrap_or_default());
    let reason = "granted before this program first looked; its node is this old";
    let limit = if is_limit { format!(r#"<span class="dim" title="{reason}">at most </span>"#) } else { String::new() };
    format!(r#"{limit}<time data-at="{at}">{}</time>"#, age(elapsed))
}

fn since(contender: &Contender, now: i64) -> String {
    // This program did not see the grant, which came at some moment after the creation.
    let is_limit = contender.holds() && contender.granted.is_none();
    contender.since().map_or_else(|| "–".to_owned(), |at| time(at, now, is_limit))
}

fn client(contender: &Contender) -> String {
    match &contender.detail {
        Some(detail) if detail.asks_to_release() => "<em>asked to release</em>".to_owned(),
        Some(detail) if detail.length == 0 => r#"<span class="dim">no data</span>"#.to_owned(),
        Some(detail) => escape(&data(detail)),
        None => r#"<span class="dim">not read</span>"#.to_owned(),
    }
}

fn session_of(contender: &Contender) -> String {
    match contender.session() {
        Some(0) => r#"<span class="dim">persistent</span>"#.to_owned(),
        Some(id) => format!("<code>{}</code>", session(id)),
        None => "–".to_owned(),
    }
}

/// Lists the first of these items, each of them HTML.
pub(super) fn listed(mut items: impl Iterator<Item = String>) -> String {
    let listed: String = items.by_ref().take(NAMED).map(|item| format!("<div>{item}</div>")).collect();
    match items.count() {
        0 if listed.is_empty() => NOTHING.to_owned(),
        0 => listed,
        more => format!(r#"{listed}<div class="dim">and {more} more</div>"#),
    }
}

/// A row of a table, and the name by which the script finds it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub(crate) struct Row {
    pub(crate) id: String,
    pub(crate) html: String,
}

/// Returns the row of a lock in the list.
pub(crate) fn lock_row(lock: &Lock, now: i64) -> Row {
    let waiters = lock.waiters();
    let listed = |write: fn(&Contender) -> String| listed(lock.holders().map(|holder| write(holder)));
    let oldest = lock.holders().filter(|holder| holder.since() == lock.held_since()).map(|holder| since(holder, now));
    let held = oldest.into_iter().next().unwrap_or_else(|| NOTHING.to_owned());
    let (class, state) = state_of(lock);
    let html = format!(
        r#"<tr data-id="{id}" data-key="{id}" data-queue="{waiters}" data-since="{at}" class="{class}">
<th scope="row"><a href="/locks{href}">{path}</a></th>
<td data-label="Kind">{kind}</td>
<td data-label="State"><span class="state">{state}</span></td>
<td data-label="Holder" class="text">{clients}</td>
<td data-label="Session" class="wide">{sessions}</td>
<td data-label="Held for" class="number">{held}</td>
<td data-label="Waiting" class="number">{waiters}</td></tr>"#,
        id = escape(&lock.path),
        at = lock.held_since().unwrap_or(i64::MAX),
        href = encode(&lock.path),
        path = escape(&visible(&lock.path)),
        kind = lock.recipe.words(),
        clients = listed(client),
        sessions = listed(session_of),
    );
    Row { id: lock.path.clone(), html }
}

/// Returns a class and a text for the state of a lock.
fn state_of(lock: &Lock) -> (&'static str, String) {
    let (holders, waiters) = (lock.holders().count(), lock.waiters());
    let of = |one: &str, many: &str| if holders == 1 { format!("1 {one}") } else { format!("{holders} {many}") };
    match (lock.recipe, holders) {
        (LockKind::LeaderLatch, 0) if waiters == 0 => ("free", "no leader".to_owned()),
        (_, 0) if waiters == 0 => ("free", "free".to_owned()),
        (_, 0) => ("waiting", "waiting".to_owned()),
        (LockKind::Semaphore, _) => ("held", of("lease", "leases")),
        (LockKind::ReadWrite, _) if lock.holders().all(|holder| holder.kind == ParticipantKind::Read) => {
            ("held", of("reader", "readers"))
        }
        (LockKind::ReadWrite, _) => ("held", "writer".to_owned()),
        (LockKind::LeaderLatch, _) => ("held", "leader".to_owned()),
        (LockKind::Mutex, _) => ("held", "held".to_owned()),
    }
}

/// Returns the row of a contender in the queue of a lock. Its position is not part of it: a grant moves every waiter.
pub(crate) fn contender_row(contender: &Contender, now: i64) -> Row {
    let name = contender.path.rsplit('/').next().unwrap_or_default();
    let (class, state) = match (contender.holds(), contender.kind) {
        (true, ParticipantKind::Candidate) => ("held", "leads"),
        (true, _) => ("held", "holds"),
        (false, _) => ("waiting", "waits"),
    };
    let role = match contender.kind {
        ParticipantKind::Lock | ParticipantKind::Candidate => String::new(),
        other => format!(r#" <span class="dim">{}</span>"#, kind(other)),
    };
    let html = format!(
        r#"<tr data-id="{id}" data-key="{key}" class="{class}">
<td data-label="Position" class="number position"></td>
<td data-label="State"><span class="state">{state}</span>{role}</td>
<td data-label="Client" class="text">{client}<div class="node">{name}</div></td>
<td data-label="Session">{session}</td>
<td data-label="For" class="number">{since}</td></tr>"#,
        id = escape(&contender.path),
        key = escape(&contender.key()),
        client = client(contender),
        session = session_of(contender),
        since = since(contender, now),
        name = escape(&visible(name)),
    );
    Row { id: contender.path.clone(), html }
}

/// Returns an entry of the history of a lock.
pub(crate) fn change_item(change: &Change) -> String {
    let client = |contender: &Contender| format!("<b>{}</b>", client(contender));
    let held = |contender: &Contender| match contender.granted.map(|granted| change.at.saturating_sub(granted).max(0)) {
        Some(held @ 0..10_000) => format!(" after {}.{}s", held / 1000, held / 100 % 10),
        Some(held) => format!(" after {}", age(Duration::from_millis(held.unsigned_abs()))),
        None => String::new(),
    };
    let is_latch = change.contender.as_ref().is_some_and(|contender| contender.kind == ParticipantKind::Candidate);
    let (granted, released, role) = if is_latch {
        ("leads", "resigned", "The leader")
    } else {
        ("was granted the lock", "released it", "A holder")
    };
    let (class, text) = match (change.kind, &change.contender) {
        (ChangeKind::Waits, Some(contender)) => ("waiting", format!("{} waits", client(contender))),
        (ChangeKind::Granted, Some(contender)) => ("held", format!("{} {granted}", client(contender))),
        (ChangeKind::Released, Some(contender)) => {
            ("free", format!("{} {released}{}, or its session ended", client(contender), held(contender)))
        }
        (ChangeKind::Left, Some(contender)) => ("free", format!("{} left the queue", client(contender))),
        (ChangeKind::GoneWithSession(nodes), Some(contender)) => {
            let role = if contender.holds() { role } else { "A waiter" };
            let text = format!("{role}, {}, is gone{}", client(contender), held(contender));
            ("lost", format!("{text}: the {nodes} nodes of its session were deleted together"))
        }
        (ChangeKind::Asked, Some(contender)) => {
            ("lost", format!("The holder was asked to release: session {}", session_of(contender)))
        }
        _ => ("lost", "The lock’s node was deleted".to_owned()),
    };
    let node = change.contender.as_ref().and_then(|contender| contender.path.rsplit('/').next()).unwrap_or_default();
    format!(
        r#"<li class="{class}" title="{}"><time class="clock" data-at="{}"></time> <span>{text}</span></li>"#,
        escape(&visible(node)),
        change.at
    )
}

/// Returns the notice above a page: empty if the page shows the present state.
pub(crate) fn notice(snapshot: &Snapshot, link: &Link) -> String {
    let mut notice = String::new();
    let clock = |at: i64| format!(r#"<time class="clock" data-at="{at}">{}</time>"#, utc(at));
    if !link.is_connected() {
        let shows =
            if snapshot.is_known() { "The page shows the state of that moment." } else { "Nothing is known yet." };
        let cause = link.cause.as_ref().map_or_else(String::new, |cause| format!(": {cause}"));
        let _written = write!(
            notice,
            r#"<p class="alarm"><strong>No connection to ZooKeeper since {}.</strong> {shows}<br>ZooKeeper at {}</p>"#,
            clock(link.since),
            escape(&visible(&format!("{}{cause}", link.servers)))
        );
    } else if !snapshot.is_known() && snapshot.problems.is_empty() {
        notice.push_str(r"<p>Reading the locks …</p>");
    } else if !snapshot.complete {
        let _written =
            write!(notice, r#"<p class="alarm"><strong>Not up to date since {}.</strong></p>"#, clock(snapshot.at));
    }
    let missing = snapshot.missing.as_ref().map(|path| format!("{path} does not exist."));
    for problem in missing.iter().chain(&snapshot.problems) {
        let _written = write!(notice, r#"<p class="alarm">{}</p>"#, escape(&visible(problem)));
    }
    notice
}

/// Writes the time of day in UTC, which the script replaces by the local time.
fn utc(at: i64) -> String {
    let seconds = at.div_euclid(1000).rem_euclid(86_400);
    format!("{:02}:{:02}:{:02} UTC", seconds / 3600, seconds / 60 % 60, seconds % 60)
}

pub(super) fn count(number: usize, one: &str, many: &str) -> String {
    format!("<b>{number}</b> {}", if number == 1 { one } else { many })
}

/// Returns the counts above the list.
pub(crate) fn list_summary(snapshot: &Snapshot, services: &Services, named: &Named) -> String {
    if !snapshot.is_known() {
        return NOT_KNOWN_YET.to_owned();
    }
    let held = snapshot.locks.values().filter(|lock| lock.holders().next().is_some()).count();
    let waiters = snapshot.locks.values().map(|lock| lock.waiters()).sum();
    let mut summary = format!(
        "{} · {held} held · {}",
        count(snapshot.locks.len(), "lock", "locks"),
        count(waiters, "contender waits", "contenders wait"),
        held = format_args!("<b>{held}</b>"),
    );
    if services.are_shown() {
        let number = count(services.by_name.len(), "service", "services");
        let _written = write!(summary, r##" · <a href="#services">{number}</a>"##);
    }
    for kind in Kind::ALL.into_iter().filter(|kind| !named.of(*kind).by_path.is_empty()) {
        let (id, number) = (kind.words().1, named::page::counted(kind, named.of(kind)));
        let _written = write!(summary, r##" · <a href="#{id}">{number}</a>"##);
    }
    summary
}

/// Returns the text in place of an empty list.
pub(crate) fn empty_list(snapshot: &Snapshot) -> String {
    let appears = "A lock appears here as soon as a client asks for it.";
    match &snapshot.missing {
        _ if !snapshot.is_known() => "Not known yet.".to_owned(),
        Some(path) => format!("{} does not exist. {appears}", visible(path)),
        None if snapshot.left_out.is_empty() => format!("No locks. {appears}"),
        None => format!("No locks among the nodes that could be read. {appears}"),
    }
}

/// Returns the text in place of an empty queue.
pub(crate) fn empty_queue(snapshot: &Snapshot, path: &str) -> &'static str {
    match snapshot.unknown(path) {
        Some(_) if !snapshot.locks.contains_key(path) => "Not known.",
        _ => "No contenders.",
    }
}

/// Returns the state above the queue of a lock.
pub(crate) fn lock_summary(snapshot: &Snapshot, path: &str) -> String {
    let Some(lock) = snapshot.locks.get(path) else {
        if !snapshot.is_known() {
            return NOT_KNOWN_YET.to_owned();
        }
        if let Some(reason) = snapshot.unknown(path) {
            return format!(r#"<span class="state gone">not known</span> {}"#, escape(&visible(reason)));
        }
        return r#"<span class="state gone">no lock here</span> The node does not exist, or has had no contenders."#
            .to_owned();
    };
    let (class, state) = state_of(lock);
    let waiters = count(lock.waiters(), "contender waits", "contenders wait");
    let blocked = lock.blocked_by.as_deref().map(|node| format!(" · {}", escape(&visible(&not_a_contender(node)))));
    let (kind, blocked) = (lock.recipe.words(), blocked.unwrap_or_default());
    format!(r#"<span class="state {class}">{state}</span> {kind} · {waiters}{blocked}"#)
}

/// Returns the rows of the queue of a lock.
pub(crate) fn shown(lock: Option<&Arc<Lock>>) -> impl Iterator<Item = &Arc<Contender>> {
    lock.into_iter().flat_map(|lock| &lock.contenders).filter(|node| node.holds() || node.waits())
}

/// Returns a section of the page of all locks, with a table below its summary.
pub(super) fn section(id: &str, title: &str, heads: &str, is_shown: bool, summary: &str, rows: &str) -> String {
    let hidden = if is_shown { "" } else { " hidden" };
    format!(
        r#"<section id="{id}"{hidden}><h2>{title}</h2><p id="{id}-summary" class="summary">{summary}</p>
<table class="locks {id}"><thead><tr>{heads}</tr></thead>
<tbody id="{id}-rows">{rows}</tbody></table></section>"#
    )
}

/// Returns the page of all locks, of the services, and of the paths that options name.
pub(crate) fn list(
    root: &str,
    snapshot: &Snapshot,
    services: &Services,
    named: &Named,
    link: &Link,
    now: i64,
) -> String {
    let rows: String = snapshot.locks.values().map(|lock| lock_row(lock, now).html).collect();
    let title = if root == "/" { "Locks".to_owned() } else { format!("Locks below {}", visible(root)) };
    let main = format!(
        r#"<header><h1>{title}</h1><p id="summary" class="summary">{summary}</p></header>
<form class="tools script" role="search"><label>Filter <input id="filter" type="search" autocomplete="off" spellcheck="false"></label><label>Order <select id="order">
<option value="key">path</option><option value="queue">longest queue</option>
<option value="since">held longest</option></select></label>
<label><input id="contended" type="checkbox"> contended only</label>
<output id="matches" class="dim"></output></form>
<table id="locks" class="locks"><thead><tr><th scope="col">Lock</th><th scope="col">Kind</th>
<th scope="col">State</th><th scope="col">Holder</th><th scope="col" class="wide">Session</th>
<th scope="col" class="number">Held for</th><th scope="col" class="number">Waiting</th></tr></thead>
<tbody id="rows">{rows}</tbody></table>
<p class="empty" id="empty">{empty}</p>
<p class="script"><button id="more" type="button" hidden></button></p>
{services}
{named}"#,
        title = escape(&title),
        empty = escape(&empty_list(snapshot)),
        summary = list_summary(snapshot, services, named),
        services = services::page::section(services),
        named = Kind::ALL.map(|kind| named::page::section(kind, named.of(kind), now)).join("\n"),
    );
    fill(&title, "/events", &notice(snapshot, link), snapshot, link, &main)
}

/// Returns the page of one lock.
pub(crate) fn lock(path: &str, snapshot: &Snapshot, link: &Link, now: i64) -> String {
    let lock = snapshot.locks.get(path);
    let rows: String = shown(lock).map(|node| contender_row(node, now).html).collect();
    let title = visible(path);
    let main = format!(
        r#"<header><nav><a href="/">All locks and services</a></nav><h1 class="path">{title}</h1>
<p id="summary" class="summary">{summary}</p></header>
<div class="lock">
<section class="history script" aria-labelledby="h"><h2 id="h">History <span class="dim">since this page was opened</span></h2>
<div class="scroll" tabindex="0" role="region" aria-labelledby="h"><ol id="history" reversed></ol>
<p class="empty">No changes yet.</p></div></section>
<section><h2>Queue</h2>
<table class="queue"><thead><tr><th scope="col" class="number">Position</th><th scope="col">State</th>
<th scope="col">Client and node</th><th scope="col">Session</th><th scope="col" class="number">For</th></tr></thead>
<tbody id="rows">{rows}</tbody></table>
<p class="empty" id="empty">{empty}</p></section></div>
<noscript><p>The history needs JavaScript.</p></noscript>"#,
        title = escape(&title),
        summary = lock_summary(snapshot, path),
        empty = empty_queue(snapshot, path),
    );
    fill(&title, &format!("/events{}", encode(path)), &notice(snapshot, link), snapshot, link, &main)
}

pub(super) fn fill(title: &str, events: &str, notice: &str, snapshot: &Snapshot, link: &Link, main: &str) -> String {
    let stale = if is_live(snapshot, link) { "" } else { "stale" };
    let mut page = String::with_capacity(PAGE.len() + main.len());
    // In one pass: a mark within the data is not one of the page.
    for (index, part) in PAGE.split("{{").enumerate() {
        let Some((name, rest)) = part.split_once("}}").filter(|_| index > 0) else {
            page.push_str(part);
            continue;
        };
        page.push_str(&match name {
            "title" => escape(title),
            "servers" => escape(&visible(&link.servers)),
            "users" => escape(&visible(&link.users)),
            "version" => env!("CARGO_PKG_VERSION").to_owned(),
            "events" => escape(events),
            "notice" => notice.to_owned(),
            "stale" => stale.to_owned(),
            "main" => main.to_owned(),
            _ => String::new(),
        });
        page.push_str(rest);
    }
    page
}

/// Returns `true` if no lock is missing.
pub(crate) fn is_complete(snapshot: &Snapshot, link: &Link) -> bool {
    is_live(snapshot, link) && snapshot.problems.is_empty()
}

/// Returns whether the page shows the present state.
pub(crate) fn is_live(snapshot: &Snapshot, link: &Link) -> bool {
    link.is_connected() && snapshot.complete
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn data_is_shown_as_text_or_as_digits() {
        let shown = |bytes: &[u8], length: usize| data(&Detail { data: bytes.to_vec(), length, ..Detail::default() });
        for (bytes, text) in [
            (&b"10.0.0.7"[..], "10.0.0.7"),
            (br#"{"host":"it's"}"#, r#"{"host":"it's"}"#),
            (b"two\nlines", "two\\nlines"),
            (b"\xff\x00", "0xff00"),
            (b"bell\x07", "0x62656c6c07"),
            ("\u{202e}\u{200b}".as_bytes(), "\\u{202e}\\u{200b}"),
            (&[0; 20], "0x00000000000000000000000000000000… (20 bytes)"),
        ] {
            assert_eq!(shown(bytes, bytes.len()), text);
        }
        assert_eq!(shown(&[b'x'; 256], 1000), format!("{}… (1000 bytes)", "x".repeat(120)));
        // The kept part ends within a character.
        assert_eq!(shown(b"z\xc3", 500), "z… (500 bytes)");
    }

    #[test]
    fn paths_are_encoded_for_addresses() {
        assert_eq!(encode("/a b/%2f/ü?#\"<"), "/a%20b/%252f/%C3%BC%3F%23%22%3C");
    }

    #[test]
    fn marks_within_data_are_not_filled_in() {
        let page = lock("/{{main}}", &Snapshot::default(), &Link::new("zk", "anyone"), 0);
        assert!(page.contains("<title>/{{main}} · zk · curator</title>"), "{page}");
    }
}

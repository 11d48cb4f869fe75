//! Four-letter words: commands that report the server's state.

use std::collections::BTreeMap;
use std::fmt::{Display, Write as _};
use std::net::SocketAddr;

use super::core::{Connection, ConnectionId, Core};
use super::log::{Last, Packets};

/// The version that the server reports.
const VERSION: &str = "3.8.0-curator-test, built on 1970-01-01 00:00 UTC";
/// Apache's text for a property of Java that does not exist.
const UNKNOWN: &str = "<NA>";

/// The state of a server when a word arrives.
pub(super) struct Asked<'a> {
    pub(super) core: &'a mut Core,
    /// The addresses of the clients.
    pub(super) peers: BTreeMap<ConnectionId, SocketAddr>,
    /// The address of the connection that sends the word. It is a client too.
    pub(super) asker: SocketAddr,
    /// The server's port.
    pub(super) port: u16,
}

/// The reply to a word.
pub(super) type Answer = fn(&mut Asked<'_>) -> String;

const WORDS: [(&[u8; 4], Answer); 15] = [
    (b"conf", conf),
    (b"cons", cons),
    (b"crst", crst),
    // The server keeps nothing on a disk.
    (b"dirs", |_| "datadir_size: 0\nlogdir_size: 0\n".to_owned()),
    (b"dump", dump),
    (b"envi", |_| envi()),
    (b"isro", |_| "rw".to_owned()),
    (b"mntr", mntr),
    (b"ruok", |_| "imok".to_owned()),
    (b"srst", srst),
    (b"srvr", |asked| format!("Zookeeper version: {VERSION}\n{}", statistics(asked))),
    (b"stat", |asked| {
        format!("Zookeeper version: {VERSION}\nClients:\n{}\n{}", clients(asked, true), statistics(asked))
    }),
    (b"wchc", wchc),
    (b"wchp", wchp),
    (b"wchs", wchs),
];

/// Returns the reply to the word that a connection starts with; `None` if it starts with a frame.
pub(super) fn word(bytes: [u8; 4]) -> Option<Answer> {
    WORDS.iter().find(|(word, _)| **word == bytes).map(|(_, answer)| *answer)
}

/// Returns a line for each entry, as Apache prints properties.
fn lines<'a>(entries: impl IntoIterator<Item = (&'a str, String)>, prefix: &str, separator: char) -> String {
    entries.into_iter().map(|(name, value)| format!("{prefix}{name}{separator}{value}\n")).collect()
}

fn conf(asked: &mut Asked<'_>) -> String {
    let settings = asked.core.settings();
    let entries = [
        ("clientPort", asked.port.to_string()),
        ("secureClientPort", "-1".to_owned()),
        ("dataDir", String::new()),
        ("dataDirSize", "0".to_owned()),
        ("dataLogDir", String::new()),
        ("dataLogSize", "0".to_owned()),
        ("tickTime", settings.tick.as_millis().to_string()),
        ("maxClientCnxns", "0".to_owned()),
        ("minSessionTimeout", settings.min_session_timeout.as_millis().to_string()),
        ("maxSessionTimeout", settings.max_session_timeout.as_millis().to_string()),
        ("clientPortListenBacklog", "-1".to_owned()),
        ("serverId", "0".to_owned()),
    ];
    lines(entries, "", '=')
}

/// Returns the properties that Apache prints. Java has no properties here.
fn envi() -> String {
    let known = |name: &str| match name {
        "zookeeper.version" => Some(VERSION.to_owned()),
        "host.name" => Some("localhost".to_owned()),
        "os.name" => Some(std::env::consts::OS.to_owned()),
        "os.arch" => Some(std::env::consts::ARCH.to_owned()),
        "user.dir" => std::env::current_dir().ok().map(|folder| folder.display().to_string()),
        _ => None,
    };
    let names = "zookeeper.version host.name java.version java.vendor java.home java.class.path java.library.path \
                 java.io.tmpdir java.compiler os.name os.arch os.version user.name user.home user.dir \
                 os.memory.free os.memory.max os.memory.total";
    let entries = names.split(' ').map(|name| (name, known(name).unwrap_or_else(|| UNKNOWN.to_owned())));
    format!("Environment:\n{}", lines(entries, "", '='))
}

fn cons(asked: &mut Asked<'_>) -> String {
    format!("{}\n", clients(asked, false))
}

fn crst(asked: &mut Asked<'_>) -> String {
    asked.core.reset_connections();
    "Connection stats reset.\n".to_owned()
}

fn srst(asked: &mut Asked<'_>) -> String {
    asked.core.packets = Packets::default();
    "Server stats reset.\n".to_owned()
}

/// Returns a line for each connection.
fn clients(asked: &Asked<'_>, is_brief: bool) -> String {
    let line = |address: SocketAddr, interest: u8, Packets { received, sent }: Packets, session: &str| {
        format!(" /{address}[{interest}](queued=0,recved={received},sent={sent}{session})\n")
    };
    let mut text = String::new();
    for (id, connection) in asked.core.connections() {
        let Some(address) = asked.peers.get(id) else {
            continue;
        };
        let session = if is_brief { String::new() } else { session_of(connection, asked.core) };
        text.push_str(&line(*address, 1, connection.packets, &session));
    }
    text.push_str(&line(asked.asker, 0, Packets { received: 1, sent: 0 }, ""));
    text
}

/// Returns the part of a connection's line about its session. The server measures no latency.
fn session_of(connection: &Connection, core: &Core) -> String {
    let Some(session) = connection.session else {
        return String::new();
    };
    let timeout = core.sessions().timeout(session).unwrap_or_default().as_millis();
    let Last { op, xid, zxid, at } = connection.last;
    let mut text = format!(",sid={session:#x},lop={op},est={},to={timeout}", connection.established_ms);
    if xid >= 0 {
        // Writing to a string cannot fail.
        let _ = write!(text, ",lcxid={xid:#x}");
    }
    let _ = write!(text, ",lzxid={zxid:#x},lresp={},llat=0,minlat=0,avglat=0,maxlat=0", at.as_millis());
    text
}

/// Returns the number of connections, the one of the word included.
fn connections(asked: &Asked<'_>) -> usize {
    asked.core.connections().len() + 1
}

/// Returns the number of nodes as Apache counts them: the root has two names there.
fn nodes(core: &Core) -> usize {
    core.tree.len() + 1
}

fn statistics(asked: &Asked<'_>) -> String {
    let core = &asked.core;
    let Packets { received, sent } = core.packets;
    format!(
        "Latency min/avg/max: 0/0.0/0\nReceived: {received}\nSent: {sent}\nConnections: {}\nOutstanding: 0\n\
         Zxid: {:#x}\nMode: standalone\nNode count: {}\n",
        connections(asked),
        core.zxid(),
        nodes(core),
    )
}

fn mntr(asked: &mut Asked<'_>) -> String {
    let core = &asked.core;
    let entries = [
        ("version", VERSION.to_owned()),
        ("server_state", "standalone".to_owned()),
        ("num_alive_connections", connections(asked).to_string()),
        ("outstanding_requests", "0".to_owned()),
        ("packets_received", core.packets.received.to_string()),
        ("packets_sent", core.packets.sent.to_string()),
        ("znode_count", nodes(core).to_string()),
        ("watch_count", core.watches.len().to_string()),
        ("ephemerals_count", core.tree.ephemerals_len().to_string()),
        ("approximate_data_size", core.tree.size().to_string()),
        ("global_sessions", core.session_ids().len().to_string()),
    ];
    lines(entries, "zk_", '\t')
}

/// Returns the sessions and connections by the times of their ends, and the nodes of sessions.
fn dump(asked: &mut Asked<'_>) -> String {
    let (mut sessions, mut connections) = (Vec::new(), Vec::new());
    for (deadline, due) in asked.core.sessions().by_deadline() {
        let date = date(asked.core.wall_ms_at(deadline));
        let peers = due.iter().filter_map(|(id, connection)| Some((*id, asked.peers.get(&(*connection)?)?)));
        let shown = peers.map(|(id, address)| format!("\tip: /{address} sessionId: {id:#x}\n"));
        connections.push((date.clone(), shown.collect()));
        sessions.push((date, due.iter().map(|(id, _)| format!("\t{id:#x}\n")).collect()));
    }
    connections.retain(|(_, due): &(String, Vec<String>)| !due.is_empty());
    let owned = asked.core.tree.ephemerals();
    let owners = owned.len();
    let ephemerals = grouped(owned.into_iter().map(|(id, paths)| (format!("{id:#x}:"), paths)));
    format!(
        "SessionTracker dump:\nSession {}ephemeral nodes dump:\nSessions with Ephemerals ({owners}):\n{ephemerals}\
         Connections dump:\nConnections {}",
        sets(&sessions),
        sets(&connections),
    )
}

/// Returns what ends at each time.
fn sets(by_date: &[(String, Vec<String>)]) -> String {
    let total: usize = by_date.iter().map(|(_, due)| due.len()).sum();
    let mut text = format!("Sets ({})/({total}):\n", by_date.len());
    for (date, due) in by_date {
        // Writing to a string cannot fail.
        let _ = write!(text, "{} expire at {date}:\n{}", due.len(), due.concat());
    }
    text
}

/// Returns a line for each group, and below it an indented one for each member.
fn grouped<G: Display, M: Display>(groups: impl IntoIterator<Item = (G, impl IntoIterator<Item = M>)>) -> String {
    let mut text = String::new();
    for (group, members) in groups {
        // Writing to a string cannot fail.
        let _ = writeln!(text, "{group}");
        members.into_iter().for_each(|member| text.push_str(&format!("\t{member}\n")));
    }
    text
}

fn session_id(core: &Core, connection: ConnectionId) -> String {
    format!("{:#x}", core.session_of(connection).unwrap_or_default())
}

/// Returns the watches of each connection. As in Apache, the words about watches leave out the watches of children.
fn wchc(asked: &mut Asked<'_>) -> String {
    let core = &asked.core;
    let connections = core.watches.data_by_connection();
    format!("{}\n", grouped(connections.map(|(connection, paths)| (session_id(core, connection), paths))))
}

fn wchp(asked: &mut Asked<'_>) -> String {
    let core = &asked.core;
    let session = |watcher| session_id(core, watcher);
    let paths = core.watches.data_by_path();
    format!("{}\n", grouped(paths.map(|(path, watchers)| (path, watchers.map(session)))))
}

fn wchs(asked: &mut Asked<'_>) -> String {
    let watches = &asked.core.watches;
    let (connections, paths) = (watches.data_by_connection(), watches.data_by_path().len());
    let watching = connections.len();
    let total: usize = connections.map(|(_, paths)| paths.len()).sum();
    format!("{watching} connections watching {paths} paths\nTotal watches:{total}\n")
}

/// Returns a time since 1970, as Java prints it.
fn date(ms: i64) -> String {
    const WEEKDAYS: [&str; 7] = ["Thu", "Fri", "Sat", "Sun", "Mon", "Tue", "Wed"];
    const MONTHS: [(&str, u64); 12] = [
        ("Jan", 31),
        ("Feb", 28),
        ("Mar", 31),
        ("Apr", 30),
        ("May", 31),
        ("Jun", 30),
        ("Jul", 31),
        ("Aug", 31),
        ("Sep", 30),
        ("Oct", 31),
        ("Nov", 30),
        ("Dec", 31),
    ];
    let seconds = ms.unsigned_abs() / 1000;
    let (mut day, second) = (seconds / 86_400, seconds % 86_400);
    let weekday = WEEKDAYS.iter().cycle().nth((day % 7) as usize).unwrap_or(&"");
    let (mut year, mut month) = (1970, "");
    for (index, (name, days)) in MONTHS.iter().enumerate().cycle() {
        let is_leap = year % 4 == 0 && (year % 100 != 0 || year % 400 == 0);
        let days = days + u64::from(index == 1 && is_leap);
        month = name;
        if day < days {
            break;
        }
        day -= days;
        year += u64::from(index == 11);
    }
    let (hour, minute, second) = (second / 3600, second / 60 % 60, second % 60);
    format!("{weekday} {month} {:02} {hour:02}:{minute:02}:{second:02} UTC {year}", day + 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dates_are_javas() {
        for (seconds, shown) in [
            (0, "Thu Jan 01 00:00:00 UTC 1970"),
            (951_782_399, "Mon Feb 28 23:59:59 UTC 2000"),
            (951_868_799, "Tue Feb 29 23:59:59 UTC 2000"),
            (1_709_251_200, "Fri Mar 01 00:00:00 UTC 2024"),
            (1_798_761_599, "Thu Dec 31 23:59:59 UTC 2026"),
        ] {
            assert_eq!(date(seconds * 1000), shown);
        }
    }
}

//! A server before 3.6, which has no recursive watch: the follower watches each list of children.

use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::thread;

use curator_framework::{Acl, Permission};
use rustix::process::Signal;

use crate::following::locks_below_persistent_nodes_are_shown;
use crate::{Apache, Clients, Web, in_process, until};

const ADD_WATCH: i32 = 106;
const UNKNOWN: i32 = 999;

/// Starts a proxy that turns each `addWatch` into a request that no server knows. Returns its address.
fn start(upstream: SocketAddr) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    thread::spawn(move || {
        for client in listener.incoming() {
            let (client, server) = (client.unwrap(), TcpStream::connect(upstream).unwrap());
            let (mut from, mut to) = (server.try_clone().unwrap(), client.try_clone().unwrap());
            thread::spawn(move || {
                let _ended = std::io::copy(&mut from, &mut to);
                let _ended = to.shutdown(std::net::Shutdown::Both);
            });
            thread::spawn(move || {
                let _ended = pass_requests(client, &server);
                let _ended = server.shutdown(std::net::Shutdown::Both);
            });
        }
    });
    address
}

fn pass_requests(mut client: TcpStream, mut server: &TcpStream) -> std::io::Result<()> {
    let mut is_connect = true;
    loop {
        let mut length = [0; 4];
        client.read_exact(&mut length)?;
        let mut frame = vec![0; usize::try_from(i32::from_be_bytes(length)).unwrap()];
        client.read_exact(&mut frame)?;
        if !is_connect && frame[4..8] == ADD_WATCH.to_be_bytes() {
            frame[4..8].copy_from_slice(&UNKNOWN.to_be_bytes());
        }
        is_connect = false;
        server.write_all(&[&length, &frame[..]].concat())?;
    }
}

#[test]
fn locks_below_a_node_with_the_name_of_a_contender_are_followed() {
    let server = in_process();
    let proxy = start(server.address());
    let clients = Clients::new(&server.connect_string());
    locks_below_persistent_nodes_are_shown(&clients, || Web::start_live(&proxy.to_string(), &["/"]));
}

#[test]
fn children_are_watched_where_the_server_has_no_recursive_watch() {
    let apache = Apache::start();
    let (server, chroot) = apache.connect.split_once('/').unwrap_or((&apache.connect, ""));
    let proxy = start(server.parse().unwrap());
    let clients = Clients::new(&apache.connect);
    let client = clients.client();
    // The path does not exist yet.
    let web = Web::start_live(format!("{proxy}/{chroot}").trim_end_matches('/'), &["/jobs"]);
    let one = clients.contend(&client, "/jobs/a", "lock-", "one");
    web.counts("/jobs/a", 1, 0);
    clients.contend(&client, "/jobs/a", "lock-", "two");
    clients.contend(&client, "/jobs/deep/down/b", "__READ__", "three");
    clients.create(&client, "/jobs/seats/locks", "");
    clients.contend(&client, "/jobs/seats/leases", "lease-", "four");
    web.counts("/jobs/a", 1, 1);
    assert_eq!(web.counts("/jobs/deep/down/b", 1, 0)["recipe"], "read-write lock");
    assert_eq!(web.counts("/jobs/seats", 1, 0)["recipe"], "semaphore");
    clients.delete(&client, &one);
    let lock = web.counts("/jobs/a", 1, 0);
    let changes: Vec<_> = lock["history"].as_array().unwrap().iter().map(|change| &change["change"]).collect();
    assert_eq!(changes, ["granted", "waits", "released", "granted"]);
    clients.delete(&client, "/jobs");
    until("the end of all locks", || web.locks().as_array().unwrap().is_empty().then_some(()));
    clients.contend(&client, "/jobs/a", "lock-", "five");
    web.counts("/jobs/a", 1, 0);
}

#[test]
fn root_that_cannot_be_read_is_not_listed_in_a_loop() {
    let apache = Apache::start();
    let (server, chroot) = apache.connect.split_once('/').unwrap_or((&apache.connect, ""));
    let proxy = start(server.parse().unwrap());
    let clients = Clients::new(&apache.connect);
    let client = clients.client();
    let no_reader = vec![Acl::new(Permission::CREATE | Permission::ADMIN, "world", "anyone")];
    clients.runtime.block_on(client.create().with_acl(no_reader).for_path("/closed")).unwrap();
    let web = Web::start_live(format!("{proxy}/{chroot}").trim_end_matches('/'), &["/closed"]);
    let answer = web.get("/api/locks").json();
    assert_eq!((&answer["complete"], &answer["connected"]), (&false.into(), &true.into()), "{answer}");
    assert!(answer["problems"][0].as_str().unwrap().contains("/closed"), "{answer}");
    // A loop without a pause would not hear the signal.
    assert_eq!(web.end(Signal::TERM), Some(0));
}

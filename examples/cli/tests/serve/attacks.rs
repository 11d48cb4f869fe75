//! Requests that must not be answered, and data that must not become part of a page.

use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::process::Command;
use std::time::Instant;

use rustix::process::Signal;

use crate::{Clients, PATIENCE, Web, in_process, until};

const TOKEN: &str = "correct-horse-battery";

/// Sends bytes, and returns the head of the answer.
fn raw(web: &Web, request: &str) -> String {
    let mut socket = TcpStream::connect(&web.address).unwrap();
    socket.set_read_timeout(Some(PATIENCE)).unwrap();
    socket.write_all(request.as_bytes()).unwrap();
    let mut answer = Vec::new();
    let _reset = socket.read_to_end(&mut answer);
    String::from_utf8_lossy(&answer).into_owned()
}

#[test]
fn only_requests_for_a_loopback_host_are_answered() {
    let server = in_process();
    let web = Web::start_live(&server.connect_string(), &[]);
    let status = |host: &str| {
        let answer = raw(&web, &format!("GET /api/locks HTTP/1.1\r\nConnection: close\r\n{host}\r\n"));
        answer.split(' ').nth(1).unwrap().to_owned()
    };
    assert_eq!(status("Host: localhost:1234\r\n"), "200");
    assert_eq!(status(&format!("Host: {}\r\n", web.address)), "200");
    assert_eq!(status("Host: evil.example\r\n"), "421");
    assert_eq!(status("Host: 127.0.0.1.evil.example\r\n"), "421");
    assert_eq!(status("Host: localhost\r\nHost: evil.example\r\n"), "421");
    assert_eq!(status(""), "421");
}

#[test]
fn only_reading_methods_are_answered() {
    let server = in_process();
    let web = Web::start_live(&server.connect_string(), &[]);
    for method in ["POST", "PUT", "DELETE", "PATCH", "OPTIONS", "TRACE"] {
        for path in ["/", "/api/locks", "/events", "/nowhere"] {
            let request = format!("{method} {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n");
            let answer = raw(&web, &request).to_ascii_lowercase();
            assert!(answer.starts_with("http/1.1 405"), "{method} {path}: {answer}");
            assert!(answer.contains("allow: get, head"), "{answer}");
        }
    }
    let head = web.request("HEAD", "/", &[]);
    assert_eq!((head.status, head.body.as_str()), (200, ""));
}

#[test]
fn every_answer_forbids_foreign_scripts() {
    let server = in_process();
    let web = Web::start_live(&server.connect_string(), &[]);
    for path in ["/", "/locks/x", "/api/locks", "/metrics", "/healthz", "/style.css", "/script.js", "/nowhere"] {
        let answer = web.get(path);
        let policy = answer.header("content-security-policy").unwrap();
        assert!(policy.starts_with("default-src 'none'; script-src 'self';"), "{path}: {policy}");
        assert!(!policy.contains("unsafe"), "{policy}");
        assert_eq!(answer.header("x-content-type-options"), Some("nosniff"), "{path}");
        assert_eq!(answer.header("cache-control"), Some("no-store"), "{path}");
        assert_eq!(answer.header("access-control-allow-origin"), None, "{path}");
    }
}

#[test]
fn token_is_needed_for_everything() {
    let server = in_process();
    let web = Web::start(&server.connect_string(), &["--token", TOKEN]);
    let bearer = format!("Bearer {TOKEN}");
    let right = [("authorization", bearer.as_str())];
    until("the locks", || (web.request("GET", "/healthz", &right).status == 200).then_some(()));
    for path in ["/", "/locks/x", "/api/locks", "/events", "/metrics", "/healthz", "/script.js", "/nowhere"] {
        for wrong in
            [vec![], vec![("authorization", "Bearer correct-horse-batterY")], vec![("cookie", "curator_token=")]]
        {
            let answer = web.request("GET", path, &wrong);
            assert_eq!(answer.status, 401, "{path} {wrong:?}");
            assert_eq!(answer.header("www-authenticate"), Some("Bearer"));
            assert!(!answer.body.contains(TOKEN));
        }
    }
    assert_eq!(web.request("GET", "/api/locks", &right).status, 200);
    // With a token the host may be a proxy's.
    assert_eq!(web.request("GET", "/", &[right[0], ("host", "locks.example")]).status, 200);

    assert_eq!(web.get("/login").status, 403);
    assert_eq!(web.get("/login?token=wrong").status, 403);
    let login = web.get(&format!("/login?token={TOKEN}"));
    assert_eq!((login.status, login.header("location")), (303, Some("/")));
    let cookie = login.header("set-cookie").unwrap();
    assert!(cookie.contains("HttpOnly") && cookie.contains("SameSite=Lax"), "{cookie}");
    let cookie = cookie.split(';').next().unwrap();
    assert_eq!(web.request("GET", "/", &[("cookie", cookie)]).status, 200);
}

#[test]
fn foreign_addresses_need_a_token() {
    for (listen, token, text) in [
        ("0.0.0.0:0", "", "not a loopback address"),
        ("[::]:0", "", "not a loopback address"),
        ("127.0.0.1:0", "short", "at least 16 characters"),
        ("127.0.0.1:0", "with a space in the middle", "characters A-Z"),
    ] {
        let mut command = Command::new(env!("CARGO_BIN_EXE_curator"));
        command.args(["serve", "--listen", listen]).env("CURATOR_TOKEN", token).env("CURATOR_CONNECT", "127.0.0.1:1");
        let output = command.output().unwrap();
        let error = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(2), "{listen}: {error}");
        assert!(error.contains(text), "{listen}: {error}");
    }
}

#[test]
fn names_and_data_stay_text() {
    let server = in_process();
    let clients = Clients::new(&server.connect_string());
    let client = clients.client();
    let paths = [
        "/a b/ü€/50%25/{{title}}",
        "/q?x=1&y=2#z",
        "/%2e%2e/\"quoted\"",
        "/<script>alert(1)<",
        "/back\\slash",
        "/'; drop",
    ];
    let datas: [&[u8]; 6] = [
        b"<script>alert(1)</script>",
        b"\xff\xfe\x00binary",
        "right\u{202e}left".as_bytes(),
        b"\"><img src=x onerror=alert(1)>",
        &[b'x'; 10_000],
        b"{{rows}}",
    ];
    for (path, data) in paths.iter().zip(datas) {
        clients.contend(&client, path, "lock-", data);
    }
    let web = Web::start_live(&server.connect_string(), &[]);
    let page = web.get("/").body;
    for wrong in ["<script>alert", "<img", "\u{202e}", "\0"] {
        assert!(!page.contains(wrong), "{wrong:?}: {page}");
    }
    for right in
        ["&lt;script&gt;alert(1)&lt;/script&gt;", "0xfffe0062696e617279", "right\\u{202e}left", "(10000 bytes)"]
    {
        assert!(page.contains(right), "{right:?}: {page}");
    }
    // Each link leads to its lock, on the page and in the API.
    let links: Vec<&str> = page.split("href=\"/locks").skip(1).map(|rest| rest.split('"').next().unwrap()).collect();
    assert_eq!(links.len(), paths.len());
    let mut found = Vec::new();
    for link in links {
        assert_eq!(web.get(&format!("/locks{link}")).status, 200, "{link}");
        let lock = web.get(&format!("/api/locks{link}")).json();
        assert_eq!(lock["holders"], 1, "{link}");
        found.push(lock["path"].as_str().unwrap().to_owned());
        let mut stream = web.stream(&format!("/events{link}"));
        assert_eq!(stream.next().unwrap()["rows"].as_array().unwrap().len(), 1, "{link}");
    }
    found.sort();
    let mut paths = paths.to_vec();
    paths.sort_unstable();
    assert_eq!(found, paths);
    let metrics = web.get("/metrics").body;
    assert!(metrics.contains(r#"curator_lock_holders{path="/back\\slash"} 1"#), "{metrics}");
    assert!(metrics.contains(r#"curator_lock_holders{path="/%2e%2e/\"quoted\""} 1"#), "{metrics}");
    for wrong in ["/locks/%ff", "/api/locks/%ff", "/locks/%00", "/locks//", "/locks/../../etc/passwd"] {
        let status = web.get(wrong).status;
        assert!((400..500).contains(&status), "{wrong}: {status}");
    }
}

#[test]
fn client_that_never_reads_delays_no_other() {
    let server = in_process();
    let clients = Clients::new(&server.connect_string());
    let client = clients.client();
    let big = "x".repeat(200);
    for index in 0..1000 {
        clients.contend(&client, "/jobs/a", "lock-", format!("{index} {big}"));
    }
    let web = Web::start_live(&server.connect_string(), &[]);
    let mut sockets: Vec<TcpStream> = (0..20).map(|_| TcpStream::connect(&web.address).unwrap()).collect();
    for socket in &mut sockets {
        // Many pages over one connection, none of which is read.
        let request = "GET /locks/jobs/a HTTP/1.1\r\nHost: localhost\r\n\r\n".repeat(20);
        socket.write_all(request.as_bytes()).unwrap();
        socket.write_all(b"GET /events/jobs/a HTTP/1.1\r\nHost: localhost\r\n\r\n").unwrap();
    }
    let mut stream = web.stream("/events/jobs/a");
    stream.next().unwrap();
    clients.contend(&client, "/jobs/a", "lock-", "the newest");
    stream.update_with("the newest");
    let begin = Instant::now();
    assert_eq!(web.end(Signal::TERM), Some(0));
    assert!(begin.elapsed().as_secs() < 10, "{:?}", begin.elapsed());
    drop(sockets);
}

/// Waits until the server closes a connection.
fn is_closed(mut socket: &TcpStream) {
    socket.set_read_timeout(Some(PATIENCE)).unwrap();
    let mut rest = Vec::new();
    match socket.read_to_end(&mut rest) {
        Ok(_) => {}
        Err(error) => assert_eq!(error.kind(), std::io::ErrorKind::ConnectionReset, "{error}"),
    }
}

#[test]
fn connections_that_say_nothing_are_closed() {
    let server = in_process();
    let web = Web::start_live(&server.connect_string(), &[]);
    let silent = TcpStream::connect(&web.address).unwrap();
    let mut slow = TcpStream::connect(&web.address).unwrap();
    slow.write_all(b"GET / HTTP/1.1\r\nHost: local").unwrap();
    let mut idle = TcpStream::connect(&web.address).unwrap();
    idle.write_all(b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n").unwrap();
    for socket in [&silent, &slow, &idle] {
        is_closed(socket);
    }
}

#[test]
fn a_thousand_silent_connections_do_not_end_the_page() {
    let server = in_process();
    let web = Web::start_live(&server.connect_string(), &[]);
    let silent: Vec<_> = (0..1000).map(|_| TcpStream::connect(&web.address).unwrap()).collect();
    let answer = web.get("/healthz");
    assert_eq!(answer.status, 200, "{}", answer.body);
    drop(silent);
}

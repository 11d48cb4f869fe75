//! `elect`: a command that runs in each term of leadership.

use std::io::{BufRead as _, BufReader, Read as _};
use std::process::{Child, ChildStdout};
use std::time::{Duration, Instant};

use curator_framework::{CuratorFramework, RetryOneTime};
use curator_test::{FaultProxy, TestingServer, unique_root};
use rustix::process::{Pid, Signal};

use crate::{SHORT, apache, curator, end, is_gone, run, signal, stderr, stdout, until};

/// Runs a script in the terms of `/election`.
fn elect(connect: &str, options: &[&str], script: &str) -> Child {
    curator(connect, &[&["elect"], options, &["/election", "--", "sh", "-c", script]].concat()).spawn().unwrap()
}

/// The lines that a candidate's commands print.
struct Lines(BufReader<ChildStdout>);

impl Lines {
    fn of(child: &mut Child) -> Self {
        Self(BufReader::new(child.stdout.take().unwrap()))
    }

    fn next(&mut self) -> String {
        let mut line = String::new();
        self.0.read_line(&mut line).unwrap();
        line.trim().to_owned()
    }

    fn rest(mut self) -> String {
        let mut rest = String::new();
        self.0.read_to_string(&mut rest).unwrap();
        rest
    }
}

/// Starts a candidate and waits until its command has printed a line.
fn lead(connect: &str, options: &[&str], script: &str) -> (Child, Lines, String) {
    let mut child = elect(connect, options, script);
    let mut lines = Lines::of(&mut child);
    let line = lines.next();
    (child, lines, line)
}

/// Starts a candidate and waits until it is in the queue, as number `count`.
fn join(server: &TestingServer, connect: &str, options: &[&str], script: &str, count: usize) -> Child {
    let child = elect(connect, options, script);
    until("a candidate", || candidates(server) == count);
    child
}

fn candidates(server: &TestingServer) -> usize {
    server.children("/election").map_or(0, |nodes| nodes.len())
}

/// Prints the term, then continues until it is stopped.
const SERVES: &str = "echo $CURATOR_TERM; exec sleep 611";

fn number(line: &str) -> i64 {
    line.parse().unwrap_or_else(|error| panic!("{error}: {line}"))
}

fn pid(line: &str) -> Pid {
    Pid::from_raw(line.parse().unwrap()).unwrap()
}

#[test]
fn end_of_the_command_is_the_end_of_the_candidacy() {
    let server = TestingServer::start().unwrap();
    let servers = server.connect_string();
    for (script, code) in [("exit 0", 0), ("exit 7", 7), ("kill -TERM $$", 143)] {
        for once in [&[][..], &["--once"]] {
            let child = elect(&servers, once, script);
            assert_eq!(end(child), (Some(code), String::new()), "{script}");
            assert_eq!(candidates(&server), 0);
        }
    }
    let output = run(&servers, &["elect", "/election", "--", "/no/such/command"]);
    assert_eq!(output.status.code(), Some(127));
    assert_eq!(candidates(&server), 0);
    until("the sessions are closed", || server.sessions().is_empty());
}

#[test]
fn command_knows_its_term() {
    let server = TestingServer::start().unwrap();
    let script = "echo $CURATOR_LOCK_PATH; echo $CURATOR_NODE; echo $CURATOR_TERM; echo $CURATOR_FENCING_TOKEN; \
                  echo $CURATOR_DEADLINE; date +%s.%N";
    let mut terms = Vec::new();
    for _ in 0..2 {
        let output = stdout(&elect(&server.connect_string(), &[], script).wait_with_output().unwrap());
        let lines: Vec<&str> = output.lines().collect();
        assert_eq!((lines[0], lines[2]), ("/election", lines[3]), "{output}");
        assert!(lines[1].starts_with("/election/_c_") && lines[1].contains("-latch-"), "{output}");
        terms.push(number(lines[2]));
        let certain = lines[4].parse::<f64>().unwrap() - lines[5].parse::<f64>().unwrap();
        assert!(certain > 0.0 && certain <= 22.5, "{output}");
    }
    assert!(terms[1] > terms[0]);
}

#[test]
fn candidates_lead_in_turn() {
    let server = TestingServer::start().unwrap();
    let servers = server.connect_string();
    let (first, _out, term) = lead(&servers, &[], SERVES);
    let mut second = join(&server, &servers, &["-v"], SERVES, 2);
    let mut told = BufReader::new(second.stderr.take().unwrap()).lines().map(Result::unwrap);
    let line = told.next().unwrap();
    assert!(line.starts_with("curator: waits for /election: 1 ahead; led by "), "{line}");
    signal(&first, Signal::TERM);
    assert_eq!(end(first), (Some(143), String::new()));
    let next = Lines::of(&mut second).next();
    assert!(number(&next) > number(&term), "{next} {term}");
    let line = told.next().unwrap();
    assert!(line.starts_with("curator: leads /election after ") && line.ends_with(&format!(", term {next}")), "{line}");
    signal(&second, Signal::INT);
    assert_eq!(end(second).0, Some(130));
    assert_eq!(candidates(&server), 0);
}

#[test]
fn timeout_ends_the_wait_for_a_term() {
    let server = TestingServer::start().unwrap();
    let servers = server.connect_string();
    let (leader, _out, _) = lead(&servers, &[], SERVES);
    for (options, code) in [(&["--timeout", "300ms"][..], 75), (&["-w", "0.3", "-E", "9"][..], 9)] {
        let output = elect(&servers, options, "echo never").wait_with_output().unwrap();
        assert_eq!((output.status.code(), stdout(&output).as_str()), (Some(code), ""));
        assert_eq!(stderr(&output), "curator: another candidate leads /election: curator leader /election shows it\n");
    }
    for (ending, code) in [(Signal::HUP, 129), (Signal::TERM, 143)] {
        let waiter = join(&server, &servers, &[], "echo never", 2);
        signal(&waiter, ending);
        assert_eq!(end(waiter).0, Some(code));
        assert_eq!(candidates(&server), 1);
    }
    assert_eq!(run("127.0.0.1:1", &["elect", "-w", "300ms", "/election", "--", "true"]).status.code(), Some(69));
    signal(&leader, Signal::TERM);
    assert_eq!(end(leader).0, Some(143));
}

#[test]
fn waiting_candidate_outlasts_an_outage_unless_its_time_is_limited() {
    let server = TestingServer::start().unwrap();
    let proxy = FaultProxy::start(server.address()).unwrap();
    let servers = server.connect_string();
    let (leader, _out, _) = lead(&servers, &[], SERVES);
    let mut waiter = join(&server, &proxy.connect_string(), SHORT, SERVES, 2);
    let limited = join(&server, &proxy.connect_string(), &[SHORT, &["--timeout", "6s"]].concat(), SERVES, 3);
    proxy.partition();
    let (code, text) = end(limited);
    assert_eq!((code, text.lines().count()), (Some(69), 1), "{text}");
    until("the sessions are over", || candidates(&server) == 1);
    proxy.repair();
    until("the waiter is back", || candidates(&server) == 2);
    signal(&leader, Signal::TERM);
    assert_eq!(end(leader).0, Some(143));
    number(&Lines::of(&mut waiter).next());
    signal(&waiter, Signal::TERM);
    assert_eq!(end(waiter).0, Some(143));
}

#[test]
fn killed_session_stops_the_command_and_the_candidate_leads_again() {
    let server = TestingServer::start().unwrap();
    let servers = server.connect_string();
    let script = "trap 'echo stopped; exit 3' TERM; echo $CURATOR_TERM; while :; do sleep 0.05; done";
    let (child, mut lines, first) = lead(&servers, SHORT, script);
    assert!(server.kill_session(server.sessions()[0]));
    assert_eq!(lines.next(), "stopped");
    let second = lines.next();
    assert!(number(&second) > number(&first), "{first} {second}");
    // A signal ends the candidacy, regardless of the command's handler.
    signal(&child, Signal::TERM);
    assert_eq!(lines.rest(), "stopped\n");
    let (code, text) = end(child);
    assert_eq!(code, Some(3));
    // The shell may tell of its `sleep`.
    let told: Vec<&str> = text.lines().filter(|line| line.starts_with("curator: ")).collect();
    assert!(told[0].starts_with("curator: leadership of /election is lost: the session"), "{text}");
    assert_eq!(told[1..], ["curator: waits for the next term of /election"]);
}

#[test]
fn once_ends_with_the_first_term() {
    let server = TestingServer::start().unwrap();
    let servers = server.connect_string();
    let (child, lines, _) = lead(&servers, &[SHORT, &["--once"]].concat(), SERVES);
    assert!(server.kill_session(server.sessions()[0]));
    let (code, text) = end(child);
    assert_eq!((code, text.lines().count(), lines.rest().as_str()), (Some(74), 1, ""), "{text}");
    until("no candidate is left", || candidates(&server) == 0);
}

/// The candidate joins again while the command still has its grace. It may lead before the command has ended.
#[test]
fn term_that_begins_within_the_grace_is_kept() {
    let server = TestingServer::start().unwrap();
    let servers = server.connect_string();
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("saved");
    let script = format!(
        "trap 'echo asked; while [ ! -e {} ]; do sleep 0.05; done; exit 0' TERM; \
         echo $CURATOR_NODE; while :; do sleep 0.05; done",
        file.display()
    );
    let options = ["--session-timeout", "40s", "--grace", "10s"];
    let (child, mut lines, first) = lead(&servers, &options, &script);
    assert!(server.kill_session(server.sessions()[0]));
    assert_eq!(lines.next(), "asked");
    until("a new node", || {
        server.children("/election").is_some_and(|nodes| nodes.len() == 1 && !first.contains(&nodes[0]))
    });
    let led = || stdout(&run(&servers, &["leader", "--json", "/election"])).contains(r#""state":"led""#);
    until("a leader", led);
    let next = format!("/election/{}", server.children("/election").unwrap()[0]);
    std::fs::write(&file, "").unwrap();
    assert_eq!(lines.next(), next);
    signal(&child, Signal::TERM);
    assert_eq!(end(child).0, Some(0));
}

/// The command may take its grace to end, but the user has asked for the end.
#[test]
fn loss_behind_a_signal_is_not_followed_by_a_term() {
    let server = TestingServer::start().unwrap();
    let servers = server.connect_string();
    let script = "trap 'echo asked' TERM; echo; while :; do sleep 0.05; done";
    let (child, mut lines, _) = lead(&servers, SHORT, script);
    signal(&child, Signal::TERM);
    assert_eq!(lines.next(), "asked");
    assert!(server.kill_session(server.sessions()[0]));
    assert_eq!(end(child).0, Some(74));
    assert_eq!(lines.rest(), "asked\n");
}

#[tokio::test]
async fn deleted_node_stops_the_command_and_the_next_candidate_leads() {
    let server = TestingServer::start().unwrap();
    let servers = server.connect_string();
    let (first, mut first_lines, node) = lead(&servers, SHORT, "echo $CURATOR_NODE; exec sleep 612");
    let mut second = join(&server, &servers, SHORT, SERVES, 2);
    until("watches", || server.watch_count() > 1);
    let client = CuratorFramework::new_client(&servers, RetryOneTime::new(Duration::ZERO)).unwrap();
    client.start().unwrap();
    client.delete().for_path(&node).await.unwrap();
    client.close().await;
    let mut second_lines = Lines::of(&mut second);
    let term = number(&second_lines.next());
    // The first candidate waits behind the second.
    until("two candidates", || candidates(&server) == 2);
    signal(&second, Signal::TERM);
    assert_eq!(end(second).0, Some(143));
    let again = first_lines.next();
    assert!(again.starts_with("/election/_c_") && again != node, "{again} {term}");
    signal(&first, Signal::TERM);
    let (code, text) = end(first);
    assert_eq!(code, Some(143));
    assert!(text.starts_with("curator: leadership of /election is lost: the node was deleted"), "{text}");
}

#[test]
fn after_kill_9_the_command_ends_and_another_candidate_leads() {
    let server = TestingServer::start().unwrap();
    let servers = server.connect_string();
    let (mut first, _out, line) = lead(&servers, SHORT, "echo $$; exec sleep 613");
    let mut second = join(&server, &servers, SHORT, SERVES, 2);
    signal(&first, Signal::KILL);
    assert_eq!(first.wait().unwrap().code(), None);
    until("the command is gone", || is_gone(pid(&line)));
    assert_eq!(candidates(&server), 2);
    number(&Lines::of(&mut second).next());
    signal(&second, Signal::TERM);
    assert_eq!(end(second).0, Some(143));
}

#[test]
fn delay_precedes_a_term_unless_the_leader_has_resigned() {
    let server = TestingServer::start().unwrap();
    let servers = server.connect_string();
    let options = [SHORT, &["--delay", "4s"]].concat();
    let (mut first, _out, _) = lead(&servers, &options, SERVES);
    let mut second = join(&server, &servers, &options, SERVES, 2);
    let killed = Instant::now();
    signal(&first, Signal::KILL);
    first.wait().unwrap();
    number(&Lines::of(&mut second).next());
    // The session alone takes at least 3.4 s: the last heartbeat was at most an eighth of its timeout ago.
    assert!(killed.elapsed() > Duration::from_millis(6500), "{:?}", killed.elapsed());
    let mut third = join(&server, &servers, &["--delay", "600s"], SERVES, 2);
    signal(&second, Signal::TERM);
    assert_eq!(end(second).0, Some(143));
    number(&Lines::of(&mut third).next());
    signal(&third, Signal::TERM);
    assert_eq!(end(third).0, Some(143));
}

/// A stopped process does not see its loss. It sees it first of all when it continues.
#[test]
fn stopped_process_stops_the_command_when_it_continues() {
    let server = TestingServer::start().unwrap();
    let servers = server.connect_string();
    let (first, mut lines, line) = lead(&servers, SHORT, "echo $$; exec sleep 614");
    let mut second = join(&server, &servers, SHORT, SERVES, 2);
    signal(&first, Signal::STOP);
    let mut second_lines = Lines::of(&mut second);
    number(&second_lines.next());
    assert!(!is_gone(pid(&line)), "the command was not stopped with its parent");
    signal(&first, Signal::CONT);
    until("the command is gone", || is_gone(pid(&line)));
    until("the first candidate waits", || candidates(&server) == 2);
    signal(&second, Signal::TERM);
    assert_eq!(end(second).0, Some(143));
    assert_ne!(lines.next(), line);
    signal(&first, Signal::TERM);
    assert_eq!(end(first).0, Some(143));
}

#[test]
fn silence_stops_the_command_before_another_candidate_leads() {
    let server = TestingServer::start().unwrap();
    let proxy = FaultProxy::start(server.address()).unwrap();
    // SIGTERM does not stop it, and it prints until when it ran.
    let script =
        "trap 'echo asked' TERM; while :; do read t rest </proc/uptime; echo $CURATOR_TERM $t; sleep 0.02; done";
    let (first, mut lines, line) = lead(&proxy.connect_string(), SHORT, script);
    let term = line.split_once(' ').unwrap().0.to_owned();
    let mut second = join(&server, &server.connect_string(), SHORT, "cat /proc/uptime; exec sleep 616", 2);
    proxy.partition();
    let begin = Lines::of(&mut second).next();
    proxy.repair();
    until("the first candidate is back", || candidates(&server) == 2);
    signal(&second, Signal::TERM);
    assert_eq!(end(second).0, Some(143));
    let printed: Vec<String> = std::iter::repeat_with(|| lines.next())
        .take_while(|line| line == "asked" || line.starts_with(&format!("{term} ")))
        .collect();
    assert!(printed.iter().any(|line| line == "asked"), "{printed:?}");
    let last = printed.iter().rfind(|line| *line != "asked").unwrap().split_once(' ').unwrap().1;
    assert!(uptime(&begin) > uptime(last), "{begin} {last}");
    signal(&first, Signal::KILL);
    let _killed = first.wait_with_output().unwrap();
}

fn uptime(text: &str) -> f64 {
    text.split_whitespace().next().unwrap().parse().unwrap()
}

/// The command is stopped in time for its grace. The leader steps down, although its session continues.
#[test]
fn silence_that_ends_within_the_grace_costs_one_term() {
    let server = TestingServer::start().unwrap();
    let proxy = FaultProxy::start(server.address()).unwrap();
    let options = ["--session-timeout", "8s", "--grace", "2s"];
    let script = "trap 'echo asked; exit 0' TERM; echo $CURATOR_TERM; while :; do sleep 0.05; done";
    let (child, mut lines, first) = lead(&proxy.connect_string(), &options, script);
    let sessions = server.sessions();
    proxy.partition();
    assert_eq!(lines.next(), "asked");
    proxy.repair();
    let second = lines.next();
    assert!(number(&second) > number(&first), "{first} {second}");
    assert_eq!(server.sessions(), sessions, "the session went on");
    signal(&child, Signal::TERM);
    assert_eq!(end(child).0, Some(0));
}

#[test]
fn broken_connection_costs_no_term() {
    let server = TestingServer::start().unwrap();
    let proxy = FaultProxy::start(server.address()).unwrap();
    let (child, lines, _) =
        lead(&proxy.connect_string(), SHORT, "trap 'echo asked; exit 5' USR1; echo; while :; do sleep 0.05; done");
    let connections = proxy.total_connections();
    proxy.reset();
    until("the candidate is back", || proxy.total_connections() > connections);
    signal(&child, Signal::USR1);
    assert_eq!(lines.rest(), "asked\n");
    let (code, text) = end(child);
    assert_eq!(code, Some(5));
    assert!(!text.contains("curator: "), "{text}");
}

#[test]
fn path_of_a_lock_is_refused() {
    let server = TestingServer::start().unwrap();
    let servers = server.connect_string();
    let (holder, _out, _) = crate::begin(&servers, &[], "echo; exec sleep 600");
    let output = run(&servers, &["elect", "/lock", "--", "echo", "never"]);
    let text = "curator: /lock is a mutex with contenders: use curator lock, or another path\n";
    assert_eq!((output.status.code(), stderr(&output).as_str()), (Some(2), text));
    signal(&holder, Signal::TERM);
    assert_eq!(end(holder).0, Some(143));
    let (leader, _out, _) = lead(&servers, &[], SERVES);
    let output = run(&servers, &["lock", "/election", "--", "echo", "never"]);
    let text = "curator: /election is a leader election with contenders: use curator elect, or another path\n";
    assert_eq!((output.status.code(), stderr(&output).as_str()), (Some(2), text));
    signal(&leader, Signal::TERM);
    assert_eq!(end(leader).0, Some(143));
}

#[test]
fn elections_work_on_apache() {
    let (servers, _server) = apache();
    let path = unique_root("curator-elect");
    let script = "exec \"$CURATOR\" leader --all $CURATOR_LOCK_PATH";
    let output = run(&servers, &["elect", "--id", "me", "--proclaim", "here", &path, "--", "sh", "-c", script]);
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    let lines: Vec<String> = stdout(&output).lines().map(ToOwned::to_owned).collect();
    assert!(lines[0].starts_with(&format!("{path} is led by me (term ")), "{output:?}");
    assert_eq!(lines[1], "it proclaims here");
    assert!(lines[3].starts_with("leads  latch "), "{output:?}");
}

//! Each mistake of an operator is answered by one line that says what to do.

use std::io::BufRead as _;

use curator_test::TestingServer;
use rustix::process::Signal;

use crate::foreground::{CTRL_C, on_a_terminal, type_in};
use crate::{begin, curator, end, nodes, signal, until};

#[test]
fn command_that_is_stopped_because_it_wants_the_terminal_is_explained() {
    let server = TestingServer::start().unwrap();
    let (mut terminal, mut out, _) = on_a_terminal(&server, "", "echo; read line; echo never");
    let mut line = String::new();
    out.read_line(&mut line).unwrap();
    let text =
        "curator: the command is stopped because it wants the terminal: Ctrl-C ends it, --foreground lets it have it";
    assert_eq!(line.trim(), text);
    type_in(&mut terminal, CTRL_C);
    assert_eq!(end(terminal).0, Some(130));
    assert_eq!(nodes(&server), 0);
}

#[test]
fn signals_have_their_names() {
    let server = TestingServer::start().unwrap();
    let servers = server.connect_string();
    let (holder, _out, _) = begin(&servers, &[], "echo; exec sleep 600");
    for (ending, name) in [(Signal::TERM, "TERM"), (Signal::INT, "INT"), (Signal::HUP, "HUP"), (Signal::QUIT, "QUIT")] {
        let waiter = curator(&servers, &["lock", "/lock", "--", "true"]).spawn().unwrap();
        until("a waiter", || nodes(&server) == 2);
        signal(&waiter, ending);
        assert_eq!(end(waiter), (Some(128 + ending.as_raw()), format!("curator: ended by {name}\n")));
    }
    signal(&holder, Signal::TERM);
    assert_eq!(end(holder).0, Some(143));
}

/// A stopped waiter would hold up the queue until its session ends.
#[test]
fn waiter_does_not_obey_ctrl_z() {
    let server = TestingServer::start().unwrap();
    let servers = server.connect_string();
    let (holder, _out, _) = begin(&servers, &[], "echo; exec sleep 600");
    let waiter = curator(&servers, &["lock", "/lock", "--", "true"]).spawn().unwrap();
    until("a waiter", || nodes(&server) == 2);
    signal(&waiter, Signal::TSTP);
    signal(&holder, Signal::TERM);
    assert_eq!(end(holder).0, Some(143));
    let text = "curator: Ctrl-Z is not obeyed: a stopped process cannot keep its place in the queue\n";
    assert_eq!(end(waiter), (Some(0), text.to_owned()));
}

//! Runs one ZooKeeper server for a whole run of tests.
//!
//! Without arguments it is Apache's. The first line on standard output is `CURATOR_TEST_APACHE=127.0.0.1:<port>`,
//! written when the server serves. Versions are written to standard error. Sessions may last from 2 to 60 seconds.
//!
//! With `--in-process PORT` it is the [`TestingServer`] at that port, or at a free one for 0, with the settings of
//! kazoo's own tests. The first line is its address. Standard input takes the commands `stop` and `start`, one a line,
//! and standard output gets a line when each is done. Data and sessions outlive a stop.
//!
//! Either server stops when standard input closes.

use std::error::Error;
use std::io::{self, Write as _};
use std::process::ExitCode;
use std::time::Duration;

use curator_test::{ApacheServer, TestingServer, installed_packages};

fn main() -> ExitCode {
    let arguments: Vec<_> = std::env::args().skip(1).collect();
    let arguments: Vec<_> = arguments.iter().map(String::as_str).collect();
    let done = match arguments.as_slice() {
        [] => apache(),
        ["--in-process", port] => in_process(port),
        _ => Err("usage: zookeeper-for-tests [--in-process PORT]".into()),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error}");
            ExitCode::FAILURE
        }
    }
}

fn apache() -> Result<(), Box<dyn Error>> {
    let server = ApacheServer::builder()
        .tick(Duration::from_secs(1))
        .session_timeouts(Duration::from_secs(2), Duration::from_secs(60))
        .start()?;
    eprintln!("Apache ZooKeeper {}; packages: {}", server.version(), installed_packages().join(", "));
    print(&format!("CURATOR_TEST_APACHE={}", server.connect_string()))?;
    io::copy(&mut io::stdin().lock(), &mut io::sink())?;
    Ok(())
}

fn in_process(port: &str) -> Result<(), Box<dyn Error>> {
    let server = TestingServer::builder().port(port.parse()?).reconfig(true).start()?;
    print(&server.connect_string())?;
    for command in io::stdin().lines() {
        match command?.as_str() {
            "stop" => server.stop(),
            "start" => server.restart()?,
            other => return Err(format!("the command {other:?} is neither stop nor start").into()),
        }
        print("done")?;
    }
    Ok(())
}

fn print(line: &str) -> io::Result<()> {
    let mut out = io::stdout().lock();
    writeln!(out, "{line}")?;
    out.flush()
}

//! Runs one Apache ZooKeeper server for a whole run of tests.
//!
//! The first line on standard output is `CURATOR_TEST_APACHE=127.0.0.1:<port>`, written when the server serves. The
//! server stops when standard input closes. Versions are written to standard error. Sessions may last from 2 to 60
//! seconds.

use std::error::Error;
use std::io::{self, Write as _};
use std::process::ExitCode;
use std::time::Duration;

use curator_test::{ApacheServer, installed_packages};

fn main() -> ExitCode {
    match run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error}");
            ExitCode::FAILURE
        }
    }
}

fn run() -> Result<(), Box<dyn Error>> {
    let server = ApacheServer::builder()
        .tick(Duration::from_secs(1))
        .session_timeouts(Duration::from_secs(2), Duration::from_secs(60))
        .start()?;
    eprintln!("Apache ZooKeeper {}; packages: {}", server.version(), installed_packages().join(", "));
    let mut out = io::stdout().lock();
    writeln!(out, "CURATOR_TEST_APACHE={}", server.connect_string())?;
    out.flush()?;
    io::copy(&mut io::stdin().lock(), &mut io::sink())?;
    Ok(())
}

//! The health of a command that is registered.

use std::convert::Infallible;
use std::process::Stdio;
use std::time::Duration;

use clap::Args;
use rustix::process::{Pid, Signal, kill_process_group};
use tokio::process::{Child, Command};
use tokio::sync::{oneshot, watch};
use tokio::time::{Instant, sleep_until, timeout};

use crate::failure::Failure;
use crate::output::tell;
use crate::values::duration;

/// The longest time between two checks.
const LONGEST: Duration = Duration::from_secs(24 * 60 * 60);

/// The options of a health check.
#[derive(Debug, Args)]
pub(crate) struct Health {
    /// Register the instance only while this command of the shell ends with status 0
    #[arg(long, value_name = "COMMAND", conflicts_with = "http", env = "CURATOR_CHECK")]
    check: Option<String>,
    /// Register the instance only while a GET of this address, http://…, has a status from 200 to 299
    #[arg(long, value_name = "URL", env = "CURATOR_CHECK_HTTP")]
    http: Option<String>,
    /// The time between two checks, and the longest time of one; at most 24h
    #[arg(long, default_value = "5s", value_parser = duration, env = "CURATOR_CHECK_INTERVAL")]
    interval: Duration,
    /// The number of checks that must fail in a row before the instance is unregistered. One that succeeds registers it
    #[arg(long, default_value_t = 3, value_name = "N", value_parser = clap::value_parser!(u32).range(1..), env = "CURATOR_CHECK_THRESHOLD")]
    threshold: u32,
}

/// A check.
#[derive(Debug)]
enum Probe<'a> {
    Command(&'a str),
    Http(&'a str),
}

impl Health {
    fn probe(&self) -> Option<Probe<'_>> {
        let command = self.check.as_deref().map(Probe::Command);
        command.or_else(|| self.http.as_deref().map(Probe::Http))
    }

    /// Fails if the options make no sense.
    pub(super) fn validate(&self) -> Result<(), Failure> {
        if self.interval.is_zero() {
            return Err(Failure(2, "--interval must be longer than zero".to_owned()));
        }
        if self.interval > LONGEST {
            return Err(Failure(2, "--interval must be at most 24h".to_owned()));
        }
        let Some(url) = &self.http else { return Ok(()) };
        if !url.starts_with("http://") {
            return Err(Failure(2, format!("--http {url}: only addresses with http:// are checked")));
        }
        match url.parse::<ureq::http::Uri>() {
            Ok(_) => Ok(()),
            Err(error) => Err(Failure(2, format!("--http {url}: {error}"))),
        }
    }

    /// Tells whether the instance is to be registered, now and at each change. Never ends: the caller drops it.
    pub(super) async fn follow(&self, healthy: &watch::Sender<bool>) -> Infallible {
        let Some(probe) = self.probe() else {
            healthy.send_replace(true);
            return std::future::pending().await;
        };
        let mut failures = 0;
        loop {
            let next = Instant::now() + self.interval;
            let outcome = match timeout(self.interval, probe.check(self.interval)).await {
                Ok(outcome) => outcome,
                Err(_elapsed) => Err(format!("no answer within {:?}", self.interval)),
            };
            match outcome {
                Ok(()) => {
                    failures = 0;
                    if !healthy.send_replace(true) {
                        tell("the check succeeds");
                    }
                }
                Err(reason) => {
                    failures += 1;
                    if failures == self.threshold {
                        healthy.send_replace(false);
                        let often = if failures == 1 { String::new() } else { format!(" {failures} times in a row") };
                        tell(&format!("the check has failed{often}: {reason}"));
                    }
                }
            }
            sleep_until(next).await;
        }
    }
}

impl Probe<'_> {
    async fn check(&self, longest: Duration) -> Result<(), String> {
        match self {
            Self::Command(command) => {
                let mut shell = Command::new("sh");
                shell
                    .args(["-c", command])
                    .env_remove("CURATOR_AUTH")
                    .stdin(Stdio::null())
                    .stdout(Stdio::null())
                    .stderr(Stdio::null());
                // A group of its own: a check that hangs ends with the processes that it has started.
                let child = shell.process_group(0).spawn().map_err(|error| error.to_string())?;
                let mut group = Group(child);
                let status = group.0.wait().await.map_err(|error| error.to_string())?;
                if status.success() { Ok(()) } else { Err(status.to_string()) }
            }
            Self::Http(url) => {
                let url = (*url).to_owned();
                let get = move || {
                    let config = ureq::Agent::config_builder().timeout_global(Some(longest)).build();
                    let answer = ureq::Agent::new_with_config(config).get(&url).call();
                    answer.map(|_| ()).map_err(|error| error.to_string())
                };
                let (sender, outcome) = oneshot::channel();
                // Not a thread of tokio's pool: the end of the program would wait for it, as long as a check may take.
                let send = move || drop(sender.send(get()));
                std::thread::Builder::new().spawn(send).map_err(|error| error.to_string())?;
                outcome.await.unwrap_or_else(|error| Err(error.to_string()))
            }
        }
    }
}

/// A check that runs. Its drop ends the processes of its group, unless the check has ended.
struct Group(Child);

impl Drop for Group {
    fn drop(&mut self) {
        // The id of a process that was not waited for belongs to no other process.
        let id = self.0.id().and_then(|id| Pid::from_raw(i32::try_from(id).ok()?));
        if let Some(group) = id {
            let _gone = kill_process_group(group, Signal::KILL);
        }
    }
}

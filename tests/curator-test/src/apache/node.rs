//! The process of one server, and its folder.

use std::fs::{self, OpenOptions};
use std::io;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::Child;
use std::thread;
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use rustix::process::{Pid, Signal, WaitId, WaitIdOptions};
use tempfile::TempDir;

use super::ask;
use super::error::ApacheError;
use super::launcher::{Launcher, spawn};
use super::snapshot;

/// The limit of a server's start, which takes half a second on an idle machine.
pub(super) const START_LIMIT: Duration = Duration::from_secs(60);
pub(super) const POLL_PAUSE: Duration = Duration::from_millis(10);

pub(super) fn new_folder() -> Result<TempDir, ApacheError> {
    tempfile::Builder::new()
        .prefix("curator-test-apache-")
        .tempdir()
        .map_err(ApacheError::io("make a temporary folder"))
}

pub(super) fn data_folder(folder: &Path) -> PathBuf {
    folder.join("data")
}

fn config_file(folder: &Path) -> PathBuf {
    folder.join("zoo.cfg")
}

fn log_file(folder: &Path) -> PathBuf {
    folder.join("zookeeper.log")
}

/// A server's process, if it runs, and all that a start needs.
#[derive(Debug)]
pub(super) struct Node {
    launcher: Launcher,
    address: SocketAddr,
    secure_address: Option<SocketAddr>,
    child: Mutex<Option<Process>>,
    // Last: removed after the process was killed.
    folder: TempDir,
}

impl Node {
    pub(super) fn new(
        launcher: Launcher,
        address: SocketAddr,
        folder: TempDir,
        config: &str,
    ) -> Result<Self, ApacheError> {
        fs::write(config_file(folder.path()), config).map_err(ApacheError::io("write the configuration"))?;
        Ok(Self { launcher, address, secure_address: None, child: Mutex::new(None), folder })
    }

    /// Changes options in the configuration, for the next start.
    pub(super) fn set_options(&self, options: &[(&str, String)]) -> Result<(), ApacheError> {
        let file = config_file(self.folder.path());
        let old = fs::read_to_string(&file).map_err(ApacheError::io("read the configuration"))?;
        let is_kept = |line: &&str| !options.iter().any(|(name, _)| line.starts_with(&format!("{name}=")));
        let mut lines: Vec<_> = old.lines().filter(is_kept).map(str::to_owned).collect();
        lines.extend(options.iter().map(|(name, value)| format!("{name}={value}")));
        fs::write(&file, lines.join("\n") + "\n").map_err(ApacheError::io("write the configuration"))
    }

    /// Sets a second address: the server then counts as serving only when it serves there too.
    pub(super) const fn set_secure_address(&mut self, address: SocketAddr) {
        self.secure_address = Some(address);
    }

    pub(super) const fn address(&self) -> SocketAddr {
        self.address
    }

    pub(super) const fn secure_address(&self) -> Option<SocketAddr> {
        self.secure_address
    }

    /// Stops the old process, starts a new one, and does not wait until it serves.
    pub(super) fn launch(&self) -> Result<(), ApacheError> {
        self.launch_in(&mut self.child.lock())
    }

    /// Starts the process and waits until it serves. A process that does not serve in time is stopped.
    pub(super) fn start(&self) -> Result<(), ApacheError> {
        let mut child = self.child.lock();
        self.launch_in(&mut child)?;
        self.wait_in(&mut child)
    }

    pub(super) fn stop(&self) -> Result<(), ApacheError> {
        stop_in(&mut self.child.lock())
    }

    /// See [`ApacheServer::restart_with_next_sequence`](super::ApacheServer::restart_with_next_sequence).
    pub(super) fn restart_with_next_sequence(&self, parent: &str, next: i32) -> Result<(), ApacheError> {
        let mut child = self.child.lock();
        // At its start a server writes all its data into a new snapshot, and then serves.
        self.launch_in(&mut child)?;
        self.wait_in(&mut child)?;
        stop_in(&mut child)?;
        let changed = snapshot::set_next_sequence(&data_folder(self.folder.path()), parent, next);
        self.launch_in(&mut child)?;
        self.wait_in(&mut child)?;
        if changed.map_err(ApacheError::io("change the snapshot"))? {
            Ok(())
        } else {
            Err(ApacheError::NoNode { path: parent.to_owned() })
        }
    }

    /// See [`ApacheServer::restart_and_save`](super::ApacheServer::restart_and_save).
    pub(super) fn restart_and_save(&self, backup: &Path) -> Result<(), ApacheError> {
        let mut child = self.child.lock();
        stop_in(&mut child)?;
        let saved = copy_files(&self.database(), backup);
        self.launch_in(&mut child)?;
        self.wait_in(&mut child)?;
        saved.map_err(ApacheError::io("save the data"))
    }

    /// See [`ApacheServer::restart_with_data`](super::ApacheServer::restart_with_data).
    pub(super) fn restart_with_data(&self, backup: &Path) -> Result<(), ApacheError> {
        let mut child = self.child.lock();
        stop_in(&mut child)?;
        fs::remove_dir_all(self.database())
            .and_then(|()| fs::create_dir(self.database()))
            .and_then(|()| copy_files(backup, &self.database()))
            .map_err(ApacheError::io("put the data back"))?;
        self.launch_in(&mut child)?;
        self.wait_in(&mut child)
    }

    /// Returns the folder of the snapshots and logs.
    fn database(&self) -> PathBuf {
        data_folder(self.folder.path()).join("version-2")
    }

    pub(super) fn freeze(&self) -> Result<(), ApacheError> {
        self.child.lock().as_ref().ok_or(ApacheError::Stopped)?.freeze().map_err(ApacheError::io("freeze the server"))
    }

    pub(super) fn thaw(&self) -> Result<(), ApacheError> {
        self.child
            .lock()
            .as_ref()
            .ok_or(ApacheError::Stopped)?
            .signal(Signal::CONT)
            .map_err(ApacheError::io("thaw the server"))
    }

    /// Returns whether the process runs and serves.
    pub(super) fn serves(&self) -> Result<bool, ApacheError> {
        self.serves_in(&mut self.child.lock())
    }

    fn launch_in(&self, child: &mut Option<Process>) -> Result<(), ApacheError> {
        stop_in(child)?;
        let log = OpenOptions::new()
            .create(true)
            .write(true)
            // The log tells of the last start alone.
            .truncate(true)
            .open(log_file(self.folder.path()))
            .map_err(ApacheError::io("open the server's log"))?;
        let command = self
            .launcher
            .command(&config_file(self.folder.path()), log)
            .map_err(ApacheError::io("open the server's log"))?;
        *child = Some(Process(spawn(command).map_err(ApacheError::io("start Java"))?));
        Ok(())
    }

    fn wait_in(&self, child: &mut Option<Process>) -> Result<(), ApacheError> {
        let began = Instant::now();
        while !self.serves_in(child).inspect_err(|_| drop(child.take()))? {
            let waited = began.elapsed();
            if waited > START_LIMIT {
                *child = None;
                return Err(ApacheError::NotServing { waited, log: self.log_end() });
            }
            thread::sleep(POLL_PAUSE);
        }
        Ok(())
    }

    fn serves_in(&self, child: &mut Option<Process>) -> Result<bool, ApacheError> {
        let process = child.as_mut().ok_or(ApacheError::Stopped)?;
        let folder = data_folder(self.folder.path());
        if ask::command(self.address, "conf").is_ok_and(|answer| is_ready(&answer, &folder, self.secure_address)) {
            return Ok(true);
        }
        let Some(status) = process.0.try_wait().map_err(ApacheError::io("look at the server"))? else {
            return Ok(false);
        };
        let log = self.log();
        Err(match log.contains("Address already in use") {
            true => ApacheError::PortTaken { log: end_of(&log) },
            false => ApacheError::Ended { status, log: end_of(&log) },
        })
    }

    /// Returns the last lines of the log, or the reason why it cannot be read.
    pub(super) fn log_end(&self) -> String {
        end_of(&self.log())
    }

    fn log(&self) -> String {
        match fs::read(log_file(self.folder.path())) {
            Ok(log) => String::from_utf8_lossy(&log).into_owned(),
            Err(error) => format!("(the log cannot be read: {error})"),
        }
    }
}

fn copy_files(from: &Path, to: &Path) -> io::Result<()> {
    for entry in fs::read_dir(from)? {
        let entry = entry?;
        fs::copy(entry.path(), to.join(entry.file_name()))?;
    }
    Ok(())
}

/// Returns the last lines of a log.
fn end_of(log: &str) -> String {
    let lines: Vec<&str> = log.lines().collect();
    lines[lines.len().saturating_sub(20)..].join("\n")
}

/// Returns whether the reply to `conf` names this data folder, so that it is not another server's, and the second port.
/// A port is named once it is bound and knows the server behind it.
fn is_ready(answer: &str, folder: &Path, secure: Option<SocketAddr>) -> bool {
    let has = |line: String| answer.lines().any(|other| other == line);
    has(format!("dataDir={}", folder.join("version-2").display()))
        && secure.is_none_or(|address| has(format!("secureClientPort={}", address.port())))
}

fn stop_in(child: &mut Option<Process>) -> Result<(), ApacheError> {
    match child.as_mut().map_or(Ok(()), Process::kill) {
        Ok(()) => {
            *child = None;
            Ok(())
        }
        Err(source) => Err(ApacheError::io("stop the server")(source)),
    }
}

/// A child process that is killed when dropped.
#[derive(Debug)]
struct Process(Child);

impl Process {
    fn pid(&self) -> io::Result<Pid> {
        // Not waited for yet, so the number is still this child's.
        i32::try_from(self.0.id())
            .ok()
            .and_then(Pid::from_raw)
            .ok_or_else(|| io::Error::other("the process has no number"))
    }

    fn signal(&self, signal: Signal) -> io::Result<()> {
        Ok(rustix::process::kill_process(self.pid()?, signal)?)
    }

    fn freeze(&self) -> io::Result<()> {
        self.signal(Signal::STOP)?;
        // Reported when every thread is stopped. `NOWAIT` leaves the end of the process, if it has ended, to `Child`.
        let what = WaitIdOptions::STOPPED | WaitIdOptions::EXITED | WaitIdOptions::NOWAIT;
        rustix::process::waitid(WaitId::Pid(self.pid()?), what)?;
        Ok(())
    }

    fn kill(&mut self) -> io::Result<()> {
        self.0.kill()?;
        self.0.wait()?;
        Ok(())
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // A process that cannot be killed has ended already.
        drop(self.kill());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ready_is_our_server_on_both_ports() {
        let folder = Path::new("/tmp/a/data");
        let conf =
            |data: &str, secure: i32| format!("clientPort=2\nsecureClientPort={secure}\ndataDir={data}/version-2\n");
        let at = |port| Some(SocketAddr::from(([127, 0, 0, 1], port)));
        assert!(is_ready(&conf("/tmp/a/data", -1), folder, None));
        assert!(is_ready(&conf("/tmp/a/data", 31), folder, at(31)));
        assert!(!is_ready(&conf("/tmp/a/data", -1), folder, at(31)));
        assert!(!is_ready(&conf("/tmp/a/data", 312), folder, at(31)));
        assert!(!is_ready(&conf("/tmp/b/data", 31), folder, at(31)));
        assert!(!is_ready("This ZooKeeper instance is not currently serving requests\n", folder, None));
    }
}

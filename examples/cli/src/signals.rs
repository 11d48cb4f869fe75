//! Catches the signals that are passed on to the command.

use std::future::Future;
use std::io;
use std::task::Poll;

use rustix::process::Signal;
use tokio::signal::unix::{Signal as Stream, SignalKind, signal};

use crate::failure::Failure;
use crate::output::tell;

/// Signals that ask a process to end, signals with a meaning that the command defines, and Ctrl-Z.
const CAUGHT: [Signal; 7] =
    [Signal::INT, Signal::TERM, Signal::HUP, Signal::QUIT, Signal::USR1, Signal::USR2, Signal::TSTP];

/// The caught signals. Signals that were ignored at the start (`nohup`) stay ignored, here and in the command.
pub(crate) struct Signals {
    streams: Vec<(Signal, Stream)>,
    /// The state in ZooKeeper that a stopped process would lose.
    keeps: Option<&'static str>,
}

impl Signals {
    /// Catches the signals. A process that keeps nothing in ZooKeeper leaves Ctrl-Z to the system.
    pub(crate) fn catch(keeps: Option<&'static str>) -> io::Result<Self> {
        let ignored = ignored();
        let mut streams = Vec::new();
        for caught in CAUGHT.into_iter().filter(|signal| keeps.is_some() || *signal != Signal::TSTP) {
            if ignored >> (caught.as_raw() - 1) & 1 == 0 {
                streams.push((caught, signal(SignalKind::from_raw(caught.as_raw()))?));
            }
        }
        Ok(Self { streams, keeps })
    }

    /// Returns the next signal.
    pub(crate) async fn next(&mut self) -> Signal {
        std::future::poll_fn(|cx| {
            for (caught, stream) in &mut self.streams {
                if stream.poll_recv(cx) == Poll::Ready(Some(())) {
                    return Poll::Ready(*caught);
                }
            }
            Poll::Pending
        })
        .await
    }

    /// Returns the next signal that asks this process to end. Drops others: no command runs that could get them.
    pub(crate) async fn end(&mut self) -> Signal {
        loop {
            match self.next().await {
                Signal::TSTP => {
                    let kept = self.keeps.unwrap_or_default();
                    tell(&format!("Ctrl-Z is not obeyed: a stopped process cannot keep {kept}"));
                }
                signal if ends(signal) => return signal,
                _ => {}
            }
        }
    }

    /// Runs work that a signal may end.
    pub(crate) async fn unless_ended<T>(
        &mut self,
        work: impl Future<Output = Result<T, Failure>>,
    ) -> Result<T, Failure> {
        tokio::select! {
            biased;
            outcome = work => outcome,
            signal = self.end() => {
                let code = u8::try_from(128 + signal.as_raw()).unwrap_or(u8::MAX);
                Err(Failure(code, format!("ended by {}", name(signal))))
            }
        }
    }
}

/// Returns `true` if a signal asks a process to end.
pub(crate) const fn ends(signal: Signal) -> bool {
    matches!(signal, Signal::INT | Signal::TERM | Signal::HUP | Signal::QUIT)
}

/// Returns the name of a signal.
pub(crate) fn name(signal: Signal) -> String {
    let name = match signal {
        Signal::INT => "INT",
        Signal::TERM => "TERM",
        Signal::HUP => "HUP",
        Signal::QUIT => "QUIT",
        Signal::USR1 => "USR1",
        Signal::USR2 => "USR2",
        Signal::TSTP => "TSTP",
        Signal::KILL => "KILL",
        Signal::CONT => "CONT",
        other => return other.as_raw().to_string(),
    };
    name.to_owned()
}

/// Returns one bit for each ignored signal, or zero where the system does not report them.
fn ignored() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok()).unwrap_or_default()
}

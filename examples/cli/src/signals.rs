//! The signals that are passed on.

use std::io;
use std::task::Poll;

use rustix::process::Signal;
use tokio::signal::unix::{Signal as Stream, SignalKind, signal};

/// Those that ask a process to end, those that mean what the command likes, and Ctrl-Z.
const CAUGHT: [Signal; 7] =
    [Signal::INT, Signal::TERM, Signal::HUP, Signal::QUIT, Signal::USR1, Signal::USR2, Signal::TSTP];

/// The signals that this process gets. What it was started with as ignored (`nohup`) stays so, here and in the command.
pub(crate) struct Signals(Vec<(Signal, Stream)>);

impl Signals {
    pub(crate) fn catch() -> io::Result<Self> {
        let ignored = ignored();
        let mut streams = Vec::new();
        for caught in CAUGHT {
            if ignored >> (caught.as_raw() - 1) & 1 == 0 {
                streams.push((caught, signal(SignalKind::from_raw(caught.as_raw()))?));
            }
        }
        Ok(Self(streams))
    }

    /// The next signal.
    pub(crate) async fn next(&mut self) -> Signal {
        std::future::poll_fn(|cx| {
            for (caught, stream) in &mut self.0 {
                if stream.poll_recv(cx) == Poll::Ready(Some(())) {
                    return Poll::Ready(*caught);
                }
            }
            Poll::Pending
        })
        .await
    }

    /// The next signal that asks this process to end, while there is no command to pass the others on to.
    pub(crate) async fn end(&mut self) -> Signal {
        loop {
            let signal = self.next().await;
            if ends(signal) {
                return signal;
            }
        }
    }
}

/// Whether a signal asks a process to end.
pub(crate) const fn ends(signal: Signal) -> bool {
    matches!(signal, Signal::INT | Signal::TERM | Signal::HUP | Signal::QUIT)
}

/// One bit for each signal that is ignored, where the system tells.
fn ignored() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok()).unwrap_or_default()
}

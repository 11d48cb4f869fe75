//! Many locks of one client at once: guards of different paths, beside the same requests over one bare socket.

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use curator_bench::clients::{SESSION, connect};
use curator_bench::harness::{Figures, OURS, Report, Suite, Target};
use curator_bench::process::Result;
use curator_bench::socket::Socket;
use curator_recipes::{InterProcessMutex, MutexGuard};
use tokio::net::TcpStream;
use tokio::task::JoinSet;

use crate::peer::{TOKIO_SOCKETS, per_second};

const GUARDS: usize = 10_000;
const PARENT: &str = "/guards";
/// The server takes about a millisecond to count the nodes.
const POLL: Duration = Duration::from_millis(5);
/// The least share of the bare socket's speed.
const LEAST: f64 = 0.9;

/// Guards acquired, released and dropped in a second.
type Speeds = [f64; 3];

struct Locks {
    mutexes: Vec<InterProcessMutex>,
    paths: Vec<String>,
    /// The bare socket's session. It also counts the nodes after a drop.
    socket: Socket<TcpStream>,
}

async fn acquire(mutexes: &[InterProcessMutex]) -> Result<Vec<MutexGuard>> {
    let mut acquires = JoinSet::new();
    for mutex in mutexes {
        let mutex = mutex.clone();
        acquires.spawn(async move { mutex.acquire().await });
    }
    let mut guards = Vec::with_capacity(GUARDS);
    while let Some(guard) = acquires.join_next().await {
        guards.push(guard??);
    }
    Ok(guards)
}

impl Locks {
    async fn measure_locks(&mut self) -> Result<Speeds> {
        let began = Instant::now();
        let guards = acquire(&self.mutexes).await?;
        let acquired = per_second(GUARDS, began.elapsed());

        let began = Instant::now();
        let mut releases = JoinSet::new();
        for guard in guards {
            releases.spawn(async move { guard.release().await });
        }
        while let Some(release) = releases.join_next().await {
            assert!(release??.is_released());
        }
        let released = per_second(GUARDS, began.elapsed());

        let guards = acquire(&self.mutexes).await?;
        let began = Instant::now();
        drop(guards);
        // The parents of the contenders remain.
        while self.socket.descendants(PARENT).await? > GUARDS {
            tokio::time::sleep(POLL).await;
        }
        Ok([acquired, released, per_second(GUARDS, began.elapsed())])
    }

    async fn measure_socket(&mut self) -> Result<Speeds> {
        let began = Instant::now();
        let nodes = self.socket.join_all(&self.paths).await?;
        let acquired = per_second(GUARDS, began.elapsed());
        let began = Instant::now();
        self.socket.delete_all(&nodes).await?;
        let released = per_second(GUARDS, began.elapsed());
        // A drop sends what a release sends.
        Ok([acquired, released, released])
    }
}

pub(crate) async fn of_guards(suite: &Suite, server: SocketAddr, report: &mut Report) -> Result<()> {
    let client = connect(&server.to_string(), SESSION).await?;
    let paths: Vec<_> = (0..GUARDS).map(|path| format!("{PARENT}/{path}")).collect();
    let mutexes = paths.iter().map(|path| Ok(InterProcessMutex::new(client.clone(), path)?)).collect::<Result<_>>()?;
    let mut socket = Socket::connect(server).await?;
    socket.create_parent(PARENT).await?;
    for path in &paths {
        socket.create_parent(path).await?;
    }
    let mut locks = Locks { mutexes, paths, socket };
    let sides: Vec<_> = [OURS, TOKIO_SOCKETS].into_iter().filter(|side| suite.has(side)).collect();
    let mut rows = <[Figures; 3]>::default();
    for turn in suite.turns(sides.len()) {
        let side = sides[turn.side];
        let speeds = if side == OURS { locks.measure_locks().await? } else { locks.measure_socket().await? };
        if turn.counts {
            rows.iter_mut().zip(speeds).for_each(|(row, speed)| row.add(side, speed));
        }
    }
    locks.socket.close().await?;
    client.close().await;
    report.table(&format!("{GUARDS} guards of different paths, guards/s"), &sides, &[TOKIO_SOCKETS]);
    for (title, figures) in ["acquired", "released", "dropped"].into_iter().zip(&rows) {
        report.row(&format!("{GUARDS} guards of different paths: {title}"), figures, Target::AtLeast(LEAST));
    }
    Ok(())
}

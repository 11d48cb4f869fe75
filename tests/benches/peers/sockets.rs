//! The least that a lock can cost: the requests of this project's locks over bare sockets, a thread each, with nothing
//! between the recipe and the system. It survives nothing, and tells how much of the rest is the server's own.

use std::sync::{Arc, Barrier};
use std::time::Instant;

use async_trait::async_trait;
use curator_test::wire::OpCode;

use crate::ours::LEASES;
use crate::peer::{Peer, Run, SOCKETS};
use crate::socket::{Result, Socket, names, place_of};
use crate::workload::{Outcome, Workload};

pub(crate) struct BareSockets;

/// A session and the names of its nodes.
struct Contender {
    socket: Socket,
    owner: usize,
}

impl Contender {
    /// Waits for a notification of this path.
    fn notification(&mut self, path: &str) -> Result<()> {
        while !self.socket.notified.iter().any(|of| of == path) {
            self.socket.receive()?;
        }
        self.socket.notified.clear();
        Ok(())
    }

    fn join(&mut self, parent: &str, name: &str) -> Result<(String, Vec<String>)> {
        let prefix = format!("{parent}/_c_{:036}-{name}-", self.owner);
        self.socket.join(parent, &prefix)
    }

    fn list(&mut self, parent: &str, watch: bool) -> Result<Vec<String>> {
        self.socket.request_list(parent, watch);
        self.socket.flush()?;
        let children = names(&self.socket.reply()?.1);
        // The listing is newer than the notifications before it.
        self.socket.notified.clear();
        children
    }

    /// Waits until a node is gone.
    fn wait_for(&mut self, path: &str) -> Result<()> {
        self.socket.request(OpCode::GetData, |to| _ = to.string(path).bool(true));
        self.socket.flush()?;
        match self.socket.reply()?.0 {
            0 => self.notification(path),
            _ => Ok(()),
        }
    }

    /// A mutex: the node that has it.
    fn lock(&mut self, parent: &str) -> Result<String> {
        let (own, mut children) = self.join(parent, "lock")?;
        loop {
            let place = place_of(&own, &mut children)?;
            if place == 0 {
                return Ok(own);
            }
            let alone = place == 1;
            self.wait_for(&format!("{parent}/{}", children[place - 1]))?;
            if alone {
                return Ok(own);
            }
            children = self.list(parent, false)?;
        }
    }

    /// A lease, under the lock that is given back then.
    fn lease(&mut self, path: &str) -> Result<String> {
        let turn = self.lock(&format!("{path}/locks"))?;
        let parent = format!("{path}/leases");
        let (own, mut children) = self.join(&parent, "lease")?;
        let mut is_watched = false;
        while children.len() > LEASES {
            if is_watched {
                self.notification(&parent)?;
            }
            children = self.list(&parent, true)?;
            is_watched = true;
        }
        self.socket.delete(&turn)?;
        Ok(own)
    }

    /// A lease of the direct protocol, where nobody keeps one.
    fn direct_lease(&mut self, path: &str) -> Result<String> {
        let parent = format!("{path}/leases");
        let (own, mut children) = self.join(&parent, "lease")?;
        loop {
            let place = place_of(&own, &mut children)?;
            if place < LEASES {
                return Ok(own);
            }
            if place == LEASES {
                children = self.list(&parent, true)?;
                if place_of(&own, &mut children)? < LEASES {
                    return Ok(own);
                }
                self.notification(&parent)?;
            } else {
                self.wait_for(&format!("{parent}/{}", children[place - 1]))?;
            }
            children = self.list(&parent, false)?;
        }
    }
}

fn compete(workload: Workload, run: &Run) -> Result<Outcome> {
    let parents = match workload {
        Workload::Semaphore | Workload::DirectSemaphore => {
            vec![run.path.clone(), format!("{}/locks", run.path), format!("{}/leases", run.path)]
        }
        _ => vec![run.path.clone()],
    };
    let connect = |owner| Ok(Contender { socket: Socket::connect(run.server)?, owner });
    let mut contenders = (0..run.size).map(connect).collect::<Result<Vec<_>>>()?;
    for parent in parents {
        contenders[0].socket.create_parent(&parent)?;
    }
    let begin = Arc::new(Barrier::new(run.size + 1));
    let threads: Vec<_> = contenders
        .into_iter()
        .map(|mut contender| {
            let (begin, run) = (Arc::clone(&begin), run.clone());
            std::thread::spawn(move || {
                begin.wait();
                let began = Instant::now();
                let mut cycles = 0;
                while began.elapsed() < run.time {
                    let node = match workload {
                        Workload::Semaphore => contender.lease(&run.path)?,
                        Workload::DirectSemaphore => contender.direct_lease(&run.path)?,
                        _ => contender.lock(&run.path)?,
                    };
                    contender.socket.delete(&node)?;
                    cycles += 1;
                }
                contender.socket.close()?;
                Result::Ok(cycles)
            })
        })
        .collect();
    let began = Instant::now();
    begin.wait();
    let mut cycles = 0;
    for thread in threads {
        cycles += thread.join().map_err(|_| "a thread panicked")??;
    }
    Ok(Outcome::Cycles(cycles, began.elapsed()))
}

#[async_trait]
impl Peer for BareSockets {
    fn name(&self) -> &'static str {
        SOCKETS
    }

    fn does(&self, workload: Workload) -> bool {
        use Workload::{Alone, AloneFar, Contended, ContendedFar, DirectSemaphore, Semaphore};
        matches!(workload, Alone | AloneFar | Contended | ContendedFar | Semaphore | DirectSemaphore)
    }

    async fn run(&mut self, workload: Workload, run: &Run) -> Result<Outcome> {
        let run = run.clone();
        tokio::task::spawn_blocking(move || compete(workload, &run)).await?
    }
}

//! The least that a lock can cost: the requests of this project's locks over bare sockets, a thread each, with nothing
//! between the recipe and the system. It survives nothing, and tells how much of the rest is the server's own.

use std::collections::VecDeque;
use std::io::{BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::{Arc, Barrier};
use std::time::Instant;

use async_trait::async_trait;
use curator_test::wire::{
    Acl, ConnectRequest, OpCode, Reader, ReplyHeader, RequestHeader, WatchEvent, Writer, XID_EVENT,
};

use crate::bare::place_of;
use crate::ours::LEASES;
use crate::peer::{Peer, Result, Run};
use crate::workload::{Outcome, Workload};

pub(crate) struct BareSockets;

/// A session.
struct Connection {
    stream: BufReader<TcpStream>,
    /// Makes the names of its nodes its own.
    owner: usize,
    /// Replies that came before somebody asked for them.
    replies: VecDeque<(i32, Vec<u8>)>,
    /// Of which nodes events came.
    events: Vec<String>,
}

const EPHEMERAL_SEQUENTIAL: i32 = 3;

impl Connection {
    fn open(server: SocketAddr, owner: usize) -> Result<Self> {
        let stream = TcpStream::connect(server)?;
        stream.set_nodelay(true)?;
        let mut own = Self { stream: BufReader::new(stream), owner, replies: VecDeque::new(), events: Vec::new() };
        let mut frame = Writer::new();
        let request = ConnectRequest { timeout_ms: 60_000, password: vec![0; 16], ..ConnectRequest::default() };
        request.encode(&mut frame);
        own.write(&[frame])?;
        own.read()?;
        Ok(own)
    }

    /// All frames in one write.
    fn write(&mut self, frames: &[Writer]) -> Result<()> {
        let mut bytes = Vec::new();
        for frame in frames {
            let frame = frame.clone().into_bytes();
            bytes.extend(u32::try_from(frame.len())?.to_be_bytes());
            bytes.extend(frame);
        }
        Ok(self.stream.get_mut().write_all(&bytes)?)
    }

    fn read(&mut self) -> Result<Vec<u8>> {
        let mut length = [0; 4];
        self.stream.read_exact(&mut length)?;
        let mut frame = vec![0; u32::from_be_bytes(length) as usize];
        self.stream.read_exact(&mut frame)?;
        Ok(frame)
    }

    /// Reads a reply or an event.
    fn receive(&mut self) -> Result<()> {
        let mut frame = self.read()?;
        let mut reader = Reader::new(&frame);
        let header = ReplyHeader::decode(&mut reader)?;
        if header.xid == XID_EVENT {
            self.events.push(WatchEvent::decode(&mut reader)?.path);
        } else {
            self.replies.push_back((header.err, frame.split_off(16)));
        }
        Ok(())
    }

    /// The next reply: its error and its body.
    fn reply(&mut self) -> Result<(i32, Vec<u8>)> {
        loop {
            if let Some(reply) = self.replies.pop_front() {
                return Ok(reply);
            }
            self.receive()?;
        }
    }

    fn event(&mut self, path: &str) -> Result<()> {
        while !self.events.iter().any(|of| of == path) {
            self.receive()?;
        }
        self.events.clear();
        Ok(())
    }

    fn create(&mut self, path: &str, flags: i32, then_list: Option<&str>) -> Result<(String, Vec<String>)> {
        let mut frame = request(OpCode::Create2);
        frame.string(path).buffer(b"127.0.0.1").vector(&[Acl::open()], |to, acl| acl.encode(to)).int(flags);
        let mut frames = vec![frame];
        frames.extend(then_list.map(|parent| list(parent, false)));
        self.write(&frames)?;
        let (error, body) = self.reply()?;
        let created = match error {
            0 => Reader::new(&body).string()?.to_owned(),
            _ => String::new(),
        };
        let children = if then_list.is_some() { names(&self.reply()?.1)? } else { Vec::new() };
        Ok((created, children))
    }

    fn list(&mut self, parent: &str, watch: bool) -> Result<Vec<String>> {
        self.write(&[list(parent, watch)])?;
        let children = names(&self.reply()?.1);
        // What they told is in the list.
        self.events.clear();
        children
    }

    /// Waits until a node is gone.
    fn wait_for(&mut self, path: &str) -> Result<()> {
        let mut frame = request(OpCode::GetData);
        frame.string(path).bool(true);
        self.write(&[frame])?;
        match self.reply()?.0 {
            0 => self.event(path),
            _ => Ok(()),
        }
    }

    fn delete(&mut self, path: &str) -> Result<()> {
        let mut frame = request(OpCode::Delete);
        frame.string(path).int(-1);
        self.write(&[frame])?;
        let (error, _) = self.reply()?;
        if error == 0 { Ok(()) } else { Err(format!("{path}: error {error}").into()) }
    }

    /// A mutex: the node that has it.
    fn lock(&mut self, parent: &str) -> Result<String> {
        let path = format!("{parent}/_c_{:036}-lock-", self.owner);
        let (own, mut children) = self.create(&path, EPHEMERAL_SEQUENTIAL, Some(parent))?;
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
        let name = format!("{parent}/_c_{:036}-lease-", self.owner);
        let (own, mut children) = self.create(&name, EPHEMERAL_SEQUENTIAL, Some(&parent))?;
        let mut is_watched = false;
        while children.len() > LEASES {
            if is_watched {
                self.event(&parent)?;
            }
            children = self.list(&parent, true)?;
            is_watched = true;
        }
        self.delete(&turn)?;
        Ok(own)
    }

    /// A lease of the direct protocol, where nobody keeps one.
    fn direct_lease(&mut self, path: &str) -> Result<String> {
        let parent = format!("{path}/leases");
        let name = format!("{parent}/_c_{:036}-lease-", self.owner);
        let (own, mut children) = self.create(&name, EPHEMERAL_SEQUENTIAL, Some(&parent))?;
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
                self.event(&parent)?;
            } else {
                self.wait_for(&format!("{parent}/{}", children[place - 1]))?;
            }
            children = self.list(&parent, false)?;
        }
    }
}

fn request(op: OpCode) -> Writer {
    let mut frame = Writer::new();
    // The server answers in order.
    RequestHeader { xid: 1, op }.encode(&mut frame);
    frame
}

fn list(parent: &str, watch: bool) -> Writer {
    let mut frame = request(OpCode::GetChildren);
    frame.string(parent).bool(watch);
    frame
}

fn names(body: &[u8]) -> Result<Vec<String>> {
    Ok(Reader::new(body).vector(|from| Ok(from.string()?.to_owned()))?)
}

fn compete(workload: Workload, run: &Run) -> Result<Outcome> {
    let parents = match workload {
        Workload::Semaphore | Workload::DirectSemaphore => {
            vec![run.path.clone(), format!("{}/locks", run.path), format!("{}/leases", run.path)]
        }
        _ => vec![run.path.clone()],
    };
    let mut connections = (0..run.size).map(|owner| Connection::open(run.server, owner)).collect::<Result<Vec<_>>>()?;
    for parent in parents {
        connections[0].create(&parent, 0, None)?;
    }
    let begin = Arc::new(Barrier::new(run.size + 1));
    let threads: Vec<_> = connections
        .into_iter()
        .map(|mut connection| {
            let (begin, run) = (Arc::clone(&begin), run.clone());
            std::thread::spawn(move || {
                begin.wait();
                let began = Instant::now();
                let mut cycles = 0;
                while began.elapsed() < run.time {
                    let node = match workload {
                        Workload::Semaphore => connection.lease(&run.path)?,
                        Workload::DirectSemaphore => connection.direct_lease(&run.path)?,
                        _ => connection.lock(&run.path)?,
                    };
                    connection.delete(&node)?;
                    cycles += 1;
                }
                connection.write(&[request(OpCode::CloseSession)])?;
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
        "bare sockets"
    }

    fn does(&self, workload: Workload) -> bool {
        use Workload::{Alone, Contended, DirectSemaphore, Semaphore};
        matches!(workload, Alone | Contended | Semaphore | DirectSemaphore)
    }

    async fn run(&mut self, workload: Workload, run: &Run) -> Result<Outcome> {
        let run = run.clone();
        tokio::task::spawn_blocking(move || compete(workload, &run)).await?
    }
}

//! One direction of a connection: bytes that were read from one side and not yet written to the other.

use std::collections::VecDeque;
use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use tokio::net::TcpStream;
use tokio::time::Instant;

use super::Speech;
use crate::wire::{DecodeError, Reader, Writer};

/// More than any server accepts or sends. A larger length means another protocol, such as a four-letter command.
const MAX_FRAME: usize = 64 << 20;
/// The number of chunks that may wait before reading pauses.
const MAX_CHUNKS: usize = 1024;
const LENGTH: usize = 4;

/// The end of a direction by its sender.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum End {
    Closed,
    Broken,
}

/// Bytes to be passed on in one piece.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Chunk {
    pub(super) due: Instant,
    /// Includes the length in front, if it is a frame.
    pub(super) bytes: Vec<u8>,
    pub(super) is_frame: bool,
}

impl Chunk {
    /// Returns the content of the frame.
    pub(super) fn frame(&self) -> Option<&[u8]> {
        self.is_frame.then(|| &self.bytes[LENGTH..])
    }
}

#[derive(Debug, Default)]
pub(super) struct Lane {
    framing: Framing,
    chunks: VecDeque<Chunk>,
    /// The part of a chunk that the other side has not accepted yet.
    unsent: Vec<u8>,
    has_received: bool,
    end: Option<End>,
    /// True once the end was passed on.
    pub(super) closed: bool,
}

impl Lane {
    /// Creates the direction from the connecting side to its peer.
    pub(super) fn up(speech: Speech) -> Self {
        let framing = match speech {
            Speech::Client => Framing::default(),
            Speech::Quorum => Framing { mode: Mode::Raw, ..Framing::default() },
            Speech::Election { announced } => Framing { mode: Mode::Opening { announced }, ..Framing::default() },
        };
        Self { framing, ..Self::default() }
    }

    /// Creates the direction from the peer to the connecting side.
    pub(super) fn down(speech: Speech) -> Self {
        let mode = if speech == Speech::Client { Mode::Frames } else { Mode::Raw };
        Self { framing: Framing { mode, ..Framing::default() }, ..Self::default() }
    }

    pub(super) fn wants_input(&self) -> bool {
        self.end.is_none() && self.chunks.len() < MAX_CHUNKS
    }

    /// Reads all received bytes. Each frame is due after `latency`, the first one after `first_extra` more, and none
    /// before its predecessor.
    pub(super) fn receive(&mut self, from: &TcpStream, latency: Duration, first_extra: Duration) {
        let mut buffer = [0; 16 << 10];
        while self.wants_input() {
            match from.try_read(&mut buffer) {
                Ok(0) => self.end = Some(End::Closed),
                Ok(count) => self.framing.push(&buffer[..count]),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(_) => self.end = Some(End::Broken),
            }
            let now = Instant::now();
            while let Some((bytes, is_frame)) = self.framing.next(self.end.is_some()) {
                let mut due = now + latency;
                if !std::mem::replace(&mut self.has_received, true) {
                    due += first_extra;
                }
                if let Some(last) = self.chunks.back() {
                    due = due.max(last.due);
                }
                self.chunks.push_back(Chunk { due, bytes, is_frame });
            }
        }
    }

    /// Returns the time of the next action without input; `None` if none is due.
    pub(super) fn due(&self) -> Option<Instant> {
        let first = self.chunks.front()?;
        self.unsent.is_empty().then_some(first.due)
    }

    /// Takes the next chunk if it is due.
    pub(super) fn take_due(&mut self, now: Instant) -> Option<Chunk> {
        if self.chunks.front()?.due > now {
            return None;
        }
        self.chunks.pop_front()
    }

    pub(super) fn is_blocked(&self) -> bool {
        !self.unsent.is_empty()
    }

    pub(super) fn has_chunks(&self) -> bool {
        !self.chunks.is_empty()
    }

    /// Passes `bytes` on; bytes that the other side does not accept now wait for [`flush`](Self::flush).
    pub(super) fn send(&mut self, to: &TcpStream, bytes: Vec<u8>) -> io::Result<()> {
        self.unsent = bytes;
        self.flush(to)
    }

    pub(super) fn flush(&mut self, to: &TcpStream) -> io::Result<()> {
        while self.is_blocked() {
            match to.try_write(&self.unsent) {
                Ok(count) => drop(self.unsent.drain(..count)),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(()),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    /// Returns the end, once all bytes before it were passed on.
    pub(super) fn end(&self) -> Option<End> {
        let drained = self.chunks.is_empty() && self.unsent.is_empty();
        self.end.filter(|_| drained)
    }

    pub(super) fn has_ended(&self) -> bool {
        self.end.is_some()
    }
}

/// Cuts a stream of bytes into frames.
#[derive(Debug, Default)]
struct Framing {
    bytes: Vec<u8>,
    mode: Mode,
}

#[derive(Debug, Default, Clone, Copy)]
enum Mode {
    #[default]
    Frames,
    /// The first message of an election link, then raw bytes.
    Opening { announced: SocketAddr },
    /// Bytes pass as they arrive. This is also the mode after bytes that are not a frame.
    Raw,
}

impl Framing {
    fn push(&mut self, bytes: &[u8]) {
        self.bytes.extend_from_slice(bytes);
    }

    /// Returns the next frame with its length, or bytes that are not a frame. With `ended` also a part of a frame.
    fn next(&mut self, ended: bool) -> Option<(Vec<u8>, bool)> {
        match self.mode {
            Mode::Raw => {}
            Mode::Frames => {
                if let Some(length) = self.bytes.first_chunk::<LENGTH>() {
                    match usize::try_from(i32::from_be_bytes(*length)) {
                        Ok(length) if length <= MAX_FRAME => {
                            if self.bytes.len() >= LENGTH + length {
                                let rest = self.bytes.split_off(LENGTH + length);
                                return Some((std::mem::replace(&mut self.bytes, rest), true));
                            }
                        }
                        _ => self.mode = Mode::Raw,
                    }
                }
            }
            Mode::Opening { announced } => match announce(&self.bytes, announced) {
                Ok(bytes) => {
                    self.bytes = bytes;
                    self.mode = Mode::Raw;
                }
                Err(DecodeError::Truncated { .. }) => {}
                // It is another protocol.
                Err(_) => self.mode = Mode::Raw,
            },
        }
        let whatever = (matches!(self.mode, Mode::Raw) || ended) && !self.bytes.is_empty();
        whatever.then(|| (std::mem::take(&mut self.bytes), false))
    }
}

/// Puts `announced` in place of the address in the first message of an election link.
///
/// The message is a version, which is negative, the number of the connecting server and the address where it listens. A
/// server with a higher number closes the connection and connects to that address instead.
fn announce(bytes: &[u8], announced: SocketAddr) -> Result<Vec<u8>, DecodeError> {
    let mut reader = Reader::new(bytes);
    let (version, server) = (reader.long()?, reader.long()?);
    reader.buffer()?;
    let mut changed = Writer::new();
    changed.long(version).long(server).string(&announced.to_string()).raw(reader.rest());
    Ok(changed.into_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn all(framing: &mut Framing, ended: bool) -> Vec<(Vec<u8>, bool)> {
        std::iter::from_fn(|| framing.next(ended)).collect()
    }

    #[test]
    fn frames_are_cut_wherever_the_reads_were() {
        let stream = [0, 0, 0, 2, 7, 8, 0, 0, 0, 0, 0, 0, 0, 1, 9];
        let frames = vec![(vec![0, 0, 0, 2, 7, 8], true), (vec![0, 0, 0, 0], true), (vec![0, 0, 0, 1, 9], true)];
        for size in 1..=stream.len() {
            let mut framing = Framing::default();
            let mut found = Vec::new();
            for piece in stream.chunks(size) {
                framing.push(piece);
                found.extend(all(&mut framing, false));
            }
            assert_eq!(found, frames, "in pieces of {size}");
        }
    }

    #[test]
    fn four_letter_command_passes_as_it_is() {
        let mut framing = Framing::default();
        framing.push(b"ruok");
        assert_eq!(all(&mut framing, false), [(b"ruok".to_vec(), false)]);
        framing.push(b"\n");
        assert_eq!(all(&mut framing, false), [(b"\n".to_vec(), false)]);
    }

    #[test]
    fn part_of_a_frame_is_passed_at_the_end() {
        let mut framing = Framing::default();
        framing.push(&[0, 0, 0, 9, 1]);
        assert_eq!(all(&mut framing, false), []);
        assert_eq!(all(&mut framing, true), [(vec![0, 0, 0, 9, 1], false)]);
    }

    #[test]
    fn opening_of_an_election_link_names_the_given_address() {
        let opening = |address: &str| {
            let mut opening = Writer::new();
            opening.long(-65536).long(2).string(address);
            opening.into_bytes()
        };
        // The bytes after the message may have any form.
        let stream = [opening("127.0.0.1:15000"), vec![0, 0, 0, 9, 1]].concat();
        let expected = [opening("127.0.0.1:9"), vec![0, 0, 0, 9, 1]].concat();
        for size in 1..=stream.len() {
            let mut framing =
                Framing { mode: Mode::Opening { announced: ([127, 0, 0, 1], 9).into() }, ..Framing::default() };
            let mut found = Vec::new();
            for piece in stream.chunks(size) {
                framing.push(piece);
                found.extend(all(&mut framing, false).into_iter().flat_map(|(bytes, _)| bytes));
            }
            assert_eq!(found, expected, "in pieces of {size}");
        }
    }

    #[test]
    fn quorum_link_is_passed_as_it_comes() {
        // The start of a packet, which looks like the length of a frame.
        let mut lane = Lane::up(Speech::Quorum);
        lane.framing.push(&[0, 0, 0, 11, 0]);
        assert_eq!(all(&mut lane.framing, false), [(vec![0, 0, 0, 11, 0], false)]);
    }
}

//! The bytes of the server: frames, replies and notifications.

use std::time::Duration;

use curator_wire::{ConnectResponse, Reader, ReplyHeader, XID_AUTH, XID_EVENT, XID_PING, XID_SET_WATCHES};

use super::connection::{
    Asked, Outstanding, Phase, THROTTLED, THROTTLED_PAUSE, Violation, left_by, path_of_read, refused_watches,
};
use super::machine::{Event, Protocol};
use crate::error::Error;
use crate::model::AddWatchMode;
use crate::zookeeper::client::records;
use crate::zookeeper::{Reply, Response, SINCE_3_6, SessionEnd};

/// A connect response has 36 or 37 bytes; a frame that is much longer is not one.
const CONNECT_RESPONSE: std::ops::RangeInclusive<usize> = 36..=1024;
/// The longest frame that is skipped: a server that announces more is not one.
const LONGEST_SKIP: usize = 1 << 30;
/// The bytes of a [`ReplyHeader`].
const REPLY_HEADER: usize = 16;

impl<T> Protocol<T> {
    /// Takes all whole frames, and returns the number of their bytes.
    ///
    /// # Errors
    ///
    /// A [`Violation`] by the server: the socket task must close the connection.
    pub(crate) fn receive(&mut self, bytes: &[u8], now: Duration) -> Result<usize, Violation> {
        let mut consumed = 0;
        if let Some(connection) = &mut self.connection {
            connection.heard = connection.heard.max(now);
        }
        while let Some(connection) = &mut self.connection {
            let skipped = connection.skips.min(bytes.len() - consumed);
            connection.skips -= skipped;
            consumed += skipped;
            let Some((length, rest)) = bytes[consumed..].split_first_chunk::<4>() else { break };
            let length = self.frame_length(i32::from_be_bytes(*length))?;
            if length > self.settings.max_reply {
                let Some(header) = rest.get(..REPLY_HEADER) else { break };
                consumed += 4 + REPLY_HEADER;
                self.skip(header, length, now)?;
                continue;
            }
            let Some(frame) = rest.get(..length) else { break };
            consumed += 4 + length;
            self.take_frame(frame, now)?;
        }
        Ok(consumed)
    }

    /// Ends the oldest request, because its reply is above the limit, and skips the rest of the reply. A read has
    /// changed nothing, so the connection stays open.
    fn skip(&mut self, header: &[u8], length: usize, now: Duration) -> Result<(), Violation> {
        let limit = self.settings.max_reply;
        let bad = |error| Violation(format!("a bad reply header: {error}"));
        let header = ReplyHeader::decode(&mut Reader::new(header)).map_err(bad)?;
        let above = || Violation(format!("a frame of {length} bytes is above the limit of {limit}"));
        let connection = self.connection.as_mut().ok_or_else(above)?;
        let path = match connection.outstanding.front() {
            Some(Outstanding { xid, offset, asked: Asked::Request(request, _), .. })
                if *xid == header.xid && header.err == 0 && *offset < connection.written =>
            {
                path_of_read(request).ok_or_else(above)?
            }
            _ => return Err(above()),
        };
        let error = Error::ReplyTooLarge { path: path.into(), size: length, limit };
        connection.skips = length - REPLY_HEADER;
        self.last_seen = self.last_seen.max(header.zxid);
        let oldest = self.connection.as_mut().and_then(|connection| connection.outstanding.pop_front());
        if let Some(Outstanding { sent, asked: Asked::Request(_, token), .. }) = oldest {
            let reply = Reply { sent: Some(sent), epoch: self.epoch, zxid: header.zxid, result: Err(error) };
            self.events.push_back(Event::Reply(token, reply));
        }
        self.send_waiting(now);
        Ok(())
    }

    fn frame_length(&self, length: i32) -> Result<usize, Violation> {
        let is_first = self.is_connecting();
        if is_first && self.connection.as_ref().is_none_or(|connection| connection.written == 0) {
            // A response is evidence only if its request was sent before.
            return Err(Violation::new("it spoke first"));
        }
        match usize::try_from(length) {
            Ok(length) if is_first && !CONNECT_RESPONSE.contains(&length) => {
                Err(Violation::new("it does not speak ZooKeeper's protocol"))
            }
            Ok(length) if length <= LONGEST_SKIP => Ok(length),
            Ok(length) => Err(Violation(format!("a frame of {length} bytes is above the limit of {LONGEST_SKIP}"))),
            Err(_negative) => Err(Violation(format!("a frame of negative length {length}"))),
        }
    }

    /// Returns `true` if the connect response is outstanding.
    pub(crate) fn is_connecting(&self) -> bool {
        self.connection.as_ref().is_some_and(|connection| matches!(connection.phase, Phase::Connecting))
    }

    fn take_frame(&mut self, frame: &[u8], now: Duration) -> Result<(), Violation> {
        let mut from = Reader::new(frame);
        let bad = |what: &str, error: &dyn std::fmt::Display| Violation(format!("a bad {what}: {error}"));
        if self.is_connecting() {
            let response = ConnectResponse::decode(&mut from).map_err(|error| bad("connect response", &error))?;
            return self.connected(response, now);
        }
        let header = ReplyHeader::decode(&mut from).map_err(|error| bad("reply header", &error))?;
        if header.xid != XID_EVENT {
            self.last_seen = self.last_seen.max(header.zxid);
        }
        match header.xid {
            XID_EVENT => {
                let event = records::decode_event(&mut from).map_err(|error| bad("notification", &error))?;
                event.into_iter().for_each(|event| self.notified(event));
                Ok(())
            }
            XID_PING => {
                let ping = self.connection.as_mut().and_then(|connection| connection.pings.pop_front());
                if let Some((token, sent)) = ping {
                    let reply = Reply {
                        sent: Some(sent),
                        epoch: self.epoch,
                        zxid: header.zxid,
                        result: Ok(Response::Acknowledged),
                    };
                    self.events.push_back(Event::Reply(token, reply));
                } else if self.over.is_none() {
                    return Err(Violation::new("a reply to a ping that was not sent"));
                }
                Ok(())
            }
            XID_AUTH => self.authorized(header.err, now),
            XID_SET_WATCHES if ![0, THROTTLED].contains(&header.err) => refused_watches(header.err),
            XID_SET_WATCHES => {
                if let (THROTTLED, Some(connection)) = (header.err, &mut self.connection) {
                    connection.throttled_until = Some(now + THROTTLED_PAUSE);
                }
                self.restored(now)
            }
            _ => self.replied(header, &mut from, now),
        }
    }

    fn replied(&mut self, header: ReplyHeader, from: &mut Reader<'_>, now: Duration) -> Result<(), Violation> {
        let Some(connection) = &mut self.connection else { return Ok(()) };
        let index = connection.answered_by(&header)?;
        let outstanding = &mut connection.outstanding;
        let bad = |request: &dyn std::fmt::Display, error| Violation(format!("a bad reply to {request}: {error}"));
        let result = match &outstanding[index].asked {
            Asked::Request(request, _) if header.err == 0 => {
                Some(records::decode(request, from).map_err(|error| bad(request, error))?)
            }
            Asked::Request(request, _) => Some(records::decode_error(request, header.err)),
            _ => None,
        };
        let Some(Outstanding { sent, asked, size, .. }) = outstanding.remove(index) else { return Ok(()) };
        if let Asked::Compare(question) = asked {
            return self.compared(question, header.err, from, now);
        }
        self.send_waiting(now);
        let epoch = self.epoch;
        let reply = |result| Reply { sent: Some(sent), epoch, zxid: header.zxid, result };
        match (asked, result) {
            (Asked::Request(request, token), Some(result)) => {
                if let Some((path, left)) = left_by(&request, &result) {
                    self.watching.armed.arm(path, left);
                }
                if self.connection.as_ref().is_some_and(|connection| !connection.read_only) {
                    self.history.replied(&request, &result, header.zxid);
                }
                // A request that was answered since has not ended the connection.
                self.suspect.take_if(|suspect| suspect.1 == size && suspect.0 == request.to_string());
                let expired = matches!(result, Err(Error::SessionExpired { .. }));
                self.events.push_back(Event::Reply(token, reply(result)));
                if expired {
                    self.end(SessionEnd::Expired);
                }
            }
            (Asked::AddWatch { path, mode, sent, id, token }, _) => {
                let result = match header.err {
                    0 => Ok(self.added(&path, sent, id, now)),
                    code => {
                        self.refused(&path, mode, id, now);
                        Err(Error::of_code(&path, code, SINCE_3_6, || format!("addWatch {path}")))
                    }
                };
                self.events.push_back(Event::Reply(token, reply(result)));
            }
            (Asked::RemoveWatch { path, kind: Some(kind) }, _) => self.watching.armed.disarm(&path, kind),
            (Asked::RemoveWatch { path, kind: None } | Asked::Replace(path), _) if header.err == THROTTLED => {
                self.throttled(path, now);
            }
            (Asked::RemoveWatch { path, kind: None }, _) => self.report_removed(&path),
            (Asked::Replace(path), _) if header.err == 0 => self.is_set(&path, AddWatchMode::Persistent),
            (Asked::Known { id, zxid, persistent }, _) => return self.known_set(id, zxid, &persistent, header.err),
            (Asked::Sasl, _) => return self.challenged(header.err, from),
            (Asked::Close, _) => self.events.push_back(Event::Closed),
            _ => {}
        }
        Ok(())
    }
}

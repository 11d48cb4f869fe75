//! The reads that a cache asks for. One request has many of them, which saves most of the processor time of a load, in
//! the client and in the server.

use std::sync::Arc;

use curator_framework::spi::Read;
use curator_framework::{Error, MultiReadResult, Stat};
use futures_util::future::BoxFuture;
use futures_util::stream::{FuturesUnordered, StreamExt as _};

use crate::standing::source::Reads;

/// The limit of reads in one request.
const MOST: usize = 16;
/// A reply of more data makes the next requests smaller: the other replies of the client wait for its transfer.
const LARGE: usize = 64 * 1024;

/// A read of a cache.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) enum Request {
    /// Reads the data and the stat of a node.
    Read(Arc<str>),
    /// Lists the children of a node.
    List(Arc<str>),
}

impl Request {
    pub(super) const fn path(&self) -> &Arc<str> {
        match self {
            Self::Read(path) | Self::List(path) => path,
        }
    }
}

/// The reply to a read; `None` if the node does not exist.
pub(super) enum Reply {
    Node(Option<(Stat, Vec<u8>)>),
    /// The data of the node cannot be decoded.
    Undecodable(Stat, Error),
    Children(Option<Vec<String>>),
}

impl Reply {
    fn bytes(&self) -> usize {
        match self {
            Self::Node(Some((_, data))) => data.len(),
            Self::Children(Some(names)) => names.iter().map(String::len).sum(),
            _ => 0,
        }
    }
}

/// The number of reads in the next request. It follows from the sizes of the replies, because the sizes of nodes are not
/// known before they are read.
#[derive(Debug)]
pub(super) struct BatchSize {
    reads: usize,
    /// Half of the reads that have failed together; one more with each full request since.
    most: usize,
    /// The number of the next reads that are sent alone: they have failed together.
    alone: usize,
    has_multi_read: bool,
}

impl Default for BatchSize {
    fn default() -> Self {
        Self { reads: MOST, most: MOST, alone: 0, has_multi_read: true }
    }
}

impl BatchSize {
    /// Returns the number of reads for the next request.
    pub(super) const fn get(&self) -> usize {
        if self.alone > 0 { 1 } else { self.reads }
    }

    /// A request with so many reads was sent.
    pub(super) fn sent(&mut self, reads: usize) {
        self.alone = self.alone.saturating_sub(reads);
    }

    /// Follows the size of the reply to so many reads.
    pub(super) fn replied(&mut self, reads: usize, bytes: usize) {
        if bytes >= LARGE {
            self.reads = (reads * LARGE / bytes).clamp(1, self.most);
        } else if reads >= self.reads && self.has_multi_read {
            if self.reads == self.most {
                self.most = (self.most + 1).min(MOST);
            }
            self.reads = (self.reads * 2).min(self.most);
        }
    }

    /// A request with so many reads has failed as a whole, with an error that does not pass. They are sent alone.
    pub(super) fn failed(&mut self, reads: usize, error: &Error) {
        self.has_multi_read &= !matches!(error, Error::Unsupported { .. });
        self.most = if self.has_multi_read { (reads / 2).max(1) } else { 1 };
        self.reads = self.reads.min(self.most);
        self.alone += reads;
    }
}

/// A request that has ended.
pub(super) struct Completed {
    pub(super) requests: Vec<Request>,
    /// The number of the connection on which it started.
    pub(super) epoch: u64,
    /// The data in the reply.
    pub(super) bytes: usize,
    /// The reply to each read, or the error of all.
    pub(super) replies: Result<Vec<Result<Reply, Error>>, Error>,
}

/// The requests in flight.
#[derive(Default)]
pub(super) struct InFlight {
    requests: FuturesUnordered<BoxFuture<'static, Completed>>,
    reads: usize,
}

impl InFlight {
    /// Returns the number of reads.
    pub(super) const fn len(&self) -> usize {
        self.reads
    }

    pub(super) fn push(&mut self, reads: usize, request: BoxFuture<'static, Completed>) {
        self.requests.push(request);
        self.reads += reads;
    }

    /// Resolves with the next request that has ended; `None` without requests.
    pub(super) async fn next(&mut self) -> Option<Completed> {
        let completed = self.requests.next().await?;
        self.reads -= completed.requests.len();
        Some(completed)
    }

    /// Drops the requests, so that their replies are ignored.
    pub(super) fn clear(&mut self) {
        *self = Self::default();
    }
}

/// Sends reads with these full paths. The codec may be code of the program, which blocks: so it is called here, without
/// the cache's lock.
pub(super) async fn send(
    reads: Reads,
    requests: Vec<(Request, String)>,
    epoch: u64,
    decode: impl Fn(&str, Vec<u8>) -> Result<Vec<u8>, Error>,
) -> Completed {
    let replies = match &*requests {
        [(request, path)] => match read_one(&reads, path, request).await {
            reply if reply.as_ref().is_err_and(Error::is_retryable) => reply.map(|_| Vec::new()),
            reply => Ok(vec![reply]),
        },
        all => read_all(&reads, all).await,
    };
    let mut bytes = 0;
    let decoded = |(reply, (_, path)): (Result<Reply, Error>, &(Request, String))| {
        let reply = reply?;
        bytes += reply.bytes();
        Ok(match reply {
            Reply::Node(Some((stat, data))) => match decode(path, data) {
                Ok(data) => Reply::Node(Some((stat, data))),
                Err(error) => Reply::Undecodable(stat, error),
            },
            reply => reply,
        })
    };
    let replies = replies.map(|replies| replies.into_iter().zip(&requests).map(decoded).collect());
    let requests = requests.into_iter().map(|(request, _)| request).collect();
    Completed { requests, epoch, bytes, replies }
}

/// Reads several nodes in one request.
async fn read_all(reads: &Reads, requests: &[(Request, String)]) -> Result<Vec<Result<Reply, Error>>, Error> {
    let read = |(request, path): &(Request, String)| match request {
        Request::Read(_) => Read::GetData { path: path.clone() },
        Request::List(_) => Read::GetChildren { path: path.clone() },
    };
    let replies = reads.multi_read(requests.iter().map(read).collect()).await?;
    let reply = |(reply, (request, _)): (Result<MultiReadResult, Error>, &(Request, String))| match (reply, request) {
        (Err(Error::NoNode { .. }), Request::Read(_)) => Ok(Reply::Node(None)),
        (Err(Error::NoNode { .. }), Request::List(_)) => Ok(Reply::Children(None)),
        (reply, Request::Read(_)) => reply.map(|read| Reply::Node(read.into_data().map(|(data, stat)| (stat, data)))),
        (reply, Request::List(_)) => reply.map(|read| Reply::Children(read.into_children())),
    };
    Ok(replies.into_iter().zip(requests).map(reply).collect())
}

/// Reads a node, or the list of its children. A missing root has a watch too.
async fn read_one(reads: &Reads, path: &str, request: &Request) -> Result<Reply, Error> {
    let Request::Read(relative) = request else { return reads.get_children(path).await.map(Reply::Children) };
    loop {
        let found = reads.get_data(path).await?;
        let is_watched = found.is_some() || !relative.is_empty() || !reads.is_one_shot();
        // Otherwise the root was created between the two requests.
        if is_watched || reads.exists(path).await?.is_none() {
            return Ok(Reply::Node(found));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the sizes of so many requests, each with the same data in the reply to a read.
    fn sizes(size: &mut BatchSize, requests: usize, bytes: usize) -> Vec<usize> {
        let mut next = || {
            let reads = size.get();
            size.sent(reads);
            size.replied(reads, reads * bytes);
            reads
        };
        (0..requests).map(|_| next()).collect()
    }

    fn too_large() -> Error {
        Error::ReplyTooLarge { path: "/a".into(), size: 9, limit: 8 }
    }

    #[test]
    fn requests_have_as_many_reads_as_fit_into_a_reply() {
        let mut size = BatchSize::default();
        assert_eq!(sizes(&mut size, 2, 100), [16, 16]);
        assert_eq!(sizes(&mut size, 4, 20 * 1024), [16, 3, 6, 3]);
        assert_eq!(sizes(&mut size, 3, 2 * LARGE), [6, 1, 1]);
        assert_eq!(sizes(&mut size, 6, 100), [1, 2, 4, 8, 16, 16]);
    }

    #[test]
    fn small_requests_do_not_make_the_next_ones_larger() {
        let mut size = BatchSize::default();
        size.replied(16, 8 * LARGE);
        assert_eq!(size.get(), 2);
        (0..9).for_each(|_| size.replied(1, 100));
        assert_eq!(size.get(), 2);
    }

    #[test]
    fn reads_that_failed_together_are_sent_alone_once_and_later_ones_in_smaller_requests() {
        let mut size = BatchSize::default();
        size.failed(3, &too_large());
        assert_eq!(sizes(&mut size, 3, 100), [1; 3]);
        // A request of two may grow by one at a time.
        assert_eq!(sizes(&mut size, 3, 100), [2, 3, 4]);
        size.failed(4, &too_large());
        assert_eq!(sizes(&mut size, 6, 100), [1, 1, 1, 1, 2, 3]);
    }

    #[test]
    fn without_such_a_request_each_read_is_sent_alone() {
        let mut size = BatchSize::default();
        size.failed(16, &Error::Unsupported { request: "multiRead".into(), client: "this", needed: "another" });
        assert_eq!(sizes(&mut size, 40, 100), [1; 40]);
    }
}

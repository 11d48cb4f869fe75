//! Reads, with watches or without.

use std::sync::atomic::Ordering;

use curator_wire::ErrorCode;

use super::submit::unexpected;
use crate::error::{Error, Result};
use crate::model::ids::Zxid;
use crate::model::{Acl, Identity, MultiReadResult, Stat, WatchKind};
use crate::session::watches::{Found, Watch};
use crate::session::{Session, WatchedData};
use crate::zookeeper::client::history::{History, Judgement};
use crate::zookeeper::{Read, ReadDone, Request, Response, SINCE_3_6};

impl Session {
    /// Returns the stat of a node, or `None` if it does not exist.
    ///
    /// # Errors
    ///
    /// `Error::NoAuth`: the node exists, and the client may not read it. Servers before 3.8.4, and 3.9.0 and 3.9.1, return
    /// its stat. `Error::ConnectionLoss`, `Error::SessionExpired`.
    ///
    /// # Cancel safety
    ///
    /// Nothing is lost when the future is dropped.
    pub async fn exists(&self, path: &str) -> Result<Option<Stat>> {
        match self.request(Request::Exists { path: self.to_server_path(path), watch: false }).await? {
            Response::Exists(stat) => Ok(stat),
            other => Err(unexpected("exists", path, &other)),
        }
    }

    /// Compares the server's history with nodes as they were read before, perhaps in another session. Returns the newest
    /// transaction up to which the server has all writes that the client may have seen. Returns `None` after a restore
    /// from a backup or a loss of data, or if that cannot be excluded: then all nodes must be read again.
    ///
    /// Costs one `exists` if the newest of the nodes is unchanged, and one for each parent with a newer change of its
    /// children. If these do not decide, it costs one for each of up to 64 nodes. A new session must call
    /// [`sync`](Self::sync) before, because its server may lag.
    ///
    /// # Errors
    ///
    /// `Error::ConnectionLoss`, `Error::SessionExpired`, `Error::Closed`: call again.
    ///
    /// # Cancel safety
    ///
    /// Nothing is lost when the future is dropped.
    pub async fn continues(&self, nodes: impl IntoIterator<Item = (String, Stat)>) -> Result<Option<Zxid>> {
        let Some(mut comparison) = History::of(nodes).compare() else { return Ok(None) };
        let mut judgement = Judgement::Unknown;
        loop {
            // An earlier session may have ended with an election.
            let round = comparison.next_round(judgement, true);
            if round.is_empty() {
                let Judgement::Same { up_to } = judgement else { return Ok(None) };
                return Ok(Some(Zxid::new(up_to)));
            }
            let mut asked = Vec::new();
            for question in &round {
                asked.push(self.exists(&question.path));
            }
            let found = self.in_one_write(futures_util::future::join_all(asked)).await;
            for (question, found) in round.iter().zip(found) {
                let found = match found {
                    // The client may not read the node any more.
                    Err(Error::NoAuth { .. }) => None,
                    found => found?,
                };
                judgement = comparison.decide(judgement, question.judge(found.as_ref()));
            }
        }
    }

    /// Reads as [`exists`](Self::exists) does, and sets a watch for the creation, change or deletion of the node.
    ///
    /// # Errors
    ///
    /// * `Error::NoAuth`: the node exists, and the client may not read it. Servers before 3.8.4, and 3.9.0 and 3.9.1,
    ///   return its stat.
    /// * `Error::ConnectionLoss`, `Error::SessionExpired`: the reply is missing.
    ///
    /// # Cancel safety
    ///
    /// Nothing is lost when the future is dropped. A watch that was set wakes no task then.
    pub async fn exists_watched(&self, path: &str) -> Result<(Option<Stat>, Watch)> {
        let full = self.to_server_path(path);
        let mut watch = self.inner.watches.register(&full, WatchKind::Data);
        let (response, epoch) = self.request_with_epoch(Request::Exists { path: full, watch: true }).await?;
        match response {
            Response::Exists(stat) => {
                watch.answered();
                if let Some(stat) = &stat {
                    watch.confirm(Found::new(epoch, stat));
                }
                Ok((stat, watch))
            }
            other => Err(unexpected("exists", path, &other)),
        }
    }

    /// Returns a node's data and stat.
    ///
    /// # Errors
    ///
    /// `Error::NoNode`, `Error::NoAuth`; `Error::ConnectionLoss`, `Error::SessionExpired`.
    ///
    /// # Cancel safety
    ///
    /// Nothing is lost when the future is dropped.
    pub async fn get_data(&self, path: &str) -> Result<(Vec<u8>, Stat)> {
        match self.request(Request::GetData { path: self.to_server_path(path), watch: false }).await? {
            Response::Data(data, stat) => Ok((data, stat)),
            other => Err(unexpected("getData", path, &other)),
        }
    }

    /// Reads as [`get_data`](Self::get_data) does, and sets a watch for the change or deletion of the node. A missing
    /// node leaves no watch on the server.
    ///
    /// # Errors
    ///
    /// * `Error::NoNode`: the node does not exist.
    /// * `Error::NoAuth`: the ACL of the node forbids reading it.
    /// * `Error::ConnectionLoss`, `Error::SessionExpired`: the reply is missing.
    ///
    /// # Cancel safety
    ///
    /// Nothing is lost when the future is dropped. A watch that was set wakes no task then.
    pub async fn get_data_watched(&self, path: &str) -> Result<WatchedData> {
        let full = self.to_server_path(path);
        let mut watch = self.inner.watches.register(&full, WatchKind::Data);
        let (response, epoch) = self.request_with_epoch(Request::GetData { path: full, watch: true }).await?;
        match response {
            Response::Data(data, stat) => {
                watch.answered();
                watch.confirm(Found::new(epoch, &stat));
                Ok(WatchedData { data, stat, watch })
            }
            other => Err(unexpected("getData", path, &other)),
        }
    }

    /// Shares a watch that this session has already on a node, without a request. Returns `None` unless a read found
    /// the node and its watch has not fired. As far as the session knows, the node is unchanged since that read. The
    /// shared watch fires in order with all other events.
    #[must_use]
    pub fn share_watch(&self, path: &str) -> Option<Watch> {
        self.inner.watches.join(&self.to_server_path(path))
    }

    /// Returns the names of a node's children, in no particular order.
    ///
    /// # Errors
    ///
    /// `Error::NoNode`, `Error::NoAuth`; `Error::ConnectionLoss`, `Error::SessionExpired`.
    ///
    /// # Cancel safety
    ///
    /// Nothing is lost when the future is dropped.
    pub async fn get_children(&self, path: &str) -> Result<Vec<String>> {
        match self.request(Request::GetChildren { path: self.to_server_path(path), watch: false }).await? {
            Response::Children(children) => Ok(children),
            other => Err(unexpected("getChildren", path, &other)),
        }
    }

    /// Reads as [`get_children`](Self::get_children) does, and sets a watch for the creation or deletion of a child.
    ///
    /// # Errors
    ///
    /// * `Error::NoNode`: the node does not exist.
    /// * `Error::NoAuth`: the ACL of the node forbids listing its children.
    /// * `Error::ConnectionLoss`, `Error::SessionExpired`: the reply is missing.
    ///
    /// # Cancel safety
    ///
    /// Nothing is lost when the future is dropped. A watch that was set wakes no task then.
    pub async fn get_children_watched(&self, path: &str) -> Result<(Vec<String>, Watch)> {
        let full = self.to_server_path(path);
        let mut watch = self.inner.watches.register(&full, WatchKind::Children);
        match self.request(Request::GetChildren { path: full, watch: true }).await? {
            Response::Children(children) => {
                watch.answered();
                Ok((children, watch))
            }
            other => Err(unexpected("getChildren", path, &other)),
        }
    }

    /// Returns a node's access control list and stat.
    ///
    /// # Errors
    ///
    /// `Error::NoNode`, `Error::NoAuth`; `Error::ConnectionLoss`, `Error::SessionExpired`.
    ///
    /// # Cancel safety
    ///
    /// Nothing is lost when the future is dropped.
    pub async fn get_acl(&self, path: &str) -> Result<(Vec<Acl>, Stat)> {
        match self.request(Request::GetAcl { path: self.to_server_path(path) }).await? {
            Response::Acl(acl, stat) => Ok((acl, stat)),
            other => Err(unexpected("getACL", path, &other)),
        }
    }

    /// Reads several nodes in one request, each with a result of its own. The reads are not one moment: another client's
    /// write may be applied between two of them. Leaves no watches. Without reads it sends no request.
    ///
    /// # Errors
    ///
    /// * `Error::Unsupported`: the client has no such request, or the server is older than ZooKeeper 3.6. Read them one
    ///   by one.
    /// * `Error::ReplyTooLarge`: all together are too large.
    /// * `Error::ConnectionLoss`, `Error::SessionExpired`: the reply is missing.
    /// * The result of each read: `Error::NoNode` if the node does not exist, `Error::NoAuth` if its ACL forbids the
    ///   read.
    ///
    /// # Cancel safety
    ///
    /// Nothing is lost when the future is dropped.
    pub async fn multi_read(&self, reads: Vec<Read>) -> Result<Vec<Result<MultiReadResult>>> {
        let refused = &self.inner.is_before_3_6;
        if !self.inner.handle.capabilities().multi_read {
            return Err(self.unsupported("read several nodes at once"));
        }
        if reads.is_empty() {
            return Ok(Vec::new());
        }
        let full = |read: &Read| match read {
            Read::GetData { path } => Read::GetData { path: self.to_server_path(path).to_string() },
            Read::GetChildren { path } => Read::GetChildren { path: self.to_server_path(path).to_string() },
        };
        let request = Request::MultiRead { reads: reads.iter().map(full).collect() };
        if refused.load(Ordering::Acquire) {
            let code = ErrorCode::Unimplemented as i32;
            return Err(Error::of_code(request.path(), code, SINCE_3_6, || request.to_string()));
        }
        let response = self.request(request).await;
        if let Err(Error::Unsupported { .. }) = response {
            // Such a server closes the connection, so it is asked once.
            refused.store(true, Ordering::Release);
        }
        let all = match response? {
            Response::Reads(all) if all.len() == reads.len() => all,
            other => return Err(unexpected("multiRead", "", &other)),
        };
        all.into_iter().zip(reads).map(|(done, read)| self.read_done(&read, done)).collect()
    }

    /// Returns the identities of the session's present connection: its address, and the users of its credentials and its
    /// login.
    ///
    /// # Errors
    ///
    /// * `Error::Unsupported`: the client has no such request, or the server is older than ZooKeeper 3.7. Such a server
    ///   closes the connection.
    /// * `Error::ConnectionLoss`, `Error::SessionExpired`.
    ///
    /// # Cancel safety
    ///
    /// Nothing is lost when the future is dropped.
    pub async fn who_am_i(&self) -> Result<Vec<Identity>> {
        if !self.inner.handle.capabilities().who_am_i {
            return Err(self.unsupported("ask for the identities of the connection"));
        }
        match self.request(Request::WhoAmI).await? {
            Response::Identities(identities) => Ok(identities),
            other => Err(unexpected("whoAmI", "", &other)),
        }
    }

    /// Returns the data and stat of each node, in one request. If the client or the server does not support that, or if all
    /// data is too large for one reply, it is one write of several requests.
    ///
    /// # Errors
    ///
    /// * `Error::ConnectionLoss`, `Error::SessionExpired`: a reply is missing, for all nodes.
    /// * The result of each node: `Error::NoNode` if it does not exist, `Error::NoAuth` if its ACL forbids the read,
    ///   `Error::ReplyTooLarge` if its data is above the client's limit.
    ///
    /// # Cancel safety
    ///
    /// Nothing is lost when the future is dropped.
    pub async fn get_data_of_all(&self, paths: Vec<String>) -> Result<Vec<Result<(Vec<u8>, Stat)>>> {
        if paths.len() > 1 {
            match self.multi_read(paths.iter().map(|path| Read::GetData { path: path.clone() }).collect()).await {
                Ok(all) => {
                    let data = all.into_iter().map(|read| match read? {
                        MultiReadResult::Data(data, stat) => Ok((data, stat)),
                        MultiReadResult::Children(names) => Err(unexpected("getData", "", &Response::Children(names))),
                    });
                    return Ok(data.collect());
                }
                Err(Error::Unsupported { .. } | Error::ReplyTooLarge { .. }) => {}
                Err(error) => return Err(error),
            }
        }
        let reads = paths.iter().map(|path| self.get_data(path));
        let all = self.in_one_write(futures_util::future::join_all(reads)).await;
        match all.iter().find_map(|read| read.as_ref().err().filter(|error| error.is_retryable())) {
            Some(error) => Err(error.clone()),
            None => Ok(all),
        }
    }

    /// Returns the result of one read. The outer error means a wrong reply.
    fn read_done(&self, read: &Read, done: ReadDone) -> Result<Result<MultiReadResult>> {
        match (read, done) {
            (_, ReadDone::Failed(code)) => {
                let path = self.to_server_path(read.path());
                Ok(Err(self.for_caller(Error::of_code(&path, code, SINCE_3_6, || read.to_string()))))
            }
            (Read::GetData { .. }, ReadDone::Data(data, stat)) => Ok(Ok(MultiReadResult::Data(data, stat))),
            (Read::GetChildren { .. }, ReadDone::Children(names)) => Ok(Ok(MultiReadResult::Children(names))),
            (read, done) => Err(unexpected("multiRead", read.path(), &Response::Reads(vec![done]))),
        }
    }

    /// Resolves when the connected server has applied what the leader had committed, so that later reads are not older
    /// than that: Curator's `sync()`.
    ///
    /// # Errors
    ///
    /// `Error::Unsupported`; `Error::ConnectionLoss`, `Error::SessionExpired`.
    ///
    /// # Cancel safety
    ///
    /// Nothing is lost when the future is dropped.
    pub async fn sync(&self, path: &str) -> Result<()> {
        if !self.inner.handle.capabilities().sync {
            return Err(self.unsupported("sync"));
        }
        match self.request(Request::Sync { path: self.to_server_path(path) }).await? {
            Response::Synced => Ok(()),
            other => Err(unexpected("sync", path, &other)),
        }
    }
}

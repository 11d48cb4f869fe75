//! Transactions.

use futures_util::FutureExt as _;

use super::submit::unexpected;
use crate::error::Result;
use crate::model::Acl;
use crate::model::path::parent_of;
use crate::session::Session;
use crate::zookeeper::{Done, Operation, Request, Response};

impl Session {
    /// Applies all of the operations or none, and returns the result of each. No retry.
    ///
    /// # Errors
    ///
    /// * `Error::Transaction` (of the first operation that fails), `Error::TooManyEphemeralNodes`, `Error::Unsupported`,
    ///   `Error::Closed`: nothing was applied.
    /// * `Error::ConnectionLoss`, `Error::SessionExpired`: the outcome may be unknown, as when the client is closed
    ///   before the reply.
    ///
    /// # Cancel safety
    ///
    /// When the future is dropped, the changes may be made.
    pub async fn transaction(&self, operations: Vec<Operation>) -> Result<Vec<Done>> {
        let operations = self.checked(operations)?;
        if operations.is_empty() {
            return Ok(Vec::new());
        }
        self.send_transaction(operations).await
    }

    /// Checks the operations, and returns them with the server's paths.
    pub(super) fn checked(&self, operations: Vec<Operation>) -> Result<Vec<Operation>> {
        if !self.has_transactions() {
            return Err(self.unsupported("send transactions"));
        }
        for operation in &operations {
            if let Operation::Create { path, acl, mode, .. } = operation {
                Acl::check(acl, path)?;
                mode.check_ttl()?;
            }
        }
        Ok(operations.into_iter().map(|operation| self.full_operation(operation)).collect())
    }

    /// Submits checked operations, before the future is polled.
    pub(super) fn send_transaction(
        &self,
        operations: Vec<Operation>,
    ) -> impl Future<Output = Result<Vec<Done>>> + Send {
        let count = operations.len();
        // Not an `async` block, which would keep the request twice.
        self.request(Request::Transaction { operations }).map(move |response| match response? {
            Response::Done(done) if done.len() == count => {
                Ok(done.into_iter().map(|done| self.to_client_path(done)).collect())
            }
            other => Err(unexpected("multi", "", &other)),
        })
    }

    fn full_operation(&self, operation: Operation) -> Operation {
        match operation {
            Operation::Create { path, data, acl, mode } => {
                Operation::Create { path: self.to_server_path_of_new(&path, mode).to_string(), data, acl, mode }
            }
            Operation::Delete { path, version } => {
                Operation::Delete { path: self.to_server_path(&path).to_string(), version }
            }
            Operation::SetData { path, data, version } => {
                Operation::SetData { path: self.to_server_path(&path).to_string(), data, version }
            }
            Operation::Check { path, version } => {
                Operation::Check { path: self.to_server_path(&path).to_string(), version }
            }
        }
    }

    fn to_client_path(&self, done: Done) -> Done {
        match done {
            Done::Created { path, stat } => {
                self.inner.reaper.touch_parent(parent_of(&path), self.inner.clock.now());
                Done::Created { path: self.root.to_client_path(&path).to_owned(), stat }
            }
            other => other,
        }
    }
}

//! The operations, in Curator's fluent style.

mod create;
mod delete;
mod ensemble;
mod multi_read;
mod persistent_watcher;
mod read;
mod set_data;
mod transaction;

pub use create::CreateBuilder;
pub use delete::DeleteBuilder;
pub use ensemble::{GetConfigBuilder, ReconfigBuilder};
pub use multi_read::MultiReadBuilder;
pub use persistent_watcher::PersistentWatcher;
pub use read::{ExistsBuilder, GetAclBuilder, GetChildrenBuilder, GetDataBuilder, Watched};
pub use set_data::{SetAclBuilder, SetDataBuilder};
pub use transaction::{CuratorOp, CuratorTransaction, CuratorTransactionResult, OperationType};

use std::future::Future;

use crate::core::ClientCore;
use crate::error::Result;
use crate::model::Reading;
use crate::model::path::validate_path;
use crate::session::Session;

/// Checks a read against the client's schemas.
pub(crate) fn check_read(client: &ClientCore, path: &str, reading: Reading) -> Result<()> {
    client.check_schemas(|schemas| schemas.check_read(path, reading))
}

/// Runs an operation on a path in the client's session, with retries. Errors have the name of its request.
pub(crate) async fn with_retries<T, F>(
    client: &ClientCore,
    request: &'static str,
    path: &str,
    operation: impl Fn(Session) -> F,
) -> Result<T>
where
    F: Future<Output = Result<T>>,
{
    validate_path(path)?;
    let mut retries = client.retry_loop();
    loop {
        let attempt = operation(retries.connected_for(request, path).await?).await;
        if let Some(value) = retries.done(attempt, path).await? {
            return Ok(value);
        }
    }
}

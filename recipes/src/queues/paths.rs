//! Creates the paths of queues.

use curator_framework::recipe::{NodeSpec, Parents, RecipeClient as _};
use curator_framework::{CreateMode, CuratorFramework, Error, RetryLoop, Session, make_path};

use crate::queues::put::QueuePath;

/// The limit of the creations of one path for one call: another client may delete it again and again.
const MOST_PATHS_MADE: u32 = 16;

/// The creations of a missing path by one call.
#[derive(Debug, Default)]
pub(super) struct PathsMade(u32);

impl PathsMade {
    /// Creates a missing path, with retries. Missing parents are containers.
    pub(super) async fn create(
        &mut self,
        client: &CuratorFramework,
        retries: &mut RetryLoop,
        path: &str,
        kind: QueuePath,
    ) -> Result<(), Error> {
        if self.0 == MOST_PATHS_MADE {
            return Err(Error::NoNode { path: client.path_text(path) });
        }
        self.0 += 1;
        loop {
            let session = retries.connected(path).await?;
            match create_path(client, &session, path, kind).await {
                Ok(()) => return Ok(()),
                Err(error) => retries.failed(error).await?,
            }
        }
    }
}

async fn create_path(client: &CuratorFramework, session: &Session, path: &str, kind: QueuePath) -> Result<(), Error> {
    let node = NodeSpec::new(client.default_data()).with_parents(Parents::Containers);
    match kind {
        QueuePath::Persistent => match session.create_with_parents(path, CreateMode::Persistent, &node).await {
            Ok(_) | Err(Error::NodeExists { .. }) => Ok(()),
            Err(error) => Err(error),
        },
        QueuePath::Container => session.create_parents(&make_path(path, "item"), &node).await.map(drop),
    }
}

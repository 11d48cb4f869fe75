//! The plain recipes, for a session of the bare client crate or over a bare socket: the requests of this project's locks,
//! as many at a time, without reconnects, proofs or cleaning up.

use curator_bench::process::Result;
use curator_bench::socket::place_of;

use crate::ours::LEASES;
use crate::peer::Run;
use crate::workload::Recipe;

/// The requests of a session.
pub(crate) trait Session: Send {
    /// True if a contender lists again even if only one was ahead of it.
    const LISTS_AGAIN: bool;

    /// Creates an ephemeral sequential node, and lists its parent at the same time.
    fn join(&mut self, parent: &str, name: &str) -> impl Future<Output = Result<(String, Vec<String>)>> + Send;

    fn list(&mut self, parent: &str, watch: bool) -> impl Future<Output = Result<Vec<String>>> + Send;

    /// Waits until the watch of the last listing fires.
    fn changed(&mut self, parent: &str) -> impl Future<Output = Result<()>> + Send;

    /// Waits until a node is gone.
    fn gone(&mut self, path: &str) -> impl Future<Output = Result<()>> + Send;

    fn delete(&mut self, path: &str) -> impl Future<Output = Result<()>> + Send;
}

/// A mutex: the node that has it.
async fn lock<S: Session>(session: &mut S, parent: &str) -> Result<String> {
    let (own, mut children) = session.join(parent, "lock").await?;
    loop {
        let place = place_of(&own, &mut children)?;
        if place == 0 {
            return Ok(own);
        }
        session.gone(&format!("{parent}/{}", children[place - 1])).await?;
        if place == 1 && !S::LISTS_AGAIN {
            return Ok(own);
        }
        children = session.list(parent, false).await?;
    }
}

/// A lease, under the lock that is given back then.
async fn lease(session: &mut impl Session, path: &str) -> Result<String> {
    let turn = lock(session, &format!("{path}/locks")).await?;
    let parent = format!("{path}/leases");
    let (own, mut children) = session.join(&parent, "lease").await?;
    while children.len() > LEASES {
        children = session.list(&parent, true).await?;
        if children.len() > LEASES {
            session.changed(&parent).await?;
        }
    }
    session.delete(&turn).await?;
    Ok(own)
}

/// A lease of the direct protocol, where nobody keeps one: then nobody has to be told that it is the next.
async fn direct_lease(session: &mut impl Session, path: &str) -> Result<String> {
    let parent = format!("{path}/leases");
    let (own, mut children) = session.join(&parent, "lease").await?;
    loop {
        let place = place_of(&own, &mut children)?;
        if place < LEASES {
            return Ok(own);
        }
        if place == LEASES {
            children = session.list(&parent, true).await?;
            if place_of(&own, &mut children)? < LEASES {
                return Ok(own);
            }
            session.changed(&parent).await?;
        } else {
            session.gone(&format!("{parent}/{}", children[place - 1])).await?;
        }
        children = session.list(&parent, false).await?;
    }
}

/// Acquires the lock of a run and releases it.
pub(crate) async fn cycle(session: &mut impl Session, run: &Run) -> Result<()> {
    let node = match run.recipe {
        Recipe::Semaphore => lease(session, &run.path).await?,
        Recipe::DirectSemaphore => direct_lease(session, &run.path).await?,
        _ => lock(session, &run.path).await?,
    };
    session.delete(&node).await
}

/// Returns the nodes that have to be there.
pub(crate) fn parents(run: &Run) -> Vec<String> {
    let parts: &[_] = match run.recipe {
        Recipe::Semaphore | Recipe::DirectSemaphore => &["", "/locks", "/leases"],
        _ => &[""],
    };
    parts.iter().map(|part| format!("{}{part}", run.path)).collect()
}

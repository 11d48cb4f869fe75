//! A member that leaves, over its sessions.

use curator_framework::recipe::{Budget, RecipeClient as _};
use curator_framework::spi::Operation;
use curator_framework::{Error, LossReason};
use tokio::time::Instant;

use super::attempt::{Attempt, Own};
use super::nodes::{Nodes, child_count, drift, newest_write};
use super::plan::leaving::Leaving;
use super::plan::{Input, Written};
use crate::barriers::error::BarrierError;

/// Leaves within a budget. Returns `false` if other members are left by then. A later call continues with the same plan.
pub(super) async fn leave(
    nodes: &Nodes,
    plan: &mut Leaving,
    own: &mut Own,
    budget: Budget,
) -> Result<bool, BarrierError> {
    let (mut retries, departs_within) = (nodes.client.retry_loop(), nodes.client.close_budget());
    loop {
        if let Some(reason) = own.lost {
            return Err(BarrierError::Lost { path: nodes.client.path_text(&nodes.path), reason });
        }
        let session = match &own.node {
            Some(node) => node.session().clone(),
            None => retries.connected(&nodes.path).await?,
        };
        let left = Attempt::new(nodes, own, &session, budget, departs_within).run(plan, &mut retries).await;
        match (left, session.end_reason()) {
            (Ok(left), _) => {
                if left {
                    own.count_deaths(nodes, &session).await;
                }
                return Ok(left);
            }
            (Err(_), Some(ended)) if own.node.is_some() => own.lost = Some(LossReason::Session(ended)),
            (Err(error), Some(_)) => retries.failed(error.about(&nodes.path)).await?,
            (Err(error), None) if own.lost.is_none() => return Err(error.into()),
            (Err(_), None) => {}
        }
    }
}

impl Attempt<'_> {
    /// Deletes this member's node.
    pub(super) async fn depart(&mut self) -> Result<Input, Error> {
        let (nodes, own) = (self.nodes, &mut *self.own);
        let node = own.node(nodes)?;
        let path = node.planned_path().to_owned();
        // The write shows the watchers of this node that the member leaves: a death only deletes the node.
        let mark = Operation::SetData { path, data: b"left".to_vec(), version: None };
        let done = match node.delete_with(vec![mark, nodes.write_quantity(None)]).await {
            // The node was deleted already, perhaps by an earlier request.
            Err(Error::Transaction { cause, .. }) if matches!(*cause, Error::NoNode { .. }) => {
                node.delete().await?.then(Vec::new)
            }
            Err(Error::Transaction { cause, .. }) => return Err(*cause),
            done => done?,
        };
        let Some(done) = done else {
            own.lost = Some(self.session.end_reason().map_or(LossReason::NodeDeleted, LossReason::Session));
            return Err(Error::NoNode { path: nodes.path.as_str().into() });
        };
        // Its session counts it no longer among those that own nodes.
        (own.node, own.left_at) = (None, Some(Instant::now()));
        let Some(barrier) = newest_write(&done) else { return Ok(Input::DepartedBefore) };
        own.departure = Some(drift(&barrier));
        let (zxid, children) = (barrier.mzxid, child_count(&barrier));
        Ok(Input::Departed(Written { zxid, children, version: barrier.version }))
    }
}

//! A member that enters, over its sessions.

use curator_framework::Error;
use curator_framework::recipe::{Budget, NodeSpec, RecipeClient as _};
use curator_framework::spi::Operation;
use futures_util::future::join3;

use super::attempt::{Attempt, Own};
use super::nodes::{Nodes, PATIENCE, child_count, drift, newest_write};
use super::plan::entering::Entering;
use super::plan::{Input, Written};
use crate::barriers::checks::check_transactions;
use crate::barriers::error::BarrierError;

/// The most attempts to create a node while other clients delete its parents.
const MOST_PARENTS: usize = 16;

/// Enters within a budget. Returns `None` if the barrier has not opened by then.
pub(super) async fn enter(nodes: &Nodes, budget: Budget) -> Result<Option<(Own, Entering)>, BarrierError> {
    check_transactions(&nodes.client, "double barrier", &nodes.path).await?;
    let (mut retries, mut own) = (nodes.client.retry_loop(), Own::default());
    let mut plan = Entering::new(nodes.quantity, nodes.options.quorum.map(|(least, _)| least));
    loop {
        let session = retries.connected(&nodes.path).await?;
        own.renew(nodes, &session);
        let mut attempt = Attempt::new(nodes, &mut own, &session, budget, Budget::ENDLESS);
        match attempt.run(&mut plan, &mut retries).await {
            Ok(entered) => return Ok(entered.then_some((own, plan))),
            Err(error) if session.end_reason().is_none() => return Err(error.into()),
            Err(error) => retries.failed(error.about(&nodes.path)).await?,
        }
    }
}

impl Attempt<'_> {
    /// Creates this member's node.
    pub(super) async fn arrive(&mut self) -> Result<Input, Error> {
        let nodes = self.nodes;
        for _ in 0..=MOST_PARENTS {
            let node = self.own.node(nodes)?;
            let path = node.planned_path().to_owned();
            let mut before = vec![nodes.write_quantity(None)];
            if self.own.earlier_may_stand {
                before.extend([Operation::Delete { path, version: None }, nodes.write_quantity(None)]);
            }
            match self.own.node(nodes)?.create_with(&NodeSpec::new(nodes.member_data()), before).await {
                Ok((created, done)) => {
                    let barrier = newest_write(&done).unwrap_or(created.stat);
                    self.arrived(drift(&barrier));
                    let (zxid, children) = (created.stat.czxid, child_count(&barrier) + 1);
                    return Ok(Input::Arrived(Written { zxid, children, version: barrier.version }));
                }
                Err(Error::Transaction { index, cause, .. }) => match *cause {
                    // The server has deleted the node of the earlier session, or has not received its create yet.
                    Error::NoNode { .. } if index == 1 && self.own.earlier_may_stand => {
                        self.own.earlier_may_stand = false;
                    }
                    Error::NoNode { .. } => {
                        let spec = NodeSpec::new(&[]).with_parents(nodes.client.lock_parents());
                        self.session.create_parents(self.own.node(nodes)?.planned_path(), &spec).await?;
                    }
                    // A lost reply, or the late create of an earlier session.
                    Error::NodeExists { .. } => return Ok(Input::Interrupted { may_stand: true }),
                    cause => return Err(cause),
                },
                Err(error) => return Err(error),
            }
        }
        Err(Error::NoNode { path: nodes.path.as_str().into() })
    }

    /// Records that the node is created. The barrier had this [drift] then.
    fn arrived(&mut self, drift: i32) {
        (self.own.arrival, self.own.earlier_may_stand) = (drift, false);
        if let Some(node) = &self.own.node {
            node.watch_node(self.session.timeout() / PATIENCE);
        }
    }

    /// Reads this member's node after a lost reply.
    pub(super) async fn settle(&mut self) -> Result<Input, Error> {
        let (session, nodes, name) = (self.session, self.nodes, self.own.name().to_owned());
        let node = self.own.node(nodes)?;
        let reads = join3(session.write_barrier(), session.exists(node.planned_path()), session.exists(&nodes.path));
        let (answered, found, barrier) = session.in_one_write(reads).await;
        answered?;
        let (Some(found), Some(barrier)) = (found?, barrier?) else { return Ok(Input::Missing) };
        if !node.is_own(&found) {
            self.own.earlier_may_stand = true;
            return Ok(Input::Missing);
        }
        node.adopt(&name, &found, &[]).await?;
        // The read includes this member's create.
        self.arrived(drift(&barrier).wrapping_sub(1));
        Ok(Input::Found(found.czxid))
    }

    pub(super) async fn give_up(&mut self, version: i32) -> Result<Input, Error> {
        let write = self.nodes.write_quantity(Some(version));
        match self.own.node(self.nodes)?.delete_with(vec![write]).await {
            Err(Error::Transaction { .. }) => Ok(Input::Refused),
            deleted => Ok(deleted?.map_or(Input::Gone, |_| Input::GaveUp)),
        }
    }
}

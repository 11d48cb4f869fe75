//! The options of a double barrier.

use std::time::Duration;

/// The options of a [`DistributedDoubleBarrier`](crate::DistributedDoubleBarrier).
#[derive(Debug, Clone, Default)]
#[must_use = "options do nothing by themselves"]
pub struct DoubleBarrierOptions {
    pub(super) id: Option<String>,
    pub(super) quorum: Option<(usize, Duration)>,
}

impl DoubleBarrierOptions {
    /// Returns the defaults.
    pub fn new() -> Self {
        Self::default()
    }

    /// Sets the id that other members see in [`members`](crate::DistributedDoubleBarrier::members) and
    /// [`member_lost`](crate::BarrierMember::member_lost). Default: the client's default data, this host's address.
    pub fn id(mut self, id: impl Into<String>) -> Self {
        self.id = Some(id.into());
        self
    }

    /// Opens the barrier with fewer members too: when `grace` has passed since `least` members arrived, if the nodes of
    /// at least `least` members still exist. Give all members the same quorum. Default: the barrier waits for all
    /// members.
    pub fn quorum(mut self, least: usize, grace: Duration) -> Self {
        self.quorum = Some((least, grace));
        self
    }
}

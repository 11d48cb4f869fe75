//! The common parts of the tests of double barriers.

use std::time::Duration;

use curator_framework::CuratorFramework;
use curator_integration::env::in_time;
use curator_recipes::{BarrierMember, DistributedDoubleBarrier};
use futures_util::future::join_all;

/// Longer than any wait of a test.
pub(crate) const LONG: Duration = Duration::from_secs(30);

pub(crate) fn barrier(client: &CuratorFramework, path: &str, members: usize) -> DistributedDoubleBarrier {
    DistributedDoubleBarrier::new(client.clone(), path, members).unwrap()
}

/// Waits until all have entered.
pub(crate) async fn all_enter<'a>(
    barriers: impl IntoIterator<Item = &'a DistributedDoubleBarrier>,
) -> Vec<BarrierMember> {
    let entered = in_time(join_all(barriers.into_iter().map(DistributedDoubleBarrier::enter))).await;
    entered.into_iter().map(Result::unwrap).collect()
}

/// Waits until all have left, and returns the deaths that each has seen.
pub(crate) async fn all_leave(members: Vec<BarrierMember>) -> Vec<u32> {
    let left = in_time(join_all(members.iter().map(BarrierMember::leave))).await;
    left.into_iter().map(|departure| departure.unwrap().died).collect()
}

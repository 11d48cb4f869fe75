//! An optimisation: the first listing is sent with the create, in one packet, before its reply.
//!
//! The server carries out both in order. A listing that contains the new node is as good as one requested after the
//! reply. An acquire without contention takes one round trip: the benchmark's row *mutex alone* shows it.

use curator_framework::recipe::Created;
use curator_framework::{Error, RetryLoop};

use crate::engine::run::contender::{Contender, Prefetched};
use crate::engine::wait_mode::WaitMode;

impl Contender<'_> {
    /// Creates the node and lists. A contender that asks once skips this listing: the node of a guard that was just
    /// dropped may still be in it. So does one behind a contender that its session knows: mostly it waits for that one, and
    /// needs none. Otherwise it lists in a second round trip.
    pub(super) async fn create_and_list(
        &mut self,
        retries: &mut RetryLoop,
        mode: WaitMode,
    ) -> Result<Option<Created>, Error> {
        if mode == WaitMode::Once || self.entry.may_wait() {
            return self.lock.create(&mut self.owned, retries).await;
        }
        let at = self.session.pinned();
        let both = futures_util::future::join(
            self.lock.create(&mut self.owned, retries),
            at.get_children_watched(self.lock.base_path()),
        );
        let (created, listed) = at.in_one_write(both).await;
        let created = created?;
        let own = self.owned.node_name().unwrap_or_default();
        if let Some((children, watch)) = listed.ok().filter(|(children, _)| children.iter().any(|name| name == own)) {
            self.early = Some(Prefetched { epoch: at.epoch(), children });
            self.listing = Some(Box::new(watch));
        }
        Ok(created)
    }
}

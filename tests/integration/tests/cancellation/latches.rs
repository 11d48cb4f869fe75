//! The asynchronous methods of barriers and count-down latches, dropped at every poll: no node of an owner is left, no
//! watch, and no count is made twice.

use curator_integration::lock_stage::QUIET;
use curator_integration::operations::LONG;
use curator_recipes::{CountDownLatch, DistributedBarrier, LatchParticipant, OwnedBarrier};
use tokio::time::sleep;

use crate::Row;

const PATH: &str = "/path";

/// The state of a barrier or a latch before a call, until the turn of the others.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Setup {
    /// Nothing is there.
    Free,
    /// Others have set the barrier, or the count.
    Set,
    /// As `Set`, until the turn of the others.
    SetForATurn,
    /// We own the barrier, or take part in the round.
    Ours,
    /// As `Ours`, until the turn of the others.
    OursForATurn,
}

impl Setup {
    fn is_ours(self) -> bool {
        matches!(self, Self::Ours | Self::OursForATurn)
    }

    fn has_a_turn(self) -> bool {
        matches!(self, Self::SetForATurn | Self::OursForATurn)
    }
}

fn barrier(
    method: &'static str,
    setup: Setup,
    call: impl AsyncFn(&DistributedBarrier, &mut Option<OwnedBarrier>) + 'static,
) -> Row {
    Row::new(method, async move |scene| {
        let ours = DistributedBarrier::new(scene.stage.client.clone(), PATH).unwrap();
        let others = DistributedBarrier::new(scene.stage.front.clone(), PATH).unwrap();
        let mut owned = None;
        if setup.is_ours() {
            owned = Some(ours.set_owned().await.unwrap());
        } else if setup != Setup::Free {
            others.set_barrier().await.unwrap();
        }
        sleep(QUIET).await;
        if setup.has_a_turn() {
            let others = others.clone();
            scene.in_turn(async move { others.remove_barrier().await.unwrap() });
        }
        scene.call(call(&ours, &mut owned)).await;
        if let Some(owned) = owned {
            assert!(owned.is_held() && scene.stage.own_nodes() == [PATH]);
            assert!(owned.release().await.unwrap().is_released());
        }
        sleep(QUIET).await;
        scene.assert_nothing_of_ours().await;
        others.remove_barrier().await.unwrap();
    })
}

pub(crate) fn barriers() -> Vec<Row> {
    use Setup::{Free, Ours, OursForATurn, Set, SetForATurn};
    vec![
        barrier("DistributedBarrier::is_set", Set, async |ours, _| assert!(ours.is_set().await.unwrap())),
        barrier("DistributedBarrier::remove_barrier", Set, async |ours, _| ours.remove_barrier().await.unwrap()),
        barrier("DistributedBarrier::set_barrier", Free, async |ours, _| ours.set_barrier().await.unwrap()),
        barrier("DistributedBarrier::set_owned", Free, async |ours, owned| {
            *owned = Some(ours.set_owned().await.unwrap());
        })
        .also_loses_a_reply(2),
        barrier("DistributedBarrier::wait_on_barrier", SetForATurn, async |ours, _| {
            ours.wait_on_barrier().await.unwrap();
        }),
        barrier("DistributedBarrier::wait_on_barrier_timeout", SetForATurn, async |ours, _| {
            ours.wait_on_barrier_timeout(LONG).await.unwrap().unwrap();
        }),
        barrier("OwnedBarrier::lost", OursForATurn, async |_, owned| _ = owned.take().unwrap().lost().await),
        barrier("OwnedBarrier::release", Ours, async |_, owned| {
            assert!(owned.take().unwrap().release().await.unwrap().is_released());
        })
        .also_loses_a_reply(2),
        barrier("OwnedBarrier::verify", Ours, async |_, owned| owned.take().unwrap().verify().await.unwrap()),
    ]
}

fn latch(
    method: &'static str,
    setup: Setup,
    call: impl AsyncFn(&CountDownLatch, &mut Option<LatchParticipant>) + 'static,
) -> Row {
    Row::new(method, async move |scene| {
        let ours = CountDownLatch::new(scene.stage.client.clone(), PATH).unwrap();
        let others = CountDownLatch::new(scene.stage.front.clone(), PATH).unwrap();
        if setup != Setup::Free {
            assert!(others.try_set_count(1).await.unwrap());
        }
        let (mut participant, mut other) = (None, None);
        if setup.is_ours() {
            participant = Some(ours.participate("ours").await.unwrap());
        } else if setup.has_a_turn() {
            other = Some(others.participate("other").await.unwrap());
        }
        sleep(QUIET).await;
        if setup.has_a_turn() {
            let (latch, ensemble) = (others.clone(), scene.stage.ensemble.clone());
            scene.in_turn(async move {
                drop(other);
                for node in ensemble.children("/path/here") {
                    ensemble.delete(&format!("/path/here/{node}"));
                }
                sleep(QUIET).await;
                drop(latch.count_down().await);
            });
        }
        scene.call(call(&ours, &mut participant)).await;
        drop(participant);
        sleep(QUIET).await;
        scene.assert_nothing_of_ours().await;
        // All continues: the count is made once, and the round ends.
        let begins = others.try_set_count(1).await.unwrap();
        assert!(!(begins && scene.completes && setup == Setup::Free));
        let round = others.round().await.unwrap();
        assert!(scene.stage.ensemble.children(&format!("/path/{round}")).len() <= 1);
        others.count_down().await.unwrap();
        others.wait().await.unwrap();
    })
}

pub(crate) fn latches() -> Vec<Row> {
    use Setup::{Free, Ours, OursForATurn, Set, SetForATurn};
    vec![
        latch("CountDownLatch::count", Set, async |ours, _| assert_eq!(ours.count().await.unwrap(), 1)),
        latch("CountDownLatch::count_down", Set, async |ours, _| assert_eq!(ours.count_down().await.unwrap(), 0))
            .also_loses_a_reply(2),
        latch("CountDownLatch::count_down_as", Set, async |ours, _| {
            assert_eq!(ours.count_down_as("one").await.unwrap(), 0);
        }),
        latch("CountDownLatch::participant_lost", SetForATurn, async |ours, _| {
            assert_eq!(ours.participant_lost().await.unwrap(), "other");
        }),
        latch("CountDownLatch::participate", Set, async |ours, _| {
            assert!(ours.participate("ours").await.unwrap().is_held());
        })
        .also_loses_a_reply(2),
        latch("CountDownLatch::glance", Set, async |ours, _| {
            assert!(matches!(ours.glance().await.unwrap(), Some((_, 1))));
        }),
        latch("CountDownLatch::round", Set, async |ours, _| assert!(ours.round().await.unwrap() > 0)),
        latch("CountDownLatch::try_set_count", Free, async |ours, _| assert!(ours.try_set_count(1).await.unwrap()))
            .also_loses_a_reply(2),
        latch("CountDownLatch::wait", SetForATurn, async |ours, _| ours.wait().await.unwrap()),
        latch("CountDownLatch::wait_timeout", SetForATurn, async |ours, _| {
            ours.wait_timeout(LONG).await.unwrap().unwrap();
        }),
        latch("LatchParticipant::count_down", Ours, async |_, participant| {
            assert_eq!(participant.take().unwrap().count_down().await.unwrap(), 0);
        })
        .also_loses_a_reply(2),
        latch("LatchParticipant::lost", OursForATurn, async |_, participant| {
            _ = participant.take().unwrap().lost().await;
        }),
        latch("LatchParticipant::verify", Ours, async |_, participant| {
            participant.take().unwrap().verify().await.unwrap();
        }),
    ]
}

//! The asynchronous methods of double barriers, dropped at every poll: no node and no watch is left, and the other
//! member continues.

use curator_framework::Zxid;
use curator_integration::lock_stage::{Stage, TURN};
use curator_integration::operations::LONG;
use curator_recipes::{BarrierMember, DistributedDoubleBarrier};

use crate::Row;

const PATH: &str = "/barrier";

fn barriers(stage: &Stage) -> [DistributedDoubleBarrier; 2] {
    [&stage.client, &stage.front].map(|client| DistributedDoubleBarrier::new(client.clone(), PATH, 2).unwrap())
}

fn outside(
    method: &'static str,
    call: impl AsyncFn(&DistributedDoubleBarrier) -> Option<BarrierMember> + 'static,
) -> Row {
    let row = Row::new(method, async move |scene| {
        let [ours, front] = barriers(&scene.stage);
        // The member behind comes in its turn, and gives up if ours is gone.
        scene.in_turn(async move {
            if let Some(member) = front.enter_timeout(TURN).await.unwrap() {
                let left = member.leave_timeout(TURN * 2).await.unwrap().unwrap();
                assert!(left.died <= 1, "only the call that was dropped");
            }
        });
        if let Some(member) = scene.call(call(&ours)).await.flatten() {
            assert!(member.is_held());
            assert_eq!(member.leave().await.unwrap().died, 0);
        }
        scene.assert_nothing_of_ours().await;
    });
    row.also_loses_a_reply(1)
}

pub(crate) fn entering() -> Vec<Row> {
    vec![
        outside("DistributedDoubleBarrier::enter", async |ours| Some(ours.enter().await.unwrap())),
        outside("DistributedDoubleBarrier::enter_timeout", async |ours| {
            Some(ours.enter_timeout(LONG).await.unwrap().unwrap())
        }),
        outside("DistributedDoubleBarrier::members", async |ours| {
            assert_eq!(ours.members().await.unwrap(), []);
            None
        }),
    ]
}

/// The event in the turn of the other member.
#[derive(Debug, Clone, Copy)]
enum Turn {
    OtherLeaves,
    OurNodeIsDeleted,
    OtherNodeIsDeleted,
}

fn member(method: &'static str, turn: Turn, call: impl AsyncFn(&BarrierMember) + 'static) -> Row {
    let row = Row::new(method, async move |scene| {
        let [ours, front] = barriers(&scene.stage);
        let (member, other) = tokio::join!(ours.enter(), front.enter());
        let (member, other) = (member.unwrap(), other.unwrap());
        let own = scene.stage.own_nodes().remove(0);
        let ensemble = scene.stage.ensemble.clone();
        let mut nodes = ensemble.children(PATH).into_iter().map(|name| format!("{PATH}/{name}"));
        let theirs = nodes.find(|path| *path != own && !path.ends_with("ready")).unwrap();
        scene.in_turn(async move {
            match turn {
                Turn::OtherLeaves => assert!(other.leave().await.unwrap().died <= 1),
                Turn::OurNodeIsDeleted => ensemble.delete(&own),
                Turn::OtherNodeIsDeleted => ensemble.delete(&theirs),
            }
        });
        scene.call(call(&member)).await;
        drop(member);
        scene.assert_nothing_of_ours().await;
    });
    row.also_loses_a_reply(1)
}

pub(crate) fn inside() -> Vec<Row> {
    use Turn::{OtherLeaves, OtherNodeIsDeleted, OurNodeIsDeleted};
    vec![
        member("BarrierMember::leave", OtherLeaves, async |member| assert_eq!(member.leave().await.unwrap().died, 0)),
        member("BarrierMember::leave_timeout", OtherLeaves, async |member| {
            assert_eq!(member.leave_timeout(LONG).await.unwrap().unwrap().died, 0);
        }),
        member("BarrierMember::lost", OurNodeIsDeleted, async |member| _ = member.lost().await),
        member("BarrierMember::member_lost", OtherNodeIsDeleted, async |member| {
            drop(member.member_lost().await.unwrap());
        }),
        // The member that has opened the barrier knows the round without a request.
        member("BarrierMember::round", OtherLeaves, async |member| {
            assert!(member.round().await.unwrap() > Zxid::new(0))
        })
        .least_polls(0)
        .also_loses_a_reply(0),
        member("BarrierMember::verify", OtherLeaves, async |member| member.verify().await.unwrap()),
    ]
}

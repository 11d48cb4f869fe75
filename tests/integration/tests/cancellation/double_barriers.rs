//! The asynchronous methods of double barriers, dropped at every poll: no node and no watch is left, and the other
//! member goes on.

use curator_framework::Zxid;

use curator_integration::cuts::{Cut, poll_until};
use curator_integration::lock_stage::{OURS, Stage, TURN, play};
use curator_integration::operations::{LONG, Local};
use curator_recipes::{BarrierMember, DistributedDoubleBarrier};
use tokio::time::sleep;

use crate::{LATENCY, Row};

const PATH: &str = "/barrier";
const ENTERING: [&str; 3] =
    ["DistributedDoubleBarrier::enter", "DistributedDoubleBarrier::enter_timeout", "DistributedDoubleBarrier::members"];
const INSIDE: [&str; 6] = [
    "BarrierMember::leave",
    "BarrierMember::leave_timeout",
    "BarrierMember::lost",
    "BarrierMember::member_lost",
    "BarrierMember::round",
    "BarrierMember::verify",
];

fn barriers(stage: &Stage) -> [DistributedDoubleBarrier; 2] {
    [&stage.client, &stage.front].map(|client| DistributedDoubleBarrier::new(client.clone(), PATH, 2).unwrap())
}

async fn drop_of_enter(method: &str, loses_reply: bool, cut: Cut, what: &str) -> bool {
    let stage = Stage::new(LATENCY).await;
    let before = stage.footprint();
    let [ours, front] = barriers(&stage);
    // The member behind comes in its turn, and gives up if ours is gone.
    let other = tokio::spawn(async move {
        sleep(TURN).await;
        if let Some(member) = front.enter_timeout(TURN).await.unwrap() {
            assert!(member.leave_timeout(TURN * 2).await.unwrap().unwrap().died <= 1, "only the call that was dropped");
        }
    });
    if loses_reply {
        stage.ensemble.drop_reply(OURS);
    }
    let call: Local<Option<BarrierMember>> = match method {
        "DistributedDoubleBarrier::enter" => Box::pin(async move { Some(ours.enter().await.unwrap()) }),
        "DistributedDoubleBarrier::enter_timeout" => {
            Box::pin(async move { Some(ours.enter_timeout(LONG).await.unwrap().unwrap()) })
        }
        "DistributedDoubleBarrier::members" => Box::pin(async move {
            assert_eq!(ours.members().await.unwrap(), []);
            None
        }),
        other => panic!("{other}"),
    };
    let entered = poll_until(call, cut).await;
    let completes = entered.is_some();
    if let Some(member) = entered.flatten() {
        assert!(member.is_held(), "{what}");
        assert_eq!(member.leave().await.unwrap().died, 0, "{what}");
    }
    stage.assert_nothing_of_ours(what).await;
    stage.assert_as_before(vec![other], &before, what).await;
    completes
}

async fn drop_inside(method: &str, loses_reply: bool, cut: Cut, what: &str) -> bool {
    let stage = Stage::new(LATENCY).await;
    let before = stage.footprint();
    let [ours, front] = barriers(&stage);
    let (member, other) = tokio::join!(ours.enter(), front.enter());
    let (member, other) = (member.unwrap(), other.unwrap());
    let own = stage.own_nodes().remove(0);
    let theirs = stage.ensemble.children(PATH).into_iter().map(|name| format!("{PATH}/{name}"));
    let theirs = theirs.into_iter().find(|path| *path != own && !path.ends_with("ready")).unwrap();
    let ensemble = stage.ensemble.clone();
    let deleted = match method {
        "BarrierMember::lost" => Some(own),
        "BarrierMember::member_lost" => Some(theirs),
        _ => None,
    };
    let turn = tokio::spawn(async move {
        sleep(TURN).await;
        match deleted {
            Some(path) => ensemble.delete(&path),
            None => assert!(other.leave().await.unwrap().died <= 1),
        }
    });
    if loses_reply {
        stage.ensemble.drop_reply(OURS);
    }
    let completes = match method {
        "BarrierMember::leave" => poll_until(member.leave(), cut).await.map(|left| assert_eq!(left.unwrap().died, 0)),
        "BarrierMember::leave_timeout" => {
            poll_until(member.leave_timeout(LONG), cut).await.map(|left| assert_eq!(left.unwrap().unwrap().died, 0))
        }
        "BarrierMember::lost" => poll_until(member.lost(), cut).await.map(drop),
        "BarrierMember::member_lost" => poll_until(member.member_lost(), cut).await.map(|lost| drop(lost.unwrap())),
        "BarrierMember::verify" => poll_until(member.verify(), cut).await.map(|verified| verified.unwrap()),
        "BarrierMember::round" => {
            poll_until(member.round(), cut).await.map(|round| assert!(round.unwrap() > Zxid::new(0)))
        }
        other => panic!("{other}"),
    };
    drop(member);
    stage.assert_nothing_of_ours(what).await;
    stage.assert_as_before(vec![turn], &before, what).await;
    completes.is_some()
}

pub(crate) fn entering() -> Vec<Row> {
    let rows = ENTERING.into_iter().flat_map(|method| {
        Row::with_replies(method, [1, 1], move |lost, cut, what| play(drop_of_enter(method, lost, cut, what)))
    });
    rows.collect()
}

pub(crate) fn inside() -> Vec<Row> {
    let rows = INSIDE.into_iter().flat_map(|method| {
        // The member that has opened the barrier knows the round without a request.
        let least = usize::from(method != "BarrierMember::round");
        Row::with_replies(method, [least; 2], move |lost, cut, what| play(drop_inside(method, lost, cut, what)))
    });
    rows.collect()
}

//! Double barriers at exact moments: a simulated network and paused time.

use std::time::Duration;

use curator_framework::CreateMode;
use curator_integration::simulated_stage::{ONE, TWO, client, play, soon, until};
use curator_recipes::DistributedDoubleBarrier;
use tokio::time::sleep;

const PATH: &str = "/test/double";

/// Enters a barrier of two members beside an ephemeral node of another session. Returns the name of the member's node.
fn enter_beside(other: &str) -> String {
    play(7, async |ensemble| {
        let (one, two) = (client(&ensemble, ONE).await, client(&ensemble, TWO).await);
        two.create_containers(PATH).await.unwrap();
        let late = format!("{PATH}/{other}");
        two.create().with_mode(CreateMode::Ephemeral).for_path(&late).await.unwrap();
        let first = DistributedDoubleBarrier::new(one.clone(), PATH, 3).unwrap();
        let entering = tokio::spawn(async move { first.enter().await });
        let own = one.session().await.unwrap().id().map(|id| id.get());
        let nodes = || ensemble.children(PATH).into_iter().map(|name| (format!("{PATH}/{name}"), name));
        let member = || nodes().find(|(path, _)| ensemble.owner(path) == own).map(|(_, name)| name);
        until("the member stands", || member().is_some()).await;
        sleep(Duration::from_secs(1)).await;
        assert!(!entering.is_finished() && !ensemble.children(PATH).contains(&"ready".to_owned()));
        let name = member().unwrap();
        soon(two.close()).await;
        assert_eq!(ensemble.children(PATH), std::slice::from_ref(&name), "one node for the member");
        entering.abort();
        name
    })
}

/// A server received the create of a member's ended session before the create of its next session.
#[test]
fn node_of_an_ended_session_is_replaced_by_that_of_the_next_one() {
    let name = enter_beside("other");
    assert_eq!(enter_beside(&name), name);
}

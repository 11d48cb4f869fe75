//! The limit on a session's ephemeral nodes, which protects the ensemble.

use curator_framework::{CreateMode, CuratorFramework, CuratorOp, Error};
use curator_integration::clients::is_zookeeper_async;
use curator_integration::env::{Env, connected, eventually, in_time};
use curator_integration::on_every_server;
use curator_recipes::{InterProcessMutex, NodeState, PersistentNode};

/// The bytes that the paths of a client's first nodes may take: three of ten characters, with four bytes each.
const THREE: usize = 3 * 14;

/// A client of one server whose session may have as many bytes of ephemeral nodes.
async fn limited(env: &Env, bytes: usize) -> CuratorFramework {
    connected(curator_integration::env::builder(env.address()).max_ephemeral_bytes(bytes)).await
}

async fn create(client: &CuratorFramework, path: &str) -> Result<String, Error> {
    client.create().with_mode(CreateMode::Ephemeral).for_path(path).await
}

#[track_caller]
fn is_too_many<T: std::fmt::Debug>(refused: Result<T, Error>, bytes: usize, limit: usize) {
    match refused {
        Err(Error::TooManyEphemeralNodes { bytes: needed, limit: allowed }) => {
            assert_eq!((needed, allowed), (bytes, limit));
        }
        other => panic!("{other:?}"),
    }
}

on_every_server! {
    async fn nodes_above_the_limit_are_refused_until_one_is_deleted(env) {
        let env = env.alone();
        let client = limited(&env, THREE).await;
        for path in ["/limit---1", "/limit---2", "/limit---3"] {
            create(&client, path).await.unwrap();
        }
        is_too_many(create(&client, "/limit---4").await, THREE + 14, THREE);
        if !is_zookeeper_async() {
            let operation = CuratorOp::create("/limit---4").with_mode(CreateMode::Ephemeral);
            is_too_many(client.transaction().operation(operation).commit().await, THREE + 14, THREE);
        }
        assert!(client.check_exists().for_path("/limit---4").await.unwrap().is_none());
        // Other nodes are not counted.
        client.create().for_path("/limit---5").await.unwrap();
        client.delete().for_path("/limit---1").await.unwrap();
        create(&client, "/limit---4").await.unwrap();
        // The next session begins with none.
        let session = client.session().await.unwrap();
        env.kill_session(&session).await;
        in_time(session.ended()).await;
        for path in ["/limit---1", "/limit---2", "/limit---3"] {
            eventually("the node is created", async || create(&client, path).await.is_ok()).await;
        }
    }

    async fn acquire_above_the_limit_fails_at_once_and_a_kept_node_waits_for_room(env) {
        let env = env.alone();
        let client = limited(&env, 120).await;
        let [one, two] = ["/limit-a", "/limit-b"].map(|path| InterProcessMutex::new(client.clone(), path).unwrap());
        let held = one.acquire().await.unwrap();
        let refused = in_time(two.acquire()).await.unwrap_err();
        let text = curator_framework::Chain(&refused).to_string();
        assert!(text.contains("the ephemeral nodes of the session would take"), "{text}");
        let path = "/limit-of-a-node-that-has-a-very-long-name-and-does-not-fit";
        let node = PersistentNode::new(client.clone(), path, "").unwrap();
        node.start().unwrap();
        in_time(node.watch().wait_for(|state| matches!(state, NodeState::Failed(_)))).await.unwrap();
        held.release().await.unwrap();
        in_time(node.watch().wait_for(|state| matches!(state, NodeState::Standing(_)))).await.unwrap();
        in_time(node.close()).await;
        in_time(two.acquire()).await.unwrap();
    }
}

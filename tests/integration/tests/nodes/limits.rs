//! Data above the limit of a request. `zookeeper-async` has no limit.

use curator_framework::Error;
use curator_integration::env::in_time;
use curator_integration::on_every_server;
use curator_recipes::{NodeError, PersistentNode};
use curator_test::kill_session;

use crate::stage::{ephemeral, stands, stands_again, stat_of, text_of};

const ABOVE: usize = 2 << 20;

on_every_server! {
    async fn data_above_the_limit_is_refused(env) {
        let (client, path) = (env.client().await, env.path("test/foo"));
        let node = ephemeral(&client, &path, "small");
        let standing = stands(&node).await;
        let refused = in_time(node.set_data(vec![b'x'; ABOVE])).await;
        assert!(matches!(refused, Err(NodeError::Framework(Error::RequestTooLarge { .. }))), "{refused:?}");
        assert_eq!((text_of(&client, &path).await.unwrap().as_str(), node.data().as_slice()), ("small", &b"small"[..]));
        // Smaller data is written to the same node, which was not lost.
        in_time(node.set_data("smaller")).await.unwrap();
        assert_eq!(text_of(&client, &path).await.unwrap(), "smaller");
        assert_eq!(stat_of(&client, &path).await.unwrap().czxid, standing.czxid.get());
        // The refused data is not the data of the next session's node.
        in_time(node.set_data(vec![b'x'; ABOVE])).await.unwrap_err();
        kill_session(env.address(), standing.session.unwrap().get()).await.unwrap();
        stands_again(&node, &standing).await;
        assert_eq!(text_of(&client, &path).await.unwrap(), "smaller");
        let large = PersistentNode::new(client.clone(), env.path("test/large"), vec![b'x'; ABOVE]);
        let large = large.unwrap();
        large.start().unwrap();
        let failed = in_time(large.created()).await;
        assert!(matches!(failed, Err(NodeError::Framework(Error::RequestTooLarge { .. }))), "{failed:?}");
        in_time(large.set_data("fits")).await.unwrap();
        assert_eq!(text_of(&client, &env.path("test/large")).await.unwrap(), "fits");
    }
}

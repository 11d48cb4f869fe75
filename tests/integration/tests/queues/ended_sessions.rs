//! Sessions that end before the reply to the delete of an item. `zookeeper-async` does not tell the ids of such sessions, so
//! the tests cannot end them.

use curator_framework::{Acl, Error, Permission};
use curator_integration::env::{builder, children, connected, in_time};
use curator_integration::on_every_server;
use curator_recipes::{QueueError, SimpleDistributedQueue};

use crate::stage::{LONG, completed, error, nothing, plain, take, texts, through};

on_every_server! {
    async fn item_of_a_session_that_has_ended_before_the_reply_is_an_unknown_outcome(env) {
        let (direct, path, proxy) = (env.client().await, env.path("queue"), env.proxy());
        let producer = plain(&direct, &path);
        for text in texts(0..2) {
            in_time(producer.put(&text)).await.unwrap();
        }
        let client = connected(through(&proxy, LONG)).await;
        let session = in_time(client.session()).await.unwrap();
        let mut consumer = plain(&client, &path).consumer();
        proxy.refuse();
        proxy.drop_reply(take(), 1);
        let ends = async {
            proxy.wait_for_faults(1).await;
            in_time(env.kill_session(&session)).await;
            proxy.accept();
        };
        let (unknown, ()) = in_time(async { tokio::join!(error(&mut consumer), ends) }).await;
        assert!(matches!(&unknown, QueueError::Unknown { path: item } if **item == format!("{path}/queue-0000000000")), "{unknown:?}");
        assert!(unknown.outcome_unknown() && !unknown.is_retryable());
        assert_eq!(completed(&mut consumer).await, ["1"]);
        nothing(&mut consumer).await;
    }

    // A delete of an ended session may arrive late, so a refused delete of the next session does not end the doubt.
    async fn item_with_a_doubtful_delete_is_neither_delivered_nor_forgotten(env) {
        let owner = connected(builder(env.address()).authorization("digest", "owner:secret")).await;
        let read_only = [Acl::creator_all(), vec![Acl::new(Permission::READ, "world", "anyone")]].concat();
        for is_deleted in [true, false] {
            let (path, proxy) = (env.path(&format!("queue-{is_deleted}")), env.proxy());
            for text in texts(0..2) {
                in_time(plain(&owner, &path).put(&text)).await.unwrap();
            }
            let client = connected(through(&proxy, LONG)).await;
            let session = in_time(client.session()).await.unwrap();
            let mut consumer = plain(&client, &path).consumer();
            proxy.refuse();
            proxy.drop_request(take(), 1);
            let ends = async {
                proxy.wait_for_faults(1).await;
                in_time(env.kill_session(&session)).await;
                in_time(owner.set_acl().with_acl(read_only.clone()).for_path(&path)).await.unwrap();
                proxy.accept();
            };
            let (refused, ()) = in_time(async { tokio::join!(error(&mut consumer), ends) }).await;
            assert!(matches!(refused, QueueError::Framework(Error::NoAuth { .. })), "{refused:?}");
            let node = format!("{path}/queue-0000000000");
            if is_deleted {
                in_time(owner.delete().for_path(&node)).await.unwrap();
            }
            in_time(owner.set_acl().with_acl(Acl::open_unsafe()).for_path(&path)).await.unwrap();
            if is_deleted {
                let unknown = error(&mut consumer).await;
                assert!(matches!(&unknown, QueueError::Unknown { path } if **path == *node), "{unknown:?}");
            } else {
                assert_eq!(completed(&mut consumer).await, ["0"]);
            }
            assert_eq!(completed(&mut consumer).await, ["1"]);
            nothing(&mut consumer).await;
            assert!(children(&owner, &path).await.is_empty());
        }
    }

    async fn poll_of_a_session_that_has_ended_before_the_reply_is_an_unknown_outcome(env) {
        let (direct, path) = (env.client().await, env.path("queue"));
        let producer = SimpleDistributedQueue::new(direct, &*path).unwrap();
        for (number, is_applied) in [(0, true), (2, false)] {
            for text in texts(number..number + 2) {
                in_time(producer.offer(text)).await.unwrap();
            }
            let proxy = env.proxy();
            let client = connected(through(&proxy, LONG)).await;
            let session = in_time(client.session()).await.unwrap();
            let queue = SimpleDistributedQueue::new(client, &*path).unwrap();
            proxy.refuse();
            match is_applied {
                true => proxy.drop_reply(take(), 1),
                false => proxy.drop_request(take(), 1),
            }
            let ends = async {
                proxy.wait_for_faults(1).await;
                in_time(env.kill_session(&session)).await;
                proxy.accept();
            };
            let (polled, ()) = in_time(async { tokio::join!(queue.poll(), ends) }).await;
            if is_applied {
                let unknown = polled.unwrap_err();
                assert!(matches!(unknown, QueueError::Unknown { .. }), "{unknown:?}");
            } else {
                assert_eq!(polled.unwrap().unwrap(), number.to_string().as_bytes());
            }
            assert_eq!(in_time(queue.poll()).await.unwrap().unwrap(), (number + 1).to_string().as_bytes());
            assert_eq!(in_time(queue.poll()).await.unwrap(), None);
        }
    }
}

//! Nodes that exist as long as a term.

use curator_framework::{CuratorFramework, Error};
use curator_integration::env::{builder, connected, eventually, in_time};
use curator_integration::on_every_server;
use curator_recipes::{LeaderError, LeaderLatch, Leadership, LossReason, TermEnd};
use curator_test::wire::OpCode;

use crate::stage::{end_of, leads, named};

async fn data_of(client: &CuratorFramework, path: &str) -> Option<Vec<u8>> {
    match client.get_data().for_path(path).await {
        Ok((data, _)) => Some(data),
        Err(Error::NoNode { .. }) => None,
        Err(error) => panic!("{error}"),
    }
}

async fn leader(client: &CuratorFramework, election: &str) -> (LeaderLatch, Leadership) {
    let latch = named(client, election, "ann");
    let leadership = leads(&latch).await;
    (latch, leadership)
}

on_every_server! {
    async fn it_is_gone_when_the_leader_has_resigned(env) {
        let (election, address) = (env.path("election"), env.path("address"));
        let (one, two) = (env.client().await, env.client().await);
        let first = named(&one, &election, "ann");
        let leadership = leads(&first).await;
        let second = named(&two, &election, "bob");
        let stat = in_time(leadership.hold_node(&address, "ann:80")).await.unwrap();
        assert_eq!(Some(stat.ephemeral_owner), one.session().await.unwrap().id().map(curator_framework::SessionId::get));
        assert_eq!(data_of(&two, &address).await.as_deref(), Some(&b"ann:80"[..]));
        let again = in_time(leadership.hold_node(&address, "ann:81")).await.unwrap();
        assert!(again.czxid > stat.czxid);
        assert_eq!(data_of(&two, &address).await.as_deref(), Some(&b"ann:81"[..]));
        env.wait_for_children(&two, &election, 2).await;
        assert!(in_time(first.resign()).await.unwrap().is_some());
        let next = leads(&second).await;
        assert_eq!(data_of(&two, &address).await, None, "it is deleted ahead of the leader's own node");
        let late = in_time(leadership.hold_node(&address, "late")).await;
        assert!(matches!(late, Err(LeaderError::LeadershipLost { reason: TermEnd::Resigned, .. })), "{late:?}");
        in_time(next.hold_node(&address, "bob:80")).await.unwrap();
        in_time(second.close()).await;
        assert_eq!(data_of(&one, &address).await, None);
    }

    async fn it_replaces_a_node_without_children_and_no_other(env) {
        let (election, address, full) = (env.path("election"), env.path("address"), env.path("full"));
        let (client, other) = (env.client().await, env.client().await);
        let (latch, leadership) = leader(&client, &election).await;
        other.create().with_data("earlier").for_path(&address).await.unwrap();
        in_time(leadership.hold_node(&address, "ann")).await.unwrap();
        assert_eq!(data_of(&other, &address).await.as_deref(), Some(&b"ann"[..]));
        other.create().creating_parents_if_needed().for_path(&format!("{full}/child")).await.unwrap();
        let refused = in_time(leadership.hold_node(&full, "ann")).await.unwrap_err();
        let LeaderError::Framework(Error::Transaction { cause, .. }) = &refused else { panic!("{refused}") };
        assert!(matches!(**cause, Error::NotEmpty { .. }), "{refused}");
        let refused = in_time(leadership.hold_node(env.path("no/parent"), "ann")).await.unwrap_err();
        let LeaderError::Framework(Error::Transaction { cause, .. }) = &refused else { panic!("{refused}") };
        assert!(matches!(**cause, Error::NoNode { .. }), "{refused}");
        // Another client's node at a path where a create has failed does not belong to the term.
        other.create().for_path(&env.path("no")).await.unwrap();
        in_time(latch.close()).await;
        assert!(other.check_exists().for_path(&full).await.unwrap().is_some());
        assert_eq!(data_of(&other, &address).await, None);
    }

    async fn it_goes_with_a_term_that_is_lost_and_leaves_that_of_the_next_term(env) {
        let (election, address) = (env.path("election"), env.path("address"));
        let (client, other) = (env.client().await, env.client().await);
        let (latch, leadership) = leader(&client, &election).await;
        in_time(leadership.hold_node(&address, "old")).await.unwrap();
        other.delete().for_path(leadership.node_path()).await.unwrap();
        assert_eq!(end_of(&leadership).await, TermEnd::Lost(LossReason::NodeDeleted));
        eventually("the node is gone", async || data_of(&other, &address).await.is_none()).await;
        let next = leads(&latch).await;
        let stat = in_time(next.hold_node(&address, "new")).await.unwrap();
        drop(leadership);
        let session = client.session().await.unwrap();
        session.sync(&address).await.unwrap();
        assert_eq!(session.exists(&address).await.unwrap().map(|found| found.czxid), Some(stat.czxid));
        in_time(latch.close()).await;
        assert_eq!(data_of(&other, &address).await, None);
    }

    async fn it_goes_with_the_term_if_its_creation_was_dropped(env) {
        let (address, proxy, other) = (env.path("address"), env.proxy(), env.client().await);
        let client = connected(builder(proxy.address())).await;
        let (latch, leadership) = leader(&client, &env.path("election")).await;
        proxy.drop_reply(OpCode::Multi, 1);
        let faults = proxy.faults_done();
        let (term, path) = (leadership.clone(), address.clone());
        let holding = tokio::spawn(async move { term.hold_node(path, "ann").await });
        eventually("the reply is lost", async || proxy.faults_done() > faults).await;
        holding.abort();
        eventually("the node is created", async || data_of(&other, &address).await.is_some()).await;
        eventually("the client is back", async || client.session().await.is_ok_and(|session| session.is_connected())).await;
        in_time(latch.close()).await;
        eventually("the node is gone", async || data_of(&other, &address).await.is_none()).await;
    }

    async fn a_lost_reply_to_its_creation_replaces_it(env) {
        let (address, proxy, other) = (env.path("address"), env.proxy(), env.client().await);
        let client = connected(builder(proxy.address())).await;
        let (latch, leadership) = leader(&client, &env.path("election")).await;
        proxy.drop_reply(OpCode::Multi, 1);
        let stat = in_time(leadership.hold_node(&address, "ann")).await.unwrap();
        let found = other.check_exists().for_path(&address).await.unwrap().unwrap();
        assert_eq!((found.czxid, found.version), (stat.czxid, 2), "the version differs from that of the first one");
        in_time(latch.close()).await;
        assert_eq!(data_of(&other, &address).await, None);
    }
}

//! Curator's `TestLeaderAcls`: access control lists.

use curator_framework::{Acl, AclProvider, Error, Permission};
use curator_integration::env::{builder, connected, in_time};
use curator_integration::on_every_server;
use curator_recipes::{LeaderError, LeaderLatch, LeaderSelector, LeaderState};

use crate::stage::{leads, started};

/// A list for one path, and an open one for the others.
#[derive(Debug)]
struct OnePath(String);

impl AclProvider for OnePath {
    fn default_acl(&self) -> Vec<Acl> {
        Acl::open_unsafe()
    }

    fn acl_for_path(&self, path: &str) -> Option<Vec<Acl>> {
        (path == self.0).then(Acl::creator_all)
    }
}

fn is_refused<T: std::fmt::Debug>(outcome: Result<T, LeaderError>) {
    let is_refused = matches!(outcome, Err(LeaderError::Framework(Error::NoAuth { .. })));
    assert!(is_refused, "{outcome:?}");
}

on_every_server! {
    /// Curator's `TestLeaderAcls.testAclErrorWithLeader` (CURATOR-365): the other client may not create the parent.
    async fn refused_parent_is_told_to_the_wait(env) {
        let base = env.path("base");
        let options = builder(env.address()).acl_provider(OnePath(base.clone())).authorization("digest", "test:test");
        let client = connected(options).await;
        let latch = started(&client, &base);
        leads(&latch).await;
        let (acl, _) = client.get_acl().for_path(&base).await.unwrap();
        assert_eq!(acl[0].scheme, "digest");

        let stranger = env.client().await;
        let refused = started(&stranger, &format!("{base}/second"));
        is_refused(in_time(refused.leading()).await);
        is_refused(in_time(refused.leading_timeout(std::time::Duration::from_secs(20))).await);
        let state = refused.state();
        assert!(matches!(state, LeaderState::Failed(LeaderError::Framework(Error::NoAuth { .. }))), "{state:?}");
        let selector = LeaderSelector::new(stranger, format!("{base}/second")).unwrap();
        is_refused(in_time(selector.run_once(|_| async {})).await.map(|_| ()));
        in_time(refused.close()).await;
        in_time(latch.close()).await;
    }

    async fn latch_leads_after_the_list_of_its_path_is_repaired(env) {
        let (admin, client, path) = (env.client().await, env.client().await, env.path("latch"));
        let read_only = vec![Acl::new(Permission::READ | Permission::ADMIN, "world", "anyone")];
        admin.create().creating_parents_if_needed().with_acl(read_only).for_path(&path).await.unwrap();
        let latch = LeaderLatch::new(client, &path).unwrap();
        latch.start().unwrap();
        is_refused(in_time(latch.leading()).await);
        admin.set_acl().with_acl(Acl::open_unsafe()).for_path(&path).await.unwrap();
        in_time(latch.watch().wait_for(|state| matches!(state, LeaderState::Leading(_)))).await.unwrap();
        leads(&latch).await;
        assert!(latch.has_leadership());
    }

    async fn nodes_and_parents_of_an_election_get_the_providers_list(env) {
        let (namespace, local) = (env.path("ns"), vec![Acl::new(Permission::ALL, "ip", "127.0.0.1")]);
        let options = builder(env.address()).namespace(&namespace[1..]).acl_provider(local.clone());
        let client = connected(options).await;
        let latch = started(&client, "/foo/latch");
        let leadership = leads(&latch).await;
        assert!(leadership.node_path().starts_with("/foo/latch/"), "{leadership:?}");
        for path in ["/foo", "/foo/latch", leadership.node_path()] {
            assert_eq!(client.get_acl().for_path(path).await.unwrap().0, local, "{path}");
        }
        let full = format!("{namespace}{}", leadership.node_path());
        assert!(env.client().await.check_exists().for_path(&full).await.unwrap().is_some());
    }
}

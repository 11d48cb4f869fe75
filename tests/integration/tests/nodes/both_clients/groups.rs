//! Groups: Curator's `TestGroupMember`, and what it leaves out.

use std::collections::BTreeMap;
use std::time::Duration;

use curator_framework::{Acl, ConnectionState, CreateMode, Zxid};
use curator_integration::connection_stage::comes_to;
use curator_integration::env::{builder, connected, eventually, in_time};
use curator_integration::on_every_server;
use curator_recipes::{
    Changes, Group, GroupMember, GroupMemberOptions, GroupState, Member, MemberChange, Members, NodeError,
};
use curator_test::kill_session;

use crate::stage::{LONG, SHORT, stat_of, take_down, through};

/// A started member, which has joined.
async fn joined(client: &curator_framework::CuratorFramework, group: &str, id: &str) -> (GroupMember, Member) {
    let options = GroupMemberOptions::new().data(format!("data of {id}"));
    let member = GroupMember::with_options(client.clone(), group, id, options).unwrap();
    member.start().unwrap();
    let own = in_time(member.join()).await.unwrap();
    assert_eq!(own.id, id);
    (member, own)
}

/// Waits until a group has these members.
async fn has(group: &Group, ids: &[&str]) -> Members {
    let wanted =
        |state: &GroupState| matches!(state, GroupState::Known(members) if members.ids().eq(ids.iter().copied()));
    match in_time(group.watch().wait_for(wanted)).await.unwrap().clone() {
        GroupState::Known(members) => members,
        other => panic!("{other:?}"),
    }
}

/// Follows the changes of a group, and checks that each follows from the ones before.
struct Followed {
    changes: Changes<MemberChange>,
    members: BTreeMap<String, Member>,
}

impl Followed {
    fn of(group: &Group) -> Self {
        Self { changes: group.changes(), members: BTreeMap::new() }
    }

    async fn next(&mut self) -> MemberChange {
        let change = in_time(self.changes.recv()).await.expect("the group is followed");
        match &change {
            MemberChange::Joined(member) => {
                let before = self.members.insert(member.id.clone(), member.clone());
                assert!(before.is_none(), "{member:?} joins behind {before:?}");
            }
            MemberChange::DataChanged(member) => {
                let before = self.members.insert(member.id.clone(), member.clone()).expect("it has joined");
                assert_eq!((before.czxid, before.session), (member.czxid, member.session));
                assert_ne!(before.data, member.data, "the data did not change");
            }
            MemberChange::Left(member) => {
                let before = self.members.remove(&member.id).expect("it has joined");
                assert_eq!((before.czxid, &before.data), (member.czxid, &member.data));
            }
        }
        change
    }

    /// Follows until the members are these.
    async fn until(&mut self, ids: &[&str]) {
        while !self.members.keys().map(String::as_str).eq(ids.iter().copied()) {
            self.next().await;
        }
    }
}

on_every_server! {
    /// Curator's `TestGroupMember.testBasic`.
    async fn two_members_see_each_other_come_change_and_leave(env) {
        let (client, path) = (env.client().await, env.path("member"));
        let one = GroupMember::new(client.clone(), &path, "1").unwrap();
        assert!(one.members().is_none_or(|members| members.is_empty()), "the server has no node yet");
        one.start().unwrap();
        let two = GroupMember::new(env.client().await, &path, "2").unwrap();
        two.start().unwrap();
        let (seen_by_one, seen_by_two) = (has(one.group(), &["1", "2"]).await, has(two.group(), &["1", "2"]).await);
        assert!(seen_by_one.iter().eq(seen_by_two.iter()), "{seen_by_one:?} {seen_by_two:?}");
        assert_eq!((one.id(), one.path(), one.node().path()), ("1", path.as_str(), format!("{path}/1").as_str()));
        // Java's layout: an ephemeral node with the address of the host.
        let stat = stat_of(&client, &format!("{path}/1")).await.unwrap();
        let own = seen_by_two.get("1").unwrap();
        assert_eq!((stat.ephemeral_owner, stat.czxid), (own.session.unwrap().get(), own.czxid.get()));
        assert!(!own.data.is_empty(), "{own:?}");
        in_time(two.close()).await;
        let left = has(one.group(), &["1"]).await;
        assert!(left.contains("1") && !left.contains("2") && left.len() == 1);
        in_time(one.set_data("something")).await.unwrap();
        eventually("the change is seen", async || {
            one.members().unwrap().get("1").is_some_and(|own| own.data == b"something")
        })
        .await;
    }

    async fn observer_sees_each_change_once_and_in_order(env) {
        let (client, path) = (env.client().await, env.path("group"));
        let group = curator_integration::following::group(env.client().await, &path);
        has(&group, &[]).await;
        let mut followed = Followed::of(&group);
        let (ann, joined_as) = joined(&client, &path, "ann").await;
        assert_eq!(followed.next().await, MemberChange::Joined(joined_as.clone()));
        in_time(ann.set_data("newer")).await.unwrap();
        let mut newer = joined_as.clone();
        newer.data = b"newer".to_vec();
        assert_eq!(followed.next().await, MemberChange::DataChanged(newer.clone()));
        let (_bob, bob) = joined(&env.client().await, &path, "bob").await;
        assert_eq!(followed.next().await, MemberChange::Joined(bob.clone()));
        // A later stream starts with those present.
        let mut late = Followed::of(&group);
        late.until(&["ann", "bob"]).await;
        assert_eq!(late.members["ann"], newer);
        // A crash: the member's session ends, and it joins again.
        kill_session(env.address(), bob.session.unwrap().get()).await.unwrap();
        for followed in [&mut followed, &mut late] {
            assert_eq!(followed.next().await, MemberChange::Left(bob.clone()));
            let MemberChange::Joined(again) = followed.next().await else { panic!("bob is not back") };
            assert!(again.id == "bob" && again.czxid > bob.czxid && again.session != bob.session, "{again:?}");
        }
        in_time(ann.close()).await;
        assert_eq!(followed.next().await, MemberChange::Left(newer));
        in_time(group.close()).await;
        assert_eq!(in_time(followed.changes.recv()).await, None);
        assert!(matches!(&*group.watch().borrow(), GroupState::Closed));
        in_time(group.close()).await;
    }

    async fn member_that_may_not_be_read_is_a_member(env) {
        let (client, path) = (env.client().await, env.path("group"));
        let owner = connected(builder(env.address()).authorization("digest", "ann:secret")).await;
        let (_bob, bob) = joined(&client, &path, "bob").await;
        let options = GroupMemberOptions::new().data("secret").acl(Acl::creator_all());
        let ann = GroupMember::with_options(owner.clone(), &path, "ann", options).unwrap();
        ann.start().unwrap();
        let joined_as = in_time(ann.join()).await.unwrap();
        let group = curator_integration::following::group(client, &path);
        let members = has(&group, &["ann", "bob"]).await;
        let seen = members.get("ann").unwrap();
        match env.exists_needs_read() {
            true => assert_eq!((seen.session, seen.czxid), (None, Zxid::new(0))),
            false => assert_eq!((seen.session, seen.czxid), (joined_as.session, joined_as.czxid)),
        }
        assert_eq!((members.get("bob"), seen.data.as_slice()), (Some(&bob), &b""[..]));
        // The same member may be read later.
        let mut followed = Followed::of(&group);
        followed.until(&["ann", "bob"]).await;
        owner.set_acl().with_acl(Acl::open_unsafe()).for_path(ann.node().path()).await.unwrap();
        in_time(ann.set_data("open")).await.unwrap();
        in_time(ann.close()).await;
        has(&group, &["bob"]).await;
        loop {
            match in_time(followed.changes.recv()).await {
                Some(MemberChange::DataChanged(_)) => {}
                change => break assert!(matches!(&change, Some(MemberChange::Left(ann)) if ann.id == "ann"), "{change:?}"),
            }
        }
    }

    /// The member's node is deleted and created again between two looks.
    async fn member_created_again_has_left_and_joined(env) {
        let (client, path) = (env.client().await, env.path("group"));
        let group = curator_integration::following::group(env.client().await, &path);
        let mut followed = Followed::of(&group);
        let (member, mut before) = joined(&client, &path, "ann").await;
        followed.until(&["ann"]).await;
        for _ in 0..5 {
            client.delete().for_path(member.node().path()).await.unwrap();
            assert_eq!(followed.next().await, MemberChange::Left(before.clone()));
            let MemberChange::Joined(now) = followed.next().await else { panic!("it has not joined") };
            assert!(now.czxid > before.czxid);
            before = now;
        }
    }

    /// Its own group says so, even if the member is back before the next look.
    async fn member_sees_that_it_was_out_of_the_group(env) {
        let (client, path) = (env.client().await, env.path("group"));
        let (member, own) = joined(&client, &path, "ann").await;
        let mut changes = member.changes();
        assert_eq!(in_time(changes.recv()).await, Some(MemberChange::Joined(own.clone())));
        kill_session(env.address(), own.session.unwrap().get()).await.unwrap();
        assert_eq!(in_time(changes.recv()).await, Some(MemberChange::Left(own.clone())));
        let Some(MemberChange::Joined(again)) = in_time(changes.recv()).await else { panic!("it has not joined") };
        assert!(again.id == own.id && again.czxid > own.czxid && again.session != own.session, "{again:?}");
    }

    /// Two members with one id: in Curator both are members, and the last data wins.
    async fn second_member_with_an_id_waits_and_is_told(env) {
        let (client, path) = (env.client().await, env.path("group"));
        let (first, own) = joined(&client, &path, "ann").await;
        let second = GroupMember::new(env.client().await, &path, "ann").unwrap();
        second.start().unwrap();
        let refused = in_time(second.join_timeout(Duration::from_millis(200))).await;
        let is_told = matches!(&refused, Err(NodeError::DuplicateMember { id, session, .. })
            if id == "ann" && *session == own.session);
        assert!(is_told, "{refused:?}");
        assert_eq!(has(second.group(), &["ann"]).await.get("ann"), Some(&own));
        in_time(first.close()).await;
        let again = in_time(second.join()).await.unwrap();
        assert!(again.czxid > own.czxid && again.session != own.session);
    }

    async fn group_whose_path_is_missing_is_empty_until_members_join(env) {
        let (client, path) = (env.client().await, env.path("far/below/group"));
        let group = curator_integration::following::group(client.clone(), &path);
        assert!(has(&group, &[]).await.is_empty());
        // An observer creates nothing.
        assert!(stat_of(&client, &env.path("far")).await.is_none());
        let (_ann, _) = joined(&env.client().await, &path, "ann").await;
        has(&group, &["ann"]).await;
    }

    async fn group_whose_path_is_deleted_is_followed_on(env) {
        let (client, other, path) = (env.client().await, env.client().await, env.path("group"));
        let group = curator_integration::following::group(client.clone(), &path);
        let mut followed = Followed::of(&group);
        for _ in 0..5 {
            let (member, _) = joined(&other, &path, "ann").await;
            followed.until(&["ann"]).await;
            in_time(member.close()).await;
            followed.until(&[]).await;
            other.delete().quietly().for_path(&path).await.unwrap();
            has(&group, &[]).await;
        }
        // Another program uses the path.
        let create = other.create().creating_parents_if_needed();
        create.with_data("not ours").for_path(&format!("{path}/visitor")).await.unwrap();
        let members = has(&group, &["visitor"]).await;
        let visitor = members.get("visitor").unwrap();
        assert_eq!((visitor.data.as_slice(), visitor.session), (&b"not ours"[..], None));
    }

    async fn observer_learns_after_an_outage_what_it_has_missed(env) {
        let (proxy, direct, path) = (env.proxy(), env.client().await, env.path("group"));
        for session in [LONG, SHORT] {
            let client = connected(through(&proxy, session)).await;
            let group = curator_integration::following::group(client.clone(), &path);
            let mut followed = Followed::of(&group);
            let (ann, was) = joined(&direct, &path, "ann").await;
            let (bob, _) = joined(&direct, &path, "bob").await;
            followed.until(&["ann", "bob"]).await;
            take_down(&proxy);
            let down = if session == LONG { ConnectionState::Suspended } else { ConnectionState::Lost };
            comes_to(&client, down).await;
            // One is created again, one leaves, one changes.
            in_time(ann.close()).await;
            let (ann, is) = joined(&direct, &path, "ann").await;
            in_time(bob.close()).await;
            let (cat, _) = joined(&direct, &path, "cat").await;
            in_time(cat.set_data("newer")).await.unwrap();
            proxy.accept();
            followed.until(&["ann", "cat"]).await;
            let is_newest = |members: &BTreeMap<String, Member>| {
                members.get("ann") == Some(&is) && members.get("cat").is_some_and(|cat| cat.data == b"newer")
            };
            assert!(was.czxid < is.czxid);
            while !is_newest(&followed.members) {
                followed.next().await;
            }
            for member in [ann, cat] {
                in_time(member.close()).await;
            }
            followed.until(&[]).await;
        }
    }

    /// Members join and leave from several tasks while streams are opened: each stream tells the same end.
    async fn streams_have_no_gap_and_no_double_under_concurrent_joins(env) {
        let (clients, path) = ([env.client().await, env.client().await], env.path("group"));
        let group = curator_integration::following::group(env.client().await, &path);
        let mut tasks = tokio::task::JoinSet::new();
        for number in 0..12 {
            let (client, path) = (clients[number % 2].clone(), path.clone());
            tasks.spawn(async move {
                for _ in 0..3 {
                    let (member, _) = joined(&client, &path, &format!("{number:02}")).await;
                    in_time(member.set_data("newer")).await.unwrap();
                    in_time(member.close()).await;
                }
                joined(&client, &path, &format!("{number:02}")).await
            });
        }
        let mut streams = vec![Followed::of(&group)];
        let (mut members, mut newest) = (Vec::new(), BTreeMap::new());
        while let Some(done) = in_time(tasks.join_next()).await {
            let (member, own) = done.unwrap();
            newest.insert(own.id.clone(), own);
            members.push(member);
            streams.push(Followed::of(&group));
        }
        for stream in &mut streams {
            while stream.members != newest {
                stream.next().await;
            }
        }
    }

    async fn member_is_started_once_and_closed_any_number_of_times(env) {
        let (client, path) = (env.client().await, env.path("group"));
        let member = GroupMember::new(client.clone(), &path, "ann").unwrap();
        assert!(matches!(in_time(member.join()).await, Err(NodeError::NotStarted { .. })));
        member.start().unwrap();
        assert!(matches!(member.start(), Err(NodeError::AlreadyStarted { .. })));
        in_time(member.join()).await.unwrap();
        let clone = member.clone();
        tokio::join!(in_time(member.close()), in_time(clone.close()));
        in_time(member.close()).await;
        assert!(matches!(in_time(member.join()).await, Err(NodeError::Closed { .. })));
        assert!(stat_of(&client, &format!("{path}/ann")).await.is_none());
        // A member that is dropped leaves too.
        let group = curator_integration::following::group(client, &path);
        let (dropped, _) = joined(&env.client().await, &path, "bob").await;
        has(&group, &["bob"]).await;
        drop(dropped);
        has(&group, &[]).await;
    }

    async fn invalid_ids_and_paths_are_refused(env) {
        let client = env.client().await;
        for id in ["", "a/b", ".", "..", "/", "a\0b"] {
            let refused = GroupMember::new(client.clone(), "/group", id);
            assert!(refused.is_err(), "{id:?}: {refused:?}");
        }
        for path in ["", "relative", "/a//b", "/a/"] {
            assert!(GroupMember::new(client.clone(), path, "ann").is_err(), "{path:?}");
            assert!(Group::new(client.clone(), path).is_err(), "{path:?}");
        }
        for id in ["zoë", "a b", "名"] {
            let (member, own) = joined(&client, &env.path("group"), id).await;
            assert_eq!(own.id, id);
            let members = has(member.group(), &[id]).await;
            assert_eq!(members.get(id), Some(&own));
            in_time(member.close()).await;
        }
    }

    async fn group_in_a_namespace_is_the_group_below_it(env) {
        let (namespace, direct) = (env.path("space"), env.client().await);
        let client = connected(builder(env.address()).namespace(&namespace[1..])).await;
        let below = curator_integration::following::group(direct, format!("{namespace}/group"));
        let (member, own) = joined(&client, "/group", "ann").await;
        assert_eq!((member.path(), member.group().path(), member.node().path()), ("/group", "/group", "/group/ann"));
        assert_eq!(has(&below, &["ann"]).await.get("ann"), Some(&own));
    }

    async fn two_hundred_members_all_see_each_other(env) {
        const MEMBERS: usize = 200;
        let (path, observer) = (env.path("group"), env.client().await);
        let clients = [env.client().await, env.client().await, env.client().await, env.client().await];
        let group = curator_integration::following::group(observer.clone(), &path);
        let mut members = Vec::new();
        for number in 0..MEMBERS {
            let member = GroupMember::new(clients[number % 4].clone(), &path, format!("{number:03}")).unwrap();
            member.start().unwrap();
            members.push(member);
        }
        for member in &members {
            in_time(member.join()).await.unwrap();
        }
        let everyone = |state: &GroupState| matches!(state, GroupState::Known(members) if members.len() == MEMBERS);
        for seen in std::iter::once(&group).chain(members.iter().map(GroupMember::group)) {
            in_time(seen.watch().wait_for(everyone)).await.unwrap();
        }
        // A quarter of them crashes and joins again.
        let dead = members[0].members().unwrap().get("000").unwrap().session;
        kill_session(env.address(), dead.unwrap().get()).await.unwrap();
        let again = |state: &GroupState| {
            matches!(state, GroupState::Known(members)
                if members.len() == MEMBERS && members.iter().all(|member| member.session != dead))
        };
        in_time(group.watch().wait_for(again)).await.unwrap();
        for member in members {
            in_time(member.close()).await;
        }
        has(&group, &[]).await;
    }

    async fn group_is_started_once_and_tells_when_it_is_read(env) {
        let (client, path) = (env.client().await, env.path("group"));
        let group = Group::new(client, &path).unwrap();
        assert!(matches!(group.state(), GroupState::Latent), "{:?}", group.state());
        assert!(matches!(in_time(group.initialized()).await, Err(NodeError::NotStarted { .. })));
        group.start().unwrap();
        assert!(matches!(group.start(), Err(NodeError::AlreadyStarted { .. })));
        assert!(in_time(group.initialized()).await.unwrap().is_empty());
        in_time(group.close()).await;
        let closed = in_time(group.initialized_timeout(Duration::from_secs(20))).await;
        assert!(matches!(closed, Err(NodeError::Closed { .. })), "{closed:?}");
    }

    /// A node at the path of a member that is not ephemeral, of another program.
    async fn member_waits_for_a_persistent_node_at_its_path(env) {
        let (client, path) = (env.client().await, env.path("group"));
        let create = client.create().creating_parents_if_needed().with_mode(CreateMode::Persistent);
        create.for_path(&format!("{path}/ann")).await.unwrap();
        let member = GroupMember::new(client.clone(), &path, "ann").unwrap();
        member.start().unwrap();
        let refused = in_time(member.join_timeout(Duration::from_millis(100))).await;
        assert!(matches!(refused, Err(NodeError::DuplicateMember { session: None, .. })), "{refused:?}");
        client.delete().for_path(&format!("{path}/ann")).await.unwrap();
        in_time(member.join()).await.unwrap();
    }
}

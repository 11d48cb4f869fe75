//! Namespaces: Curator's `TestNamespaceFacade`, and what of `TestFramework` is about them.

use curator_framework::recipe::NodeSpec;
use curator_framework::{Acl, AddWatchMode, CreateMode, CuratorFramework, Error, Permission, RetryNTimes};
use curator_integration::env::{builder, children, connected, in_time};
use curator_integration::on_every_server;
use curator_test::wire::OpCode;

use crate::ground::{GROUNDS, exists, in_namespace, run};

/// Checks that an error names the path as the caller wrote it, and in `Debug` as the server knows it.
#[track_caller]
fn shows<T: std::fmt::Debug>(result: Result<T, Error>, text: &str, namespace: &str) {
    let error = result.unwrap_err();
    let (shown, whole) = (error.to_string(), format!("{error:?}"));
    assert!(shown.contains(text) && !shown.contains(namespace), "{text}: {shown}");
    let path = &text[text.find('/').unwrap()..];
    assert!(whole.contains(&format!("{namespace}{path}")), "{text}: {whole}");
}

on_every_server! {
    async fn errors_name_the_callers_path_and_debug_the_servers(env) {
        let (client, namespace) = in_namespace(&env, "ns").await;
        let ns = namespace.as_str();
        let closed = || [Acl::new(Permission::ALL, "ip", "203.0.113.7")];
        client.create().creating_parents_if_needed().for_path("/node/child").await.unwrap();
        client.create().with_mode(CreateMode::Ephemeral).for_path("/ephemeral").await.unwrap();
        client.create().with_acl(closed()).for_path("/closed").await.unwrap();
        let create = || client.create();
        shows(create().for_path("/node").await, "/node", ns);
        shows(create().for_path("/none/child").await, "/none/child", ns);
        shows(create().with_protection().for_path("/none/child").await, "/none/_c_", ns);
        shows(create().for_path("/ephemeral/child").await, "/ephemeral/child", ns);
        shows(create().for_path("/closed/child").await, "/closed/child", ns);
        shows(create().creating_parents_if_needed().for_path("/closed/a/b").await, "/closed/a", ns);
        shows(create().or_set_data().for_path("/closed").await, "/closed", ns);
        shows(create().with_acl([Acl::new(Permission::ALL, "nonsense", "x")]).for_path("/new").await, "/new", ns);
        shows(client.create_containers("/closed/a").await, "/closed/a", ns);
        shows(client.delete().for_path("/none").await, "/none", ns);
        shows(client.delete().for_path("/node").await, "/node", ns);
        shows(client.delete().with_version(7).for_path("/node/child").await, "/node/child", ns);
        shows(client.check_exists().creating_parents_if_needed().for_path("/closed/a/b").await, "/closed/a", ns);
        shows(client.get_data().for_path("/none").await, "/none", ns);
        shows(client.get_data().watched().for_path("/closed").await.map(drop), "/closed", ns);
        shows(client.get_children().for_path("/none").await, "/none", ns);
        shows(client.get_children().watched().for_path("/closed").await.map(drop), "/closed", ns);
        shows(client.get_acl().for_path("/none").await, "/none", ns);
        shows(client.set_acl().with_acl(closed()).for_path("/none").await, "/none", ns);
        shows(client.set_data().for_path("/none", "").await, "/none", ns);
        shows(client.set_data().with_version(7).for_path("/node", "").await, "/node", ns);
        shows(client.set_data().for_path("/node", vec![7; 2 << 20]).await, "setData /node", ns);
        let both = client.transaction().set_data("/node", "").check("/none");
        shows(both.commit().await, "check /none", ns);
        let _watcher = client.add_watch("/node", AddWatchMode::Persistent).await.unwrap();
    }

    async fn lost_requests_name_the_callers_path(env) {
        let namespace = env.path("ns");
        let proxy = env.proxy();
        let options = builder(proxy.address()).namespace(&namespace[1..]);
        let client = connected(options.retry_policy(RetryNTimes::new(0, std::time::Duration::ZERO))).await;
        client.create().for_path("/node").await.unwrap();
        proxy.drop_reply(OpCode::GetData, 1);
        shows(in_time(client.get_data().for_path("/node")).await, "getData /node", &namespace);
    }

    async fn the_node_of_a_namespace_is_created_empty(env) {
        let (client, namespace) = in_namespace(&env, "ns").await;
        let session = client.session().await.unwrap();
        let child = NodeSpec::new(b"child").with_parent_data(b"of the parent");
        assert!(session.create_parents("/child", &child).await.unwrap());
        let outside = client.using_namespace("").unwrap();
        assert_eq!(outside.get_data().for_path(&namespace).await.unwrap().0, b"");
    }

    /// Curator's `TestNamespaceFacade.testGetNamespace` and `testInvalid`.
    async fn a_namespace_is_a_path_without_its_slash(env) {
        let client = env.client().await;
        assert_eq!(client.namespace(), "");
        let inside = client.using_namespace("foo/bar").unwrap();
        assert_eq!(inside.namespace(), "foo/bar");
        assert_eq!(inside.using_namespace("snafu").unwrap().namespace(), "snafu", "not below the other one");
        assert_eq!(inside.using_namespace("").unwrap().namespace(), "");
        for invalid in ["/snafu", "snafu/", "a//b", "a/../b", "a\u{1}"] {
            for error in [
                client.using_namespace(invalid).map(drop).unwrap_err(),
                builder(env.address()).namespace(invalid).build().map(drop).unwrap_err(),
            ] {
                assert!(matches!(error, Error::InvalidConfig { option: "namespace", .. }), "{error}");
            }
        }
    }

    /// Curator's `TestNamespaceFacade.testBasic` and `TestFramework.testNamespace`: the namespace's node is made with the
    /// first node in it.
    async fn a_namespace_is_created_with_its_first_node(env) {
        let outside = env.client().await;
        let namespace = env.path("name/space");
        let client = outside.using_namespace(&namespace[1..]).unwrap();
        assert!(!exists(&client, "/").await);
        assert!(!exists(&outside, &namespace).await, "a look makes nothing");
        assert_eq!(client.create().with_data("x").for_path("/node").await.unwrap(), "/node");
        assert_eq!(outside.get_data().for_path(&format!("{namespace}/node")).await.unwrap().0, b"x");
        assert!(!exists(&outside, "/node").await);
        client.set_data().for_path("/node", "y").await.unwrap();
        assert_eq!(client.get_data().for_path("/node").await.unwrap().0, b"y");
        assert_eq!(children(&client, "/").await, ["node"]);
        client.delete().for_path("/node").await.unwrap();
        assert_eq!(children(&outside, &namespace).await, [""; 0]);
        let missing = client.create().for_path("/none/node").await;
        assert!(matches!(missing, Err(Error::NoNode { .. })), "{missing:?}");
    }

    /// Curator's `TestNamespaceFacade.testSimultaneous` and `testCache`: clients of several namespaces are one client.
    async fn namespaces_do_not_see_each_other(env) {
        let client = env.client().await;
        let root = env.path("");
        let names = ["foo", "bar"].map(|name| client.using_namespace(&format!("{}{name}", &root[1..])).unwrap());
        let again = client.using_namespace(&format!("{}foo", &root[1..])).unwrap();
        let creating = names.iter().enumerate().map(|(number, client)| {
            let client = client.clone();
            tokio::spawn(async move { client.create().for_path(&format!("/{number}")).await })
        });
        for (number, created) in futures_util::future::join_all(creating).await.into_iter().enumerate() {
            assert_eq!(created.unwrap().unwrap(), format!("/{number}"));
        }
        assert_eq!(children(&names[0], "/").await, ["0"]);
        assert_eq!(children(&again, "/").await, ["0"]);
        assert_eq!(children(&names[1], "/").await, ["1"]);
        let session = client.session().await.unwrap().number();
        for inside in &names {
            assert_eq!(inside.session().await.unwrap().number(), session, "one session");
        }
    }

    /// Curator's `TestNamespaceFacade.testRootAccess`.
    async fn the_root_of_a_namespace_may_be_asked_about_and_no_path_may_not(env) {
        let (client, _) = in_namespace(&env, "ns").await;
        client.create().for_path("/test").await.unwrap();
        assert!(exists(&client, "/").await);
        assert!(exists(&client.using_namespace("").unwrap(), "/").await);
        let looked = client.check_exists().for_path("").await;
        assert!(matches!(looked, Err(Error::InvalidPath { .. })), "{looked:?}");
        let relative = client.get_data().for_path("test").await;
        assert!(matches!(relative, Err(Error::InvalidPath { .. })), "{relative:?}");
    }

    /// Curator's `TestNamespaceFacade.testIsStarted`: it is the same client.
    async fn a_client_in_a_namespace_starts_and_closes_with_the_others(env) {
        let client = builder(env.address()).build().unwrap();
        let inside = client.using_namespace("ns").unwrap();
        assert!(matches!(in_time(inside.check_exists().for_path("/")).await, Err(Error::NotStarted)));
        client.start().unwrap();
        in_time(inside.block_until_connected()).await.unwrap();
        assert!(matches!(inside.start(), Err(Error::AlreadyStarted)));
        assert_eq!(inside.connection_state(), client.connection_state());
        in_time(inside.close()).await;
        assert!(matches!(in_time(client.check_exists().for_path("/")).await, Err(Error::Closed)));
    }

    /// Curator's `TestNamespaceFacade.testUnfixForEmptyNamespace` (CURATOR-361) and `TestFramework.testNullNamespace`.
    async fn without_a_namespace_paths_are_left_alone(env) {
        let (inside, namespace) = in_namespace(&env, "ns").await;
        let client = inside.using_namespace("").unwrap();
        let node = format!("{namespace}/foo/bar");
        assert_eq!(client.create().creating_parents_if_needed().for_path(&node).await.unwrap(), node);
        let sequential = client.create().with_mode(CreateMode::PersistentSequential).for_path(&node).await.unwrap();
        assert_eq!(sequential.strip_prefix(&node).map(str::len), Some(10), "{sequential}");
        let whole = connected(builder(env.address()).namespace("")).await;
        assert!(exists(&whole, &node).await && exists(&inside, "/foo/bar").await);
    }

    /// Curator's `TestFramework.testNamespaceInBackground`, `testBackgroundPathWithNamespace` (CURATOR-666) and
    /// `testCustomCallback`: what comes back is the user's path, even where the namespace's name is repeated in it.
    async fn the_path_that_comes_back_is_the_users(env) {
        for background in GROUNDS {
            let (client, namespace) = in_namespace(&env, &format!("ns-{background}")).await;
            let repeated = format!("{namespace}/node");
            for (asked, mode) in [
                ("/node", CreateMode::Persistent),
                (repeated.as_str(), CreateMode::Persistent),
                ("/sequential-", CreateMode::PersistentSequential),
                (&format!("{namespace}/s-"), CreateMode::EphemeralSequential),
            ] {
                let (creator, path) = (client.clone(), asked.to_owned());
                let created = run(background, async move {
                    creator.create().creating_parents_if_needed().with_mode(mode).for_path(&path).await
                });
                let path = created.await.unwrap();
                assert!(path.starts_with(asked), "{path}");
                assert_eq!(path.len() - asked.len(), if mode.is_sequential() { 10 } else { 0 }, "{path}");
                assert!(exists(&client, &path).await);
                let outside: &CuratorFramework = &client.using_namespace("").unwrap();
                assert!(exists(outside, &format!("{namespace}{path}")).await, "{path}");
            }
        }
    }

    /// Curator's `TestFramework.testEnsurePathWithNamespace`, `testCreateContainersWithNamespace` and
    /// `testCreateContainersUsingNamespace`.
    async fn containers_are_made_inside_of_the_namespace(env) {
        let (of_builder, namespace) = in_namespace(&env, "one").await;
        let outside = of_builder.using_namespace("").unwrap();
        let other = env.path("two");
        let switched = outside.using_namespace(&other[1..]).unwrap();
        for (client, namespace) in [(of_builder, namespace), (switched, other)] {
            for _ in 0..2 {
                client.create_containers("/path/to/ensure").await.unwrap();
                assert!(exists(&client, "/path/to/ensure").await);
                assert!(exists(&outside, &format!("{namespace}/path/to/ensure")).await);
            }
            assert_eq!(children(&client, "/path/to/ensure").await, [""; 0]);
            client.create_containers("/").await.unwrap();
        }
    }
}

//! Typed nodes in transactions, as containers, and with a time to live. `zookeeper-async` has none of them.

use std::time::Duration;

use curator_framework::{
    Acl, Allowance, CreateMode, CuratorFramework, CuratorOp, Error, OtherPaths, Permission, Schema, SchemaSet,
};
use curator_integration::env::{builder, connected, eventually, in_time};
use curator_integration::in_process::client;
use curator_integration::on_every_server;
use curator_recipes::{Codec as _, JsonCodec, ModelSpec, ModelSpecOptions, ModeledFramework, ModeledNode};
use curator_test::TestingServer;
use curator_test::wire::OpCode;

use crate::fails;
use crate::typed_stage::{User, told, user, users, users_with};

async fn commit(client: &CuratorFramework, operations: impl IntoIterator<Item = CuratorOp>) -> Result<(), Error> {
    in_time(client.transaction().operations(operations).commit()).await.map(|_| ())
}

on_every_server! {
    /// Curator's `testVersioned`, its part with transactions.
    async fn transaction_makes_all_changes_or_none(env) {
        let (client, path) = (env.client().await, env.path("users"));
        client.create().creating_parents_if_needed().for_path(&path).await.unwrap();
        let list = vec![Acl::new(Permission::ALL, "ip", "127.0.0.1")];
        let users = users_with(&client, &path, ModelSpecOptions::new().acl(list.clone()).mode(CreateMode::Ephemeral));
        let [a, b, c] = ["a", "b", "c"].map(|key| users.at(key).unwrap());
        commit(&client, [a.create_op(&user(1)).unwrap(), b.create_op(&user(2)).unwrap()]).await.unwrap();
        assert_eq!(client.get_acl().for_path(a.path()).await.unwrap().0, list);
        let created = in_time(a.read()).await.unwrap();
        assert!(created.value == user(1) && created.stat.ephemeral_owner != 0, "{created:?}");
        let change = |version| [
            a.update_op(0, &user(7)).unwrap(), b.check_op(0), c.create_op(&user(3)).unwrap(), b.delete_op(version),
        ];
        let refused = commit(&client, change(5)).await.unwrap_err();
        let Error::Transaction { index: 3, cause, .. } = &refused else { panic!("{refused:?}") };
        assert!(matches!(**cause, Error::BadVersion { .. }), "{cause:?}");
        let all = || async { told(in_time(users.read_all()).await.unwrap()) };
        assert_eq!(all().await, [("a".to_owned(), Ok(1)), ("b".to_owned(), Ok(2))]);
        commit(&client, change(0)).await.unwrap();
        assert_eq!(all().await, [("a".to_owned(), Ok(7)), ("c".to_owned(), Ok(3))]);
        for stale in [a.update_op(0, &user(8)).unwrap(), a.check_op(0), a.delete_op(0)] {
            assert!(matches!(commit(&client, [stale]).await, Err(Error::Transaction { index: 0, .. })));
        }
        commit(&client, [a.check_op(-1), a.update_op(-1, &user(9)).unwrap(), c.delete_op(-1)]).await.unwrap();
        assert_eq!(all().await, [("a".to_owned(), Ok(9))]);
    }

    /// Curator's `testCompressedCreateOp` and `testCompressedUpdateOp`.
    async fn operations_compress_as_their_description_says(env) {
        let path = env.path("users");
        let (plain, compressing) = (env.client().await, connected(builder(env.address()).enable_compression()).await);
        plain.create().creating_parents_if_needed().for_path(&path).await.unwrap();
        for (client, options, is_compressed) in [
            (&plain, ModelSpecOptions::new(), false),
            (&plain, ModelSpecOptions::new().compressed(), true),
            (&compressing, ModelSpecOptions::new(), true),
            (&compressing, ModelSpecOptions::new().uncompressed(), false),
        ] {
            let ada = users_with(client, &path, options).at("ada").unwrap();
            for operation in [ada.create_op(&user(1)).unwrap(), ada.update_op(0, &user(2)).unwrap()] {
                commit(client, [operation]).await.unwrap();
                let stored = plain.get_data().undecompressed().for_path(ada.path()).await.unwrap().0;
                assert_eq!(stored.starts_with(&[0x1f, 0x8b]), is_compressed, "gzip's own beginning");
            }
            assert_eq!(in_time(ada.read()).await.unwrap().value, user(2));
            commit(client, [ada.delete_op(1)]).await.unwrap();
        }
    }

    async fn containers_are_created(env) {
        let (client, path) = (env.client().await, env.path("users"));
        let users = users_with(&client, &path, ModelSpecOptions::new().mode(CreateMode::Container));
        in_time(users.at("ada").unwrap().create(&user(1))).await.unwrap();
        in_time(users.at("bob").unwrap().set(&user(2))).await.unwrap();
        fails!(users.at("ada").unwrap().create(&user(1)), NodeExists);
        assert_eq!(told(in_time(users.read_all()).await.unwrap()), [("ada".to_owned(), Ok(1)), ("bob".to_owned(), Ok(2))]);
    }
}

fn server() -> TestingServer {
    TestingServer::builder().container_check_interval(Duration::from_millis(10)).extended_types(true).start().unwrap()
}

#[tokio::test]
async fn server_deletes_what_is_a_container_or_past_its_time() {
    let server = server();
    let client = client(&server).await;
    let ttl = CreateMode::PersistentWithTtl(Duration::from_millis(50));
    for (mode, op) in [(CreateMode::Container, OpCode::CreateContainer), (ttl, OpCode::CreateTtl)] {
        let users = users_with(&client, "/users", ModelSpecOptions::new().mode(mode));
        let (ada, bob) = (users.at("ada").unwrap(), users.at("bob").unwrap());
        in_time(ada.create(&user(1))).await.unwrap();
        in_time(bob.set(&user(2))).await.unwrap();
        let created = |path: &str| {
            server.requests().iter().any(|sent| sent.op == op && sent.path.as_deref() == Some(path) && sent.error == 0)
        };
        assert!(created("/users/ada") && created("/users/bob"), "{mode:?}");
        if mode == CreateMode::Container {
            // It goes once its last child goes.
            for child in ["/users/ada/child", "/users/bob/child"] {
                client.create().for_path(child).await.unwrap();
                client.delete().for_path(child).await.unwrap();
            }
        }
        eventually("the server deletes them", async || !server.exists("/users")).await;
        assert_eq!(in_time(users.keys()).await.unwrap(), Vec::<String>::new());
    }
}

#[tokio::test]
async fn impossible_time_to_live_is_refused() {
    let server = server();
    let client = client(&server).await;
    let mode = CreateMode::PersistentWithTtl(Duration::ZERO);
    let ada = users_with(&client, "/users", ModelSpecOptions::new().mode(mode)).at("ada").unwrap();
    fails!(ada.create(&user(1)), InvalidConfig);
    fails!(ada.set(&user(1)), InvalidConfig);
    assert!(!server.requests().iter().any(|request| request.op == OpCode::CreateTtl));
}

/// The costs that the pages name.
#[tokio::test]
async fn requests_are_as_few_as_promised() {
    let server = server();
    let client = client(&server).await;
    client.create().for_path("/users").await.unwrap();
    let users = users(&client, "/users");
    let ada = users.at("ada").unwrap();
    let counted = || server.requests().iter().filter(|request| request.op != OpCode::Ping).count();
    let mut before = counted();
    let mut costs = |wanted: usize, what: &str| {
        assert_eq!(counted() - before, wanted, "{what}");
        before = counted();
    };
    in_time(ada.create(&user(1))).await.unwrap();
    costs(1, "create");
    in_time(ada.set(&user(1))).await.unwrap();
    costs(1, "set of a node that exists");
    in_time(users.at("bob").unwrap().set(&user(1))).await.unwrap();
    costs(2, "set of a new node");
    in_time(ada.update(1, &user(2))).await.unwrap();
    costs(1, "update");
    in_time(ada.modify(|_| Ok(()))).await.unwrap();
    costs(2, "modify");
    in_time(users.read_all()).await.unwrap();
    costs(2, "read_all");
    in_time(ada.delete()).await.unwrap();
    costs(1, "delete");
}

/// Curator's `testSchema`.
#[tokio::test]
async fn schemas_of_the_client_count() {
    let server = server();
    let schema = Schema::for_pattern("/users/.*").unwrap().can_be_deleted(false).ephemeral(Allowance::Cannot);
    let schema = schema.validator(|_, data, _| data.ends_with(br#""logins":1}"#));
    let set = SchemaSet::new([schema], OtherPaths::Allowed);
    let client = connected(builder(server.address()).schema_set(set)).await;
    let ada = users(&client, "/users").at("ada").unwrap();
    fails!(ada.create(&user(2)), SchemaViolation);
    fails!(ada.set(&user(2)), SchemaViolation);
    in_time(ada.create(&user(1))).await.unwrap();
    fails!(ada.update(0, &user(2)), SchemaViolation);
    let login = |user: &mut User| {
        user.logins += 1;
        Ok(())
    };
    fails!(ada.modify(login), SchemaViolation);
    fails!(ada.delete(), SchemaViolation);
    fails!(ada.delete_version(0), SchemaViolation);
    let options = ModelSpecOptions::new().mode(CreateMode::Ephemeral);
    fails!(users_with(&client, "/users", options).at("bob").unwrap().create(&user(1)), SchemaViolation);
    assert_eq!(in_time(ada.read()).await.unwrap().version, 0);
}

/// Curator's `TestZPath.testSchema`, and what its `ModelSpec.schema` sets.
#[tokio::test]
async fn schema_of_a_description_has_its_rules() {
    let server = server();
    let described = |path: &str, options| ModelSpec::<User>::with_options(path, JsonCodec, options).unwrap();
    let ephemeral = ModelSpecOptions::new().mode(CreateMode::Ephemeral);
    let specs = [
        described("/a.b/{user}/<c>{d}/e", ModelSpecOptions::new()),
        described("/on/{user}", ephemeral),
        described("/one", ModelSpecOptions::new()),
    ];
    let set = SchemaSet::new(specs.each_ref().map(|spec| spec.schema().unwrap()), OtherPaths::Refused);
    for (path, rule) in [
        ("/a.b/ada/<c>{d}/e", Some("/a.b/{user}/<c>{d}/e")),
        ("/a.b/ada/x/<c>{d}/e", None),
        ("/aXb/ada/<c>{d}/e", None),
        ("/a.b//<c>{d}/e", None),
        ("/a.b/ada/<c>{d}/e/f", None),
        ("/on/ada", Some("/on/{user}")),
        ("/one", Some("/one")),
        ("/one/two", None),
    ] {
        assert_eq!(set.schema_of(path).ok(), rule, "{path}");
    }
    let parents = ["/a.b", "/a.b/ada", "/a.b/ada/<c>{d}", "/on"].map(|path| Schema::for_path(path).unwrap());
    let all = specs.each_ref().map(|spec| spec.schema().unwrap()).into_iter().chain(parents);
    let set = SchemaSet::new(all, OtherPaths::Refused);
    let client = connected(builder(server.address()).schema_set(set)).await;
    let one = ModeledNode::new(client.clone(), specs[2].clone()).unwrap();
    in_time(one.create(&user(1))).await.unwrap();
    let written = in_time(client.set_data().for_path("/one", "no JSON")).await;
    assert!(matches!(written, Err(Error::SchemaViolation { .. })), "{written:?}");
    in_time(one.set(&user(2))).await.unwrap();
    let on = ModeledFramework::new(client.clone(), specs[1].clone()).unwrap();
    in_time(on.at("ada").unwrap().create(&user(1))).await.unwrap();
    let data = JsonCodec.encode(&user(1)).unwrap();
    for (path, mode) in [
        ("/on/bob", CreateMode::Persistent),
        ("/on/bob", CreateMode::EphemeralSequential),
        ("/a.b/ada/<c>{d}/e", CreateMode::Ephemeral),
    ] {
        let created = client.create().with_mode(mode).with_data(data.clone()).for_path(path).await;
        assert!(matches!(created, Err(Error::SchemaViolation { .. })), "{path}: {created:?}");
    }
}

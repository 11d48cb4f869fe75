//! Curator's `TestModeledFramework`, and what it leaves out.

use curator_framework::recipe::owning_session;
use curator_framework::{Acl, CreateMode, Error, Permission, Stat};
use curator_integration::clients::is_zookeeper_async;
use curator_integration::env::{builder, connected, in_time};
use curator_integration::on_every_server;
use curator_recipes::{
    JsonCodec, Migration, MigrationError, MigrationManager, MigrationSet, ModelError, ModelSpec, ModelSpecOptions,
    ModeledFramework, ModeledNode, RawCodec, Versioned,
};
use futures_util::future::join_all;
use serde::{Deserialize, Serialize};

use crate::fails;
use crate::typed_stage::{User, told, user, users, users_with};

/// A user as an older program knows it.
#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Named {
    name: String,
}

on_every_server! {
    /// Curator's `testCrud`.
    async fn node_is_created_read_written_and_deleted(env) {
        let (client, path) = (env.client().await, env.path("users"));
        let users = users(&client, &path);
        let ada = users.at("ada").unwrap();
        assert_eq!(ada.path(), format!("{path}/ada"));
        assert_eq!((in_time(ada.exists()).await.unwrap(), in_time(ada.read_opt()).await.unwrap()), (None, None));
        fails!(ada.read(), NoNode);
        fails!(ada.update(0, &user(1)), NoNode);
        fails!(ada.modify(|_| Ok(())), NoNode);
        fails!(ada.delete(), NoNode);
        fails!(ada.delete_version(0), NoNode);
        let stat = in_time(ada.create(&user(1))).await.unwrap();
        assert_eq!(client.get_data().for_path(ada.path()).await.unwrap(), (br#"{"name":"Ada","logins":1}"#.to_vec(), stat));
        // The same data, and the same version, but no reply was lost.
        fails!(ada.create(&user(1)), NodeExists);
        let read = in_time(ada.read()).await.unwrap();
        assert_eq!((&read.value, read.version, read.stat), (&user(1), 0, stat));
        let stat = in_time(ada.set(&user(2))).await.unwrap();
        assert_eq!(stat.version, 1);
        let stat = in_time(ada.update(1, &user(3))).await.unwrap();
        let Versioned { value, version, .. } = in_time(ada.read_opt()).await.unwrap().unwrap();
        assert_eq!((value, version, in_time(ada.exists()).await.unwrap()), (user(3), 2, Some(stat)));
        in_time(ada.delete()).await.unwrap();
        assert_eq!(in_time(ada.exists()).await.unwrap(), None);
        assert_eq!(in_time(ada.set(&user(4))).await.unwrap().version, 0, "it is created");
        // Curator's `testDelete`.
        let child = format!("{}/child", ada.path());
        client.create().for_path(&child).await.unwrap();
        fails!(ada.delete(), NotEmpty);
        fails!(ada.delete_version(0), NotEmpty);
        client.delete().for_path(&child).await.unwrap();
        fails!(ada.delete_version(7), BadVersion);
        in_time(ada.delete_version(0)).await.unwrap();
    }

    /// Curator's `testVersioned`.
    async fn write_of_another_version_is_refused(env) {
        let client = env.client().await;
        let ada = users(&client, &env.path("users")).at("ada").unwrap();
        in_time(ada.create(&user(1))).await.unwrap();
        let read = in_time(ada.read()).await.unwrap();
        in_time(ada.set(&user(2))).await.unwrap();
        fails!(ada.update(read.version, &user(9)), BadVersion);
        fails!(ada.delete_version(read.version), BadVersion);
        for failed in [in_time(ada.update(-1, &user(9))).await.map(|_| ()), in_time(ada.delete_version(-1)).await] {
            assert!(matches!(failed, Err(ModelError::InvalidArgument { argument: "version", .. })), "{failed:?}");
        }
        let read = in_time(ada.read()).await.unwrap();
        assert_eq!((read.value, read.version), (user(2), 1));
    }

    async fn modifications_of_many_tasks_all_count(env) {
        let (clients, path) = ([env.client().await, env.client().await], env.path("users"));
        in_time(users(&clients[0], &path).at("ada").unwrap().create(&user(0))).await.unwrap();
        let tasks = (0..6).map(|task| {
            let ada = users(&clients[task % 2], &path).at("ada").unwrap();
            tokio::spawn(async move {
                for _ in 0..10 {
                    in_time(ada.modify(|user| {
                        user.logins += 1;
                        Ok(())
                    }))
                    .await
                    .unwrap();
                }
            })
        });
        for task in join_all(tasks).await {
            task.unwrap();
        }
        let read = in_time(users(&clients[0], &path).at("ada").unwrap().read()).await.unwrap();
        assert_eq!((read.value.logins, read.version), (60, 60), "no write without its change");
    }

    async fn modification_returns_the_value_or_the_error_of_its_closure(env) {
        let client = env.client().await;
        let ada = users(&client, &env.path("users")).at("ada").unwrap();
        in_time(ada.create(&user(0))).await.unwrap();
        let login = |user: &mut User| {
            user.logins += 1;
            if user.logins > 1 { Err("too many".into()) } else { Ok(()) }
        };
        let changed = in_time(ada.modify(login)).await.unwrap();
        assert_eq!((&changed.value, changed.version, changed.stat.version), (&user(1), 1, 1));
        let refused = in_time(ada.modify(login)).await.unwrap_err();
        let ModelError::Refused { path, cause } = &refused else { panic!("{refused:?}") };
        assert_eq!((path.as_str(), cause.to_string().as_str()), (ada.path(), "too many"));
        assert_eq!(in_time(ada.read()).await.unwrap(), changed);
    }

    /// Curator's `testBadNode` and `testGetChildren`.
    async fn node_that_cannot_be_decoded_fails_alone(env) {
        let (client, path) = (env.client().await, env.path("users"));
        let users = users(&client, &path);
        assert_eq!((in_time(users.keys()).await.unwrap(), in_time(users.read_all()).await.unwrap().len()), (Vec::<String>::new(), 0));
        // More than one request reads.
        for number in (0..70).rev() {
            in_time(users.at(format!("{number:02}")).unwrap().create(&user(number))).await.unwrap();
        }
        for (key, data) in [("05", "no JSON"), ("33", "")] {
            client.set_data().for_path(&format!("{path}/{key}"), data).await.unwrap();
            let failed = in_time(users.at(key).unwrap().read()).await;
            assert!(matches!(&failed, Err(ModelError::Decode { path: named, .. }) if named.as_str() == format!("{path}/{key}")), "{failed:?}");
            let failed = in_time(users.at(key).unwrap().modify(|_| Ok(()))).await;
            assert!(matches!(failed, Err(ModelError::Decode { .. })), "{failed:?}");
        }
        let keys: Vec<String> = (0..70).map(|number| format!("{number:02}")).collect();
        assert_eq!(in_time(users.keys()).await.unwrap(), keys);
        let wanted = (0..70).zip(keys).map(|(number, key)| match number {
            5 | 33 => { let error = format!("the data of {path}/{key} cannot be decoded"); (key, Err(error)) }
            _ => (key, Ok(number)),
        });
        assert_eq!(told(in_time(users.read_all()).await.unwrap()), wanted.collect::<Vec<_>>());
        // A write repairs it.
        in_time(users.at("33").unwrap().set(&user(33))).await.unwrap();
        assert_eq!(in_time(users.at("33").unwrap().read()).await.unwrap().value, user(33));
    }

    async fn node_that_may_not_be_read_fails_alone(env) {
        let (client, path) = (env.client().await, env.path("users"));
        let owner = connected(builder(env.address()).authorization("digest", "ann:secret")).await;
        let own = users_with(&owner, &path, ModelSpecOptions::new().acl(Acl::creator_all()));
        let users = users(&client, &path);
        in_time(users.at("a").unwrap().create(&user(1))).await.unwrap();
        in_time(own.at("b").unwrap().create(&user(2))).await.unwrap();
        let all = in_time(users.read_all()).await.unwrap();
        assert!(matches!(&all[1], (key, Err(ModelError::Framework(curator_framework::Error::NoAuth { .. }))) if key == "b"), "{all:?}");
        assert_eq!(all[0].1.as_ref().unwrap().value, user(1));
        assert_eq!(told(in_time(own.read_all()).await.unwrap()), [("a".to_owned(), Ok(1)), ("b".to_owned(), Ok(2))]);
    }

    /// Curator's `testAcl` and `testExceptionHandling`.
    async fn node_gets_the_list_of_its_description(env) {
        let (client, path) = (env.client().await, env.path("users"));
        let list = vec![Acl::new(Permission::READ | Permission::ADMIN, "world", "anyone")];
        let users = users_with(&client, &path, ModelSpecOptions::new().acl(list.clone()));
        in_time(users.at("created").unwrap().create(&user(1))).await.unwrap();
        in_time(users.at("set").unwrap().set(&user(1))).await.unwrap();
        for key in ["created", "set"] {
            let node = users.at(key).unwrap();
            assert_eq!(client.get_acl().for_path(node.path()).await.unwrap().0, list, "{key}");
            fails!(node.set(&user(2)), NoAuth);
            fails!(node.update(0, &user(2)), NoAuth);
            fails!(node.modify(|_| Ok(())), NoAuth);
        }
        assert_eq!(client.get_acl().for_path(&path).await.unwrap().0, Acl::open_unsafe(), "the parent has the client's");
    }

    /// Curator's `testCompressedCreateAndRead` and `testCompressedUpdateAndRead`.
    async fn compression_is_that_of_the_description_or_the_client(env) {
        let path = env.path("users");
        let (plain, compressing) = (env.client().await, connected(builder(env.address()).enable_compression()).await);
        let by = |client, options| users_with(client, &path, options).at("ada").unwrap();
        let compressed = [
            by(&plain, ModelSpecOptions::new().compressed()),
            by(&compressing, ModelSpecOptions::new()),
            by(&compressing, ModelSpecOptions::new().compressed()),
        ];
        let uncompressed = [
            by(&plain, ModelSpecOptions::new()),
            by(&compressing, ModelSpecOptions::new().uncompressed()),
        ];
        for (writers, others) in [(&compressed[..], &uncompressed[..]), (&uncompressed[..], &compressed[..])] {
            for writer in writers {
                in_time(writer.create(&user(1))).await.unwrap();
                let mut version = 0;
                loop {
                    let stored = plain.get_data().undecompressed().for_path(writer.path()).await.unwrap().0;
                    assert_eq!(stored.starts_with(&[0x1f, 0x8b]), writers.len() == compressed.len(), "gzip's own beginning");
                    for reader in writers {
                        let read = in_time(reader.read()).await.unwrap();
                        assert_eq!((read.value.logins, read.version), (u32::try_from(version).unwrap() + 1, version));
                    }
                    assert!(in_time(others[0].read()).await.is_err());
                    version = match version {
                        0 => in_time(writer.set(&user(2))).await.unwrap().version,
                        1 => in_time(writer.update(1, &user(3))).await.unwrap().version,
                        2 => in_time(writer.modify(|user| { user.logins += 1; Ok(()) })).await.unwrap().version,
                        _ => break,
                    };
                }
                in_time(writer.delete_version(version)).await.unwrap();
                in_time(writer.set(&user(1))).await.unwrap();
                assert_eq!(in_time(writers[0].read()).await.unwrap().value, user(1), "set creates it in the same form");
                in_time(writer.delete()).await.unwrap();
            }
        }
        in_time(compressed[0].create(&user(7))).await.unwrap();
        let all = users_with(&plain, &path, ModelSpecOptions::new().compressed());
        assert_eq!(told(in_time(all.read_all()).await.unwrap()), [("ada".to_owned(), Ok(7))]);
        let all = in_time(users(&plain, &path).read_all()).await.unwrap();
        assert!(matches!(all[0].1, Err(ModelError::Decode { .. })), "{all:?}");
    }

    /// Curator's `testBackwardCompatibility`.
    async fn older_reader_ignores_new_fields(env) {
        let (client, path) = (env.client().await, env.path("users"));
        in_time(users(&client, &path).at("ada").unwrap().create(&user(1))).await.unwrap();
        let spec = ModelSpec::<Named>::new(format!("{path}/ada"), JsonCodec).unwrap();
        let named = ModeledNode::new(client, spec).unwrap();
        assert_eq!(in_time(named.read()).await.unwrap().value, Named { name: "Ada".to_owned() });
    }

    async fn ephemeral_node_is_its_sessions(env) {
        let (client, path) = (env.client().await, env.path("users"));
        let users = users_with(&client, &path, ModelSpecOptions::new().mode(CreateMode::Ephemeral));
        let owner = |stat: Stat| owning_session(stat.ephemeral_owner);
        assert!(owner(in_time(users.at("a").unwrap().create(&user(1))).await.unwrap()).is_some());
        assert!(owner(in_time(users.at("b").unwrap().set(&user(1))).await.unwrap()).is_some());
        client.close().await;
        let users = users_with(&env.client().await, &path, ModelSpecOptions::new());
        assert_eq!(in_time(users.keys()).await.unwrap(), Vec::<String>::new());
    }

    async fn paths_have_as_many_parameters_as_keys(env) {
        let (client, path) = (env.client().await, env.path("users"));
        let spec = ModelSpec::<String>::new(format!("{path}/{{id}}/orders/{{order}}"), RawCodec).unwrap();
        for (spec, is_directory, is_node) in [
            (spec.clone(), false, false),
            (spec.resolved("ada").unwrap(), true, false),
            (spec.resolved("ada").unwrap().resolved(17).unwrap(), false, true),
        ] {
            assert_eq!(ModeledFramework::new(client.clone(), spec.clone()).is_ok(), is_directory, "{spec:?}");
            assert_eq!(ModeledNode::new(client.clone(), spec.clone()).is_ok(), is_node, "{spec:?}");
        }
        let orders = ModeledFramework::new(client.clone(), spec.resolved("ada").unwrap()).unwrap();
        in_time(orders.at(17).unwrap().create(&"two of them".to_owned())).await.unwrap();
        assert_eq!((orders.path(), in_time(orders.keys()).await.unwrap()), (&*format!("{path}/ada/orders"), vec!["17".to_owned()]));
        for key in ["", "a/b", ".", "..", "a\u{7}"] {
            let refused = orders.at(key);
            assert!(matches!(&refused, Err(ModelError::InvalidKey { key: named, .. }) if named == key), "{refused:?}");
        }
        // Parents are not created.
        let options = ModelSpecOptions::new().without_parents();
        let spec = ModelSpec::<String>::with_options(format!("{path}/bob/orders/1"), RawCodec, options).unwrap();
        let node = ModeledNode::new(client, spec).unwrap();
        fails!(node.create(&String::new()), NoNode);
        fails!(node.set(&String::new()), NoNode);
    }

    /// Without transactions migrations are refused before the first request, and operations when they are committed.
    async fn migrations_need_transactions(env) {
        let (client, path) = (env.client().await, env.path("users"));
        client.create().creating_parents_if_needed().for_path(&path).await.unwrap();
        let create = users(&client, &path).at("ada").unwrap().create_op(&user(1)).unwrap();
        let manager = MigrationManager::new(client.clone(), env.path("locks"), env.path("applied")).unwrap();
        let migrated = in_time(manager.migrate(&MigrationSet::new("main", [Migration::new([create.clone()])]))).await;
        if is_zookeeper_async() {
            let refused = migrated.unwrap_err();
            assert!(matches!(refused, MigrationError::Framework(Error::Unsupported { .. })), "{refused:?}");
            let refused = in_time(client.transaction().operation(create).commit()).await;
            assert!(matches!(refused, Err(Error::Unsupported { .. })), "{refused:?}");
            assert_eq!(client.check_exists().for_path(&env.path("locks")).await.unwrap(), None);
        } else {
            assert_eq!(migrated.unwrap(), 1);
        }
    }
}

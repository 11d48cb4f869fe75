//! Queries: Curator's `TestServiceDiscovery`, and what one broken instance does to the others.

use curator_discovery::{DecodeError, DiscoveryError, RawPayload, ServiceDiscovery, ServiceDiscoveryOptions};
use curator_framework::{Acl, Permission};
use curator_integration::env::{builder as client_builder, connected, in_time};
use curator_integration::on_every_server;

use crate::stage::{builder, discovery, ids, instance, is_invalid, registered, stat_of, text_of};

on_every_server! {
    /// Curator's `TestServiceDiscovery.testBasic`, and its bytes.
    async fn instance_is_found_with_the_bytes_of_java(env) {
        let (client, base) = (env.client().await, env.path("disc/base"));
        let discovery = discovery(&client, &base);
        assert!(in_time(discovery.names()).await.unwrap().is_empty());
        assert!(ids(&discovery, "web").await.is_empty());
        assert_eq!(in_time(discovery.instance("web", "i1")).await.unwrap(), None);
        let web = registered(&discovery, instance("web", "i1")).await;
        assert_eq!(in_time(discovery.names()).await.unwrap(), ["web"]);
        assert_eq!(in_time(discovery.instances("web")).await.unwrap().found, [instance("web", "i1")]);
        assert_eq!(in_time(discovery.instance("web", "i1")).await.unwrap(), Some(instance("web", "i1")));
        let (path, node_path) = (web.path().to_owned(), web.node_path().unwrap());
        assert_eq!((path, node_path.clone()), (format!("{base}/web"), format!("{base}/web/i1")));
        let json = r#"{"name":"web","id":"i1","address":"10.0.0.7","port":80,"sslPort":null,"payload":"p","registrationTimeUTC":1,"serviceType":"DYNAMIC","uriSpec":null}"#;
        assert_eq!(text_of(&client, &node_path).await, json);
        for parent in [base.clone(), format!("{base}/web")] {
            assert_eq!(text_of(&client, &parent).await, "", "{parent}");
        }
    }

    /// Curator's `TestServiceDiscovery.testMultipleInstances`.
    async fn instances_of_several_services_are_told_apart(env) {
        let (client, other, base) = (env.client().await, env.client().await, env.path("base"));
        let (one, two) = (discovery(&client, &base), discovery(&other, &base));
        let mut all = Vec::new();
        for (discovery, name, id) in [(&one, "a", "1"), (&two, "a", "2"), (&two, "b", "1"), (&one, "b", "2"), (&one, "b", "3")] {
            all.push(registered(discovery, instance(name, id)).await);
        }
        for discovery in [&one, &two] {
            assert_eq!(in_time(discovery.names()).await.unwrap(), ["a", "b"]);
            assert_eq!(ids(discovery, "a").await, ["1", "2"]);
            assert_eq!(ids(discovery, "b").await, ["1", "2", "3"]);
        }
    }

    /// CURATOR-574: in Curator each of these nodes fails the whole query.
    async fn broken_instance_is_reported_beside_the_others(env) {
        let (client, base) = (env.client().await, env.path("base"));
        let discovery = discovery(&client, &base);
        let _good = registered(&discovery, instance("web", "good")).await;
        let hidden = Acl::new(Permission::ALL, "ip", "192.0.2.1");
        for (node, data) in [("empty", ""), ("foreign", "hello"), ("number", r#"{"payload":5}"#)] {
            client.create().with_data(data).for_path(&format!("{base}/web/{node}")).await.unwrap();
        }
        let hide = client.create().with_data("{}").with_acl(vec![hidden]);
        hide.for_path(&format!("{base}/web/hidden")).await.unwrap();
        let instances = in_time(discovery.instances("web")).await.unwrap();
        assert_eq!(instances.found, [instance("web", "good")]);
        let reasons: Vec<_> = instances.broken.iter().map(|(node, error)| (node.as_str(), error)).collect();
        let expected = matches!(
            &reasons[..],
            [
                ("empty", DecodeError::Empty),
                ("foreign", DecodeError::Json(_)),
                ("hidden", DecodeError::Unreadable(_)),
                ("number", DecodeError::Payload(_)),
            ]
        );
        assert!(expected, "{reasons:?}");
        let one = in_time(discovery.instance("web", "foreign")).await;
        assert!(matches!(one, Err(DiscoveryError::Decode { .. })), "{one:?}");
    }

    /// More instances than reads are in flight.
    async fn all_of_many_instances_are_read(env) {
        let (client, base) = (env.client().await, env.path("base"));
        let discovery = discovery(&client, &base);
        client.create().creating_parents_if_needed().for_path(&format!("{base}/web")).await.unwrap();
        let mut expected = Vec::new();
        for number in 0..200 {
            let id = format!("{number:03}");
            let json = format!(r#"{{"name":"web","id":"{id}","payload":"p"}}"#);
            client.create().with_data(json).for_path(&format!("{base}/web/{id}")).await.unwrap();
            expected.push(id);
        }
        assert_eq!(ids(&discovery, "web").await, expected);
    }

    /// Curator's `TestServiceDiscovery.testCustomPathConstructor`.
    async fn layout_of_the_program_is_used(env) {
        let (client, base) = (env.client().await, env.path("base"));
        let root = base.clone();
        let options = ServiceDiscoveryOptions::new().path(move |name| format!("{root}/{name}/eu/instances"));
        let discovery: ServiceDiscovery<String> = ServiceDiscovery::with_options(client.clone(), &base, options).unwrap();
        let registration = registered(&discovery, instance("web", "i1")).await;
        assert_eq!(registration.node_path().unwrap(), format!("{base}/web/eu/instances/i1"));
        assert_eq!(ids(&discovery, "web").await, ["i1"]);
        assert_eq!(in_time(discovery.names()).await.unwrap(), ["web"]);
    }

    async fn names_with_slashes_and_names_that_no_listing_finds(env) {
        let (client, base) = (env.client().await, env.path("base"));
        let discovery = discovery(&client, &base);
        let _cart = registered(&discovery, instance("shop/cart", "i1")).await;
        assert_eq!(ids(&discovery, "shop/cart").await, ["i1"]);
        let shop = in_time(discovery.instances("shop")).await.unwrap();
        assert!(shop.found.is_empty() && shop.broken.is_empty(), "{:?}", shop.broken);
        for name in ["", "a//b", "/a", "zookeeper"] {
            is_invalid(in_time(discovery.instances(name)).await, "name");
        }
        for id in ["", "a/b", "zookeeper"] {
            is_invalid(in_time(discovery.instance("web", id)).await, "id");
        }
        let mut changed = instance("web", "i1");
        changed.id = "a/b".to_owned();
        is_invalid(in_time(discovery.register(changed)).await, "id");
    }

    async fn instance_of_another_program_is_registered_with_its_unknown_fields(env) {
        let (client, base) = (env.client().await, env.path("base"));
        let raw: ServiceDiscovery<RawPayload> = ServiceDiscovery::new(client.clone(), &base).unwrap();
        let json = r#"{"name":"web","id":"i1","address":"h","port":1,"sslPort":null,"payload":{"@class":"a.B","x": 1},"registrationTimeUTC":1,"serviceType":"DYNAMIC","uriSpec":null,"weight":[2]}"#;
        let path = format!("{base}/web/i1");
        client.create().creating_parents_if_needed().with_data(json).for_path(&path).await.unwrap();
        let read = in_time(raw.instance("web", "i1")).await.unwrap().unwrap();
        client.delete().for_path(&path).await.unwrap();
        let _again = registered(&raw, read).await;
        assert_eq!(text_of(&client, &path).await, json);
    }

    async fn instance_without_an_address_gets_one(env) {
        let (client, base) = (env.client().await, env.path("base"));
        let discovery = discovery(&client, &base);
        let mut local = builder("web", "i1").build().unwrap();
        local.address = None;
        let registration = registered(&discovery, local).await;
        // The servers of the tests are on this host.
        assert_eq!(registration.instance().unwrap().address.as_deref(), Some("127.0.0.1"));
    }

    async fn instances_have_the_list_of_the_options(env) {
        let (client, base) = (env.client().await, env.path("base"));
        let list = vec![Acl::new(Permission::ALL, "ip", "127.0.0.1")];
        let options = ServiceDiscoveryOptions::new().acl(list.clone());
        let discovery: ServiceDiscovery<String> = ServiceDiscovery::with_options(client.clone(), &base, options).unwrap();
        let registration = registered(&discovery, instance("web", "i1")).await;
        assert_eq!(client.get_acl().for_path(&registration.node_path().unwrap()).await.unwrap().0, list);
    }

    async fn namespaces_have_registrations_of_their_own(env) {
        let root = env.path("root").trim_start_matches('/').to_owned();
        let plain = connected(client_builder(env.address())).await;
        let (one, two) =
            (plain.using_namespace(&format!("{root}/one")).unwrap(), plain.using_namespace(&format!("{root}/two")).unwrap());
        let _one = registered(&discovery(&one, "/base"), instance("web", "i1")).await;
        let _two = registered(&discovery(&two, "/base"), instance("web", "i1")).await;
        assert!(stat_of(&plain, &format!("/{root}/two/base/web/i1")).await.is_some());
    }
}

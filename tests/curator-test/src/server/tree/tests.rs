use super::*;

fn at(zxid: i64) -> Stamp {
    Stamp { zxid, wall_ms: zxid * 1000 }
}

fn new_node(sequential: bool, owner: i64) -> NodeSpec {
    NodeSpec { data: Some(b"abc".to_vec()), acl: vec![Acl::open()], owner, sequential }
}

fn create(tree: &mut Tree, path: &str, zxid: i64) -> Result<String, ErrorCode> {
    tree.create(path, new_node(false, 0), at(zxid))
}

fn create_sequential(tree: &mut Tree, path: &str, zxid: i64) -> String {
    tree.create(path, new_node(true, 0), at(zxid)).unwrap()
}

#[test]
fn a_new_tree_looks_like_apaches() {
    let tree = Tree::new();
    let root = tree.get("/").unwrap().stat();
    assert_eq!((root.cversion, root.num_children, root.pzxid), (-1, 1, 0));
    assert_eq!(tree.get("/zookeeper").unwrap().stat().cversion, -2);
    assert!(tree.contains("/zookeeper/config") && tree.contains("/zookeeper/quota"));
}

#[test]
fn stat_follows_each_write() {
    let mut tree = Tree::new();
    create(&mut tree, "/a", 1).unwrap();
    let fresh = tree.get("/a").unwrap().stat();
    assert_eq!(
        fresh,
        Stat { czxid: 1, mzxid: 1, pzxid: 1, ctime: 1000, mtime: 1000, data_length: 3, ..Stat::default() }
    );

    let written = tree.set_data("/a", None, at(2)).unwrap();
    assert_eq!(written, Stat { mzxid: 2, mtime: 2000, version: 1, data_length: 0, ..fresh });
    let guarded = tree.set_acl("/a", vec![Acl::open()]).unwrap();
    assert_eq!(guarded, Stat { aversion: 1, ..written });

    create(&mut tree, "/a/x", 4).unwrap();
    create(&mut tree, "/a/y", 5).unwrap();
    tree.delete("/a/x", at(6)).unwrap();
    let parent = tree.get("/a").unwrap().stat();
    assert_eq!(parent, Stat { cversion: 3, num_children: 1, pzxid: 6, ..guarded });
}

#[test]
fn every_create_takes_a_number_and_a_delete_gives_none_back() {
    let mut tree = Tree::new();
    create(&mut tree, "/a", 1).unwrap();
    assert_eq!(create_sequential(&mut tree, "/a/n-", 2), "/a/n-0000000000");
    create(&mut tree, "/a/plain", 3).unwrap();
    assert_eq!(create_sequential(&mut tree, "/a/n-", 4), "/a/n-0000000002");
    tree.delete("/a/n-0000000002", at(5)).unwrap();
    assert_eq!(create_sequential(&mut tree, "/a/n-", 6), "/a/n-0000000003");
    assert_eq!(create_sequential(&mut tree, "/a/", 7), "/a/0000000004");
    assert_eq!(create_sequential(&mut tree, "/", 8), "/0000000001");
}

#[test]
fn the_counter_sticks_at_its_end() {
    let mut tree = Tree::new();
    assert!(tree.set_next_sequence("/", i32::MAX - 1));
    assert!(!tree.set_next_sequence("/none", 1));
    assert_eq!(create_sequential(&mut tree, "/n-", 1), "/n-2147483646");
    assert_eq!(create_sequential(&mut tree, "/n-", 2), "/n-2147483647");
    tree.forget_overruns();
    assert_eq!(create_sequential(&mut tree, "/m-", 3), "/m-2147483647");
    tree.forget_overruns();
    assert_eq!(tree.get("/").unwrap().stat().pzxid, 1);
    let again = tree.create("/n-", new_node(true, 0), at(4));
    assert_eq!(again, Err(ErrorCode::NodeExists));
}

/// As measured with Apache, where twelve creates were sent at once.
#[test]
fn a_burst_runs_over_the_end() {
    let mut tree = Tree::new();
    assert!(tree.set_next_sequence("/", i32::MAX));
    assert_eq!(create_sequential(&mut tree, "/n-", 1), "/n-2147483647");
    assert_eq!(create_sequential(&mut tree, "/n-", 2), "/n--2147483648");
    assert_eq!(create_sequential(&mut tree, "/n-", 3), "/n--2147483647");
    tree.forget_overruns();
    assert_eq!(create_sequential(&mut tree, "/m-", 4), "/m-2147483647");
}

#[test]
fn what_is_rolled_back_has_not_been() {
    let mut tree = Tree::new();
    create(&mut tree, "/a", 1).unwrap();
    create(&mut tree, "/a/b", 2).unwrap();
    tree.create("/e", new_node(false, 7), at(3)).unwrap();
    let stats = |tree: &Tree| ["/", "/a", "/a/b", "/e"].map(|path| tree.get(path).unwrap().stat());
    let before = stats(&tree);
    tree.begin();
    tree.set_data("/a", None, at(4)).unwrap();
    tree.delete("/a/b", at(4)).unwrap();
    tree.delete("/a", at(4)).unwrap();
    create(&mut tree, "/a", 4).unwrap();
    create_sequential(&mut tree, "/a/n-", 4);
    tree.delete("/e", at(4)).unwrap();
    tree.create("/f", new_node(false, 7), at(4)).unwrap();
    tree.create("/c", new_node(false, CONTAINER_OWNER), at(4)).unwrap();
    tree.roll_back();
    assert_eq!(stats(&tree), before);
    assert_eq!(tree.ephemerals_of(7), ["/e"]);
    assert_eq!((tree.len(), tree.has_reapable()), (7, false));
    tree.begin();
    create(&mut tree, "/kept", 5).unwrap();
    tree.commit();
    tree.roll_back();
    assert!(tree.contains("/kept"));
}

#[test]
fn containers_and_nodes_with_a_time_to_live_come_due() {
    let mut tree = Tree::new();
    let ttl = ttl_owner(5000).unwrap();
    tree.create("/container", new_node(false, CONTAINER_OWNER), at(1)).unwrap();
    tree.create("/ttl", new_node(false, ttl), at(1)).unwrap();
    assert_eq!((ttl_owner(0), ttl_owner(MAX_TTL + 1)), (None, None));
    // A container that never had a child stays.
    assert_eq!(tree.due(6000), [""; 0]);
    assert_eq!(tree.due(6001), ["/ttl"]);
    for parent in ["/container", "/ttl"] {
        create(&mut tree, &format!("{parent}/child"), 2).unwrap();
    }
    assert_eq!(tree.due(6001), [""; 0]);
    for parent in ["/container", "/ttl"] {
        tree.delete(&format!("{parent}/child"), at(3)).unwrap();
        assert_eq!(tree.get(parent).unwrap().stat().ephemeral_owner, 0);
    }
    assert_eq!(tree.due(6001), ["/container", "/ttl"]);
    tree.set_data("/ttl", None, at(5)).unwrap();
    assert_eq!(tree.due(6001), ["/container"]);
}

#[test]
fn nodes_below_a_node_are_counted() {
    let mut tree = Tree::new();
    for (zxid, path) in ["/a", "/a/b", "/a/b/c", "/ab"].into_iter().enumerate() {
        create(&mut tree, path, zxid as i64).unwrap();
    }
    assert_eq!(["/", "/a", "/a/b", "/ab"].map(|path| tree.count_below(path)), [7, 2, 1, 0]);
}

#[test]
fn creates_and_deletes_are_refused_as_apache_refuses_them() {
    let mut tree = Tree::new();
    create(&mut tree, "/a", 1).unwrap();
    create(&mut tree, "/a/b", 2).unwrap();
    tree.create("/e", new_node(false, 7), at(3)).unwrap();
    for (path, error) in [
        ("/", ErrorCode::NodeExists),
        ("/a", ErrorCode::NodeExists),
        ("/none/b", ErrorCode::NoNode),
        ("/e/child", ErrorCode::NoChildrenForEphemerals),
        ("a", ErrorCode::BadArguments),
        ("", ErrorCode::BadArguments),
        ("/a/", ErrorCode::BadArguments),
        ("//", ErrorCode::BadArguments),
        ("//b", ErrorCode::BadArguments),
        ("/a/..", ErrorCode::BadArguments),
        ("/a/\u{1}", ErrorCode::BadArguments),
        ("/a/\0", ErrorCode::BadArguments),
    ] {
        assert_eq!(create(&mut tree, path, 4), Err(error), "{path:?}");
    }
    for (path, error) in [
        ("/", ErrorCode::BadArguments),
        ("/zookeeper", ErrorCode::BadArguments),
        ("/a", ErrorCode::NotEmpty),
        ("/none", ErrorCode::NoNode),
    ] {
        assert_eq!(tree.delete(path, at(5)), Err(error), "{path:?}");
    }
}

#[test]
fn ephemerals_are_known_by_their_session() {
    let mut tree = Tree::new();
    for path in ["/b", "/a", "/c"] {
        tree.create(path, new_node(false, 7), at(1)).unwrap();
    }
    tree.create("/other", new_node(false, 8), at(1)).unwrap();
    tree.create("/container", new_node(false, CONTAINER_OWNER), at(1)).unwrap();
    create(&mut tree, "/container/child", 1).unwrap();
    tree.delete("/b", at(2)).unwrap();
    assert_eq!(tree.ephemerals_of(7), ["/a", "/c"]);
    assert_eq!(tree.ephemerals_of(CONTAINER_OWNER), [""; 0]);
}

#[test]
fn paths_are_valid_where_apache_says_so() {
    for valid in ["/", "/a", "/a/b", "/...", "/a.b/..c", "/ä/ ", "/\u{f900}"] {
        assert!(is_valid(valid), "{valid:?}");
    }
    for invalid in
        ["", "a", "/a/", "//", "/a//b", "/.", "/a/./b", "/..", "/\u{7f}", "/\u{e000}", "/\u{ffff}", "/\u{1f600}"]
    {
        assert!(!is_valid(invalid), "{invalid:?}");
    }
}

#[test]
fn children_come_in_no_useful_order_but_always_the_same() {
    let list = || {
        let mut tree = Tree::new();
        for zxid in 1..=50 {
            create_sequential(&mut tree, "/n-", zxid);
        }
        tree.get("/").unwrap().children().cloned().collect::<Vec<_>>()
    };
    assert_eq!(list(), list());
    assert!(!list().is_sorted());
}

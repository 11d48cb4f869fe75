//! Which client the tests run with: ours, or with `CURATOR_TEST_CLIENT=zookeeper-async` that crate.

use curator_framework::{CuratorFrameworkBuilder, DefaultZooKeeperFactory, ZooKeeperAsyncFactory};

/// Whether it is the crate `zookeeper-async`.
pub fn is_zookeeper_async() -> bool {
    match std::env::var("CURATOR_TEST_CLIENT") {
        Ok(name) if name == "zookeeper-async" => true,
        Ok(name) => panic!("CURATOR_TEST_CLIENT cannot be {name:?}"),
        Err(_) => false,
    }
}

pub fn with_client(builder: CuratorFrameworkBuilder) -> CuratorFrameworkBuilder {
    if is_zookeeper_async() {
        builder.zookeeper_factory(ZooKeeperAsyncFactory)
    } else {
        builder.zookeeper_factory(DefaultZooKeeperFactory::new())
    }
}

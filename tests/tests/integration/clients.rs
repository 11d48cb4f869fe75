//! Which client crate the tests run with: the default one, or with `CURATOR_TEST_CLIENT=zookeeper-client` the second.

use curator_framework::{CuratorFrameworkBuilder, ZooKeeperAsyncFactory, ZookeeperClientFactory};

/// Whether it is the second one.
pub(crate) fn is_second() -> bool {
    match std::env::var("CURATOR_TEST_CLIENT") {
        Ok(name) if name == "zookeeper-client" => true,
        Ok(name) => panic!("CURATOR_TEST_CLIENT cannot be {name:?}"),
        Err(_) => false,
    }
}

pub(crate) fn with_client(builder: CuratorFrameworkBuilder) -> CuratorFrameworkBuilder {
    if is_second() {
        builder.zookeeper_factory(ZookeeperClientFactory)
    } else {
        builder.zookeeper_factory(ZooKeeperAsyncFactory)
    }
}

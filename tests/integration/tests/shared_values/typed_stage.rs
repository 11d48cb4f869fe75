//! The common parts of the tests of typed nodes.

use curator_framework::{CuratorFramework, CuratorFrameworkBuilder, RetryForever};
use curator_integration::env::builder;
use curator_recipes::{JsonCodec, ModelError, ModelSpec, ModelSpecOptions, ModeledFramework, Versioned};
use curator_test::FaultProxy;
use serde::{Deserialize, Serialize};

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct User {
    pub(crate) name: String,
    pub(crate) logins: u32,
}

pub(crate) fn user(logins: u32) -> User {
    User { name: "Ada".to_owned(), logins }
}

/// The users below a path.
pub(crate) fn users(client: &CuratorFramework, path: &str) -> ModeledFramework<User> {
    users_with(client, path, ModelSpecOptions::new())
}

pub(crate) fn users_with(client: &CuratorFramework, path: &str, options: ModelSpecOptions) -> ModeledFramework<User> {
    let spec = ModelSpec::with_options(format!("{path}/{{id}}"), JsonCodec, options).unwrap();
    ModeledFramework::new(client.clone(), spec).unwrap()
}

/// Options of a client through a proxy, which never gives up.
pub(crate) fn through(proxy: &FaultProxy) -> CuratorFrameworkBuilder {
    let retry = RetryForever::new(std::time::Duration::from_millis(50)).unwrap();
    builder(proxy.address()).retry_policy(retry)
}

/// Asserts that a call failed with an error of the framework of this kind.
#[macro_export]
macro_rules! fails {
    ($call:expr, $kind:ident) => {
        let failed = curator_integration::env::in_time($call).await;
        assert!(
            matches!(&failed, Err(curator_recipes::ModelError::Framework(curator_framework::Error::$kind { .. }))),
            "{failed:?}"
        );
    };
}

/// Each key with the number of logins, or with the text of the error.
pub(crate) fn told(read: Vec<(String, Result<Versioned<User>, ModelError>)>) -> Vec<(String, Result<u32, String>)> {
    let told = |read: Result<Versioned<User>, ModelError>| {
        read.map(|user| user.value.logins).map_err(|error| error.to_string())
    };
    read.into_iter().map(|(key, read)| (key, told(read))).collect()
}

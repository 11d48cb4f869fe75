//! The jars of Apache ZooKeeper and of Java's Curator.

use std::path::{Path, PathBuf};

use super::error::ApacheError;

const DEBIAN_JARS: &str = "/usr/share/java";

/// Returns the folder in `CURATOR_TEST_JARS`; without this variable Debian's.
pub(super) fn folder() -> PathBuf {
    std::env::var_os("CURATOR_TEST_JARS").map_or_else(|| PathBuf::from(DEBIAN_JARS), PathBuf::from)
}

/// Returns whether the jars come from Debian's packages.
pub(super) fn are_packaged() -> bool {
    folder() == Path::new(DEBIAN_JARS)
}

/// Returns the class path of Java's Curator, for a program that logs nothing.
///
/// It names `curator-recipes.jar` and `slf4j-nop.jar`, in the default folder of
/// [`ApacheServerBuilder::jars`](crate::ApacheServerBuilder::jars), and `curator-x-discovery.jar` if it is there.
///
/// # Errors
/// [`ApacheError::NotInstalled`] if one of them is missing.
pub fn curator_class_path() -> Result<String, ApacheError> {
    let jars = ["curator-recipes.jar", "slf4j-nop.jar"].map(|name| folder().join(name));
    if let Some(missing) = jars.iter().find(|jar| !jar.is_file()) {
        let what = format!("{} (package libcurator-recipes-java)", missing.display());
        return Err(ApacheError::NotInstalled { what });
    }
    let discovery = Some(folder().join("curator-x-discovery.jar")).filter(|jar| jar.is_file());
    let all: Vec<_> = jars.iter().chain(&discovery).map(|jar| jar.display().to_string()).collect();
    Ok(all.join(":"))
}

//! The packages that the servers come from.

use std::process::{Command, Stdio};

use super::jars;

const JARS: [&str; 4] = ["zookeeper", "libzookeeper-java", "libcurator-recipes-java", "libcurator-discovery-java"];
const OTHERS: [&str; 4] =
    ["openjdk-17-jre-headless", "openjdk-21-jre-headless", "openjdk-25-jre-headless", "python3-kazoo"];

/// Returns the Debian packages that [`ApacheServer`](crate::ApacheServer) and tests with other clients use: names and
/// versions, such as `zookeeper 3.8.0-11+deb12u2`.
///
/// Packages that are not installed are left out, and packages with jars that `CURATOR_TEST_JARS` replaces. Without `dpkg-query` the list is empty.
#[must_use]
pub fn installed_packages() -> Vec<String> {
    let asked = Command::new("dpkg-query")
        .args(["--show", "--showformat=${db:Status-Status}\t${Package} ${Version}\n"])
        .args(if jars::are_packaged() { &JARS[..] } else { &[] })
        .args(OTHERS)
        .stdin(Stdio::null())
        .stderr(Stdio::null())
        .output();
    // The command fails if one of them is unknown, and still lists the others.
    let Ok(answer) = asked else { return Vec::new() };
    String::from_utf8_lossy(&answer.stdout)
        .lines()
        .filter_map(|line| line.strip_prefix("installed\t"))
        .map(str::to_owned)
        .collect()
}

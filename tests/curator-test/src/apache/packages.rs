//! The packages that the servers come from.

use std::process::{Command, Stdio};

const PACKAGES: [&str; 7] = [
    "zookeeper",
    "libzookeeper-java",
    "openjdk-17-jre-headless",
    "openjdk-21-jre-headless",
    "openjdk-25-jre-headless",
    "libcurator-recipes-java",
    "python3-kazoo",
];

/// Returns the Debian packages that [`ApacheServer`](crate::ApacheServer) and tests with other clients use: names and
/// versions, such as `zookeeper 3.8.0-11+deb12u2`.
///
/// Packages that are not installed are left out. Without `dpkg-query` the list is empty.
#[must_use]
pub fn installed_packages() -> Vec<String> {
    let asked = Command::new("dpkg-query")
        .args(["--show", "--showformat=${db:Status-Status}\t${Package} ${Version}\n"])
        .args(PACKAGES)
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

//! Which packages the servers come from.

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

/// The packages of Debian that [`ApacheServer`](crate::ApacheServer) and tests with other
/// clients make use of: names and versions, such as `zookeeper 3.8.0-11+deb12u2`.
///
/// Those that are not installed are left out. Where there is no `dpkg-query` there are none.
#[must_use]
pub fn installed_packages() -> Vec<String> {
    let asked = Command::new("dpkg-query")
        .args(["--show", "--showformat=${db:Status-Status}\t${Package} ${Version}\n"])
        .args(PACKAGES)
        .stdin(Stdio::null())
        .stderr(Stdio::null())
        .output();
    // It fails if one of them is unknown, and still names the others.
    let Ok(answer) = asked else { return Vec::new() };
    String::from_utf8_lossy(&answer.stdout)
        .lines()
        .filter_map(|line| line.strip_prefix("installed\t"))
        .map(str::to_owned)
        .collect()
}

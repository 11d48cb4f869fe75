//! Started observers of elections and followers of groups.

use curator_framework::CuratorFramework;
use curator_recipes::{Group, LeaderObserver};

/// Returns a started observer of an election.
pub fn observer(client: CuratorFramework, path: impl Into<String>) -> LeaderObserver {
    let observer = LeaderObserver::new(client, path).unwrap();
    observer.start().unwrap();
    observer
}

/// Returns a started follower of a group.
pub fn group(client: CuratorFramework, path: impl Into<String>) -> Group {
    let group = Group::new(client, path).unwrap();
    group.start().unwrap();
    group
}

//! This project's nodes and members, in a process of their own. `main.rs` lists the words.

use std::collections::BTreeMap;
use std::time::Duration;

use curator_bench::clients::connect;
use curator_bench::process::{Commands, Result};
use curator_framework::CuratorFramework;
use curator_recipes::{GroupMember, GroupMemberOptions, GroupState, PersistentNode};
use tokio::time::timeout;

/// A little less than the patience of the other process.
const PATIENCE: Duration = Duration::from_secs(50);

#[derive(Default)]
pub(crate) struct All {
    clients: BTreeMap<String, CuratorFramework>,
    nodes: BTreeMap<String, PersistentNode>,
    members: BTreeMap<String, GroupMember>,
}

impl All {
    fn client(&self, name: &str) -> Result<CuratorFramework> {
        Ok(self.clients.get(name).ok_or("no such client")?.clone())
    }

    /// Waits until each member sees so many.
    async fn see(&self, count: usize) -> Result<String> {
        let is_wanted = |state: &GroupState| matches!(state, GroupState::Known(members) if members.len() == count);
        let all = async {
            for member in self.members.values() {
                member.watch().wait_for(is_wanted).await?;
            }
            Result::Ok("seen".to_owned())
        };
        timeout(PATIENCE, all).await.map_err(|_| format!("not {count} members"))?
    }
}

/// Returns all that a member says of its group and of itself.
async fn tell(member: &GroupMember) -> Result<String> {
    let joined = match member.join_timeout(Duration::from_millis(500)).await {
        Ok(Some(_)) => "joined".to_owned(),
        Ok(None) => "not joined yet".to_owned(),
        Err(error) => error.to_string(),
    };
    // A group is followed from the first look on.
    let is_known = |state: &GroupState| matches!(state, GroupState::Known(_));
    drop(timeout(PATIENCE, member.watch().wait_for(is_known)).await.map_err(|_| "the group is not known")??);
    let members = member.members();
    let each = members.iter().flat_map(|members| {
        members.iter().map(|one| format!("{}={}", one.id, String::from_utf8_lossy(&one.data))).collect::<Vec<_>>()
    });
    let foreign = match member.node().state() {
        curator_recipes::NodeState::Standing(node) => {
            node.foreign_data.map(|data| format!("; foreign data {:?}", String::from_utf8_lossy(&data)))
        }
        _ => None,
    };
    Ok(format!("{}; {joined}{}", each.collect::<Vec<_>>().join(","), foreign.unwrap_or_default()))
}

impl Commands for All {
    async fn run(&mut self, words: &[&str]) -> Result<String> {
        Ok(match *words {
            ["connect", name, servers, millis] => {
                let client = connect(servers, Duration::from_millis(millis.parse()?)).await?;
                self.clients.insert(name.to_owned(), client);
                "connected".to_owned()
            }
            ["stand", name, path] => {
                let node = PersistentNode::new(self.client(name)?, path, name)?;
                node.start()?;
                node.created().await?;
                self.nodes.insert(name.to_owned(), node);
                "stands".to_owned()
            }
            ["touch", name] => {
                self.client(name)?.check_exists().for_path("/").await?;
                "touched".to_owned()
            }
            ["close", name] => {
                self.nodes.remove(name).ok_or("no such node")?.close().await;
                "closed".to_owned()
            }
            ["join", name, path, id] => {
                let options = GroupMemberOptions::new().data(name);
                let member = GroupMember::with_options(self.client(name)?, path, id, options)?;
                member.start()?;
                self.members.insert(name.to_owned(), member);
                "joined".to_owned()
            }
            ["see", count] => self.see(count.parse()?).await?,
            ["tell", name] => tell(self.members.get(name).ok_or("no such member")?).await?,
            ["leave", name] => {
                self.members.remove(name).ok_or("no such member")?.close().await;
                "left".to_owned()
            }
            ["end", name] => {
                self.clients.remove(name).ok_or("no such client")?.close().await;
                "ended".to_owned()
            }
            _ => return Err(format!("{words:?} is unknown").into()),
        })
    }
}

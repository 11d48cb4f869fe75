//! The members of the process in Rust.

use std::collections::BTreeMap;
use std::time::Duration;

use curator_framework::CuratorFramework;
use curator_recipes::{GroupMember, GroupMemberOptions, GroupState, Members};
use parking_lot::Mutex;
use tokio::time::timeout;

use crate::rust_peer::Answer;

/// As long as Java waits.
const PATIENCE: Duration = Duration::from_secs(30);

static MEMBERS: Mutex<BTreeMap<String, GroupMember>> = Mutex::new(BTreeMap::new());

/// Returns `ID=DATA,ID=DATA` in the order of the ids.
pub(super) fn text(members: &Members) -> String {
    let each = members.iter().map(|member| format!("{}={}", member.id, String::from_utf8_lossy(&member.data)));
    each.collect::<Vec<_>>().join(",")
}

/// Waits until this member sees exactly these.
pub(super) async fn sees(member: &GroupMember, wanted: &str) -> Answer<()> {
    let mut states = member.watch();
    let is_wanted = |state: &GroupState| matches!(state, GroupState::Known(members) if text(members) == wanted);
    match timeout(PATIENCE, states.wait_for(is_wanted)).await {
        Ok(seen) => seen.map(drop)?,
        Err(_) => return Err(format!("the state is {:?}", member.group().watch().borrow().clone()).into()),
    }
    Ok(())
}

/// Does what these words say, without the name of the thread and `group`.
pub(crate) async fn group(client: &CuratorFramework, words: &[&str]) -> Answer<String> {
    let [path, id, verb, ref rest @ ..] = *words else { return Err(format!("{words:?}").into()) };
    let name = format!("{path} {id}");
    if verb == "join" {
        let options = GroupMemberOptions::new();
        let options = rest.first().map_or(options.clone(), |data| options.data(*data));
        let member = GroupMember::with_options(client.clone(), path, id, options)?;
        member.start()?;
        member.join().await?;
        member.group().initialized().await?;
        MEMBERS.lock().insert(name, member);
        return Ok("joined".to_owned());
    }
    let member = MEMBERS.lock().get(&name).cloned().ok_or("no such member")?;
    Ok(match (verb, rest) {
        ("members", []) => member.members().as_ref().map_or_else(|| "unknown".to_owned(), text),
        ("sees", [wanted]) => {
            sees(&member, wanted).await?;
            "seen".to_owned()
        }
        ("write", [data]) => {
            member.set_data(*data).await?;
            "written".to_owned()
        }
        ("leave", []) => {
            member.close().await;
            MEMBERS.lock().remove(&name);
            "left".to_owned()
        }
        _ => return Err(format!("{words:?}").into()),
    })
}

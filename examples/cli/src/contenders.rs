//! Lists the holders and waiters of a lock of any kind.

use std::time::Duration;

use curator_framework::CuratorFramework;
use curator_recipes::{
    InterProcessMutex, InterProcessReadWriteLock, InterProcessSemaphoreV2, LockError, Participant, ParticipantKind,
};

/// A contender, as one row of the table.
#[derive(Debug, Clone)]
pub struct Contender {
    /// The contender, as its node shows it.
    pub participant: Participant,
    /// `holds`, `waits`, `lease` or `turn`. A `lease` is a semaphore's node while the limit is not known. A `turn` is
    /// the contender that takes the semaphore's next lease. It may also have a row for that lease.
    pub state: &'static str,
}

/// Returns the contenders of the lock at a path, in the order of the queue. The names of the children show the kind of
/// the lock, but not the limit of a semaphore.
///
/// # Errors
///
/// `NoNode`: the path does not exist. Otherwise those of [`InterProcessMutex::participants`].
pub async fn contenders(
    client: &CuratorFramework,
    path: &str,
    max_leases: Option<usize>,
) -> Result<Vec<Contender>, LockError> {
    let children = client.get_children().for_path(path).await?;
    let named = |name: &str| children.iter().any(|child| child == name);
    let of_a_read_write_lock = |child: &String| child.contains("__READ__") || child.contains("__WRIT__");
    let semaphore = named("leases") || named("locks");
    let participants = if semaphore {
        let limit = max_leases.unwrap_or(usize::from(u16::MAX));
        InterProcessSemaphoreV2::new(client.clone(), path, limit)?.participants().await?
    } else if children.iter().any(of_a_read_write_lock) {
        InterProcessReadWriteLock::new(client.clone(), path)?.participants().await?
    } else {
        InterProcessMutex::new(client.clone(), path)?.participants().await?
    };
    let state = |participant: &Participant| match (participant.kind, participant.holds, max_leases) {
        (ParticipantKind::Lease, _, None) => "lease",
        (ParticipantKind::Lock, _, _) if semaphore && participant.position == 0 => "turn",
        (_, true, _) => "holds",
        (_, false, _) => "waits",
    };
    Ok(participants.into_iter().map(|participant| Contender { state: state(&participant), participant }).collect())
}

/// Formats the contenders as the lines of a table, with its head first.
#[must_use]
pub fn table(contenders: &[Contender]) -> Vec<String> {
    let row = |state: &str, kind: &str, age: &str, session: &str, data: &str, node: &str| {
        format!("{state:<6} {kind:<6} {age:>8}  {session:<18}  {data:<28}  {node}")
    };
    let mut lines = vec![row("STATE", "KIND", "AGE", "SESSION", "DATA", "NODE")];
    for Contender { participant, state } in contenders {
        lines.push(row(
            state,
            kind(participant.kind),
            &age(participant.age()),
            &format!("{:#x}", participant.session),
            &shown(&participant.data),
            &participant.path,
        ));
    }
    lines
}

/// Returns the word for a kind.
#[must_use]
pub const fn kind(kind: ParticipantKind) -> &'static str {
    match kind {
        ParticipantKind::Lease => "lease",
        ParticipantKind::Read => "read",
        ParticipantKind::Write => "write",
        _ => "lock",
    }
}

/// Formats a length of time in at most two units.
#[must_use]
pub fn age(age: Duration) -> String {
    match age.as_secs() {
        seconds @ 0..=59 => format!("{seconds}s"),
        seconds @ 60..=3599 => format!("{}m{:02}s", seconds / 60, seconds % 60),
        seconds @ 3600..=86_399 => format!("{}h{:02}m", seconds / 3600, seconds / 60 % 60),
        seconds => format!("{}d{:02}h", seconds / 86_400, seconds / 3600 % 24),
    }
}

/// Formats any data as one line without control characters.
#[must_use]
pub fn shown(data: &[u8]) -> String {
    let text = String::from_utf8_lossy(data);
    if text.is_empty() { "-".to_owned() } else { text.escape_debug().to_string() }
}

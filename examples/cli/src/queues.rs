//! The state of a queue, read from outside: how many items it has, and the age of the oldest.

use std::collections::VecDeque;
use std::time::{Duration, SystemTime};

use curator_framework::{CuratorFramework, Error, Stat, make_path};
use futures_util::future::join_all;

/// The most items that are read at once.
const AT_ONCE: usize = 64;
/// The digits of a number that a server appends.
const DIGITS: usize = 10;

/// The state of a queue.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct QueueState {
    /// The number of children of the queue's path: items, those in work included, and foreign nodes.
    pub items: u64,
    /// The number of locks of items.
    pub in_work: u64,
    /// The number of dead letters.
    pub dead: u64,
    /// The item that was put first, or given a new place first.
    pub oldest: Option<OldestItem>,
}

/// The oldest item of a queue.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OldestItem {
    /// The name of its node.
    pub name: String,
    /// The creation of its node, by the server's clock.
    pub created: SystemTime,
}

/// Reads the state of one queue again and again.
///
/// A state costs four requests of some bytes. The names are listed when all items of the last listing have left the
/// queue: a new item is younger than these.
#[derive(Debug)]
pub struct QueueReader {
    path: String,
    lock_path: String,
    dead_letters: String,
    /// The `czxid` of the queue's node: the numbers start again in a new node.
    czxid: i64,
    /// The known names, the oldest first.
    names: VecDeque<String>,
}

impl QueueReader {
    /// Creates a reader, without a request.
    #[must_use]
    pub fn new(path: &str, lock_path: String, dead_letters: String) -> Self {
        Self { path: path.to_owned(), lock_path, dead_letters, czxid: 0, names: VecDeque::new() }
    }

    /// Returns the queue's path.
    #[must_use]
    pub fn path(&self) -> &str {
        &self.path
    }

    /// Returns the present state; `None` if the queue's path does not exist.
    ///
    /// # Errors
    ///
    /// The errors of a read, such as `Error::ConnectionLoss`, and `Error::NoAuth` or `Error::ReplyTooLarge` for a
    /// listing.
    pub async fn read(&mut self, client: &CuratorFramework) -> Result<Option<QueueState>, Error> {
        let (queue, locks, dead) = tokio::join!(
            client.check_exists().for_path(&self.path),
            client.check_exists().for_path(&self.lock_path),
            client.check_exists().for_path(&self.dead_letters),
        );
        let Some(queue) = queue? else {
            self.names.clear();
            return Ok(None);
        };
        if self.czxid != queue.czxid {
            self.names.clear();
            self.czxid = queue.czxid;
        }
        let oldest = if queue.num_children == 0 { None } else { self.oldest(client).await? };
        let children = |stat: Option<Stat>| stat.map_or(0, |stat| u64::try_from(stat.num_children).unwrap_or_default());
        let (in_work, dead) = (children(locks?), children(dead?));
        Ok(Some(QueueState { items: children(Some(queue)), in_work, dead, oldest }))
    }

    async fn oldest(&mut self, client: &CuratorFramework) -> Result<Option<OldestItem>, Error> {
        let (mut is_listed, mut at_once) = (false, 1);
        loop {
            while !self.names.is_empty() {
                let paths: Vec<_> = self.names.iter().take(at_once).map(|name| make_path(&self.path, name)).collect();
                let stats = join_all(paths.iter().map(|path| client.check_exists().for_path(path))).await;
                for stat in stats {
                    if let Some(stat) = stat? {
                        let created = Duration::from_millis(u64::try_from(stat.ctime).unwrap_or_default());
                        let created = SystemTime::UNIX_EPOCH + created;
                        return Ok(self.names.front().map(|name| OldestItem { name: name.clone(), created }));
                    }
                    self.names.pop_front();
                }
                at_once = AT_ONCE;
            }
            if is_listed {
                return Ok(None);
            }
            self.names = oldest_first(list(client, &self.path).await?);
            is_listed = true;
        }
    }
}

/// Returns the names of a path's children; none if the path does not exist.
///
/// # Errors
///
/// The errors of the listing.
pub async fn list(client: &CuratorFramework, path: &str) -> Result<Vec<String>, Error> {
    match client.get_children().for_path(path).await {
        Err(Error::NoNode { .. }) => Ok(Vec::new()),
        names => names,
    }
}

fn oldest_first(names: Vec<String>) -> VecDeque<String> {
    let mut numbered: Vec<_> = names.into_iter().filter_map(|name| Some((split(&name)?.1, name))).collect();
    numbered.sort_unstable();
    numbered.into_iter().map(|(_, name)| name).collect()
}

/// Splits the name of an item into its part before the number that the server has appended, and the number. A number
/// that has become negative counts on. Returns `None` for a name without such a number.
fn split(name: &str) -> Option<(&str, u32)> {
    let at = name.len().checked_sub(DIGITS)?;
    let (start, digits) = (name.get(..at)?, name.get(at..)?);
    if !digits.bytes().all(|byte| byte.is_ascii_digit()) {
        return None;
    }
    let number: i64 = digits.parse().ok()?;
    let (start, number) = match start.strip_suffix('-') {
        Some(rest) if !matches!(rest, "queue" | "qn") => (rest, -number),
        _ => (start, number),
    };
    let number = i32::try_from(number).ok()?;
    Some((start, u32::from_be_bytes(number.to_be_bytes())))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_split_before_their_number() {
        for (name, expected) in [
            ("queue-0000000007", Some(("queue-", 7))),
            ("queue--2147483648", Some(("queue-", 1 << 31))),
            ("qn-0000000007", Some(("qn-", 7))),
            ("queue-|a-|0000000007", Some(("queue-|a-|", 7))),
            ("queue-|a-|-2147483647", Some(("queue-|a-|", (1 << 31) + 1))),
            ("queue-10000000A0000000007", Some(("queue-10000000A", 7))),
            ("queue-10000000A-2147483647", Some(("queue-10000000A", (1 << 31) + 1))),
            ("queue-last", None),
            ("queue-ä000000007", None),
            ("queue-9999999999", None),
            ("", None),
        ] {
            assert_eq!(split(name), expected, "{name}");
        }
    }

    #[test]
    fn oldest_name_is_first_even_after_the_largest_number() {
        let names = ["queue--2147483648", "queue-|b|0000000003", "other", "queue-2147483647", "queue-|a|0000000010"];
        let sorted = oldest_first(names.map(ToOwned::to_owned).to_vec());
        let expected = ["queue-|b|0000000003", "queue-|a|0000000010", "queue-2147483647", "queue--2147483648"];
        assert_eq!(sorted, expected);
    }
}

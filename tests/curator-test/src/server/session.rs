//! Sessions and their deadlines.

use std::collections::BTreeMap;
use std::time::Duration;

use super::core::ConnectionId;
use crate::wire::session_password;

/// One session.
#[derive(Debug, Clone)]
struct Session {
    timeout: Duration,
    /// The session's end unless a packet comes in first.
    deadline: Duration,
    connection: Option<ConnectionId>,
}

/// All live sessions, by id.
#[derive(Debug, Clone)]
pub(super) struct Sessions {
    live: BTreeMap<i64, Session>,
    next_id: i64,
}

impl Sessions {
    /// Creates an empty set. `first_id` must not be 0, with which a client requests a new session.
    pub(super) const fn new(first_id: i64) -> Self {
        Self { live: BTreeMap::new(), next_id: first_id }
    }

    /// Replaces the sessions by a backup's. New sessions still get ids that no session has had.
    pub(super) fn restore(&mut self, backup: Self) {
        self.live = backup.live;
    }

    /// Starts a session and returns its id.
    pub(super) fn create(&mut self, connection: ConnectionId, timeout: Duration, now: Duration) -> i64 {
        let id = self.next_id;
        self.next_id = self.next_id.wrapping_add(1).max(1);
        let session = Session { timeout, deadline: now + timeout, connection: Some(connection) };
        self.live.insert(id, session);
        id
    }

    /// Moves a session to a connection. Returns false if the session has ended or the password is wrong.
    pub(super) fn attach(
        &mut self,
        id: i64,
        password: &[u8],
        connection: ConnectionId,
        timeout: Duration,
        now: Duration,
    ) -> bool {
        match self.live.get_mut(&id) {
            Some(session) if password == session_password(id) => {
                *session = Session { timeout, deadline: now + timeout, connection: Some(connection) };
                true
            }
            _ => false,
        }
    }

    /// Renews the time of a session for a packet.
    pub(super) fn touch(&mut self, id: i64, now: Duration) {
        if let Some(session) = self.live.get_mut(&id) {
            session.deadline = now + session.timeout;
        }
    }

    /// Takes all sessions off their connections and renews their times.
    pub(super) fn detach_all(&mut self, now: Duration) {
        for session in self.live.values_mut() {
            session.connection = None;
            session.deadline = now + session.timeout;
        }
    }

    /// Returns the session's connection, if it has one.
    pub(super) fn connection(&self, id: i64) -> Option<ConnectionId> {
        self.live.get(&id)?.connection
    }

    /// Forgets all sessions.
    pub(super) fn clear(&mut self) {
        self.live.clear();
    }

    /// Takes the session off its connection, if it has one.
    pub(super) fn detach(&mut self, id: i64) -> Option<ConnectionId> {
        self.live.get_mut(&id)?.connection.take()
    }

    /// Ends a session. Returns `None` if it does not exist, else its connection, if it has one.
    pub(super) fn remove(&mut self, id: i64) -> Option<Option<ConnectionId>> {
        self.live.remove(&id).map(|session| session.connection)
    }

    pub(super) fn contains(&self, id: i64) -> bool {
        self.live.contains_key(&id)
    }

    pub(super) fn ids(&self) -> Vec<i64> {
        self.live.keys().copied().collect()
    }

    /// Returns the overdue sessions, the longest overdue first.
    pub(super) fn overdue(&self, now: Duration) -> Vec<i64> {
        let mut overdue: Vec<_> = self
            .live
            .iter()
            .filter(|(_, session)| session.deadline <= now)
            .map(|(id, session)| (session.deadline, *id))
            .collect();
        overdue.sort_unstable();
        overdue.into_iter().map(|(_, id)| id).collect()
    }

    /// Returns the sessions by their deadlines, each with its connection.
    pub(super) fn by_deadline(&self) -> BTreeMap<Duration, Vec<(i64, Option<ConnectionId>)>> {
        let mut by_deadline: BTreeMap<_, Vec<_>> = BTreeMap::new();
        for (id, session) in &self.live {
            by_deadline.entry(session.deadline).or_default().push((*id, session.connection));
        }
        by_deadline
    }

    pub(super) fn timeout(&self, id: i64) -> Option<Duration> {
        self.live.get(&id).map(|session| session.timeout)
    }

    pub(super) fn next_deadline(&self) -> Option<Duration> {
        self.live.values().map(|session| session.deadline).min()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FIRST: ConnectionId = ConnectionId(1);
    const SECOND: ConnectionId = ConnectionId(2);

    const fn ms(ms: u64) -> Duration {
        Duration::from_millis(ms)
    }

    #[test]
    fn a_session_is_overdue_at_its_deadline_and_not_before() {
        let mut sessions = Sessions::new(5);
        let id = sessions.create(FIRST, ms(100), ms(0));
        assert_eq!(id, 5);
        sessions.touch(id, ms(50));
        assert_eq!(sessions.next_deadline(), Some(ms(150)));
        assert_eq!(sessions.overdue(ms(149)), [0; 0]);
        assert_eq!(sessions.overdue(ms(150)), [5]);
    }

    #[test]
    fn the_longest_overdue_comes_first() {
        let mut sessions = Sessions::new(1);
        sessions.create(FIRST, ms(300), ms(0));
        sessions.create(FIRST, ms(100), ms(0));
        sessions.create(FIRST, ms(200), ms(0));
        assert_eq!(sessions.overdue(ms(300)), [2, 3, 1]);
    }

    #[test]
    fn only_the_right_password_attaches() {
        let mut sessions = Sessions::new(1);
        let id = sessions.create(FIRST, ms(100), ms(0));
        let password = session_password(id);
        assert!(!sessions.attach(id, &[0; 16], SECOND, ms(100), ms(10)));
        assert!(!sessions.attach(id, &password[..15], SECOND, ms(100), ms(10)));
        assert!(!sessions.attach(id + 1, &session_password(id + 1), SECOND, ms(100), ms(10)));
        assert!(sessions.attach(id, &password, SECOND, ms(400), ms(10)));
        assert_eq!(sessions.next_deadline(), Some(ms(410)));
        assert_eq!(sessions.remove(id), Some(Some(SECOND)));
        assert_eq!(sessions.remove(id), None);
    }

    #[test]
    fn ids_are_never_zero() {
        let mut sessions = Sessions::new(i64::MAX);
        assert_eq!(sessions.create(FIRST, ms(1), ms(0)), i64::MAX);
        assert_eq!(sessions.create(FIRST, ms(1), ms(0)), 1);
    }
}

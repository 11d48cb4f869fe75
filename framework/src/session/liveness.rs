//! Until when a session certainly lives, and when its next heartbeat is due: pure, with time as an argument.

use std::collections::VecDeque;
use std::time::Duration;

use crate::zookeeper::Evidence;

/// The evidence of a session's liveness, from the requests that were answered.
///
/// A follower passes a write on to the leader at once, but reports its live clients only every half tick. So an
/// answered write proves that the follower was connected to the leader at that moment. Of the requests, only those that
/// the follower received half a tick earlier have certainly been reported. Half a tick is at most a quarter of the
/// session timeout, because the smallest timeout is two ticks.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct SessionLiveness {
    timeout: Duration,
    /// The send time of the newest answered request of any kind.
    any: Duration,
    /// The time from which, at the earliest, the leader counts the session timeout.
    leader: Duration,
    /// The send time of the newest request that the leader answered.
    asked_leader: Duration,
    /// The value of `any` when the first owned node was added; `None` after the next reply of the leader.
    grace: Option<Duration>,
    /// The epoch of a reattached connection, and the send time of its connect request. That time counts once the leader
    /// has answered a later write on it, because a deposed leader may have answered the connect request.
    attached: Option<(u64, Duration)>,
    /// The deadline by the evidence at the time when a server granted a shorter timeout.
    short_deadline: Duration,
    /// The send and reply times of answered requests: enough of the last timeout to look back a quarter of it.
    recent: VecDeque<(Duration, Duration)>,
}

impl SessionLiveness {
    /// Creates the evidence of a session made by the leader at `established` or later; a request of `sent` was
    /// answered.
    pub(crate) fn new(timeout: Duration, established: Duration, sent: Duration) -> Self {
        // The leader made the session itself, so this entry needs no report: its reply time is zero.
        let recent = VecDeque::from([(established, Duration::ZERO)]);
        Self {
            timeout,
            any: sent,
            leader: established,
            asked_leader: established,
            grace: None,
            attached: None,
            short_deadline: Duration::ZERO,
            recent,
        }
    }

    /// Returns the session timeout in effect.
    pub(crate) fn timeout(&self) -> Duration {
        self.timeout
    }

    /// Records a further connection: its connect request left at `sent`, and the server grants `timeout`.
    pub(crate) fn reattached(&mut self, sent: Duration, now: Duration, timeout: Duration, epoch: u64) {
        self.shortened(sent, timeout);
        self.attached = Some((epoch, sent));
        self.answered(sent, now, epoch, Evidence::AnyServer);
    }

    /// Records a timeout that a server grants in the reply to a connect request sent at `sent`, if it is shorter.
    pub(crate) fn shortened(&mut self, sent: Duration, timeout: Duration) {
        if timeout < self.timeout {
            // From now on a server may end the session by the shorter timeout, counted from this connect request.
            self.short_deadline = self.deadline(Evidence::Leader).min(sent + timeout * 3 / 4);
            self.timeout = timeout;
        }
    }

    /// Records a reply that came at `now` to a request that was sent at `sent`.
    pub(crate) fn answered(&mut self, sent: Duration, now: Duration, epoch: u64, evidence: Evidence) {
        self.any = self.any.max(sent);
        if evidence == Evidence::Leader {
            self.grace = None;
            if let Some((_, attached)) = self.attached.take_if(|(attached, at)| *attached == epoch && *at < sent) {
                self.leader = self.leader.max(attached);
            }
            self.asked_leader = self.asked_leader.max(sent);
            let heard_by = sent.saturating_sub(self.timeout / 4);
            let reported = self.recent.iter().rev().find(|(_, answered)| *answered <= heard_by);
            if let Some((reported, _)) = reported {
                self.leader = self.leader.max(sent.min(*reported + self.timeout / 4));
            }
        }
        let spacing = self.timeout / 64;
        if self.recent.back().is_none_or(|(newest, _)| sent >= *newest + spacing) {
            self.recent.push_back((sent, now));
        }
        while self.recent.len() > 2 && self.recent[1].1 + self.timeout < now {
            self.recent.pop_front();
        }
    }

    /// Records the first owned node. No lock is granted before the leader's next reply, so until then the
    /// evidence of any reply suffices. After that reply, a read proves nothing for the lock.
    pub(crate) fn on_first_owned_node(&mut self) {
        self.grace = Some(self.any);
    }

    /// Returns the start of the timeout. With an owned node only what the leader knows counts: a read proves nothing.
    fn base(&self, evidence: Evidence) -> Duration {
        let idle = match evidence {
            Evidence::Leader => self.grace,
            Evidence::AnyServer => Some(self.any),
        };
        self.leader.max(idle.unwrap_or_default())
    }

    /// Returns whether the session would be alive with an owned node if the leader replied now.
    pub(crate) fn can_hold(&self, now: Duration, epoch: u64) -> bool {
        let mut after = self.clone();
        after.answered(now, now, epoch, Evidence::Leader);
        after.deadline(Evidence::Leader) > now
    }

    /// Returns the time of the next heartbeat: a third of the timeout after the newest evidence. With an owned node, an
    /// eighth after the leader's newest reply, because the leader's certain evidence is always a little older.
    pub(crate) fn heartbeat(&self, evidence: Evidence) -> Duration {
        match (evidence, self.attached) {
            // At once: the connection proves nothing before the leader has answered on it.
            (Evidence::Leader, Some((_, attached))) => attached,
            (Evidence::Leader, None) => self.asked_leader.max(self.grace.unwrap_or_default()) + self.timeout / 8,
            (Evidence::AnyServer, _) => self.base(evidence) + self.timeout / 3,
        }
    }

    /// Returns the time of `Suspended`: two thirds of the timeout after `base`, a twelfth before the deadline.
    pub(crate) fn suspend_at(&self, evidence: Evidence) -> Duration {
        self.deadline(evidence).saturating_sub(self.timeout / 12)
    }

    /// Returns the time of `Lost`: three quarters of the timeout after `base`. The rest is the margin.
    pub(crate) fn deadline(&self, evidence: Evidence) -> Duration {
        (self.base(evidence) + self.timeout * 3 / 4).max(self.short_deadline)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use Evidence::{AnyServer, Leader};

    const fn seconds(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    #[test]
    fn nothing_is_held_until_a_quarter_of_the_timeout_after_a_sleep() {
        let mut proofs = SessionLiveness::new(seconds(12), seconds(2), seconds(2));
        assert!(proofs.can_hold(seconds(10), 1) && !proofs.can_hold(seconds(14), 1));
        // The connect request of another connection counts as soon as the leader answers a later request.
        let mut others = proofs.clone();
        others.reattached(seconds(20), seconds(20), seconds(12), 2);
        assert!(!others.can_hold(seconds(20), 2) && others.can_hold(seconds(21), 2));
        proofs.answered(seconds(20), seconds(20), 1, AnyServer);
        for (now, expected) in [(20, false), (22, false), (23, true), (30, true)] {
            assert_eq!(proofs.can_hold(seconds(now), 1), expected, "{now}");
        }
    }

    #[test]
    fn reads_move_the_deadline_only_while_nothing_is_held() {
        let mut proofs = SessionLiveness::new(seconds(12), seconds(2), seconds(2));
        proofs.answered(seconds(10), seconds(10), 1, AnyServer);
        assert_eq!(proofs.deadline(Leader), seconds(11));
        assert_eq!(proofs.deadline(AnyServer), seconds(19));
        assert_eq!(proofs.suspend_at(AnyServer), seconds(18));
        assert_eq!(proofs.heartbeat(AnyServer), seconds(14));
        proofs.on_first_owned_node();
        assert_eq!(proofs.deadline(Leader), seconds(19));
    }

    #[test]
    fn reads_do_not_put_off_the_heartbeat_of_what_is_held() {
        let mut proofs = SessionLiveness::new(seconds(16), seconds(100), seconds(100));
        proofs.on_first_owned_node();
        proofs.answered(seconds(101), seconds(101), 1, Leader);
        for read in 102..110 {
            proofs.answered(seconds(read), seconds(read), 1, AnyServer);
        }
        assert_eq!(proofs.heartbeat(Leader), seconds(101 + 2));
        assert_eq!(proofs.heartbeat(AnyServer), seconds(109) + seconds(16) / 3);
    }

    /// Acquires a lock right after a read. The follower is cut off right after the grant, and has reported neither.
    #[test]
    fn a_read_is_no_proof_for_what_is_granted_after_it() {
        let mut proofs = SessionLiveness::new(seconds(40), seconds(100), seconds(100));
        for read in [113, 126, 139] {
            proofs.answered(seconds(read), seconds(read), 1, AnyServer);
        }
        proofs.on_first_owned_node();
        assert_eq!(proofs.deadline(Leader), seconds(139 + 30), "nothing is held before the create is answered");
        proofs.answered(seconds(140), seconds(140), 1, Leader);
        // The request sent at 126 is the newest that the leader certainly knows of: its timeout ends at 166.
        assert_eq!(proofs.deadline(Leader), seconds(126 + 40));
    }

    /// Cuts the follower off right after a reply: its last report to the leader is up to T/4 older.
    #[test]
    fn a_write_proves_what_the_follower_had_reported_before() {
        let mut proofs = SessionLiveness::new(seconds(40), seconds(100), seconds(100));
        // Fresh enough: the session was made less than a quarter of the timeout before.
        proofs.answered(seconds(105), seconds(105), 1, Leader);
        assert_eq!(proofs.deadline(Leader), seconds(105 + 30));
        // The newest request that the leader certainly knows of is 13 s old: its timeout ends 40 s after it.
        proofs.answered(seconds(118), seconds(118), 1, Leader);
        assert_eq!(proofs.deadline(Leader), seconds(105 + 10 + 30));
        // A late reply proves no more than what was reported before its request was sent.
        proofs.answered(seconds(119), seconds(130), 1, Leader);
        proofs.answered(seconds(131), seconds(131), 1, Leader);
        assert_eq!(proofs.deadline(Leader), seconds(118 + 10 + 30));
    }

    #[test]
    fn with_steady_heartbeats_the_leaders_knowledge_is_never_old() {
        let timeout = seconds(64);
        let mut proofs = SessionLiveness::new(timeout, seconds(0), seconds(0));
        for beat in 1..100 {
            let sent = seconds(8) * beat;
            assert!(proofs.suspend_at(Leader) > sent + seconds(20), "{beat}");
            proofs.answered(sent, sent + Duration::from_millis(20), 1, Leader);
            assert!(proofs.deadline(Leader) >= sent + timeout * 3 / 4 - seconds(16), "{beat}");
            assert!(proofs.recent.len() < 20);
        }
    }

    /// Lets a leader that was deposed while it was frozen answer a connect request as if the session was alive.
    #[test]
    fn a_connect_alone_proves_nothing_to_a_holder() {
        let mut proofs = SessionLiveness::new(seconds(40), seconds(100), seconds(100));
        proofs.on_first_owned_node();
        proofs.answered(seconds(101), seconds(101), 1, Leader);
        let before = proofs.deadline(Leader);
        proofs.reattached(seconds(120), seconds(121), seconds(40), 2);
        assert_eq!(proofs.deadline(Leader), before);
        proofs.answered(seconds(122), seconds(122), 1, Leader);
        assert!(proofs.deadline(Leader) < seconds(120 + 30), "another connection's write proves nothing for this one");
        proofs.answered(seconds(123), seconds(123), 2, Leader);
        assert_eq!(proofs.deadline(Leader), seconds(120 + 30));
    }

    #[test]
    fn a_shorter_timeout_moves_the_deadline_to_the_earlier_one() {
        for (connect, deadline) in [(120, 126), (130, 131)] {
            let mut proofs = SessionLiveness::new(seconds(40), seconds(100), seconds(100));
            proofs.on_first_owned_node();
            proofs.answered(seconds(101), seconds(101), 1, Leader);
            assert_eq!(proofs.deadline(Leader), seconds(131));
            proofs.reattached(seconds(connect), seconds(connect), seconds(8), 2);
            assert_eq!(proofs.deadline(Leader), seconds(deadline));
            assert_eq!(proofs.timeout(), seconds(8));
            proofs.answered(seconds(connect + 1), seconds(connect + 1), 2, Leader);
            assert!(proofs.deadline(Leader) <= seconds(connect + 1 + 6));
            assert!(proofs.suspend_at(Leader) < proofs.deadline(Leader));
        }
    }
}

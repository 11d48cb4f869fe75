//! The connection of a session inside the crate, and the session's end.

use crate::zookeeper::SessionEnd;

/// The connection of a session.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Link {
    /// The number of the connection, incremented at every loss of the transport.
    epoch: u64,
    stage: Stage,
    /// The first reason of the session's end.
    end: Option<SessionEnd>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Stage {
    Down,
    /// The crate has reported the connection.
    Up,
    /// The connection is proven. Requests are submitted on no other.
    Proven,
}

impl Link {
    pub(super) const fn new() -> Self {
        Self { epoch: 0, stage: Stage::Down, end: None }
    }

    pub(super) const fn epoch(&self) -> u64 {
        self.epoch
    }

    pub(super) const fn end(&self) -> Option<SessionEnd> {
        self.end
    }

    pub(super) fn is_up(&self) -> bool {
        self.stage != Stage::Down
    }

    pub(super) fn is_proven(&self, epoch: u64) -> bool {
        self.stage == Stage::Proven && self.epoch == epoch
    }

    pub(super) fn lost(&mut self) {
        (self.epoch, self.stage) = (self.epoch + 1, Stage::Down);
    }

    /// Records the crate's report of a connection, which may come behind the proof of the first one.
    pub(super) fn connected(&mut self) {
        if self.stage == Stage::Down {
            self.stage = Stage::Up;
        }
    }

    /// Records the proof of a connection, unless that is lost.
    pub(super) fn proven(&mut self, epoch: u64) {
        if self.epoch == epoch {
            self.stage = Stage::Proven;
        }
    }

    /// Ends the session. The first reason stays.
    pub(super) fn ended(&mut self, end: SessionEnd) {
        self.end.get_or_insert(end);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn connection_counts_from_its_proof_to_its_loss() {
        let mut link = Link::new();
        link.proven(0);
        link.connected();
        assert!(link.is_proven(0) && link.is_up(), "the report was late");
        link.lost();
        link.proven(0);
        assert!(!link.is_proven(0) && !link.is_proven(1) && !link.is_up(), "the proof was late");
        link.connected();
        assert!(link.is_up() && !link.is_proven(1));
        link.proven(1);
        assert!(link.is_proven(1) && !link.is_proven(0));
    }

    #[test]
    fn first_reason_of_the_end_stays() {
        let mut link = Link::new();
        link.ended(SessionEnd::Expired);
        link.ended(SessionEnd::Closed);
        link.lost();
        assert_eq!(link.end(), Some(SessionEnd::Expired));
    }
}

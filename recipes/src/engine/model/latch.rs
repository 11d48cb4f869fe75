//! The hand-over of a leader to a candidate. The runners are `leader/handover.rs` and `engine/run/calls.rs`.
//!
//! The leader calls again and again, and waits for the candidate until its budget ends: then it withdraws the wish, and
//! the reply tells whether the candidate has moved. So a call may come, and a budget end, at any time.

use crate::engine::model::scenario::{Kind, Quirk, Scenario};
use crate::engine::model::state::*;

impl Locks {
    pub(super) fn steps_of_latch(&self, index: usize, contender: &Contender, steps: &mut Vec<Step>) {
        let Some(own) = contender.node.filter(|_| contender.kind == Kind::Latch) else { return };
        match contender.phase {
            Phase::Holds if contender.wishes => steps.push(Step::Withdraw(index)),
            Phase::Holds if self.hand_overs > 0 && !self.writes_wish(index) => {
                let node = |other: usize| self.contenders[other].node.filter(|node| *node != own);
                steps.extend((0..self.contenders.len()).filter_map(node).map(|node| Step::HandOver(index, node)));
            }
            // It watches for calls when it watches its own node.
            Phase::Wait(_) if contender.watches_own() && self.record.wish == Some(own) => {
                steps.push(Step::Called(index));
            }
            _ => {}
        }
    }

    fn writes_wish(&self, contender: usize) -> bool {
        let is_wish = |request: &Request| matches!(request.what, What::Wish(_) | What::Withdraw);
        let requests = &self.world.sessions[self.contenders[contender].session].requests;
        requests.iter().any(|request| request.contender == contender && is_wish(request))
    }

    /// Carries out a transaction on the path's data.
    pub(super) fn change_record(&mut self, request: &Request, scenario: &Scenario) -> Answer {
        let Some(own) = self.contenders[request.contender].node else { return Answer::NoNode };
        let exists = |node: usize| self.world.nodes[node].exists_at(self.world.log);
        let Record { leader, wish } = self.record;
        match request.what {
            What::Wish(candidate) if exists(own) && exists(candidate) => {
                (self.world.log, self.record) = (self.world.log + 1, Record { leader: own, wish: Some(candidate) });
            }
            What::Withdraw if exists(own) && leader == own && wish.is_some() => {
                (self.world.log, self.record.wish) = (self.world.log + 1, None);
            }
            What::Follow { owner, old } if exists(old) && wish == Some(old) => {
                if !exists(leader) && scenario.quirk != Some(Quirk::LeaderIsNotChecked) {
                    return Answer::NoNode;
                }
                let number = match scenario.quirk {
                    Some(Quirk::MovesToTheBack) => self.next_number(),
                    _ => self.world.nodes[leader].data.number,
                };
                self.record = Record { leader: self.world.nodes.len(), wish: None };
                self.chosen |= 1 << self.record.leader;
                let answer = self.create(owner, Kind::Latch, number);
                self.world.delete(old);
                return answer;
            }
            _ => return Answer::NoNode,
        }
        Answer::Done
    }

    /// Takes the reply to a transaction on the path's data.
    pub(super) fn has_changed_record(&mut self, request: Request, answer: Answer) {
        let it = &mut self.contenders[request.contender];
        match (request.what, answer) {
            (What::Wish(_), answer) => it.wishes = answer == Answer::Done,
            // The candidate has moved, and nobody else writes the data.
            (What::Withdraw, Answer::NoNode) if it.phase == Phase::Holds => self.release(request.contender),
            (What::Follow { .. }, answer) => {
                it.moved = if let Answer::Created(node) = answer { Some(node) } else { None };
                if let Phase::Asks(ask) = &mut it.phase {
                    ask.outstanding -= 1;
                }
            }
            _ => {}
        }
    }

    /// Follows a wish behind a call, once the watches are set.
    pub(super) fn follows_wish(&mut self, contender: usize) -> bool {
        let it = &mut self.contenders[contender];
        let (Phase::Asks(ask @ Ask { what: Asked::Arm { .. }, outstanding: 0, .. }), Some(old), true) =
            (&mut it.phase, it.node, it.has_come)
        else {
            return false;
        };
        (ask.outstanding, it.has_come) = (1, false);
        let (session, owner) = (it.session, self.owners.len());
        self.owners.push(Owner { session, is_entered: false, node: None, says_first: None, delete: Delete::Idle });
        self.send(contender, What::Follow { owner, old });
        true
    }

    /// Takes the node beside the leader's as the own one.
    pub(super) fn has_moved(&mut self, contender: usize, scenario: &Scenario) -> Option<u64> {
        let it = &mut self.contenders[contender];
        let node = it.moved.take()?;
        let (before, owner) = (it.owner, self.world.nodes[node].data.owner);
        (it.node, it.owner) = (Some(node), owner);
        (self.owners[before].is_entered, self.owners[owner].is_entered) = (false, true);
        self.owners[owner].node = Some(node);
        if scenario.quirk == Some(Quirk::MoveIsNotListed) {
            return None;
        }
        (it.phase, it.own, it.awaited, it.awaited_owner) = (Phase::Failed, None, None, None);
        Some(self.world.sessions[it.session].epoch)
    }

    /// Deletes the node of a move that has lost its reply. A leader that has lost one does not know of its wish.
    pub(super) fn loses_move(&mut self, lost: &[Request]) {
        for request in lost {
            if let What::Follow { owner, .. } = request.what {
                let Request { contender, .. } = *request;
                let session = self.contenders[contender].session;
                self.contenders[contender].has_come = true;
                let clean = Request { contender, owner, what: What::Clean, committed: None };
                self.world.sessions[session].requests.push(clean);
            }
        }
    }
}

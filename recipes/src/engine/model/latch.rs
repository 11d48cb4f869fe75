//! The hand-over of a leader to a candidate. The runners are `leader/handover.rs` and `engine/run/calls.rs`.
//!
//! The leader calls again and again, and waits for the candidate until its budget ends: then it withdraws the wish, and
//! the reply shows whether the candidate has moved. So a call may come, and a budget end, at any time.

use crate::engine::model::scenario::{Kind, Quirk, Scenario};
use crate::engine::model::state::*;

impl Locks {
    pub(super) fn steps_of_latch(&self, index: usize, contender: &Contender, steps: &mut Vec<Step>) {
        let Some(own) = contender.node.filter(|_| contender.kind == Kind::Latch) else { return };
        match contender.phase {
            Phase::Holds if self.writes_record(index) => {}
            Phase::Holds if contender.wishes => steps.push(Step::Withdraw(index)),
            Phase::Holds if self.hand_overs > 0 => {
                let others = self.contenders.iter().filter_map(|other| other.node);
                let candidates = others.filter(|node| *node != own && self.world.nodes[*node].deleted.is_none());
                steps.extend(candidates.map(|node| Step::HandOver(index, node)));
            }
            // It watches for calls when it watches its own node. A call without one of the two nodes changes nothing.
            Phase::Wait(_)
                if contender.watches_own()
                    && self.record.wish == Some(own)
                    && [own, self.record.leader].iter().all(|node| self.world.nodes[*node].deleted.is_none()) =>
            {
                steps.push(Step::Called(index));
            }
            _ => {}
        }
    }

    fn writes_record(&self, contender: usize) -> bool {
        let is_write = |request: &Request| matches!(request.what, What::Wish(_) | What::Withdraw);
        let requests = &self.world.sessions[self.contenders[contender].session].requests;
        requests.iter().any(|request| request.contender == contender && is_write(request))
    }

    /// Carries out a transaction on the path's data. Its read is a part of it: the write names the version of the read.
    pub(super) fn change_record(&mut self, request: &Request, scenario: &Scenario) -> Answer {
        let Some(own) = self.contenders[request.contender].node else { return Answer::NoNode };
        let exists = |node: usize| self.world.nodes[node].exists_at(self.world.log);
        let Record { leader, wish } = self.record;
        let written = self.world.log + 1;
        match request.what {
            What::Wish(candidate) if exists(own) && exists(candidate) => {
                self.record = Record { leader: own, wish: Some(candidate) };
            }
            What::Withdraw if exists(own) && leader == own && wish.is_some() => self.record.wish = None,
            What::Follow { owner, old }
                if wish == Some(old)
                    && exists(old)
                    && (exists(leader) || scenario.quirk == Some(Quirk::LeaderIsNotChecked)) =>
            {
                let number = match scenario.quirk {
                    Some(Quirk::MovesToTheBack) => self.next_number(),
                    _ => self.world.nodes[leader].data.number,
                };
                let answer = self.create(owner, Kind::Latch, number);
                self.world.delete(old);
                self.record = Record { leader: self.world.nodes.len() - 1, wish: None };
                self.moved |= 1 << self.record.leader;
                self.record_written.push(written);
                return answer;
            }
            _ => return Answer::NoNode,
        }
        self.world.log += 1;
        self.record_written.push(written);
        Answer::Done
    }

    /// Takes the reply to a transaction on the path's data.
    pub(super) fn has_changed_record(&mut self, request: Request, answer: Answer) {
        let it = &mut self.contenders[request.contender];
        match request.what {
            What::Follow { .. } => {
                it.moved = if let Answer::Created(node) = answer { Some(node) } else { None };
                it.ask().into_iter().for_each(|ask| ask.outstanding -= 1);
            }
            _ if it.phase != Phase::Holds => {}
            What::Wish(_) => it.wishes = answer == Answer::Done,
            // The candidate has moved: only the leader and its candidate write the data.
            _ if answer == Answer::NoNode => self.release(request.contender),
            _ => it.wishes = false,
        }
    }

    /// Follows the wish that a call announces, once the watches are set. Returns whether a request is sent.
    pub(super) fn follows_wish(&mut self, contender: usize) -> bool {
        let it = &mut self.contenders[contender];
        let (Phase::Asks(Ask { what: Asked::Arm { .. }, outstanding: outstanding @ 0, .. }), Some(old), true) =
            (&mut it.phase, it.node, it.has_come)
        else {
            return false;
        };
        (*outstanding, it.has_come) = (1, false);
        let (session, owner) = (it.session, self.owners.len());
        self.owners.push(Owner::new(session, false));
        self.send(contender, What::Follow { owner, old });
        true
    }

    /// Takes the node beside the leader's for its node. Returns whether the contender has to list.
    pub(super) fn has_moved(&mut self, contender: usize, own: &mut Option<Watch>, scenario: &Scenario) -> bool {
        let it = &mut self.contenders[contender];
        let Some(node) = it.moved.take() else { return false };
        let (before, owner) = (it.owner, self.world.nodes[node].data.owner);
        (it.node, it.owner) = (Some(node), owner);
        (self.owners[before].is_entered, self.owners[owner].is_entered) = (false, true);
        self.owners[owner].node = Some(node);
        it.record = None;
        if scenario.quirk == Some(Quirk::MoveIsNotListed) {
            own.iter_mut().for_each(|own| (own.target, own.fired) = (Target::Node(node), None));
            return false;
        }
        (it.own, it.awaited, it.awaited_owner) = (None, None, None);
        true
    }

    /// Fails the moves that have lost their replies. The session deletes the nodes that they may have created.
    pub(super) fn loses_moves(&mut self, lost: &[Request], scenario: &Scenario) {
        for request in lost {
            let (What::Follow { owner, .. }, it) = (request.what, &mut self.contenders[request.contender]) else {
                continue;
            };
            if let Phase::Asks(ask) = std::mem::replace(&mut it.phase, Phase::Failed) {
                (it.awaited, it.own) = (ask.node.or(it.awaited.take()), ask.own.or(it.own.take()));
            }
            it.has_come = true;
            if scenario.quirk != Some(Quirk::LostMoveIsKept) {
                let clean = Request { owner, what: What::Clean, committed: None, ..*request };
                self.world.sessions[it.session].requests.push(clean);
            }
        }
    }
}

//! The nemesis, which does the worst to a storm's clients, with two hands.

use std::time::Duration;

use curator_test::FaultProxy;
use curator_test::wire::OpCode;
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use tokio::time::{sleep, timeout};

use crate::ground::Ground;
use crate::storm::PATIENT;
use curator_simulate::contenders::Scribe;

/// What is asked most.
const ASKED: [OpCode; 7] = [
    OpCode::Create2,
    OpCode::Create2,
    OpCode::GetChildren,
    OpCode::GetData,
    OpCode::Delete,
    OpCode::Exists,
    OpCode::CreateSession,
];
/// How long it is waited for an aimed fault.
const AIMED: Duration = Duration::from_millis(1500);

/// Breaks connections with one hand, and sessions, nodes and servers with the other.
pub(crate) struct Nemesis<'a> {
    scribe: &'a Scribe,
    ground: &'a Ground,
    seed: u64,
}

fn milliseconds(random: &mut StdRng, range: std::ops::Range<u64>) -> Duration {
    Duration::from_millis(random.random_range(range))
}

impl<'a> Nemesis<'a> {
    pub(crate) const fn new(scribe: &'a Scribe, ground: &'a Ground, seed: u64) -> Self {
        Self { scribe, ground, seed }
    }

    /// Does its worst for a while. What it has started is to be repaired.
    pub(crate) async fn rage(&self) {
        let wire = async {
            let mut random = StdRng::seed_from_u64(self.seed ^ 1 << 60);
            for _ in 0..random.random_range(4..11) {
                sleep(milliseconds(&mut random, 60..1500)).await;
                self.break_the_wire(&mut random).await;
            }
        };
        let server = async {
            let mut random = StdRng::seed_from_u64(self.seed ^ 2 << 60);
            for _ in 0..random.random_range(2..7) {
                sleep(milliseconds(&mut random, 60..3000)).await;
                self.break_the_server(&mut random).await;
            }
        };
        tokio::join!(wire, server);
    }

    fn fault(&self, what: impl std::fmt::Display, lasting: Duration) {
        self.scribe.fault(what, lasting);
    }

    async fn break_the_wire(&self, random: &mut StdRng) {
        // A holder has the most to lose.
        let holder = if random.random() { self.ground.holder().await } else { None };
        let client = holder.unwrap_or_else(|| random.random_range(0..self.ground.clients()));
        let proxy = self.ground.proxy(client);
        let lasting = milliseconds(random, 30..4000);
        match random.random_range(0..14) {
            0 => {
                self.fault(format_args!("client {client} is reset"), Duration::ZERO);
                proxy.reset();
            }
            1..=3 => {
                // Long enough for the end of any session, now and then.
                let lasting = if random.random() { lasting } else { milliseconds(random, 4000..6000) };
                let other = (client + random.random_range(0..2)) % self.ground.clients();
                self.fault(format_args!("clients {client} and {other} are partitioned for {lasting:?}"), lasting);
                [client, other].into_iter().for_each(|client| self.ground.partition(client));
                sleep(lasting).await;
                [client, other].into_iter().for_each(|client| self.ground.repair(client));
            }
            4 => {
                self.fault(format_args!("client {client} is refused for {lasting:?}"), lasting);
                proxy.refuse();
                proxy.reset();
                sleep(lasting).await;
                proxy.accept();
            }
            5 => {
                let latency = milliseconds(random, 5..300);
                self.fault(format_args!("client {client} is slow by {latency:?} for {lasting:?}"), lasting);
                proxy.latency(latency);
                sleep(lasting).await;
                proxy.latency(Duration::ZERO);
            }
            6..=9 => self.aim(client, random).await,
            10 | 11 => self.delay_connects(client, random).await,
            12 => {
                self.fault(format_args!("client {client} gets another session"), Duration::ZERO);
                proxy.swap_session();
                proxy.reset();
            }
            _ => {
                self.fault(format_args!("client {client} is reset again and again"), Duration::from_secs(3));
                for _ in 0..random.random_range(2..12) {
                    proxy.reset();
                    sleep(milliseconds(random, 5..300)).await;
                }
            }
        }
    }

    /// Loses a request or an answer.
    async fn aim(&self, client: usize, random: &mut StdRng) {
        let proxy = self.ground.proxy(client);
        let faults = [FaultProxy::drop_reply, FaultProxy::drop_request, FaultProxy::cut_frame];
        let fault = random.random_range(0..faults.len());
        let op = ASKED[random.random_range(0..ASKED.len())];
        let nth = random.random_range(1..4);
        let name = ["loses an answer", "loses a request", "gets half an answer"][fault];
        self.fault(format_args!("client {client} {name}: {} number {nth}", op.name()), AIMED);
        let done = proxy.faults_done() + 1;
        faults[fault](proxy, op, nth);
        if op == OpCode::CreateSession {
            proxy.reset();
        }
        if timeout(AIMED, proxy.wait_for_faults(done)).await.is_err() {
            self.scribe.note("that is still to come");
        }
    }

    /// The crate `zookeeper-async` gives up a connect after two seconds, and may read its reply on the next connection.
    async fn delay_connects(&self, client: usize, random: &mut StdRng) {
        let just_then = random.random_range(0..3) > 0;
        // Other sessions are over by then.
        let client = if just_then { PATIENT } else { client };
        let proxy = self.ground.proxy(client);
        let late = if just_then { milliseconds(random, 1997..2005) } else { milliseconds(random, 10..2500) };
        self.fault(format_args!("client {client} is connected late by {late:?}"), late * 3);
        for _ in 0..if just_then { 3 } else { 1 } {
            proxy.late_connect_answer(late);
            proxy.reset();
            sleep(late).await;
            // What the crate starts now is answered at once, behind what is late.
            proxy.late_connect_answer(Duration::ZERO);
            sleep(milliseconds(random, 50..500)).await;
        }
    }

    async fn break_the_server(&self, random: &mut StdRng) {
        let lasting = milliseconds(random, 30..4000);
        match (random.random_range(0..9), self.ground.own_server()) {
            (0, Some(server)) => {
                self.fault("the server starts again", Duration::ZERO);
                if let Err(error) = server.restart() {
                    self.scribe.wrong(format!("a server that does not start again: {error}"));
                }
            }
            (1, Some(server)) => {
                self.fault(format_args!("the server freezes for {lasting:?}"), lasting);
                server.freeze();
                sleep(lasting).await;
                server.thaw();
            }
            (2 | 3, Some(server)) => {
                self.fault("the server's reads lag behind for a while", Duration::from_secs(4));
                server.stale_reads(true);
                for _ in 0..random.random_range(1..12) {
                    sleep(milliseconds(random, 10..250)).await;
                    self.ground.proxy(random.random_range(0..self.ground.clients())).reset();
                }
                server.stale_reads(false);
            }
            (4, _) => {
                self.fault("all clients are reset", Duration::ZERO);
                (0..self.ground.clients()).for_each(|client| self.ground.proxy(client).reset());
            }
            (5 | 6, _) => self.delete_a_node(random).await,
            _ => self.kill_a_session(random).await,
        }
    }

    async fn delete_a_node(&self, random: &mut StdRng) {
        match self.ground.nodes().await {
            Ok(nodes) if !nodes.is_empty() => {
                let node = &nodes[random.random_range(0..nodes.len())].path;
                self.fault(format_args!("somebody deletes {node}"), Duration::ZERO);
                self.scribe.revoke(vec![node.clone()]);
                if let Err(error) = self.ground.delete(node).await {
                    self.scribe.wrong(format!("an administrator who cannot delete {node}: {error}"));
                }
            }
            Ok(_) => {}
            Err(error) => self.scribe.wrong(format!("an administrator who cannot list: {error}")),
        }
    }

    /// Nothing passes in the meantime, so that it is known which nodes go with the session.
    async fn kill_a_session(&self, random: &mut StdRng) {
        self.ground.hold_on();
        match self.ground.nodes().await {
            Ok(nodes) if !nodes.is_empty() => {
                let session = nodes[random.random_range(0..nodes.len())].session;
                self.fault(format_args!("session {session:#x} is killed"), Duration::ZERO);
                let its = nodes.into_iter().filter(|node| node.session == session);
                self.scribe.revoke(its.map(|node| node.path).collect());
                if let Err(error) = self.ground.kill_session(session).await {
                    self.scribe.wrong(format!("a session that cannot be killed: {error}"));
                }
            }
            Ok(_) => {}
            Err(error) => self.scribe.wrong(format!("an administrator who cannot list: {error}")),
        }
        self.ground.go_on();
    }
}

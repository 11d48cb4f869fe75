//! Terms in turn, with processes that are killed: never two leaders by our doing.
//!
//! `CURATOR_LEADER_TERMS` sets the number of terms.

use std::collections::BTreeMap;
use std::time::Duration;

use curator_integration::env::{Env, Kind};
use futures_util::future::join_all;
use tokio::time::timeout;

use super::resource::Resource;
use crate::peer::{Language, Peer, Thread};

const LANGUAGES: [Language; 2] = [Language::Java, Language::Rust];
const TERMS: usize = 60;
/// Terms between two kills.
const CALM: usize = 20;
/// It must not end by itself on a busy machine.
const SESSION: Duration = Duration::from_secs(4);
/// The time of a term, in milliseconds.
const HOLD: u64 = 10;
/// The limit of the time for so many terms and a kill.
const PATIENCE: Duration = Duration::from_secs(60);

struct Campaign {
    kind: &'static str,
    java: &'static str,
    rust: &'static str,
}

struct Candidate {
    id: String,
    peer: Peer,
    thread: Thread,
}

impl Campaign {
    fn join(&self, peer: Peer, language: Language, path: &str, port: u16, number: usize) -> Candidate {
        let (name, endings) = match language {
            Language::Java => ("java", self.java),
            _ => ("rust", self.rust),
        };
        let id = format!("{name}-{number}");
        let thread = peer.thread(&id);
        thread.begin(&format!("campaign {} {path} {id} {port} {HOLD} {endings}", self.kind));
        Candidate { id, peer, thread }
    }

    async fn run(&self) {
        let terms = std::env::var("CURATOR_LEADER_TERMS").map_or(TERMS, |terms| terms.parse().unwrap());
        let env = Env::new(Kind::InProcess);
        let (client, path) = (env.client().await, env.path(self.kind));
        let mut resource = Resource::open(client.clone()).await;
        let port = resource.port();
        // A process of Java's starts slowly: no campaign starts before all have started.
        let start = |number: usize| Peer::start(LANGUAGES[number % 2], env.address(), SESSION);
        let peers = join_all((0..4).map(start)).await;
        let joins = |(number, peer)| self.join(peer, LANGUAGES[number % 2], &path, port, number);
        let mut candidates: Vec<_> = (0..).zip(peers).map(joins).collect();
        let mut kills = 0;
        while (kills + 1) * CALM < terms {
            let language = LANGUAGES[kills % 2];
            let spare = start(kills).await;
            timeout(PATIENCE, resource.wait_for_terms((kills + 1) * CALM)).await.expect("terms go on");
            let leader = resource.wait_for_leader(language == Language::Java);
            let leader = timeout(PATIENCE, leader).await.expect("terms go on").id;
            // Two leaders, and then two others.
            let is_victim =
                |one: &Candidate| one.thread.language() == language && (one.id == leader) == (kills % 4 < 2);
            let place = candidates.iter().position(is_victim).unwrap();
            candidates.swap_remove(place).peer.kill().await;
            kills += 1;
            candidates.push(self.join(spare, language, &path, port, 3 + kills));
        }
        timeout(PATIENCE, resource.wait_for_terms(terms)).await.expect("terms go on");
        self.end(candidates, &path).await;
        self.check(&resource, kills);
        env.wait_for_children(&client, &path, 0).await;
    }

    async fn end(&self, mut candidates: Vec<Candidate>, path: &str) {
        for candidate in &candidates {
            candidate.peer.thread("stop").begin(&format!("stop {path}"));
        }
        for candidate in &mut candidates {
            candidate.thread.says("done").await;
        }
        for candidate in candidates {
            candidate.peer.end().await;
        }
    }

    fn check(&self, resource: &Resource, kills: usize) {
        let (terms, overlaps) = (resource.terms(), resource.overlaps());
        let mut by_language = BTreeMap::<_, usize>::new();
        for term in &terms {
            *by_language.entry(if term.is_javas() { "Java" } else { "Rust" }).or_default() += 1;
        }
        let changes = terms.windows(2).filter(|pair| pair[0].is_javas() != pair[1].is_javas()).count();
        let (javas, ours): (Vec<_>, Vec<_>) = overlaps.iter().partition(|overlap| overlap.is_javas());
        println!(
            "{}: {} terms {by_language:?}, {changes} changes of the language, {kills} processes killed, overlaps: {} by our \
             doing, {} by Java's",
            self.kind,
            terms.len(),
            ours.len(),
            javas.len(),
        );
        javas.iter().for_each(|overlap| println!("Java: {overlap}"));
        assert!(ours.is_empty(), "{}: {}", self.kind, ours[0]);
        assert!(by_language.len() == 2 && by_language.values().all(|own| own * 10 > terms.len()), "{by_language:?}");
        // A term of Java's without its node has the number 0.
        let numbers: Vec<_> = terms.iter().map(|term| term.term).filter(|term| *term != 0).collect();
        assert!(numbers.is_sorted(), "the numbers of the terms do not grow: {numbers:?}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn latches_of_both_languages_lead_in_turn() {
    Campaign { kind: "latch", java: "close,notify,client", rust: "resign,close,client,notify" }.run().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn selectors_of_both_languages_lead_in_turn() {
    Campaign { kind: "selector", java: "return,interrupt,client", rust: "return,interrupt,client,close" }.run().await;
}

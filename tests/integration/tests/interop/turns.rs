//! Two processes contend for every kind of lock, which keeps its promises to both.

use curator_checkers::locks::Rules;
use curator_integration::on_every_server;

use crate::peer::{Peer, Thread};
use crate::record::{Report, check, history, rules};

/// The lock that two threads of each process compete for, the number of turns, and the folder of the waiters.
struct Contest {
    kind: &'static str,
    java: [&'static str; 2],
    rust: [&'static str; 2],
    rounds: usize,
    /// How long each has it, in milliseconds.
    hold: u64,
    queue: &'static str,
    /// What leaves the last place free, and what takes it.
    keeps: [&'static str; 2],
}

const CONTESTS: [Contest; 5] = [
    Contest {
        kind: "mutex",
        java: ["mutex", "mutex"],
        rust: ["mutex", "mutex"],
        rounds: 150,
        hold: 0,
        queue: "",
        keeps: ["", "mutex"],
    },
    Contest {
        kind: "write",
        java: ["write,read,read", "read,write"],
        rust: ["read,downgrade", "read,write,read"],
        rounds: 150,
        hold: 1,
        queue: "",
        keeps: ["", "write"],
    },
    Contest {
        kind: "semaphore:3",
        java: ["semaphore:3", "semaphore:3"],
        // All or none.
        rust: ["semaphore:3", "semaphore:3:2,semaphore:3,semaphore:3:3"],
        rounds: 100,
        // So long that all leases are taken.
        hold: 8,
        queue: "/locks",
        keeps: ["semaphore:3:2", "semaphore:3"],
    },
    Contest {
        kind: "semaphore-mutex",
        java: ["semaphore-mutex", "semaphore-mutex"],
        rust: ["semaphore-mutex", "semaphore-mutex"],
        rounds: 75,
        hold: 0,
        queue: "/locks",
        keeps: ["", "semaphore-mutex"],
    },
    // Against contenders for the first of its locks alone, too.
    Contest {
        kind: "multi",
        java: ["multi", "mutex"],
        rust: ["mutex", "multi"],
        rounds: 75,
        hold: 0,
        queue: "",
        keeps: ["", "multi"],
    },
];

/// All of them compete.
async fn compete(contenders: &mut [(Thread, &str)], path: &str, rounds: usize, hold: u64) -> Vec<Report> {
    for (thread, kinds) in contenders.iter() {
        thread.begin(&format!("compete {kinds} {path} {rounds} {hold}"));
    }
    let mut reports = Vec::new();
    for (thread, _) in contenders {
        reports.push(Report::of(thread).await);
    }
    reports
}

on_every_server! {
    async fn each_lock_has_one_queue(env) {
        let (java, rust) = tokio::join!(Peer::java(&env), Peer::rust(&env));
        let client = env.client().await;
        let mut holder = rust.thread("holder");
        for Contest { kind, queue, keeps: [keeps, takes], .. } in CONTESTS {
            let path = env.path(&format!("queue-{}", kind.replace(':', "-")));
            if !keeps.is_empty() {
                holder.acquire(keeps, &path).await;
            }
            holder.acquire(takes, &path).await;
            let folder = format!("{path}{queue}");
            let held = if queue.is_empty() { 1 } else { 0 };
            env.wait_for_children(&client, &folder, held).await;
            let mut threads = Vec::new();
            for (count, peer) in [&java, &rust, &rust, &java, &java, &rust].into_iter().enumerate() {
                let thread = peer.thread(&format!("{kind}-{count}"));
                thread.begin(&format!("compete {kind} {path} 1 0"));
                // The order in which they came is known.
                env.wait_for_children(&client, &folder, held + count + 1).await;
                threads.push(thread);
            }
            holder.release(takes, &path).await;
            let mut reports = Vec::new();
            for thread in &mut threads {
                reports.push(Report::of(thread).await);
            }
            assert!(reports.is_sorted_by_key(Report::first_grant), "{kind} is not first come, first served");
            check(kind, &reports, &rules(kind));
            if !keeps.is_empty() {
                holder.release(keeps, &path).await;
            }
            env.wait_for_children(&client, &folder, 0).await;
        }
        java.end().await;
        rust.end().await;
    }

    async fn each_lock_keeps_its_promises_to_both(env) {
        let (java, rust) = tokio::join!(Peer::java(&env), Peer::rust(&env));
        let client = env.client().await;
        for Contest { kind, java: javas, rust: rusts, rounds, hold, queue, .. } in CONTESTS {
            let path = env.path(&format!("storm-{}", kind.replace(':', "-")));
            let mut contenders = [&java, &java, &rust, &rust]
                .into_iter()
                .zip([javas, rusts].concat())
                .enumerate()
                .map(|(number, (peer, kinds))| (peer.thread(&format!("{kind}-{number}")), kinds))
                .collect::<Vec<_>>();
            let reports = compete(&mut contenders, &path, rounds, hold).await;
            check(kind, &reports, &rules(kind));
            assert_eq!(history(&reports).grants(), 4 * rounds);
            let leases = if queue.is_empty() { "-too" } else { "/leases" };
            for folder in [queue, leases] {
                env.wait_for_children(&client, &format!("{path}{folder}"), 0).await;
            }
        }
        java.end().await;
        rust.end().await;
    }

    /// The tasks of our client have one node, and pass what they have on while Java does not wait.
    async fn batches_keep_their_promises_to_java(env) {
        let (java, rust) = tokio::join!(Peer::java(&env), Peer::rust(&env));
        let client = env.client().await;
        for (kind, ours, folders) in [
            ("mutex", "one-node-mutex", ["", "-too"]),
            ("semaphore:2", "one-node-semaphore:2", ["/locks", "/leases"]),
        ] {
            let path = env.path(&format!("batch-{}", kind.replace(':', "-")));
            let kinds = [(&java, kind); 2].into_iter().chain([(&rust, ours); 8]).enumerate();
            let mut contenders: Vec<_> =
                kinds.map(|(number, (peer, kind))| (peer.thread(&format!("{path}-{number}")), kind)).collect();
            let reports = compete(&mut contenders, &path, 50, 0).await;
            // The holders of a node have one transaction.
            check(kind, &reports, &Rules { growing_tokens: false, ..rules(kind) });
            assert_eq!(history(&reports).grants(), 500);
            for folder in folders {
                env.wait_for_children(&client, &format!("{path}{folder}"), 0).await;
            }
        }
        java.end().await;
        rust.end().await;
    }
}

/// A contest that finds nothing wrong would prove nothing if it never could.
#[cfg(curator_mutants)]
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_broken_engine_is_found() {
    use crate::rust_peer;
    use curator_integration::env::{Env, Kind};

    /// The most contests for one break.
    const CONTESTS: usize = 50;

    let env = Env::new(Kind::InProcess);
    let java = Peer::java(&env).await;
    for (mutant, javas, rusts) in [
        ("one-too-many", "mutex", "mutex"),
        ("one-too-many", "semaphore:1", "semaphore:1"),
        ("reader-ignores-the-last-writer", "read,write", "read,write"),
        ("downgrade-behind-the-queue", "write", "downgrade"),
    ] {
        let rust = rust_peer::broken(&env, mutant).await;
        let kind = javas.split(',').next().unwrap();
        let (mut contests, mut is_found) = (0, false);
        // A contest finds the break by chance: in nearly all of them.
        while !is_found && contests < CONTESTS {
            contests += 1;
            let path = env.path(&format!("{mutant}-{kind}-{contests}").replace(':', "-"));
            // Java's downgrade lets a writer in.
            let kinds = [(&java, javas), (&java, javas), (&rust, rusts), (&rust, rusts)].into_iter().enumerate();
            let mut contenders: Vec<_> =
                kinds.map(|(number, (peer, kinds))| (peer.thread(&format!("{path}-{number}")), kinds)).collect();
            // So long that the other process hears of the same notification within it.
            let reports = compete(&mut contenders, &path, 10, 10).await;
            let found = history(&reports).check(&Rules { growing_tokens: false, ..rules(kind) });
            is_found = found.iter().any(|one| one.rule == "too many holders");
        }
        assert!(is_found, "{mutant} of {kind}: not found in {contests} contests");
    }
    java.end().await;
}

//! Double barriers with members of several languages.

use std::time::Duration;

use curator_framework::CuratorFramework;
use curator_integration::env::{Env, Kind, in_time};
use curator_integration::on_every_server;
use curator_recipes::{BarrierError, BarrierMember, DistributedDoubleBarrier};
use tokio::task::JoinHandle;

use crate::peer::{Language, Peer, Thread};

const SESSION: Duration = Duration::from_secs(30);
const SIZE: usize = 4;

/// A member of this process.
enum Ours {
    Enters(JoinHandle<Result<BarrierMember, BarrierError>>),
    Leaves(JoinHandle<Result<u32, BarrierError>>),
}

/// A member in this process or in another one.
enum Member {
    Ours(Option<Ours>),
    Theirs(Thread),
}

/// A barrier, and a client for each of our members.
struct Stage {
    path: String,
    clients: Vec<CuratorFramework>,
    observer: CuratorFramework,
}

impl Stage {
    async fn new(env: &Env, path: &str) -> Self {
        let mut clients = Vec::new();
        for _ in 0..SIZE {
            clients.push(env.client().await);
        }
        Self { path: env.path(path), clients, observer: env.client().await }
    }

    /// Lets a member enter: the one of the peer with this number, or ours.
    fn enter(&self, peer: Option<&Peer>, number: usize) -> Member {
        let Some(peer) = peer else {
            let barrier = DistributedDoubleBarrier::new(self.clients[number].clone(), &self.path, SIZE).unwrap();
            return Member::Ours(Some(Ours::Enters(tokio::spawn(async move { barrier.enter().await }))));
        };
        let thread = peer.thread(&format!("member-{number}"));
        thread.begin(&format!("double {} enter {SIZE}", self.path));
        Member::Theirs(thread)
    }

    fn node(&self) -> String {
        format!("{}/ready", self.path)
    }
}

impl Member {
    /// Returns `true` if the member is still in its step.
    fn is_waiting(&self) -> bool {
        match self {
            Self::Ours(Some(Ours::Enters(task))) => !task.is_finished(),
            Self::Ours(Some(Ours::Leaves(task))) => !task.is_finished(),
            Self::Ours(None) => false,
            Self::Theirs(thread) => thread.is_silent(),
        }
    }

    /// Waits until the member has entered, and lets it leave.
    async fn leave(&mut self, path: &str) {
        match self {
            Self::Ours(step) => {
                let Some(Ours::Enters(task)) = step.take() else { panic!("it has not begun to enter") };
                let member = in_time(task).await.unwrap().unwrap();
                let leaving = async move { member.leave().await.map(|departure| departure.died) };
                *step = Some(Ours::Leaves(tokio::spawn(leaving)));
            }
            Self::Theirs(thread) => thread.begin(&format!("double {path} leave")),
        }
    }

    async fn has_entered(&mut self) {
        match self {
            Self::Theirs(thread) => thread.says("entered").await,
            Self::Ours(Some(Ours::Enters(task))) => {
                while !task.is_finished() {
                    tokio::time::sleep(Duration::from_millis(1)).await;
                }
            }
            Self::Ours(_) => panic!("it has not begun to enter"),
        }
    }

    async fn has_left(self) {
        match self {
            Self::Ours(Some(Ours::Leaves(task))) => drop(in_time(task).await.unwrap().unwrap()),
            Self::Ours(_) => panic!("it has not begun to leave"),
            Self::Theirs(mut thread) => thread.says("left").await,
        }
    }
}

/// All enter in this order, and leave in that order, which are numbers of members. The even ones are ours; they leave
/// first, except for the last member.
async fn round(env: &Env, stage: &Stage, peer: &Peer, entering: [usize; SIZE], leaving: [usize; SIZE]) {
    let mut members: [Option<Member>; SIZE] = [const { None }; SIZE];
    for (arrived, number) in entering.into_iter().enumerate() {
        env.wait_for_children(&stage.observer, &stage.path, arrived).await;
        assert!(members.iter().flatten().all(Member::is_waiting), "in before the last one: {entering:?}");
        members[number] = Some(stage.enter((number % 2 == 1).then_some(peer), number));
    }
    for member in members.iter_mut().flatten() {
        in_time(member.has_entered()).await;
    }
    let opened = stage.observer.check_exists().for_path(&stage.node()).await.unwrap();
    assert!(opened.is_some(), "the barrier is open: {entering:?}");
    for (last, number) in leaving.into_iter().enumerate() {
        let is_last = last + 1 == SIZE;
        if is_last {
            // Long enough for a member that leaves too early.
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
        let left: Vec<_> = leaving[..last].iter().map(|number| members[*number].as_ref().unwrap()).collect();
        assert!(left.into_iter().all(Member::is_waiting), "out before the last one has begun: {leaving:?}");
        members[number].as_mut().unwrap().leave(&stage.path).await;
        if number % 2 == 0 && !is_last {
            // Java's member watches the lowest node. If that is one of a member that leaves, it ends its own leave at
            // the deletion although the last member has not started.
            env.wait_for_children(&stage.observer, &stage.path, SIZE - last).await;
        }
    }
    for member in members.into_iter().flatten() {
        member.has_left().await;
    }
    env.wait_for_children(&stage.observer, &stage.path, 0).await;
}

on_every_server! {
    async fn members_of_java_and_rust_enter_and_leave_together(env) {
        let java = Peer::java(&env).await;
        let stage = Stage::new(&env, "double").await;
        // The last one opens the barrier: Java's, then ours. So does the last one to leave.
        for entering in [[0, 1, 2, 3], [1, 0, 3, 2], [1, 3, 0, 2], [0, 2, 1, 3]] {
            for leaving in [[0, 2, 1, 3], [2, 3, 1, 0]] {
                round(&env, &stage, &java, entering, leaving).await;
            }
        }
        java.end().await;
    }
}

/// kazoo deletes `ready` when a member starts to leave, so a member of ours may be out before that.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn members_of_kazoo_and_rust_enter_together_and_all_leave() {
    let env = Env::new(Kind::InProcess);
    let kazoo = Peer::start(Language::Python, env.address(), SESSION).await;
    let stage = Stage::new(&env, "double").await;
    for entering in [[0, 1, 2, 3], [1, 0, 3, 2]] {
        let mut members = Vec::new();
        for (arrived, number) in entering.into_iter().enumerate() {
            env.wait_for_children(&stage.observer, &stage.path, arrived).await;
            assert!(members.iter().all(Member::is_waiting), "in before the last one: {entering:?}");
            members.push(stage.enter((number % 2 == 1).then_some(&kazoo), number));
        }
        for member in &mut members {
            in_time(member.has_entered()).await;
        }
        for member in &mut members {
            member.leave(&stage.path).await;
        }
        for member in members {
            member.has_left().await;
        }
        env.wait_for_children(&stage.observer, &stage.path, 0).await;
    }
    kazoo.end().await;
}

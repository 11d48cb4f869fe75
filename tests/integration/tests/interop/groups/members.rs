//! Members of both languages in one group: each sees the ids and the data of all.

use std::time::Duration;

use curator_framework::{CuratorFramework, SessionId};
use curator_integration::env::{Env, Kind, in_time};
use curator_integration::on_every_server;
use curator_recipes::{Changes, GroupMember, GroupMemberOptions, MemberChange, NodeError};
use curator_test::kill_session;

use super::member::sees;
use crate::peer::{Language, Peer, Thread};

/// The session timeout of processes that are killed. The session must not end by itself on a busy machine.
const SHORT: Duration = Duration::from_secs(4);
const LONG: Duration = Duration::from_secs(60);

/// A member in a process of its own.
struct Remote<'a> {
    path: &'a str,
    id: &'static str,
    thread: Thread,
}

impl<'a> Remote<'a> {
    async fn join(peer: &Peer, path: &'a str, id: &'static str, data: &str) -> Self {
        let mut member = Self { path, id, thread: peer.thread(id) };
        member.does(&format!("join {data}"), "joined").await;
        member
    }

    async fn does(&mut self, what: &str, answer: &str) {
        let (path, id) = (self.path, self.id);
        assert_eq!(self.thread.ask(&format!("group {path} {id} {what}")).await, answer, "{id}: {what}");
    }

    async fn sees(&mut self, members: &str) {
        self.does(&format!("sees {members}"), "seen").await;
    }

    async fn members(&mut self) -> String {
        let (path, id) = (self.path, self.id);
        self.thread.ask(&format!("group {path} {id} members")).await
    }
}

async fn all_see(all: &mut [Remote<'_>], members: &str) {
    for one in all {
        one.sees(members).await;
    }
}

/// Returns a change as `+ID=DATA SESSION`, `~ID=DATA SESSION` or `-ID=DATA SESSION`.
async fn next(changes: &mut Changes<MemberChange>) -> String {
    let (sign, member) = match in_time(changes.recv()).await {
        Some(MemberChange::Joined(member)) => ('+', member),
        Some(MemberChange::DataChanged(member)) => ('~', member),
        Some(MemberChange::Left(member)) => ('-', member),
        other => panic!("{other:?}"),
    };
    format!("{sign}{}={} {}", member.id, String::from_utf8_lossy(&member.data), member.session.unwrap())
}

async fn kill_session_of(env: &Env, peer: &Peer) {
    kill_session(env.address(), peer.session().await).await.unwrap();
}

on_every_server! {
    async fn members_of_both_languages_see_each_other(env) {
        let (java, rust) = tokio::join!(Peer::java(&env), Peer::rust(&env));
        let path = env.path("group");
        let observer = curator_integration::following::group(env.client().await, &path);
        let mut changes = observer.changes();
        let [of_java, of_rust] = [java.session().await, rust.session().await];
        let mut all = Vec::new();
        for (peer, id, session, seen) in [
            (&java, "j1", of_java, "j1=a"),
            (&rust, "r1", of_rust, "j1=a,r1=a"),
            (&java, "j2", of_java, "j1=a,j2=a,r1=a"),
            (&rust, "r2", of_rust, "j1=a,j2=a,r1=a,r2=a"),
        ] {
            all.push(Remote::join(peer, &path, id, "a").await);
            all_see(&mut all, seen).await;
            assert_eq!(next(&mut changes).await, format!("+{id}=a {session:#x}"));
        }
        all[0].does("write b", "written").await;
        all_see(&mut all, "j1=b,j2=a,r1=a,r2=a").await;
        all[1].does("write c", "written").await;
        all_see(&mut all, "j1=b,j2=a,r1=c,r2=a").await;
        for (id, data, session) in [("j1", "b", of_java), ("r1", "c", of_rust)] {
            assert_eq!(next(&mut changes).await, format!("~{id}={data} {session:#x}"));
        }
        for (seen, id, data, session) in [
            ("j2=a,r1=c,r2=a", "j1", "b", of_java),
            ("j2=a,r2=a", "r1", "c", of_rust),
            ("r2=a", "j2", "a", of_java),
        ] {
            let place = all.iter().position(|one| one.id == id).unwrap();
            all.remove(place).does("leave", "left").await;
            all_see(&mut all, seen).await;
            assert_eq!(next(&mut changes).await, format!("-{id}={data} {session:#x}"));
        }
        observer.close().await;
        java.end().await;
        rust.end().await;
    }

    async fn node_of_a_member_whose_session_ended_stands_again_in_the_next_session(env) {
        let (java, rust) = tokio::join!(Peer::java(&env), Peer::rust(&env));
        let path = env.path("group");
        let mut all = [Remote::join(&java, &path, "java", "a").await, Remote::join(&rust, &path, "rust", "b").await];
        all_see(&mut all, "java=a,rust=b").await;
        let observer = curator_integration::following::group(env.client().await, &path);
        let mut changes = observer.changes();
        assert!(next(&mut changes).await.starts_with("+java=a "));
        assert!(next(&mut changes).await.starts_with("+rust=b "));
        for (peer, member) in [(&java, "java=a"), (&rust, "rust=b")] {
            let before = peer.session().await;
            kill_session_of(&env, peer).await;
            assert_eq!(next(&mut changes).await, format!("-{member} {before:#x}"));
            let again = next(&mut changes).await;
            let now = peer.session().await;
            assert_ne!(before, now);
            assert_eq!(again, format!("+{member} {now:#x}"));
        }
        all_see(&mut all, "java=a,rust=b").await;
        observer.close().await;
        java.end().await;
        rust.end().await;
    }

    async fn our_default_data_is_javas(env) {
        let java = Peer::java(&env).await;
        let (client, path) = (env.client().await, env.path("group"));
        let mut javas = Remote { path: &path, id: "java", thread: java.thread("java") };
        javas.does("join", "joined").await;
        let ours = GroupMember::new(client.clone(), &path, "rust").unwrap();
        ours.start().unwrap();
        let ours = in_time(ours.join()).await.unwrap();
        let (expected, _) = client.get_data().for_path(&format!("{path}/java")).await.unwrap();
        assert!(!expected.is_empty());
        assert_eq!(String::from_utf8_lossy(&ours.data), String::from_utf8_lossy(&expected));
        java.end().await;
    }
}

async fn member_of_a_killed_process_leaves(victim: Language, survivor: Language) {
    let env = Env::new(Kind::InProcess);
    let start = |language, session| Peer::start(language, env.address(), session);
    let (dying, living) = tokio::join!(start(victim, SHORT), start(survivor, LONG));
    let path = env.path("group");
    let _dead = Remote::join(&dying, &path, "dying", "a").await;
    let mut alive = Remote::join(&living, &path, "living", "b").await;
    alive.sees("dying=a,living=b").await;
    dying.kill().await;
    alive.sees("living=b").await;
    living.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn our_member_sees_that_javas_killed_process_leaves() {
    member_of_a_killed_process_leaves(Language::Java, Language::Rust).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn javas_member_sees_that_our_killed_process_leaves() {
    member_of_a_killed_process_leaves(Language::Rust, Language::Java).await;
}

fn ours(client: &CuratorFramework, path: &str, id: &str, data: &str) -> GroupMember {
    let member = GroupMember::with_options(client.clone(), path, id, GroupMemberOptions::new().data(data)).unwrap();
    member.start().unwrap();
    member
}

/// Java's map always has its own id.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn java_counts_itself_a_member_while_its_node_is_gone() {
    let env = Env::new(Kind::InProcess);
    let (proxy, path, client) = (env.proxy(), env.path("group"), env.client().await);
    let java = Peer::start(Language::Java, proxy.address(), SHORT).await;
    let mut javas = Remote::join(&java, &path, "java", "a").await;
    let member = ours(&client, &path, "rust", "b");
    in_time(sees(&member, "java=a,rust=b")).await.unwrap();
    proxy.partition();
    in_time(sees(&member, "rust=b")).await.unwrap();
    assert!(javas.members().await.contains("java=a"), "Java knows that it is not a member: change the documents");
    proxy.repair();
    in_time(sees(&member, "java=a,rust=b")).await.unwrap();
    member.close().await;
    java.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn our_member_waits_for_the_id_of_javas() {
    let env = Env::new(Kind::InProcess);
    let java = Peer::java(&env).await;
    let (client, path) = (env.client().await, env.path("group"));
    let mut javas = Remote::join(&java, &path, "same", "java").await;
    let member = ours(&client, &path, "same", "rust");
    match member.join_timeout(Duration::from_millis(500)).await {
        Err(NodeError::DuplicateMember { group, id, session }) => {
            assert_eq!(
                (group.to_string(), id.as_str(), session),
                (path.clone(), "same", SessionId::new(java.session().await))
            );
        }
        other => panic!("{other:?}"),
    }
    in_time(sees(&member, "same=java")).await.unwrap();
    javas.does("leave", "left").await;
    let joined = in_time(member.join()).await.unwrap();
    assert_eq!(joined.data, b"rust");
    in_time(sees(&member, "same=rust")).await.unwrap();
    member.close().await;
    java.end().await;
}

/// Java takes our node for its own, and deletes it when it leaves.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn our_member_joins_again_behind_javas_with_the_same_id() {
    let env = Env::new(Kind::InProcess);
    let java = Peer::java(&env).await;
    let (client, path) = (env.client().await, env.path("group"));
    let member = ours(&client, &path, "same", "rust");
    let before = in_time(member.join()).await.unwrap();
    let mut javas = Remote::join(&java, &path, "same", "java").await;
    javas.sees("same=java").await;
    in_time(sees(&member, "same=java")).await.unwrap();
    assert_eq!(member.members().unwrap().get("same").unwrap().session, before.session, "the node is ours");
    javas.does("leave", "left").await;
    in_time(sees(&member, "same=rust")).await.unwrap();
    let after = member.members().unwrap().get("same").unwrap().clone();
    assert!(after.czxid > before.czxid && after.session == before.session, "{before:?}, {after:?}");
    member.close().await;
    env.wait_for_children(&client, &path, 0).await;
    java.end().await;
}

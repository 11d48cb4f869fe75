//! Both sides see the same leader and the same candidates, by their ids, even after a hand-over.

use curator_integration::env::{Env, Kind, in_time};
use curator_recipes::ObserverState;

use crate::peer::Peer;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn both_sides_see_the_ids_of_all_candidates() {
    let env = Env::new(Kind::InProcess);
    let (java, rust) = tokio::join!(Peer::java(&env), Peer::rust(&env));
    let client = env.client().await;
    for kind in ["latch", "selector"] {
        let path = env.path(kind);
        let observer = curator_integration::following::observer(client.clone(), &path);
        let mut observed = observer.watch();
        // In turn, so that each language sees the other one lead.
        let candidates = [(&java, "java-0"), (&rust, "rust-1"), (&java, "java-2"), (&rust, "rust-3")];
        let mut threads = Vec::new();
        for (count, (peer, id)) in candidates.iter().enumerate() {
            let mut thread = peer.thread(id);
            assert_eq!(thread.ask(&format!("join {kind} {path} {id}")).await, "joined");
            env.wait_for_children(&client, &path, count + 1).await;
            threads.push(thread);
        }
        for leader in 0..candidates.len() {
            let ids: Vec<_> = candidates[leader..].iter().map(|(_, id)| *id).collect();
            let id = ids[0];
            threads[leader].begin(&format!("await {path} {id}"));
            threads[leader].says("leads").await;
            let sees = |seen: &ObserverState| matches!(seen, ObserverState::Leader(leader) if leader.id == id);
            let seen = in_time(observed.wait_for(sees)).await.unwrap().clone();
            let ObserverState::Leader(seen) = seen else { panic!("{seen:?}") };
            let stat = client.check_exists().for_path(&seen.path).await.unwrap().unwrap();
            assert_eq!((seen.token.czxid().get(), seen.session.get()), (stat.czxid, stat.ephemeral_owner));
            let order = format!("{id}*{}", ids[1..].iter().map(|id| format!(" {id}")).collect::<String>());
            for (thread, (_, own)) in threads.iter_mut().zip(candidates).skip(leader) {
                assert_eq!(thread.ask(&format!("leader {path} {own}")).await, id, "{kind}: as {own} sees it");
                let all = thread.ask(&format!("candidates {path} {own}")).await;
                let mut words: Vec<_> = all.split(' ').collect();
                // Java gives a latch's candidates in the order of the listing.
                words.sort_by_key(|word| word.trim_end_matches('*').rsplit('-').next().map(ToOwned::to_owned));
                assert_eq!(words.join(" "), order, "{kind}: as {own} sees it");
            }
            assert_eq!(threads[leader].ask(&format!("leave {path} {id}")).await, "left");
        }
        in_time(observed.wait_for(|seen| matches!(seen, ObserverState::NoLeader))).await.unwrap();
        observer.close().await;
    }
    java.end().await;
    rust.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn javas_waiter_stays_behind_a_hand_over() {
    let env = Env::new(Kind::InProcess);
    let (java, rust) = tokio::join!(Peer::java(&env), Peer::rust(&env));
    let (client, path) = (env.client().await, env.path("latch"));
    let candidates = [(&rust, "rust-0"), (&java, "java-1"), (&rust, "rust-2"), (&java, "java-3")];
    let mut threads = Vec::new();
    for (count, (peer, id)) in candidates.iter().enumerate() {
        let mut thread = peer.thread(id);
        assert_eq!(thread.ask(&format!("join latch {path} {id}")).await, "joined");
        env.wait_for_children(&client, &path, count + 1).await;
        threads.push(thread);
    }
    assert_eq!(threads[0].ask(&format!("await {path} rust-0")).await, "leads");
    assert_eq!(threads[0].ask(&format!("hand-over {path} rust-0 rust-2")).await, "true");
    // The leader joins again behind all others.
    for (leader, id) in [(2, "rust-2"), (1, "java-1"), (3, "java-3"), (0, "rust-0")] {
        assert_eq!(threads[leader].ask(&format!("await {path} {id}")).await, "leads");
        let mut leaders = Vec::new();
        for (thread, (_, own)) in threads.iter_mut().zip(candidates) {
            if thread.ask(&format!("leads {path} {own}")).await == "true" {
                leaders.push(own);
            }
        }
        assert_eq!(leaders, [id]);
        assert_eq!(threads[leader].ask(&format!("leader {path} {id}")).await, id);
        assert_eq!(threads[leader].ask(&format!("leave {path} {id}")).await, "left");
    }
    java.end().await;
    rust.end().await;
}

//! Each can ask the other one to give a lock back.

use curator_framework::Zxid;
use curator_integration::env::in_time;
use curator_integration::on_every_server;
use curator_recipes::{InterProcessMutex, LockOptions, Release, RevokeOutcome, Revoker};

use crate::peer::Peer;

on_every_server! {
    async fn each_can_ask_the_other_for_a_lock(env) {
        let java = Peer::java(&env).await;
        let mut thread = java.thread("revokes");
        let (client, path) = (env.client().await, env.path("lock"));
        let (asked, mut nodes) = tokio::sync::mpsc::unbounded_channel();
        let options = LockOptions::new().revocable(move |node| asked.send(node.to_owned()).unwrap());
        let lock = InterProcessMutex::with_options(client.clone(), &path, options).unwrap();

        thread.begin(&format!("revocable {path}"));
        let token = thread.holds().await;
        let holder = lock.participants().await.unwrap().remove(0);
        assert!(holder.holds && holder.data.is_empty() && holder.czxid == Zxid::new(token), "{holder:?}");
        assert_eq!(Revoker::attempt_revoke(&client, &holder.path).await.unwrap(), RevokeOutcome::Requested);
        thread.says("released").await;

        let guard = in_time(lock.acquire()).await.unwrap();
        assert_eq!(thread.ask(&format!("revoke {}", guard.node_path())).await, "asked");
        assert_eq!(in_time(nodes.recv()).await.unwrap(), guard.node_path());
        in_time(guard.revocation_requested()).await;
        thread.begin_to_acquire("mutex", &path);
        env.wait_for_children(&client, &path, 2).await;
        assert!(guard.is_held() && thread.is_silent(), "nothing is forced");
        assert_eq!(guard.release().await.unwrap(), Release::Released);
        thread.holds().await;
        thread.release("mutex", &path).await;
        env.wait_for_children(&client, &path, 0).await;
        java.end().await;
    }
}

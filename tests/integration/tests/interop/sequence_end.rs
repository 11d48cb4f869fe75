//! The end of the sequence numbers, which Java cannot follow.

use curator_integration::env::in_time;
use curator_integration::on_every_server;
use curator_recipes::InterProcessMutex;

use crate::peer::Peer;

on_every_server! {
    /// `InterProcessMutex`, "Differences from Curator": near 2^31 − 1 the server gives one number to several nodes. We go
    /// by their creation then, Java's Curator by the order of the listing, in which its node may be the first.
    async fn at_the_end_of_the_sequence_numbers_java_gets_what_we_hold(env) {
        let env = env.alone();
        let java = Peer::java(&env).await;
        let (client, path) = (env.client().await, env.path("lock"));
        let mutex = InterProcessMutex::new(client.clone(), &path).unwrap();
        let mut thread = java.thread("contends");
        thread.acquire("mutex", &path).await;
        thread.release("mutex", &path).await;
        env.set_next_sequence(&path, i32::MAX - 1).await;
        // The last number that both know how to order.
        assert!(in_time(mutex.acquire()).await.unwrap().release().await.unwrap().is_released());
        // We do not get what Java holds, whichever of the two the listing has first.
        for _ in 0..16 {
            thread.acquire("mutex", &path).await;
            assert!(in_time(mutex.try_acquire()).await.unwrap().is_none());
            thread.release("mutex", &path).await;
            env.wait_for_children(&client, &path, 0).await;
        }
        for _ in 0..100 {
            let guard = in_time(mutex.acquire()).await.unwrap();
            assert!(guard.node_path().ends_with("-2147483647"), "{}", guard.node_path());
            thread.begin(&format!("acquire mutex {path} 100"));
            let answer = thread.answer().await.unwrap();
            if answer != "timeout" {
                assert!(answer.starts_with("held "), "{answer}");
                guard.verify().await.unwrap();
                assert!(guard.is_held(), "both hold it");
                thread.release("mutex", &path).await;
                assert!(guard.release().await.unwrap().is_released());
                env.wait_for_children(&client, &path, 0).await;
                return java.end().await;
            }
            assert!(guard.release().await.unwrap().is_released());
            env.wait_for_children(&client, &path, 0).await;
        }
        panic!("Java follows: the documentation is to be changed");
    }
}

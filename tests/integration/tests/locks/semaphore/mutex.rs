//! What Curator's `TestInterProcessSemaphoreMutex` lacks.

use std::sync::Arc;

use curator_integration::env::{children, in_time};
use curator_integration::on_every_server;
use curator_recipes::{InterProcessSemaphoreMutex, Release};

on_every_server! {
    /// Any thread may release it.
    async fn another_task_releases_it(env) {
        let path = env.path("lock");
        let client = env.client().await;
        let mutex = InterProcessSemaphoreMutex::new(client.clone(), &path).unwrap();
        let guard = Arc::new(mutex.acquire().await.unwrap());
        let elsewhere = Arc::clone(&guard);
        let released = tokio::spawn(async move { elsewhere.release().await.unwrap() });
        assert_eq!(in_time(released).await.unwrap(), Release::Released);
        assert!(!guard.is_held() && !mutex.is_acquired_in_this_process());
        assert_eq!(children(&client, &format!("{path}/leases")).await, [""; 0]);
        drop(in_time(mutex.acquire()).await.unwrap());
    }

    /// CURATOR-376: a release beside an acquire at the same object forgot the lease of the one that acquired.
    async fn a_release_beside_an_acquire_forgets_nothing(env) {
        let path = env.path("lock");
        let client = env.client().await;
        let mutex = InterProcessSemaphoreMutex::new(client.clone(), &path).unwrap();
        let mut held = in_time(mutex.acquire()).await.unwrap();
        for _ in 0..20 {
            let waiter = { let mutex = mutex.clone(); tokio::spawn(async move { mutex.acquire().await.unwrap() }) };
            let releasing = tokio::spawn(async move { held.release().await.unwrap() });
            held = in_time(waiter).await.unwrap();
            assert!(mutex.is_acquired_in_this_process() && held.is_held());
            assert_eq!(in_time(releasing).await.unwrap(), Release::Released);
        }
        assert_eq!(held.release().await.unwrap(), Release::Released);
        assert!(!mutex.is_acquired_in_this_process());
        for part in ["leases", "locks"] {
            env.wait_for_children(&client, &format!("{path}/{part}"), 0).await;
        }
    }
}

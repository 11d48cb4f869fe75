//! `run` closes the client however its work ends.

use std::error::Error as StdError;
use std::panic::{AssertUnwindSafe, resume_unwind};

use curator_framework::{ConnectionState, Error};
use curator_integration::env::{eventually, in_time};
use curator_integration::in_process::{options, server};
use curator_recipes::{InterProcessMutex, LockError};
use futures_util::FutureExt as _;

#[tokio::test]
async fn client_is_started_and_closed_with_the_work() {
    let server = server();
    let client = options(&server).build().unwrap();
    let path = client.run(async {
        let guard = InterProcessMutex::new(client.clone(), "/lock")?.acquire().await?;
        assert_eq!(server.sessions().len(), 1);
        Ok::<_, LockError>(guard.node_path().to_owned())
    });
    assert!(in_time(path).await.unwrap().starts_with("/lock/"));
    assert_eq!(server.sessions(), [0; 0], "the close is awaited");
    assert_eq!(server.children("/lock").unwrap_or_default(), [""; 0]);
    let again = client.run(async { Ok::<_, Error>(()) }).await;
    assert!(matches!(again, Err(Error::Closed)), "{again:?}");
}

#[tokio::test]
async fn client_that_runs_already_is_closed_too() {
    let server = server();
    let client = options(&server).build().unwrap();
    client.start().unwrap();
    let missing = client.run::<Vec<u8>, Box<dyn StdError>>(async {
        let (data, _) = client.get_data().for_path("/missing").await?;
        Ok(data)
    });
    assert_eq!(in_time(missing).await.unwrap_err().to_string(), "no node /missing");
    assert_eq!(server.sessions(), [0; 0]);
    assert_ne!(client.connection_state(), None::<ConnectionState>);
}

#[tokio::test]
async fn panic_goes_on_behind_the_close() {
    let server = server();
    let client = options(&server).build().unwrap();
    let work = async {
        let _guard = InterProcessMutex::new(client.clone(), "/lock")?.acquire().await?;
        // Unlike `panic!` it prints nothing.
        resume_unwind(Box::new("of the work"));
        #[allow(unreachable_code, reason = "the type of the work")]
        Ok::<(), LockError>(())
    };
    let panic = in_time(AssertUnwindSafe(client.run(work)).catch_unwind()).await.unwrap_err();
    assert_eq!(panic.downcast_ref(), Some(&"of the work"));
    assert_eq!(server.sessions(), [0; 0]);
}

#[tokio::test]
async fn dropped_run_closes_in_the_background() {
    let server = server();
    let client = options(&server).build().unwrap();
    {
        let (holds, held) = tokio::sync::oneshot::channel();
        let mut running = std::pin::pin!(client.run(async {
            let _guard = InterProcessMutex::new(client.clone(), "/lock")?.acquire().await?;
            holds.send(()).unwrap();
            std::future::pending::<Result<(), LockError>>().await
        }));
        tokio::select! {
            _ = &mut running => unreachable!("the work does not end"),
            held = in_time(held) => held.unwrap(),
        }
    }
    assert!(matches!(client.check_exists().for_path("/").await, Err(Error::Closed)));
    eventually("the session is closed", async || server.sessions().is_empty()).await;
}

//! A client in a hurry asks the holder of a lock to release it. The holder finishes its current piece of work first.

use std::process::ExitCode;
use std::time::Duration;

use clap::Parser;
use curator_examples::{Servers, run, say, until};
use curator_recipes::{InterProcessMutex, MutexOptions, RevokeOutcome, Revoker};

/// Asks the holder of a lock to release it.
#[derive(Debug, Parser)]
struct Options {
    #[command(flatten)]
    servers: Servers,
    /// The mutex's path
    #[arg(long, default_value = "/examples/revocation")]
    path: String,
}

#[tokio::main]
async fn main() -> ExitCode {
    let Options { servers, path } = Options::parse();
    run(servers, |ensemble| async move {
        let named = |name: &str| MutexOptions::new().data(name);
        let batch = InterProcessMutex::with_options(ensemble.client().await?, &path, named("nightly batch"))?;
        let guard = batch.acquire().await?;
        say("the nightly batch has the lock");

        let hurry = ensemble.client().await?;
        let mutex = InterProcessMutex::with_options(hurry.clone(), &path, named("urgent report"))?;
        let works = async {
            // The work runs in pieces, and stops after the piece during which the request arrives.
            let mut asked = std::pin::pin!(guard.revocation_requested());
            loop {
                tokio::select! {
                    () = &mut asked => break,
                    reason = guard.lost() => return Err(format!("the lock is lost: {reason}").into()),
                    () = tokio::time::sleep(Duration::from_millis(50)) => {} // one piece
                }
            }
            say("the nightly batch was asked to give it back: it saves what it has");
            guard.release().await?.held()?;
            Ok(())
        };
        let asks = async {
            until(|| async { Ok(mutex.participant_nodes().await?.len() == 2) }).await?;
            let participants = mutex.participants().await?;
            for one in &participants {
                let what = if one.holds { "has it" } else { "waits" };
                say(format!("{}: {what}", String::from_utf8_lossy(&one.data)));
            }
            for holder in participants.iter().filter(|one| one.holds) {
                if Revoker::attempt_revoke(&hurry, &holder.path).await? == RevokeOutcome::NodeGone {
                    say("the holder has left already");
                }
            }
            Ok(())
        };
        let waits = async {
            let guard = mutex.acquire().await?;
            say("the urgent report has the lock");
            guard.release().await?.held()?;
            curator_examples::Outcome::Ok(())
        };
        tokio::try_join!(works, asks, waits)?;
        Ok(())
    })
    .await
}

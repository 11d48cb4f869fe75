//! A service with three instances, and a client that balances its requests over them. One instance is drained: no request
//! fails. One crashes: its requests are sent again to another one, and after two failures it gets no more.

use std::collections::BTreeMap;
use std::process::ExitCode;
use std::time::Duration;

use clap::Parser;
use curator_discovery::{Registration, ServiceCache, ServiceDiscovery, ServiceInstance, ServiceProvider};
use curator_examples::{Ensemble, Outcome, Servers, run, say};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinHandle;

/// Balances requests over the instances of a service, one of which is drained, and one of which crashes.
#[derive(Debug, Parser)]
struct Options {
    #[command(flatten)]
    servers: Servers,
    /// The path of the services
    #[arg(long, default_value = "/examples/services")]
    path: String,
}

const REQUESTS: usize = 30;

/// Starts an instance: a server that answers each connection with its name, and its registration.
async fn start(ensemble: &Ensemble, path: &str, name: &'static str) -> Outcome<(JoinHandle<()>, Registration<()>)> {
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    let port = listener.local_addr()?.port();
    let server = tokio::spawn(async move {
        while let Ok((mut connection, _)) = listener.accept().await {
            // A client that has gone needs no answer.
            connection.write_all(name.as_bytes()).await.ok();
        }
    });
    let discovery = ServiceDiscovery::new(ensemble.client().await?, path)?;
    let instance = ServiceInstance::builder("greeter").id(name).address("127.0.0.1").port(port).build()?;
    Ok((server, discovery.register(instance).await?))
}

async fn ask(address: &str) -> std::io::Result<String> {
    let mut name = String::new();
    TcpStream::connect(address).await?.read_to_string(&mut name).await?;
    Ok(name)
}

/// Sends requests one after the other. A request that fails is sent again, to another instance.
async fn requests(provider: &ServiceProvider<()>) -> Outcome<(String, usize)> {
    let (mut answers, mut failures) = (BTreeMap::<String, usize>::new(), 0);
    for _ in 0..REQUESTS {
        loop {
            let instance = provider.wait().await?;
            match ask(&instance.host_and_port().unwrap_or_default()).await {
                Ok(name) => break *answers.entry(name).or_default() += 1,
                Err(_crashed) => {
                    instance.failed();
                    failures += 1;
                }
            }
        }
    }
    let answers: Vec<String> = answers.into_iter().map(|(name, answers)| format!("{name} {answers}")).collect();
    Ok((answers.join(", "), failures))
}

/// Ends a server at once, as a crash does.
async fn stop(server: JoinHandle<()>) {
    server.abort();
    // It was cancelled.
    server.await.ok();
}

#[tokio::main]
async fn main() -> ExitCode {
    let Options { servers, path } = Options::parse();
    run(servers, |ensemble| async move {
        let (ann, _registration_of_ann) = start(&ensemble, &path, "ann").await?;
        let (ben, registration_of_ben) = start(&ensemble, &path, "ben").await?;
        let (cleo, _registration_of_cleo) = start(&ensemble, &path, "cleo").await?;
        let discovery = ServiceDiscovery::new(ensemble.client().await?, &path)?;
        let cache = ServiceCache::new(&discovery, "greeter")?;
        cache.start()?;
        let provider = ServiceProvider::new(cache.clone());
        cache.initialized().await?;
        say(format!("three instances: {}", requests(&provider).await?.0));

        let drain = registration_of_ben.drain(Duration::from_millis(100));
        let (drained, meanwhile) = tokio::join!(drain, requests(&provider));
        drained?;
        stop(ben).await;
        say(format!("ben is drained and stops; requests sent again in the meantime: {}", meanwhile?.1));
        cache.synced().await?;
        say(format!("two instances: {}", requests(&provider).await?.0));

        stop(cleo).await;
        let (answers, again) = requests(&provider).await?;
        say(format!("cleo crashes: {answers}; requests sent again: {again}"));
        cache.close().await;
        stop(ann).await;
        Ok(())
    })
    .await
}

//! Locks of other kinds in their plain form: the lock of the crate `zookeeper-client`, a key in Redis, a unique index in
//! SQLite. A waiter for the last two asks again after a pause.

use std::net::{Ipv4Addr, TcpListener};
use std::process::Stdio;
use std::time::Duration;

use async_trait::async_trait;
use curator_bench::process::Result;
use tempfile::TempDir;
use tokio::process::{Child, Command};
use tokio::time::sleep;
use zookeeper_client::{Acls, Client, CreateMode, LockOptions, LockPrefix};

use crate::peer::{Peer, Run, compete};

/// The pause between two tries of a lock that notifies no waiter.
const PAUSE: Duration = Duration::from_millis(1);
/// The life of a key if its holder does not come back.
const LIFE: Duration = Duration::from_secs(30);

pub(crate) struct ZookeeperClient;

#[async_trait]
impl Peer for ZookeeperClient {
    async fn run(&mut self, run: &Run) -> Result<f64> {
        let server = run.server.to_string();
        let mut contenders = Vec::new();
        for _ in 0..run.size {
            contenders.push(Client::connect(&server).await?);
        }
        let done = compete(run, contenders, |client, run| {
            Box::pin(async move {
                let options = LockOptions::new(Acls::anyone_all())
                    .with_ancestor_options(CreateMode::Persistent.with_acls(Acls::anyone_all()))?;
                drop(client.lock(LockPrefix::new_curator(&run.path, "lock-")?, b"", options).await?);
                Ok(())
            })
        });
        Ok(done.await?.0)
    }
}

/// `SET key token NX PX`, and a script that deletes the key if it still has the token.
pub(crate) struct Redis {
    port: u16,
    _process: Child,
    _folder: TempDir,
}

impl Redis {
    pub(crate) async fn start() -> Result<Self> {
        let port = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?.local_addr()?.port();
        let folder = tempfile::tempdir()?;
        let mut server = Command::new("redis-server");
        server.args(["--bind", "127.0.0.1", "--save", "", "--port", &port.to_string(), "--dir"]).arg(folder.path());
        let process = server.stdin(Stdio::null()).stdout(Stdio::null()).kill_on_drop(true).spawn();
        let process = process.map_err(|error| format!("redis-server: {error}: apt-get install redis-server"))?;
        let redis = Self { port, _process: process, _folder: folder };
        for _ in 0..200 {
            if redis.connect().await.is_ok() {
                return Ok(redis);
            }
            sleep(Duration::from_millis(25)).await;
        }
        Err("redis-server does not answer".into())
    }

    async fn connect(&self) -> Result<redis::aio::MultiplexedConnection> {
        let client = redis::Client::open(format!("redis://127.0.0.1:{}/", self.port))?;
        Ok(client.get_multiplexed_async_connection().await?)
    }
}

#[async_trait]
impl Peer for Redis {
    async fn run(&mut self, run: &Run) -> Result<f64> {
        const RELEASE: &str =
            "if redis.call('get', KEYS[1]) == ARGV[1] then return redis.call('del', KEYS[1]) else return 0 end";
        let mut contenders = Vec::new();
        for _ in 0..run.size {
            contenders.push((self.connect().await?, rand::random::<u64>(), redis::Script::new(RELEASE)));
        }
        let done = compete(run, contenders, |(connection, token, release), run| {
            Box::pin(async move {
                loop {
                    let mut set = redis::cmd("SET");
                    set.arg(&run.path).arg(*token).arg("NX").arg("PX").arg(LIFE.as_secs() * 1000);
                    if set.query_async::<Option<String>>(connection).await?.is_some() {
                        break;
                    }
                    sleep(PAUSE).await;
                }
                release.key(&run.path).arg(*token).invoke_async::<i32>(connection).await?;
                Ok(())
            })
        });
        Ok(done.await?.0)
    }
}

/// A row under a unique index, in a file with a write-ahead log.
pub(crate) struct Sqlite {
    folder: TempDir,
}

impl Sqlite {
    pub(crate) fn start() -> Result<Self> {
        let database = Self { folder: tempfile::tempdir()? };
        let connection = database.connect()?;
        connection.execute_batch("CREATE TABLE locks (name TEXT PRIMARY KEY, owner INTEGER, until INTEGER)")?;
        Ok(database)
    }

    fn connect(&self) -> Result<rusqlite::Connection> {
        let connection = rusqlite::Connection::open(self.folder.path().join("locks.db"))?;
        connection.busy_timeout(LIFE)?;
        connection.execute_batch("PRAGMA journal_mode = WAL; PRAGMA synchronous = OFF")?;
        Ok(connection)
    }
}

#[async_trait]
impl Peer for Sqlite {
    async fn run(&mut self, run: &Run) -> Result<f64> {
        let mut contenders = Vec::new();
        for _ in 0..run.size {
            contenders.push((self.connect()?, rand::random::<u32>()));
        }
        let done = compete(run, contenders, |(connection, owner), run| {
            Box::pin(async move {
                const INSERT: &str =
                    "INSERT OR IGNORE INTO locks (name, owner, until) VALUES (?1, ?2, unixepoch() + 30)";
                while connection.prepare_cached(INSERT)?.execute((&run.path, *owner))? == 0 {
                    sleep(PAUSE).await;
                }
                const DELETE: &str = "DELETE FROM locks WHERE name = ?1 AND owner = ?2";
                connection.prepare_cached(DELETE)?.execute((&run.path, *owner))?;
                Ok(())
            })
        });
        Ok(done.await?.0)
    }
}

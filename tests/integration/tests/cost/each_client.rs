//! What each client asks of the server for the same work.

use curator_framework::{CuratorFramework, DefaultZooKeeperFactory, ZooKeeperAsyncFactory};
use curator_integration::env::{builder, connected, in_time};
use curator_recipes::InterProcessMutex;
use curator_test::wire::OpCode;
use curator_test::{FaultProxy, TestingServer};

/// The requests since the last look, without pings; and how many bytes went either way.
struct Meter {
    server: TestingServer,
    bytes: u64,
}

impl Meter {
    fn read(&mut self, what: &str, client: &str) -> Vec<OpCode> {
        let ops = self.server.requests().into_iter().map(|one| one.op).filter(|op| *op != OpCode::Ping).collect();
        let traffic = self.server.traffic();
        let bytes = traffic.received + traffic.sent;
        println!("{client}: {what}: {ops:?}, {} bytes", bytes - self.bytes);
        self.bytes = bytes;
        self.server.clear_requests();
        ops
    }
}

async fn work(name: &str, connect: impl AsyncFn(std::net::SocketAddr) -> CuratorFramework) -> [usize; 5] {
    let server = TestingServer::start().unwrap();
    let proxy = FaultProxy::start(server.address()).unwrap();
    let mut meter = Meter { server, bytes: 0 };
    let client = connect(proxy.address()).await;
    let session = client.session().await.unwrap();
    let connecting = meter.read("connect", name).len();
    let mutex = InterProcessMutex::new(client.clone(), "/lock").unwrap();
    let guard = mutex.acquire().await.unwrap();
    let released = session.get_children_watched("/lock").await.unwrap().1;
    assert!(guard.release().await.unwrap().is_released());
    // The notification of the release may come late, and the next holder would watch its node because of it.
    in_time(released).await;
    session.write_barrier().await.unwrap();
    meter.read("the first cycle, with parents", name);
    assert!(mutex.acquire().await.unwrap().release().await.unwrap().is_released());
    let cycle = meter.read("acquire and release", name).len();
    let reset = async || {
        let reconnects = session.epoch();
        proxy.reset();
        while session.epoch() == reconnects {
            tokio::task::yield_now().await;
        }
    };
    in_time(reset()).await;
    let idle = meter.read("reconnect with nothing", name).len();
    // A holder's heartbeat may come late and be counted here, so the lock is taken afterwards.
    let watch = session.exists_watched("/lock").await.unwrap().1;
    drop(watch);
    session.write_barrier().await.unwrap();
    let watching = meter.read("a watch that is dropped, and a write", name).len();
    let guard = mutex.acquire().await.unwrap();
    meter.read("acquire", name);
    in_time(reset()).await;
    let holding = meter.read("reconnect with a lock", name).len();
    assert!(guard.release().await.unwrap().is_released());
    meter.read("release", name);
    client.close().await;
    // The server may write it down behind its answer.
    meter.read("close", name);
    [connecting, cycle, idle, holding, watching]
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn each_client_sends_what_it_must() {
    let crate_client = work("zookeeper-async", async |address| {
        connected(builder(address).zookeeper_factory(ZooKeeperAsyncFactory)).await
    });
    let [connect, cycle, idle, holding, watch] = crate_client.await;
    // A handshake before the crate's own connect, and two reads; a proof of the session with two writes where it has nodes.
    assert_eq!([connect, cycle, idle, watch], [5, 3, 3, 2]);
    assert!(holding >= 5, "{holding}");
    let own = work("our client", async |address| {
        connected(builder(address).zookeeper_factory(DefaultZooKeeperFactory::new())).await
    });
    let [connect, cycle, idle, holding, watch] = own.await;
    // Watches are removed.
    assert_eq!([connect, cycle, idle, watch], [1, 3, 3, 3]);
    // The question about the newest known write, the watches, and the heartbeat of a holder, a write.
    assert!((2..=4).contains(&holding), "{holding}");
}

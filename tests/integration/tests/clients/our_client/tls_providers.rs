//! Providers of TLS that panic, fail or block: each breaks its attempt alone.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use curator_framework::spi::{ByteStream, Connector};
use curator_framework::{
    CuratorFramework, CuratorFrameworkBuilder, DefaultZooKeeperFactory, Error, RetryForever, TlsFiles, TlsOptions,
    TlsProvider,
};
use curator_integration::env::{PATIENCE, eventually, in_time};
use curator_recipes::InterProcessMutex;
use curator_test::{ApacheServer, ClientAuth, FaultProxy, TestAuthority};
use parking_lot::{Condvar, Mutex};

/// The end of each call of a provider from now on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Next {
    Supplies,
    Panics,
    Fails,
    Blocks,
}

#[derive(Debug, Clone)]
struct Provider(Arc<State>);

#[derive(Debug)]
struct State {
    options: TlsOptions,
    next: Mutex<Next>,
    changed: Condvar,
    calls: AtomicUsize,
    running: AtomicUsize,
    most: AtomicUsize,
}

impl Provider {
    fn new(options: TlsOptions) -> Self {
        let next = Mutex::new(Next::Supplies);
        let [calls, running, most] = std::array::from_fn(|_| AtomicUsize::new(0));
        Self(Arc::new(State { options, next, changed: Condvar::new(), calls, running, most }))
    }

    fn then(&self, next: Next) {
        *self.0.next.lock() = next;
        self.0.changed.notify_all();
    }

    fn calls(&self) -> usize {
        self.0.calls.load(Ordering::SeqCst)
    }

    fn most(&self) -> usize {
        self.0.most.load(Ordering::SeqCst)
    }
}

impl TlsProvider for Provider {
    fn options(&self) -> io::Result<TlsOptions> {
        let state = &*self.0;
        state.calls.fetch_add(1, Ordering::SeqCst);
        let running = state.running.fetch_add(1, Ordering::SeqCst) + 1;
        state.most.fetch_max(running, Ordering::SeqCst);
        let mut next = state.next.lock();
        state.changed.wait_while_for(&mut next, |next| *next == Next::Blocks, PATIENCE);
        let next = *next;
        state.running.fetch_sub(1, Ordering::SeqCst);
        match next {
            Next::Panics => panic!("on purpose"),
            Next::Fails => Err(io::Error::other("on purpose")),
            Next::Supplies | Next::Blocks => Ok(state.options.clone()),
        }
    }
}

fn options(address: String) -> CuratorFrameworkBuilder {
    CuratorFramework::builder(address)
        .zookeeper_factory(DefaultZooKeeperFactory::new())
        .session_timeout(Duration::from_secs(20))
        .connection_timeout(Duration::from_secs(2))
        .retry_policy(RetryForever::new(Duration::from_millis(20)).unwrap())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_provider_that_panics_fails_or_blocks_breaks_its_attempt_alone() {
    let authority = TestAuthority::new().unwrap();
    let server = tokio::task::block_in_place(|| {
        ApacheServer::builder().tls(&authority).client_auth(ClientAuth::None).start().unwrap()
    });
    let secure = server.secure_connect_string().unwrap();
    let proxy = FaultProxy::start(secure.parse().unwrap()).unwrap();
    let provider = Provider::new(TlsOptions::new(authority.certificate_pem()));
    let client = options(proxy.connect_string()).tls(provider.clone()).build().unwrap();
    for (tries, next) in [(1, Next::Panics), (2, Next::Fails), (3, Next::Blocks)] {
        let calls = provider.calls();
        provider.then(next);
        if tries == 1 {
            client.start().unwrap();
        }
        eventually("the provider is asked", async || provider.calls() > calls).await;
    }
    provider.then(Next::Supplies);
    in_time(client.block_until_connected()).await.unwrap();
    let guard = in_time(InterProcessMutex::new(client.clone(), "/lock").unwrap().acquire()).await.unwrap();
    let session = client.session().await.unwrap();
    for next in [Next::Panics, Next::Fails, Next::Blocks] {
        provider.then(next);
        let (calls, epoch) = (provider.calls(), session.epoch());
        proxy.reset();
        in_time(async {
            while session.epoch() == epoch || !session.is_connected() {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        })
        .await;
        assert!(provider.calls() > calls, "{next:?}");
        assert!(guard.is_held() && session.end_reason().is_none(), "{next:?}");
    }
    provider.then(Next::Supplies);
    assert!(in_time(guard.release()).await.unwrap().is_released());
    in_time(client.close()).await;
}

/// Else each attempt would take one more of the runtime's threads for blocking work, which are limited.
#[tokio::test]
async fn a_provider_that_blocks_occupies_one_thread() {
    let authority = TestAuthority::new().unwrap();
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let provider = Provider::new(TlsOptions::new(authority.certificate_pem()));
    let address = listener.local_addr().unwrap().to_string();
    let limit = Duration::from_millis(100);
    let client = options(address).connection_timeout(limit).tls(provider.clone()).build().unwrap();
    provider.then(Next::Blocks);
    client.start().unwrap();
    for _attempt in 0..4 {
        drop(in_time(listener.accept()).await.unwrap());
    }
    // The fifth attempt has started, so the fourth has asked.
    let _fifth = in_time(listener.accept()).await.unwrap();
    assert_eq!((provider.calls(), provider.most()), (2, 1));
    provider.then(Next::Supplies);
    eventually("it is asked again", async || provider.calls() > 2).await;
    client.close().await;
    assert_eq!(provider.most(), 1);
}

/// A renewal may be seen at any moment.
#[test]
fn a_file_that_is_half_written_is_refused() {
    let (authority, folder) = (TestAuthority::new().unwrap(), tempfile::tempdir().unwrap());
    let own = authority.client_certificate("worker").unwrap();
    let texts = [authority.certificate_pem(), own.certificate_pem(), own.key_pem()];
    let paths = ["ca.crt", "tls.crt", "tls.key"].map(|name| folder.path().join(name));
    let is_built = || {
        let files = TlsFiles::new(&paths[0]).with_client_certificate(&paths[1], &paths[2]);
        options("127.0.0.1:1".to_owned()).tls(files).build().is_ok()
    };
    let write = |cut: Option<(usize, usize)>| {
        for (index, (path, text)) in paths.iter().zip(texts).enumerate() {
            let end = cut.filter(|cut| cut.0 == index).map_or(text.len(), |cut| cut.1);
            std::fs::write(path, &text[..end]).unwrap();
        }
    };
    write(None);
    assert!(is_built());
    for (index, text) in texts.iter().enumerate() {
        let text = text.trim_end();
        for end in (0..text.len()).step_by(7).chain([text.len() - 1]) {
            write(Some((index, end)));
            assert!(!is_built(), "{:?} with {end} of {} bytes", paths[index], text.len());
        }
    }
    let other = authority.client_certificate("worker").unwrap();
    write(None);
    std::fs::write(&paths[2], other.key_pem()).unwrap();
    assert!(!is_built(), "the key of another certificate");
}

#[derive(Debug)]
struct Plain;

#[async_trait::async_trait]
impl Connector for Plain {
    async fn connect(&self, server: &str) -> io::Result<Box<dyn ByteStream>> {
        Ok(Box::new(tokio::net::TcpStream::connect(server).await?))
    }
}

/// Its streams would carry plain text.
#[tokio::test]
async fn tls_with_a_connector_is_refused() {
    let authority = TestAuthority::new().unwrap();
    let factory = DefaultZooKeeperFactory::with_connector(Plain);
    let tls = TlsOptions::new(authority.certificate_pem());
    let built = options("127.0.0.1:1".to_owned()).zookeeper_factory(factory).tls(tls).build();
    assert!(matches!(built, Err(Error::Unsupported { .. })), "{:?}", built.err());
}

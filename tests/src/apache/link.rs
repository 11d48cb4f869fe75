//! Links between servers that can be cut.

use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::mpsc;
use std::thread::{self, JoinHandle};

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{oneshot, watch};

/// A TCP port that passes everything on to another one, unless it is cut: then nothing passes and nobody is told.
///
/// It runs in a thread of its own and ends when it is dropped.
#[derive(Debug)]
pub(super) struct Link {
    address: SocketAddr,
    cut: watch::Sender<bool>,
    stop: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Link {
    pub(super) fn to(upstream: SocketAddr) -> io::Result<Self> {
        let listener = std::net::TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
        listener.set_nonblocking(true)?;
        let address = listener.local_addr()?;
        let (cut, is_cut) = watch::channel(false);
        let (stop, stopped) = oneshot::channel();
        let (ready, started) = mpsc::channel();
        let thread = thread::Builder::new().name("quorum-link".to_owned()).spawn(move || {
            let runtime = match tokio::runtime::Builder::new_current_thread().enable_all().build() {
                Ok(runtime) => runtime,
                // The one who started the thread waits for it: this cannot fail.
                Err(error) => return drop(ready.send(Err(error))),
            };
            runtime.block_on(async move {
                let listener = match TcpListener::from_std(listener) {
                    Ok(listener) => listener,
                    Err(error) => return drop(ready.send(Err(error))),
                };
                drop(ready.send(Ok(())));
                tokio::select! {
                    biased;
                    _ = stopped => {}
                    () = accept_all(&listener, upstream, &is_cut) => {}
                }
            });
        })?;
        started.recv().map_err(io::Error::other)??;
        Ok(Self { address, cut, stop: Some(stop), thread: Some(thread) })
    }

    pub(super) const fn port(&self) -> u16 {
        self.address.port()
    }

    pub(super) fn cut(&self) {
        self.cut.send_replace(true);
    }

    pub(super) fn repair(&self) {
        self.cut.send_replace(false);
    }
}

impl Drop for Link {
    fn drop(&mut self) {
        // The thread sees that the sender is gone.
        drop(self.stop.take());
        if let Some(thread) = self.thread.take() {
            // Its panic was printed already.
            drop(thread.join());
        }
    }
}

async fn accept_all(listener: &TcpListener, upstream: SocketAddr, is_cut: &watch::Receiver<bool>) {
    loop {
        // What cannot be accepted is tried again by the other side.
        let Ok((near, _)) = listener.accept().await else { continue };
        let mut is_cut = is_cut.clone();
        tokio::spawn(async move {
            whole(&mut is_cut).await;
            // Dropped: the one side learns that the other cannot be reached.
            let Ok(far) = TcpStream::connect(upstream).await else { return };
            // If it cannot be set the connection is broken already.
            drop((near.set_nodelay(true), far.set_nodelay(true)));
            let ((near_in, near_out), (far_in, far_out)) = (near.into_split(), far.into_split());
            tokio::join!(pass(near_in, far_out, is_cut.clone()), pass(far_in, near_out, is_cut));
        });
    }
}

async fn whole(is_cut: &mut watch::Receiver<bool>) {
    if is_cut.wait_for(|cut| !cut).await.is_err() {
        std::future::pending::<()>().await;
    }
}

/// Passes everything on until the one side closes.
async fn pass(mut from: OwnedReadHalf, mut to: OwnedWriteHalf, mut is_cut: watch::Receiver<bool>) {
    let mut buffer = vec![0; 64 << 10];
    loop {
        let read = from.read(&mut buffer).await.unwrap_or(0);
        // Also an end is not passed on while the link is cut.
        whole(&mut is_cut).await;
        if read == 0 || to.write_all(&buffer[..read]).await.is_err() {
            return;
        }
    }
}

//! Compressed data: Curator's `TestCompression`, `TestCompressionInTransactionNew` and `TestCompressionInTransactionOld`.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use curator_framework::{CompressionProvider, CuratorFramework, CuratorOp, Error, GzipCompressionProvider};
use curator_integration::env::connected as connect;
use curator_integration::on_every_server;

use super::{connected, second};

const DATA: &[u8] = b"a few words";

fn gzipped(data: &[u8]) -> Vec<u8> {
    GzipCompressionProvider.compress("/", data).unwrap()
}

/// The data of the node, read in all three ways by a client that compresses by default.
async fn is_stored(client: &CuratorFramework, path: &str, data: &[u8], compressed: bool) {
    let stored = if compressed { gzipped(data) } else { data.to_vec() };
    assert_eq!(client.get_data().undecompressed().for_path(path).await.unwrap().0, stored, "{path}");
    let length = client.check_exists().for_path(path).await.unwrap().unwrap().data_length;
    assert_eq!(usize::try_from(length).unwrap(), stored.len(), "{path}");
    for read in [client.get_data(), client.get_data().decompressed()] {
        match read.for_path(path).await {
            Ok((read, _)) => assert!(compressed && read == data, "{path}: {read:?}"),
            Err(Error::Compression { path: node, .. }) => assert!(!compressed && node == path, "{node}"),
            Err(error) => panic!("{error}"),
        }
    }
}

/// Twice the same, and counts how often it was asked.
#[derive(Debug, Clone, Default)]
struct Doubling(Arc<[AtomicUsize; 2]>);

impl CompressionProvider for Doubling {
    fn compress(&self, _path: &str, data: &[u8]) -> io::Result<Vec<u8>> {
        self.0[0].fetch_add(1, Ordering::SeqCst);
        Ok(data.repeat(2))
    }

    fn decompress(&self, _path: &str, compressed: &[u8]) -> io::Result<Vec<u8>> {
        self.0[1].fetch_add(1, Ordering::SeqCst);
        Ok(compressed[..compressed.len() / 2].to_vec())
    }
}

on_every_server! {
    /// `testSimple` and `testSetData`.
    async fn what_is_compressed_by_the_operation_is_read_so(env) {
        let (client, path) = (connected(env.address()).await, env.path("node"));
        client.create().creating_parents_if_needed().compressed().with_data(DATA).for_path(&path).await.unwrap();
        for _ in 0..2 {
            assert_eq!(client.get_data().for_path(&path).await.unwrap().0, gzipped(DATA));
            assert_eq!(client.get_data().decompressed().for_path(&path).await.unwrap().0, DATA);
            client.set_data().for_path(&path, DATA).await.unwrap();
            assert_eq!(client.get_data().for_path(&path).await.unwrap().0, DATA);
            client.set_data().compressed().for_path(&path, DATA).await.unwrap();
        }
    }

    /// `testSetDataGlobalCompression`.
    async fn a_client_compresses_all_that_is_not_said_otherwise(env) {
        let (client, path) = (connect(second(env.address()).enable_compression()).await, env.path("node"));
        client.create().creating_parents_if_needed().for_path(&env.path("parents")).await.unwrap();
        for (create, compressed) in
            [(client.create(), true), (client.create().compressed(), true), (client.create().uncompressed(), false)]
        {
            create.with_data(DATA).for_path(&path).await.unwrap();
            is_stored(&client, &path, DATA, compressed).await;
            client.delete().for_path(&path).await.unwrap();
        }
        client.create().for_path(&path).await.unwrap();
        for (set, compressed) in [
            (client.set_data().uncompressed(), false),
            (client.set_data(), true),
            (client.set_data().uncompressed(), false),
            (client.set_data().compressed(), true),
        ] {
            set.for_path(&path, DATA).await.unwrap();
            is_stored(&client, &path, DATA, compressed).await;
        }
    }

    /// `testCompressionProvider`.
    async fn another_compression_is_used_once_for_each_operation(env) {
        let (provider, path) = (Doubling::default(), env.path("node"));
        let client = connect(second(env.address()).compression_provider(provider.clone())).await;
        client.create().creating_parents_if_needed().compressed().with_data(DATA).for_path(&path).await.unwrap();
        assert_eq!(client.get_data().for_path(&path).await.unwrap().0, DATA.repeat(2));
        assert_eq!(client.get_data().decompressed().for_path(&path).await.unwrap().0, DATA);
        assert_eq!([0, 1].map(|count| provider.0[count].load(Ordering::SeqCst)), [1, 1]);
    }

    /// The transactions' `testSimple`, `testSetData`, `testCreateCompressedAndUncompressed` and
    /// `testSetCompressedAndUncompressed`.
    async fn operations_of_one_transaction_are_compressed_each_for_itself(env) {
        let client = connected(env.address()).await;
        let (one, two, below) = (env.path("one"), env.path("two"), env.path("one/below"));
        client.create().creating_parents_if_needed().for_path(&env.path("parents")).await.unwrap();
        let create = |path: &str| CuratorOp::create(path).with_data(path);
        let created = client.transaction().operation(create(&one).compressed()).operation(create(&two));
        created.operation(create(&below).compressed()).commit().await.unwrap();
        let set = |path: &str| CuratorOp::set_data(path, path);
        for (compressed, plain) in [([&one, &below], &two), ([&two, &below], &one)] {
            for path in compressed {
                assert_eq!(client.get_data().for_path(path).await.unwrap().0, gzipped(path.as_bytes()));
                assert_eq!(client.get_data().decompressed().for_path(path).await.unwrap().0, path.as_bytes());
            }
            assert_eq!(client.get_data().for_path(plain).await.unwrap().0, plain.as_bytes());
            client.transaction().operation(set(&one)).operation(set(&two).compressed()).commit().await.unwrap();
        }
    }

    /// The transactions' `testGlobalCompression`.
    async fn a_client_compresses_what_is_in_a_transaction(env) {
        let client = connect(second(env.address()).enable_compression()).await;
        let (one, two) = (env.path("one"), env.path("two"));
        client.create().creating_parents_if_needed().for_path(&env.path("parents")).await.unwrap();
        let op = |op: CuratorOp| op.with_data(DATA);
        let created = client.transaction().operation(op(CuratorOp::create(&one)));
        created.operation(op(CuratorOp::create(&two)).uncompressed()).commit().await.unwrap();
        is_stored(&client, &one, DATA, true).await;
        is_stored(&client, &two, DATA, false).await;
        let set = client.transaction().operation(CuratorOp::set_data(&one, DATA).uncompressed());
        set.operation(CuratorOp::set_data(&two, DATA)).commit().await.unwrap();
        is_stored(&client, &one, DATA, false).await;
        is_stored(&client, &two, DATA, true).await;
    }
}

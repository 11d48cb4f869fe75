//! Reads of several nodes at once.

use curator_framework::{CuratorFramework, Error, Stat, make_path};

/// The data of a node and its stat, or why it cannot be read.
type Read = Result<(Vec<u8>, Stat), Error>;

/// Reads the children of a path with these names, `at_once` of them in one request. A child that does not exist is left
/// out. The data is as the nodes have it.
pub(crate) async fn read_children<'a>(
    client: &CuratorFramework,
    parent: &str,
    names: &[&'a str],
    at_once: usize,
) -> Result<Vec<(&'a str, Read)>, Error> {
    let (mut all, mut retries) = (Vec::with_capacity(names.len()), client.retry_loop());
    for names in names.chunks(at_once) {
        let paths: Vec<String> = names.iter().map(|name| make_path(parent, name)).collect();
        let read = loop {
            let session = retries.connected(parent).await?;
            if let Some(read) = retries.done(session.get_data_of_all(paths.clone()).await, parent).await? {
                break read;
            }
        };
        retries.progressed();
        let exists = |read: &Read| !matches!(read, Err(Error::NoNode { .. }));
        all.extend(names.iter().copied().zip(read).filter(|(_, read)| exists(read)));
    }
    Ok(all)
}

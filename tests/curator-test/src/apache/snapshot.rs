//! Changes the snapshot of a stopped server.
//!
//! A snapshot is, in jute: the magic number, the version and the number of the database; the sessions with their
//! timeouts; the access lists; the nodes, each behind its path, up to the path `/`, which is not a node; and a checksum
//! of all before it, with a `/` behind it. Apache since 3.6 appends more, which is not needed.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use crate::wire::{DecodeError, Reader, Writer};

const MAGIC: i32 = i32::from_be_bytes(*b"ZKSN");
const VERSION: i32 = 2;
/// Four bytes follow with the count of the children created so far.
const BEFORE_CHILD_VERSION: usize = 4 * 8 + 4;
const BEHIND_CHILD_VERSION: usize = 4 + 8 + 8;
const END_OF_NODES: &str = "/";

/// Sets the number of the next sequential child in the newest snapshot of a server that does not run. Returns false if
/// the node does not exist.
pub(super) fn set_next_sequence(data_folder: &Path, parent: &str, next: i32) -> io::Result<bool> {
    let file = newest(&data_folder.join("version-2"))?;
    match with_next_sequence(&fs::read(&file)?, parent, next)? {
        None => Ok(false),
        Some(changed) => {
            fs::write(file, changed)?;
            Ok(true)
        }
    }
}

/// Returns the snapshot with the newest transaction, which ends its name.
fn newest(folder: &Path) -> io::Result<PathBuf> {
    let mut newest = None;
    for entry in fs::read_dir(folder)? {
        let path = entry?.path();
        let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
        let zxid = name.strip_prefix("snapshot.").and_then(|zxid| u64::from_str_radix(zxid, 16).ok());
        if let Some(zxid) = zxid {
            newest = newest.max(Some((zxid, path)));
        }
    }
    newest.map(|(_, path)| path).ok_or_else(|| io::Error::new(io::ErrorKind::NotFound, "there is no snapshot"))
}

/// Returns the snapshot with another count; `None` without that node.
fn with_next_sequence(bytes: &[u8], parent: &str, next: i32) -> io::Result<Option<Vec<u8>>> {
    let mut reader = Reader::new(bytes);
    if (reader.int()?, reader.int()?) != (MAGIC, VERSION) {
        return Err(io::Error::new(io::ErrorKind::InvalidData, "it is no snapshot that is known here"));
    }
    reader.long()?;
    skip_many(&mut reader, |session| {
        session.long()?;
        session.int()?;
        Ok(())
    })?;
    skip_many(&mut reader, |rights| {
        rights.long()?;
        skip_many(rights, |right| {
            right.int()?;
            right.string()?;
            right.string()?;
            Ok(())
        })
    })?;
    // The root is written as an empty path.
    let wanted = if parent == "/" { "" } else { parent };
    let mut place = None;
    loop {
        let path = reader.string()?;
        if path == END_OF_NODES {
            break;
        }
        reader.optional_buffer()?;
        reader.long()?;
        skip(&mut reader, BEFORE_CHILD_VERSION)?;
        if path == wanted {
            place = Some(bytes.len() - reader.rest().len());
        }
        reader.int()?;
        skip(&mut reader, BEHIND_CHILD_VERSION)?;
    }
    let Some(place) = place else { return Ok(None) };
    let mut changed = bytes[..bytes.len() - reader.rest().len()].to_vec();
    changed[place..place + 4].copy_from_slice(&next.to_be_bytes());
    let mut seal = Writer::new();
    seal.long(i64::from(adler32(&changed))).string(END_OF_NODES);
    changed.extend_from_slice(&seal.into_bytes());
    Ok(Some(changed))
}

fn skip_many(
    reader: &mut Reader<'_>,
    mut skip_one: impl FnMut(&mut Reader<'_>) -> Result<(), DecodeError>,
) -> Result<(), DecodeError> {
    for _ in 0..reader.int()? {
        skip_one(reader)?;
    }
    Ok(())
}

fn skip(reader: &mut Reader<'_>, mut count: usize) -> Result<(), DecodeError> {
    while count > 0 {
        reader.int()?;
        count -= 4;
    }
    Ok(())
}

/// Returns the checksum of RFC 1950.
fn adler32(bytes: &[u8]) -> u32 {
    const BASE: u32 = 65_521;
    let (mut low, mut high) = (1, 0);
    for byte in bytes {
        low = (low + u32::from(*byte)) % BASE;
        high = (high + low) % BASE;
    }
    high << 16 | low
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn checksum_is_the_known_one() {
        assert_eq!(adler32(b""), 1);
        assert_eq!(adler32(b"Wikipedia"), 0x11e6_0398);
    }

    fn snapshot(nodes: &[(&str, i32)]) -> Vec<u8> {
        let mut to = Writer::new();
        to.int(MAGIC).int(VERSION).long(-1);
        to.int(1).long(7).int(30_000);
        to.int(1).long(1).int(1).int(31).string("world").string("anyone");
        for (path, creates) in nodes {
            to.string(path).null().long(1);
            to.long(1).long(2).long(3).long(4).int(5).int(*creates).int(6).long(0).long(8);
        }
        to.string("/");
        let mut bytes = to.into_bytes();
        let mut seal = Writer::new();
        seal.long(i64::from(adler32(&bytes))).string("/");
        bytes.extend_from_slice(&seal.into_bytes());
        bytes
    }

    #[test]
    fn count_of_the_node_is_changed_and_nothing_else() {
        let before = snapshot(&[("", 3), ("/a", 1), ("/a/b", 2), ("/c", 4)]);
        for (parent, after) in [
            ("/", snapshot(&[("", i32::MAX), ("/a", 1), ("/a/b", 2), ("/c", 4)])),
            ("/a/b", snapshot(&[("", 3), ("/a", 1), ("/a/b", i32::MAX), ("/c", 4)])),
        ] {
            assert_eq!(with_next_sequence(&before, parent, i32::MAX).unwrap(), Some(after));
        }
        assert_eq!(with_next_sequence(&before, "/b", 1).unwrap(), None);
        assert_eq!(with_next_sequence(&before, "", 1).unwrap(), with_next_sequence(&before, "/", 1).unwrap());
    }

    #[test]
    fn what_is_no_snapshot_is_refused() {
        let whole = snapshot(&[("", 3)]);
        // The checksum at the end is not checked.
        for length in 0..whole.len() - 13 {
            assert!(with_next_sequence(&whole[..length], "/", 1).is_err(), "{length} bytes");
        }
        let mut other = whole;
        other[0] ^= 1;
        assert!(with_next_sequence(&other, "/", 1).is_err());
    }
}

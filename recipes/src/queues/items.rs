//! The data of an item's node, byte for byte as Java's Curator writes and reads it. Pure.
//!
//! | bytes | meaning |
//! | --- | --- |
//! | `00 01 00 01` | the version |
//! | `01`, a length of 4 bytes, that many bytes | one item; any number of them |
//! | `02` | the end; Java ignores the bytes after it |
//! | `52 51 01`, 4 bytes, 8 bytes | the [history](History) of an item that was requeued or rejected by this crate |
//! | `52 4a 01`, UTF-8 up to the end | the reason of a rejection by this crate |

const VERSION: [u8; 4] = [0, 1, 0, 1];
const ITEM: u8 = 1;
const END: u8 = 2;
/// The mark of a history, with its version.
const HISTORY: [u8; 3] = [b'R', b'Q', 1];

/// The mark of the reason of a rejection, with its version.
const REASON: [u8; 3] = [b'R', b'J', 1];

/// The data that a node cannot have.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub(super) enum CorruptItem {
    #[error("the first four bytes are not the version 0x00010001")]
    Version,
    #[error("the byte {0:#04x} at {1} starts neither an item nor the end")]
    Mark(u8, usize),
    #[error("the length at {0} is negative or exceeds the data")]
    Length(usize),
    #[error("the data ends after {0} bytes, without its end mark 02")]
    NoEnd(usize),
}

/// The part of an earlier node that a requeue keeps.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct History {
    /// The number of deliveries from earlier nodes.
    pub(super) attempts: u32,
    /// The `czxid` of the first node; 0 if this is the first one.
    pub(super) first_czxid: i64,
}

/// Returns the data of a node with these items.
pub(super) fn encode<I: AsRef<[u8]>>(items: impl IntoIterator<Item = I>) -> Result<Vec<u8>, TooLong> {
    let mut data = VERSION.to_vec();
    for item in items {
        let item = item.as_ref();
        let length = i32::try_from(item.len()).map_err(|_too_long| TooLong)?;
        data.push(ITEM);
        data.extend(length.to_be_bytes());
        data.extend(item);
    }
    data.push(END);
    Ok(data)
}

/// An item is longer than its length can say.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("an item has more than 2^31 - 1 bytes")]
pub(super) struct TooLong;

/// The content of a node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Content<'a> {
    pub(super) items: Vec<&'a [u8]>,
    /// The number of bytes up to the end mark, with it.
    pub(super) length: usize,
    pub(super) history: History,
    /// The bytes of others after the end mark.
    pub(super) others: &'a [u8],
    /// The reason of a rejection.
    pub(super) reason: Option<&'a [u8]>,
}

/// Reads the data of a node, as leniently as Java.
pub(super) fn decode(data: &[u8]) -> Result<Content<'_>, CorruptItem> {
    if !data.starts_with(&VERSION) {
        return Err(CorruptItem::Version);
    }
    let (mut items, mut at) = (Vec::new(), VERSION.len());
    loop {
        match data.get(at) {
            None => return Err(CorruptItem::NoEnd(data.len())),
            Some(&END) => break,
            Some(&ITEM) => {}
            Some(&other) => return Err(CorruptItem::Mark(other, at)),
        }
        let start = at + 1 + size_of::<i32>();
        let length = data.get(at + 1..start).and_then(|bytes| bytes.try_into().ok()).map(i32::from_be_bytes);
        let length = length.and_then(|length| usize::try_from(length).ok());
        let item = length.and_then(|length| data.get(start..start.checked_add(length)?));
        let item = item.ok_or(CorruptItem::Length(at + 1))?;
        items.push(item);
        at = start + item.len();
    }
    let length = at + 1;
    let (history, rest) = split_history(&data[length..]);
    let (others, reason) = match rest.windows(REASON.len()).position(|bytes| bytes == REASON) {
        Some(at) => (&rest[..at], Some(&rest[at + REASON.len()..])),
        None => (rest, None),
    };
    Ok(Content { items, length, history, others, reason })
}

/// Splits the bytes after the end mark into the history and the bytes after it.
fn split_history(tail: &[u8]) -> (History, &[u8]) {
    let read = || {
        let rest = tail.strip_prefix(&HISTORY)?;
        let (attempts, rest) = rest.split_first_chunk()?;
        let (first_czxid, rest) = rest.split_first_chunk()?;
        let attempts = u32::from_be_bytes(*attempts);
        Some((History { attempts, first_czxid: i64::from_be_bytes(*first_czxid) }, rest))
    };
    read().unwrap_or((History::default(), tail))
}

/// Returns the data of a node with the same items, with another history and without a reason. Bytes of others after the
/// end mark stay.
pub(super) fn with_history(data: &[u8], content: &Content<'_>, history: History) -> Vec<u8> {
    let mut new = data[..content.length].to_vec();
    new.extend(HISTORY);
    new.extend(history.attempts.to_be_bytes());
    new.extend(history.first_czxid.to_be_bytes());
    new.extend(content.others);
    new
}

/// Returns the bytes of the reason of a rejection, for the end of the data.
pub(super) fn reason(text: &str) -> Vec<u8> {
    [&REASON[..], text.as_bytes()].concat()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The dumps of nodes that Java has written.
    const AB: [u8; 12] = [0, 1, 0, 1, 1, 0, 0, 0, 2, 0x61, 0x62, 2];
    const THREE: [u8; 23] = [0, 1, 0, 1, 1, 0, 0, 0, 1, 0x61, 1, 0, 0, 0, 2, 0x62, 0x63, 1, 0, 0, 0, 0, 2];
    const NONE: [u8; 5] = [0, 1, 0, 1, 2];

    #[test]
    fn data_is_that_of_java() {
        for (items, data) in [(&["ab"][..], &AB[..]), (&["a", "bc", ""], &THREE), (&[], &NONE)] {
            assert_eq!(encode(items).unwrap(), data);
            let items = items.iter().map(|item| item.as_bytes()).collect();
            let history = History::default();
            assert_eq!(decode(data), Ok(Content { items, length: data.len(), history, others: b"", reason: None }));
        }
    }

    #[test]
    fn bytes_after_the_end_are_ignored() {
        let data = [&AB[..], &[0x63, 0x62, 0x61]].concat();
        let content = decode(&data).unwrap();
        assert_eq!((content.items, content.length, content.history), (vec![&b"ab"[..]], 12, History::default()));
    }

    #[test]
    fn history_survives_and_bytes_of_others_too() {
        let data = [&AB[..], b"trace"].concat();
        let history = History { attempts: 3, first_czxid: -7 };
        let first = with_history(&data, &decode(&data).unwrap(), history);
        assert_eq!(decode(&first).unwrap().history, history);
        assert_eq!(decode(&first).unwrap().items, [b"ab"]);
        let next = History { attempts: 4, ..history };
        let second = with_history(&first, &decode(&first).unwrap(), next);
        assert_eq!(decode(&second).unwrap().history, next);
        assert_eq!(second.len(), first.len(), "one history at a time");
        assert!(second.ends_with(b"trace"));
        for cut in AB.len()..first.len() - 5 {
            assert_eq!(decode(&first[..cut]).unwrap().history, History::default(), "{cut}");
        }
    }

    #[test]
    fn reason_is_found_behind_the_history_and_goes_with_the_next_one() {
        // The mark of a reason inside of a number is not one.
        let history = History { attempts: 5, first_czxid: 0x0052_4a01 };
        for others in [&b""[..], b"trace"] {
            let data = [&AB[..], others].concat();
            let requeued = with_history(&data, &decode(&data).unwrap(), history);
            assert_eq!(decode(&requeued).unwrap().reason, None);
            let rejected = [requeued.clone(), reason("exit status 65")].concat();
            let content = decode(&rejected).unwrap();
            assert_eq!(
                (content.history, content.others, content.reason),
                (history, others, Some(&b"exit status 65"[..]))
            );
            assert_eq!(with_history(&rejected, &content, history), requeued);
        }
    }

    #[test]
    fn other_data_is_corrupt() {
        for (data, error) in [
            (&b""[..], CorruptItem::Version),
            (b"ab", CorruptItem::Version),
            (&[0, 1, 0, 2, 2], CorruptItem::Version),
            (&[0, 1, 0, 1], CorruptItem::NoEnd(4)),
            (&[0, 1, 0, 1, 3], CorruptItem::Mark(3, 4)),
            (&[0, 1, 0, 1, 1, 0, 0], CorruptItem::Length(5)),
            (&[0, 1, 0, 1, 1, 255, 255, 255, 255, 2], CorruptItem::Length(5)),
            (&[0, 1, 0, 1, 1, 0, 0, 0, 9, 2], CorruptItem::Length(5)),
            (&AB[..11], CorruptItem::NoEnd(11)),
        ] {
            assert_eq!(decode(data), Err(error), "{data:?}");
        }
    }

    #[test]
    fn no_data_makes_the_reader_panic() {
        let mut seed = 0x2545_f491_4f6c_dd1d_u64;
        for _ in 0..20_000 {
            let mut data = THREE.to_vec();
            for _ in 0..3 {
                seed ^= seed << 13;
                seed ^= seed >> 7;
                seed ^= seed << 17;
                let [at, byte, end, ..] = seed.to_be_bytes();
                let at = usize::from(at) % data.len();
                data[at] = byte % 4;
                data.truncate(data.len() - usize::from(end % 3));
            }
            let _read = decode(&data);
        }
    }
}

//! Recorded frames of Java's client and Apache's server, for the tests of client and server.

#![allow(missing_docs, clippy::missing_panics_doc, clippy::expect_used, reason = "helpers of tests")]

pub const STANDALONE: &str = include_str!("zookeeper-3.8-standalone.txt");
pub const ENSEMBLE: &str = include_str!("zookeeper-3.8-ensemble.txt");

/// One request or more, their replies, and the values that Java's client decoded.
#[derive(Debug, Default)]
pub struct Exchange {
    pub name: String,
    pub frames: Vec<Frame>,
    pub values: Vec<String>,
}

/// One frame without its length.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Frame {
    FromClient(Vec<u8>),
    FromServer(Vec<u8>),
}

impl Exchange {
    /// Reads a recording.
    #[must_use]
    pub fn all(recording: &str) -> Vec<Self> {
        let mut all: Vec<Self> = Vec::new();
        // The first line names the recording.
        for line in recording.lines().skip(1).filter(|line| !line.is_empty()) {
            let (mark, text) = line.split_at(2);
            if mark == "# " {
                all.push(Self { name: text.to_owned(), ..Self::default() });
                continue;
            }
            let last = all.last_mut().expect("frames stand below a name");
            match mark {
                "> " => last.frames.push(Frame::FromClient(bytes(text))),
                "< " => last.frames.push(Frame::FromServer(bytes(text))),
                "= " => last.values.push(text.to_owned()),
                other => panic!("a line begins with {other:?}"),
            }
        }
        all
    }
}

fn bytes(hex: &str) -> Vec<u8> {
    let digits = hex.as_bytes().chunks(2);
    let byte = |pair: &[u8]| std::str::from_utf8(pair).ok().and_then(|pair| u8::from_str_radix(pair, 16).ok());
    digits.map(|pair| byte(pair).expect("two hexadecimal digits")).collect()
}

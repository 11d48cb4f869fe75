//! Standard error and standard output. A stream that is not read blocks its own thread, and no loop that holds or
//! waits. A blocked loop would leave a command running after the loss, or keep the head of the queue.

use std::collections::VecDeque;
use std::fs::File;
use std::io::{self, Write};
use std::os::fd::AsFd as _;
use std::os::unix::fs::MetadataExt as _;
use std::sync::{Arc, Condvar, LazyLock, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Duration;

use rustix::fs::OFlags;
use tokio::sync::oneshot;

use crate::failure::{Failure, UNKNOWN};

/// The most bytes of messages that wait for the reader of standard error.
const MOST_BYTES: usize = 64 << 10;
/// The longest wait for the reader of standard error at the end of this process.
pub(crate) const AT_THE_END: Duration = Duration::from_secs(1);
/// The longest wait before a command starts, so that its output usually follows the messages about its grant.
pub(crate) const BEFORE_A_COMMAND: Duration = Duration::from_millis(100);

static MESSAGES: LazyLock<io::Result<Stream>> = LazyLock::new(|| Stream::new(io::stderr()));
static RESULTS: LazyLock<io::Result<Stream>> = LazyLock::new(|| Stream::new(io::stdout()));

/// Prints a message on standard error, without waiting. Counts the messages that its reader leaves no room for.
pub(crate) fn tell(text: &str) {
    let text = format!("curator: {text}\n").into_bytes();
    match &*MESSAGES {
        Ok(stream) => stream.tell(text),
        // Without a thread nothing runs that it could delay. A closed standard error is ignored.
        Err(_no_thread) => write(&mut io::stderr(), &text).unwrap_or_default(),
    }
}

/// Prints that something is taken, unless the exit status for it is 0, which makes it a success.
pub(crate) fn tell_conflict(code: u8, text: &str) {
    if code != 0 {
        tell(text);
    }
}

/// Waits until all messages are printed, at most for this time.
pub(crate) fn flush(longest: Duration) {
    if let Ok(stream) = &*MESSAGES {
        stream.flush(longest);
    }
}

/// Prints text or bytes on standard output. Resolves when its reader has room for all of it, with `false` if the reader
/// of the pipe has closed it.
pub(crate) async fn print(text: impl Into<Vec<u8>>) -> Result<bool, Failure> {
    let (sender, written) = oneshot::channel();
    let stream = RESULTS.as_ref().map_err(|error| Failure(70, format!("cannot print: {error}")))?;
    stream.push(Text { text: text.into(), written: Some(sender) });
    is_open(written.await.unwrap_or_else(|_ended| Err(io::Error::other("its thread has ended"))))
}

/// Prints the outcome of a change on standard output. A failure says that the change was made.
pub(crate) async fn print_change(text: String, outcome: &str) -> Result<(), Failure> {
    let printed = print(text).await;
    printed
        .map(drop)
        .map_err(|Failure(_, text)| Failure(UNKNOWN, format!("{text}; the change was made, and gave {outcome}")))
}

/// Prints text on standard output, for a caller that holds nothing and catches no signal.
pub(crate) fn print_at_once(text: &str) -> Result<bool, Failure> {
    is_open(write(&mut io::stdout(), text.as_bytes()))
}

/// Fails if this program was started with a closed standard output: what is taken in order to be printed would be lost.
///
/// The standard library opens `/dev/null` for reading and writing then. A shell opens it for writing alone. Other
/// programs may open it for both too, but no reader is behind it then either.
pub(crate) fn check_standard_output() -> Result<(), Failure> {
    let kind = |stream: File| stream.metadata().map(|data| data.rdev());
    let is_null =
        || io::Result::Ok(kind(io::stdout().as_fd().try_clone_to_owned()?.into())? == kind(File::open("/dev/null")?)?);
    let is_for_both = rustix::fs::fcntl_getfl(io::stdout()).is_ok_and(|flags| flags & OFlags::ACCMODE == OFlags::RDWR);
    if is_for_both && is_null().unwrap_or_default() {
        return Err(Failure(70, "cannot print: standard output is closed, or is /dev/null".to_owned()));
    }
    Ok(())
}

fn is_open(written: io::Result<()>) -> Result<bool, Failure> {
    match written {
        Ok(()) => Ok(true),
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(false),
        Err(error) => Err(Failure(70, format!("cannot print: {error}"))),
    }
}

fn write(stream: &mut impl Write, text: &[u8]) -> io::Result<()> {
    stream.write_all(text)?;
    stream.flush()
}

/// A stream with a thread that writes to it.
struct Stream(Arc<Shared>);

#[derive(Default)]
struct Shared {
    queue: Mutex<Queue>,
    /// Notifies the thread of texts, and `flush` of their end.
    changed: Condvar,
}

#[derive(Default)]
struct Queue {
    texts: VecDeque<Text>,
    /// The bytes in `texts`.
    bytes: usize,
    /// The messages after `texts` that were dropped.
    dropped: usize,
    is_writing: bool,
}

struct Text {
    text: Vec<u8>,
    written: Option<oneshot::Sender<io::Result<()>>>,
}

impl Stream {
    fn new(stream: impl Write + Send + 'static) -> io::Result<Self> {
        let shared = Arc::<Shared>::default();
        let texts = Arc::clone(&shared);
        // It ends with the process.
        thread::Builder::new().spawn(move || texts.write_all_to(stream))?;
        Ok(Self(shared))
    }

    /// Queues a message, unless the messages before it leave no room.
    fn tell(&self, text: Vec<u8>) {
        let mut queue = self.0.lock();
        if queue.bytes > 0 && queue.bytes + text.len() > MOST_BYTES {
            queue.dropped += 1;
            return;
        }
        if let Some(notice) = queue.notice() {
            queue.push(notice);
        }
        queue.push(Text { text, written: None });
        drop(queue);
        self.0.changed.notify_all();
    }

    fn push(&self, text: Text) {
        self.0.lock().push(text);
        self.0.changed.notify_all();
    }

    fn flush(&self, longest: Duration) {
        let queue = self.0.lock();
        let _done = self.0.changed.wait_timeout_while(queue, longest, |queue| !queue.is_written());
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, Queue> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn write_all_to(&self, mut stream: impl Write) {
        loop {
            let Text { text, written } = self.next();
            let outcome = write(&mut stream, &text);
            match written {
                // The caller has been ended by a signal.
                Some(sender) => drop(sender.send(outcome)),
                // A closed standard error is ignored.
                None => drop(outcome),
            }
        }
    }

    /// Waits for the next text.
    fn next(&self) -> Text {
        let mut queue = self.lock();
        queue.is_writing = false;
        loop {
            if let Some(text) = queue.pop() {
                queue.is_writing = true;
                return text;
            }
            self.changed.notify_all();
            queue = self.changed.wait(queue).unwrap_or_else(PoisonError::into_inner);
        }
    }
}

impl Queue {
    fn push(&mut self, text: Text) {
        self.bytes += text.text.len();
        self.texts.push_back(text);
    }

    fn pop(&mut self) -> Option<Text> {
        let Some(text) = self.texts.pop_front() else { return self.notice() };
        self.bytes -= text.text.len();
        Some(text)
    }

    /// Returns the message in place of those that were dropped.
    fn notice(&mut self) -> Option<Text> {
        let text = match std::mem::take(&mut self.dropped) {
            0 => return None,
            1 => "curator: 1 message is missing here: standard error was not read\n".to_owned(),
            dropped => format!("curator: {dropped} messages are missing here: standard error was not read\n"),
        };
        Some(Text { text: text.into_bytes(), written: None })
    }

    fn is_written(&self) -> bool {
        !self.is_writing && self.texts.is_empty() && self.dropped == 0
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::{Receiver, Sender, channel};
    use std::time::Instant;

    use super::*;

    /// A reader that takes a text when the test lets it.
    struct Reader {
        takes: Receiver<()>,
        taken: Sender<String>,
    }

    impl Write for Reader {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.takes.recv().map_err(io::Error::other)?;
            self.taken.send(String::from_utf8_lossy(bytes).into_owned()).map_err(io::Error::other)?;
            Ok(bytes.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    fn stream() -> (Stream, Sender<()>, Receiver<String>) {
        let ((take, takes), (taken, texts)) = (channel(), channel());
        (Stream::new(Reader { takes, taken }).unwrap(), take, texts)
    }

    #[test]
    fn messages_without_room_are_dropped_and_counted() {
        let (stream, take, texts) = stream();
        let long = "x".repeat(MOST_BYTES / 2);
        stream.tell("first".into());
        let begin = Instant::now();
        while !stream.0.lock().is_writing {
            assert!(begin.elapsed() < Duration::from_secs(60), "never: a write");
            thread::yield_now();
        }
        for _ in 0..4 {
            stream.tell(long.clone().into_bytes());
        }
        stream.flush(Duration::ZERO);
        for _ in 0..5 {
            take.send(()).unwrap();
        }
        let printed: Vec<String> = texts.iter().take(4).collect();
        assert_eq!(printed[0], "first");
        assert_eq!((&printed[1], &printed[2]), (&long, &long));
        assert_eq!(printed[3], "curator: 2 messages are missing here: standard error was not read\n");
        stream.tell("last".into());
        assert_eq!(texts.recv().unwrap(), "last");
        stream.flush(Duration::from_secs(60));
        assert!(stream.0.lock().is_written());
    }

    #[test]
    fn count_of_dropped_messages_precedes_the_next_message() {
        let mut queue = Queue { dropped: 1, ..Queue::default() };
        let notice = queue.notice().unwrap();
        assert_eq!(notice.text, b"curator: 1 message is missing here: standard error was not read\n");
        assert!(queue.notice().is_none() && queue.is_written());
    }

    #[tokio::test]
    async fn result_is_never_dropped() {
        let (stream, take, texts) = stream();
        let (sender, written) = oneshot::channel();
        stream.push(Text { text: vec![b'x'; MOST_BYTES], written: None });
        stream.push(Text { text: "the last\n".into(), written: Some(sender) });
        take.send(()).unwrap();
        take.send(()).unwrap();
        assert_eq!(texts.iter().nth(1).unwrap(), "the last\n");
        written.await.unwrap().unwrap();
    }
}

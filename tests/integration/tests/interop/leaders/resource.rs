//! A resource that leaders of both languages use, one at a time.
//!
//! A leader connects once. It sends `begin ID NODE TERM` and waits for `begun`, then `end` and waits for `ended`.
//! The end of its connection ends its use.

use std::fmt;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;

use curator_framework::CuratorFramework;
use curator_integration::env::{Env, Kind};
use parking_lot::Mutex;
use tokio::io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::JoinSet;

/// A term, as its leader names it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Term {
    /// The leader's id, which starts with its language.
    pub(crate) id: String,
    pub(crate) node: String,
    /// The `czxid` of the node.
    pub(crate) term: i64,
}

/// Two terms at one time.
#[derive(Debug, Clone)]
pub(crate) struct Overlap {
    /// The term that had started.
    pub(crate) first: Term,
    pub(crate) second: Term,
    /// The terms without the oldest node.
    pub(crate) wrong: Vec<Term>,
}

#[derive(Default)]
struct Book {
    /// By the number of the connection.
    open: Vec<(usize, Term)>,
    terms: Vec<Term>,
    overlaps: Vec<Overlap>,
}

/// The resource. It listens until it is dropped.
pub(crate) struct Resource {
    address: SocketAddr,
    book: Arc<Mutex<Book>>,
    begun: watch::Receiver<usize>,
    _listening: JoinSet<()>,
}

struct Desk {
    client: CuratorFramework,
    book: Arc<Mutex<Book>>,
    begun: watch::Sender<usize>,
}

impl Resource {
    /// Opens a resource that checks the nodes of terms with this client.
    pub(crate) async fn open(client: CuratorFramework) -> Self {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
        let address = listener.local_addr().unwrap();
        let (book, (sender, begun)) = (Arc::<Mutex<Book>>::default(), watch::channel(0));
        let desk = Arc::new(Desk { client, book: Arc::clone(&book), begun: sender });
        let mut listening = JoinSet::new();
        listening.spawn(async move {
            let mut connections = JoinSet::new();
            for number in 0.. {
                let (stream, _) = listener.accept().await.unwrap();
                let desk = Arc::clone(&desk);
                connections.spawn(async move { desk.serve(number, stream).await });
            }
        });
        Self { address, book, begun, _listening: listening }
    }

    pub(crate) fn port(&self) -> u16 {
        self.address.port()
    }

    /// Waits until so many terms have started in all, and returns the last one.
    pub(crate) async fn wait_for_terms(&mut self, count: usize) -> Term {
        self.begun.wait_for(|begun| *begun >= count).await.unwrap();
        self.book.lock().terms.last().cloned().unwrap()
    }

    /// Waits for the next term that starts with a leader of Java's, or of ours.
    pub(crate) async fn wait_for_leader(&mut self, of_javas: bool) -> Term {
        loop {
            let begun = *self.begun.borrow_and_update();
            let term = self.wait_for_terms(begun + 1).await;
            if term.is_javas() == of_javas {
                return term;
            }
        }
    }

    pub(crate) fn terms(&self) -> Vec<Term> {
        self.book.lock().terms.clone()
    }

    pub(crate) fn overlaps(&self) -> Vec<Overlap> {
        self.book.lock().overlaps.clone()
    }
}

impl Desk {
    async fn serve(&self, number: usize, stream: TcpStream) {
        stream.set_nodelay(true).unwrap();
        let (read, mut write) = stream.into_split();
        let mut lines = BufReader::new(read).lines();
        while let Ok(Some(line)) = lines.next_line().await {
            let words: Vec<_> = line.split(' ').collect();
            let answer = match words[..] {
                ["begin", id, node, term] => {
                    let (id, node) = (id.to_owned(), node.to_owned());
                    self.begin(number, Term { id, node, term: term.parse().unwrap() }).await;
                    "begun\n"
                }
                ["end"] => {
                    self.end(number);
                    "ended\n"
                }
                _ => panic!("{line}"),
            };
            // A killed process reads no answer.
            if write.write_all(answer.as_bytes()).await.is_err() {
                break;
            }
        }
        self.end(number);
    }

    async fn begin(&self, number: usize, term: Term) {
        let open = {
            let mut book = self.book.lock();
            let open = book.open.clone();
            book.open.push((number, term.clone()));
            book.terms.push(term.clone());
            open
        };
        for (_, first) in open {
            let mut wrong = Vec::new();
            for one in [&first, &term] {
                if !self.is_oldest(&one.node).await {
                    wrong.push(one.clone());
                }
            }
            self.book.lock().overlaps.push(Overlap { first, second: term.clone(), wrong });
        }
        self.begun.send_modify(|begun| *begun += 1);
    }

    fn end(&self, number: usize) {
        self.book.lock().open.retain(|(open, _)| *open != number);
    }

    /// True if the node exists and has the lowest number of its folder.
    async fn is_oldest(&self, node: &str) -> bool {
        let (folder, name) = node.rsplit_once('/').unwrap();
        let children = self.client.get_children().for_path(folder).await.unwrap_or_default();
        let number = |name: &str| name.rsplit('-').next().map(ToOwned::to_owned);
        children.iter().min_by_key(|child| number(child)).is_some_and(|oldest| oldest == name)
    }
}

impl Term {
    pub(crate) fn is_javas(&self) -> bool {
        self.id.starts_with("java")
    }
}

impl Overlap {
    /// True if only terms of Java's were without the oldest node.
    pub(crate) fn is_javas(&self) -> bool {
        !self.wrong.is_empty() && self.wrong.iter().all(Term::is_javas)
    }
}

impl fmt::Display for Overlap {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let wrong: Vec<_> = self.wrong.iter().map(|term| term.id.as_str()).collect();
        write!(f, "{} beside {}, by the doing of {wrong:?}", self.second.node, self.first.node)
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_resource_finds_two_leaders_and_the_one_without_the_oldest_node() {
    let env = Env::new(Kind::InProcess);
    let client = env.client().await;
    for (first, second) in [("java-0", "rust-1"), ("rust-0", "java-1")] {
        let path = env.path(first);
        let resource = Resource::open(client.clone()).await;
        let mut leaders = Vec::new();
        for id in [first, second] {
            let node = format!("{path}/{}", id.replace(['j', 'r'], "latch-"));
            client.create().creating_parents_if_needed().for_path(&node).await.unwrap();
            let mut stream = BufReader::new(TcpStream::connect(resource.address).await.unwrap());
            stream.write_all(format!("begin {id} {node} 7\n").as_bytes()).await.unwrap();
            let mut answer = String::new();
            stream.read_line(&mut answer).await.unwrap();
            assert_eq!(answer, "begun\n");
            leaders.push(stream);
        }
        let overlaps = resource.overlaps();
        assert_eq!(overlaps.len(), 1);
        assert_eq!((overlaps[0].first.id.as_str(), overlaps[0].second.id.as_str()), (first, second));
        assert_eq!(overlaps[0].is_javas(), second.starts_with("java"), "{}", overlaps[0]);
    }
}

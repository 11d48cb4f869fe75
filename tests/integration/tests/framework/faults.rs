//! Every operation against every fault at each of its requests: the right result or the right error, and no node that
//! no caller asked for.
//!
//! What is right follows from what the server has done when the client tries again:
//!
//! | operation | the last request was not applied | it was applied, and the client does not know |
//! | --- | --- | --- |
//! | any read | success | success: a read may be done twice |
//! | plain create, with or without parents | success | `NodeExists`: the second one meets the first |
//! | protected create | success | success with the first one's node, or with one of the new session if it was ephemeral |
//! | idempotent create | success | success: the node is as it was to be |
//! | create or set data | success | success: the second one sets the data |
//! | plain delete, guaranteed or not, with or without children | success | `NoNode`: the second one meets nothing |
//! | quiet delete | success | success |
//! | set data with a version | success | `BadVersion`: the first one has changed it |
//! | the same, idempotent | success | success: data and version are as they were to be |
//! | set data, set the access control list, regardless of the version | success | success: done twice |
//!
//! A fault at an earlier request of an operation is repaired by doing it again, so the result is success. An operation
//! that is under way when its client is closed says `Closed`, applied or not; by the end of the close a protected node is
//! deleted, and a guaranteed delete is done.

use std::collections::BTreeMap;
use std::time::Duration;

use curator_framework::{Acl, CreateMode, CuratorFramework, Error, Permission, RetryNTimes};
use curator_integration::env::{builder, connected, eventually, in_time};
use curator_test::wire::OpCode;
use curator_test::{FaultProxy, LoggedRequest, TestingServer};
use futures_util::FutureExt;
use futures_util::future::{BoxFuture, join_all};

/// What an operation answers, in words.
type Answer = Result<String, Error>;
type Run = for<'a> fn(&'a CuratorFramework) -> BoxFuture<'a, Answer>;

/// What comes of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Outcome {
    Success,
    NodeExists,
    NoNode,
    BadVersion,
    Closed,
    Other,
}

impl Outcome {
    fn of(answer: &Answer) -> Self {
        match answer {
            Ok(_) => Self::Success,
            Err(Error::NodeExists { .. }) => Self::NodeExists,
            Err(Error::NoNode { .. }) => Self::NoNode,
            Err(Error::BadVersion { .. }) => Self::BadVersion,
            Err(Error::Closed) => Self::Closed,
            Err(_) => Self::Other,
        }
    }
}

/// An operation on the tree `/t`, `/t/full` with data `old`, `/t/full/a`, `/t/full/b`.
struct Operation {
    name: &'static str,
    run: Run,
    /// When its last request was applied and the client does not know.
    applied: Outcome,
}

const OPERATIONS: &[Operation] = &[
    Operation {
        name: "plain create",
        run: |client| async { client.create().with_data("new").for_path("/t/node").await }.boxed(),
        applied: Outcome::NodeExists,
    },
    Operation {
        name: "create with parents",
        run: |client| async { client.create().creating_parents_if_needed().for_path("/t/p/q/node").await }.boxed(),
        applied: Outcome::NodeExists,
    },
    Operation {
        name: "protected create",
        run: |client| async { client.create().with_protection().for_path("/t/node").await }.boxed(),
        applied: Outcome::Success,
    },
    Operation {
        name: "protected create of an ephemeral sequential node",
        run: |client| {
            let create = client.create().with_protection().with_mode(CreateMode::EphemeralSequential);
            create.for_path("/t/node-").boxed()
        },
        applied: Outcome::Success,
    },
    Operation {
        name: "idempotent create",
        run: |client| async { client.create().idempotent().with_data("new").for_path("/t/node").await }.boxed(),
        applied: Outcome::Success,
    },
    Operation {
        name: "create or set data, of a new node",
        run: |client| async { client.create().or_set_data().with_data("new").for_path("/t/node").await }.boxed(),
        applied: Outcome::Success,
    },
    Operation {
        name: "create or set data, of an old node",
        run: |client| async { client.create().or_set_data().with_data("new").for_path("/t/full").await }.boxed(),
        applied: Outcome::Success,
    },
    Operation {
        name: "plain delete",
        run: |client| async { client.delete().for_path("/t/full/a").await.map(|()| String::new()) }.boxed(),
        applied: Outcome::NoNode,
    },
    Operation {
        name: "guaranteed delete",
        run: |client| {
            async { client.delete().guaranteed().for_path("/t/full/a").await.map(|()| String::new()) }.boxed()
        },
        applied: Outcome::NoNode,
    },
    Operation {
        name: "quiet delete",
        run: |client| async { client.delete().quietly().for_path("/t/full/a").await.map(|()| String::new()) }.boxed(),
        applied: Outcome::Success,
    },
    Operation {
        name: "delete with children",
        run: |client| {
            let delete = client.delete().deleting_children_if_needed();
            async { delete.for_path("/t/full").await.map(|()| String::new()) }.boxed()
        },
        applied: Outcome::NoNode,
    },
    Operation {
        name: "exists",
        run: |client| {
            async {
                let stat = client.check_exists().for_path("/t/full").await?;
                Ok(format!("{:?} children", stat.map(|stat| stat.num_children)))
            }
            .boxed()
        },
        applied: Outcome::Success,
    },
    Operation {
        name: "get data",
        run: |client| async { Ok(String::from_utf8(client.get_data().for_path("/t/full").await?.0).unwrap()) }.boxed(),
        applied: Outcome::Success,
    },
    Operation { name: "set data", run: |client| set_data(client, false, None).boxed(), applied: Outcome::Success },
    Operation {
        name: "set data of a version",
        run: |client| set_data(client, false, Some(0)).boxed(),
        applied: Outcome::BadVersion,
    },
    Operation {
        name: "idempotent set data of a version",
        run: |client| set_data(client, true, Some(0)).boxed(),
        applied: Outcome::Success,
    },
    Operation {
        name: "get children",
        run: |client| {
            async {
                let mut children = client.get_children().for_path("/t/full").await?;
                children.sort_unstable();
                Ok(children.join(" "))
            }
            .boxed()
        },
        applied: Outcome::Success,
    },
    Operation {
        name: "get ACL",
        run: |client| async { Ok(format!("{:?}", client.get_acl().for_path("/t/full").await?.0)) }.boxed(),
        applied: Outcome::Success,
    },
    Operation {
        name: "set ACL",
        run: |client| {
            let acl = [Acl::new(Permission::ALL, "world", "anyone")];
            async { Ok(client.set_acl().with_acl(acl).for_path("/t/full").await?.data_length.to_string()) }.boxed()
        },
        applied: Outcome::Success,
    },
];

async fn set_data(client: &CuratorFramework, idempotent: bool, version: Option<i32>) -> Answer {
    let mut set = client.set_data();
    if idempotent {
        set = set.idempotent();
    }
    if let Some(version) = version {
        set = set.with_version(version);
    }
    Ok(set.for_path("/t/full", "new").await?.data_length.to_string())
}

/// What happens to one request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Fault {
    /// The connection is lost before the server has the request.
    RequestLost,
    /// The connection is lost after the server has answered, and the answer with it.
    ReplyLost,
    /// The same in the middle of the answer.
    ReplyCut,
    /// As `RequestLost`, and the session expires before the client is back.
    ExpiredBefore,
    /// As `ReplyLost`, and the session expires before the client is back.
    ExpiredAfter,
    /// As `RequestLost`, and the client is closed before it is back.
    ClosedBefore,
    /// As `ReplyLost`, and the client is closed before it is back.
    ClosedAfter,
}

impl Fault {
    const fn is_applied(self) -> bool {
        matches!(self, Self::ReplyLost | Self::ReplyCut | Self::ExpiredAfter | Self::ClosedAfter)
    }

    const fn expires(self) -> bool {
        matches!(self, Self::ExpiredBefore | Self::ExpiredAfter)
    }

    const fn closes(self) -> bool {
        matches!(self, Self::ClosedBefore | Self::ClosedAfter)
    }

    fn plan(self, proxy: &FaultProxy, op: OpCode, nth: usize) {
        match self {
            Self::RequestLost | Self::ExpiredBefore | Self::ClosedBefore => proxy.drop_request(op, nth),
            Self::ReplyLost | Self::ExpiredAfter | Self::ClosedAfter => proxy.drop_reply(op, nth),
            Self::ReplyCut => proxy.cut_frame(op, nth),
        }
    }
}

/// A server with the tree, and a client behind a proxy. Nothing but operations is sent: the session is long.
struct Place {
    server: TestingServer,
    proxy: FaultProxy,
    client: CuratorFramework,
}

impl Place {
    async fn new() -> Self {
        let server = TestingServer::start().unwrap();
        let proxy = FaultProxy::start(server.address()).unwrap();
        let maker = connected(builder(server.address())).await;
        for (path, data) in [("/t", ""), ("/t/full", "old"), ("/t/full/a", ""), ("/t/full/b", "")] {
            maker.create().with_data(data).for_path(path).await.unwrap();
        }
        in_time(maker.close()).await;
        let options = builder(proxy.address()).session_timeout(Duration::from_secs(40));
        let options = options.max_close_wait(Duration::from_secs(20)).reap_interval(None);
        let client = connected(options.retry_policy(RetryNTimes::new(20, Duration::from_millis(1)))).await;
        server.clear_requests();
        Self { server, proxy, client }
    }

    /// The operation's own requests in a run without a fault.
    fn requests(&self) -> Vec<OpCode> {
        let own = |request: &LoggedRequest| !matches!(request.op, OpCode::Ping | OpCode::CreateSession);
        self.server.requests().iter().filter(|request| own(request)).map(|request| request.op).collect()
    }

    /// What is below `/t`, path by path with its data; a protected name, which cannot be foreseen, is `*`.
    fn tree(&self) -> BTreeMap<String, String> {
        let mut found = BTreeMap::new();
        let mut open = vec!["/t".to_owned()];
        while let Some(path) = open.pop() {
            open.extend(self.server.children(&path).unwrap_or_default().iter().map(|name| format!("{path}/{name}")));
            let shown = path.split('/').map(|name| if name.starts_with("_c_") { "*" } else { name });
            let data = String::from_utf8(self.server.data(&path).unwrap_or_default()).unwrap();
            let there = found.insert(shown.collect::<Vec<_>>().join("/"), data);
            assert_eq!(there, None, "two nodes of one operation");
        }
        found
    }

    /// What is at the root that is not the test's.
    fn besides(&self) -> Vec<String> {
        let mut names = self.server.children("/").unwrap();
        names.retain(|name| name != "t" && name != "zookeeper");
        names
    }
}

/// How an operation goes without a fault.
struct Smooth {
    requests: Vec<OpCode>,
    answer: String,
    before: BTreeMap<String, String>,
    after: BTreeMap<String, String>,
}

async fn without_a_fault(operation: &Operation) -> Smooth {
    let place = Place::new().await;
    let before = place.tree();
    let answer = in_time((operation.run)(&place.client)).await.unwrap();
    let smooth = Smooth { requests: place.requests(), answer, before, after: place.tree() };
    in_time(place.client.close()).await;
    smooth
}

/// One operation with one fault at one of its requests.
async fn with_a_fault(operation: &Operation, smooth: &Smooth, fault: Fault, at: usize) {
    let place = Place::new().await;
    let Place { server, proxy, client } = &place;
    let case = format!("{}, {fault:?} at {at} of {:?}", operation.name, smooth.requests);
    let session = server.sessions()[0];
    let op = smooth.requests[at];
    fault.plan(proxy, op, smooth.requests[..=at].iter().filter(|earlier| **earlier == op).count());
    if fault.expires() || fault.closes() {
        // Those that are open stay; no connection comes back before it is allowed.
        proxy.refuse();
    }
    let (runner, run) = (client.clone(), operation.run);
    let running = tokio::spawn(async move { run(&runner).await });
    in_time(proxy.wait_for_faults(1)).await;
    let mut closing = None;
    if fault.expires() {
        assert!(server.kill_session(session), "{case}");
        proxy.accept();
    }
    if fault.closes() {
        let closer = client.clone();
        closing = Some(tokio::spawn(async move { closer.close().await }));
    }
    let answer = in_time(running).await.unwrap();
    let right = match (fault.closes(), at + 1 == smooth.requests.len() && fault.is_applied()) {
        (true, _) => Outcome::Closed,
        (false, true) => operation.applied,
        (false, false) => Outcome::Success,
    };
    assert_eq!(Outcome::of(&answer), right, "{case}: {answer:?}");
    if let Some(closing) = closing {
        proxy.accept();
        in_time(closing).await.unwrap();
        // That the session is closed was sent; what was ephemeral goes with it.
        eventually(&case, async || server.sessions().is_empty()).await;
        let tree = place.tree();
        if smooth.after.contains_key("/t/*") {
            assert_eq!(tree, smooth.before, "{case}: what is protected is deleted");
        } else if operation.name == "guaranteed delete" {
            assert_eq!(tree, smooth.after, "{case}: what is guaranteed is done");
        } else {
            // As far as it came; no more than was asked for.
            let is_known = |(path, data): (&String, &String)| {
                [&smooth.before, &smooth.after].iter().any(|tree| tree.get(path) == Some(data))
            };
            assert!(tree.iter().all(is_known), "{case}: {tree:?}");
        }
    } else {
        // Regardless of the answer, it is done.
        eventually(&case, async || place.tree() == smooth.after).await;
        if let Ok(answer) = answer {
            match answer.strip_prefix("/t/_c_") {
                Some(_) => assert!(server.exists(&answer), "{case}: {answer}"),
                None => assert_eq!(answer, smooth.answer, "{case}"),
            }
        }
        in_time(client.close()).await;
    }
    eventually(&case, async || server.sessions().is_empty()).await;
    assert!(place.besides().is_empty(), "{case}: {:?}", place.besides());
    assert_eq!(proxy.faults_done(), 1, "{case}");
}

/// Every operation, with this fault at each of its requests.
async fn every_operation_survives(fault: Fault) {
    let cases = OPERATIONS.iter().map(|operation| async move {
        let smooth = without_a_fault(operation).await;
        assert!(!smooth.requests.is_empty(), "{}", operation.name);
        for at in 0..smooth.requests.len() {
            with_a_fault(operation, &smooth, fault, at).await;
        }
    });
    join_all(cases).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_connection_is_lost_before_the_server_applies_it() {
    every_operation_survives(Fault::RequestLost).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_reply_is_lost() {
    every_operation_survives(Fault::ReplyLost).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_connection_is_lost_in_the_middle_of_the_reply() {
    every_operation_survives(Fault::ReplyCut).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_session_expires_before_the_server_applies_it() {
    every_operation_survives(Fault::ExpiredBefore).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_session_expires_after_the_server_applied_it() {
    every_operation_survives(Fault::ExpiredAfter).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_client_is_closed_before_the_server_applies_it() {
    every_operation_survives(Fault::ClosedBefore).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_client_is_closed_after_the_server_applied_it() {
    every_operation_survives(Fault::ClosedAfter).await;
}

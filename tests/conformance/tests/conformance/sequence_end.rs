//! The end of the sequence numbers, 2^31 − 1.

use curator_test::wire::OpCode;

use crate::request::Request::*;
use crate::request::*;
use crate::side::{Side, compare_alone};

/// Creates one after the other, each with what the parent looks like then.
async fn creates(side: &mut Side, client: usize, parent: &'static str, creates: &[(&'static str, i32)]) {
    for &(path, flags) in creates {
        side.call(client, create2(path, flags)).await;
        side.call(client, exists(parent)).await;
    }
    side.call(client, Read(OpCode::GetChildren2, parent, false)).await;
}

#[tokio::test]
async fn numbers_at_their_end() {
    compare_alone(async |side| {
        for (parent, first) in [("/one", "/one/n-"), ("/multi", "/multi/n-"), ("/below", "/below/first-")] {
            side.call(0, create(parent, 0)).await;
            side.call(0, create2(first, 2)).await;
        }
        side.restart_with_next_sequence("/one", i32::MAX - 3);
        side.restart_with_next_sequence("/multi", i32::MAX - 2);
        side.restart_with_next_sequence("/below", -3);
        let client = side.attach(0, true).await;
        // A name without a number takes one as well. From some node on a name is there already.
        let names = [("/one/n-", 2), ("/one/e-", 3), ("/one/plain", 0), ("/one/n-", 2), ("/one/n-", 2), ("/one/m-", 2)];
        creates(side, client, "/one", &names).await;
        side.call(client, Delete("/one/n-2147483647", -1)).await;
        creates(side, client, "/one", &[("/one/n-", 2), ("/one/m-", 2), ("/one/o-", 3)]).await;

        side.call(client, multi([(); 5].map(|()| create2("/multi/n-", 2)))).await;
        creates(side, client, "/multi", &[("/multi/n-", 2), ("/multi/m-", 2), ("/multi/m-", 2)]).await;
        side.call(client, multi([(); 3].map(|()| create2("/multi/o-", 2)))).await;
        creates(side, client, "/multi", &[("/multi/p-", 2)]).await;

        creates(side, client, "/below", &[("/below/n-", 2); 6]).await;

        let lines = side.lines();
        for name in ["/one/n-2147483647", "/multi/n--2147483648", "/below/n--000000003", "/below/n-0000000001"] {
            assert!(lines.iter().any(|line| line.contains(name)), "{name}: {lines:#?}");
        }
    })
    .await;
}

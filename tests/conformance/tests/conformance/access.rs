//! Access lists and credentials.

use curator_test::wire::{Acl, OpCode};

use crate::request::Request::*;
use crate::request::*;
use crate::side::{TIMEOUT_MS, compare};

fn acl(entries: &[(i32, &str, &str)]) -> Vec<Acl> {
    let entry = |(perms, scheme, id): &(i32, &str, &str)| Acl {
        perms: *perms,
        scheme: (*scheme).to_owned(),
        id: (*id).to_owned(),
    };
    entries.iter().map(entry).collect()
}

/// Every request against every single permission.
#[tokio::test]
async fn each_request_needs_its_permission() {
    compare(async |side| {
        let stranger = side.connect(TIMEOUT_MS).await;
        side.call(0, Auth("digest", "user:secret")).await;
        for bit in 0..6 {
            let list = acl(&[(1 << bit, "world", "anyone"), (31, "auth", "")]);
            side.call(0, Create(OpCode::Create, "/a", list, 0)).await;
            side.call(0, create("/a/b", 0)).await;
            for request in [
                exists("/a"),
                get("/a"),
                Read(OpCode::GetChildren, "/a", false),
                Read(OpCode::GetChildren2, "/a", false),
                Path(OpCode::GetAcl, "/a"),
                Path(OpCode::GetAllChildrenNumber, "/a"),
                Path(OpCode::Sync, "/a"),
                AddWatch("/a", 0),
                Check("/a", 99),
                set("/a", -1),
                create("/a/n", 0),
                multi([Check("/a", -1)]),
                multi([set("/a", -1), create("/a/m", 0)]),
                Multi(OpCode::MultiRead, vec![get("/a"), get("/a/b")]),
                Delete("/a/b", -1),
                SetAcl("/a", open(), 7),
                SetAcl("/a", acl(&[(31, "auth", "")]), 0),
            ] {
                side.call(stranger, request).await;
            }
            for path in ["/a/n", "/a/m", "/a/b", "/a"] {
                side.call(0, Delete(path, -1)).await;
            }
            side.call(0, SetAcl("/a", open(), -1)).await;
            side.call(0, Delete("/a/b", -1)).await;
            side.call(0, Delete("/a", -1)).await;
        }
    })
    .await;
}

#[tokio::test]
async fn lists_are_checked_and_completed() {
    compare(async |side| {
        let lists = [
            acl(&[]),
            acl(&[(31, "world", "anyone")]),
            acl(&[(31, "world", "anyone"), (31, "world", "anyone"), (1, "world", "anyone")]),
            acl(&[(31, "world", "someone")]),
            acl(&[(31, "nonsense", "x")]),
            acl(&[(31, "auth", "")]),
            acl(&[(31, "auth", ""), (1, "auth", "x"), (31, "world", "anyone")]),
            acl(&[(31, "digest", "user:hash")]),
            acl(&[(31, "digest", "user")]),
            acl(&[(31, "digest", "a:b:c")]),
            acl(&[(31, "ip", "127.0.0.1")]),
            acl(&[(31, "ip", "127.0.0.0/8"), (1, "world", "anyone")]),
            acl(&[(31, "ip", "127.0.0.1/33")]),
            acl(&[(31, "ip", "10.0.0.1"), (16, "world", "anyone")]),
            acl(&[(31, "ip", "localhost")]),
            acl(&[(0, "world", "anyone")]),
            acl(&[(-1, "world", "anyone")]),
        ];
        for secret in [None, Some("user:secret"), Some("other:secret")] {
            if let Some(secret) = secret {
                side.call(0, Auth("digest", secret)).await;
                side.call(0, Auth("digest", secret)).await;
            }
            side.call(0, Raw(OpCode::WhoAmI, b"")).await;
            for list in &lists {
                side.call(0, Create(OpCode::Create2, "/a", list.clone(), 2)).await;
                side.call(0, Create(OpCode::Create2, "/x", list.clone(), 0)).await;
                side.call(0, Path(OpCode::GetAcl, "/x")).await;
                side.call(0, get("/x")).await;
                side.call(0, Delete("/x", -1)).await;
                side.call(0, create("/y", 0)).await;
                side.call(0, SetAcl("/y", list.clone(), -1)).await;
                side.call(0, Path(OpCode::GetAcl, "/y")).await;
                side.call(0, Delete("/y", -1)).await;
            }
        }
    })
    .await;
}

/// Some clients write each empty string as null.
#[tokio::test]
async fn null_id_is_valid_for_auth_only() {
    compare(async |side| {
        side.call(0, create("/y", 0)).await;
        for secret in [None, Some("user:secret")] {
            if let Some(secret) = secret {
                side.call(0, Auth("digest", secret)).await;
            }
            for (scheme, id) in [
                ("auth", NULL),
                ("auth", ""),
                ("world", NULL),
                ("digest", NULL),
                ("ip", NULL),
                ("nonsense", NULL),
                ("", NULL),
                (NULL, "anyone"),
                (NULL, NULL),
            ] {
                let list = acl(&[(31, scheme, id)]);
                let create = |path, list| Create(OpCode::Create, path, list, 0);
                side.call(0, create("/x", list.clone())).await;
                side.call(0, Path(OpCode::GetAcl, "/x")).await;
                side.call(0, Delete("/x", -1)).await;
                for first in [(1, "world", "anyone"), (31, "world", "anyone"), (31, "auth", "x"), (31, scheme, id)] {
                    side.call(0, create("/x", acl(&[first, (31, scheme, id)]))).await;
                    side.call(0, Path(OpCode::GetAcl, "/x")).await;
                    side.call(0, Delete("/x", -1)).await;
                }
                side.call(0, multi([Check("/y", -1), create("/z", list.clone())])).await;
                side.call(0, Delete("/z", -1)).await;
                side.call(0, SetAcl("/y", list, -1)).await;
                side.call(0, Path(OpCode::GetAcl, "/y")).await;
            }
        }
    })
    .await;
}

#[tokio::test]
async fn addresses_are_of_four_numbers() {
    compare(async |side| {
        for id in [
            "::1",
            "::1/128",
            "::ffff:127.0.0.1",
            "127.0.0.1/0",
            "127.0.0.1/+8",
            "127.0.0.1/08",
            "127.0.0.1/32",
            "127.0.0.1/-1",
            "127.0.0.1/",
            "127.0.0.1/8/8",
            "127.0.0.1/x",
            "/8",
            "",
            "127.1",
            "127.0.0.1.",
            "127.0.0.0.1",
            "127..0.1",
            "127.0.0.256",
            "127.0.0.-1",
            "127.0.0.-0",
            "+127.00.0.001",
            " 127.0.0.1",
        ] {
            let list = acl(&[(1, "ip", id), (16 | 8 | 4, "world", "anyone")]);
            side.call(0, Create(OpCode::Create, "/x", list, 0)).await;
            side.call(0, Path(OpCode::GetAcl, "/x")).await;
            side.call(0, get("/x")).await;
            side.call(0, Delete("/x", -1)).await;
        }
        for id in ["a:b:", "a::b", "a:", ":b", ":", "::", "a:b::", ""] {
            side.call(0, Create(OpCode::Create, "/x", acl(&[(31, "digest", id)]), 0)).await;
            side.call(0, Delete("/x", -1)).await;
        }
    })
    .await;
}

#[tokio::test]
async fn hashes_are_shown_to_administrators_only() {
    compare(async |side| {
        let stranger = side.connect(TIMEOUT_MS).await;
        side.call(0, Auth("digest", "user:secret")).await;
        side.call(0, Create(OpCode::Create, "/a", acl(&[(31, "auth", ""), (1, "world", "anyone")]), 0)).await;
        side.call(0, Path(OpCode::GetAcl, "/a")).await;
        side.call(stranger, Path(OpCode::GetAcl, "/a")).await;
        side.call(stranger, Auth("digest", "user:wrong")).await;
        side.call(stranger, Path(OpCode::GetAcl, "/a")).await;
        side.call(stranger, Auth("digest", "user:secret")).await;
        side.call(stranger, Path(OpCode::GetAcl, "/a")).await;
        side.call(stranger, Auth("ip", "")).await;
        side.call(stranger, Raw(OpCode::WhoAmI, b"")).await;
    })
    .await;
}

#[tokio::test]
async fn credentials_stay_with_the_connection() {
    compare(async |side| {
        let first = side.connect(TIMEOUT_MS).await;
        side.call(first, Auth("digest", "user:secret")).await;
        side.call(first, Create(OpCode::Create, "/mine", acl(&[(31, "auth", "")]), 0)).await;
        side.call(first, get("/mine")).await;
        let second = side.attach(first, true).await;
        side.closed(first).await;
        side.call(second, get("/mine")).await;
        side.call(second, Auth("digest", "user:secret")).await;
        side.call(second, get("/mine")).await;
        for (scheme, secret) in [
            ("nonsense", "x"),
            ("", ""),
            ("auth", "x"),
            ("world", "anyone"),
            ("digest", NULL),
            ("nonsense", NULL),
            (NULL, "user:secret"),
            (NULL, NULL),
        ] {
            let client = side.connect(TIMEOUT_MS).await;
            side.call(client, Auth(scheme, secret)).await;
            side.closed(client).await;
        }
        side.call(0, Auth("ip", NULL)).await;
        for secret in ["", "user", ":", "user:", "a:b:c"] {
            side.call(0, Auth("digest", secret)).await;
            side.call(0, Raw(OpCode::WhoAmI, b"")).await;
        }
    })
    .await;
}

#[tokio::test]
async fn client_without_read_permission_gets_no_notification() {
    compare(async |side| {
        let stranger = side.connect(TIMEOUT_MS).await;
        side.call(0, Auth("digest", "user:secret")).await;
        side.call(stranger, watch_exists("/secret")).await;
        side.call(stranger, AddWatch("", 1)).await;
        side.call(0, watch_exists("/secret")).await;
        side.call(0, Create(OpCode::Create, "/secret", acl(&[(31, "auth", "")]), 0)).await;
        side.events(stranger).await;
        side.call(stranger, watch_exists("/secret")).await;
        for write in [set("/secret", -1), create("/secret/open", 0), Delete("/secret/open", -1), Delete("/secret", -1)]
        {
            side.call(0, write).await;
            side.events(stranger).await;
        }
    })
    .await;
}

//! The JSON of `/api/groups`, `/api/counters`, `/api/barriers`, `/api/latches` and `/api/queues`. README describes it.

use serde::Serialize;
use serde_json::{Map, Value, json};

use super::{Kind, Named, Thing, fields};
use crate::serve::api::LinkJson;
use crate::serve::link::Link;

/// Returns the answer about all paths of a kind.
pub(crate) fn things(kind: Kind, named: &Named, link: &Link, now: i64) -> serde_json::Result<String> {
    #[derive(Serialize)]
    struct Answer<'a> {
        #[serde(flatten)]
        link: LinkJson<'a>,
        complete: bool,
        as_of_ms: i64,
        #[serde(flatten)]
        things: Map<String, Value>,
    }
    let things = named.of(kind);
    let all: Vec<Value> = things.by_path.values().map(|one| thing(kind, one, now)).collect();
    serde_json::to_string(&Answer {
        link: LinkJson::new(link),
        complete: link.is_connected() && things.are_fresh(),
        as_of_ms: things.at,
        things: Map::from_iter([(kind.words().1.to_owned(), all.into())]),
    })
}

fn thing(kind: Kind, thing: &Thing, now: i64) -> Value {
    let fields = fields(kind, thing.state.as_ref(), now).into_iter().map(|field| (field.name.to_owned(), field.json));
    let head = [("path", json!(thing.path)), ("exists", json!(thing.exists())), ("problem", json!(thing.problem))];
    head.into_iter().map(|(name, value)| (name.to_owned(), value)).chain(fields).collect()
}

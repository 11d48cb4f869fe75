//! The JSON of `/api/queues`. README describes it.

use serde::Serialize;

use super::{Queue, Queues, Seen};
use crate::serve::api::LinkJson;
use crate::serve::link::Link;
use crate::serve::page::milliseconds;

#[derive(Debug, Serialize)]
struct QueueJson<'a> {
    path: &'a str,
    exists: Option<bool>,
    items: Option<u64>,
    in_work: Option<u64>,
    dead: Option<u64>,
    oldest: Option<&'a str>,
    oldest_created_ms: Option<i64>,
    problem: Option<&'a str>,
}

impl<'a> QueueJson<'a> {
    fn new(queue: &'a Queue) -> Self {
        let state = queue.state();
        let oldest = state.and_then(|state| state.oldest.as_ref());
        Self {
            path: &queue.path,
            exists: match queue.seen {
                Seen::NotYet => None,
                Seen::Missing => Some(false),
                Seen::State(_) => Some(true),
            },
            items: state.map(|state| state.items),
            in_work: state.map(|state| state.in_work),
            dead: state.map(|state| state.dead),
            oldest: oldest.map(|oldest| &*oldest.name),
            oldest_created_ms: oldest.map(|oldest| milliseconds(oldest.created)),
            problem: queue.problem.as_deref(),
        }
    }
}

/// Returns the answer to `/api/queues`.
pub(crate) fn queues(queues: &Queues, link: &Link) -> serde_json::Result<String> {
    #[derive(Serialize)]
    struct Answer<'a> {
        #[serde(flatten)]
        link: LinkJson<'a>,
        complete: bool,
        as_of_ms: i64,
        queues: Vec<QueueJson<'a>>,
    }
    serde_json::to_string(&Answer {
        link: LinkJson::new(link),
        complete: link.is_connected() && queues.is_fresh,
        as_of_ms: queues.at,
        queues: queues.by_path.values().map(|queue| QueueJson::new(queue)).collect(),
    })
}

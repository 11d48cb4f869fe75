//! The HTML of the queues. Every text that comes from ZooKeeper passes `escape`.

use std::fmt::Write as _;

use super::{Queue, Queues, Seen};
use crate::serve::page::{self, NOT_KNOWN_YET, NOTHING, Row, count, escape, milliseconds, time, visible};

/// Returns the row of a queue.
pub(crate) fn row(queue: &Queue, now: i64) -> Row {
    let number = |number: Option<u64>| number.map_or_else(|| NOTHING.to_owned(), |number| number.to_string());
    let state = queue.state();
    let oldest = state.and_then(|state| state.oldest.as_ref());
    let dead = match state.map(|state| state.dead) {
        Some(dead @ 1..) => format!(r#"<span class="state lost">{dead}</span>"#),
        dead => number(dead),
    };
    let html = format!(
        r#"<tr data-id="{id}" data-key="{id}">
<th scope="row">{path}{note}</th>
<td data-label="Items" class="number">{items}</td>
<td data-label="In work" class="number">{in_work}</td>
<td data-label="Oldest for" class="number">{oldest}</td>
<td data-label="Dead letters" class="number">{dead}</td></tr>"#,
        id = escape(&queue.path),
        path = escape(&visible(&queue.path)),
        note = note(queue),
        items = number(state.map(|state| state.items)),
        in_work = number(state.map(|state| state.in_work)),
        oldest = oldest.map_or_else(|| NOTHING.to_owned(), |oldest| time(milliseconds(oldest.created), now, false)),
    );
    Row { id: queue.path.clone(), html }
}

/// Returns the mark of a queue without numbers, and the reason for which it cannot be read.
fn note(queue: &Queue) -> String {
    let mut note = match queue.seen {
        Seen::NotYet if queue.problem.is_none() => format!(" {NOT_KNOWN_YET}"),
        Seen::Missing => r#" <span class="state free">no such queue</span>"#.to_owned(),
        Seen::NotYet | Seen::State(_) => String::new(),
    };
    if let Some(problem) = &queue.problem {
        let _written = write!(note, r#"<div><span class="lost">{}</span></div>"#, escape(&visible(problem)));
    }
    note
}

/// Returns the line above the list of queues. Empty if none is shown.
pub(crate) fn summary(queues: &Queues) -> String {
    if queues.by_path.is_empty() {
        return String::new();
    }
    if queues.by_path.values().all(|queue| matches!(queue.seen, Seen::NotYet)) {
        return NOT_KNOWN_YET.to_owned();
    }
    let number = |number: u64| usize::try_from(number).unwrap_or(usize::MAX);
    let mut summary = format!(
        "{} · {} · {}",
        count(queues.by_path.len(), "queue", "queues"),
        count(number(queues.sum(|state| state.items)), "item", "items"),
        count(number(queues.sum(|state| state.dead)), "dead letter", "dead letters"),
    );
    if !queues.is_fresh {
        summary.push_str(" · not up to date");
    }
    summary
}

/// Returns the section of the page of all locks.
pub(crate) fn section(queues: &Queues, now: i64) -> String {
    let rows: String = queues.by_path.values().map(|queue| row(queue, now).html).collect();
    let heads = r#"<th scope="col">Queue</th><th scope="col" class="number">Items</th>
<th scope="col" class="number">In work</th><th scope="col" class="number">Oldest for</th>
<th scope="col" class="number">Dead letters</th>"#;
    page::section("queues", "Queues", heads, !queues.by_path.is_empty(), &summary(queues), &rows)
}

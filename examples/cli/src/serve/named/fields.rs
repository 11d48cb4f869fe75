//! The fields of each kind: on the page, in the JSON and as metrics.

use std::time::SystemTime;

use curator_recipes::Member;
use serde_json::{Number, Value, json};

use super::{Kind, State};
use crate::serve::follow::MOST_DATA;
use crate::serve::lock::Detail;
use crate::serve::metrics::seconds;
use crate::serve::page::{NOTHING, data, escape, listed, milliseconds, time, visible};

/// The most members in the JSON.
const FIRST: usize = 16;

/// A field of a path.
pub(crate) struct Field {
    /// The name in the JSON.
    pub(crate) name: &'static str,
    pub(crate) json: Value,
    /// The head and the class of the column on the page.
    pub(crate) column: Option<(&'static str, &'static str)>,
    pub(crate) html: String,
    /// The name and the help of the metric.
    pub(crate) metric: Option<(&'static str, &'static str)>,
    /// The value of the metric.
    pub(crate) number: Option<String>,
    /// The words for one and for many, if the line above the table has the sum.
    pub(crate) sum: Option<(&'static str, &'static str)>,
}

impl Field {
    fn new(name: &'static str, json: impl Into<Value>) -> Self {
        let (json, html) = (json.into(), NOTHING.to_owned());
        Self { name, json, column: None, html, metric: None, number: None, sum: None }
    }

    /// Creates a field with a number, which its column shows.
    fn number(name: &'static str, head: &'static str, number: Option<impl Into<Number>>) -> Self {
        let number: Option<Number> = number.map(Into::into);
        let (text, field) = (number.as_ref().map(Number::to_string), Self::new(name, number));
        field.column(head, "number", text.clone()).value(text)
    }

    fn column(self, head: &'static str, class: &'static str, html: Option<String>) -> Self {
        Self { column: Some((head, class)), html: html.unwrap_or(self.html), ..self }
    }

    fn value(self, number: Option<String>) -> Self {
        Self { number, ..self }
    }

    fn metric(self, name: &'static str, help: &'static str) -> Self {
        Self { metric: Some((name, help)), ..self }
    }

    fn sum(self, one: &'static str, many: &'static str) -> Self {
        Self { sum: Some((one, many)), ..self }
    }
}

/// Returns the fields of a path. Without a state of this kind they have no values.
pub(crate) fn fields(kind: Kind, state: Option<&State>, now: i64) -> Vec<Field> {
    match kind {
        Kind::Group => group(state),
        Kind::Counter => {
            let value = if let Some(State::Counter(value)) = state { Some(*value) } else { None };
            vec![Field::number("value", "Value", value).metric("curator_counter_value", "The number of the counter.")]
        }
        Kind::Barrier => barrier(state, now),
        Kind::Latch => latch(state),
        Kind::Queue => queue(state, now),
    }
}

fn group(state: Option<&State>) -> Vec<Field> {
    let members = if let Some(State::Group(members)) = state { Some(members) } else { None };
    let shown = |one: &Member| {
        let kept = one.data[..one.data.len().min(MOST_DATA)].to_vec();
        data(&Detail { data: kept, length: one.data.len(), ..Detail::default() })
    };
    let json = |one: &Member| {
        let session = one.session.map(|session| session.to_string());
        json!({ "id": one.id, "data": shown(one), "data_bytes": one.data.len(), "session": session,
            "czxid": one.czxid.get() })
    };
    let first = members.map(|members| members.iter().take(FIRST).map(json).collect::<Vec<_>>());
    let html = |one: &Member| format!(r#"{} <span class="dim">{}</span>"#, name(&one.id), escape(&shown(one)));
    vec![
        Field::number("members", "Members", members.map(curator_recipes::Members::len))
            .metric("curator_group_members", "Members of the group.")
            .sum("member", "members"),
        Field::new("first_members", first).column(
            "Ids and data",
            "text",
            members.map(|all| listed(all.iter().map(html))),
        ),
    ]
}

fn barrier(state: Option<&State>, now: i64) -> Vec<Field> {
    let look = if let Some(State::Barrier(look)) = state { Some(look) } else { None };
    let members = look.and_then(|look| look.members.as_ref());
    let is_closed = look.map(super::Look::is_closed);
    let mark = look.map(|look| {
        let class = if look.is_closed() { "waiting" } else { "free" };
        mark(class, look.state)
    });
    let named = members.map(|members| listed(members.iter().map(|one| name(&one.id))));
    let since = look.and_then(|look| look.since);
    vec![
        Field::new("state", look.map(|look| look.state))
            .column("State", "", mark)
            .value(is_closed.map(|is_closed| u8::from(is_closed).to_string()))
            .metric("curator_barrier_closed", "1 if the barrier holds processes back, else 0.")
            .sum("closed", "closed"),
        Field::number("members", "Members", members.map(Vec::len))
            .metric("curator_barrier_members", "Members at the double barrier."),
        Field::number("wanted", "Wanted", look.and_then(|look| look.wanted))
            .metric("curator_barrier_wanted", "Members for which those at the double barrier wait."),
        Field::new("first_members", json!(members.map(|members| &members[..members.len().min(FIRST)])))
            .column("Ids", "text", named),
        Field::new("session", look.and_then(|look| look.session.clone())),
        since_ms("since_ms", "Set for", since, now),
    ]
}

fn latch(state: Option<&State>) -> Vec<Field> {
    let count = if let Some(State::Latch { round, remaining }) = state { Some((*round, *remaining)) } else { None };
    let seen = count.map(|(_, remaining)| if remaining == 0 { ("open", "free") } else { ("closed", "waiting") });
    vec![
        Field::new("state", seen.map(|(word, _)| word)).column(
            "State",
            "",
            seen.map(|(word, class)| mark(class, word)),
        ),
        Field::number("remaining", "Remaining", count.map(|(_, remaining)| remaining))
            .metric("curator_latch_remaining", "Counts that the latch still needs.")
            .sum("count remains", "counts remain"),
        Field::new("round", count.map(|(round, _)| round)),
    ]
}

fn queue(state: Option<&State>, now: i64) -> Vec<Field> {
    let state = if let Some(State::Queue(state)) = state { Some(state) } else { None };
    let oldest = state.and_then(|state| state.oldest.as_ref());
    let dead = state.map(|state| state.dead);
    let mut letters = Field::number("dead", "Dead letters", dead)
        .metric("curator_queue_dead_letters", "Dead letters of the queue.")
        .sum("dead letter", "dead letters");
    if let Some(dead @ 1..) = dead {
        letters.html = mark("lost", &dead.to_string());
    }
    let age = oldest.map(|oldest| now.saturating_sub(milliseconds(oldest.created)).max(0));
    vec![
        Field::number("items", "Items", state.map(|state| state.items))
            .metric("curator_queue_items", "Items of the queue, those in work included.")
            .sum("item", "items"),
        Field::number("in_work", "In work", state.map(|state| state.in_work))
            .metric("curator_queue_in_work", "Items of the queue that consumers have locked."),
        Field::new("oldest", oldest.map(|oldest| oldest.name.clone())),
        since_ms("oldest_created_ms", "Oldest for", oldest.map(|oldest| oldest.created), now)
            .value(age.map(seconds))
            .metric("curator_queue_oldest_item_seconds", "Time since the put of the oldest item."),
        letters,
    ]
}

/// Returns a field with a time, and the length of time since it in its column.
fn since_ms(name: &'static str, head: &'static str, at: Option<SystemTime>, now: i64) -> Field {
    let at = at.map(milliseconds);
    Field::new(name, at).column(head, "number", at.map(|at| time(at, now, false)))
}

fn mark(class: &str, word: &str) -> String {
    format!(r#"<span class="state {class}">{word}</span>"#)
}

fn name(id: &str) -> String {
    escape(&visible(id))
}

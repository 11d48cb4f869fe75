//! The HTML of the paths that options name. Every text that comes from ZooKeeper passes `escape`.

use std::fmt::Write as _;

use super::{Field, Kind, State, Thing, Things, fields};
use crate::serve::page::{self, NOT_KNOWN_YET, Row, count, escape, visible};

/// Returns the row of a path.
pub(crate) fn row(kind: Kind, thing: &Thing, now: i64) -> Row {
    let cell = |field: &Field| {
        let (head, class) = field.column?;
        Some(format!("\n<td data-label=\"{head}\" class=\"{class}\">{}</td>", field.html))
    };
    let cells: String = fields(kind, thing.state.as_ref(), now).iter().filter_map(cell).collect();
    let (id, path, note) = (escape(&thing.path), escape(&visible(&thing.path)), note(kind, thing));
    let html = format!(r#"<tr data-id="{id}" data-key="{id}"><th scope="row">{path}{note}</th>{cells}</tr>"#);
    Row { id: thing.path.clone(), html }
}

/// Returns the mark of a path without a state, and the reason for which it cannot be read.
fn note(kind: Kind, thing: &Thing) -> String {
    let mut note = match thing.state {
        None if thing.problem.is_none() => format!(" {NOT_KNOWN_YET}"),
        Some(State::Missing) => format!(r#" <span class="state free">no such {}</span>"#, kind.words().0),
        _ => String::new(),
    };
    if let Some(problem) = &thing.problem {
        let _written = write!(note, r#"<div><span class="lost">{}</span></div>"#, escape(&visible(problem)));
    }
    note
}

/// Returns the line above the table of a kind. Empty if none is shown.
pub(crate) fn summary(kind: Kind, things: &Things) -> String {
    let all = || things.by_path.values();
    if things.by_path.is_empty() {
        return String::new();
    }
    if all().all(|thing| thing.state.is_none() && thing.problem.is_none()) {
        return NOT_KNOWN_YET.to_owned();
    }
    let rows: Vec<Vec<Field>> = all().map(|thing| fields(kind, thing.state.as_ref(), 0)).collect();
    let mut summary = counted(kind, things);
    for (index, field) in fields(kind, None, 0).iter().enumerate() {
        let Some((one, many)) = field.sum else { continue };
        let known: Vec<usize> = rows.iter().filter_map(|row| row[index].number.as_ref()?.parse().ok()).collect();
        if !known.is_empty() {
            let _written = write!(summary, " · {}", count(known.into_iter().sum(), one, many));
        }
    }
    match all().filter(|thing| thing.problem.is_some()).count() {
        0 if things.are_fresh() => {}
        0 => summary.push_str(" · not up to date"),
        unread => drop(write!(summary, r#" · <span class="lost">{unread} cannot be read</span>"#)),
    }
    summary
}

/// Returns the number of paths of a kind.
pub(crate) fn counted(kind: Kind, things: &Things) -> String {
    let (one, many) = kind.words();
    count(things.by_path.len(), one, many)
}

/// Returns the section of the page of all locks.
pub(crate) fn section(kind: Kind, things: &Things, now: i64) -> String {
    let (one, many) = kind.words();
    let capital = |word: &str| word[..1].to_uppercase() + &word[1..];
    let mut heads = format!(r#"<th scope="col">{}</th>"#, capital(one));
    for (head, class) in fields(kind, None, now).iter().filter_map(|field| field.column) {
        let _written = write!(heads, "\n<th scope=\"col\" class=\"{class}\">{head}</th>");
    }
    let rows: String = things.by_path.values().map(|thing| row(kind, thing, now).html).collect();
    page::section(many, &capital(many), &heads, !things.by_path.is_empty(), &summary(kind, things), &rows)
}

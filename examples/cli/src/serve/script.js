// Keeps a page up to date. The rows come from the server as HTML, with all data escaped there.
"use strict";

const $ = (id) => document.getElementById(id);
const rows = $("rows"), history = $("history"), filter = $("filter"), order = $("order");
const SECTIONS = ["services", "queues"].filter((name) => $(name)); // of the page that lists all
const LONGEST_HISTORY = 500;
let ahead = 0; // the server's clock less this one's, in milliseconds
let live = !document.body.classList.contains("stale");
let cutSince = null;
let events = null, lastId = "";
let frozen = null; // the server's time at which the state was last known, while it is not known

document.documentElement.classList.add("has-script");

function age(milliseconds) {
  const s = Math.max(0, Math.floor(milliseconds / 1000));
  const two = (n) => String(n).padStart(2, "0");
  if (s < 60) return `${s}s`;
  if (s < 3600) return `${Math.floor(s / 60)}m${two(s % 60)}s`;
  if (s < 86400) return `${Math.floor(s / 3600)}h${two(Math.floor(s / 60) % 60)}m`;
  return `${Math.floor(s / 86400)}d${two(Math.floor(s / 3600) % 24)}h`;
}

function clock(at) {
  return new Date(at).toLocaleTimeString([], { hour: "2-digit", minute: "2-digit", second: "2-digit" });
}

function put(element, text) {
  if (element.textContent !== text) element.textContent = text;
}

function tick() {
  // A state that is not known any more does not grow older.
  const now = frozen ?? (cutSince ?? Date.now()) + ahead;
  for (const time of document.querySelectorAll("time[data-at]")) {
    const at = Number(time.dataset.at);
    if (!time.title) time.title = new Date(at).toLocaleString();
    put(time, time.classList.contains("clock") ? clock(at) : age(now - at));
  }
}

function parsed(html) {
  const template = document.createElement("template");
  template.innerHTML = html;
  return template.content.firstElementChild;
}

function arrange() {
  const by = order ? order.value : "key";
  const key = (row) => row.dataset.key;
  const plain = (a, b) => (key(a) < key(b) ? -1 : key(a) > key(b) ? 1 : 0);
  const compare = {
    key: plain,
    queue: (a, b) => b.dataset.queue - a.dataset.queue || plain(a, b),
    since: (a, b) => a.dataset.since - b.dataset.since || plain(a, b),
  }[by];
  const all = sort(rows, compare).concat(...SECTIONS.map((name) => sort($(`${name}-rows`), plain)));
  if (!filter) return;
  const wanted = filter.value.trim().toLowerCase();
  let shown = 0;
  for (const row of all) {
    row.hidden = wanted !== "" && !row.textContent.toLowerCase().includes(wanted);
    shown += row.hidden ? 0 : 1;
  }
  put($("matches"), wanted === "" ? "" : `${shown} of ${all.length}`);
}

function sort(body, compare) {
  const sorted = Array.from(body.children).sort(compare);
  // A row in its place is not moved, so that it keeps focus and selection.
  sorted.forEach((row, index) => {
    if (body.children[index] !== row) body.insertBefore(row, body.children[index]);
  });
  return sorted;
}

// Replaces the rows of a table that have changed. With `all`, the update has all rows.
function replaceRows(body, all, update) {
  const known = new Map(Array.from(body.children, (row) => [row.dataset.id, row]));
  if (all) {
    const named = new Set(update.rows.map((row) => row.id));
    update.gone = Array.from(known.keys()).filter((id) => !named.has(id));
  }
  for (const id of update.gone) known.get(id)?.remove();
  for (const { id, html } of update.rows) {
    const row = parsed(html), old = known.get(id);
    if (!old) body.append(row);
    else if (!old.contains(document.activeElement)) old.replaceWith(row);
    else {
      old.replaceWith(row);
      row.querySelector("a")?.focus();
    }
  }
}

function apply(update) {
  ahead = update.now - Date.now();
  live = update.live;
  frozen = update.frozen;
  if ($("notice").innerHTML !== update.notice) $("notice").innerHTML = update.notice;
  $("summary").innerHTML = update.summary;
  put($("empty"), update.empty);
  replaceRows(rows, update.all, update);
  for (const name of SECTIONS) {
    const section = update[name];
    $(name).hidden = section.hidden;
    $(`${name}-summary`).innerHTML = section.summary;
    replaceRows($(`${name}-rows`), update.all, section);
  }
  arrange();
  if (history) {
    if (update.dropped) history.prepend(parsed("<li class=\"lost\">Changes are missing here.</li>"));
    for (const html of update.history) history.prepend(parsed(html));
    while (history.children.length > LONGEST_HISTORY) history.lastElementChild.remove();
  }
  stale();
  tick();
}

function stale() {
  document.body.classList.toggle("stale", !live || cutSince !== null);
  const cut = $("cut");
  cut.hidden = cutSince === null;
  const text = cutSince === null ? "" : `No connection to curator serve since ${clock(cutSince)}. Trying again …`;
  put(cut, text);
}

function connect() {
  const from = lastId === "" ? "" : `?from=${encodeURIComponent(lastId)}`;
  events = new EventSource(document.body.dataset.events + from);
  events.onmessage = (event) => {
    cutSince = null;
    lastId = event.lastEventId;
    apply(JSON.parse(event.data));
  };
  events.onerror = () => {
    cutSince ??= Date.now();
    stale();
    tick();
    // The browser repeats by itself, unless the answer was an error.
    if (events.readyState === EventSource.CLOSED) setTimeout(() => document.hidden || connect(), 3000);
  };
}

// A browser has few connections to one server, and needs none for a page that cannot be seen.
document.addEventListener("visibilitychange", () => {
  if (document.hidden) events.close();
  else if (events.readyState === EventSource.CLOSED) connect();
});

filter?.form.addEventListener("submit", (event) => event.preventDefault());
filter?.addEventListener("input", arrange);
order?.addEventListener("change", arrange);
setInterval(tick, 1000);
tick();
connect();

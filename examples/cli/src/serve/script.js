// Keeps a page up to date. The rows come from the server as HTML, with all data escaped there.
"use strict";

const $ = (id) => document.getElementById(id);
const rows = $("rows"), changes = $("history"), filter = $("filter"), order = $("order");
const contended = $("contended"), more = $("more");
const AT_ONCE = 200; // rows of locks, before a click shows more
let most = AT_ONCE;
const SECTIONS = Array.from(document.querySelectorAll("main > section[id]"), (section) => section.id); // of the page that lists all
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
  let found = 0, locks = 0;
  for (const row of all) {
    const queue = row.dataset.queue; // of locks alone
    const matches = (wanted === "" || row.textContent.toLowerCase().includes(wanted))
      && (!contended.checked || queue === undefined || queue > 0);
    found += matches ? 1 : 0;
    if (queue !== undefined && matches) locks += 1;
    row.hidden = !matches || (queue !== undefined && locks > most);
  }
  put($("matches"), wanted === "" && !contended.checked ? "" : `${found} of ${all.length}`);
  more.hidden = locks <= most;
  put(more, `Show ${Math.min(AT_ONCE, locks - most)} more of ${locks} locks`);
}

// The address has the filter and the order, so that a link shows the same.
const FIELDS = { filter, order, contended };

function restore() {
  const asked = new URLSearchParams(location.search);
  for (const [name, field] of Object.entries(FIELDS)) {
    const value = asked.get(name);
    if (field.type === "checkbox") field.checked = value === "1";
    else if (value !== null && (field !== order || order.querySelector(`option[value="${CSS.escape(value)}"]`))) field.value = value;
  }
}

function choose() {
  const asked = new URLSearchParams();
  if (filter.value.trim() !== "") asked.set("filter", filter.value.trim());
  if (order.value !== "key") asked.set("order", order.value);
  if (contended.checked) asked.set("contended", "1");
  const query = asked.toString();
  history.replaceState(null, "", location.pathname + (query === "" ? "" : `?${query}`) + location.hash);
  most = AT_ONCE;
  arrange();
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
  if (changes) {
    if (update.dropped) changes.prepend(parsed("<li class=\"lost\">Changes are missing here.</li>"));
    for (const html of update.history) changes.prepend(parsed(html));
    while (changes.children.length > LONGEST_HISTORY) changes.lastElementChild.remove();
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
if (filter) {
  restore();
  for (const field of Object.values(FIELDS)) field.addEventListener("input", choose);
  more.addEventListener("click", () => {
    most += AT_ONCE;
    arrange();
  });
  arrange();
}
setInterval(tick, 1000);
tick();
connect();

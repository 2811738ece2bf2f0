// What pages do beyond links and forms, all of which work without it: live updates, search as you
// type, local times, keyboard navigation, confirmations in a dialog.
"use strict";

const TYPED_MS = 150; // a person types a letter in about this time
const AGE_EVERY_MS = 10000;
const RETRY_MS = 3000;
const REST_FACTOR = 3; // the pause after an update, in durations of that update
const page = { address: location.pathname + location.search, request: null, again: false, waiting: true, resting: 0 };

// --- times: in the viewer's zone, with UTC as the title ------------------------------------------

const clock = new Intl.DateTimeFormat(undefined, {
  year: "numeric", month: "short", day: "2-digit", hour: "2-digit", minute: "2-digit", second: "2-digit",
});

function age(from) {
  const seconds = Math.max(0, Math.round((Date.now() - from) / 1000));
  const units = [["d", 86400], ["h", 3600], ["m", 60], ["s", 1]];
  const at = units.findIndex(([, size]) => seconds >= size);
  if (at < 0) return "0s";
  const [unit, size] = units[at];
  const whole = Math.floor(seconds / size);
  if (whole >= 10 || at === units.length - 1) return `${whole}${unit}`;
  const [next, small] = units[at + 1];
  const rest = Math.floor((seconds % size) / small);
  return rest ? `${whole}${unit}${rest}${next}` : `${whole}${unit}`;
}

function showTimes(root) {
  for (const it of root.querySelectorAll("time[data-show]")) {
    const moment = new Date(it.dateTime);
    if (Number.isNaN(moment.getTime())) continue;
    const kind = it.dataset.show;
    const suffix = kind === "ago" ? " ago" : "";
    const text = kind === "time" ? clock.format(moment) : age(moment.getTime()) + suffix;
    if (it.textContent !== text) it.textContent = text;
  }
}

// --- updates: read the page again and replace the regions that differ ------------------------------

async function update(address, { push = false } = {}) {
  page.request?.abort();
  const request = new AbortController();
  page.request = request;
  try {
    const answer = await fetch(address, { signal: request.signal, credentials: "same-origin" });
    if (answer.redirected && new URL(answer.url).pathname === "/login") return location.reload();
    const found = new DOMParser().parseFromString(await answer.text(), "text/html");
    if (!answer.ok && !found.querySelector("[data-region]")) {
      document.body.classList.add("stale");
      return undefined;
    }
    document.body.classList.remove("stale");
    if (push) history.replaceState(null, "", address);
    page.address = address;
    replaceRegions(found);
    connect(found.body.dataset.live);
    follow();
  } catch (error) {
    if (error.name !== "AbortError") document.body.classList.add("stale");
  } finally {
    if (page.request === request) page.request = null;
  }
  return undefined;
}

function replaceRegions(found) {
  const focused = document.activeElement;
  const row = focused?.closest("[data-row][id]")?.id;
  const link = focused?.getAttribute("href");
  for (const old of document.querySelectorAll("[data-region][id]")) {
    const made = found.getElementById(old.id);
    if (!made) continue;
    const node = document.adoptNode(made);
    showTimes(node);
    for (const it of old.querySelectorAll("details[open][id]")) {
      const same = node.querySelector(`#${CSS.escape(it.id)}`);
      if (same) same.open = true;
    }
    if (node.isEqualNode(old)) continue;
    const hadFocus = old.contains(focused) && old !== focused;
    old.replaceWith(node);
    if (!hadFocus) continue;
    const again = (row && document.getElementById(row)?.querySelector("a")) ||
      (link && node.querySelector(`a[href="${CSS.escape(link)}"]`));
    (again || document.getElementById("main")).focus({ preventScroll: true });
  }
}

// --- live: the server reports that something changed -----------------------------------------------

let stream = null;
let streamAddress = "";

function liveState(state, text) {
  const shown = document.getElementById("live-state");
  if (!shown || shown.dataset.state === state) return;
  shown.dataset.state = state;
  shown.querySelector(".text").textContent = text;
}

function connect(address) {
  if (!address || document.hidden) return;
  if (stream && streamAddress === address && stream.readyState !== EventSource.CLOSED) return;
  stream?.close();
  streamAddress = address;
  stream = new EventSource(address);
  stream.onopen = () => {
    liveState("on", "live");
    if (page.waiting) { page.waiting = false; update(page.address); }
  };
  stream.addEventListener("changed", changed);
  stream.onerror = () => {
    liveState("off", "not live");
    page.waiting = true;
    // A refused stream is not opened again by the browser: an ended session shows the login.
    if (stream.readyState === EventSource.CLOSED) setTimeout(() => update(page.address), RETRY_MS);
  };
}

function changed() {
  if (document.querySelector("dialog[open]")) { page.waiting = true; return; }
  if (page.request || page.resting) { page.again = true; return; }
  const began = performance.now();
  update(page.address).then(() => {
    // A slow page is not requested all the time, since other viewers wait for the server, too.
    page.resting = setTimeout(() => {
      page.resting = 0;
      if (page.again) { page.again = false; changed(); }
    }, REST_FACTOR * (performance.now() - began));
  });
}

document.addEventListener("visibilitychange", () => {
  if (document.hidden) { // browsers allow six streams per server over all tabs
    stream?.close();
    stream = null;
    page.waiting = true;
    liveState("off", "paused");
  } else {
    connect(document.body.dataset.live && (streamAddress || document.body.dataset.live));
  }
  follow();
});

// --- logs: the output of a container while it is written -------------------------------------------

const MOST_PARTS = 2000; // most parts of a log on a page; a part has the lines of one event
let log = { text: null, stream: null };

function follow() {
  const text = document.hidden ? null : document.querySelector("[data-follow]");
  if (log.text === text) return;
  log.stream?.close();
  log = { text, stream: text && new EventSource(text.dataset.follow) };
  if (!text) return;
  const { stream } = log;
  let isFresh = false;
  stream.onopen = () => liveState("on", "live");
  stream.onerror = () => liveState("off", "not live");
  stream.addEventListener("reset", () => { isFresh = true; });
  stream.addEventListener("lines", event => {
    const isAtEnd = isFresh || text.scrollHeight - text.scrollTop - text.clientHeight < 40;
    if (isFresh) text.replaceChildren();
    isFresh = false;
    text.append(`${JSON.parse(event.data).join("\n")}\n`);
    while (text.childNodes.length > MOST_PARTS) text.firstChild.remove();
    if (isAtEnd) text.scrollTop = text.scrollHeight;
  });
  stream.addEventListener("ended", event => {
    stream.close();
    liveState("off", JSON.parse(event.data) || "ended");
  });
}

// --- filters: search as you type; the URL has the state --------------------------------------------

function filterAddress(form) {
  const fields = new URLSearchParams();
  for (const [name, value] of new FormData(form)) {
    if (value && !(name === "sort" && value === "-created")) fields.set(name, value);
  }
  const query = fields.toString();
  return location.pathname + (query ? `?${query}` : "");
}

function filter(form) {
  clearTimeout(form.timer);
  update(filterAddress(form), { push: true });
}

for (const form of document.querySelectorAll("form[data-filter]")) {
  form.addEventListener("input", () => {
    clearTimeout(form.timer);
    form.timer = setTimeout(() => filter(form), TYPED_MS);
  });
  form.addEventListener("submit", event => { event.preventDefault(); filter(form); });
}

// --- dialogs ----------------------------------------------------------------------------------------

const dialog = document.getElementById("dialog");

function openDialog(content) {
  dialog.replaceChildren(content);
  dialog.showModal();
}

dialog.addEventListener("close", () => {
  dialog.replaceChildren();
  if (page.waiting) { page.waiting = false; changed(); }
});

async function confirmAction(link) {
  const answer = await fetch(link.href, { credentials: "same-origin" });
  const found = new DOMParser().parseFromString(await answer.text(), "text/html").getElementById("confirm");
  if (!found) { location.href = link.href; return; }
  const content = document.createElement("div");
  content.append(...document.adoptNode(found).childNodes);
  content.querySelector("[data-cancel]")?.addEventListener("click", event => {
    event.preventDefault();
    dialog.close();
  });
  openDialog(content);
}

document.addEventListener("click", event => {
  const target = event.target instanceof Element ? event.target : null;
  if (!target || event.ctrlKey || event.metaKey || event.shiftKey) return;
  const link = target.closest("a[data-confirm]");
  if (link) { event.preventDefault(); confirmAction(link); return; }
  const copied = target.closest("[data-copy]");
  if (copied) {
    navigator.clipboard.writeText(document.getElementById(copied.dataset.copy).textContent)
      .then(() => { copied.textContent = "Copied"; });
    return;
  }
  if (target.closest("[data-reload]")) { event.preventDefault(); update(page.address); return; }
  if (target.closest("#help")) { help(); return; }
  if (target.closest("#theme")) switchTheme();
});

function help() {
  openDialog(document.getElementById("shortcuts").content.cloneNode(true));
}

function switchTheme() {
  const isDark = document.documentElement.dataset.theme
    ? document.documentElement.dataset.theme === "dark"
    : matchMedia("(prefers-color-scheme: dark)").matches;
  const theme = isDark ? "light" : "dark";
  document.documentElement.dataset.theme = theme;
  localStorage.setItem("theme", theme);
}

// --- keyboard ---------------------------------------------------------------------------------------

const GOALS = {
  o: "/", j: "/jobs", f: "/flows", q: "/queues", n: "/nodes", r: "/topology", d: "/decisions", c: "/changes", h: "/history",
  u: "/usage", s: "/system",
};
let goTimer = 0;
let isGoing = false;

function moveRow(step) {
  const rows = [...document.querySelectorAll("[data-row]")].filter(row => row.querySelector("a"));
  if (!rows.length) return;
  const at = rows.findIndex(row => row.contains(document.activeElement));
  const next = at < 0 ? (step > 0 ? 0 : rows.length - 1) : Math.min(Math.max(at + step, 0), rows.length - 1);
  const link = rows[next].querySelector("a");
  link.focus();
  rows[next].scrollIntoView({ block: "nearest" });
}

document.addEventListener("keydown", event => {
  if (event.ctrlKey || event.metaKey || event.altKey || dialog.open) return;
  const field = event.target instanceof Element && event.target.closest("input, select, textarea");
  if (field) {
    if (event.key === "Escape") field.blur();
    return;
  }
  if (isGoing) {
    isGoing = false;
    clearTimeout(goTimer);
    if (GOALS[event.key]) { location.href = GOALS[event.key]; return; }
  }
  switch (event.key) {
    case "/": {
      const search = document.querySelector("input[type=search]");
      if (search) { event.preventDefault(); search.focus(); search.select(); }
      break;
    }
    case "j": moveRow(1); break;
    case "k": moveRow(-1); break;
    case "g": isGoing = true; goTimer = setTimeout(() => { isGoing = false; }, 1000); break;
    case "?": help(); break;
    default:
  }
});

// --- start ------------------------------------------------------------------------------------------

// A link of `strom up` has the token behind `#`: browsers do not send that part to any server.
const login = document.getElementById("login");
if (login?.elements.token && location.hash.startsWith("#token=")) {
  login.elements.token.value = decodeURIComponent(location.hash.slice("#token=".length));
  history.replaceState(null, "", location.pathname + location.search);
  login.submit();
}
showTimes(document);
setInterval(() => showTimes(document), AGE_EVERY_MS);
connect(document.body.dataset.live);
follow();
if (document.querySelector("[data-retry]")) setTimeout(() => location.reload(), RETRY_MS);

// Live pages: one stream for each visible tab. A hidden tab closes its stream, for a browser has six connections to a host.
//
// An element with data-live="boxes" asks for itself again when any box changes, one with data-live="DEVICE" when that
// box does, one with data-live="enrol" when a token or a box that waits does, one with data-live="alerts" when an alert does,
// one with data-live="progress" when a rollout or a change of many boxes moves on; htmx does the asking (hx-trigger="live"). The first
// change of a burst is asked for at once, the others are gathered: a busy fleet costs one request a second.

import { isTyped } from "./typed.js";

const NO_BOXES = new Set(["enrol", "alerts", "progress"]);
const SOON_MS = 50;
const GATHER_MS = 800;
const AGAIN_MS = 3000;

let stream = null;
let gathered = new Set();
let timer = 0;
let woken = 0;
let signedOut = false;

function affected(element, boxes) {
  const wanted = element.dataset.live.split(" ");
  return (wanted.includes("boxes") && [...boxes].some((one) => !NO_BOXES.has(one))) || boxes.has("all") || wanted.some((one) => boxes.has(one));
}

function wake() {
  timer = 0;
  woken = performance.now();
  const boxes = gathered;
  gathered = new Set();
  for (const element of document.querySelectorAll("[data-live]")) {
    // A person who types or drags in it keeps what they have: it is woken when they have left.
    if (affected(element, boxes) && !element.querySelector("[data-editing]")) {
      window.htmx.trigger(element, "live");
    }
  }
}

function note(boxes) {
  for (const box of boxes) gathered.add(box);
  if (!timer) timer = window.setTimeout(wake, Math.max(SOON_MS, woken ? woken + GATHER_MS - performance.now() : 0));
}

function show(connected) {
  for (const element of document.querySelectorAll("[data-link-state]")) element.hidden = connected;
}

// The session has ended. What a person has typed stays, and the page says that the form's button leads on: the server
// keeps the content of a form that comes too late, asks for the sign-in, and shows it again.
function leave() {
  if (!isTyped()) {
    window.location.reload();
    return;
  }
  signedOut = true;
  close();
  show(true);
  for (const element of document.querySelectorAll("[data-signed-out]")) element.hidden = false;
}

function open() {
  if (stream || signedOut || document.hidden || !document.querySelector("[data-live]")) return;
  // The stream begins where the page was drawn, also when it is opened again: nothing is missed in between.
  stream = new EventSource(`/live?since=${document.body.dataset.since}`);
  stream.addEventListener("hello", () => show(true));
  stream.addEventListener("boxes", (event) => note(JSON.parse(event.data)));
  stream.addEventListener("signed-out", leave);
  stream.onerror = () => {
    show(false);
    if (stream.readyState === EventSource.CLOSED) {
      close();
      window.setTimeout(open, AGAIN_MS);
    }
  };
}

function close() {
  if (stream) stream.close();
  stream = null;
}

document.addEventListener("visibilitychange", () => {
  if (document.hidden) {
    close();
  } else {
    open();
  }
});
window.addEventListener("pagehide", close);
window.addEventListener("pageshow", open);
// A part that asks for itself would lead to the sign-in, and what is typed beside it would be gone. The editor's own
// question has what is typed with it.
document.addEventListener("htmx:beforeOnLoad", (event) => {
  if (event.detail.xhr.getResponseHeader("HX-Redirect") && event.detail.elt.localName !== "form" && isTyped()) {
    event.preventDefault();
    leave();
  }
});
// What could not ask while the network was away does so again.
document.addEventListener("htmx:sendError", (event) => {
  if (event.detail.elt.dataset.live) window.setTimeout(() => window.htmx.trigger(event.detail.elt, "live"), AGAIN_MS);
});
// A refused request shows its answer where the page has a place for it.
document.addEventListener("htmx:beforeSwap", (event) => {
  if ([400, 403, 404, 409, 422].includes(event.detail.xhr.status)) {
    event.detail.shouldSwap = true;
    event.detail.isError = false;
  }
});
// A part that is drawn anew keeps what a person has unfolded in it, and the focus: who goes by keys would press Enter on
// nothing. htmx keeps the focus of what has an id. All else gets it again where it is the only one of its kind, words and
// target, before and afterwards: a button that reads the same in another row is another one.
let unfolded = [];
let focused = null;

function likeness(element) {
  const [target, label, ...named] = ["href", "aria-label", "name", "value"].map((name) => element.getAttribute(name));
  const words = target || label ? "" : element.textContent.trim(); // a link's words may be a number that has changed
  return [element.localName, target, label, ...named, element.form?.getAttribute("action"), words].join("\n");
}

function onlyOne(kind, wanted) {
  const found = [...document.getElementsByTagName(kind)].filter((one) => likeness(one) === wanted);
  return found.length === 1 ? found[0] : null;
}

function remember(target) {
  const active = document.activeElement;
  if (!active || active.id || !target.contains(active)) return null;
  const known = { kind: active.localName, wanted: likeness(active) };
  return onlyOne(known.kind, known.wanted) ? known : null;
}

document.addEventListener("htmx:beforeSwap", (event) => {
  unfolded = [...event.detail.target.querySelectorAll("details[id][open]")].map((one) => one.id);
  focused = remember(event.detail.target);
});
document.addEventListener("htmx:afterSwap", () => {
  for (const id of unfolded.splice(0)) document.getElementById(id)?.setAttribute("open", "");
  if (focused && document.activeElement === document.body) onlyOne(focused.kind, focused.wanted)?.focus({ preventScroll: true });
  focused = null;
});
open();

// The limit editor: the edge of the app's piece is dragged, or moved by keys, and the number in the form follows; the
// server draws. While what is typed and what the button would set differ, the button cannot be pressed.

import { differs } from "./typed.js";

const STEPS = { ArrowRight: 1, ArrowUp: 1, ArrowLeft: -1, ArrowDown: -1, PageUp: 8, PageDown: -8 };

const form = document.getElementById("edit");
let drag = null;

function edgeOf(event) {
  return event.target.closest?.("#edge");
}

function currentUnits() {
  return Number(document.getElementById("edge")?.getAttribute("aria-valuenow") ?? 0);
}

function propose(units, most) {
  const memory = document.getElementById("memory");
  const wanted = String(Math.min(most, Math.max(0, units)));
  const measure = document.getElementById("measure");
  if (measure.value !== "units") measure.value = "units";
  if (memory.value === wanted) return;
  memory.value = wanted;
  document.getElementById("edge")?.setAttribute("aria-valuenow", wanted);
  memory.dispatchEvent(new Event("input", { bubbles: true }));
}

function begin(event) {
  const edge = edgeOf(event);
  if (!edge || event.button > 0) return;
  const bar = edge.ownerSVGElement;
  drag = {
    x: event.clientX,
    units: currentUnits(),
    most: Number(edge.getAttribute("aria-valuemax")),
    pixels: bar.getBoundingClientRect().width / Number(bar.dataset.units),
    pointer: event.pointerId,
  };
  document.body.toggleAttribute("data-dragging", true);
  event.preventDefault();
  edge.focus();
}

function move(event) {
  if (!drag || event.pointerId !== drag.pointer) return;
  propose(drag.units + Math.round((event.clientX - drag.x) / drag.pixels), drag.most);
}

function end(event) {
  if (!drag || event.pointerId !== drag.pointer) return;
  drag = null;
  document.body.toggleAttribute("data-dragging", false);
}

function key(event) {
  const edge = edgeOf(event);
  if (!edge) return;
  const most = Number(edge.getAttribute("aria-valuemax"));
  const now = currentUnits();
  const to = event.key === "Home" ? 0 : event.key === "End" ? most : now + (STEPS[event.key] ?? 0);
  if (to === now) return;
  event.preventDefault();
  propose(to, most);
}

function hold() {
  for (const button of document.querySelectorAll("[data-sets]")) button.disabled = true;
}

// Over a slow line one types before this script is there, and a browser that goes back fills in what was typed.
function catchUp() {
  if (form && [...form.elements].some(differs)) form.elements.memory.dispatchEvent(new Event("input", { bubbles: true }));
}

// While the number of boxes is being typed, the preview does not draw itself anew when a box reports: it would take the
// number away.
function confirming() {
  const number = document.querySelector("#set input[name=number]");
  const held = Boolean(number && (number.value || number === document.activeElement));
  form?.querySelector("fieldset").toggleAttribute("data-editing", held);
}

document.addEventListener("pointerdown", begin);
document.addEventListener("pointermove", move);
document.addEventListener("pointerup", end);
document.addEventListener("pointercancel", end);
document.addEventListener("keydown", key);
form?.addEventListener("input", hold);
for (const event of ["input", "focusin", "focusout", "htmx:afterSettle"]) document.addEventListener(event, confirming);
window.addEventListener("pageshow", catchUp);

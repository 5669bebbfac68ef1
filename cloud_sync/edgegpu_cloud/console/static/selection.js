// The selection in the list of boxes: how many are selected. The list does not draw itself anew while any is, for a row
// must not move from under a finger, and not while another change than the first is chosen. Without this script the form
// works as it is.

import { differs } from "./typed.js";

function show() {
  const form = document.getElementById("selection");
  if (!form) return;
  const number = document.querySelectorAll('input[form="selection"]:checked').length;
  const words = form.querySelector("output");
  words.textContent = number ? words.dataset.words.replace("#", String(number)) : "";
  form.toggleAttribute("data-editing", number > 0 || [...form.elements].some((one) => one.options && differs(one)));
}

document.addEventListener("change", (event) => {
  if (event.target.form?.id === "selection") show();
});
document.addEventListener("htmx:afterSettle", show);
window.addEventListener("pageshow", show);
show();

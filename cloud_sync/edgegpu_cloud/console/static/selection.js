// The selection in the list of boxes: how many are selected. The list does not draw itself anew while any is, for a row
// must not move from under a finger. Without this script the form works as it is.

function show() {
  const form = document.getElementById("selection");
  if (!form) return;
  const number = document.querySelectorAll('input[form="selection"]:checked').length;
  const words = form.querySelector("output");
  words.textContent = number ? words.dataset.words.replace("#", String(number)) : "";
  form.toggleAttribute("data-editing", number > 0);
}

document.addEventListener("change", (event) => {
  if (event.target.matches?.('input[form="selection"]')) show();
});
document.addEventListener("htmx:afterSettle", show);
window.addEventListener("pageshow", show);
show();

// What the piece under the pointer, or in the focus, is: its words stand below the bars.
function tell(event) {
  const piece = event.target.closest?.("[data-words]");
  const place = document.getElementById("piece-words");
  if (piece && place) place.textContent = piece.dataset.words;
}
document.addEventListener("pointerover", tell);
document.addEventListener("focusin", tell);

// Copies a line to the clipboard: a button with data-copy names the element whose text it copies.

const SHOWN_MS = 2000;

function announce(text) {
  const announcer = document.getElementById("announcer");
  if (announcer) announcer.textContent = text;
}

async function copy(button) {
  const source = document.getElementById(button.dataset.copy);
  await navigator.clipboard.writeText(source.textContent.trim());
  const words = button.textContent;
  button.textContent = button.dataset.copied;
  announce(button.dataset.copied);
  window.setTimeout(() => {
    button.textContent = words;
  }, SHOWN_MS);
}

for (const button of document.querySelectorAll("button[data-copy]")) {
  if (!navigator.clipboard) continue;
  button.hidden = false;
  button.addEventListener("click", () => copy(button));
}

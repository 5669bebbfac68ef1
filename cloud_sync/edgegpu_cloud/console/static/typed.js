// What a person has typed into the forms of a page, against what the server has drawn.

export function differs(field) {
  if (field.type === "checkbox" || field.type === "radio") return field.checked !== field.defaultChecked;
  if (field.options) return field.selectedIndex !== Math.max(0, [...field.options].findIndex((one) => one.defaultSelected));
  return field.defaultValue !== undefined && field.value !== field.defaultValue;
}

// A search says what it has in the page's address.
export function isTyped() {
  return [...document.querySelectorAll("main form:not([role=search])")].some((form) => [...form.elements].some(differs));
}

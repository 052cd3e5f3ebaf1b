// Makes elements. What a run's files say becomes text, never markup.
export function h(tag, properties = {}, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(properties)) {
    if (value === undefined || value === null || value === false) continue;
    if (name === "class") element.className = value;
    else if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else if (name in element && name !== "list") element[name] = value;
    else element.setAttribute(name, value === true ? "" : value);
  }
  element.append(...children.flat().filter((child) => child !== null && child !== undefined && child !== false));
  return element;
}

export function svg(tag, attributes = {}, ...children) {
  const element = document.createElementNS("http://www.w3.org/2000/svg", tag);
  for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, value);
  element.append(...children);
  return element;
}

// sets text only where it differs, so that a selection and a screen reader are left alone
export function setText(element, text) {
  if (element.textContent !== text) element.textContent = text;
}

// shows, in an element, what a function makes of some content, and makes it anew only when that changes
export function kept(element, make) {
  let before = null;
  return (content) => {
    const key = JSON.stringify(content);
    if (key === before) return;
    before = key;
    element.replaceChildren(...[make(content)].flat().filter(Boolean));
  };
}

export function table({ name, head, rows, numeric = [], css = "" }) {
  const isNumber = (place) => (numeric.includes(place) ? "n" : "");
  return h("div", { class: `scroll card ${css}`, role: "region", ariaLabel: name, tabIndex: 0 },
    h("table", {},
      h("thead", {}, h("tr", {}, head.map((title, place) => h("th", { scope: "col", class: isNumber(place) }, title)))),
      h("tbody", {}, rows.map((row) => h("tr", {}, row.map((cell, place) => h("td", { class: isNumber(place) }, cell)))))));
}

// The address holds the view: what is open, filtered, sorted, zoomed.
let onChange = () => {};

export function read() {
  const [, kind = "", id = ""] = location.pathname.split("/");
  return { kind, id, parameters: new URLSearchParams(location.search) };
}

export function get(name, otherwise = "") {
  return new URLSearchParams(location.search).get(name) ?? otherwise;
}

// changes a part of the view; what is as usual is left out
export function set(changes) {
  const parameters = new URLSearchParams(location.search);
  for (const [name, value] of Object.entries(changes)) {
    if (value === null || value === undefined || value === "") parameters.delete(name);
    else parameters.set(name, value);
  }
  const query = parameters.toString();
  history.replaceState(null, "", location.pathname + (query && `?${query}`));
}

export function go(path) {
  history.pushState(null, "", path);
  onChange();
}

export function listen(callback) {
  onChange = callback;
  addEventListener("popstate", callback);
  document.addEventListener("click", (event) => {
    const link = event.target.closest("a[href]");
    const isPlain = event.button === 0 && !event.metaKey && !event.ctrlKey && !event.shiftKey && !event.altKey;
    if (!link || !isPlain || link.origin !== location.origin || link.getAttribute("href").startsWith("#")) return;
    event.preventDefault();
    go(link.getAttribute("href"));
  });
}

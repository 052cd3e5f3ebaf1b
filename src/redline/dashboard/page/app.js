// Shows the view that the address names, and handles the keys of all views.
import * as address from "./address.js";
import { showComparison } from "./compare.js";
import { h } from "./dom.js";
import { showFleet } from "./fleet.js";
import { showOverview } from "./overview.js";
import { showRun } from "./run.js";
import { ask } from "./server.js";

const VIEWS = { "": showOverview, run: showRun, compare: showComparison, fleet: showFleet };
const main = document.getElementById("view");
let current = null;

function show() {
  current?.close();
  const { kind, id } = address.read();
  main.replaceChildren();
  current = (VIEWS[kind] ?? showOverview)(main, id);
  scrollTo(0, 0);
}

function isTyping(target) {
  return target.matches("input:not([type=checkbox]), textarea, select") || document.querySelector("dialog[open]");
}

document.addEventListener("keydown", (event) => {
  if (event.ctrlKey || event.metaKey || event.altKey || event.defaultPrevented || isTyping(event.target)) return;
  if (event.key === "?") document.getElementById("keys").showModal();
  else if (event.key === "h") address.go("/");
  else if (!current?.key?.(event.key)) return;
  event.preventDefault();
});
document.getElementById("show-keys").addEventListener("click", () => document.getElementById("keys").showModal());

const linkButton = document.getElementById("link-device");
linkButton.addEventListener("click", async () => {
  const { link } = await ask("/api/links", { method: "POST" });
  const dialog = h("dialog", { ariaLabel: "link a device" },
    h("h2", {}, "Link a device"),
    h("p", {}, "Open this address on the other device within 10 minutes. It works once."),
    h("p", {}, h("code", {}, link)),
    h("form", { method: "dialog" }, h("button", {}, "close")));
  dialog.addEventListener("close", () => dialog.remove());
  document.body.append(dialog);
  dialog.showModal();
});
document.addEventListener("needs-token", () => (linkButton.hidden = false));

address.listen(show);
show();

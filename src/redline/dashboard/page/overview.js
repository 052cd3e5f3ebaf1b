// All runs and fleets: filtered, sorted, with a curve each.
import * as address from "./address.js";
import { h, kept, setText } from "./dom.js";
import { spark } from "./spark.js";
import { ask, keepLooking } from "./server.js";
import { ago, amount, moment, money, percent, short, span } from "./words.js";

const SHOWN_AT_FIRST = 400;
const STATES = ["running", "waiting", "stopped", "killed"];
const title = (run) => [run.algorithm, run.game].filter(Boolean).join(" on ") || run.name;
const COLUMNS = [
  ["name", "run", (run) => `${title(run)} ${run.name}`.toLowerCase(), "up"],
  ["state", "state", (run) => STATES.indexOf(run.state), "up"],
  ["return", "return, last 100", (run) => run.mean_return_100, "down"],
  ["steps", "steps", (run) => run.steps, "down"],
  ["speed", "steps/s", (run) => run.steps_per_s, "down"],
  ["left", "progress", (run) => run.progress, "down"],
  ["cost", "cost", (run) => run.cost, "down"],
  ["begun", "started", (run) => run.begun_unix_s, "down"],
];
const NUMERIC = new Set(["return", "steps", "speed", "cost"]);

function progressOf(run) {
  if (run.progress === null) return [];
  const left = run.state === "running" && run.remaining_s !== null ? `${span(run.remaining_s)} left` : percent(run.progress);
  return [h("progress", { max: 1, value: Math.min(run.progress, 1), ariaLabel: "progress" }), h("small", {}, left)];
}

// one line of the table, which is kept as long as the run is there
class Line {
  constructor(run, { isSelected, select }) {
    this.box = h("input", { type: "checkbox", checked: isSelected, onchange: () => select(this.run.id, this.box.checked) });
    this.link = h("a", { href: `/run/${run.id}` });
    this.path = h("small");
    this.cells = Object.fromEntries(COLUMNS.map(([name, label]) => [name, h("td", { class: `c-${name}${NUMERIC.has(name) ? " n" : ""}`, "data-label": label })]));
    this.cells.name.append(this.link, this.path);
    this.fill = Object.fromEntries(["state", "return", "left"].map((name) => [name, kept(this.cells[name], FILL[name])]));
    this.row = h("tr", {}, h("td", { class: "c-pick" }, this.box), Object.values(this.cells));
    this.set(run);
  }

  set(run) {
    this.run = run;
    this.box.ariaLabel = `compare ${title(run)}, ${run.name}`;
    setText(this.link, title(run) + (run.seed === null ? "" : ` · seed ${run.seed}`));
    setText(this.path, run.name);
    this.fill.state({ state: run.state, how: run.how });
    this.fill.return({ spark: run.spark, value: run.mean_return_100, best: run.best_return });
    this.fill.left({ progress: run.progress, state: run.state, remaining_s: run.remaining_s });
    setText(this.cells.steps, short(run.steps));
    setText(this.cells.speed, run.state === "running" ? short(run.steps_per_s) : "–");
    setText(this.cells.cost, money(run.cost));
    this.words = `${title(run)} ${run.name} ${run.state} ${run.how} seed ${run.seed}`.toLowerCase();
  }

  age(now) {
    setText(this.cells.begun, ago(this.run.begun_unix_s, now));
    this.cells.begun.title = moment(this.run.begun_unix_s);
  }
}
const FILL = {
  state: ({ state, how }) => [h("span", { class: `state ${state}` }, state), how && h("small", { title: how }, how)],
  return: ({ spark: points, value, best }) => [spark(points), h("b", {}, amount(value)), h("small", {}, best === null ? "" : `best ${amount(best)}`)],
  left: progressOf,
};

export function showOverview(main) {
  document.title = "Redline";
  const lines = new Map();
  const selected = new Set(address.get("pick").split(",").filter(Boolean));
  let [mark, now, most] = ["", Date.now() / 1000, SHOWN_AT_FIRST];
  let fleets = [];

  const filter = h("input", { type: "search", ariaLabel: "filter runs", placeholder: "filter: game, algorithm, seed …  ( / )", value: address.get("q"),
    oninput: () => { address.set({ q: filter.value }); arrange(); } });
  const states = h("div", { class: "chips", role: "group", ariaLabel: "state" });
  const compare = h("a", { class: "button", hidden: true });
  const count = h("p", { class: "under", role: "status" });
  const more = h("button", { class: "button", hidden: true, onclick: () => { most += 1000; arrange(); } }, "show more");
  const body = h("tbody");
  const heads = COLUMNS.map(([name, label]) => h("th", { scope: "col", class: `c-${name}${NUMERIC.has(name) ? " n" : ""}` },
    h("button", { onclick: () => sortBy(name) }, label)));
  const sorting = h("select", { ariaLabel: "sort by", onchange: () => sortBy(sorting.value) }, COLUMNS.map(([name, label]) => h("option", { value: name }, label)));
  const fleetCards = h("div", { class: "grid fleets" });
  main.append(
    h("header", { class: "head" }, h("h1", {}, "Runs"), count),
    fleetCards,
    h("div", { class: "tools" }, filter, states, h("label", { class: "sorting" }, "sort by ", sorting), compare),
    h("div", { class: "scroll card runs", role: "region", ariaLabel: "runs", tabIndex: 0 },
      h("table", {}, h("thead", {}, h("tr", {}, h("th", { scope: "col", class: "c-pick" }, h("span", { class: "unseen" }, "compare")), heads)), body)),
    more,
  );

  const showFleets = kept(fleetCards, (found) => found.map((fleet) =>
    h("a", { class: "card fleet", href: `/fleet/${fleet.id}` }, h("strong", {}, fleet.name),
      h("small", {}, Object.entries(fleet.counts).filter(([, many]) => many).map(([state, many]) => `${many} ${state}`).join(" · ")))));
  const showStates = kept(states, ({ counts, chosen }) => ["", ...STATES].filter((state) => !state || counts[state] || chosen === state).map((state) =>
    h("button", { ariaPressed: String(chosen === state), onclick: () => { address.set({ state }); arrange(); } },
      state || "all", " ", h("small", {}, state ? counts[state] ?? 0 : lines.size))));

  function order() {
    const told = address.get("sort", "-begun");
    const name = told.replace(/^-/, "");
    return COLUMNS.some(([known]) => known === name) ? [name, told.startsWith("-") ? -1 : 1] : ["begun", -1];
  }

  function sortBy(name) {
    const [known, sign] = order();
    const first = COLUMNS.find(([one]) => one === name)[3] === "down" ? -1 : 1;
    const chosen = (known === name ? -sign : first) < 0 ? `-${name}` : name;
    address.set({ sort: chosen === "-begun" ? null : chosen });
    arrange();
  }

  function select(id, isOn) {
    if (isOn) selected.add(id);
    else selected.delete(id);
    address.set({ pick: [...selected].join(",") });
    arrange();
  }

  function arrange() {
    const [name, sign] = order();
    const value = COLUMNS.find(([known]) => known === name)[2];
    const words = filter.value.toLowerCase().split(/\s+/).filter(Boolean);
    const state = address.get("state");
    const counts = {};
    const all = [...lines.values()];
    for (const { run } of all) counts[run.state] = (counts[run.state] ?? 0) + 1;
    const shown = all.filter((line) => (!state || line.run.state === state) && words.every((word) => line.words.includes(word)));
    const keys = new Map(shown.map((line) => [line, value(line.run)]));
    shown.sort((one, other) => {
      const [a, b] = [keys.get(one), keys.get(other)];
      if (a === b) return one.run.id < other.run.id ? -1 : 1;
      if (a === null || a === undefined) return 1;
      if (b === null || b === undefined) return -1;
      return (a < b ? -1 : 1) * sign;
    });
    const rows = shown.slice(0, most).map((line) => line.row);
    if (rows.length !== body.children.length || rows.some((row, place) => body.children[place] !== row)) body.replaceChildren(...rows);
    heads.forEach((head, place) => {
      const isKey = COLUMNS[place][0] === name;
      if (isKey) head.ariaSort = sign > 0 ? "ascending" : "descending";
      else head.removeAttribute("aria-sort");
    });
    sorting.value = name;
    more.hidden = shown.length <= most;
    setText(count, lines.size ? `${shown.length === lines.size ? "" : `${shown.length.toLocaleString("en")} of `}${lines.size.toLocaleString("en")} run${lines.size === 1 ? "" : "s"}` : "No run yet: redline train starts one.");
    showStates({ counts, chosen: state });
    const picked = [...selected].filter((id) => lines.has(id));
    compare.hidden = picked.length === 0;
    compare.href = `/compare?ids=${picked.join(",")}`;
    setText(compare, `compare ${picked.length}`);
  }

  function take(answer) {
    mark = answer.mark;
    now = answer.now_unix_s;
    if (answer.whole) {
      lines.clear();
      if (answer.needs_token) document.dispatchEvent(new Event("needs-token"));
    }
    for (const run of answer.runs) {
      const line = lines.get(run.id);
      if (line) line.set(run);
      else lines.set(run.id, new Line(run, { isSelected: selected.has(run.id), select }));
    }
    for (const id of answer.gone) lines.delete(id);
    fleets = answer.fleets ?? fleets;
    showFleets(fleets);
    arrange();
  }

  const stop = keepLooking(async () => {
    const answer = await ask(`/api/runs?mark=${mark}`);
    if (answer) take(answer);
    now = answer ? answer.now_unix_s : now + 1;
    for (const line of lines.values()) line.age(now);
  }, (error) => main.replaceChildren(h("p", { class: "notice missing" }, error.message)));

  const rowOf = (step) => {
    const links = [...body.querySelectorAll("a")];
    const at = links.indexOf(document.activeElement);
    links[Math.max(0, Math.min(links.length - 1, at + step))]?.focus();
    return links.length > 0;
  };
  const keys = {
    "/": () => { filter.focus(); return true; },
    j: () => rowOf(1),
    k: () => rowOf(-1),
    x: () => { document.activeElement.closest?.("tr")?.querySelector("input")?.click(); return true; },
    c: () => { if (!compare.hidden) compare.click(); return true; },
  };
  return { close: stop, key: (name) => keys[name]?.() };
}

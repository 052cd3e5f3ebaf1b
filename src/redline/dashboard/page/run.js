// One run, live.
import { h, kept, setText, table } from "./dom.js";
import { Panel } from "./panel.js";
import { Rows } from "./rows.js";
import { ask, keepLooking } from "./server.js";
import { shares } from "./shares.js";
import { AXES, axisButtons, Sight } from "./sight.js";
import { showVideos } from "./video.js";
import { ago, percent } from "./words.js";

const SIZES = [[1e12, "TB"], [1e9, "GB"], [1e6, "MB"], [1e3, "kB"]];
const READING_MS = 150;
const RETURN = { name: "return", title: "Return", unit: "unclipped; a click on an episode plays it", kind: "episodes", group: "return" };

function returnChart(rows, axis) {
  const { x, mean, evaluations } = rows.kinds.episodes;
  const lines = [];
  if (x.length) {
    lines.push({ label: "each episode", key: 0, colour: 0, x: 0, y: mean.return, points: true, faint: true });
    lines.push({ label: "mean of the last 100", key: 1, colour: 0, x: 0, y: mean.mean });
  }
  if (evaluations.x.length) lines.push({ label: "evaluations", key: 2, colour: 1, x: 1, y: evaluations.mean, points: true });
  return { axis: AXES[axis], columns: [x, evaluations.x], lines };
}

function seriesChart(spec, rows, axis) {
  const { x, mean, low, high } = rows.kinds[spec.kind];
  const found = spec.series.filter(([column]) => mean[column]);
  let scale = spec.scale ?? 1;
  if (spec.unit.startsWith("bytes")) {
    const largest = Math.max(...found.map(([column]) => mean[column].reduce((most, value) => Math.max(most, value ?? 0), 0)), 0);
    const [divisor, unit] = SIZES.find(([limit]) => largest >= limit) ?? [1, "B"];
    scale = 1 / divisor;
    spec.shownUnit = spec.unit.replace("bytes", unit);
  }
  const scaled = (y) => (scale === 1 ? y : y.map((value) => (value == null ? value : value * scale)));
  const lines = found.map(([column, label], place) => ({
    label, key: place, colour: place % 8, dash: Math.floor(place / 8), faint: spec.is_faint, x: 0, y: scaled(mean[column]),
    ...(low[column] && !spec.is_faint ? { low: scaled(low[column]), high: scaled(high[column]) } : {}),
  }));
  const all = [x];
  if (spec.limit && x.length) {
    all.push([x[0], x.at(-1) + 1e-9]);
    lines.push({ label: spec.limit.label, key: found.length, colour: 7, dash: 1, x: 1, y: [spec.limit.value, spec.limit.value] });
  }
  return { axis: AXES[axis], columns: all, lines, bottom: spec.bottom ?? undefined, top: spec.top ?? undefined };
}

function section(title, id, ...children) {
  return h("section", { id, ariaLabel: title }, h("h2", {}, title), children);
}

export function showRun(main, id) {
  const rows = new Rows();
  const marks = { live: "", about: "" };
  const panels = new Map();
  let [now, isAllowedToStop, lastState] = [0, false, ""];
  let about = null;
  let live = null;
  let looking = null;

  const sight = new Sight("minutes", () => refetch());
  const axis = axisButtons((name) => setAxis(name));
  const title = h("h1", {}, "…");
  const state = h("span", { class: "state" });
  const stopButton = h("button", { class: "button danger", hidden: true, onclick: () => askToStop() }, "stop this run");
  const under = h("p", { class: "under" });
  const bar = h("progress", { max: 1, ariaLabel: "progress" });
  const reading = h("div", { class: "reading", role: "status", hidden: true }, "reading the run's files … ", h("progress", { max: 1, value: 0, ariaLabel: "reading" }), h("b"));
  const reset = h("button", { class: "button", hidden: true, onclick: () => sight.zoom(null, null) }, "show everything");
  const problem = h("p", { class: "notice missing", hidden: true });
  const parts = Object.fromEntries(["tiles", "shares", "events", "settings", "facts"].map((name) => [name, h("div")]));
  const grids = new Map();
  const videos = showVideos(id, () => live);
  const hardware = h("div");
  const grid = (name) => {
    if (!grids.has(name)) grids.set(name, h("div", { class: "grid" }));
    return grids.get(name);
  };
  const links = [["learning", "learning"], ["episodes", "episodes"], ["speed", "speed"], ["hardware", "hardware"], ["settings", "settings"], ["events", "events"]];
  main.append(
    h("header", { class: "head" }, h("div", { class: "titled" }, title, state, stopButton), under),
    reading, problem, parts.tiles,
    h("div", { class: "tools sticky" }, axis.box, reset, h("nav", { ariaLabel: "parts of this page" }, links.map(([part, words]) => h("a", { href: `#${part}` }, words)))),
    section("Learning", "learning", h("div", { class: "wide" }, grid("return")), grid("learning")),
    section("Episodes", "episodes", videos.element),
    section("Speed, and who waits for whom", "speed", grid("speed"), parts.shares),
    h("section", { id: "hardware", ariaLabel: "Hardware" }, h("h2", {}, "Hardware"), hardware),
    section("Settings: requested → effective", "settings", parts.settings, parts.facts),
    section("Events", "events", parts.events),
  );

  const fill = {
    tiles: kept(parts.tiles, (tiles) => h("dl", { class: "tiles" }, tiles.map(([name, value, note]) =>
      h("div", {}, h("dt", {}, name), h("dd", {}, value, h("small", {}, note)))))),
    shares: kept(parts.shares, (charts) => h("div", { class: "grid" }, charts.map(shares))),
    events: kept(parts.events, (lines) => lines.length
      ? table({ name: "events", css: "long wrap", head: ["after", "steps", "event", "details"], numeric: [0, 1], rows: lines })
      : h("p", { class: "under" }, "None on record.")),
    settings: kept(parts.settings, ({ changes, settings }) => [
      changes.length
        ? table({ name: "settings that were changed", css: "wrap", head: ["when", "setting", "requested", "effective", "why"], rows: changes })
        : h("p", {}, settings.length ? "All settings are as requested." : "The run's files hold no settings."),
      settings.length && h("details", { class: "fold" }, h("summary", {}, `All ${settings.length} settings`),
        table({ name: "all settings", css: "columns", head: ["setting", "in force"], rows: settings })),
    ]),
    facts: kept(parts.facts, (facts) => h("dl", { class: "about" }, facts.map(([name, value]) => h("div", {}, h("dt", {}, name), h("dd", {}, value))))),
  };

  function panelFor(spec, make) {
    const known = panels.get(spec.name);
    const shape = JSON.stringify(spec.series ?? null);
    if (known && known.shapeOfSpec === shape) return known;
    known?.close();
    const panel = new Panel(spec, make, sight);
    panel.shapeOfSpec = shape;
    if (known) known.figure.replaceWith(panel.figure);
    panels.set(spec.name, panel);
    return panel;
  }

  function showCharts() {
    const specs = [{ ...RETURN, pick: (plot) => pickEpisode(plot) }, ...about.charts];
    const names = new Set(specs.map((spec) => spec.name));
    for (const [name, panel] of panels) {
      if (names.has(name)) continue;
      panel.close();
      panel.figure.remove();
      panels.delete(name);
    }
    for (const spec of specs) {
      const isHardware = spec.kind === "hardware";
      const make = spec.kind === "episodes" ? () => returnChart(rows, sight.axis) : () => withUnit(spec);
      const panel = panelFor(spec, make);
      const home = grid(isHardware ? `hardware ${spec.group}` : spec.group);
      if (isHardware && !home.isConnected) hardware.append(h("section", {}, h("h3", {}, spec.group), home));
      if (panel.figure.parentElement !== home) home.append(panel.figure);
    }
    const isSampled = about.charts.some((spec) => spec.kind === "hardware");
    if (!isSampled) hardware.replaceChildren(h("p", { class: "under" }, "There is no hardware sample yet."));
    else hardware.querySelector(":scope > p")?.remove();
  }

  function withUnit(spec) {
    const chart = seriesChart(spec, rows, sight.axis);
    const panel = panels.get(spec.name);
    if (spec.shownUnit) setText(panel.figure.querySelector("figcaption span"), spec.shownUnit);
    return chart;
  }

  function pickEpisode(plot) {
    const number = plot.cursor.left < 0 ? undefined : rows.episodeAt(plot);
    if (number !== undefined && live?.recorded) videos.play(String(number));
  }

  function refreshCharts(kinds) {
    for (const panel of panels.values()) if (!kinds || kinds.includes(panel.spec.kind)) panel.refresh();
  }

  function refetch() {
    rows.clear();
    reset.hidden = sight.window() === null;
    looking?.now();
  }

  function setAxis(name) {
    sight.setAxis(name);
    axis.show(name);
    refetch();
  }

  async function askToStop() {
    const dialog = h("dialog", { ariaLabel: "stop this run" },
      h("h2", {}, "Stop this run?"),
      h("p", {}, "It saves a checkpoint and ends. ", h("code", {}, "redline resume"), " goes on with it."),
      h("form", { method: "dialog" }, h("button", { value: "no" }, "let it run"), h("button", { value: "yes", class: "danger" }, "stop it")));
    dialog.addEventListener("close", async () => {
      dialog.remove();
      if (dialog.returnValue !== "yes") return;
      try {
        await ask(`/api/runs/${id}/stop`, { method: "POST" });
        stopButton.disabled = true;
        setText(stopButton, "asked to stop");
      } catch (error) {
        setText(stopButton, error.message);
      }
    });
    document.body.append(dialog);
    dialog.showModal();
  }

  function showLive() {
    const isRunning = live.state === "running";
    setText(state, live.state);
    state.className = `state ${live.state}`;
    stopButton.hidden = !isAllowedToStop || !isRunning;
    if (live.state !== lastState && isRunning) {
      stopButton.disabled = false;
      setText(stopButton, "stop this run");
    }
    lastState = live.state;
    bar.hidden = live.progress === null || !isRunning;
    if (live.progress !== null) bar.value = live.progress;
    fill.tiles(live.tiles);
    fill.shares(live.shares);
    fill.events(live.events);
    if (about) document.title = `${isRunning && live.progress !== null ? `${percent(live.progress)} · ` : ""}${about.title} · Redline`;
  }

  function showAbout() {
    setText(title, about.title);
    problem.hidden = !about.problem;
    setText(problem, about.problem ?? "");
    fill.settings({ changes: about.changes, settings: about.settings });
    fill.facts(about.facts);
    showCharts();
  }

  function age() {
    if (!live) return;
    const heard = live.heard_unix_s === null ? "" : `newest row ${ago(live.heard_unix_s, now)}`;
    setText(under, [about?.name, live.how, heard].filter(Boolean).join(" · "));
  }

  axis.show(sight.axis);
  reset.hidden = sight.window() === null;

  async function look() {
    const window = sight.window();
    const [asked, pixels] = [sight.axis, Math.min(1000, Math.max(200, Math.round(main.clientWidth)))];
    const query = `axis=${asked}&pixels=${pixels}${window ? `&from=${window[0]}&to=${window[1]}` : ""}&live=${marks.live}&about=${marks.about}&${rows.marks}`;
    const answer = await ask(`/api/runs/${id}/rows?${query}`);
    now = Date.now() / 1000;
    if (answer?.progress !== undefined && answer.progress !== null) {
      reading.hidden = false;
      reading.querySelector("progress").value = answer.progress;
      setText(reading.querySelector("b"), ` ${percent(answer.progress)}`);
      return READING_MS;
    }
    reading.hidden = true;
    if (answer && (asked !== sight.axis || String(window) !== String(sight.window()))) return 0; // the user was faster
    if (answer) {
      if (answer.live) [live, marks.live, isAllowedToStop] = [answer.live, answer.live.mark, answer.live.allow_stop];
      if (answer.about) [about, marks.about] = [answer.about, answer.about.mark];
      const changed = rows.take(answer);
      if (answer.about) showAbout();
      if (answer.live) showLive();
      if (changed.length) refreshCharts(changed);
      videos.update();
    }
    age();
    return undefined;
  }

  looking = keepLooking(look, (error) => {
    problem.hidden = false;
    setText(problem, error.message);
    reading.hidden = true;
  });

  const keys = { m: () => setAxis("minutes"), s: () => setAxis("steps"), u: () => setAxis("cpu_s"), 0: () => sight.zoom(null, null) };
  return {
    close: () => {
      looking();
      videos.close();
      panels.forEach((panel) => panel.close());
    },
    key: (name) => {
      keys[name]?.();
      return name in keys;
    },
  };
}

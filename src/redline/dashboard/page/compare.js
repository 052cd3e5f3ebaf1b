// Several runs in one chart: a line for each group of equal settings, a band over its seeds.
import * as address from "./address.js";
import { h, kept, setText, table } from "./dom.js";
import { Panel } from "./panel.js";
import { ask, keepLooking } from "./server.js";
import { axisButtons, Sight } from "./sight.js";
import { amount, percent, short } from "./words.js";

export function showComparison(main) {
  document.title = "compared · Redline";
  const panels = new Map();
  const charts = new Map();
  const sight = new Sight("steps", () => panels.forEach((panel) => panel.refresh()));
  const axis = axisButtons((name) => {
    sight.setAxis(name);
    axis.show(name);
    looking.now();
  });
  const ids = () => address.get("ids").split(",").filter(Boolean);
  const count = h("p", { class: "under", role: "status" });
  const grid = h("div", { class: "grid wide" });
  const rows = h("div");
  main.append(
    h("header", { class: "head" }, h("h1", {}, "Runs compared"), count),
    h("div", { class: "tools sticky" }, axis.box),
    h("p", { class: "lead" }, "Runs that differ only in seed and limits are one group: a line is the median of a group, a band spans its runs."),
    grid, rows);
  axis.show(sight.axis);

  const remove = (id) => {
    address.set({ ids: ids().filter((one) => one !== id).join(",") });
    looking.now();
  };
  const showRows = kept(rows, (runs) => table({
    name: "runs", css: "compared", head: ["run", "group", "state", "return, last 100", "best", "steps", "steps/s", ""], numeric: [3, 4, 5, 6],
    rows: runs.map((run) => [
      h("a", { href: `/run/${run.id}` }, run.name), run.group, h("span", { class: `state ${run.state}` }, run.state),
      amount(run.mean_return_100), amount(run.best_return), short(run.steps), short(run.steps_per_s),
      h("button", { type: "button", class: "button", ariaLabel: `leave out ${run.name}`, onclick: () => remove(run.id) }, "leave out")]),
  }));

  function take(answer) {
    setText(count, `${answer.runs.length} runs in ${new Set(answer.runs.map((run) => run.group)).size} groups`);
    charts.clear();
    answer.charts.forEach((chart, place) => charts.set(`game-${place}`, chart));
    for (const [name, panel] of panels) {
      if (charts.get(name)?.title === panel.spec.title) continue;
      panel.close();
      panel.figure.remove();
      panels.delete(name);
    }
    for (const [name, { title, unit }] of charts) {
      if (!panels.has(name)) {
        const panel = new Panel({ name, title, unit }, () => charts.get(name).chart, sight);
        panels.set(name, panel);
        grid.append(panel.figure);
      }
      panels.get(name).refresh();
    }
    showRows(answer.runs);
  }

  const looking = keepLooking(async () => {
    if (!ids().length) {
      setText(count, "No run is selected.");
      return 5000;
    }
    const answer = await ask(`/api/compare?axis=${sight.axis}&ids=${ids().join(",")}`);
    if (answer.progress !== undefined) {
      setText(count, `reading the runs' files … ${percent(answer.progress)}`);
      return 200;
    }
    take(answer);
    const isLive = answer.runs.some((run) => run.state === "running");
    return isLive ? 5000 : 15000;
  }, (error) => setText(count, error.message));

  const keys = { 0: () => sight.zoom(null, null) };
  return {
    close: () => {
      looking();
      panels.forEach((panel) => panel.close());
    },
    key: (name) => {
      keys[name]?.();
      return name in keys;
    },
  };
}

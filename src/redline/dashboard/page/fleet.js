// A fleet: its games with state, score, health and time left; incidents; the bill.
import { h, kept, setText, table } from "./dom.js";
import { spark } from "./spark.js";
import { ask, keepLooking } from "./server.js";
import { ago, amount, short, span } from "./words.js";

const css = (state) => `state ${state.replace(" ", "-")}`;

function slotRow(slot) {
  const what = `${slot.what} · seed ${slot.seed}`;
  const health = slot.incidents ? h("span", { class: "ill" }, `${slot.incidents} incident${slot.incidents > 1 ? "s" : ""}`) : "";
  const left = slot.state === "running" && slot.left_s !== null ? `${span(slot.left_s)} left` : slot.attempt > 1 ? `attempt ${slot.attempt}` : "";
  return h("tr", {},
    h("td", {}, slot.run ? h("a", { href: `/run/${slot.run}` }, what) : what, health && h("small", {}, health)),
    h("td", {}, h("span", { class: css(slot.state) }, slot.state), slot.reason && h("small", { title: slot.reason }, slot.reason)),
    h("td", { class: "n" }, h("b", {}, amount(slot.score)), h("small", {}, slot.steps ? `${short(slot.steps)} steps` : "")),
    h("td", {}, spark(slot.spark), h("small", {}, left)));
}

function gameCard([game, slots]) {
  return h("section", { class: "card game", ariaLabel: game }, h("h3", {}, game),
    h("div", { class: "scroll", role: "region", ariaLabel: `runs of ${game}`, tabIndex: 0 }, h("table", {},
      h("thead", { class: "unseen" }, h("tr", {}, ["run", "state", "return, last 100", "curve"].map((name) => h("th", { scope: "col" }, name)))),
      h("tbody", {}, slots.map(slotRow)))));
}

export function showFleet(main, id) {
  const [title, under, problem] = [h("h1", {}, "…"), h("p", { class: "under" }), h("p", { class: "notice missing", hidden: true })];
  const [tiles, games, incidents] = [h("div"), h("div", { class: "grid games" }), h("div")];
  let mark = "";
  main.append(h("header", { class: "head" }, title, under), problem, tiles,
    h("section", { ariaLabel: "Games" }, h("h2", {}, "Games"), games),
    h("section", { ariaLabel: "Incidents" }, h("h2", {}, "Incidents"), incidents));

  const fillTiles = kept(tiles, (known) => h("dl", { class: "tiles" }, known.map(([name, value, note]) =>
    h("div", {}, h("dt", {}, name), h("dd", {}, value, h("small", {}, note))))));
  const fillGames = kept(games, (slots) => {
    const found = new Map();
    for (const slot of slots) found.set(slot.game, [...(found.get(slot.game) ?? []), slot]);
    return [...found].map(gameCard);
  });
  const fillIncidents = kept(incidents, ({ rows, now }) => rows.length
    ? table({ name: "incidents", css: "long wrap", head: ["when", "kind", "slot", "what happened", "what to do"],
      rows: rows.map((one) => [h("span", {}, ago(one.unix_s, now), one.is_open && h("small", { class: "ill" }, "not over")), one.kind, one.slot, one.message, one.remedy]) })
    : h("p", { class: "under" }, "None on record."));

  function take(fleet) {
    mark = fleet.mark;
    const { counts, bill } = fleet;
    document.title = `${fleet.name} · Redline`;
    setText(title, fleet.name);
    setText(under, [fleet.is_supervised ? "supervised" : "no supervisor at work", fleet.packing].filter(Boolean).join(" · "));
    problem.hidden = !fleet.problem;
    setText(problem, fleet.problem);
    const open = fleet.incidents.filter((one) => one.is_open).length;
    fillTiles([
      ...Object.entries(counts).filter(([state, many]) => many || state === "running").map(([state, many]) => [state, String(many), "runs"]),
      ["time left", span(fleet.left_s), "until the last run ends"],
      ["incidents", String(fleet.incidents.length), open ? `${open} not over` : "all are over"],
      ["time trained", span(bill.hours_s), `in which a run trained, at most ${bill.most} at a time`],
      ...(bill.cost ? [["bill so far", bill.cost, bill.price]] : []),
    ]);
    fillGames(fleet.slots);
    fillIncidents({ rows: fleet.incidents, now: Math.round(fleet.now_unix_s / 60) * 60 });
  }

  const stop = keepLooking(async () => {
    const answer = await ask(`/api/fleets/${id}?mark=${mark}`);
    if (answer) take(answer);
    return 2000;
  }, (error) => {
    problem.hidden = false;
    setText(problem, error.message);
  });
  return { close: stop };
}

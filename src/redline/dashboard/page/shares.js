// Where the time of each process goes, as bars.
import { h } from "./dom.js";

const ink = (colour, isPale) => `s${colour ?? "rest"}${isPale ? " pale" : ""}`;

export function shares(chart) {
  const inks = new Map(chart.inks.map(([name, colour, isPale]) => [name, ink(colour, isPale)]));
  const row = ([label, parts]) => {
    const track = h("div", { class: "track", role: "img", ariaLabel: parts.map(([name, part]) => `${name} ${Math.round(part * 100)} %`).join(", ") });
    for (const [name, part] of parts) {
      const bar = h("i", { class: inks.get(name), title: `${name} ${(part * 100).toFixed(1)} %` }, part >= 0.08 ? h("b", {}, Math.round(part * 100)) : null);
      bar.style.width = `${Math.min(100, part * 100)}%`;
      track.append(bar);
    }
    return h("div", { class: "row" }, h("span", {}, label), track);
  };
  return h("figure", { class: "card shares", "data-name": `shares-${chart.name}` },
    h("figcaption", {}, h("b", {}, chart.title), h("span", {}, chart.unit)),
    h("ul", { class: "keys" }, chart.inks.map(([name, colour, isPale]) => h("li", {}, h("i", { class: ink(colour, isPale) }), name))),
    chart.bars.map(row));
}

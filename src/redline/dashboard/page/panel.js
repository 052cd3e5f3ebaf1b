// A live chart: drawn when it comes near the window, redrawn when its rows grow.
import { h } from "./dom.js";

const HEIGHT_PX = 210;

const near = new IntersectionObserver((entries) => {
  for (const { isIntersecting, target } of entries) target.panel.approach(isIntersecting);
}, { rootMargin: "300px" });
const sizes = new ResizeObserver((entries) => {
  for (const { target } of entries) {
    const { plot } = target.closest("figure").panel;
    if (plot && target.clientWidth && plot.width !== target.clientWidth) plot.setSize({ width: target.clientWidth, height: HEIGHT_PX });
  }
});
const panels = new Set();
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => panels.forEach((panel) => panel.redraw()));

export class Panel {
  // `make` returns the chart as it is now; `view` has zoom, window, isLog and isHidden of the page
  constructor(spec, make, view) {
    Object.assign(this, { spec, make, view, plot: null, isNear: false, isStale: true, shape: "" });
    this.holder = h("div", { class: "plot", role: "group" });
    this.legend = h("ul", { class: "keys" });
    this.log = h("button", { type: "button", class: "log", onclick: () => this.toggleLog() }, "log");
    this.figure = h("figure", { class: "card lines", "data-name": spec.name },
      h("figcaption", {}, h("b", {}, spec.title), h("span", {}, spec.unit)),
      h("div", { class: "corner" }, h("button", { type: "button", class: "reset", onclick: () => view.zoom(null, null) }, "reset zoom"), this.log),
      this.legend, this.holder);
    this.figure.panel = this;
    panels.add(this);
    near.observe(this.figure);
    sizes.observe(this.holder);
  }

  close() {
    near.unobserve(this.figure);
    sizes.unobserve(this.holder);
    this.plot?.destroy();
    this.plot = null;
    panels.delete(this);
  }

  approach(isNear) {
    this.isNear = isNear;
    if (isNear && this.isStale) this.refresh();
  }

  refresh() {
    this.isStale = true;
    if (!this.isNear) return;
    this.isStale = false;
    const chart = this.make();
    const isEmpty = !chart.columns.some((column) => column.length);
    const shape = JSON.stringify([chart.axis, chart.lines.map(({ label, colour, low }) => [label, colour, Boolean(low)]), this.view.isLog(this.spec.name), isEmpty]);
    if (isEmpty) {
      this.plot?.destroy();
      this.plot = null;
      this.holder.replaceChildren("no values yet");
    } else if (this.plot && shape === this.shape) {
      this.plot.setData(prepare(chart, this.view.isLog(this.spec.name)).data, false);
    } else {
      this.draw(chart);
    }
    this.shape = shape;
    this.place(chart);
    this.holder.ariaLabel = `${this.spec.title}, ${this.spec.unit}, against ${chart.axis}. ${summary(chart)}`;
  }

  draw(chart) {
    this.plot?.destroy();
    const isLog = this.view.isLog(this.spec.name);
    this.log.ariaPressed = String(isLog);
    this.plot = plotInto(this.holder, chart, { isLog, zoom: this.view.zoom });
    if (this.spec.pick) this.listenToClicks();
    this.drawLegend(chart);
    for (const key of this.view.hidden(this.spec.name)) this.toggle(key, false);
  }

  listenToClicks() {
    const { plot } = this;
    let begun = null;
    plot.over.addEventListener("mousedown", (event) => (begun = event.clientX));
    // the end of a drag is no click
    plot.over.addEventListener("click", (event) => begun !== null && Math.abs(event.clientX - begun) < 4 && this.spec.pick(plot));
  }

  // shows the part of the axis that the page has zoomed to, or all of it
  place(chart) {
    if (!this.plot) return;
    const window = this.view.window();
    const ends = chart.columns.filter((column) => column.length).flatMap((column) => [column[0], column.at(-1)]);
    const [min, max] = window ?? [Math.min(...ends), Math.max(...ends)];
    this.plot.setScale("x", { min, max });
    this.figure.classList.toggle("zoomed", window !== null);
  }

  drawLegend(chart) {
    const listed = chart.lines.filter((line, place) => chart.lines.findIndex((other) => other.key === line.key) === place);
    this.legend.hidden = listed.length < 2;
    this.legend.replaceChildren(...listed.map((line) => {
      const mark = h("i", { class: `dash${(line.dash ?? 0) % 5}${line.points ? " dot" : ""} s${line.colour}` });
      const button = h("button", { type: "button", ariaPressed: String(!this.view.hidden(this.spec.name).includes(line.key)),
        onclick: () => {
          const isShown = button.ariaPressed !== "true";
          button.ariaPressed = String(isShown);
          this.toggle(line.key, isShown);
          this.view.hide(this.spec.name, line.key, !isShown);
        } }, mark, line.label);
      return h("li", {}, button);
    }));
  }

  toggle(key, isShown) {
    this.plot?.series.forEach((series, place) => {
      const line = series.line ?? series.edge;
      if (line && line.key === key) this.plot.setSeries(place, { show: isShown });
    });
  }

  toggleLog() {
    this.view.setLog(this.spec.name, !this.view.isLog(this.spec.name));
    this.refresh();
  }

  redraw() {
    this.shape = "";
    this.refresh();
  }
}

// what a screen reader says of a chart
function summary(chart) {
  return chart.lines.slice(0, 4).map((line) => {
    const last = line.y.findLast((value) => value != null);
    return last === undefined ? "" : `${line.label}: now ${words(last)}`;
  }).filter(Boolean).join("; ");
}

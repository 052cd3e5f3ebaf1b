"use strict";
// What a cursor over a chart reads: the nearest value of each series. The charts are there without it.
const MAX_ROWS = 10;

function words(value) {
  if (value !== 0 && (Math.abs(value) >= 1e6 || Math.abs(value) < 1e-3)) return value.toExponential(2).replace("-", "−");
  return value.toLocaleString("en", { maximumSignificantDigits: 4 }).replace("-", "−");
}

function nearest(column, x) {
  let low = 0;
  let high = column.length - 1;
  while (high - low > 1) {
    const middle = (low + high) >> 1;
    if (column[middle] < x) low = middle;
    else high = middle;
  }
  return Math.abs(column[low] - x) <= Math.abs(column[high] - x) ? low : high;
}

function nearestPoint(line, column, x, y, chart) {
  const across = chart.xs[1] - chart.xs[0];
  const up = chart.ys[1] - chart.ys[0];
  let best = 0;
  let least = Infinity;
  column.forEach((value, place) => {
    const distance = Math.hypot((value - x) / across, (line.y[place] - y) / up);
    if (distance < least) [best, least] = [place, distance];
  });
  return [best, least];
}

function row(box, colour, label, value) {
  const line = document.createElement("div");
  const mark = document.createElement("i");
  mark.style.background = colour;
  const name = document.createElement("span");
  name.textContent = label;
  const figure = document.createElement("b");
  figure.textContent = value;
  line.append(...(colour ? [mark] : []), name, figure);
  box.append(line);
}

function found(chart, x, y) {
  const all = chart.lines.map((line) => {
    const column = chart.columns[line.x];
    const [place, distance] = line.points ? nearestPoint(line, column, x, y, chart) : [nearest(column, x), 0];
    const inside = column.length && x >= Math.min(column[0], chart.xs[0]) ? place : 0;
    return { line, x: column[inside], y: line.y[inside], distance };
  });
  if (!chart.lines.every((line) => line.points)) return all;
  return [all.reduce((one, other) => (other.distance < one.distance ? other : one))];
}

function attach(figure) {
  const source = figure.querySelector('script[type="application/json"]');
  const svg = figure.querySelector("svg.chart");
  if (!source || !svg) return;
  let chart = null;
  let layer = null;
  const box = document.createElement("div");
  box.className = "readout";
  box.hidden = true;
  figure.append(box);

  function hide() {
    box.hidden = true;
    if (layer) layer.replaceChildren();
  }

  function shape(name, attributes) {
    const made = document.createElementNS(svg.namespaceURI, name);
    for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
    layer.append(made);
    return made;
  }

  svg.addEventListener("pointermove", (event) => {
    chart ??= JSON.parse(source.textContent);
    layer ??= svg.appendChild(document.createElementNS(svg.namespaceURI, "g"));
    const frame = svg.getBoundingClientRect();
    const scale = svg.viewBox.baseVal.width / frame.width;
    const [left, top, width, height] = chart.box;
    const across = ((event.clientX - frame.left) * scale - left) / width;
    const down = ((event.clientY - frame.top) * scale - top) / height;
    if (across < 0 || across > 1 || down < 0 || down > 1) return hide();
    const x = chart.xs[0] + across * (chart.xs[1] - chart.xs[0]);
    const y = chart.ys[1] - down * (chart.ys[1] - chart.ys[0]);
    const hits = found(chart, x, y);
    box.replaceChildren();
    layer.replaceChildren();
    row(box, "", chart.axis, words(hits[0].x));
    const place = (hit) => [
      left + ((hit.x - chart.xs[0]) / (chart.xs[1] - chart.xs[0])) * width,
      top + ((chart.ys[1] - hit.y) / (chart.ys[1] - chart.ys[0])) * height,
    ];
    const [at] = place(hits[0]);
    shape("line", { class: "cursor", x1: at, x2: at, y1: top, y2: top + height });
    for (const hit of hits.slice(0, MAX_ROWS)) {
      const [cx, cy] = place(hit);
      shape("circle", { class: "spot", cx, cy, r: 4 }).style.fill = `var(--s${hit.line.colour})`;
      row(box, `var(--s${hit.line.colour})`, hit.line.label, words(hit.y));
    }
    if (hits.length > MAX_ROWS) row(box, "", `and ${hits.length - MAX_ROWS} more`, "");
    box.hidden = false;
    const outer = figure.getBoundingClientRect();
    const middle = event.clientX - outer.left;
    const from = middle + 16 + box.offsetWidth > outer.width ? middle - box.offsetWidth - 16 : middle + 16;
    box.style.left = `${Math.max(4, from)}px`;
    box.style.top = `${Math.max(4, event.clientY - outer.top - box.offsetHeight / 2)}px`;
  });
  svg.addEventListener("pointerleave", hide);
}

function openTarget() {
  const target = location.hash && document.getElementById(decodeURIComponent(location.hash.slice(1)));
  if (target instanceof HTMLDetailsElement) target.open = true;
}

document.querySelectorAll("figure").forEach(attach);
window.addEventListener("hashchange", openTarget);
openTarget();

"use strict";
// Charts of the report and of the dashboard, drawn by uPlot: hover reads values, dragging zooms, keys move and zoom.
const HEIGHT_PX = 210;
const MAX_ROWS = 12; // of a tooltip
const DASHES = [[], [6, 3], [2, 2], [8, 3, 2, 3], [12, 4]];
const UNITS = [[1e12, 1e12, "T"], [1e9, 1e9, "G"], [1e6, 1e6, "M"], [1e4, 1e3, "k"]];
const FAINT = "70"; // opacity, as the last two digits of a colour
const BAND = "30";

const property = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();
const minus = (text) => text.replace("-", "−");

function words(value) {
  if (value !== 0 && (Math.abs(value) >= 1e9 || Math.abs(value) < 1e-3)) return minus(value.toExponential(2));
  return minus(value.toLocaleString("en", Math.abs(value) >= 1e3 ? { maximumFractionDigits: 0 } : { maximumSignificantDigits: 4 }));
}

function tickWords(plot, splits) {
  const reach = Math.max(...splits.map(Math.abs));
  const [, divisor, unit] = UNITS.find(([limit]) => reach >= limit) ?? [0, 1, ""];
  const short = (value) => String(Number((value / divisor).toPrecision(4)));
  return splits.map((value) => (value === 0 ? "0" : minus(short(value) + unit)));
}

// on a logarithmic axis uPlot leaves out most numbers, and their ticks have none
function logWords(plot, splits) {
  return splits.map((value) => (value == null ? "" : tickWords(plot, [value])[0]));
}

function axis(more) {
  return {
    stroke: property("--muted"),
    font: "11px system-ui, sans-serif",
    grid: { stroke: property("--grid"), width: 1 },
    ticks: { show: false },
    values: tickWords,
    ...more,
  };
}

function yWidth(plot, values) {
  if (!values?.length) return 30;
  plot.ctx.font = `${11 * devicePixelRatio}px system-ui, sans-serif`;
  return Math.ceil(Math.max(...values.map((text) => plot.ctx.measureText(text).width)) / devicePixelRatio) + 14;
}

// points at one place lie a hair's breadth apart: uPlot can't make ticks for that
const isFlat = (low, high) => high - low <= Math.abs(high) * 1e-9;
const around = (value) => Math.abs(value) * 0.1 || 1;

function yRange(chart) {
  return (plot, min, max) => {
    if (min === null || max === null) return [0, 1];
    const low = chart.bottom === undefined ? min : Math.min(chart.bottom, min);
    const high = chart.top === undefined ? max : Math.max(chart.top, max);
    const air = isFlat(low, high) ? around(high) : (high - low) * 0.06;
    return [low === chart.bottom ? low : low - air, high === chart.top ? high : high + air];
  };
}

function xRange(hasPoints) {
  return (plot, min, max) => {
    if (min === null || max === null) return [0, 1];
    const air = isFlat(min, max) ? around(max) : (max - min) * (hasPoints ? 0.03 : 0);
    return [min - air, max + air];
  };
}

const positive = (values) => values.map((value) => (value > 0 ? value : null));

// the lines as columns and series of uPlot; a band is two series without a stroke
function prepare(chart, isLog = false) {
  const shown = isLog ? positive : (values) => values;
  const tables = [];
  const series = [{}];
  const bands = [];
  for (const line of chart.lines) {
    const colour = property(`--s${line.colour}`);
    const shape = line.points ? { paths: () => null, points: { show: true, size: line.faint ? 4 : 6, fill: line.faint ? colour + FAINT : colour, width: 0 } } : {};
    const stroke = line.faint ? colour + FAINT : colour;
    series.push({
      label: line.label,
      stroke,
      width: line.faint ? 1 : 1.75,
      dash: DASHES[(line.dash ?? 0) % DASHES.length],
      points: { show: false },
      ...shape,
      line,
    });
    tables.push([chart.columns[line.x], shown(line.y)]);
    if (line.low) {
      const edge = { stroke: null, width: 0, points: { show: false }, edge: line };
      series.push(edge, { ...edge });
      tables.push([chart.columns[line.x], shown(line.high)], [chart.columns[line.x], shown(line.low)]);
      bands.push({ series: [series.length - 2, series.length - 1], fill: colour + BAND });
    }
  }
  return { data: tables.length ? uPlot.join(tables) : [[0, 1]], series, bands };
}

// series of one chart have their own places on the axis: read the nearest value of each
function nearestIndex(plot, series, hovered) {
  const values = plot.data[series];
  if (values[hovered] != null) return hovered;
  const x = plot.data[0];
  let [left, right] = [hovered, hovered];
  while (left > 0 && values[left] == null) left--;
  while (right < x.length - 1 && values[right] == null) right++;
  if (values[left] == null) return right;
  if (values[right] == null) return left;
  return x[hovered] - x[left] <= x[right] - x[hovered] ? left : right;
}

function nearestPoint(plot) {
  let best = null;
  plot.series.forEach((series, place) => {
    if (!series.line || series.show === false) return;
    plot.data[place].forEach((y, index) => {
      if (y == null) return;
      const across = plot.valToPos(plot.data[0][index], "x") - plot.cursor.left;
      const distance = Math.hypot(across, plot.valToPos(y, "y") - plot.cursor.top);
      if (!best || distance < best.distance) best = { place, index, distance };
    });
  });
  return best ? [best] : [];
}

function row(colour, label, value) {
  const line = document.createElement("div");
  const parts = [["span", label], ["b", value]];
  if (colour) parts.unshift(["i", ""]);
  for (const [tag, text] of parts) line.appendChild(document.createElement(tag)).textContent = text;
  if (colour) line.firstChild.style.background = colour;
  return line;
}

function hits(plot, isPlane) {
  if (isPlane) return nearestPoint(plot);
  return plot.series
    .map((series, place) => ({ place, index: plot.cursor.idxs[place], line: series.line, show: series.show }))
    .filter(({ place, index, line, show }) => line && show !== false && index != null && plot.data[place][index] != null);
}

function readValues(chart, box) {
  const isPlane = chart.lines.every((line) => line.points);
  return (plot) => {
    const found = plot.cursor.left >= 0 ? hits(plot, isPlane) : [];
    box.hidden = !found.length;
    if (!found.length) return;
    const x = plot.data[0][isPlane ? found[0].index : plot.cursor.idx];
    const rows = found.slice(0, MAX_ROWS).map(({ place, index }) => {
      const { line, label } = plot.series[place];
      const band = line.low ? ` (${words(plot.data[place + 2][index])} … ${words(plot.data[place + 1][index])})` : "";
      return row(`var(--s${line.colour})`, label, words(plot.data[place][index]) + band);
    });
    box.replaceChildren(row("", chart.axis, words(x)), ...rows);
    if (found.length > MAX_ROWS) box.append(row("", `and ${found.length - MAX_ROWS} more`, ""));
    const [width, middle] = [plot.root.parentElement.clientWidth, plot.cursor.left + plot.over.offsetLeft];
    const left = middle + 14 + box.offsetWidth > width ? middle - box.offsetWidth - 14 : middle + 14;
    box.style.left = `${Math.max(0, Math.min(left, width - box.offsetWidth))}px`;
    box.style.top = `${plot.over.offsetTop}px`;
  };
}

// Arrow keys read values, + and − zoom, 0 shows everything: what the mouse does, by the keyboard
function listenToKeys(plot, holder, zoom) {
  holder.tabIndex = 0;
  holder.addEventListener("keydown", (event) => {
    const { min, max } = plot.scales.x;
    const width = plot.over.clientWidth;
    const left = plot.cursor.left >= 0 ? plot.cursor.left : width / 2;
    const moves = { ArrowLeft: -width / 50, ArrowRight: width / 50 };
    const middle = plot.posToVal(left, "x");
    if (event.key in moves) plot.setCursor({ left: Math.max(0, Math.min(width, left + moves[event.key])), top: 20 });
    else if (event.key === "+") zoom((middle + min) / 2, (middle + max) / 2);
    else if (event.key === "-") zoom(min - (max - min) / 2, max + (max - min) / 2);
    else if (event.key === "0") zoom(null, null);
    else return;
    event.preventDefault();
  });
  holder.addEventListener("blur", () => plot.setCursor({ left: -10, top: -10 }));
}

// Two fingers zoom; one scrolls the page, and a tap reads values
function listenToFingers(plot, zoom) {
  let start = null;
  const spread = (event) => {
    const box = plot.over.getBoundingClientRect();
    const places = [...event.touches].map((touch) => touch.clientX - box.left);
    return [Math.min(...places), Math.max(...places)];
  };
  plot.over.addEventListener("touchstart", (event) => {
    start = event.touches.length === 2 ? { places: spread(event), ends: [plot.scales.x.min, plot.scales.x.max] } : null;
  }, { passive: true });
  plot.over.addEventListener("touchmove", (event) => {
    if (!start || event.touches.length !== 2) return;
    event.preventDefault();
    const [left, right] = spread(event);
    const scale = Math.max(start.places[1] - start.places[0], 10) / Math.max(right - left, 10);
    const width = plot.over.clientWidth;
    const perPixel = (start.ends[1] - start.ends[0]) / width;
    const begin = start.ends[0] + (start.places[0] - left * scale) * perPixel;
    zoom(begin, begin + width * scale * perPixel);
  }, { passive: false });
}

function zoomBySelection(zoom) {
  return (plot) => {
    const { left, width } = plot.select;
    if (width < 4) return;
    plot.setSelect({ left: 0, top: 0, width: 0, height: 0 }, false);
    zoom(plot.posToVal(left, "x"), plot.posToVal(left + width, "x"));
  };
}

// `zoom(from, to)` is called for a part of the axis, and with nulls for all of it
function plotInto(holder, chart, { isLog = false, zoom, setScale = () => {} }) {
  const box = document.createElement("div");
  box.className = "readout";
  box.hidden = true;
  const { data, series, bands } = prepare(chart, isLog);
  const y = isLog ? { distr: 3 } : { range: yRange(chart) };
  const options = {
    width: holder.clientWidth,
    height: HEIGHT_PX,
    series,
    bands,
    legend: { show: false },
    padding: [8, 10, 0, 0],
    cursor: {
      y: false,
      points: { size: 7 },
      dataIdx: nearestIndex,
      drag: { setScale: false },
      bind: { dblclick: () => () => zoom(null, null) },
    },
    scales: { x: { time: false, range: xRange(chart.lines.some((line) => line.points)) }, y },
    axes: [axis({ space: 55, size: 26, label: chart.axis, labelSize: 18, labelGap: 0, labelFont: "11px system-ui, sans-serif" }),
           axis({ space: 34, size: yWidth, ...(isLog ? { values: logWords } : {}) })],
    hooks: { setCursor: [readValues(chart, box)], setScale: [setScale], setSelect: [zoomBySelection(zoom)] },
  };
  holder.replaceChildren(box);
  const plot = new uPlot(options, data, holder);
  listenToKeys(plot, holder, zoom);
  listenToFingers(plot, zoom);
  return plot;
}

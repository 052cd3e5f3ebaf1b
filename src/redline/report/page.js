"use strict";
// Draws the charts of the report when they come near the window.
function draw(figure) {
  const holder = figure.querySelector(".plot");
  const chart = JSON.parse(figure.querySelector("script").textContent);
  if (!chart.lines.length) {
    holder.textContent = "no values";
    return;
  }
  const places = chart.columns.flatMap((column) => [column[0], column.at(-1)]);
  const full = { min: Math.min(...places), max: Math.max(...places) };
  const setScale = (plot, scale) => {
    const { min, max } = plot.scales.x;
    if (scale === "x") figure.classList.toggle("zoomed", min > full.min || max < full.max);
  };
  const zoom = (begin, end) => {
    const isWhole = begin === null || (begin <= full.min && end >= full.max);
    if (isWhole) figure.plot.setData(figure.plot.data);
    else figure.plot.setScale("x", { min: Math.max(begin, full.min), max: Math.min(end, full.max) });
  };
  figure.plot = plotInto(holder, chart, { zoom, setScale });
}

function show(figure, key, isShown) {
  figure.plot?.series.forEach((series, place) => {
    const line = series.line ?? series.edge;
    if (line && line.key === key) figure.plot.setSeries(place, { show: isShown });
  });
}

function attach(figure) {
  figure.querySelector(".reset").addEventListener("click", () => figure.plot?.setData(figure.plot.data));
  figure.querySelectorAll(".keys button").forEach((button) =>
    button.addEventListener("click", () => {
      const isShown = button.getAttribute("aria-pressed") !== "true";
      button.setAttribute("aria-pressed", String(isShown));
      show(figure, Number(button.dataset.key), isShown);
    }),
  );
}

function redraw(figure) {
  if (!figure.plot) return;
  figure.plot.destroy();
  draw(figure);
  figure.querySelectorAll('.keys button[aria-pressed="false"]').forEach((button) => show(figure, Number(button.dataset.key), false));
}

function openTarget() {
  let part = location.hash && document.getElementById(decodeURIComponent(location.hash.slice(1)));
  for (; part; part = part.parentElement) if (part instanceof HTMLDetailsElement) part.open = true;
}

const figures = [...document.querySelectorAll("figure.lines")];
const sizes = new ResizeObserver((entries) => {
  for (const { target } of entries) {
    const plot = target.closest("figure").plot;
    if (plot && target.clientWidth && plot.width !== target.clientWidth) plot.setSize({ width: target.clientWidth, height: HEIGHT_PX });
  }
});
// a chart is drawn when it comes near the window: most of a long page is never looked at
const seen = new IntersectionObserver(
  (entries) => {
    for (const { isIntersecting, target } of entries) {
      if (!isIntersecting) continue;
      seen.unobserve(target);
      draw(target);
      sizes.observe(target.querySelector(".plot"));
    }
  },
  { rootMargin: "400px" },
);
figures.forEach((figure) => {
  attach(figure);
  seen.observe(figure);
});
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => figures.forEach(redraw));
addEventListener("beforeprint", () => figures.filter((figure) => !figure.plot && figure.offsetParent).forEach(draw));
addEventListener("hashchange", openTarget);
openTarget();

// A curve as small as a word.
import { svg } from "./dom.js";

const [WIDTH, HEIGHT, EDGE] = [96, 24, 2];

export function spark(points) {
  const known = points.map((y, x) => [x, y]).filter(([, y]) => y !== null);
  const picture = svg("svg", { class: "spark", viewBox: `0 0 ${WIDTH} ${HEIGHT}`, "aria-hidden": "true" });
  if (known.length < 2) return picture;
  const values = known.map(([, y]) => y);
  const [low, high] = [Math.min(...values), Math.max(...values)];
  const place = ([x, y]) => {
    const across = EDGE + (x / (points.length - 1)) * (WIDTH - 2 * EDGE);
    const down = high > low ? EDGE + ((high - y) / (high - low)) * (HEIGHT - 2 * EDGE) : HEIGHT / 2;
    return `${across.toFixed(1)} ${down.toFixed(1)}`;
  };
  picture.append(svg("path", { d: `M${known.map(place).join("L")}` }));
  const [x, y] = place(known.at(-1)).split(" ");
  picture.append(svg("circle", { cx: x, cy: y, r: 2 }));
  return picture;
}

// Small drawings beside the numbers that they show: words say all of it, too.

import { svg } from "./dom.js";

const WIDTH = 120;
const HEIGHT = 12;

/** Return a bar of parts, each with a class, as shares of `whole`. */
export function bar(parts, whole, label) {
  let x = 0;
  const shapes = parts.map(([size, kind]) => {
    const width = whole > 0 ? Math.max(size > 0 ? 1 : 0, (size / whole) * WIDTH) : 0;
    const shape = svg("rect", { x, y: 0, width: Math.max(0, Math.min(width, WIDTH - x)), height: HEIGHT, class: kind });
    x += width;
    return shape;
  });
  return svg("svg", { class: "bar", viewBox: `0 0 ${WIDTH} ${HEIGHT}`, preserveAspectRatio: "none",
    ...(label ? { role: "img", "aria-label": label } : { "aria-hidden": "true" }) },
  svg("rect", { x: 0, y: 0, width: WIDTH, height: HEIGHT, class: "track" }), shapes);
}

/** Return columns over time, oldest first, with a title on each. */
export function columns(points, label) {
  const width = 600;
  const height = 72;
  const most = Math.max(1, ...points.map((point) => point.size));
  const step = width / Math.max(points.length, 30);
  return svg("svg", { class: "columns", viewBox: `0 0 ${width} ${height}`, preserveAspectRatio: "none", role: "img",
    "aria-label": label },
  points.map((point, place) => {
    const tall = Math.max(1, (point.size / most) * (height - 2));
    return svg("rect", { x: place * step + 0.5, y: height - tall, width: Math.max(1, step - 1.5), height: tall,
      class: "values" }, svg("title", {}, point.title));
  }));
}

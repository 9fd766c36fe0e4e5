// Small charts as SVG. Each has its own text for who does not see it, and numbers stand beside it on the page.

import { drawn, element } from "./dom.js";
import { OWN, source } from "./sources.js";

const WIDTH = 300;
const FEWEST_BARS = 40; // there is room for

/** One bar for each pass, as tall as its tokens: accepted ones in the colour of their source, below the target's own. */
export class PassStrip {
  constructor() {
    [this.drawn, this.most] = [0, 4];
    this.node = drawn("svg", { class: "chart passes", role: "img", preserveAspectRatio: "none", viewBox: "0 0 1 1" });
  }

  update(runs) {
    for (const run of runs.slice(this.drawn)) {
      this.most = Math.max(this.most, run.ids.length);
      this.node.append(...passBars(run, this.drawn));
      this.drawn += 1;
    }
    this.node.setAttribute("viewBox", `0 ${-this.most} ${Math.max(FEWEST_BARS, this.drawn)} ${this.most}`);
    this.node.setAttribute("aria-label", `Tokens of each of ${this.drawn} passes, at most ${this.most}`);
  }
}

/** They stand on 0, and `y` grows downwards. */
function passBars(run, at) {
  const {
    ids: { length },
    accepted,
  } = run;
  return [
    accepted && bar(at + 0.1, -accepted, 0.8, accepted, source(run.source).kind),
    length > accepted && bar(at + 0.1, -length, 0.8, length - accepted, OWN),
  ].filter(Boolean);
}

function bar(x, y, width, height, kind) {
  return drawn("rect", { x, y, width, height, class: `fill ${kind}` });
}

/** Shares of a whole, side by side: `[[kind, amount], ...]`. */
export function shares(parts, label) {
  const whole = parts.reduce((sum, [, amount]) => sum + amount, 0) || 1;
  let x = 0;
  const bars = parts.map(([kind, amount]) => {
    const width = (WIDTH * amount) / whole;
    x += width;
    return bar(x - width, 0, Math.max(0, width - 1), 8, kind);
  });
  return drawn(
    "svg",
    { class: "chart shares", role: "img", "aria-label": label, viewBox: `0 0 ${WIDTH} 8`, preserveAspectRatio: "none" },
    ...bars,
  );
}

/** A share between 0 and 1 as a filled track. */
export function meter(fraction, label) {
  const known = Number.isFinite(fraction) ? Math.min(1, Math.max(0, fraction)) : 0;
  return drawn(
    "svg",
    { class: "chart meter", role: "img", "aria-label": label, viewBox: `0 0 ${WIDTH} 8`, preserveAspectRatio: "none" },
    bar(0, 0, WIDTH, 8, "track"),
    bar(0, 0, WIDTH * known, 8, "value"),
  );
}

/** Lines over time. `lines` are `{kind, points: [[x, y], ...]}`; where a `y` is null the line has a gap. */
export function timeline(lines, label, top = null) {
  const points = lines.flatMap((line) => line.points);
  const box = drawn("svg", {
    class: "chart timeline",
    role: "img",
    "aria-label": label,
    viewBox: `0 0 ${WIDTH} 72`,
    preserveAspectRatio: "none",
  });
  if (!points.length) return box;
  const xs = points.map(([x]) => x);
  const [least, most] = [Math.min(...xs), Math.max(...xs)];
  const high = top ?? (Math.max(...points.map(([, y]) => y)) || 1);
  const place = ([x, y]) => [((x - least) / (most - least || 1)) * WIDTH, 70 - (y / high) * 66];
  for (const y of [4, 37, 70]) box.append(drawn("path", { class: "grid", d: `M0 ${y}H${WIDTH}` }));
  box.append(...lines.map((line) => drawn("path", { class: `line ${line.kind}`, d: pathOf(line.points, place) })));
  return box;
}

function pathOf(points, place) {
  const known = (at) => (points[at]?.[1] ?? null) !== null;
  return points
    .map((point, at) => {
      if (!known(at)) return "";
      const [x, y] = place(point).map((value) => value.toFixed(1));
      const dash = known(at - 1) || known(at + 1) ? "" : "h2"; // one alone would not be seen
      return `${known(at - 1) ? "L" : "M"}${x} ${y}${dash}`;
    })
    .join("");
}

/** An estimate with its interval on an axis on which `zero` means no difference. */
export function interval({ estimate, low, high }, label, zero = 0) {
  const [left, right] = [Math.min(low, zero), Math.max(high, zero)];
  const margin = (right - left || 1) * 0.08;
  const place = (value) => ((value - left + margin) / (right - left + 2 * margin)) * WIDTH;
  return drawn(
    "svg",
    {
      class: "chart interval",
      role: "img",
      "aria-label": label,
      viewBox: `0 0 ${WIDTH} 20`,
      preserveAspectRatio: "none",
    },
    drawn("path", { class: "grid zero", d: `M${place(zero)} 0V20` }),
    drawn("path", {
      class: "line value",
      d: `M${place(low)} 10H${place(high)}M${place(low)} 5V15M${place(high)} 5V15`,
    }),
    drawn("path", { class: "line estimate", d: `M${place(estimate)} 3V17` }),
  );
}

/** A chart with its name, and its numbers beside it. */
export function figure(name, chart, ...numbers) {
  return element(
    "figure",
    {},
    element("figcaption", {}, element("span", {}, name), element("span", { class: "numbers" }, ...numbers)),
    chart,
  );
}

/** How a line of this kind looks, beside its number. */
export function key(kind) {
  return drawn(
    "svg",
    { class: "chart key", "aria-hidden": "true", viewBox: "0 0 16 4" },
    drawn("path", { class: `line ${kind}`, d: "M0 2H16" }),
  );
}

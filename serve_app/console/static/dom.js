// Builds elements. Text only ever enters the page as text, its hidden characters as marks: nothing here, or elsewhere,
// parses HTML.

import { visible } from "./format.js";

const SVG = "http://www.w3.org/2000/svg";
const SHOWN = new Set(["aria-label", "title"]); // attributes that users read or hear

/** An element with attributes, listeners (`onclick: f`) and children: strings, nodes, or null for none. */
export function element(tag, attributes = {}, ...children) {
  return filled(document.createElement(tag), attributes, children);
}

/** The same for SVG. */
export function drawn(tag, attributes = {}, ...children) {
  return filled(document.createElementNS(SVG, tag), attributes, children);
}

/** A button; `run` may be asynchronous. */
export function button(label, run, attributes = {}) {
  return element("button", { type: "button", onclick: run, ...attributes }, label);
}

/** Puts `children` in the place of what `parent` has. */
export function show(parent, ...children) {
  parent.replaceChildren(...present(children));
}

/** A labelled control: the label's text stands above it. */
export function field(label, control, hint = null) {
  return element("label", { class: "field" }, element("span", {}, label), control, hint && element("small", {}, hint));
}

/** A table with a header row; cells are strings or nodes, and the first of each row is its header. */
export function table(caption, columns, rows) {
  const head = element("tr", {}, ...columns.map((name) => element("th", { scope: "col" }, name)));
  const body = rows.map(([first, ...rest]) =>
    element("tr", {}, element("th", { scope: "row" }, first), ...rest.map((cell) => element("td", {}, cell))),
  );
  return element(
    "div",
    { class: "scroll", tabindex: "0", role: "region", "aria-label": caption },
    element("table", {}, element("caption", {}, caption), element("thead", {}, head), element("tbody", {}, ...body)),
  );
}

/** Names with their values, as a list of definitions. */
export function facts(entries, attributes = { class: "facts" }) {
  const rows = entries.filter(([, value]) => value !== null && value !== undefined && value !== "");
  return element(
    "dl",
    attributes,
    ...rows.map(([name, value]) => element("div", {}, element("dt", {}, name), element("dd", {}, value))),
  );
}

function filled(node, attributes, children) {
  for (const [name, value] of Object.entries(attributes)) {
    if (name.startsWith("on")) node.addEventListener(name.slice(2), value);
    else if (value !== null && value !== undefined && value !== false)
      node.setAttribute(name, value === true ? "" : SHOWN.has(name) ? visible(value) : value);
  }
  node.append(...present(children));
  return node;
}

function present(children) {
  return children
    .filter((child) => child !== null && child !== undefined && child !== false)
    .map((child) => (child instanceof Node ? child : visible(String(child))));
}

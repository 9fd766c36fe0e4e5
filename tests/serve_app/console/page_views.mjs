// Draws the views of what a service tells, in a document of the least kind. A name that it does not tell is an error.
// Reads the states as a JSON list, and writes the text of each view.

import { readFileSync } from "node:fs";

import { STATIC } from "./page_document.mjs";

/** Only names that are there may be read, however deep; dictionaries of tasks and the like may lack some. */
function strict(value, path = "status") {
  if (value === null || typeof value !== "object") return value;
  return new Proxy(value, {
    get(target, name) {
      const dictionary = /(acceptance|drafts|limits)$/.test(path);
      if (typeof name === "string" && !(name in target) && name !== "toJSON" && !dictionary) {
        throw new Error(`the service tells no ${path}.${name}`);
      }
      const found = target[name];
      return typeof found === "function"
        ? found.bind(target.map ? strictList(target, path) : target)
        : strict(found, `${path}.${String(name)}`);
    },
  });
}

const strictList = (list, path) => list.map((each) => strict(each, `${path}[]`));

const views = [await import(new URL("drafts.js", STATIC)), await import(new URL("service.js", STATIC))];
const told = JSON.parse(readFileSync(0, "utf8")).flatMap((status) =>
  [new views[0].Drafts(feedOf(status)), new views[1].Service(feedOf(status))].map((view) => {
    view.enter();
    return [view.node.textContent, ...view.node.values].join(" | ");
  }),
);
process.stdout.write(JSON.stringify(told));

function feedOf(status) {
  return { tell: (listener) => listener(strict(status)) };
}

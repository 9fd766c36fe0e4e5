// The page: which view is shown, the key, the theme. Everything else is the views' own.

import { key, model, onKeyWanted } from "./api.js";
import { button, element, field, show } from "./dom.js";
import { StatusFeed } from "./status.js";
import { load, save } from "./store.js";

const FIRST = "playground";
const AGAIN = 3000; // milliseconds until a service that did not answer is asked again
const VIEWS = {
  playground: ["Playground", () => import("./playground.js").then((module) => new module.Playground())],
  drafts: ["Drafts", (feed) => import("./drafts.js").then((module) => new module.Drafts(feed))],
  service: ["Service", (feed) => import("./service.js").then((module) => new module.Service(feed))],
};
const THEMES = { system: "System", light: "Light", dark: "Dark" };

const at = (id) => document.getElementById(id);

/** Shows the view that the address names, each made when it is first wanted. */
class Views {
  constructor(feed) {
    this.feed = feed;
    this.made = {};
    this.current = null;
    addEventListener("hashchange", () => this.route());
  }

  async route() {
    const name = location.hash.slice(1);
    if (!(name in VIEWS) && this.current) return; // a place in the view
    this.wanted = name in VIEWS ? name : FIRST;
    await this.enter(this.wanted);
  }

  async enter(name) {
    const [title, make] = VIEWS[name];
    document.title = `${title} · TaskSpec`;
    show(at("views"), ...Object.entries(VIEWS).map(([id, [label]]) => link(id, label, id === name)));
    const view = await (this.made[name] ??= make(this.feed)).catch((error) => {
      delete this.made[name]; // so that it is tried again; some browsers only do that for a page that is loaded anew
      return new Failure(`${title} was not loaded: ${error.message}`);
    });
    if (name !== this.wanted) return;
    this.current?.leave();
    this.current = view;
    show(at("view"), view.node);
    view.enter();
  }
}

/** Stands where a view was not loaded. */
class Failure {
  constructor(words) {
    const reload = button("Reload the page", () => location.reload());
    this.node = element(
      "div",
      { class: "panels" },
      element("p", { class: "problem", role: "alert" }, words),
      element("div", { class: "buttons" }, reload),
    );
  }

  enter() {}

  leave() {}
}

function link(id, label, isCurrent) {
  return element("a", { href: `#${id}`, "aria-current": isCurrent && "page" }, label);
}

function themePicker() {
  const options = Object.entries(THEMES).map(([value, label]) => element("option", { value }, label));
  const picker = element("select", { "aria-label": "Theme" }, ...options);
  const apply = () => (document.documentElement.dataset.theme = picker.value);
  picker.addEventListener("change", () => {
    save("theme", picker.value);
    apply();
  });
  picker.value = load("theme", "system");
  apply();
  return picker;
}

/** Asks for a key; the dialog tells by the event `entered` that there is another. */
function askForKey() {
  const dialog = at("key");
  if (dialog.open) return;
  const input = element("input", {
    type: "text",
    class: "secret",
    autocomplete: "off",
    spellcheck: "false",
    autocapitalize: "off",
  });
  input.value = key.get();
  const use = (event) => {
    event.preventDefault();
    key.set(input.value.trim());
    dialog.close();
    dialog.dispatchEvent(new Event("entered"));
  };
  const buttons = [
    element("button", { type: "submit", class: "primary" }, "Use this key"),
    button("Cancel", () => dialog.close()),
  ];
  const title = element("h2", { id: "key-title" }, "API key");
  const note = element("p", {}, "It stays in this tab, and is gone when the tab is closed.");
  show(
    dialog,
    element(
      "form",
      { onsubmit: use },
      title,
      note,
      field("Key", input),
      element("div", { class: "buttons" }, ...buttons),
    ),
  );
  dialog.showModal();
}

function start() {
  const feed = new StatusFeed();
  const views = new Views(feed);
  const name = (late = false) =>
    model(true).then(
      (card) => {
        show(at("model"), card.id);
        if (late) views.current?.enter();
      },
      (error) => error.status !== 401 && setTimeout(name, AGAIN, true), // a key that is entered asks again
    );
  show(at("controls"), feed.node, themePicker(), button("Key", askForKey));
  onKeyWanted(askForKey);
  at("key").addEventListener("entered", () => {
    name();
    views.current?.enter();
  });
  name();
  views.route();
}

start();

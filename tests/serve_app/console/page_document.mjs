// A document of the least kind, in which the page's modules can be tried without a browser.

export const STATIC = new URL("../../../serve_app/console/static/", import.meta.url);

class Node {
  constructor(tag) {
    const classList = { add() {}, remove() {}, toggle() {} };
    Object.assign(this, { tag, children: [], attributes: {}, dataset: {}, listeners: {}, classList, value: "" });
    this.validity = { valid: true };
  }
  append(...children) {
    this.children.push(...children);
  }
  replaceChildren(...children) {
    this.children = children;
  }
  setAttribute(name, value) {
    this.attributes[name] = String(value);
  }
  getAttribute(name) {
    return this.attributes[name] ?? null;
  }
  addEventListener(name, listener) {
    this.listeners[name] = listener;
  }
  querySelectorAll() {
    return [];
  }
  querySelector() {
    return null;
  }
  contains() {
    return false;
  }
  focus() {
    document.activeElement = this;
  }
  showModal() {}
  close() {}
  set textContent(text) {
    this.children = [text];
  }
  get textContent() {
    return this.children.map((child) => (child instanceof Node ? child.textContent : child)).join(" ");
  }
  get values() {
    return [...Object.values(this.attributes), ...this.children.flatMap((child) => child.values ?? [])];
  }
  /** The first below it that `matches`. */
  find(matches) {
    for (const child of this.children.filter((each) => each instanceof Node)) {
      const found = matches(child) ? child : child.find(matches);
      if (found) return found;
    }
    return null;
  }
  /** What the button with this label does when it is pressed. */
  press(label) {
    const pressed = this.find(({ tag, textContent }) => tag === "button" && textContent === label);
    return pressed.listeners.click({ target: pressed });
  }
}

export const places = new Map();

globalThis.Node = Node;
globalThis.getSelection = () => ({ isCollapsed: true });
globalThis.sessionStorage = { getItem: () => null };
globalThis.document = {
  baseURI: "http://127.0.0.1/",
  documentElement: new Node("html"),
  createElement: (tag) => new Node(tag),
  createElementNS: (_, tag) => new Node(tag),
  getElementById: (id) => places.get(id) ?? places.set(id, new Node("div")).get(id),
  addEventListener() {},
};

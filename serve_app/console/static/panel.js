// A part of a view that is drawn again only when what it shows has changed, and never under the user's hands.

import { element, show } from "./dom.js";

export class Panel {
  /** `draw` makes the content, a node or several, of what `update` is given. */
  constructor(title, draw, attributes = {}) {
    this.draw = draw;
    this.body = element("div", { class: "body" });
    this.heading = element("h2", {}, title);
    this.node = element("section", { class: "panel", "aria-label": title, ...attributes }, this.heading, this.body);
    this.shown = null;
  }

  update(value) {
    const text = JSON.stringify(value);
    const active = this.body.contains(document.activeElement) ? document.activeElement : null;
    if (text === this.shown || active?.matches("input, select, textarea") || this.isHeld()) return;
    this.shown = text;
    const focus = active?.dataset.focus;
    const open = [...this.body.querySelectorAll("details[open]")].map((details) => details.dataset.focus);
    show(this.body, ...[this.draw(value)].flat());
    for (const details of this.body.querySelectorAll("details")) details.open = open.includes(details.dataset.focus);
    if (focus) this.body.querySelector(`[data-focus="${CSS.escape(focus)}"]`)?.focus();
  }

  /** Whether something in it is pressed or selected. */
  isHeld() {
    const selection = getSelection();
    return this.body.querySelector(":active") || (!selection.isCollapsed && this.body.contains(selection.anchorNode));
  }
}

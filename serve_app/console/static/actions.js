// What an operator does from the page: asked once more, sent, and its outcome said.

import { json } from "./api.js";
import { button, element, show } from "./dom.js";

export class Actions {
  constructor() {
    this.outcome = element("p", { class: "outcome", role: "status" });
    this.question = element("dialog", { class: "question", "aria-label": "Confirm" });
    this.why = element("p", { class: "why" });
    this.node = element("div", { class: "actions" }, this.why, this.outcome, this.question);
    this.numbers = new Map();
  }

  /** Says why `viewer` may not act, if so. */
  permit(viewer) {
    show(this.why, viewer.acts ? "" : viewer.why);
  }

  /** The field for a number, the same each time, so that what was written stays; `value` until something is. */
  number(name, value, attributes) {
    const written = () => (input.dataset.written = "");
    const input =
      this.numbers.get(name) ??
      element("input", { type: "number", "data-focus": name, "aria-label": name, ...attributes, oninput: written });
    this.numbers.set(name, input);
    if (input.dataset.written === undefined) input.value = value;
    return input;
  }

  /**
   * A button that does it if `viewer` may act, and says why not otherwise. `question` and `body` are called when it is
   * pressed, and only if `input`, the field that they read, if any, has a number. `about` tells it from its like.
   */
  button(label, viewer, { about, input = null, question, path, body }) {
    const press = () => (input && !hasNumber(input) ? this.refuse(input) : this.run(question(), path, body(), input));
    return button(label, press, {
      "data-focus": `${label} ${about}`,
      disabled: !viewer.acts,
      title: viewer.acts ? null : viewer.why,
    });
  }

  refuse(input) {
    const why = input.validationMessage || "Write a number.";
    this.say(`${input.getAttribute("aria-label")}: ${why}`, "problem");
    input.focus();
  }

  async run(question, path, body, input) {
    this.say("");
    if (!(await this.confirmed(question))) return;
    this.say("…");
    try {
      this.say((await json(path, body)).done);
      if (input) delete input.dataset.written;
    } catch (error) {
      this.say(error.message, "problem");
    }
  }

  say(words, kind = "") {
    this.outcome.className = `outcome ${kind}`;
    show(this.outcome, words);
  }

  confirmed(question) {
    return new Promise((resolve) => {
      const answer = (value) => () => {
        resolve(value);
        this.question.close();
      };
      show(
        this.question,
        element("p", {}, question),
        element(
          "div",
          { class: "buttons" },
          button("Do it", answer(true), { class: "primary" }),
          button("Cancel", answer(false)),
        ),
      );
      this.question.addEventListener("close", () => resolve(false), { once: true });
      this.question.showModal();
    });
  }
}

/** A field that is empty, or has no number in it, would be read as 0. */
const hasNumber = (input) => input.value !== "" && input.validity.valid;

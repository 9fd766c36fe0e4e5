// The text of an answer, in which every run shows who proposed it: a colour, and an underline of its own.

import { element } from "./dom.js";
import { OWN, source } from "./sources.js";

const STEPS = { ArrowRight: 1, ArrowLeft: -1 };

/** The view of one answer's text. `tell` is called with the run, and who gave the part, that is looked at. */
export class TokenText {
  constructor(tell) {
    this.tell = tell;
    this.parts = [];
    this.current = -1;
    this.blocks = {};
    this.node = element("div", {
      class: "answer-text",
      tabindex: "0",
      role: "group",
      "aria-label": "Answer. The left and right arrow keys go through its runs of tokens.",
      onpointerover: (event) => this.look(event.target),
      onclick: (event) => this.look(event.target),
      onkeydown: (event) => this.step(event),
    });
  }

  /** Adds a run at the end. */
  add(run) {
    const points = Array.from(run.reasoning + run.content);
    const split = points.slice(0, run.split).join("").length;
    const whole = run.accepted > 0;
    if (run.source) this.part(run, run.source, run.accepted, texts(run, 0, split, whole));
    this.part(run, OWN, run.ids.length - run.accepted, texts(run, split, Infinity, !whole));
  }

  part(run, by, count, pieces) {
    const written = pieces.filter(([, text]) => text);
    if (!count && !written.length) return;
    const { kind } = source(by);
    const marks = { class: `run ${kind}`, "data-source": by, "data-tokens": count, "data-part": this.parts.length };
    if (!written.length) written.push(["content", ""]);
    const spans = written.map(([channel, text], at) => {
      const span = element("span", at ? { ...marks, "data-tokens": 0 } : marks, text);
      this.block(channel).append(span);
      return span;
    });
    this.parts.push({ run, by, count, spans });
  }

  block(channel) {
    if (!this.blocks[channel]) {
      this.blocks[channel] = element("div", { class: channel });
      if (channel !== "content")
        this.blocks[channel].append(element("b", {}, channel === "calls" ? "Calls " : "Reasoning "));
      this.node.append(this.blocks[channel]);
    }
    return this.blocks[channel];
  }

  look(node) {
    const part = node.closest?.("[data-part]")?.dataset.part;
    if (part !== undefined) this.select(Number(part));
  }

  step(event) {
    const ends = { Home: 0, End: this.parts.length - 1 };
    const to = ends[event.key] ?? (event.key in STEPS ? this.current + STEPS[event.key] : null);
    if (to === null || !this.parts.length) return;
    event.preventDefault();
    this.select(Math.min(Math.max(to, 0), this.parts.length - 1));
    this.parts[this.current].spans[0].scrollIntoView({ block: "nearest" });
  }

  select(at) {
    this.parts[this.current]?.spans.forEach((span) => span.classList.remove("current"));
    this.current = at;
    this.parts[at].spans.forEach((span) => span.classList.add("current"));
    this.tell(this.parts[at]);
  }
}

/** What of each channel lies between two places of the run's reasoning and content; its calls only if `withCalls`. */
function texts(run, from, to, withCalls) {
  const length = run.reasoning.length;
  return [
    ["reasoning", run.reasoning.slice(from, to)],
    ["content", run.content.slice(Math.max(0, from - length), Math.max(0, to - length))],
    ["calls", withCalls ? run.calls : ""],
  ];
}

// An answer on the page: its text, and beside it what was measured.

import { bySource, figures } from "./answer.js";
import { PassStrip, shares } from "./charts.js";
import { element, facts, show } from "./dom.js";
import { count, duration, number, percent } from "./format.js";
import { NAMES, OWN, source } from "./sources.js";
import { TokenText } from "./tokens.js";

const HINT = "Point at the answer, or move through it with the arrow keys, to see where a run of tokens came from.";

/** `actions` stand below the text. The view is drawn again at most once a frame. */
export class AnswerView {
  constructor(answer, ...actions) {
    this.answer = answer;
    this.text = new TokenText((part) => this.tell(part));
    this.strip = new PassStrip();
    this.figures = element("div", {});
    this.detail = element("p", { class: "detail", role: "status" }, HINT);
    this.problem = element("p", { class: "problem", role: "alert" });
    this.node = element(
      "div",
      { class: "answer" },
      element("div", { class: "said" }, this.text.node, this.problem, ...actions),
      element(
        "aside",
        { class: "instruments", "aria-label": "Measurements" },
        this.figures,
        this.strip.node,
        this.detail,
      ),
    );
    answer.runs.forEach((run) => this.text.add(run));
    this.draw();
  }

  /** Shows a run that is already part of the answer. */
  add(run) {
    this.text.add(run);
    this.frame ??= requestAnimationFrame(() => this.draw());
  }

  draw() {
    if (this.frame) cancelAnimationFrame(this.frame);
    this.frame = null;
    show(this.figures, measured(this.answer), sourcesTable(this.answer));
    this.strip.update(this.answer.runs);
    show(this.problem, this.answer.error);
  }

  tell({ run, by, count: amount }) {
    const pass = run.pass ? `pass ${run.pass}` : "read with the prompt";
    const proposed = by === OWN ? "" : `, ${amount} of ${run.proposed} proposed`;
    const draft = run.task ? `, task ${run.task}` : "";
    show(this.detail, `${count(amount, "token")} ${source(by).long}${proposed}${draft}, ${pass}`);
  }
}

function measured(answer) {
  const { tokens, passes, perPass, rate, first } = figures(answer);
  return facts([
    ["tokens", number(tokens)],
    ["passes", number(passes)],
    ["tokens per pass", number(perPass, 2)],
    ["tokens/s", number(rate, 1)],
    ["first token", duration(first)],
    ...chosen(answer),
    ["seed", answer.seed === null ? null : String(answer.seed)],
    ["ended by", answer.finish],
  ]);
}

function chosen(answer) {
  const told = answer.usage?.speculation;
  const task = told?.task ?? answer.runs.at(-1)?.task;
  if (answer.body.speculation?.enabled === false) return [["draft", "none"]];
  return [
    ["draft", task ?? null],
    ["moved", told ? moved(told) : null],
  ];
}

function moved({ rerouted, rerouted_from: left }) {
  return rerouted ? `from ${left.join(", ")}` : "no";
}

function sourcesTable(answer) {
  const counts = bySource(answer);
  const names = Object.keys(counts).sort((one, other) => NAMES.indexOf(one) - NAMES.indexOf(other));
  const total = Math.max(1, figures(answer).tokens);
  const rows = names.map((name) => sourceRow(name, counts[name], total));
  const label = names.map((name) => `${source(name).name} ${counts[name].accepted}`).join(", ");
  return element(
    "div",
    { class: "by-source" },
    shares(
      names.map((name) => [source(name).kind, counts[name].accepted]),
      `Tokens by source: ${label}`,
    ),
    element("ul", {}, ...rows),
  );
}

function sourceRow(name, { proposed, accepted }, total) {
  const of = name === OWN ? "" : ` of ${proposed}`;
  return element(
    "li",
    { "data-source": name, "data-accepted": accepted },
    element("span", { class: `run ${source(name).kind}`, "data-legend": name }, source(name).name),
    element("span", { class: "numbers" }, `${accepted}${of}, ${percent(accepted / total)}`),
  );
}

// Two answers to the same request: whether their tokens are equal, and which came sooner.

import { ask, emptyAnswer, figures, firstDifference, tokens } from "./answer.js";
import { AnswerView } from "./answer_view.js";
import { json } from "./api.js";
import { button, element, show } from "./dom.js";
import { duration, number } from "./format.js";

const OFF = { enabled: false };
const MOST_SEED = 2 ** 31;

/** Asks again what `answer` was asked with its seed, but without speculation, and says in `node` how the two compare. */
export async function prove(answer, node, signal) {
  const wasOff = answer.body.speculation.enabled === false; // then it is held to an answer with speculation
  const again = emptyAnswer({ ...answer.body, seed: answer.seed, speculation: wasOff ? {} : OFF, store: false });
  const total = tokens(answer).length;
  if (!total) return show(node, "There are no tokens to compare.");
  if (!answer.finish) again.body.max_tokens = Math.max(1, total); // it was stopped: only what there is of it
  const told = (words) => show(node, `With speculation ${wasOff ? "on" : "off"}: ${words}`);
  told("asked …");
  let next = 0; // when more is told: those who hear the page hear each time
  await ask(again, signal, () => {
    if (performance.now() < next) return;
    next = performance.now() + 1000;
    told(`${tokens(again).length} of ${total} tokens …`);
  });
  if (again.error) return told(again.error);
  const [on, off] = wasOff ? [again, answer] : [answer, again];
  return show(node, await verdict(on, off), pace(on, off));
}

/** The same request with speculation on and off at once, side by side. `closed` is called when it is put away. */
export class Race {
  constructor(body, closed) {
    const seed = body.seed ?? Math.floor(Math.random() * MOST_SEED);
    const speculation = body.speculation.enabled === false ? {} : body.speculation;
    this.stopper = new AbortController();
    this.answers = [speculation, OFF].map((each) => emptyAnswer({ ...body, seed, speculation: each, store: false }));
    this.views = this.answers.map((answer) => new AnswerView(answer));
    this.verdict = element("p", { class: "verdict", role: "status" }, "Both run at once, on one target.");
    const close = () => {
      this.stopper.abort();
      this.node.remove();
      closed();
    };
    this.node = element(
      "section",
      { class: "race", "aria-label": "Race" },
      element("header", {}, element("h2", {}, "Race"), this.verdict, button("Close", close)),
      element("div", { class: "lanes" }, lane("Speculation on", this.views[0]), lane("Speculation off", this.views[1])),
    );
  }

  async run() {
    const run = (answer, view) => ask(answer, this.stopper.signal, (part) => view.add(part)).then(() => view.draw());
    await Promise.all(this.answers.map((answer, at) => run(answer, this.views[at])));
    const [on, off] = this.answers;
    if (on.error || off.error) return show(this.verdict, "The race was not finished.");
    return show(this.verdict, await verdict(on, off), pace(on, off));
  }

  stop() {
    this.stopper.abort();
  }
}

function lane(name, view) {
  return element("section", { class: "lane", "aria-label": name }, element("h3", {}, name), view.node);
}

async function verdict(on, off) {
  const [one, other] = [tokens(on), tokens(off)];
  const at = firstDifference(one, other);
  const words = at === -1 ? `${one.length} of ${one.length} tokens equal` : await difference(one, other, at);
  return element("strong", { class: at === -1 ? "equal" : "different" }, words);
}

async function difference(one, other, at) {
  const spelled = (id) =>
    json("detokenize", { tokens: [id] }).then(
      ({ prompt }) => JSON.stringify(prompt),
      () => `id ${id}`, // that they differ is told in any case
    );
  const text = (id) => (id === undefined ? "nothing" : spelled(id));
  const texts = await Promise.all([text(one[at]), text(other[at])]);
  return `Token ${at + 1} differs: ${texts[0]} with speculation, ${texts[1]} without`;
}

function pace(one, other) {
  const [on, off] = [figures(one), figures(other)];
  const ratio = off.total / on.total;
  const words = ratio >= 1 ? `${number(ratio, 2)} times as fast` : `${number(1 / ratio, 2)} times slower`;
  return (
    ` ${duration(on.total)} and ${number(on.passes)} passes with speculation, ${duration(off.total)} and ` +
    `${number(off.passes)} without: ${words}.`
  );
}

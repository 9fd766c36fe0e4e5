// The playground: a conversation with the target, and the fields of its requests.

import { ask, emptyAnswer, figures } from "./answer.js";
import { model } from "./api.js";
import { Race, prove } from "./compare.js";
import { ROOT, addTurn, choose, emptyConversation, messagesTo, path } from "./conversation.js";
import { button, element, show } from "./dom.js";
import { count, number } from "./format.js";
import { RequestForm } from "./request.js";
import * as store from "./store.js";
import { answerTurn, userTurn } from "./turns.js";

const WIDE = matchMedia("(min-width: 64rem)");
const NEAR = 160; // pixels from the end of the page within which it follows an answer

export class Playground {
  constructor() {
    this.form = new RequestForm();
    this.stopper = null;
    this.list = element("ul", {});
    this.thread = element("div", { class: "thread" });
    this.news = element("p", { class: "unseen", role: "status" });
    this.node = element(
      "div",
      { class: "playground" },
      rail(
        "Conversations",
        "history",
        button("New conversation", () => this.open(null)),
        this.list,
      ),
      element("div", { class: "talk" }, this.thread, this.news, this.composer()),
      rail("Request", "settings", this.form.node),
    );
    this.open(store.conversations()[0]?.id);
  }

  enter() {
    model(true).then(
      (card) => this.form.offer(card.tasks ?? []),
      () => {},
    );
    if (WIDE.matches) this.draft.focus();
  }

  leave() {}

  composer() {
    this.draft = element("textarea", {
      rows: 2,
      "aria-label": "Message",
      placeholder: "Ask the target",
      onkeydown: (event) => this.typed(event),
    });
    this.send = button("Send", () => this.ask(this.draft.value), { class: "primary" });
    this.racer = button("Race", () => this.race(), {
      title: "The same prompt with speculation on and off, side by side",
    });
    this.stop = button("Stop", () => this.stopper.abort(), { hidden: true });
    return element(
      "form",
      { class: "composer", "aria-label": "Message", onsubmit: (event) => event.preventDefault() },
      this.draft,
      element(
        "div",
        { class: "buttons" },
        this.send,
        this.racer,
        this.stop,
        element("span", { class: "spacer" }),
        button("Export", () => this.export(), { title: "This conversation as JSON" }),
      ),
    );
  }

  typed(event) {
    if (event.key === "Escape") this.stopper?.abort();
    if (event.key !== "Enter" || event.shiftKey || event.isComposing) return;
    event.preventDefault();
    if (!this.stopper) this.ask(this.draft.value);
  }

  open(id) {
    if (id && id === this.conversation?.id) return; // the one in the store lacks the answer that runs
    this.stopper?.abort();
    this.conversation = (id && store.conversation(id)) || emptyConversation();
    this.draw();
  }

  draw() {
    const does = {
      branch: (turn, text) => this.branch(turn, text),
      choose: (turn) => this.choose(turn),
      regenerate: (turn) => this.answer(() => this.conversation.turns[turn.parent]),
      prove: (turn, node) => this.prove(turn, node),
      results: (turn, results) => this.results(turn, results),
    };
    const views = path(this.conversation).map((turn) => [
      turn,
      turn.role === "assistant"
        ? answerTurn(this.conversation, turn, does)
        : { node: userTurn(this.conversation, turn, does) },
    ]);
    this.views = new Map(views.map(([turn, view]) => [turn.id, view]));
    show(this.thread, ...(views.length ? views.map(([, view]) => view.node) : [welcome()]));
    this.drawList();
  }

  drawList() {
    show(
      this.list,
      ...store.conversations().map(({ id, title }) =>
        element(
          "li",
          {},
          button(title || "Untitled", () => this.open(id), {
            "aria-current": id === this.conversation.id ? "true" : null,
          }),
          button("×", () => this.remove(id), { "aria-label": `Delete ${title || "Untitled"}`, class: "quiet" }),
        ),
      ),
    );
  }

  remove(id) {
    if (this.stopper) return;
    store.remove(id);
    if (id === this.conversation.id) this.open(null);
    else this.drawList();
  }

  choose(turn) {
    if (this.stopper) return;
    choose(this.conversation, turn);
    this.draw();
    this.views.get(turn.id).node.querySelector(".branches button:not(:disabled)")?.focus();
  }

  /** Asks `text` at the end of the conversation. */
  ask(text) {
    if (!text.trim()) return;
    this.answer(() => {
      this.draft.value = "";
      const last = path(this.conversation).at(-1);
      return addTurn(this.conversation, last?.id ?? ROOT, { role: "user", text });
    });
  }

  branch(turn, text) {
    const { parent, role, call } = turn;
    this.answer(() => addTurn(this.conversation, parent, { role, text, ...(call && { call }) }));
  }

  results(turn, results) {
    this.answer(() =>
      results.reduce((last, each) => addTurn(this.conversation, last.id, { role: "tool", ...each }), turn),
    );
  }

  /** What makes a request's body of messages, with the fields as they are now. Fails where the model is not told. */
  async request() {
    const system = this.form.system ? [{ role: "system", content: this.form.system }] : [];
    const fields = this.form.body();
    const { id } = await model();
    return (messages) => ({ model: id, messages: [...system, ...messages], ...fields });
  }

  /** Streams an answer below the turn that `asked` makes, once the model is known: until then nothing leaves its field. */
  async answer(asked) {
    if (this.stopper || !this.form.body()) return;
    const { conversation } = this;
    await this.busily(async (signal) => {
      const request = await this.request();
      if (signal.aborted) return;
      const parent = asked();
      const answer = emptyAnswer(request(messagesTo(conversation, parent)));
      const turn = addTurn(conversation, parent.id, { role: "assistant", answer });
      this.draw();
      if (WIDE.matches) this.draft.focus({ preventScroll: true });
      const { answerView } = this.views.get(turn.id);
      this.follow(true);
      await ask(answer, signal, (run) => {
        answerView.add(run);
        this.follow();
      });
      const kept = store.keep(conversation);
      answerView.draw();
      if (answer.calls.length && conversation === this.conversation) this.draw();
      this.drawList();
      const { tokens, passes, perPass } = figures(answer);
      this.tell(`Answer ended: ${count(tokens, "token")} in ${number(passes)} passes, ${number(perPass, 2)} a pass`);
      if (!kept)
        this.tell("This browser has no room for the conversation, so it is not kept. Export it to have it.", true);
    });
  }

  prove(turn, node) {
    if (!this.stopper) this.busily((signal) => prove(turn.answer, node, signal));
  }

  async race() {
    const text = this.draft.value.trim();
    if (!text || this.stopper || !this.form.body()) return;
    await this.busily(async (signal) => {
      const request = await this.request();
      if (signal.aborted) return;
      const last = path(this.conversation).at(-1);
      const before = last ? messagesTo(this.conversation, last) : [];
      const race = new Race(request([...before, { role: "user", content: text }]), () => this.draft.focus());
      signal.addEventListener("abort", () => race.stop());
      this.thread.querySelector(".welcome")?.remove();
      this.thread.append(race.node);
      race.node.scrollIntoView({ block: "start" });
      await race.run();
    });
  }

  /** Runs `work` with a signal that the Stop button aborts; what fails is said. */
  async busily(work) {
    this.stopper = new AbortController();
    this.showBusy();
    try {
      await work(this.stopper.signal);
    } catch (error) {
      this.tell(error.message, true);
    } finally {
      this.stopper = null;
      this.showBusy();
    }
  }

  showBusy() {
    const busy = this.stopper !== null;
    if (document.activeElement === this.stop) this.draft.focus(); // it is hidden now
    this.node.classList.toggle("busy", busy);
    this.stop.hidden = !busy;
    for (const each of [this.send, this.racer]) each.disabled = busy;
    if (busy) this.tell("");
  }

  /** Says something to whoever hears the page, and to whoever sees it if it `matters`. */
  tell(words, matters = false) {
    show(this.news, words);
    this.news.classList.toggle("unseen", !matters);
  }

  /** Scrolls to the end, if the reader is near it. */
  follow(anyway = false) {
    if (!this.node.isConnected) return; // another view is shown
    const page = document.scrollingElement;
    if (anyway || page.scrollHeight - page.scrollTop - innerHeight < NEAR) page.scrollTop = page.scrollHeight;
  }

  export() {
    const file = new Blob([JSON.stringify(this.conversation, null, 2)], { type: "application/json" });
    const link = element("a", { href: URL.createObjectURL(file), download: "conversation.json" });
    link.click();
    setTimeout(() => URL.revokeObjectURL(link.href), 1000);
  }
}

/** A column at the side of a wide page, and a fold on a narrow one. */
function rail(name, kind, ...children) {
  const details = element(
    "details",
    { class: `rail ${kind}`, open: WIDE.matches },
    element("summary", {}, name),
    ...children,
  );
  WIDE.addEventListener("change", () => (details.open = WIDE.matches));
  return details;
}

function welcome() {
  return element(
    "div",
    { class: "welcome" },
    element("h2", {}, "Ask, and see who gave each token"),
    element(
      "p",
      {},
      "Drafts and lookups propose tokens, and the target keeps those that it would have drawn itself. " +
        "The answer is the target’s own; “Prove it” asks again without speculation and compares every token.",
    ),
  );
}

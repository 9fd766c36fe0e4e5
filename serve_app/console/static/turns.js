// The turns of a conversation on the page: what was asked, what was answered, and what can be done with either.

import { content, message, reasoning } from "./answer.js";
import { AnswerView } from "./answer_view.js";
import { branches } from "./conversation.js";
import { button, element, field, show } from "./dom.js";

/** The view of a turn that the user wrote. `does` has `branch(turn, text)` and `choose(turn)`. */
export function userTurn(conversation, turn, does) {
  const text = element("div", { class: "text" }, turn.text);
  const edit = button("Edit", () => editing(node, turn, does), { "aria-label": "Edit and branch" });
  const node = section(
    turn.role === "tool" ? "Result of a call" : "You",
    "asked",
    text,
    element("div", { class: "buttons" }, edit, branchPicker(conversation, turn, does)),
  );
  return node;
}

function editing(node, turn, does) {
  const area = element("textarea", { rows: 3, "aria-label": "The turn" });
  area.value = turn.text;
  show(
    node,
    area,
    element(
      "div",
      { class: "buttons" },
      button("Send as a branch", () => does.branch(turn, area.value), { class: "primary" }),
      button("Cancel", () => does.choose(turn)),
    ),
  );
  area.focus();
}

/** The view of an answer; its `answerView` takes more runs. `does` also has `regenerate(turn)` and `prove(turn, node)`. */
export function answerTurn(conversation, turn, does) {
  const proof = element("p", { class: "proof", role: "status" });
  const buttons = element(
    "div",
    { class: "buttons when-done" },
    button("Prove it", () => does.prove(turn, proof), {
      title: "Ask the same with speculation off and compare each token",
    }),
    button("Regenerate", () => does.regenerate(turn)),
    button("Copy", (event) => copy(turn.answer, event.target)),
    branchPicker(conversation, turn, does),
  );
  const answerView = new AnswerView(turn.answer, resultForm(conversation, turn, does), buttons, proof);
  const node = section("Answer", "answered", answerView.node);
  return { node, answerView };
}

function section(name, kind, ...children) {
  return element("section", { class: `turn ${kind}`, "aria-label": name }, ...children);
}

function branchPicker(conversation, turn, does) {
  const all = branches(conversation, turn);
  const at = all.indexOf(turn);
  if (all.length < 2) return null;
  const step = (label, sign, by) =>
    button(sign, () => does.choose(all[at + by]), { "aria-label": label, disabled: !all[at + by] });
  return element(
    "span",
    { class: "branches" },
    step("Earlier branch", "‹", -1),
    ` ${at + 1} of ${all.length} `,
    step("Later branch", "›", 1),
  );
}

/** Where an answer calls tools, fields for what they return; none once that was told. */
function resultForm(conversation, turn, does) {
  const told = Object.values(conversation.turns).some((other) => other.parent === turn.id);
  if (!turn.answer.calls.length || told || !turn.answer.finish) return null;
  const areas = turn.answer.calls.map((call) => element("textarea", { rows: 2, class: "code", "data-call": call.id }));
  const send = () =>
    does.results(
      turn,
      areas.map((area) => ({ call: area.dataset.call, text: area.value })),
    );
  return element(
    "div",
    { class: "results" },
    ...areas.map((area, at) => field(`Result of ${turn.answer.calls[at].name}`, area)),
    button("Send results", send),
  );
}

async function copy(answer, target) {
  const { tool_calls: calls } = message(answer);
  const text = [reasoning(answer), content(answer), calls && JSON.stringify(calls, null, 2)]
    .filter(Boolean)
    .join("\n\n");
  const written = async () => navigator.clipboard.writeText(text); // there is no clipboard on a page without TLS
  const copied = await written().then(
    () => "Copied",
    () => "Not allowed",
  );
  show(target, copied);
  setTimeout(() => show(target, "Copy"), 1500);
}

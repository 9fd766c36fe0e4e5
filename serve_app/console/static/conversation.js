// A conversation as a tree of turns: an edited turn is a branch beside the one it was, and one path is shown.

import { message } from "./answer.js";

const id = () => crypto.randomUUID?.() ?? `${Date.now()}-${Math.random()}`;

export const ROOT = "";

/** Without turns. A turn is `{id, parent, role, text}`, or `{id, parent, role: "assistant", answer}`. */
export function emptyConversation() {
  return { id: id(), title: "", turns: {}, chosen: {} };
}

/** A new turn below `parent`, which is then shown. */
export function addTurn(conversation, parent, fields) {
  const turn = { id: id(), parent, ...fields };
  conversation.turns[turn.id] = turn;
  choose(conversation, turn);
  if (!conversation.title && turn.role === "user") conversation.title = turn.text.trim().slice(0, 60);
  return turn;
}

/** Shows the path through this turn. */
export function choose(conversation, turn) {
  conversation.chosen[turn.parent] = turn.id;
}

/** The turns beside this one, itself among them, as they were made. */
export function branches(conversation, turn) {
  return Object.values(conversation.turns).filter((other) => other.parent === turn.parent);
}

/** The turns that are shown, from the first on. */
export function path(conversation) {
  const turns = [];
  for (let at = conversation.chosen[ROOT]; at; at = conversation.chosen[at]) turns.push(conversation.turns[at]);
  return turns;
}

/** The messages of a request whose answer comes below `turn`. */
export function messagesTo(conversation, turn) {
  const messages = [];
  for (let at = turn; at; at = conversation.turns[at.parent]) if (!isRefused(at)) messages.unshift(messageOf(at));
  return messages;
}

/** Whether it is an answer of which nothing came. */
const isRefused = ({ role, answer }) => role === "assistant" && answer.error && !answer.runs.length;

function messageOf(turn) {
  if (turn.role === "assistant") return message(turn.answer);
  const { role, text } = turn;
  return turn.call ? { role, content: text, tool_call_id: turn.call } : { role, content: text };
}

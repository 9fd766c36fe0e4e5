// Tests of the console's modules that need no browser; test_page_files.py runs them with node.

import assert from "node:assert/strict";
import { test } from "node:test";

import { STATIC } from "./page_document.mjs";

const load = (name) => import(new URL(name, STATIC));

const stored = new Map();
globalThis.localStorage = {
  getItem: (name) => stored.get(name) ?? null,
  removeItem: (name) => stored.delete(name),
  setItem(name, value) {
    const others = [...stored].reduce((sum, [key, text]) => sum + (key === name ? 0 : text.length), 0);
    if (others + value.length > 200_000) throw new Error("full");
    stored.set(name, value);
  },
};

const answers = await load("answer.js");
const conversations = await load("conversation.js");
const format = await load("format.js");
const store = await load("store.js");

function chunk(ids, speculation, delta, finish_reason = null) {
  return { choices: [{ delta, finish_reason, token_ids: ids, speculation }] };
}

/** A response that streams these chunks, cut in the middle of lines. */
function streamed(...chunks) {
  const text = chunks.map((each) => `data: ${JSON.stringify(each)}\n\n`).join("") + "data: [DONE]\n\n";
  const bytes = new TextEncoder().encode(text);
  const parts = Array.from({ length: Math.ceil(bytes.length / 7) }, (_, at) => bytes.slice(7 * at, 7 * at + 7));
  return new Response(ReadableStream.from(parts), { headers: { "content-type": "text/event-stream" } });
}

const RUNS = [
  { ...chunk([], { proposed: 0, accepted: 0, accepted_characters: 0 }, { role: "assistant", content: "" }), seed: 7 },
  chunk(
    [1],
    { proposed: 0, accepted: 0, accepted_characters: 0, source: null, task: "general", pass: 0 },
    { content: "A" },
  ),
  chunk(
    [2, 3, 4],
    { proposed: 4, accepted: 2, accepted_characters: 2, source: "draft", task: "sums", pass: 1 },
    { content: "😀é\u2028x" },
  ),
  chunk(
    [5, 6],
    { proposed: 1, accepted: 1, accepted_characters: 1, source: "own_text", task: "sums", pass: 2 },
    { content: "yz" },
    "stop",
  ),
];

async function answered(chunks) {
  globalThis.fetch = async () => streamed(...chunks);
  const answer = answers.emptyAnswer({ messages: [] });
  const runs = [];
  await answers.ask(answer, undefined, (run) => runs.push(run));
  assert.deepEqual(runs, answer.runs);
  return answer;
}

test("an answer is counted by source and by pass", async () => {
  const answer = await answered(RUNS);
  assert.equal(answer.error, null);
  assert.equal(answer.seed, 7);
  assert.equal(answers.content(answer), "A😀é\u2028xyz");
  const { tokens, passes, perPass } = answers.figures(answer);
  assert.deepEqual([tokens, passes, perPass], [6, 2, 2.5]);
  assert.deepEqual(answers.bySource(answer), {
    own: { proposed: 0, accepted: 3 },
    draft: { proposed: 4, accepted: 2 },
    own_text: { proposed: 1, accepted: 1 },
  });
});

test("an answer that ends too soon says so", async () => {
  const answer = await answered(RUNS.slice(0, 3));
  assert.match(answer.error, /broke off/);
  assert.equal(answer.finish, null);
});

test("an error in the stream and a refusal are said", async () => {
  const failed = await answered([RUNS[0], { error: { message: "no room" } }]);
  assert.equal(failed.error, "no room");
  globalThis.fetch = async () => new Response(JSON.stringify({ error: { message: "wrong field" } }), { status: 400 });
  const refused = answers.emptyAnswer({});
  await answers.ask(refused, undefined, () => assert.fail());
  assert.equal(refused.error, "wrong field");
});

test("the first different token is found, also where one answer is longer", () => {
  assert.equal(answers.firstDifference([1, 2, 3], [1, 2, 3]), -1);
  assert.equal(answers.firstDifference([1, 2, 3], [1, 9, 3]), 1);
  assert.equal(answers.firstDifference([1, 2], [1, 2, 3]), 2);
});

test("calls are put together of their parts, and go into the next request", async () => {
  const part = (fields) => ({ tool_calls: [{ index: 0, ...fields }] });
  const plain = { proposed: 0, accepted: 0, accepted_characters: 0, source: null, task: "general" };
  const answer = await answered([
    chunk([1], { ...plain, pass: 0 }, part({ id: "c1", function: { name: "add" } })),
    chunk([2], { ...plain, pass: 1 }, part({ function: { arguments: '{"a":' } })),
    chunk([3], { ...plain, pass: 2 }, part({ function: { arguments: "1}" } }), "tool_calls"),
  ]);
  const { tool_calls, content } = answers.message(answer);
  assert.equal(content, null);
  assert.deepEqual(tool_calls, [{ id: "c1", type: "function", function: { name: "add", arguments: '{"a":1}' } }]);
});

test("an edited turn is a branch, and each branch keeps what follows it", () => {
  const conversation = conversations.emptyConversation();
  const add = (parent, text) => conversations.addTurn(conversation, parent, { role: "user", text });
  const first = add(conversations.ROOT, "one");
  const below = add(first.id, "two");
  const branch = add(conversations.ROOT, "other");
  const texts = () => conversations.path(conversation).map((turn) => turn.text);
  assert.deepEqual(texts(), ["other"]);
  assert.deepEqual(conversations.branches(conversation, first), [first, branch]);
  conversations.choose(conversation, first);
  assert.deepEqual(texts(), ["one", "two"]);
  assert.deepEqual(
    conversations.messagesTo(conversation, below).map((message) => message.content),
    ["one", "two"],
  );
  assert.equal(conversation.title, "one");
});

test("control characters and overrides become visible, everything else stays", () => {
  assert.equal(format.visible("\u001b[31mred\u0007"), "␛[31mred␇");
  assert.equal(format.visible("\u202eabc\u202c"), "⟨U+202E⟩abc⟨U+202C⟩");
  assert.equal(format.visible("\u0085\u007f"), "⟨U+0085⟩␡");
  assert.equal(format.visible("a\n\tb<script>שלום😀"), "a\n\tb<script>שלום😀");
});

test("numbers that are not known are a dash", () => {
  for (const none of [null, undefined, NaN, Infinity]) assert.equal(format.number(none), "–");
  assert.equal(format.percent(null), "–");
  assert.equal(format.percent(0.4), "40 %");
  assert.equal(format.duration(0.0213), "21 ms");
  assert.equal(format.duration(90000), "25.0 h");
});

test("the oldest conversations make room for the newest", () => {
  const text = "x".repeat(60_000);
  for (const id of ["a", "b", "c", "d", "e"]) store.keep({ id, title: id, text });
  const kept = store.conversations().map((one) => one.id);
  assert.deepEqual(kept, ["e", "d", "c"]);
  assert.equal(store.conversation("a"), null);
  assert.equal(store.conversation("e").text, text);
  store.remove("e");
  assert.equal(store.conversation("e"), null);
});

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
const api = await load("api.js");
const compare = await load("compare.js");
const dom = await load("dom.js");
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

test("what hides or reorders text is seen, and joiners stay", () => {
  for (const code of [0x2066, 0x2067, 0x2069, 0x200e, 0x200f, 0x061c, 0x200b, 0xad, 0xfeff, 0x2028, 0x2029, 0x2060]) {
    const name = code.toString(16).toUpperCase().padStart(4, "0");
    assert.equal(format.visible(`a${String.fromCodePoint(code)}b`), `a⟨U+${name}⟩b`);
  }
  assert.equal(format.visible("a\u{e0041}\u{e007f}"), "a⟨U+E0041⟩⟨U+E007F⟩");
  assert.equal(format.visible("👩\u200d💻 نمی\u200cخواهم"), "👩\u200d💻 نمی\u200cخواهم");
});

test("every text that enters the page is made visible, and so is what is read of an element", () => {
  const node = dom.element(
    "button",
    { title: "a\u202eb", "aria-label": "c\u2066", "data-focus": "d\u2066" },
    "e\u200bf",
  );
  assert.equal(node.textContent, "e⟨U+200B⟩f");
  assert.deepEqual(node.attributes, { title: "a⟨U+202E⟩b", "aria-label": "c⟨U+2066⟩", "data-focus": "d\u2066" });
  dom.show(node, "g\u202e");
  assert.equal(node.textContent, "g⟨U+202E⟩");
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

test("one conversation that does not fit costs no other, and is said not to be kept", () => {
  const before = store.conversations();
  assert.equal(before.length, 2);
  assert.equal(store.keep({ id: "huge", title: "huge", text: "x".repeat(250_000) }), false);
  assert.deepEqual(store.conversations(), before);
  for (const { id } of before) assert.equal(store.conversation(id).text.length, 60_000);
  assert.equal(store.conversation("huge"), null);
  assert.equal(store.keep({ id: "f", title: "f", text: "x".repeat(1000) }), true);
  assert.equal(store.keep({ id: "c", title: "c", text: "x".repeat(250_000) }), false); // what was kept of it stays
  assert.equal(store.conversation("c").text.length, 60_000);
});

test("what only fits alone is kept, with an index that names nothing else", () => {
  assert.equal(store.keep({ id: "g", title: "g", text: "x".repeat(199_500) }), true);
  assert.deepEqual(
    store.conversations().map((one) => one.id),
    ["g"],
  );
  assert.equal(store.conversation("c"), null);
});

/** What is said of this answer, how many times, and what was asked for it, where it comes again in these chunks. */
async function proof(answer, chunks, detokenize) {
  const asked = [];
  globalThis.fetch = async (url, { body }) => {
    asked.push([new URL(url).pathname, JSON.parse(body)]);
    return url.pathname === "/detokenize" ? detokenize() : streamed(...chunks);
  };
  const node = document.createElement("p");
  const replace = node.replaceChildren.bind(node);
  let times = 0;
  node.replaceChildren = (...children) => {
    times += 1;
    replace(...children);
  };
  await compare.prove(answer, node, undefined);
  return { words: node.textContent, asked, times };
}

/** An answer that was stopped when these had come. */
async function stopped(chunks) {
  const answer = await answered(chunks);
  return Object.assign(answer, { error: "stopped", body: { ...answer.body, speculation: {} } });
}

test("a stopped answer is held to as many tokens as it has", async () => {
  const { words, asked } = await proof(await stopped(RUNS.slice(0, 3)), [
    ...RUNS.slice(0, 2),
    chunk(
      [2, 3, 4],
      { proposed: 0, accepted: 0, accepted_characters: 0, source: null, task: null, pass: 1 },
      { content: "B" },
      "length",
    ),
  ]);
  assert.match(words, /^4 of 4 tokens equal/);
  assert.deepEqual(
    asked.map(([path, { max_tokens, speculation }]) => [path, max_tokens, speculation]),
    [["/v1/chat/completions", 4, { enabled: false }]],
  );
});

test("an answer of which nothing came is not compared", async () => {
  const { words, asked } = await proof(await stopped(RUNS.slice(0, 1)), RUNS);
  assert.equal(words, "There are no tokens to compare.");
  assert.deepEqual(asked, []);
});

test("a token that differs is told, by its id where its text is not", async () => {
  const spelled = async () => new Response(JSON.stringify({ prompt: "\u202ea" }));
  const other = [
    ...RUNS.slice(0, 2),
    chunk(
      [2, 9],
      { proposed: 0, accepted: 0, accepted_characters: 0, source: null, task: null, pass: 1 },
      { content: "B" },
      "length",
    ),
  ];
  const answer = await answered(RUNS);
  answer.body.speculation = {};
  const refused = async () => new Response("", { status: 503 });
  assert.match((await proof(answer, other, refused)).words, /^Token 3 differs: id 3 with speculation, id 9 without/);
  assert.match((await proof(answer, other, spelled)).words, /^Token 3 differs: "⟨U\+202E⟩a" with/);
});

test("an answer that was refused is no message of the next request", () => {
  const conversation = conversations.emptyConversation();
  const add = (parent, fields) => conversations.addTurn(conversation, parent, fields).id;
  const answer = (fields) => ({ role: "assistant", answer: { ...answers.emptyAnswer({}), ...fields } });
  const first = add(conversations.ROOT, { role: "user", text: "one" });
  const refused = add(first, answer({ error: "no room" }));
  const second = add(refused, { role: "user", text: "two" });
  const broken = add(second, answer({ error: "stopped", runs: [{ content: "par", reasoning: "" }] }));
  const third = add(broken, { role: "user", text: "three" });
  assert.deepEqual(
    conversations.messagesTo(conversation, conversation.turns[third]).map(({ content }) => content),
    ["one", "two", "par", "three"],
  );
});

test("the progress of a proof is said once a second at most", async () => {
  const answer = await answered(RUNS);
  answer.body.speculation = {};
  const { words, times } = await proof(answer, RUNS);
  assert.match(words, /^6 of 6 tokens equal/);
  assert.equal(times, 3); // that it is asked, the first token, the verdict
});

test("a key that is entered asks anew, whatever is said of the one before", async () => {
  const asked = [];
  let used = "sk-wrong";
  globalThis.sessionStorage = { getItem: () => used };
  globalThis.fetch = (_, { headers }) =>
    new Promise((answer) => asked.push({ sent: headers.Authorization, answer }));
  const refused = [api.model(true), api.model(true)];
  used = "sk-right";
  const told = api.model(true);
  assert.deepEqual(
    asked.map(({ sent }) => sent),
    ["Bearer sk-wrong", "Bearer sk-right"],
  );
  asked[0].answer(new Response("{}", { status: 401 }));
  asked[1].answer(new Response(JSON.stringify({ data: [{ id: "m", root: "m" }] })));
  for (const each of refused) await assert.rejects(each, { status: 401 });
  assert.equal((await told).id, "m");
});

// Tests of what an operator does from the page, and of the views around it; test_page_files.py runs them with node.

import assert from "node:assert/strict";
import { test } from "node:test";

import { STATIC } from "./page_document.mjs";

globalThis.matchMedia = () => ({ matches: false, addEventListener() {} });
globalThis.requestAnimationFrame = () => 0;
globalThis.cancelAnimationFrame = () => {};

const load = (name) => import(new URL(name, STATIC));
const { Drafts } = await load("drafts.js");
const { Playground } = await load("playground.js");

const settled = () => new Promise((resolve) => setTimeout(resolve, 5));
const VIEWER = { acts: true, why: "" };

/** Draws what the view makes, and tells the questions that its buttons ask and the bodies that are sent, in order. */
function trial(make) {
  const view = new Drafts({ tell() {} });
  const told = [];
  view.actions.confirmed = async (question) => told.push(question);
  globalThis.fetch = async (_, { body }) => {
    told.push(JSON.parse(body));
    return new Response(JSON.stringify({ done: "Done." }));
  };
  return { node: make(view), told, outcome: view.actions.outcome };
}

/** A field as a browser has it, which reads as empty what is no number. */
function written(node, value, valid = true) {
  const input = node.find(({ tag }) => tag === "input");
  Object.assign(input, { value, validity: { valid } });
}

test("replicas are set to the number that the question names, and an empty field sets none", async () => {
  const { node, told, outcome } = trial((view) => view.drawScale({ name: "general", target: 1 }, VIEWER));
  for (const [value, valid] of [
    ["", true],
    ["", false],
    ["1.5", false],
  ]) {
    written(node, value, valid);
    await node.press("Scale");
    assert.match(outcome.textContent, /Replicas of general: Write a number/);
  }
  assert.deepEqual(told, []);
  written(node, "2");
  await node.press("Scale");
  assert.deepEqual(told, ["Set general from 1 to 2 replicas?", { replicas: { general: 2 } }]);
});

test("what is done with one field leaves what was written in another", async () => {
  const actions = new Drafts({ tell() {} }).actions;
  actions.confirmed = async () => true;
  globalThis.fetch = async () => new Response(JSON.stringify({ done: "Done." }));
  const write = (name, value) => {
    const input = actions.number(name, 1, {});
    input.value = value;
    input.listeners.input();
    return input;
  };
  const one = write("one", "2");
  write("other", "3");
  await actions.run("Sure?", "console/scale", {}, one);
  assert.deepEqual([actions.number("one", 1, {}).value, actions.number("other", 1, {}).value], [1, "3"]);
});

test("a canary gets the share that the question names, and a deployment asks for none", async () => {
  const bundle = { version: "v2", blocked: "slower" };
  const { node, told } = trial((view) => view.bundleActions(bundle, VIEWER));
  written(node, "");
  await node.press("Canary");
  assert.deepEqual(told, []);
  await node.press("Deploy");
  assert.deepEqual(told.splice(0), [
    "Let bundle v2 serve every prompt? It is blocked: slower.",
    { version: "v2", force: true },
  ]);
  written(node, "0.25");
  await node.press("Canary");
  assert.deepEqual(told, [
    "Let bundle v2 serve 25 % of the prompts? It is blocked: slower.",
    { version: "v2", force: true, share: 0.25 },
  ]);
});

test("one goes back to the newest proven bundle before the one that is served, never to a later one", () => {
  const rollout = {
    version: "v3",
    candidate: "v2",
    state: "canary",
    share: 0.1,
    answers: 0,
    last: null,
    betting: null,
  };
  const bundle = (version, proven, blocked = null) => ({ version, proven, blocked });
  const offered = (...bundles) => {
    const node = document.createElement("div");
    node.append(...new Drafts({ tell() {} }).drawRollout({ rollout, bundles, viewer: VIEWER }));
    return node.find(({ textContent }) => textContent === "Roll back")?.attributes["data-focus"] ?? null;
  };
  const later = [bundle("v4", true), bundle("v3", true)];
  assert.equal(offered(...later), null);
  assert.equal(offered(...later, bundle("v2", true), bundle("v1", true, "slower"), bundle("v0", false)), null);
  assert.equal(offered(...later, bundle("v2", true), bundle("v1", true)), "Roll back v1");
  assert.equal(offered(bundle("v4", true), bundle("v1", true)), null);
});

/** A service whose answers end when `end` is called; `models` answers for the model. */
function service(models) {
  const held = { chats: [] };
  globalThis.fetch = async (url, { body, signal }) => {
    if (url.pathname === "/v1/models") return models();
    held.chats.push(JSON.parse(body));
    const stream = new ReadableStream({
      start(controller) {
        held.end = () => controller.close();
        signal.addEventListener("abort", () => controller.error(signal.reason));
      },
    });
    return new Response(stream);
  };
  return held;
}

const known = async () => new Response(JSON.stringify({ data: [{ id: "m", root: "m" }] }));

test("what was written stays where the model is not told, and is asked once it is", async () => {
  service(async () => new Response(JSON.stringify({ detail: "a key is needed" }), { status: 401 }));
  const playground = new Playground();
  playground.draft.value = "Hello";
  playground.node.press("Send");
  await settled();
  assert.equal(playground.draft.value, "Hello");
  assert.deepEqual(playground.conversation.turns, {});
  assert.equal(playground.news.textContent, "a key is needed");
  const up = service(known);
  playground.node.press("Send");
  await settled();
  assert.equal(playground.draft.value, "");
  assert.deepEqual(up.chats[0].messages, [{ role: "user", content: "Hello" }]);
  up.end();
  await settled();
});

test("an answer that runs stays when its conversation is opened once more, and ends when another is", async () => {
  const held = service(known);
  const playground = new Playground();
  playground.draft.value = "Hello";
  playground.node.press("Send");
  await settled();
  const { conversation } = playground;
  playground.open(conversation.id);
  assert.equal(playground.conversation, conversation);
  assert.notEqual(playground.stopper, null);
  document.activeElement = playground.stop;
  playground.open(null);
  await settled();
  assert.notEqual(playground.conversation, conversation);
  assert.equal(playground.stopper, null);
  assert.equal(document.activeElement, playground.draft); // its button is hidden now
  assert.equal(held.chats.length, 1);
});

test("a conversation that the browser cannot keep is said not to be", async () => {
  const held = service(known);
  globalThis.localStorage = { getItem: () => null, setItem: () => assert.fail("full"), removeItem() {} };
  const playground = new Playground();
  playground.draft.value = "Hello";
  playground.node.press("Send");
  await settled();
  held.end();
  await settled();
  assert.match(playground.news.textContent, /not kept/);
});

test("copying says where it is not allowed, also where there is no clipboard", async () => {
  const { answerTurn } = await load("turns.js");
  const { emptyAnswer } = await load("answer.js");
  const { emptyConversation } = await load("conversation.js");
  const turn = { id: "1", parent: "", role: "assistant", answer: { ...emptyAnswer({}), finish: "stop" } };
  for (const [clipboard, words] of [
    [undefined, "Not allowed"],
    [{ writeText: async () => assert.fail("refused") }, "Not allowed"],
    [{ writeText: async () => {} }, "Copied"],
  ]) {
    Object.defineProperty(globalThis, "navigator", { value: { clipboard }, configurable: true });
    const { node } = answerTurn(emptyConversation(), turn, {});
    await node.press("Copy");
    assert.ok(node.find(({ tag, textContent }) => tag === "button" && textContent === words));
  }
});

test("a view that was not loaded says so, and is loaded when it is chosen again", async () => {
  let route = null;
  globalThis.addEventListener = (_, listener) => (route = listener);
  globalThis.location = { hash: "#drafts" };
  globalThis.fetch = async () => new Response("", { status: 401 }); // its feed waits for a key, and asks no more
  const { createElement } = document;
  document.createElement = (tag) => (tag === "h1" ? assert.fail("no network") : createElement(tag));
  await load("page.js");
  await settled();
  const view = document.getElementById("view");
  assert.equal(
    view.find(({ attributes }) => attributes.role === "alert").textContent,
    "Drafts was not loaded: no network",
  );
  document.createElement = createElement;
  await route();
  assert.match(view.children[0].attributes.class, /drafts/);
});

test("a service that falls silent is asked again, and the page does not say live", async (context) => {
  const { StatusFeed } = await load("status.js");
  context.mock.timers.enable({ apis: ["setTimeout"] });
  const asked = [];
  globalThis.fetch = async (_, { signal }) => {
    asked.push(signal);
    const start = (controller) => {
      controller.enqueue(new TextEncoder().encode('data: {"at": 1}\n\n'));
      signal.addEventListener("abort", () => controller.error(signal.reason));
    };
    return new Response(new ReadableStream({ start }));
  };
  const turns = async () => {
    for (let turn = 0; turn < 20; turn += 1) await new Promise(setImmediate);
  };
  const feed = new StatusFeed();
  const told = [];
  feed.tell((status) => told.push(status));
  await turns();
  assert.deepEqual([feed.node.textContent, told.length, asked.length], ["live", 1, 1]);
  context.mock.timers.tick(29_000);
  await turns();
  assert.equal(feed.node.textContent, "live");
  context.mock.timers.tick(1_000);
  await turns();
  assert.equal(feed.node.textContent, "nothing for 30 s, connecting again");
  context.mock.timers.tick(2_000);
  await turns();
  assert.deepEqual([feed.node.textContent, told.length, asked.length], ["live", 2, 2]);
  feed.tell(null);
  await turns();
  context.mock.timers.tick(120_000);
  await turns();
  assert.deepEqual([feed.node.textContent, asked.length], ["", 2]);
});

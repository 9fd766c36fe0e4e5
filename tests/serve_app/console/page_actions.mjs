// Tests of what an operator does from the page, and of the views around it; test_page_files.py runs them with node.

import assert from "node:assert/strict";
import { test } from "node:test";

import { STATIC } from "./page_document.mjs";

const load = (name) => import(new URL(name, STATIC));
const { Drafts } = await load("drafts.js");

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
  for (const [value, valid] of [["", true], ["", false], ["1.5", false]]) {
    written(node, value, valid);
    await node.press("Scale");
    assert.match(outcome.textContent, /Replicas of general: Write a number/);
  }
  assert.deepEqual(told, []);
  written(node, "2");
  await node.press("Scale");
  assert.deepEqual(told, ["Set general from 1 to 2 replicas?", { replicas: { general: 2 } }]);
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

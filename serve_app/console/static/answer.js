// An answer as it arrives: its runs, one for each pass of the target, and what can be counted of them. Plain data, so
// that it can be kept and exported as it is.

import { Refused, events } from "./api.js";

const STREAMED = { stream: true, stream_options: { include_usage: true, include_speculation: true } };

/** An answer to `body`, of which nothing has arrived. Times are seconds from the moment it was asked. */
export function emptyAnswer(body) {
  return {
    body,
    runs: [],
    calls: [],
    usage: null,
    seed: body.seed ?? null,
    finish: null,
    error: null,
    first: null,
    last: null,
  };
}

/** Streams the answer; `onRun` is called with each run once it is part of the answer. A failure stands in `error`. */
export async function ask(answer, signal, onRun) {
  const began = performance.now();
  const body = { ...answer.body, ...STREAMED };
  try {
    for await (const chunk of events("v1/chat/completions", body, signal)) {
      take(answer, chunk, (performance.now() - began) / 1000, onRun);
    }
    if (answer.finish === null) throw new Refused("the service broke off the answer");
  } catch (error) {
    answer.error = error.name === "AbortError" ? "stopped" : error.message;
  }
}

function take(answer, chunk, seconds, onRun) {
  answer.seed = chunk.seed ?? answer.seed;
  answer.usage = chunk.usage ?? answer.usage;
  for (const choice of chunk.choices) {
    answer.finish = choice.finish_reason ?? answer.finish;
    const delta = choice.delta ?? {};
    if (!choice.token_ids.length && !delta.content && !delta.reasoning_content && !delta.tool_calls) continue;
    answer.first ??= seconds;
    answer.last = seconds;
    const run = runOf(choice, delta, seconds);
    answer.runs.push(run);
    (delta.tool_calls ?? []).forEach((part) => addCall(answer.calls, part));
    onRun(run);
  }
}

/** `pass` is 0 for the first run, which comes of reading the prompt. `split` counts accepted characters, not UTF-16. */
function runOf(choice, delta, seconds) {
  const {
    proposed,
    accepted,
    accepted_characters: split,
    source = null,
    task = null,
    pass = null,
  } = choice.speculation;
  return {
    pass,
    seconds,
    ids: choice.token_ids,
    proposed,
    accepted,
    split: split ?? 0,
    source,
    task,
    reasoning: delta.reasoning_content ?? "",
    content: delta.content ?? "",
    calls: (delta.tool_calls ?? [])
      .map((call) => (call.function.name ? `${call.function.name} ` : "") + (call.function.arguments ?? ""))
      .join(""),
  };
}

function addCall(calls, part) {
  calls[part.index] ??= { id: part.id, name: part.function.name, arguments: "" };
  calls[part.index].arguments += part.function.arguments ?? "";
}

/** The ids of its tokens. */
export const tokens = (answer) => answer.runs.flatMap((run) => run.ids);

export const content = (answer) => answer.runs.map((run) => run.content).join("");

export const reasoning = (answer) => answer.runs.map((run) => run.reasoning).join("");

/** Tokens, passes and rates; rates are null until there is something to divide by. */
export function figures(answer) {
  const total = answer.runs.reduce((sum, run) => sum + run.ids.length, 0);
  const passes = answer.runs.filter((run) => run.pass > 0).length;
  const later = total - (answer.runs[0]?.ids.length ?? 0);
  const seconds = answer.last - answer.first;
  return {
    tokens: total,
    passes,
    perPass: passes ? later / passes : null,
    rate: seconds > 0 ? later / seconds : null,
    first: answer.first,
    total: answer.last,
  };
}

/** By source `{proposed, accepted}`, and as `own` the tokens that nobody proposed. */
export function bySource(answer) {
  const counts = { own: { proposed: 0, accepted: 0 } };
  for (const run of answer.runs) {
    counts.own.accepted += run.ids.length - run.accepted;
    if (run.source === null) continue;
    const counted = (counts[run.source] ??= { proposed: 0, accepted: 0 });
    counted.proposed += run.proposed;
    counted.accepted += run.accepted;
  }
  return counts;
}

/** The first place where the tokens of two answers differ, -1 if they are equal. */
export function firstDifference(one, other) {
  const length = Math.max(one.length, other.length);
  for (let at = 0; at < length; at += 1) if (one[at] !== other[at]) return at;
  return -1;
}

/** The message that an answer is in the conversation that goes on. */
export function message(answer) {
  const calls = answer.calls.map((call) => ({
    id: call.id,
    type: "function",
    function: { name: call.name, arguments: call.arguments },
  }));
  const said = { role: "assistant", content: content(answer) || (calls.length ? null : "") };
  return calls.length ? { ...said, tool_calls: calls } : said;
}

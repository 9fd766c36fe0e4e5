// Service: replicas, load, keys, traces and faults. The same data as `taskspec status --json`.

import { figure, key, meter, timeline } from "./charts.js";
import { element, facts, table } from "./dom.js";
import { clock, moment, number, percent } from "./format.js";
import { Panel } from "./panel.js";

export class Service {
  constructor(feed) {
    this.feed = feed;
    this.panels = [
      [
        new Panel("Now", drawNow),
        ({ model, bundle, deployed, queue, parts, minutes, at }) => ({
          model,
          bundle,
          deployed,
          queue,
          parts,
          hour: hour(minutes),
          at: Math.floor(at / 60),
        }),
      ],
      [new Panel("The last hour", drawMinutes), ({ minutes, at }) => ({ minutes, at: 60 * Math.floor(at / 60) })],
      [new Panel("Replicas", drawParts), ({ parts }) => parts],
      [new Panel("Keys", drawKeys), ({ keys }) => keys],
      [new Panel("Traces", drawTraces), ({ traces }) => traces],
      [new Panel("Last faults", drawFaults), ({ faults }) => faults],
      [new Panel("As JSON", drawJson), (status) => status],
    ];
    this.node = element(
      "div",
      { class: "panels service" },
      element("h1", { class: "unseen" }, "Service"),
      ...this.panels.map(([panel]) => panel.node),
    );
  }

  enter() {
    this.feed.tell((status) => this.panels.forEach(([panel, slice]) => panel.update(slice(status))));
  }

  leave() {
    this.feed.tell(null);
  }
}

function hour(minutes) {
  const sum = (name) => minutes.reduce((total, minute) => total + minute[name], 0);
  return {
    requests: sum("requests"),
    refused: sum("refused"),
    failed: sum("failed"),
    gone: sum("gone"),
    answers: sum("answers"),
    tokens: sum("tokens"),
    passes: sum("passes"),
  };
}

function drawNow({ model, bundle, deployed, queue, parts, hour: last, at }) {
  const target = parts.find((part) => part.name === "target");
  return facts(
    [
      ["model", model],
      ["bundle", bundle ?? "none"],
      ["up since", moment(deployed)],
      ["sessions", number(target?.sessions)],
      ["running", number(queue?.running)],
      ["waiting", queue && `${number(queue.waiting)} of ${number(queue.room)}`],
      ["requests, last hour", number(last.requests)],
      ["failed", number(last.failed)],
      ["refused", number(last.refused)],
      ["tokens per pass", last.passes ? number(last.tokens / last.passes, 2) : null],
      ["seen at", clock(60 * at)],
    ],
    { class: "facts big" },
  );
}

/** A value for each minute of the hour; `otherwise` for those in which nothing was counted. */
function series(minutes, at, value, otherwise) {
  const by = new Map(minutes.map((minute) => [minute.at, minute]));
  const times = Array.from({ length: 60 }, (_, back) => at - 60 * (59 - back));
  return times.map((time) => [time, by.has(time) ? value(by.get(time)) : otherwise]);
}

function drawMinutes({ minutes, at }) {
  const total = hour(minutes);
  const line = (kind, value, otherwise = 0) => ({ kind, points: series(minutes, at, value, otherwise) });
  const most = (value) => Math.max(0, ...minutes.map(value));
  const [requests, rate] = [(minute) => minute.requests, (minute) => minute.tokens / 60];
  const perPass = (minute) => (minute.passes ? minute.tokens / minute.passes : null);
  const errors = [
    line("bad", (minute) => minute.failed),
    line("warn dashed", (minute) => minute.refused),
    line("own dotted", (minute) => minute.gone),
  ];
  return element(
    "div",
    { class: "charts" },
    figure(
      "requests a minute",
      timeline([line("value", requests)], `Requests a minute, at most ${most(requests)}`),
      `${number(total.requests)} in the hour, at most ${number(most(requests))}`,
    ),
    figure(
      "errors a minute",
      timeline(errors, `Errors a minute: ${total.failed} failed, ${total.refused} refused, ${total.gone} clients gone`),
      ...[
        ["bad", "failed"],
        ["warn dashed", "refused"],
        ["own dotted", "gone"],
      ].map(([kind, name]) => element("span", {}, key(kind), `${number(total[name])} ${name} `)),
    ),
    figure(
      "tokens/s",
      timeline([line("value", rate)], `Tokens a second, at most ${number(most(rate), 1)}`),
      `at most ${number(most(rate), 1)}`,
    ),
    figure(
      "tokens per pass",
      timeline([line("draft", perPass, null)], "Tokens per pass by minute"),
      total.passes ? `${number(total.tokens / total.passes, 2)} over the hour` : "–",
    ),
  );
}

function drawParts(parts) {
  const rows = parts.flatMap((part) => [
    [
      part.name,
      state(part),
      `${number(part.running)} of ${number(part.target)}`,
      number(part.sessions),
      pages(part),
      part.proposed ? `${percent(part.accepted / part.proposed, 1)} of ${number(part.proposed)}` : "–",
      replicas(part),
    ],
  ]);
  return table(
    "Parts of the service",
    ["part", "state", "replicas", "sessions", "KV pages", "acceptance", "each replica"],
    rows,
  );
}

function state({ state: name, message }) {
  return element(
    "span",
    { class: name === "HEALTHY" ? "good" : "bad" },
    name.toLowerCase().replaceAll("_", " ") + (message ? `: ${message}` : ""),
  );
}

function pages({ pages: held, free_pages: free }) {
  if (held === null || held === undefined) return "–";
  const share = held / (held + free || 1);
  return element(
    "div",
    { class: "kv" },
    `${number(held)} of ${number(held + free)} `,
    meter(share, `KV pages held: ${percent(share)}`),
  );
}

function replicas({ replicas: all }) {
  return element(
    "span",
    { class: "replicas" },
    ...(all ?? []).map(({ id, state: name, since, node }) =>
      element("span", {}, `${id} ${name.toLowerCase()} since ${clock(since)} on ${node}`),
    ),
  );
}

function drawKeys(keys) {
  if (!keys.length) return element("p", {}, "None were used.");
  const left = (limits, name) =>
    limits[name] ? `${number(limits[name].remaining)} of ${number(limits[name].limit)}` : "–";
  return table(
    "Keys and what they have left",
    ["key", "requests, last hour", "refused", "failed", "open", "requests left", "tokens left", "at once left"],
    keys.map(({ name, admin, requests, refused, failed, open, limits }) => [
      (name ?? "without a key") + (admin ? " (admin)" : ""),
      number(requests),
      number(refused),
      number(failed),
      number(open),
      left(limits, "requests"),
      left(limits, "tokens"),
      left(limits, "concurrency"),
    ]),
  );
}

function drawTraces(traces) {
  if (!traces) return element("p", {}, "No answers are recorded.");
  return facts(Object.entries(traces).map(([name, amount]) => [name.replaceAll("_", " "), number(amount)]));
}

function drawFaults(faults) {
  if (!faults.length) return element("p", {}, "None.");
  return table(
    "The newest first",
    ["at", "what"],
    faults.map(({ at, what }) => [clock(at), what]),
  );
}

function drawJson(status) {
  return element(
    "details",
    { "data-focus": "json" },
    element("summary", { "data-focus": "json summary" }, "All that this page was told"),
    element("pre", { tabindex: "0" }, JSON.stringify(status, null, 2)),
  );
}

// Drafts: what each task's draft did, by which bundle, why it was published, and what is on trial.

import { Actions } from "./actions.js";
import { figure, interval, meter, shares } from "./charts.js";
import { element, facts, field, show, table } from "./dom.js";
import { count, moment, number, percent } from "./format.js";
import { Panel } from "./panel.js";
import { NAMES, source } from "./sources.js";

const NO_BUNDLE = "none";
const GENERAL = "general";
const SPEED = "speedup";
const CANARY = 0.1; // of the prompts, unless another share is written

export class Drafts {
  constructor(feed) {
    this.feed = feed;
    this.actions = new Actions();
    this.rollout = new Panel("Rollout", (status) => this.drawRollout(status));
    this.bundles = new Panel("Bundles", (status) => this.drawBundles(status));
    this.moves = new Panel("Answers that moved", drawMoves);
    this.tasks = new Map();
    this.cards = element("div", { class: "cards" });
    this.node = element(
      "div",
      { class: "panels drafts" },
      element("h1", { class: "unseen" }, "Drafts"),
      this.actions.node,
      this.rollout.node,
      this.cards,
      this.bundles.node,
      this.moves.node,
    );
  }

  enter() {
    this.feed.tell((status) => this.update(status));
  }

  leave() {
    this.feed.tell(null);
  }

  update(status) {
    const { rollout, bundles, viewer, tasks, parts, moves, drafts } = status;
    this.actions.permit(viewer);
    this.rollout.update({ rollout, bundles, viewer });
    this.bundles.update({ bundles, viewer, rollout: rollout && { version: rollout.version, state: rollout.state } });
    this.moves.update(moves);
    this.updateTasks(tasks, (task) => ({
      task,
      viewer,
      part: scalable(parts, task),
      replay: drafts?.[task.name] ?? null,
      trial: rollout?.acceptance?.[task.name] ?? null,
    }));
  }

  updateTasks(tasks, seen) {
    const names = tasks.map((task) => task.name);
    if (names.join("\n") !== [...this.tasks.keys()].join("\n")) {
      this.tasks = new Map(names.map((name) => [name, this.tasks.get(name) ?? this.card(name)]));
      show(this.cards, ...[...this.tasks.values()].map((panel) => panel.node));
    }
    for (const task of tasks) this.tasks.get(task.name).update(seen(task));
  }

  card(name) {
    return new Panel(name, (seen) => this.drawTask(seen), { class: "panel task" });
  }

  drawRollout({ rollout, bundles, viewer }) {
    if (!rollout)
      return element("p", {}, "The configuration names no bundle directory, so one draft serves every prompt.");
    const version = rollout.version ?? NO_BUNDLE;
    const earlier = provenBefore(bundles, version, rollout.candidate);
    const deploy = (label, question, target) =>
      this.actions.button(label, viewer, {
        about: target,
        question: () => question,
        path: "console/deploy",
        body: () => ({ version: target }),
      });
    return [
      facts(
        [
          ["state", element("strong", {}, rollout.state)],
          ["serves", code(version)],
          ["candidate", rollout.candidate && code(rollout.candidate)],
          ["its share", rollout.candidate && percent(rollout.share)],
          ["answers judged", number(rollout.answers)],
        ],
        { class: "facts big" },
      ),
      rollout.last && element("p", { class: "note" }, `Last: ${rollout.last}`),
      rollout.betting && drawBetting(rollout.betting),
      element(
        "div",
        { class: "buttons" },
        rollout.candidate &&
          deploy("End the canary", `End the canary ${rollout.candidate}, and serve ${version} alone?`, version),
        earlier && deploy("Roll back", `Roll back from ${version} to ${earlier.version}?`, earlier.version),
      ),
    ].filter(Boolean);
  }

  drawTask({ task, viewer, part, replay, trial }) {
    const { hour } = task;
    return [
      task.words.length
        ? element("p", { class: "words" }, ...task.words.map((word) => element("span", {}, word)))
        : null,
      figure(
        "share of the hour’s answers",
        meter(task.share, `Share of answers: ${percent(task.share)}`),
        percent(task.share),
      ),
      figure(
        "acceptance over the hour",
        meter(hour.acceptance, `Acceptance: ${percent(hour.acceptance, 1)}`),
        hour.proposed ? `${percent(hour.acceptance, 1)} of ${number(hour.proposed)}` : "–",
      ),
      facts([
        ["tokens per pass", number(hour.tokens_per_pass, 2)],
        ["answers", number(hour.answers)],
        ["moved on", number(hour.moved)],
        ["drafts of", task.part === task.name ? null : task.part],
        ["replicas", `${number(task.running)} of ${number(task.target)}`],
        ["prompts found in", task.prompts && number(task.prompts)],
      ]),
      routed(task.router),
      drawSources(task.sources),
      task.versions.length ? versionsTable(task.versions) : null,
      drawEvidence(task),
      trial && drawTrial(trial),
      replay && drawReplay(replay),
      part && this.drawScale(part, viewer),
    ].filter(Boolean);
  }

  drawScale(part, viewer) {
    const { name, target } = part;
    const input = this.actions.number(`Replicas of ${name}`, target, { min: 0, step: 1 });
    const scale = this.actions.button("Scale", viewer, {
      about: name,
      input,
      question: () => `Set ${name} from ${number(target)} to ${count(Number(input.value), "replica")}?`,
      path: "console/scale",
      body: () => ({ replicas: { [name]: Number(input.value) } }),
    });
    return element("div", { class: "scale" }, field("Replicas", input), scale);
  }

  drawBundles({ bundles, viewer, rollout }) {
    if (!bundles.length) return element("p", {}, "There are no bundles.");
    const rows = bundles.map((bundle) => [
      code(bundle.version),
      moment(bundle.created),
      standing(bundle),
      bundle.tasks.join(", ") || "general alone",
      drawShadow(bundle.shadow),
      rollout && rollout.version !== bundle.version ? this.bundleActions(bundle, viewer) : "",
    ]);
    return table("Bundles, the newest first", ["version", "made", "standing", "tasks", "shadow", "do"], rows);
  }

  bundleActions({ version, blocked }, viewer) {
    const share = this.actions.number(`Share of ${version} as a canary`, CANARY, { min: 0.01, max: 0.99, step: 0.01 });
    const force = blocked ? { force: true } : {};
    const despite = blocked ? ` It is blocked: ${blocked}.` : "";
    const act = (label, question, more, input) =>
      this.actions.button(label, viewer, {
        about: version,
        input,
        question: () => question() + despite,
        path: "console/deploy",
        body: () => ({ version, ...force, ...more() }),
      });
    const part = () => Number(share.value);
    return element(
      "div",
      { class: "buttons" },
      act(
        "Deploy",
        () => `Let bundle ${version} serve every prompt?`,
        () => ({}),
      ),
      act(
        "Canary",
        () => `Let bundle ${version} serve ${percent(part())} of the prompts?`,
        () => ({ share: part() }),
        share,
      ),
      share,
    );
  }
}

const code = (text) => element("code", {}, text);

/** The newest bundle before the one that is served that is proven, not blocked, and not the candidate. */
function provenBefore(bundles, version, candidate) {
  const at = bundles.findIndex((bundle) => bundle.version === version);
  if (at === -1) return undefined;
  return bundles.slice(at + 1).find((each) => each.proven && !each.blocked && each.version !== candidate);
}

/** The pool of the task's own drafts, if its replicas can be set; that of several tasks is `general`'s. */
function scalable(parts, task) {
  const own = parts.find((part) => part.name === task.name && part.deployment === "DraftPool");
  return own?.scalable && !own.autoscaled ? own : null;
}

function routed({ routed: chosen, named, unasked, chance }) {
  if (!(chosen + named + unasked)) return null;
  const mean = chance === null ? "" : `, mean chance ${percent(chance)}`;
  return element(
    "p",
    { class: "note" },
    `Router: chose it ${count(chosen, "time")}${mean}; the client named it ${number(named)}; ` +
      `not asked ${number(unasked)}`,
  );
}

function drawSources(sources) {
  const order = ([one], [other]) => NAMES.indexOf(one) - NAMES.indexOf(other);
  const entries = Object.entries(sources)
    .filter(([, { proposed }]) => proposed)
    .sort(order);
  if (!entries.length) return null;
  const numbers = entries.map(
    ([name, { proposed, accepted }]) => `${source(name).name} ${number(accepted)} of ${number(proposed)}`,
  );
  const bar = shares(
    entries.map(([name, { accepted }]) => [source(name).kind, accepted]),
    `Accepted tokens: ${numbers.join(", ")}`,
  );
  return figure("accepted by source", bar, numbers.join(" · "));
}

function versionsTable(versions) {
  return table(
    "The last hour by bundle version",
    ["version", "answers", "tokens/pass", "accepted", "moved"],
    versions.map((each) => [
      code(each.version),
      number(each.answers),
      number(each.tokens_per_pass, 2),
      percent(each.acceptance, 1),
      number(each.moved),
    ]),
  );
}

/** Why the served bundle has, or has not, an adapter for the task, and what that gains with its interval. */
function drawEvidence({ name, slot, evidence }) {
  if (!slot) return null;
  const outcome = slot.own ? "Own adapter published" : "No adapter of its own";
  const published = element("strong", {}, name === GENERAL ? "The general draft" : outcome);
  const decided = element("p", {}, published, ` (${slot.decision}): ${slot.reason}`);
  const scores = facts(
    Object.entries(slot.scores).map(([name, score]) => [name, number(score, 3)]),
    { class: "facts scores" },
  );
  const judged = element("p", { class: "note" }, `Judged by ${unit(slot)}:`);
  if (!evidence) return element("div", { class: "evidence" }, decided, judged, scores);
  const { gain, low, high, prompts, looks } = evidence;
  const told = evidence.judged_by === SPEED ? signed : (rate) => signed(rate, "");
  const words = `${told(gain)} (${told(low)} to ${told(high)})`;
  return element(
    "div",
    { class: "evidence" },
    figure(
      `${evidence.judged_by === SPEED ? "tokens/s" : unit(evidence)} against the strongest single draft`,
      interval({ estimate: gain, low, high }, `Gain ${words}, 95 % interval; the dashed line is no gain`),
      words,
    ),
    element(
      "p",
      { class: "note" },
      `95 % interval, ${count(prompts, "prompt")}, looked at by ${count(looks, "retraining")}`,
    ),
    decided,
    judged,
    scores,
  );
}

/** What a decision went by: bundles of earlier versions did not know what drafts cost. */
function unit({ judged_by: by }) {
  return by === SPEED ? "tokens/s, times plain decoding" : by.replaceAll("_", " ");
}

/** With its sign; in percent, or as it is. */
function signed(share, unit = "%") {
  const size = Math.abs(share);
  return `${share >= 0 ? "+" : "−"}${unit ? percent(size, 1) : number(size, 3)}`;
}

function drawTrial({ now, before }) {
  const told = (stats) => (stats ? `${percent(stats.acceptance, 1)} on ${count(stats.answers, "answer")}` : null);
  return facts([
    ["on trial", told(now)],
    ["held to", told(before)],
  ]);
}

function drawReplay({ answers, accepted, replayed, gap, low, high, decayed }) {
  return facts([
    ["replayed exactly", `${percent(replayed, 1)}, served ${percent(accepted, 1)}, on ${count(answers, "answer")}`],
    ["gap", `${signed(gap)} (${signed(low)} to ${signed(high)})${decayed ? ": this draft has decayed" : ""}`],
  ]);
}

/** Money that is bet on the bundle being worse, on a scale of ruin: at its end the bundle goes back. */
function drawBetting({ ruin, money }) {
  const bets = Object.entries(money).map(([name, amount]) =>
    figure(
      name === "all" ? "all tasks" : name,
      meter(
        Math.log(Math.max(1, amount)) / Math.log(ruin),
        `Bet ${number(amount, 2)}; at ${number(ruin)} the bundle goes back`,
      ),
      `${number(amount, 2)} of ${number(ruin)}`,
    ),
  );
  return element(
    "div",
    {},
    element("p", { class: "note" }, `Bets that the candidate is worse: at ${number(ruin)} it goes back.`),
    element("div", { class: "betting" }, ...bets),
  );
}

function drawMoves(moves) {
  if (!moves.length) return element("p", {}, "No answer has moved to another task’s draft since the ingress began.");
  return table(
    "Since the ingress began",
    ["from", "to", "answers"],
    moves.map((each) => [each.from, each.to, number(each.count)]),
  );
}

function standing({ serves, live, blocked, proven }) {
  const words = [serves && "serves", live && !serves && "live", proven && "proven", blocked && `blocked: ${blocked}`];
  return words.filter(Boolean).join(", ") || "new";
}

function drawShadow(shadow) {
  if (!shadow) return "–";
  const { verdict, judged_by: by, all, at } = shadow;
  const told = (value) => signed(value, by === SPEED ? "%" : "");
  const { difference, low, high } = all[by].difference;
  const gain = `${told(difference)} (${told(low)} to ${told(high)})`;
  return `${verdict}: ${by === SPEED ? "tokens/s" : unit(shadow)} ${gain}, ${count(all.answers, "answer")}, ${moment(at)}`;
}

// The state of the service, a line a second for as long as a view looks at it and the page is seen.

import { Refused, events } from "./api.js";
import { element, show } from "./dom.js";

const PAUSE = 1; // seconds before it connects again
const LONGEST_PAUSE = 30;
const SILENCE = 30; // seconds without a state; a connection that sleep or a network cut says nothing of it

export class StatusFeed {
  constructor() {
    this.node = element("span", { class: "feed", role: "status" });
    this.listener = null;
    this.last = null;
    this.stopper = null;
    document.addEventListener("visibilitychange", () => (document.hidden ? this.stop() : this.retry()));
  }

  /** Calls `listener` with each state from now on, at once with the last that is known; null for nobody. */
  tell(listener) {
    this.listener = listener;
    if (!listener) return this.stop();
    if (this.last) listener(this.last);
    return this.retry();
  }

  stop() {
    this.stopper?.abort();
    this.stopper = null;
    this.say("");
  }

  /** Connects anew. */
  retry() {
    this.stop();
    if (!this.listener || document.hidden) return;
    this.stopper = new AbortController();
    this.read(this.stopper.signal);
  }

  async read(signal) {
    for (let pause = PAUSE; !signal.aborted;) {
      try {
        for await (const status of states(signal)) {
          pause = PAUSE;
          this.last = status;
          this.say("live");
          this.listener?.(status);
        }
      } catch (error) {
        if (signal.aborted) return;
        this.say(error.message);
        if (error.status === 401) return; // until there is another key
        pause = Math.min(2 * pause, LONGEST_PAUSE);
      }
      await new Promise((resolve) => setTimeout(resolve, 1000 * pause));
    }
  }

  say(words) {
    this.node.className = `feed ${words === "live" ? "live" : words ? "ailing" : ""}`;
    if (this.node.textContent !== words) show(this.node, words);
  }
}

/** The states as they come; fails when none has come for a while. */
async function* states(signal) {
  const silent = new AbortController();
  const late = new Refused(`nothing for ${SILENCE} s, connecting again`);
  const watch = () => setTimeout(() => silent.abort(late), 1000 * SILENCE);
  let watching = watch();
  try {
    for await (const status of events("console/events", undefined, AbortSignal.any([signal, silent.signal]))) {
      clearTimeout(watching);
      watching = watch();
      yield status;
    }
  } finally {
    clearTimeout(watching);
  }
}

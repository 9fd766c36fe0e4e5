// The state of the service, a line a second for as long as a view looks at it and the page is seen.

import { events } from "./api.js";
import { element } from "./dom.js";

const PAUSE = 1; // seconds before it connects again
const LONGEST_PAUSE = 30;

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
        for await (const status of events("console/events", undefined, signal)) {
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
    if (this.node.textContent !== words) this.node.textContent = words;
  }
}

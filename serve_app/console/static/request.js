// The fields of a request as the user sets them, and the body that they make.

import { button, element, field, show } from "./dom.js";
import { load, save } from "./store.js";

const AUTOMATIC = "automatic";
const OFF = "off";
const TASK = "task:";

const NUMBERS = [
  ["max_tokens", "Maximum tokens", { min: 1, step: 1, placeholder: "the context" }],
  ["temperature", "Temperature", { min: 0, max: 2, step: 0.1, placeholder: "1" }],
  ["top_p", "Top p", { min: 0, max: 1, step: 0.05, placeholder: "1" }],
  ["top_k", "Top k", { min: 0, step: 1, placeholder: "all" }],
  ["min_p", "Min p", { min: 0, max: 1, step: 0.01, placeholder: "0" }],
  ["seed", "Seed", { step: 1, placeholder: "drawn" }],
  ["repetition_penalty", "Repetition penalty", { min: 0.01, step: 0.05, placeholder: "1" }],
  ["presence_penalty", "Presence penalty", { min: -2, max: 2, step: 0.1, placeholder: "0" }],
  ["frequency_penalty", "Frequency penalty", { min: -2, max: 2, step: 0.1, placeholder: "0" }],
];
const FIRST = 6; // those that are always seen
const LENGTH = [
  "num_speculative_tokens",
  "Tokens drafted a pass, at most",
  { min: 0, max: 16, step: 1, placeholder: "the service decides" },
];
const TOOL = {
  type: "function",
  function: {
    name: "weather",
    description: "The weather of a city.",
    parameters: {
      type: "object",
      properties: { city: { type: "string" } },
      required: ["city"],
    },
  },
};
const SCHEMA = {
  type: "object",
  properties: { name: { type: "string" }, age: { type: "integer" } },
  required: ["name", "age"],
  additionalProperties: false,
};

/** The form of a request's fields. They are kept in this browser. */
export class RequestForm {
  constructor() {
    this.inputs = {};
    this.problem = element("p", { class: "problem", role: "alert" });
    const numbers = NUMBERS.map((each) => this.number(each));
    this.node = element(
      "form",
      {
        class: "request",
        "aria-label": "Request",
        onsubmit: (event) => event.preventDefault(),
        oninput: () => this.keep(),
      },
      field("Draft", this.input("task", element("select"))),
      field("System message", this.input("system", element("textarea", { rows: 2 }))),
      element("div", { class: "pairs" }, ...numbers.slice(0, FIRST)),
      element(
        "details",
        {},
        element("summary", {}, "More sampling"),
        element("div", { class: "pairs" }, ...numbers.slice(FIRST), this.number(LENGTH)),
        field("Stop", this.input("stop", element("input", { type: "text" })), "Strings, as a JSON list or one alone"),
      ),
      this.json("schema", "JSON schema", "The answer is JSON of this schema.", SCHEMA),
      this.json("tools", "Tools", "A JSON list of tools that the model may call.", [TOOL]),
      this.problem,
    );
    this.restore(load("request", {}));
    this.offer([]);
  }

  input(name, control) {
    control.name = name;
    this.inputs[name] = control;
    return control;
  }

  number([name, label, limits]) {
    return field(label, this.input(name, element("input", { type: "number", inputmode: "decimal", ...limits })));
  }

  json(name, label, hint, example) {
    const area = this.input(name, element("textarea", { rows: 6, spellcheck: "false", class: "code" }));
    const fill = (text) => () => {
      area.value = text;
      this.keep();
    };
    return element(
      "details",
      {},
      element("summary", {}, label),
      field(label, area, hint),
      element(
        "div",
        { class: "buttons" },
        button("Example", fill(JSON.stringify(example, null, 2))),
        button("Clear", fill("")),
      ),
    );
  }

  restore(values) {
    for (const [name, value] of Object.entries(values)) if (this.inputs[name]) this.inputs[name].value = value;
    this.task = values.task ?? AUTOMATIC;
    for (const details of this.node.querySelectorAll("details")) {
      details.open = [...details.querySelectorAll("input, textarea")].some((control) => control.value);
    }
  }

  keep() {
    this.task = this.inputs.task.value || this.task;
    show(this.problem);
    save("request", Object.fromEntries(Object.entries(this.inputs).map(([name, control]) => [name, control.value])));
  }

  /** Offers these tasks beside what there always is. */
  offer(tasks) {
    const choices = [
      [AUTOMATIC, "Automatic, by the router"],
      ...tasks.map((task) => [TASK + task, task]),
      [OFF, "No draft"],
    ];
    const known = choices.some(([value]) => value === this.task);
    if (!known && tasks.length) this.task = AUTOMATIC;
    this.inputs.task.replaceChildren(...choices.map(([value, label]) => element("option", { value }, label)));
    this.inputs.task.value = known || tasks.length ? this.task : AUTOMATIC;
  }

  /** The body of a request, but for its model and messages; the system message is `system`. Null if a field is wrong. */
  body() {
    try {
      show(this.problem);
      return { ...this.sampling(), ...this.grammar(), speculation: this.speculation() };
    } catch (error) {
      show(this.problem, error.message);
      return null;
    }
  }

  get system() {
    return this.inputs.system.value;
  }

  sampling() {
    const given = NUMBERS.filter(([name]) => this.inputs[name].value !== "");
    for (const [name, label] of given) {
      if (!this.inputs[name].validity.valid && !this.inputs[name].validity.stepMismatch)
        throw new Error(`${label}: ${this.inputs[name].validationMessage}`);
    }
    const stop = this.inputs.stop.value ? { stop: stopOf(this.inputs.stop.value) } : {};
    return { ...Object.fromEntries(given.map(([name]) => [name, Number(this.inputs[name].value)])), ...stop };
  }

  grammar() {
    const schema = this.parsed("schema", "JSON schema");
    const tools = this.parsed("tools", "Tools");
    return {
      ...(schema && { response_format: { type: "json_schema", json_schema: { name: "answer", schema } } }),
      ...(tools && { tools: [tools].flat() }),
    };
  }

  parsed(name, label) {
    try {
      return this.inputs[name].value.trim() ? JSON.parse(this.inputs[name].value) : null;
    } catch (error) {
      throw new Error(`${label}: ${error.message}`);
    }
  }

  speculation() {
    if (this.task === OFF) return { enabled: false };
    const length = this.inputs.num_speculative_tokens.value;
    return {
      ...(this.task.startsWith(TASK) && { task: this.task.slice(TASK.length) }),
      ...(length !== "" && { num_speculative_tokens: Number(length) }),
    };
  }
}

function stopOf(text) {
  try {
    return JSON.parse(text);
  } catch {
    return text;
  }
}

// Requests to the service that served this page. The key goes into a header, and is kept for this tab alone.

const KEY = "taskspec.key";
const LATE = 10000; // milliseconds for the service to tell its model
const wanting = new Set();

export const key = {
  get: () => sessionStorage.getItem(KEY) ?? "",
  set: (text) => (text ? sessionStorage.setItem(KEY, text) : sessionStorage.removeItem(KEY)),
};

/** Calls `listener` whenever the service asks for another key than there is now. */
export function onKeyWanted(listener) {
  wanting.add(listener);
}

let served = null;
const asking = new Map(); // by key: another one may be entered before the service has refused the last

/** The card of the model that is served, by its own name; as it was first told, unless it is to be asked for `anew`. */
export async function model(anew = false) {
  if (served && !anew) return served;
  const used = key.get();
  if (!asking.has(used)) asking.set(used, askForModel().finally(() => asking.delete(used)));
  return asking.get(used); // whoever asks meanwhile waits for the same
}

async function askForModel() {
  const { data } = await json("v1/models", undefined, AbortSignal.timeout(LATE));
  served = data.find((card) => card.root === card.id) ?? data[0];
  return served;
}

/** A refusal or a failure; `status` is 0 where nothing answered. */
export class Refused extends Error {
  constructor(message, status = 0) {
    super(message);
    this.status = status;
  }
}

/** The JSON at `path`; with `body` it is sent there as a POST. */
export async function json(path, body, signal) {
  const response = await asked(path, body, signal);
  return response.status === 204 ? null : response.json();
}

/** The data of each server-sent event at `path`, parsed, until the stream or the `signal` ends it. */
export async function* events(path, body, signal) {
  const response = await asked(path, body, signal);
  for await (const data of eventData(response.body)) {
    if (data === "[DONE]") continue; // the service ends the stream now
    const event = JSON.parse(data);
    if (event.error) throw new Refused(event.error.message ?? String(event.error), response.status);
    yield event;
  }
}

async function asked(path, body, signal) {
  const used = key.get();
  const headers = used ? { Authorization: `Bearer ${used}` } : {};
  const options = { headers, signal, credentials: "omit", referrerPolicy: "no-referrer", cache: "no-store" };
  if (body !== undefined) {
    Object.assign(options, { method: "POST", body: JSON.stringify(body) });
    headers["Content-Type"] = "application/json";
  }
  const response = await fetch(new URL(path, document.baseURI), options).catch((error) => {
    throw error.name === "AbortError" ? error : new Refused("the service does not answer");
  });
  if (response.status === 401 && used === key.get()) wanting.forEach((listener) => listener());
  if (!response.ok) throw await refusal(response);
  return response;
}

async function refusal(response) {
  const text = await response.text();
  return new Refused(message(text) || `the service answered ${response.status}`, response.status);
}

function message(text) {
  try {
    const body = JSON.parse(text);
    return body.error?.message ?? body.detail ?? "";
  } catch {
    return text.slice(0, 300);
  }
}

/** Events end with an empty line, lines with a line feed alone: texts may have other ends of lines in them. */
async function* eventData(stream) {
  const decoder = new TextDecoder();
  const reader = stream.getReader();
  let rest = "";
  try {
    for (let part = await reader.read(); !part.done; part = await reader.read()) {
      const lines = (rest + decoder.decode(part.value, { stream: true })).split("\n");
      rest = lines.pop();
      for (const line of lines) if (line.startsWith("data:")) yield line.slice(5).trim();
    }
  } finally {
    reader.cancel().catch(() => {});
  }
}

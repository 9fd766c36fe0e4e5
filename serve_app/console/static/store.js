// What this browser keeps: conversations, the fields of a request, the theme. Never the key.

const PREFIX = "taskspec.";
const MOST_CONVERSATIONS = 50;

export function load(name, otherwise) {
  try {
    return JSON.parse(localStorage.getItem(PREFIX + name)) ?? otherwise;
  } catch {
    return otherwise;
  }
}

/** Whether it is kept; a full or forbidden storage keeps nothing. */
export function save(name, value) {
  try {
    localStorage.setItem(PREFIX + name, JSON.stringify(value));
    return true;
  } catch {
    return false;
  }
}

export function forget(name) {
  localStorage.removeItem(PREFIX + name);
}

const entry = (id) => `conversation.${id}`;

/** `[{id, title, changed}]`, the last changed first. */
export const conversations = () => load("conversations", []);

export const conversation = (id) => load(entry(id), null);

/**
 * Keeps a conversation, and lets go of the oldest ones where there are too many or no room is left. Whether it is kept:
 * one that does not fit even alone is not, and then the others stay.
 */
export function keep(one) {
  const { id, title } = one;
  const index = [{ id, title, changed: Date.now() }, ...conversations().filter((other) => other.id !== id)];
  const dropped = new Map();
  const drop = () => {
    const name = entry(index.pop().id);
    dropped.set(name, load(name, null));
    forget(name);
  };
  while (index.length > MOST_CONVERSATIONS) drop();
  while (!(save(entry(id), one) && save("conversations", index))) {
    if (index.length > 1) drop();
    else {
      dropped.forEach((kept, name) => save(name, kept));
      return false;
    }
  }
  return true;
}

export function remove(id) {
  forget(entry(id));
  save(
    "conversations",
    conversations().filter((one) => one.id !== id),
  );
}

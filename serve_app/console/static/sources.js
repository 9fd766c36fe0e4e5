// Who proposed tokens, in the words and the colours of this page. `own` are tokens that nobody proposed.

const SOURCES = {
  draft: { kind: "draft", name: "a draft", long: "accepted from the draft" },
  own_text: { kind: "lookup", name: "own text", long: "looked up in this answer and its prompt" },
  answers: { kind: "lookup", name: "earlier answers", long: "looked up in earlier answers of this client" },
  prediction: { kind: "lookup", name: "prediction", long: "looked up in the prediction of the request" },
  grammar: { kind: "grammar", name: "grammar", long: "forced by the grammar" },
  own: { kind: "own", name: "the target’s own", long: "drawn by the target itself" },
};

export const OWN = "own";
export const NAMES = Object.keys(SOURCES);

/** Its kind (the colour), short name and long name; a source that this page does not know is a lookup. */
export function source(name) {
  return SOURCES[name] ?? { kind: "lookup", name, long: `proposed by ${name}` };
}

// Numbers, times and characters as the page writes them.

const NONE = "–";

/** `value` with `digits` behind the point; a dash for what is not known. */
export function number(value, digits = 0) {
  if (value === null || value === undefined || !Number.isFinite(value)) return NONE;
  return value.toLocaleString("en", { minimumFractionDigits: digits, maximumFractionDigits: digits });
}

export function percent(fraction, digits = 0) {
  return Number.isFinite(fraction) && fraction !== null ? `${number(100 * fraction, digits)} %` : NONE;
}

/** Seconds as a length of time. */
export function duration(seconds) {
  if (seconds === null || seconds === undefined || !Number.isFinite(seconds)) return NONE;
  if (seconds < 1) return `${number(1000 * seconds)} ms`;
  if (seconds < 120) return `${number(seconds, seconds < 10 ? 2 : 1)} s`;
  if (seconds < 7200) return `${number(seconds / 60)} min`;
  return seconds < 172800 ? `${number(seconds / 3600, 1)} h` : `${number(seconds / 86400, 1)} days`;
}

/** A time of day here, of seconds since 1970 or of a date's text. */
export function clock(when) {
  if (when === null || when === undefined) return NONE;
  const date = new Date(typeof when === "number" ? 1000 * when : when);
  return Number.isNaN(date.valueOf()) ? String(when) : date.toLocaleTimeString("en-GB");
}

/** Day and time of a date's text. */
export function moment(text) {
  return new Date(text).toLocaleString("en-GB", { dateStyle: "medium", timeStyle: "short" });
}

/** `12 tokens`, `1 token`. */
export function count(amount, noun) {
  return `${number(amount)} ${noun}${amount === 1 ? "" : "s"}`;
}

// Control characters but tab and line feed, and others that are not seen; without the joiners, which scripts need.
const HIDDEN =
  /[\u0000-\u0008\u000b-\u001f\u007f-\u009f\u00ad\u061c\u200b\u200e\u200f\u2028-\u202e\u2060-\u2069\ufeff\u{e0000}-\u{e007f}]/gu;

/** Text with what is hidden, or would reorder what stands around it, in visible form. The rest only has to stay text. */
export function visible(text) {
  return text.replace(HIDDEN, named);
}

function named(character) {
  const code = character.codePointAt(0);
  if (code < 32) return String.fromCharCode(0x2400 + code);
  return code === 127 ? "\u2421" : `\u27e8U+${code.toString(16).toUpperCase().padStart(4, "0")}\u27e9`;
}

// Numbers, times and bytes for people. What a terminal or a browser would act on is shown as an escape.

import { el } from "./dom.js";

// Control characters, marks that turn the direction of text, characters that take no room, lone halves of pairs.
const UNSEEN = /[\u0000-\u001f\u007f-\u009f\u00ad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180e\u200b-\u200f\u2028-\u202e\u2060-\u206f\u3164\ufeff\uffa0\ufff9-\ufffb]|[\u{e0000}-\u{e0fff}]|\p{Cs}/gu;
const NUMBERS = new Intl.NumberFormat("en");
const UNITS = ["B", "KB", "MB", "GB", "TB", "PB"];

function escaped(character) {
  const code = character.codePointAt(0).toString(16);
  return code.length > 4 ? `\\u{${code}}` : `\\u${code.padStart(4, "0")}`;
}

/** Return text as nodes: what is not seen is an escape that can be told from text. Lines stay if `lines`. */
export function visible(text, lines = false) {
  const nodes = [];
  let end = 0;
  for (const match of text.matchAll(UNSEEN)) {
    if (lines && (match[0] === "\n" || match[0] === "\t")) continue;
    if (match.index > end) nodes.push(text.slice(end, match.index));
    nodes.push(el("span", { class: "escape" }, escaped(match[0])));
    end = match.index + match[0].length;
  }
  if (end < text.length) nodes.push(text.slice(end));
  return nodes;
}

/** Return bytes of an answer as an element: a beginning of at most `most` characters. */
export function content(data, most = 120) {
  if (data === null || data === undefined) return el("span", { class: "quiet" }, "null");
  const whole = data.text ?? data.hex;
  const cut = whole.length > most || data.cut;
  if (data.size === 0) return el("span", { class: "quiet" }, "empty");
  return el("span", { class: "content" },
    data.text === undefined ? el("span", { class: "kind" }, "hex ") : null,
    el("bdi", {}, visible(whole.slice(0, most))),
    cut ? el("span", { class: "quiet" }, ` … ${bytes(data.size)}`) : null);
}

/** Return a text that stands alone, such as a title: escapes without marks. */
export function plain(text) {
  return text.replace(UNSEEN, escaped);
}

/** Return a number with separators. */
export function count(number) {
  return number === null || number === undefined ? "–" : NUMBERS.format(number);
}

/** Return a number of things; `thing` is the word for one. */
export function several(number, thing) {
  return `${count(number)} ${thing}${number === 1 ? "" : thing === "batch" ? "es" : "s"}`;
}

/** Return a number that may be an estimate. */
export function about(number, counted) {
  return counted ? count(number) : `about ${count(number)}`;
}

/** Return a size with its unit. */
export function bytes(size) {
  if (size === null || size === undefined) return "–";
  let unit = 0;
  let number = size;
  while (number >= 1000 && unit < UNITS.length - 1) {
    number /= 1000;
    unit += 1;
  }
  return `${unit && number < 100 ? number.toFixed(1) : Math.round(number)} ${UNITS[unit]}`;
}

/** Return a time as an element, in UTC; small numbers, which are no times of day, as they are. */
export function time(ms) {
  if (ms === null || ms === undefined || ms < 0) return el("span", { class: "quiet" }, "–");
  const date = new Date(ms);
  if (ms < 1e11 || Number.isNaN(date.getTime())) return `${count(ms)} ms`;
  const text = date.toISOString();
  return el("time", { datetime: text }, `${text.slice(0, 10)} ${text.slice(11, 23).replace(".000", "")}`);
}

/** Return a share as a percentage. */
export function percent(part, whole) {
  const share = whole ? (100 * part) / whole : 0;
  return share > 0 && share < 1 ? "<1 %" : `${Math.round(share)} %`;
}

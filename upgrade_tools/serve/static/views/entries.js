// Entries of a store, in pages: a form says which, and its fields stand in the address.

import { ask } from "../api.js";
import { el, table } from "../dom.js";
import { asked as askedFor, link, withQuery } from "../links.js";
import { content, count, time, visible } from "../text.js";
import { keyLink } from "./store.js";

const SERDES = ["string", "json", "int32", "int64", "double", "boolean", "bytes"];
const TEXTS = [
  ["key", "Key", "text, or 0x and hex"],
  ["prefix", "Prefix", "what keys begin with"],
  ["from", "From key", "the first one"],
  ["to", "To key", "the last one"],
  ["header", "Header", "NAME or NAME=VALUE"],
  ["timeFrom", "Time from", "ms"],
  ["timeTo", "Time to", "ms"],
];
const CHOICES = [["keyAs", "Keys as"], ["valueAs", "Values as"]];
const NAMES = [...TEXTS, ...CHOICES].map(([name]) => name);

export async function show(name, query, signal) {
  const asked = Object.fromEntries(NAMES.map((each) => [each, query.getAll(each)]));
  const path = `stores/${encodeURIComponent(name)}/entries`;
  const { found, went } = await pageOf(path, { ...asked, page: query.get("page") }, signal);
  const address = withQuery(link("stores", name, "entries"), asked);
  return {
    title: `Entries of ${name}`,
    heading: ["Entries of ", el("a", { href: link("stores", name) }, visible(name))],
    nodes: [
      form(name, asked),
      went ? el("p", { class: "note", role: "status" }, `The state has gone on: this page is of batch ${count(found.batch)}.`) : null,
      el("p", { class: "quiet", role: "status" }, said(found)),
      rowsOf(name, found),
      el("p", { class: "pages" },
        query.get("page") ? el("a", { class: "button", href: address }, "First page") : null,
        found.page ? el("a", { class: "button", rel: "next", href: withQuery(address, { page: found.page }) }, "Next page") : null),
    ],
  };
}

/** Return a page; if its token is of another batch, the page of this batch at the same place. */
async function pageOf(path, asked, signal) {
  try {
    return { found: await ask(path, asked, signal), went: false };
  } catch (problem) {
    if (problem.status !== 409) throw problem;
    return { found: await ask(path, { ...asked, page: problem.answer.page }, signal), went: true };
  }
}

function said({ entries, read, page }) {
  const all = `${count(entries.length)} entries, found in ${count(read)} rows`;
  if (!page) return `${all}. There are no more.`;
  return entries.length ? `${all}. There are more.` : `${all}.`;
}

function form(name, asked) {
  const fields = TEXTS.map(([field, title, hint]) => el("div", {},
    el("label", { for: `f-${field}` }, title),
    el("input", { id: `f-${field}`, name: field, value: asked[field][0] ?? "", placeholder: hint, autocomplete: "off",
      inputmode: hint === "ms" ? "numeric" : null, spellcheck: "false" })));
  const choices = CHOICES.map(([field, title]) => el("div", {},
    el("label", { for: `f-${field}` }, title),
    el("select", { id: `f-${field}`, name: field }, ["", ...SERDES].map((serde) =>
      el("option", { value: serde, selected: serde === (asked[field][0] ?? "") }, serde || "as the server does")))));
  // A second header of the address stays: the form has room for one.
  const others = asked.header.slice(1);
  const submit = (event) => {
    event.preventDefault();
    const given = Object.fromEntries([...new FormData(event.target)].map(([field, value]) => [field, [value]]));
    document.activeElement.blur();
    location.hash = withQuery(link("stores", name, "entries"), { ...given, header: [...given.header, ...others] });
  };
  return el("form", { class: "filters", role: "search", "aria-label": "Which entries", submit }, fields, choices,
    el("div", { class: "act" }, el("button", {}, "Show"),
      el("a", { href: link("stores", name, "entries") }, "All")),
    others.length ? el("p", { class: "quiet" }, "and with ", others.map((each) => el("span", { class: "chip" }, visible(each)))) : null);
}

function rowsOf(name, { entries, page }) {
  const hasTimes = entries.some((each) => each.start !== undefined);
  const columns = [
    { name: "Key", head: true }, hasTimes ? { name: "From, to" } : null, { name: "Value" }, { name: "Timestamp" }, { name: "Headers" },
  ].filter(Boolean);
  const rows = entries.map((each) => [
    keyLink(name, each.key),
    hasTimes ? spanOf(each) : null,
    content(each.value),
    each.timestamp === undefined ? "–" : time(each.timestamp),
    chips(each.headers, name),
  ].filter((cell) => cell !== null));
  return table("Entries", columns, rows, page ? "Nothing yet: the next page looks further." : "No entry matches.");
}

/** Return the times of a window, session or version. */
export function spanOf(entry) {
  return el("span", {}, time(entry.start), " – ", entry.end === null ? "now" : time(entry.end));
}

/** Return headers as chips, each a link to the entries that have it. */
export function chips(headers, store = null) {
  if (!headers?.length) return el("span", { class: "quiet" }, "none");
  return el("ul", { class: "chips" }, headers.map(({ key, value }) => {
    const shown = [el("b", {}, visible(key)), " ", content(value, 60)];
    return el("li", {}, store
      ? el("a", { class: "chip", href: withQuery(link("stores", store, "entries"), { header: askedFor(key) }) }, shown)
      : el("span", { class: "chip" }, shown));
  }));
}

// One store: how it is spread over shards, its headers, and its largest keys.

import { ask } from "../api.js";
import { bar } from "../charts.js";
import { el, section, table, tiles } from "../dom.js";
import { asked, link, withQuery } from "../links.js";
import { about, bytes, content, count, percent, visible } from "../text.js";

export async function show(name, query, signal) {
  const found = await ask(`stores/${encodeURIComponent(name)}`, {}, signal);
  return {
    title: found.name,
    heading: visible(found.name),
    nodes: [
      el("p", { class: "quiet" }, found.description, found.isGlobal ? ", global: each shard has all" : ""),
      el("p", {}, el("a", { class: "button", href: link("stores", name, "entries") }, "Entries")),
      figures(found),
      el("p", { class: "quiet" }, readOf(found)),
      section("Headers", headersOf(found)),
      section("Largest keys", largestOf(found)),
      section("Shards", shardsOf(found)),
    ],
  };
}

function figures({ entries, counted, sampled, upgradeLeft }) {
  const mean = (size) => (sampled.entries ? bytes(size / sampled.entries) : "–");
  const sum = sampled.keyBytes + sampled.valueBytes + sampled.headerBytes;
  return tiles([
    ["Entries", about(entries, counted)],
    ["Key", mean(sampled.keyBytes), `${percent(sampled.keyBytes, sum)} of the bytes`],
    ["Value", mean(sampled.valueBytes), `${percent(sampled.valueBytes, sum)} of the bytes`],
    ["Headers", mean(sampled.headerBytes), `${percent(sampled.headerBytes, sum)} of the bytes`],
    ["With headers", percent(sampled.withHeaders, sampled.entries), "of the entries"],
    upgradeLeft ? ["Upgrade", count(upgradeLeft), "entries in an older format"] : null,
  ]);
}

function readOf({ counted, sampled, shards, shardsRead }) {
  if (counted) return `Counted: all ${count(sampled.entries)} entries were read.`;
  const part = shardsRead < shards ? ` in ${shardsRead} of ${shards} shards; the next look reads more` : "";
  return `Sampled: ${count(sampled.entries)} entries from places spread over the keys${part}. Means and shares are of these.`;
}

function headersOf({ name, hasHeaders, headers, indexedHeaders, sampled, counted }) {
  if (!hasHeaders) return el("p", { class: "quiet" }, "Stores of this kind have no headers.");
  const most = headers.length ? headers[0].count : 0;
  const rows = headers.map((header) => [
    el("a", { class: "chip", href: withQuery(link("stores", name, "entries"), { header: asked(header.name) }) }, visible(header.name),
      indexedHeaders.includes(header.name) ? el("span", { class: "quiet" }, " indexed") : null),
    el("span", { class: "share" }, bar([[header.count, "headers"]], most), el("span", {}, count(header.count))),
    bytes(header.sizeBytes),
    el("span", { class: "chips" }, header.values.map(({ value, count: times }) => valueChip(name, header.name, value, times))),
  ]);
  const of = counted ? "the entries" : `${count(sampled.entries)} sampled entries`;
  return table(`Headers of ${of}`, [
    { name: "Header", head: true }, { name: "Entries" }, { name: "Bytes", number: true }, { name: "Most frequent values" },
  ], rows, "No entry that was read has headers.");
}

function valueChip(store, header, value, times) {
  const shown = [content(value, 40), el("span", { class: "quiet" }, ` ${count(times)}`)];
  if (value === null || value.cut) return el("span", { class: "chip" }, shown);
  return el("a", { class: "chip", href: withQuery(link("stores", store, "entries"), { header: asked(header, value) }) }, shown);
}

function largestOf({ name, largest, counted }) {
  const most = largest.length ? largest[0].sizeBytes : 0;
  const rows = largest.map((each) => [
    keyLink(name, each.key),
    el("span", { class: "share" },
      bar([[each.keyBytes, "keys"], [each.valueBytes, "values"], [each.headerBytes, "headers"]], most),
      el("span", {}, bytes(each.sizeBytes))),
    count(each.shard),
  ]);
  return table(counted ? "Entries that take the most bytes" : "Of the sampled entries, those that take the most bytes", [
    { name: "Key", head: true }, { name: "Bytes" }, { name: "Shard", number: true },
  ], rows, "There are no entries.");
}

/** Return a key as a link to its view; long ones have no link. */
export function keyLink(store, key) {
  const shown = content(key, 80);
  return key.id === undefined ? shown : el("a", { href: withQuery(link("stores", store, "key"), { id: key.id }) }, shown);
}

function shardsOf({ byShard }) {
  const most = Math.max(0, ...byShard.map((each) => each.entries ?? 0));
  const rows = byShard.map((each) => [
    count(each.shard),
    each.entries === null
      ? el("span", { class: "quiet" }, "not read yet")
      : el("span", { class: "share" }, bar([[each.entries, "values"]], most), el("span", {}, count(each.entries))),
    bytes(each.sizeBytes),
  ]);
  return table("How entries are spread", [
    { name: "Shard", head: true }, { name: "Entries" }, { name: "On disk", number: true },
  ], rows);
}

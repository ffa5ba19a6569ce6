// What batches have changed: the list of those that were seen, one of them, and one version of a shard.

import { ask } from "../api.js";
import { el, section, table } from "../dom.js";
import { link, withQuery } from "../links.js";
import { bytes, content, count, several, time, visible } from "../text.js";
import { chips, spanOf } from "./entries.js";
import { keyLink } from "./store.js";

const SHOWN_SHARDS = 5;

export async function list(signal) {
  const { batches, recent } = await ask("batches", {}, signal);
  const hasStages = [...batches, ...recent].some((batch) => batch.stage > 0);
  const named = new Map();
  for (const each of [...recent, ...batches]) {
    const name = `${each.stage}/${each.batch}`;
    named.set(name, { ...named.get(name), ...each });
  }
  const newest = [...named.values()].toSorted((a, b) => b.batch - a.batch || a.stage - b.stage);
  return {
    title: "Batches",
    nodes: [
      el("p", { class: "quiet" }, "The newest first. What a batch has changed is known of those that this server has seen."),
      table("Batches", [{ name: "Batch", head: true }, hasStages ? { name: "Stage", number: true } : null, { name: "Committed" },
        { name: "Records", number: true }, { name: "Duration", number: true }, { name: "Deltas", number: true },
        { name: "Shards changed: version" }].filter(Boolean), newest.map((batch) => rowOf(batch, hasStages))),
    ],
  };
}

function rowOf(batch, hasStages) {
  const title = batch.batch < 0 ? "as given" : count(batch.batch);
  return [
    batch.changed ? el("a", { href: link("batches", batch.stage, batch.batch) }, title) : title,
    hasStages ? count(batch.stage) : null,
    batch.batch < 0 ? "–" : time(batch.time),
    count(batch.records),
    batch.duration === undefined ? "–" : `${count(batch.duration)} ms`,
    bytes(batch.deltaBytes),
    batch.changed?.length ? shardsOf(batch) : "–",
  ].filter((cell) => cell !== null);
}

function shardsOf(batch) {
  return el("ul", { class: "chips" }, batch.changed.map(({ shard, version }) =>
    el("li", {}, el("a", { class: "chip", href: link("versions", batch.stage, shard, version) }, `shard ${shard}: ${count(version)}`))));
}

export async function show([stage, number], signal) {
  const { batches } = await ask("batches", {}, signal);
  const batch = batches.findLast((each) => String(each.stage) === stage && String(each.batch) === number);
  if (!batch) return { title: `Batch ${number}`, nodes: [el("p", {}, "This server has not seen this batch.")] };
  const shown = batch.changed.slice(0, SHOWN_SHARDS);
  const found = await Promise.all(shown.map(({ shard, version }) => ask(`shards/${stage}/${shard}/versions/${version}`, {}, signal)));
  const more = batch.changed.length - shown.length;
  return {
    title: `Batch ${number}`,
    nodes: [
      el("p", { class: "quiet" }, "Committed by ", time(batch.time), `, in run ${batch.run}. It has changed ${several(batch.changed.length, "shard")}.`),
      found.map((each) => section(`Shard ${each.shard}`, changesOf(each))),
      more > 0 ? el("p", {}, `and ${several(more, "shard")}: `, shardsOf({ ...batch, changed: batch.changed.slice(SHOWN_SHARDS) })) : null,
    ],
  };
}

export async function version([stage, shard, number], query, signal) {
  const path = `shards/${encodeURIComponent(stage)}/${encodeURIComponent(shard)}/versions/${encodeURIComponent(number)}`;
  const found = await ask(path, { page: query.get("page") }, signal);
  const place = found.versions.indexOf(found.version);
  const near = (title, to) => (to === undefined ? null : el("a", { class: "button", href: link("versions", stage, shard, to) }, title));
  return {
    title: `Version ${count(found.version)} of shard ${found.shard}`,
    nodes: [
      el("p", { class: "quiet" }, found.batch === null ? "Written " : `Of batch ${count(found.batch)}, written `, time(found.time)),
      el("p", { class: "pages" }, near("Before", found.versions[place + 1]), near("After", found.versions[place - 1])),
      changesOf(found),
    ],
  };
}

function changesOf(found) {
  const rows = found.changes.map((change) => [
    [keyLink(change.store, change.key), change.start === undefined ? null : [" ", spanOf(change)]],
    el("a", { href: link("stores", change.store) }, visible(change.store)),
    before(change),
    [change.value === null ? el("strong", { class: "gone" }, "deleted") : content(change.value), chips(change.headers, change.store)],
  ]);
  const address = link("versions", found.stage, found.shard, found.version);
  return [
    table(`What version ${count(found.version)} of shard ${found.shard} has changed`, [
      { name: "Key", head: true }, { name: "Store" }, { name: "Before" }, { name: "After" },
    ], rows, "It has changed nothing that is shown."),
    found.page === null ? null : el("p", {}, el("a", { class: "button", rel: "next", href: withQuery(address, { page: found.page }) }, "More changes")),
  ];
}

function before({ old }) {
  if (old === undefined) return el("span", { class: "quiet" }, "not known");
  if (old === null) return el("span", { class: "quiet" }, "was not there");
  return [content(old.value), chips(old.headers)];
}

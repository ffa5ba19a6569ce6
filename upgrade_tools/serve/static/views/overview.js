// The whole at a glance: what is committed, the stores, the batches that were seen, and the shards.

import { ask } from "../api.js";
import { bar, columns } from "../charts.js";
import { el, section, table, tiles } from "../dom.js";
import { link } from "../links.js";
import { about, bytes, count, several, time, visible } from "../text.js";

const SHOWN_SHARDS = 20;

let listed = null; // of the last look: shown until files are listed again

export async function show(signal) {
  const found = await ask("overview", {}, signal);
  const files = el("section", {}, listed ? filesOf(listed) : [el("h2", {}, "Files"), el("p", { class: "quiet" }, "Listing …")]);
  ask("files", {}, signal).then((answer) => {
    listed = answer;
    files.replaceChildren(...filesOf(listed).filter(Boolean));
  }, (problem) => {
    if (problem.name !== "AbortError") files.replaceChildren(el("h2", {}, "Files"), el("p", { class: "problem" }, problem.message));
  });
  return {
    title: "Overview",
    nodes: [
      el("p", { class: "place" }, visible(found.location)),
      found.problem ? el("p", { class: "problem", role: "alert" }, visible(found.problem)) : null,
      facts(found),
      section("Stores", storesOf(found.stores)),
      section("Batches", batchesOf(found)),
      section("Shards", shardsOf(found.stages)),
      files,
    ],
  };
}

function facts({ stages, stores }) {
  const [stage] = stages;
  const pointers = stages.flatMap((each) => each.pointers);
  const skipped = pointers.reduce((sum, each) => sum + each.skippedRecords, 0);
  const left = stores.reduce((sum, each) => sum + each.upgradeLeft, 0);
  const entries = stores.reduce((sum, each) => sum + each.entries, 0);
  return tiles([
    ["Batch", count(stage.batch), stage.time === null ? "pointers that were given" : time(stage.time)],
    ["Entries", about(entries, stores.every((each) => each.counted)), `in ${several(stores.length, "store")}`],
    ["Size", bytes(stores.reduce((sum, each) => sum + each.sizeBytes, 0)), "on disk"],
    ["Shards", count(pointers.length), stages.length > 1 ? `in ${stages.length} stages` : `by ${stage.shardBy}`],
    ["Skipped records", count(skipped), "that no serde could read"],
    left ? ["Upgrade", count(left), "entries in an older format"] : null,
  ]);
}

function storesOf(stores) {
  const rows = stores.map((store) => {
    const { keyBytes, valueBytes, headerBytes } = store.sampled;
    const sum = keyBytes + valueBytes + headerBytes;
    const said = `keys ${bytes(keyBytes)}, values ${bytes(valueBytes)}, headers ${bytes(headerBytes)}`;
    return [
      el("a", { href: link("stores", store.name) }, visible(store.name)),
      store.kind,
      about(store.entries, store.counted),
      bytes(store.sizeBytes),
      el("span", { class: "share" },
        bar([[keyBytes, "keys"], [valueBytes, "values"], [headerBytes, "headers"]], sum), el("span", { class: "quiet" }, said)),
    ];
  });
  const read = stores.every((store) => store.counted)
    ? "All entries were read."
    : "Sampled: sizes are those of the entries that were read, and entries with “about” are estimates.";
  return [
    table("The stores of the query", [
      { name: "Store", head: true }, { name: "Kind" }, { name: "Entries", number: true },
      { name: "On disk", number: true }, { name: "Keys, values, headers" },
    ], rows, "There are no stores."),
    el("p", { class: "quiet legend" },
      el("span", { class: "keys mark" }), "keys ", el("span", { class: "values mark" }), "values ",
      el("span", { class: "headers mark" }), `headers · ${read}`),
  ];
}

function batchesOf({ batches, stages }) {
  const recent = stages.flatMap((stage) => stage.recent);
  const all = el("a", { href: link("batches") }, "All batches");
  if (recent.length) return measured(recent, stages.length > 1, all);
  const seen = batches.filter((batch) => batch.batch >= 0);
  const points = seen.map((batch) => ({
    size: batch.changed.length,
    title: `batch ${batch.batch}: ${several(batch.changed.length, "shard")} changed`,
  }));
  return [
    columns(points, `Shards changed by each of ${several(seen.length, "batch")}`),
    el("p", { class: "quiet" }, `Shards changed by each batch since this server started: ${several(seen.length, "batch")}. `, all),
  ];
}

/** Return the batches as the query has measured them: how long, how much, and where the time went in the last one. */
function measured(recent, hasStages, all) {
  const points = (size, unit) => recent.map((batch) => ({
    size: batch[size], title: `batch ${batch.batch}: ${count(batch[size])} ${unit}`,
  }));
  const last = recent.at(-1);
  const sum = last.phases.reduce((total, { ms }) => total + ms, 0);
  const rows = last.phases.filter(({ ms }) => ms > 0).toSorted((a, b) => b.ms - a.ms).map(({ phase, ms }) =>
    [phase, el("span", { class: "share" }, bar([[ms, "values"]], sum), el("span", {}, `${count(ms)} ms`))]);
  const most = (size) => count(Math.max(...recent.map((batch) => batch[size])));
  return [
    el("div", { class: "pair" },
      el("figure", {}, columns(points("duration", "ms"), `Duration of ${several(recent.length, "batch")}`),
        el("figcaption", { class: "quiet" }, `Duration: ${count(last.duration)} ms, at most ${most("duration")} ms`)),
      el("figure", {}, columns(points("records", "records"), `Records of ${several(recent.length, "batch")}`),
        el("figcaption", { class: "quiet" }, `Records: ${count(last.records)}, at most ${most("records")}`))),
    el("p", { class: "quiet" }, `The last ${several(recent.length, "batch")}${hasStages ? " of all stages" : ""}. `, all),
    table(`Where the time of batch ${count(last.batch)} went, summed over its shards`, [{ name: "Phase", head: true }, { name: "Time" }],
      rows, "Its phases took no time that was measured."),
  ];
}

function shardsOf(stages) {
  const pointers = stages.flatMap((stage) => stage.pointers.map((pointer) => ({ stage: stage.stage, ...pointer })));
  const sorted = pointers.toSorted((a, b) => (b.lastMs ?? 0) - (a.lastMs ?? 0) || b.historyBytes - a.historyBytes);
  const most = Math.max(0, ...pointers.map((pointer) => pointer.historyBytes));
  const rows = sorted.slice(0, SHOWN_SHARDS).map((each) => [
    stages.length > 1 ? `${each.stage} / ${each.shard}` : count(each.shard),
    each.version ? el("a", { href: link("versions", each.stage, each.shard, each.version) }, count(each.version)) : "0",
    each.lastMs === null ? "–" : `${count(each.lastMs)} ms`,
    time(each.streamTime),
    each.snapshots.length ? each.snapshots.map(count).join(", ") : "none",
    el("span", { class: "share" }, bar([[each.historyBytes, "values"]], most), el("span", {}, bytes(each.historyBytes))),
  ]);
  const more = sorted.length - rows.length;
  return [
    table("What is committed of each shard, the slowest first", [
      { name: stages.length > 1 ? "Stage / shard" : "Shard", head: true }, { name: "Version", number: true },
      { name: "Last call", number: true }, { name: "Stream time" }, { name: "Snapshots at" }, { name: "Deltas to replay" },
    ], rows),
    more > 0 ? el("p", { class: "quiet" }, `and ${several(more, "shard")} that were faster, or have fewer bytes of deltas`) : null,
  ];
}

function filesOf({ shards, isWhole }) {
  const sum = (name) => shards.reduce((total, shard) => total + shard[name], 0);
  return [
    el("h2", {}, "Files"),
    tiles([
      ["Snapshots", bytes(sum("snapshotBytes")), `${count(shards.reduce((total, each) => total + each.snapshots.length, 0))} of them`],
      ["History", bytes(sum("deltaBytes")), several(sum("deltas"), "delta")],
      ["Garbage", bytes(sum("garbageBytes")), "that no retained version needs"],
      ["Retained", count(Math.max(0, ...shards.map((shard) => shard.retainedVersions ?? 0))), "versions before the last"],
    ]),
    isWhole ? null : el("p", { class: "quiet" }, `Of the first ${several(shards.length, "shard")}: listing all takes too long.`),
  ];
}

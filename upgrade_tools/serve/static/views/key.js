// One key: all of its value, and who wrote it over the retained batches.

import { ask, save } from "../api.js";
import { el, section } from "../dom.js";
import { link, withQuery } from "../links.js";
import { bytes, content, count, plain, time, visible } from "../text.js";
import { chips, spanOf } from "./entries.js";

const SHOWN = 20_000;
const MODES = ["text", "JSON", "hex"];

export async function show(name, query, signal) {
  const path = `stores/${encodeURIComponent(name)}`;
  const asked = { id: query.get("id"), key: query.get("key") };
  const found = await ask(`${path}/key`, asked, signal);
  const past = await ask(`${path}/history`, { ...asked, before: query.get("before") }, signal);
  const [first] = [...found.entries, ...past.writes];
  const shown = first?.key;
  return {
    title: `${shown ? plain(shown.text ?? `0x${shown.hex}`).slice(0, 60) : "Key"} in ${name}`,
    heading: shown ? content(shown, 300) : "Nothing has this key",
    nodes: [
      el("p", { class: "quiet" }, "A key of ", el("a", { href: link("stores", name) }, visible(name)), `, in shard ${past.shard}`),
      section(found.entries.length > 1 ? `Now: ${count(found.entries.length)} entries` : "Now",
        found.entries.length ? found.entries.map((entry) => entryOf(path, name, asked, entry)) : el("p", {}, "It is not there."),
        found.more ? el("p", { class: "quiet" }, "There are more entries of this key than are shown.") : null),
      section("History", historyOf(name, asked, past)),
    ],
  };
}

function entryOf(path, name, asked, entry) {
  return el("article", { class: "entry" },
    el("p", { class: "quiet" }, entry.start === undefined ? null : [spanOf(entry), " · "],
      entry.timestamp === undefined ? "" : ["timestamp ", time(entry.timestamp), " · "], bytes(entry.value.size)),
    valueOf(path, asked, entry),
    el("h3", {}, "Headers"), chips(entry.headers, name));
}

function valueOf(path, asked, entry) {
  const pre = el("pre", { tabindex: "0", "aria-label": "Value" });
  const note = el("p", { class: "quiet" });
  const { value } = entry;
  const modes = value.text === undefined ? ["hex"] : MODES;
  const choose = (mode) => {
    const whole = shownAs(value, mode);
    pre.replaceChildren(...visible(whole.slice(0, SHOWN), true));
    note.textContent = whole.length > SHOWN || value.cut ? `The beginning of ${bytes(value.size)}.` : "";
    for (const button of group.querySelectorAll("button[aria-pressed]")) {
      button.setAttribute("aria-pressed", String(button.textContent === mode));
    }
  };
  const download = () => save(`${path}/value`, { ...asked, start: entry.start, end: entry.end }, "value.bin");
  const group = el("div", { class: "act", role: "group", "aria-label": "How the value is shown" },
    modes.map((mode) => el("button", { type: "button", "aria-pressed": "false", click: () => choose(mode) }, mode)),
    el("button", { type: "button", click: download }, "Save all of it"));
  choose(modes.length > 1 && looksLikeJson(value.text) ? "JSON" : modes[0]);
  return [group, pre, note];
}

function looksLikeJson(text) {
  return /^\s*[[{]/.test(text);
}

function shownAs(value, mode) {
  if (value.text === undefined) return value.hex.replace(/(..)/g, "$1 ");
  if (mode === "hex") {
    return Array.from(new TextEncoder().encode(value.text.slice(0, SHOWN)), (byte) => byte.toString(16).padStart(2, "0")).join(" ");
  }
  if (mode !== "JSON") return value.text;
  try {
    return JSON.stringify(JSON.parse(value.text), null, 2);
  } catch {
    return value.text;
  }
}

function historyOf(name, asked, past) {
  const writes = past.writes.map((write) => el("li", {},
    el("p", {}, el("a", { href: link("versions", past.stage, past.shard, write.version) }, `Version ${count(write.version)}`),
      write.batch === null ? null : `, batch ${count(write.batch)}`,
      write.time === null ? null : [" · ", time(write.time)]),
    el("p", {}, write.value === null ? el("strong", { class: "gone" }, "deleted") : content(write.value, 200),
      write.start === undefined ? null : el("span", { class: "quiet" }, " ", spanOf(write))),
    chips(write.headers, name),
    differencesOf(write)));
  if (!writes.length && !past.before) {
    return el("p", { class: "quiet" }, past.oldestVersion === null
      ? "Its shard has no retained delta."
      : `No retained delta has it; the oldest is of version ${count(past.oldestVersion)}.`);
  }
  const earlier = past.before
    ? el("p", {}, el("a", { class: "button", href: withQuery(link("stores", name, "key"), { ...asked, before: past.before }) }, "Look further back"))
    : el("p", { class: "quiet" }, past.isWhole
      ? "This is all since the state began."
      : `Deltas before version ${count(past.oldestVersion)} are no longer retained.`);
  return [el("ol", { class: "history" }, writes), earlier];
}

function differencesOf(write) {
  if (!write.changed) return null;
  return el("p", { class: "quiet" }, write.changed.length ? `changed: ${write.changed.join(", ")}` : "the same was written again");
}

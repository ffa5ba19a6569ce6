// The topology, drawn: each node behind those that it is fed by, with the figures of its stores.

import { ask } from "../api.js";
import { el, section, svg, table } from "../dom.js";
import { link } from "../links.js";
import { about, count, plain, visible } from "../text.js";

const NARROW = 700;
const BOX = { width: 168, height: 44, line: 17, gap: 22, step: 60 };
const LETTERS = 22;

export async function show(signal) {
  const { topology, stores } = await ask("overview", {}, signal);
  const known = new Map(stores.map((store) => [store.name, store]));
  if (!topology.length) {
    return { title: "Topology", nodes: [el("p", {}, "No query has started on this state, so there is no topology.")] };
  }
  const stages = [...new Set(topology.map((node) => node.stage))];
  return {
    title: "Topology",
    nodes: stages.map((stage) => {
      const nodes = topology.filter((node) => node.stage === stage);
      return section(stages.length > 1 ? `Stage ${stage}` : "Nodes", drawing(nodes, known, window.innerWidth < NARROW), listOf(nodes, known));
    }),
  };
}

/** Return the nodes in layers: each is one behind the last of its parents. */
export function layered(nodes) {
  const byName = new Map(nodes.map((node) => [node.name, node]));
  const depths = new Map();
  const depth = (name, seen) => {
    if (depths.has(name) || seen.has(name)) return depths.get(name) ?? 0;
    const parents = (byName.get(name).parents ?? []).filter((parent) => byName.has(parent));
    const found = parents.length ? 1 + Math.max(...parents.map((parent) => depth(parent, new Set([...seen, name])))) : 0;
    depths.set(name, found);
    return found;
  };
  const layers = [];
  for (const node of nodes) (layers[depth(node.name, new Set())] ??= []).push(node);
  // Beside their parents, so that few lines cross.
  const places = new Map();
  for (const layer of layers) {
    const middle = (node) => {
      const above = (node.parents ?? []).map((parent) => places.get(parent)).filter((place) => place !== undefined);
      return above.length ? above.reduce((sum, place) => sum + place, 0) / above.length : Infinity;
    };
    const middles = new Map(layer.map((node) => [node, middle(node)]));
    layer.sort((a, b) => middles.get(a) - middles.get(b) || 0);
    layer.forEach((node, place) => places.set(node.name, place));
  }
  return layers;
}

function drawing(nodes, known, isNarrow) {
  const layers = layered(nodes);
  const height = (node) => BOX.height + BOX.line * (node.stores?.length ?? 0);
  const boxes = new Map();
  let along = 8;
  let widest = 0;
  for (const layer of layers) {
    let across = 8;
    for (const node of layer) {
      boxes.set(node.name, isNarrow ? { x: across, y: along, node } : { x: along, y: across, node });
      across += (isNarrow ? BOX.width : height(node)) + BOX.gap;
    }
    widest = Math.max(widest, across);
    along += (isNarrow ? Math.max(...layer.map(height)) : BOX.width) + BOX.step;
  }
  const [wide, tall] = isNarrow ? [widest, along - BOX.step + 8] : [along - BOX.step + 8, widest];
  const lines = nodes.flatMap((node) => (node.parents ?? []).filter((parent) => boxes.has(parent)).map((parent) =>
    svg("path", { class: "edge", d: curve(boxes.get(parent), boxes.get(node.name), height, isNarrow), "marker-end": "url(#arrow)" })));
  return el("div", { class: "scroll drawing", tabindex: "0", role: "region", "aria-label": "Drawing of the topology" },
    svg("svg", { width: wide, height: tall, viewBox: `0 0 ${wide} ${tall}`, role: "group", "aria-label": "Topology" },
      svg("defs", {}, svg("marker", { id: "arrow", viewBox: "0 0 8 8", refX: 8, refY: 4, markerWidth: 7, markerHeight: 7, orient: "auto" },
        svg("path", { d: "M0 0L8 4L0 8z", class: "tip" }))),
      lines, [...boxes.values()].map((box) => boxOf(box, height(box.node), known))));
}

function curve(from, to, height, isNarrow) {
  if (isNarrow) {
    const [x1, y1, x2, y2] = [from.x + BOX.width / 2, from.y + height(from.node), to.x + BOX.width / 2, to.y];
    return `M${x1} ${y1}C${x1} ${(y1 + y2) / 2} ${x2} ${(y1 + y2) / 2} ${x2} ${y2}`;
  }
  const [x1, y1, x2, y2] = [from.x + BOX.width, from.y + height(from.node) / 2, to.x, to.y + height(to.node) / 2];
  return `M${x1} ${y1}C${(x1 + x2) / 2} ${y1} ${(x1 + x2) / 2} ${y2} ${x2} ${y2}`;
}

function boxOf({ x, y, node }, height, known) {
  const stores = (node.stores ?? []).map((name, place) => {
    const store = known.get(name);
    const figure = store ? about(store.entries, store.counted) : "";
    return svg("a", { href: link("stores", name), "aria-label": `Store ${plain(name)}, ${figure} entries` },
      svg("text", { x: 10, y: BOX.height + 8 + BOX.line * place, class: "store" }, `${short(name)} · ${figure}`));
  });
  return svg("g", { transform: `translate(${x} ${y})`, class: `node ${["source", "sink"].includes(node.type) ? node.type : "processor"}` },
    svg("rect", { width: BOX.width, height, rx: 8 }),
    svg("text", { x: 10, y: 19, class: "name" }, short(node.name)),
    svg("text", { x: 10, y: 35, class: "type" }, node.global ? `${node.type}, global` : node.type), stores);
}

function short(name) {
  const text = plain(name);
  return text.length > LETTERS ? `${text.slice(0, LETTERS - 1)}…` : text;
}

function listOf(nodes, known) {
  const rows = nodes.map((node) => [
    visible(node.name),
    node.type,
    (node.parents ?? []).map(plain).join(", ") || "–",
    (node.stores ?? []).length
      ? el("ul", { class: "plain" }, node.stores.map((name) => el("li", {}, el("a", { href: link("stores", name) }, visible(name)),
        ` ${known.has(name) ? about(known.get(name).entries, known.get(name).counted) : count(null)}`)))
      : "–",
  ]);
  return table("The same in words", [{ name: "Node", head: true }, { name: "Type" }, { name: "Fed by" }, { name: "Stores, entries" }], rows);
}

// Shows the view of the address, and shows it anew with each batch.

import { AnswerError, follow, setToken, takeToken } from "./api.js";
import { el } from "./dom.js";
import { link, present } from "./links.js";
import { count, plain, time } from "./text.js";
import * as batches from "./views/batches.js";
import * as entries from "./views/entries.js";
import * as key from "./views/key.js";
import * as overview from "./views/overview.js";
import * as store from "./views/store.js";
import * as topology from "./views/topology.js";

const REFRESH_MS = 800;
const main = document.getElementById("main");
const live = document.getElementById("live");
const nav = document.getElementById("nav");
let asking = new AbortController();
let shown = null;
const known = new Map();
let due = null;

/** Return the view of an address: a function that returns its title and nodes, and a heading if that is another. */
function viewOf({ parts, query }) {
  const [first, name, third] = parts;
  if (!parts.length) return (signal) => overview.show(signal);
  if (first === "stores" && name && !third) return (signal) => store.show(name, query, signal);
  if (first === "stores" && third === "entries") return (signal) => entries.show(name, query, signal);
  if (first === "stores" && third === "key") return (signal) => key.show(name, query, signal);
  if (first === "batches" && !name) return (signal) => batches.list(signal);
  if (first === "batches") return (signal) => batches.show(parts.slice(1), signal);
  if (first === "versions") return (signal) => batches.version(parts.slice(1), query, signal);
  if (first === "topology") return (signal) => topology.show(signal);
  const nodes = [el("p", {}, "No view has this address. ", el("a", { href: "#/" }, "Overview"))];
  return async () => ({ title: "Not found", nodes });
}

function showNavigation() {
  const here = present().parts[0] ?? "";
  const views = [["", "Overview"], ["batches", "Batches"], ["topology", "Topology"]];
  nav.replaceChildren(el("ul", {}, views.map(([name, title]) =>
    el("li", {}, el("a", { href: name ? link(name) : "#/", "aria-current": here === name ? "page" : null }, title)))));
}

/** Show the view of the address; `again` if it is the same with a new batch. */
async function show(again = false) {
  asking.abort();
  asking = new AbortController();
  const { signal } = asking;
  if (!again) main.setAttribute("aria-busy", "true");
  showNavigation();
  let view;
  try {
    view = await viewOf(present())(signal);
  } catch (problem) {
    if (problem.name === "AbortError") return;
    view = failed(problem);
  }
  if (signal.aborted) return;
  const heading = el("h1", { tabindex: "-1" }, view.heading ?? view.title);
  const wasAtHeading = document.activeElement?.tagName === "H1";
  main.replaceChildren(heading, ...view.nodes.flat().filter(Boolean));
  main.removeAttribute("aria-busy");
  main.dataset.shown = location.hash;
  document.title = `${plain(view.title)} · Committed state`;
  if ((!again && shown !== null) || wasAtHeading) heading.focus({ preventScroll: true });
  if (!again) window.scrollTo(0, 0);
  shown = location.hash;
}

function failed(problem) {
  if (!(problem instanceof AnswerError)) console.error(problem);
  const text = problem instanceof AnswerError ? problem.message : "This view could not be shown.";
  const nodes = [el("p", { class: "problem", role: "alert" }, plain(text))];
  if (problem.status === 401) nodes.push(tokenForm());
  return { title: problem.status === 401 ? "A token is needed" : "No answer", nodes };
}

function tokenForm() {
  const field = el("input", { id: "token", type: "password", autocomplete: "off", required: true });
  const submit = (event) => {
    event.preventDefault();
    setToken(field.value.trim());
    location.reload();
  };
  return el("form", { class: "filters", submit },
    el("label", { for: "token" }, "Token that the command has printed"), field, el("button", {}, "Go on"));
}

function onBatch(batch) {
  const said = batch.batch < 0
    ? ["The pointers that were given"]
    : [`Batch ${count(batch.batch)} `, el("span", { class: "quiet wide" }, time(batch.time))];
  live.replaceChildren(el("span", { class: "dot", "aria-hidden": "true" }), ...said);
  live.dataset.batch = batch.batch;
  const before = known.get(batch.stage);
  known.set(batch.stage, `${batch.run}/${batch.batch}`);
  if (before !== undefined && before !== known.get(batch.stage)) refreshSoon();
}

/** Show the view anew, not more often than people can read, and not while they use it. */
function refreshSoon() {
  if (due !== null || shown === null) return;
  due = setTimeout(() => {
    due = null;
    const used = main.contains(document.activeElement) && document.activeElement.tagName !== "H1";
    if (document.hidden || used) refreshSoon();
    else show(true);
  }, REFRESH_MS);
}

takeToken();
document.querySelector(".skip").addEventListener("click", (event) => {
  event.preventDefault(); // the address is that of a view
  main.focus();
});
window.addEventListener("hashchange", () => show());
show();
follow((kind, data) => {
  if (kind === "batch") onBatch(data);
  else live.replaceChildren(el("span", { class: "problem" }, data.problem ? plain(data.problem) : "The newest batch can be read again."));
}, (problem) => {
  if (problem?.status !== 401) live.replaceChildren(el("span", { class: "problem" }, problem ? problem.message : "Connecting again …"));
});

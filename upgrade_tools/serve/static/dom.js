// Makes elements. Content is only ever set as text, so nothing that is shown can become markup.

const SVG = "http://www.w3.org/2000/svg";

/** Return an element; functions among the attributes are listeners, children may be text, nodes, lists or null. */
export function el(tag, attributes = {}, ...children) {
  return filled(document.createElement(tag), attributes, children);
}

/** The same for drawings. */
export function svg(tag, attributes = {}, ...children) {
  return filled(document.createElementNS(SVG, tag), attributes, children);
}

function filled(element, attributes, children) {
  for (const [name, value] of Object.entries(attributes)) {
    if (value === null || value === undefined || value === false) continue;
    if (typeof value === "function") element.addEventListener(name, value);
    else if (name === "href" && !/^(#|api\/)/.test(value)) throw new Error("only links within the page");
    else element.setAttribute(name, value === true ? "" : String(value));
  }
  element.append(...children.flat(3).filter((child) => child !== null && child !== undefined && child !== false));
  return element;
}

/**
 * Return a table whose columns are {name, number, head}; on narrow screens its rows are stacked. The roles say again
 * what the elements are, because a style that stacks rows makes browsers forget it.
 */
export function table(caption, columns, rows, empty = "Nothing is here.") {
  if (!rows.length) return el("p", { class: "quiet" }, empty);
  const head = columns.map((column) =>
    el("th", { scope: "col", role: "columnheader", class: column.number ? "number" : null }, column.name));
  const body = rows.map((cells) => el("tr", { role: "row" }, cells.map((cell, place) => {
    const column = columns[place];
    const attributes = { "data-name": column.name, class: column.number ? "number" : null };
    return column.head
      ? el("th", { ...attributes, scope: "row", role: "rowheader" }, cell)
      : el("td", { ...attributes, role: "cell" }, cell);
  })));
  return el("div", { class: "scroll" },
    el("table", { role: "table" },
      el("caption", {}, caption),
      el("thead", { role: "rowgroup" }, el("tr", { role: "row" }, head)),
      el("tbody", { role: "rowgroup" }, body)));
}

/** Return figures in a row: pairs of a name and what is shown. */
export function tiles(pairs) {
  return el("dl", { class: "tiles" }, pairs.filter(Boolean).map(([name, shown, note]) =>
    el("div", {}, el("dt", {}, name), el("dd", {}, shown), note ? el("dd", { class: "quiet" }, note) : null)));
}

/** Return a part of the page with its heading. */
export function section(heading, ...children) {
  return el("section", {}, el("h2", {}, heading), children);
}

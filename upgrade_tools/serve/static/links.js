// The addresses of views: a link leads to each. What a view asks for stands behind `?`.

export function link(...parts) {
  return `#/${parts.map((part) => encodeURIComponent(part)).join("/")}`;
}

export function withQuery(address, parameters) {
  const query = new URLSearchParams();
  for (const [name, value] of Object.entries(parameters)) {
    for (const each of [value].flat()) if (each !== null && each !== undefined && each !== "") query.append(name, each);
  }
  return query.size ? `${address}${address.includes("?") ? "&" : "?"}${query}` : address;
}

/** Return the parts and parameters of the present address. */
export function present() {
  const [path, query] = location.hash.replace(/^#\/?/, "").split(/\?(.*)/s);
  let parts;
  try {
    parts = path.split("/").filter(Boolean).map(decodeURIComponent);
  } catch {
    parts = ["unknown"];
  }
  return { parts, query: new URLSearchParams(query ?? "") };
}

/** Return what asks for a header: its name in hex where text would be read as something else, and a value if given. */
export function asked(name, value = undefined) {
  const bare = /=|^0x|^$/.test(name)
    ? `0x${Array.from(new TextEncoder().encode(name), (byte) => byte.toString(16).padStart(2, "0")).join("")}`
    : name;
  if (value === undefined) return bare;
  return value.text === undefined ? `${bare}=0x${value.hex}` : `${bare}=text:${value.text}`;
}

// Asks the server. A token is in the address's fragment, which no browser sends, and stays in this tab.

const KEPT = "statestore-token";

/** Take a token out of the address, so that it is neither copied with a link nor kept in the history. */
export function takeToken() {
  const found = location.hash.match(/^#token=([^&]+)$/);
  if (!found) return;
  sessionStorage.setItem(KEPT, decodeURIComponent(found[1]));
  history.replaceState(null, "", `${location.pathname}#/`);
}

export function setToken(token) {
  sessionStorage.setItem(KEPT, token);
}

function headers() {
  const token = sessionStorage.getItem(KEPT);
  return token ? { authorization: `Bearer ${token}` } : {};
}

export class AnswerError extends Error {
  constructor(status, answer) {
    super(answer.error ?? `the server answered ${status}`);
    this.status = status;
    this.answer = answer;
  }
}

async function response(path, parameters, signal) {
  const query = new URLSearchParams();
  for (const [name, value] of Object.entries(parameters)) {
    for (const each of [value].flat()) if (each !== null && each !== undefined && each !== "") query.append(name, each);
  }
  const asked = query.size ? `api/${path}?${query}` : `api/${path}`;
  let found;
  try {
    found = await fetch(asked, { headers: headers(), signal });
  } catch (problem) {
    if (problem.name === "AbortError") throw problem;
    throw new AnswerError(0, { error: "The server can't be reached. This page tries again." });
  }
  if (!found.ok) throw new AnswerError(found.status, await found.json().catch(() => ({})));
  return found;
}

/** Return what a path answers. Throws AnswerError. */
export async function ask(path, parameters = {}, signal = undefined) {
  return (await response(path, parameters, signal)).json();
}

/** Save the bytes of a value as a file. */
export async function save(path, parameters, name) {
  const data = await (await response(path, parameters)).blob();
  const link = document.createElement("a");
  link.href = URL.createObjectURL(data);
  link.download = name;
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 1000);
}

/** Call `onEvent` with the kind and the data of each event, and `onLost` when none can come; goes on for ever. */
export async function follow(onEvent, onLost) {
  for (;;) {
    try {
      const stream = (await response("events", {})).body.pipeThrough(new TextDecoderStream()).getReader();
      let pending = "";
      for (;;) {
        const { value, done } = await stream.read();
        if (done) break;
        const parts = (pending + value).split("\n\n");
        pending = parts.pop();
        for (const part of parts) {
          const kind = part.match(/^event: (.*)$/m);
          const data = part.match(/^data: (.*)$/m);
          if (kind && data) onEvent(kind[1], JSON.parse(data[1]));
        }
      }
      onLost(null);
    } catch (problem) {
      onLost(problem);
    }
    await new Promise((resolve) => { setTimeout(resolve, 2000); });
  }
}

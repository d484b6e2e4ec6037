// Ask the server that this page came from.

const KEPT = "ikebana-token";

/** A request was refused: the status, and why. */
export class Refusal extends Error {
  constructor(status, told) {
    super([told.error ?? `the server answers ${status}`, told.hint].filter(Boolean).join(". "));
    this.status = status;
  }
}

/** Keep a bearer token until the tab is closed. */
export function keepToken(token) {
  if (token) sessionStorage.setItem(KEPT, token);
  else sessionStorage.removeItem(KEPT);
}

/** Whether there is a token. */
export const hasToken = () => sessionStorage.getItem(KEPT) !== null;

/** Send a request, and return the answer before its body is read. */
export async function open(path, { body, signal } = {}) {
  const token = sessionStorage.getItem(KEPT);
  const answer = await fetch(path, {
    method: body === undefined ? "GET" : "POST",
    headers: {
      ...(token && { Authorization: `Bearer ${token}` }),
      ...(body !== undefined && { "Content-Type": "application/json" }),
    },
    body: body === undefined ? undefined : JSON.stringify(body),
    signal,
    cache: "no-store",
  });
  if (answer.ok) return answer;
  throw new Refusal(answer.status, await answer.json().catch(() => ({})));
}

/** Ask for JSON. */
export const ask = async (path, options) => (await open(path, options)).json();

/** Write the path of a collection's read, with parameters; those that are null are left out. */
export function pathOf(name, read, parameters = {}) {
  const given = Object.entries(parameters).filter(([, value]) => value != null);
  const query = new URLSearchParams(given);
  return `/v1/collections/${encodeURIComponent(name)}/${read}?${query}`;
}

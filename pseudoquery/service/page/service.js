// The service as functions. They throw a Refusal, with the service's message.

const KEY = "pseudoquery-token";
let token = sessionStorage.getItem(KEY) ?? "";
let asking = null;
let askForToken = async () => null;

/** Why there is no answer: a status (0 if the service can't be reached) and a sentence. */
export class Refusal extends Error {
  constructor(status, message) {
    super(message);
    this.status = status;
  }
}

/** Set the function that asks the user for a token, given the reason; it returns one or null. */
export function onTokenNeeded(ask) {
  askForToken = ask;
}

/** Ask for another token; requests that need one at the same time share the question. */
export async function newToken(reason) {
  asking ??= askForToken(reason).finally(() => { asking = null; });
  const given = await asking;
  if (given) {
    token = given;
    sessionStorage.setItem(KEY, given);
  }
  return Boolean(given);
}

export const search = (body, signal) => post("search", body, signal);
export const explain = (body, signal) => post("explain", body, signal);
export const compare = (body, signal) => post("compare", body, signal);
export const mapOf = (body, signal) => post("map", body, signal);
export const info = () => request("GET", "info", null, "");

export function addLines(lines, firstLine, signal) {
  const path = `documents?first_line=${firstLine}`;
  return request("POST", path, lines, "application/x-ndjson", signal);
}

export function putDocument(id, body, signal) {
  const path = `documents/${encodeURIComponent(id)}`;
  return request("PUT", path, JSON.stringify(body), "application/json", signal);
}

function post(path, body, signal) {
  return request("POST", path, JSON.stringify(body), "application/json", signal);
}

async function request(method, path, body, kind, signal) {
  const used = token;
  const headers = kind ? {"Content-Type": kind} : {};
  if (used) {
    headers.Authorization = `Bearer ${used}`;
  }
  let response;
  try {
    response = await fetch(path, {method, body, headers, signal});
  } catch (error) {
    if (error.name === "AbortError") {
      throw error;
    }
    throw new Refusal(0, "The service does not answer. Is it still running?");
  }
  const answer = await response.json().catch(() => null);
  if (response.ok && answer) {
    return answer;
  }
  const message = sentence(answer?.error?.message ?? `The service answered ${response.status}.`);
  const refused = response.status === 401;
  if (refused && (token !== used || await newToken(used ? message : ""))) {
    return request(method, path, body, kind, signal);
  }
  throw new Refusal(response.status, message);
}

function sentence(text) {
  return text.charAt(0).toUpperCase() + text.slice(1);
}

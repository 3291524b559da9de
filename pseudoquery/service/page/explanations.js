// Explains the visible hits one after the other, as the service does.

import {explain} from "./service.js";

const MAX_KNOWN = 200;
const known = new Map();

/** Explains documents when they become visible, until `signal` says that the question changed. */
export class Explainer {
  #query;
  #signal;
  #waiting = [];
  #busy = false;
  #watched = new Map();
  #observer = new IntersectionObserver((entries) => this.#seen(entries), {rootMargin: "200px"});

  constructor(query, signal) {
    this.#query = query;
    this.#signal = signal;
    signal.addEventListener("abort", () => this.#observer.disconnect());
  }

  /** Call `show` with the explanation of a document when its element becomes visible. */
  watch(element, id, show) {
    const explanation = known.get(key(this.#query, id));
    if (explanation) {
      show(explanation);
      return;
    }
    this.#watched.set(element, {id, show});
    this.#observer.observe(element);
  }

  #seen(entries) {
    for (const {target, isIntersecting} of entries) {
      if (isIntersecting) {
        this.#observer.unobserve(target);
        this.#waiting.push(this.#watched.get(target));
      }
    }
    this.#work();
  }

  async #work() {
    if (this.#busy) return;
    this.#busy = true;
    while (this.#waiting.length && !this.#signal.aborted) {
      const {id, show} = this.#waiting.shift();
      try {
        show(await explained(this.#query, id, this.#signal));
      } catch (error) {
        if (error.name === "AbortError") break;
        show(null, error);
      }
    }
    this.#busy = false;
  }
}

/** Forget everything: documents may have changed. */
export function forget() {
  known.clear();
}

async function explained(query, id, signal) {
  const explanation = known.get(key(query, id)) ?? await explain({query, id}, signal);
  known.set(key(query, id), explanation);
  if (known.size > MAX_KNOWN) known.delete(known.keys().next().value);
  return explanation;
}

function key(query, id) {
  return JSON.stringify([query, id]);
}

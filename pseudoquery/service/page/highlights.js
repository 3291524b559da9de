// What is in focus in a document: the stretches of one pseudo query, or the matches of some words.

import {make} from "./elements.js";

const PSEUDO_QUERY = "[data-number=";

/** Puts parts of a container in focus: those that are pointed at, or else those that are pinned. */
export class Highlights {
  #container;
  #pinned = null;

  constructor(container) {
    this.#container = container;
    // A tap moves the mouse, then takes the focus from a button, which ends what it points at.
    for (const event of ["mouseover", "click"]) {
      container.addEventListener(event, ({target}) => {
        if (matchOf(target)) this.point(matchSelector(matchOf(target)));
      });
    }
    container.addEventListener("mouseout", ({target}) => {
      if (matchOf(target)) this.point(null);
    });
  }

  /** Put the elements that a selector names in focus; null returns to those that are pinned. */
  point(selector) {
    const chosen = selector ?? this.#pinned;
    // A word stands out by itself; a pseudo query does if the others lose their colours.
    this.#container.classList.toggle("lit", chosen?.startsWith(PSEUDO_QUERY) ?? false);
    for (const element of this.#container.querySelectorAll(".on")) element.classList.remove("on");
    if (chosen === null) return;
    for (const element of this.#container.querySelectorAll(chosen)) element.classList.add("on");
  }

  /** Make a button that points at elements, and pins them if it is pressed; then calls `pinned`. */
  button(selector, {pinned = () => {}, ...attributes}, ...children) {
    const enter = () => this.point(selector);
    const leave = () => this.point(null);
    const click = () => {
      this.#pinned = this.#pinned === selector ? null : selector;
      for (const other of this.#container.querySelectorAll("[aria-pressed]")) {
        other.setAttribute("aria-pressed", String(other === button && this.#pinned !== null));
      }
      this.point(null);
      if (this.#pinned !== null) pinned();
    };
    const button = make(
      "button",
      {
        type: "button",
        "aria-pressed": String(this.#pinned === selector),
        ...attributes,
        on: {mouseenter: enter, focus: enter, mouseleave: leave, blur: leave, click},
      },
      ...children,
    );
    return button;
  }
}

/** Name the elements that belong to a word of the question. */
export function wordSelector(number) {
  return `[data-words~="${number}"]`;
}

/** Name the elements that belong to a pseudo query. */
export function pseudoQuerySelector(number) {
  return `${PSEUDO_QUERY}"${number}"]`;
}

function matchOf(element) {
  return element.closest(".text .match");
}

function matchSelector(match) {
  return match.dataset.words.split(" ").map(wordSelector).join(", ");
}

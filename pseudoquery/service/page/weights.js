// Small bars: how much each pseudo query of a document counts for the question.

import {make, percent} from "./elements.js";
import {colour, light} from "./passages.js";

/** List the largest weights of [{weight, label}]; each highlights its stretches of `text`. */
export function weightList(pseudoQueries, shown, text) {
  const rows = pseudoQueries.slice(0, shown).map(
    (pseudoQuery, number) => row(pseudoQuery, number, text),
  );
  const rest = pseudoQueries.slice(shown);
  if (rest.length) {
    const sum = rest.reduce((total, {weight}) => total + weight, 0);
    const others = `${rest.length} more, together ${percent(sum)}`;
    rows.push(make("li", {class: "rest"}, others));
  }
  return make("ol", {class: "weights", "aria-label": "Weights of the pseudo queries"}, ...rows);
}

/** All weights in one bar. */
export function stackedBar(weights) {
  const sorted = [...weights].sort((one, other) => other - one);
  const parts = sorted.filter((weight) => weight >= 0.005).map((weight, number) => {
    const part = make("span", {class: `fill ${colour(number)}`});
    part.style.flexGrow = weight;
    return part;
  });
  return make("span", {class: "stacked", "aria-hidden": "true"}, ...parts);
}

function row({weight, label}, number, text) {
  const fill = make("span", {class: "fill"});
  fill.style.width = `${100 * weight}%`;
  let pinned = false;
  const focus = () => light(text, number);
  const leave = () => { if (!pinned) light(text, null); };
  const button = make(
    "button",
    {
      type: "button",
      class: `weight ${colour(number)}`,
      "aria-pressed": "false",
      on: {mouseenter: focus, focus, mouseleave: leave, blur: leave, click: () => pin()},
    },
    make("span", {class: "bar"}, fill),
    make("span", {class: "percent"}, percent(weight)),
    make("span", {class: "label"}, label ?? " "),
  );
  const pin = () => {
    const before = button.closest("ol").querySelector("[aria-pressed=true]");
    before?.dispatchEvent(new CustomEvent("unpin"));
    pinned = before !== button;
    button.setAttribute("aria-pressed", String(pinned));
    light(text, pinned ? number : null);
  };
  button.addEventListener("unpin", () => {
    pinned = false;
    button.setAttribute("aria-pressed", "false");
  });
  return make("li", {}, button);
}

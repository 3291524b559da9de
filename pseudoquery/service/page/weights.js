// Small bars: how much each pseudo query of a document counts for the question.

import {make, percent} from "./elements.js";
import {pseudoQuerySelector} from "./highlights.js";
import {colour} from "./passages.js";

/** List the largest weights of [{weight, label}]; each highlights the stretches of its text. */
export function weightList(pseudoQueries, shown, highlights) {
  const rows = pseudoQueries.slice(0, shown).map(
    (pseudoQuery, number) => row(pseudoQuery, number, highlights),
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

function row({weight, label}, number, highlights) {
  const fill = make("span", {class: "fill"});
  fill.style.width = `${100 * weight}%`;
  const button = highlights.button(
    pseudoQuerySelector(number),
    {class: `weight ${colour(number)}`},
    make("span", {class: "bar"}, fill),
    make("span", {class: "percent"}, percent(weight)),
    make("span", {class: "label"}, label ?? " "),
  );
  return make("li", {}, button);
}

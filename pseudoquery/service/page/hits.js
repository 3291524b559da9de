// The hits: each document with its text, its pseudo queries and their weights.

import {button, make, significant} from "./elements.js";
import {excerpt, paint} from "./passages.js";
import {weightList} from "./weights.js";

/** List hits; `addressOf` returns the address that shows a document, given its id. */
export function hitList(hits, {shown, addressOf, explainer}) {
  const cards = hits.map((hit, index) => card(hit, index + 1, {shown, addressOf, explainer}));
  return make("ol", {class: "hits", "aria-label": "Documents found"}, ...cards);
}

export function title(hit) {
  return hit.title.trim() || hit.id;
}

/** List the metadata of a document. */
export function metadataList(metadata) {
  const entries = Object.entries(metadata);
  if (!entries.length) return null;
  const pairs = entries.map(([name, value]) => make(
    "div",
    {},
    make("dt", {}, name),
    make("dd", {}, typeof value === "string" ? value : JSON.stringify(value)),
  ));
  return make("dl", {class: "metadata"}, ...pairs);
}

function card(hit, rank, {shown, addressOf, explainer}) {
  const points = [...hit.text];
  const text = make("div", {class: "text"});
  const rail = make("div", {class: "rail"});
  const known = [...hit.weights].sort((one, other) => other - one).map((weight) => ({weight}));
  const plain = {pseudo_queries: [], passage: null};
  let explained = null;
  let whole = false;
  const more = button("", () => { whole = !whole; show(); });
  const show = () => {
    const part = whole ? {start: 0, end: points.length} : excerpt(points, explained?.passage);
    text.replaceChildren(paint(points, explained ?? plain, shown, part));
    more.textContent = whole ? "Show less" : "Show the whole text";
    more.hidden = !whole && part.start === 0 && part.end === points.length;
    rail.replaceChildren(weightList(explained?.pseudo_queries.map(named) ?? known, shown, text));
  };
  show();
  const element = make(
    "li",
    {class: "hit", "aria-busy": "true", "data-id": hit.id},
    make(
      "h2",
      {},
      make("span", {class: "rank"}, String(rank)),
      make("a", {href: addressOf(hit.id)}, title(hit)),
      make("span", {class: "score", title: "The score for this question"}, score(hit)),
    ),
    make("div", {class: "columns"}, make("div", {}, text, more), rail),
  );
  explainer.watch(element, hit.id, (explanation, problem) => {
    explained = explanation ?? explained;
    element.removeAttribute("aria-busy");
    show();
    if (problem) rail.append(make("p", {class: "note"}, problem.message));
  });
  return element;
}

/** Label a pseudo query's bar; a pseudo query without text was made of the title. */
export function named({weight, label}) {
  return {weight, label: label || "(the title)"};
}

export function score(hit) {
  return hit.score === null ? "–" : significant(hit.score);
}

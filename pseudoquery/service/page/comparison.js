// One question, three ways of searching, side by side.

import {make} from "./elements.js";
import {score, title} from "./hits.js";
import {stackedBar} from "./weights.js";

const WAYS = [
  ["pseudo_queries", "Pseudo queries", "Each document by the few questions it can answer."],
  ["bm25", "BM25", "By words alone: a document must share words with the question."],
  ["one_vector", "One vector", "Each document by one vector: the mean of its pseudo queries, "
    + "brought to length one if they are."],
];
const OPENING = 150;

/** Show what each way finds; `answers` is the service's answer to /compare. */
export function comparison(answers, {hybrid, addressOf, explainer}) {
  const places = Object.fromEntries(WAYS.map(([way]) => [way, ranks(answers[way].hits)]));
  const columns = WAYS.map(([way, name, description]) => column(
    answers[way].hits,
    {
      way,
      name: hybrid && way === "pseudo_queries" ? "Pseudo queries + BM25" : name,
      description: hybrid && way === "pseudo_queries"
        ? "The ranks by pseudo queries and by words, fused." : description,
      places,
      addressOf,
      explainer,
    },
  ));
  const container = make("div", {class: "comparison"}, ...columns);
  const light = (event) => {
    const id = event.target.closest?.("li")?.dataset.id;
    for (const row of container.querySelectorAll("li")) {
      row.classList.toggle("same", id !== undefined && row.dataset.id === id);
    }
  };
  for (const event of ["mouseover", "focusin", "mouseleave"]) {
    container.addEventListener(event, light);
  }
  return container;
}

function column(hits, {way, name, description, places, addressOf, explainer}) {
  const rows = hits.map((hit, place) => row(hit, place + 1, {way, places, addressOf, explainer}));
  const list = rows.length
    ? make("ol", {}, ...rows) : make("p", {class: "note"}, "Nothing found this way.");
  const id = `column-${way}`;
  return make(
    "section",
    {"aria-labelledby": id, "data-way": way},
    make("h2", {id}, name),
    make("p", {class: "note"}, description),
    list,
  );
}

function row(hit, rank, {way, places, addressOf, explainer}) {
  const opening = [...hit.text];
  const text = make(
    "p", {class: "snippet"}, opening.slice(0, OPENING).join("") + (opening[OPENING] ? " …" : ""),
  );
  const element = make(
    "li",
    {"data-id": hit.id},
    make(
      "h3",
      {},
      make("span", {class: "rank"}, String(rank)),
      make("a", {href: addressOf(hit.id)}, title(hit)),
      make("span", {class: "score"}, score(hit)),
    ),
    hit.weights.length ? stackedBar(hit.weights) : null,
    text,
    elsewhere(hit.id, rank, way, places),
  );
  explainer.watch(element, hit.id, (explanation) => {
    const passage = explanation?.passage;
    if (passage) text.textContent = opening.slice(passage.start, passage.end).join("");
  });
  return element;
}

/** Say where the first way has a document, or whether it alone has found it. */
function elsewhere(id, rank, way, places) {
  const ours = places.pseudo_queries.get(id);
  if (way === "pseudo_queries") {
    const alone = !places.bm25.has(id) && !places.one_vector.has(id);
    return alone ? make("p", {class: "moved added"}, "found only here") : null;
  }
  if (ours === undefined) return make("p", {class: "moved"}, "not in the first column");
  const ranked = `ranked ${ours} by pseudo queries`;
  const moved = ours === rank ? "=" : ours < rank ? "▲" : "▼";
  return make("p", {class: "moved"}, `${moved} ${ranked}`);
}

function ranks(hits) {
  return new Map(hits.map((hit, place) => [hit.id, place + 1]));
}

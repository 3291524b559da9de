// One question, searched in three ways, side by side.

import {make} from "./elements.js";
import {score, title} from "./hits.js";
import {stackedBar} from "./weights.js";

const WAYS = [
  ["pseudo_queries", "Pseudo queries", "Each document is the few questions it can answer."],
  ["bm25", "BM25", "A document must share words with the question."],
  ["one_vector", "One vector", "Each document is one vector: the mean of its pseudo queries, "
    + "normalised if they are."],
];
const OPENING = 150;

/** Show the hits of each way; `answers` is the service's answer to /compare. */
export function comparison(answers, {hybrid, addressOf, explainer}) {
  const rankings = Object.fromEntries(WAYS.map(([way]) => [way, ranksOf(answers[way].hits)]));
  const columns = WAYS.map(([way, name, description]) => column(
    answers[way].hits,
    {
      way,
      name: hybrid && way === "pseudo_queries" ? "Pseudo queries + BM25" : name,
      description: hybrid && way === "pseudo_queries"
        ? "The rankings by pseudo queries and by words, combined." : description,
      rankings,
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

function column(hits, {way, name, description, rankings, addressOf, explainer}) {
  const rows = hits.map((hit, index) => row(hit, index + 1, {way, rankings, addressOf, explainer}));
  const list = rows.length
    ? make("ol", {}, ...rows) : make("p", {class: "note"}, "No documents found.");
  const id = `column-${way}`;
  return make(
    "section",
    {"aria-labelledby": id, "data-way": way},
    make("h2", {id}, name),
    make("p", {class: "note"}, description),
    list,
  );
}

function row(hit, rank, {way, rankings, addressOf, explainer}) {
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
    elsewhere(hit.id, rank, way, rankings),
  );
  explainer.watch(element, hit.id, (explanation) => {
    const passage = explanation?.passage;
    if (passage) text.textContent = opening.slice(passage.start, passage.end).join("");
  });
  return element;
}

/** Say how the first column ranks a document, or that no other column has it. */
function elsewhere(id, rank, way, rankings) {
  const first = rankings.pseudo_queries.get(id);
  if (way === "pseudo_queries") {
    const alone = !rankings.bm25.has(id) && !rankings.one_vector.has(id);
    return alone ? make("p", {class: "moved added"}, "found only here") : null;
  }
  if (first === undefined) return make("p", {class: "moved"}, "not in the first column");
  const ranked = `ranked ${first} by pseudo queries`;
  const moved = first === rank ? "=" : first < rank ? "▲" : "▼";
  return make("p", {class: "moved"}, `${moved} ${ranked}`);
}

function ranksOf(hits) {
  return new Map(hits.map((hit, index) => [hit.id, index + 1]));
}

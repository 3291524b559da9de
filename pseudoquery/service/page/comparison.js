// One question, searched in three ways, side by side.

import {make} from "./elements.js";
import {meaningOfScore, score, title} from "./hits.js";
import {withMatches} from "./passages.js";
import {stackedBar} from "./weights.js";
import {matchedSpans, tellingWords} from "./words.js";

const OURS = {
  vectors: ["Pseudo queries", "Each document is the few questions it can answer."],
  tokens: ["Pseudo queries + tokens", "Pseudo queries find the best documents; the vectors of "
    + "their words put them in order."],
  "vectors and words": ["Pseudo queries + BM25", "The rankings by pseudo queries and by words, "
    + "combined."],
  "tokens and words": ["Pseudo queries + tokens + BM25", "Pseudo queries and BM25 find the best "
    + "documents; the vectors of their words and BM25 put them in order."],
};
const OTHERS = {
  bm25: ["BM25", "A document must share words with the question."],
  one_vector: ["One vector", "Each document is one vector: the mean of its pseudo queries, "
    + "normalised if they are."],
};
const OPENING = 150;

/** Show the hits of each way; `answers` is the service's answer to /compare. */
export function comparison(answers, {addressOf, explainer}) {
  const ways = {pseudo_queries: OURS[answers.pseudo_queries.ranked_by], ...OTHERS};
  const rankings = Object.fromEntries(
    Object.keys(ways).map((way) => [way, ranksOf(answers[way].hits)]),
  );
  const columns = Object.entries(ways).map(([way, [name, description]]) => column(
    answers[way], {way, name, description, rankings, addressOf, explainer},
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

function column(answer, {way, name, description, rankings, addressOf, explainer}) {
  const meaning = way === "one_vector"
    ? "How similar the document’s vector is to the question" : meaningOfScore(answer.ranked_by);
  const how = {way, rankings, addressOf, explainer, meaning};
  const rows = answer.hits.map((hit, index) => row(hit, index + 1, how));
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

function row(hit, rank, {way, rankings, addressOf, explainer, meaning}) {
  const points = [...hit.text];
  const text = make(
    "p", {class: "snippet"}, points.slice(0, OPENING).join("") + (points[OPENING] ? " …" : ""),
  );
  const element = make(
    "li",
    {"data-id": hit.id},
    make(
      "h3",
      {},
      make("span", {class: "rank"}, String(rank)),
      make("a", {href: addressOf(hit.id)}, title(hit)),
      make("span", {class: "score", title: meaning}, score(hit)),
    ),
    hit.weights.length ? stackedBar(hit.weights) : null,
    text,
    elsewhere(hit.id, rank, way, rankings),
  );
  explainer.watch(element, hit.id, (explanation) => {
    if (!explanation?.passage) return;
    const {start, end} = explanation.passage;
    text.replaceChildren(withMatches(points, start, end, matchedSpans(tellingWords(explanation))));
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
  const ranked = `ranked ${first} in the first column`;
  const moved = first === rank ? "=" : first < rank ? "▲" : "▼";
  return make("p", {class: "moved"}, `${moved} ${ranked}`);
}

function ranksOf(hits) {
  return new Map(hits.map((hit, index) => [hit.id, index + 1]));
}

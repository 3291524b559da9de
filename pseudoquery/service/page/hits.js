// The hits: each document with the words that match, its text, and its pseudo queries' weights.

import {button, make, significant} from "./elements.js";
import {excerpts} from "./excerpts.js";
import {Highlights} from "./highlights.js";
import {paint} from "./passages.js";
import {weightList} from "./weights.js";
import {connectTitle, matchedSpans, tellingWords, wordList} from "./words.js";

const SCORES = {
  tokens: "How similar the document’s words are to the question’s, on average",
  vectors: "How similar the document’s pseudo queries are to the question",
  words: "BM25: how many of the question’s words the document has, and how rare they are",
};

/** List an answer's hits; `addressOf` returns the address that shows a document, given its id. */
export function hitList({hits, ranked_by: rankedBy}, {shown, addressOf, explainer}) {
  const how = {shown, addressOf, explainer, meaning: meaningOfScore(rankedBy)};
  const cards = hits.map((hit, index) => card(hit, index + 1, how));
  return make("ol", {class: "hits", "aria-label": "Documents found"}, ...cards);
}

/** Say what the scores of an answer compare. */
export function meaningOfScore(rankedBy) {
  return SCORES[rankedBy] ?? "The similarity and the score of BM25, combined";
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

function card(hit, rank, {shown, addressOf, explainer, meaning}) {
  const points = [...hit.text];
  const text = make("div", {class: "text"});
  const rail = make("div", {class: "rail"});
  const words = make("div", {class: "why"});
  const link = make("a", {href: addressOf(hit.id)}, title(hit));
  const more = button("", () => { whole = !whole; showText(); });
  const element = make(
    "li",
    {class: "hit", "aria-busy": "true", "data-id": hit.id},
    make(
      "h2",
      {},
      make("span", {class: "rank"}, String(rank)),
      link,
      make("span", {class: "score", title: meaning}, score(hit)),
    ),
    words,
    make("div", {class: "columns"}, make("div", {}, text, more), rail),
  );
  const highlights = new Highlights(element);
  let painted = {};
  let whole = false;
  const showText = () => {
    const all = {start: 0, end: points.length};
    const parts = whole ? [all] : excerpts(points, painted);
    text.replaceChildren(paint(points, painted, shown, parts));
    more.textContent = whole ? "Show less" : "Show the whole text";
    more.hidden = !whole && parts[0].start === all.start && parts[0].end === all.end;
    highlights.point(null);
  };
  const reveal = () => {
    if (!text.querySelector(".match.on")) {
      whole = true;
      showText();
    }
    text.querySelector(".match.on")?.scrollIntoView({block: "nearest"});
  };
  const known = [...hit.weights].sort((one, other) => other - one).map((weight) => ({weight}));
  rail.append(weightList(known, shown, highlights));
  showText();
  explainer.watch(element, hit.id, (explanation, problem) => {
    element.removeAttribute("aria-busy");
    if (problem) {
      rail.append(make("p", {class: "note"}, problem.message));
      return;
    }
    const telling = tellingWords(explanation);
    painted = paintedParts(explanation, telling);
    connectTitle(link, telling);
    words.replaceChildren(...[wordList(telling, highlights, reveal)].filter(Boolean));
    rail.replaceChildren(weightList(explanation.pseudo_queries.map(named), shown, highlights));
    showText();
  });
  return element;
}

/** Choose what to paint of an explanation, given the question's words that tell something. */
export function paintedParts({pseudo_queries: pseudoQueries, passage}, words) {
  return {pseudoQueries, passage, matches: matchedSpans(words)};
}

/** Label a pseudo query's bar; a pseudo query without text was made of the title. */
export function named({weight, label}) {
  return {weight, label: label || "(the title)"};
}

export function score(hit) {
  return hit.score === null ? "–" : significant(hit.score);
}

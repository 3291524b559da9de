// One document: its text and metadata, and its pseudo queries as a map and as bars.

import {button, make, percent} from "./elements.js";
import {Highlights, pseudoQuerySelector} from "./highlights.js";
import {metadataList, named, paintedParts, title} from "./hits.js";
import {drawMap} from "./map.js";
import {paint} from "./passages.js";
import {weightList} from "./weights.js";
import {connectTitle, tellingWords, wordList} from "./words.js";

const LONG = 2000; // characters, of which some are out of sight

/** Show a document: the service's answer to /map and, with a question, to /explain. */
export function documentView(map, explanation, {shown, back}) {
  const {document: record, pseudo_queries: pseudoQueries} = map;
  const points = [...record.text];
  const words = explanation ? tellingWords(explanation) : [];
  const painted = paintedParts({...map, passage: explanation?.passage ?? null}, words);
  const text = make(
    "div", {class: "text"}, paint(points, painted, shown, [{start: 0, end: points.length}]),
  );
  if (!points.length) text.append(make("p", {class: "note"}, "This document has no text."));
  const heading = make("h1", {id: "document-title"}, title(record));
  connectTitle(heading, words);
  const article = make(
    "article",
    {class: "document", "aria-labelledby": "document-title"},
    make("a", {href: back, class: "back"}, explanation ? "← Back to the results" : "← Back"),
    heading,
    record.title.trim() ? make("p", {class: "note id"}, record.id) : null,
  );
  const highlights = new Highlights(article);
  const go = (selector) => text.querySelector(selector)?.scrollIntoView({block: "center"});
  const best = explanation?.passage && points.length > LONG
    ? button("Go to the best sentence", () => go(".passage")) : null;
  const columns = make(
    "div",
    {class: "columns"},
    make("div", {}, text, metadataList(record.metadata)),
    pseudoQueries.length ? aside(map, {asked: explanation !== null, shown, highlights}) : null,
  );
  const list = wordList(words, highlights, () => go(".match.on"));
  article.append(make("div", {class: "why"}, list, best), columns);
  return article;
}

function aside(map, {asked, shown, highlights}) {
  const count = map.pseudo_queries.length;
  const vectors = `${count} pseudo ${count === 1 ? "query" : "queries"}`;
  const question = asked ? " and your question" : "";
  const point = (number) => highlights.point(number === null ? null : pseudoQuerySelector(number));
  return make(
    "aside",
    {"aria-label": "Pseudo queries"},
    make("h2", {}, `Its ${vectors}`),
    drawMap(map, {shown, point}),
    make(
      "p",
      {class: "note"},
      `The vectors of the document’s ${vectors}${question}, projected on the plane that shows `
      + `most of their differences (PCA): ${percent(map.variance)} of the variance.`
      + (asked ? " The larger a point, the more it counts for the question." : ""),
    ),
    asked ? weightList(map.pseudo_queries.map(named), shown, highlights) : null,
  );
}

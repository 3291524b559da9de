// One document: its text and metadata, and its pseudo queries as a map and as bars.

import {make, percent} from "./elements.js";
import {metadataList, named, title} from "./hits.js";
import {drawMap} from "./map.js";
import {light, paint} from "./passages.js";
import {weightList} from "./weights.js";

/** Show a document; `map` is the service's answer to /map. */
export function documentView(map, {query, shown, back}) {
  const {document: record, pseudo_queries: pseudoQueries} = map;
  const points = [...record.text];
  const whole = {start: 0, end: points.length};
  const text = make("div", {class: "text"}, paint(points, map, shown, whole));
  if (!points.length) text.append(make("p", {class: "note"}, "This document has no text."));
  return make(
    "article",
    {class: "document", "aria-labelledby": "document-title"},
    make("a", {href: back, class: "back"}, query ? "← Back to the results" : "← Back"),
    make("h1", {id: "document-title"}, title(record)),
    record.title.trim() ? make("p", {class: "note id"}, record.id) : null,
    make(
      "div",
      {class: "columns"},
      make("div", {}, text, metadataList(record.metadata)),
      pseudoQueries.length ? aside(map, {query, shown, text}) : null,
    ),
  );
}

function aside(map, {query, shown, text}) {
  const count = map.pseudo_queries.length;
  const vectors = `${count} pseudo ${count === 1 ? "query" : "queries"}`;
  const question = query ? " and your question" : "";
  return make(
    "aside",
    {"aria-label": "Pseudo queries"},
    make("h2", {}, `Its ${vectors}`),
    drawMap(map, {shown, point: (number) => light(text, number)}),
    make(
      "p",
      {class: "note"},
      `The vectors of the document’s ${vectors}${question}, projected on the plane that shows `
      + `most of their differences (PCA): ${percent(map.variance)} of the variance.`
      + (query ? " The larger a point, the more it counts for the question." : ""),
    ),
    query ? weightList(map.pseudo_queries.map(named), shown, text) : null,
  );
}

// One document: its whole text, its pseudo queries as a map and as bars, what else is known of it.

import {make, percent} from "./elements.js";
import {metadataList, named, title} from "./hits.js";
import {drawMap} from "./map.js";
import {light, paint} from "./passages.js";
import {weightList} from "./weights.js";

/** Show a document; `found` is the service's answer to /map. */
export function documentView(found, {query, shown, back}) {
  const {document: one, pseudo_queries: pseudoQueries} = found;
  const points = [...one.text];
  const whole = {start: 0, end: points.length};
  const text = make("div", {class: "text"}, paint(points, found, shown, whole));
  if (!points.length) text.append(make("p", {class: "note"}, "This document has no text."));
  return make(
    "article",
    {class: "document", "aria-labelledby": "document-title"},
    make("a", {href: back, class: "back"}, query ? "← Back to the results" : "← Back"),
    make("h1", {id: "document-title"}, title(one)),
    one.title.trim() ? make("p", {class: "note id"}, one.id) : null,
    make(
      "div",
      {class: "columns"},
      make("div", {}, text, metadataList(one.metadata)),
      pseudoQueries.length ? aside(found, {query, shown, text}) : null,
    ),
  );
}

function aside(found, {query, shown, text}) {
  const count = found.pseudo_queries.length;
  const vectors = `${count} pseudo ${count === 1 ? "query" : "queries"}`;
  const question = query ? " and your question" : "";
  return make(
    "aside",
    {"aria-label": "Pseudo queries"},
    make("h2", {}, `Its ${vectors}`),
    drawMap(found, {shown, point: (number) => light(text, number)}),
    make(
      "p",
      {class: "note"},
      `The vectors of the document’s ${vectors}${question}, on the plane that shows most of how `
      + `they differ (PCA): ${percent(found.variance)} of the variance.`
      + (query ? " The larger a point, the more it weighs for the question." : ""),
    ),
    query ? weightList(found.pseudo_queries.map(named), shown, text) : null,
  );
}

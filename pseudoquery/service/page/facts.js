// Facts about the index.

import {figure, make} from "./elements.js";

/** Count the documents, for the top of the page. */
export function summary({index}) {
  return `${figure(index.documents)} ${index.documents === 1 ? "document" : "documents"}`;
}

/** List all facts of the service's answer to /info. */
export function factList({index, version}) {
  const how = index.representation;
  const facts = [
    ["Documents", figure(index.documents)],
    ["Pseudo queries", `${figure(index.vectors)} (up to ${how.k} per document)`],
    ["Documents found only by words", index.without_vectors ? figure(index.without_vectors) : null],
    ["Model", index.model || "a model in memory"],
    ["Vectors", `${index.dimension} dimensions, ${index.vector_type}`],
    ["Vector bytes per document", figure(index.vector_bytes_per_document)],
    ["Tokens", index.tokens === "none" ? null
      : `${figure(index.tokens_stored)} as ${index.tokens}, `
        + `${figure(index.token_bytes_per_document)} bytes per document`],
    ["On disk", size(index.bytes)],
    ["Score", how.score === "softmax"
      ? `softmax of dot products × ${how.scale}` : "largest dot product"],
    ["Long documents", index.long === "windows"
      ? "encoded in full" : "only the beginning is encoded"],
    ["Deleted, not yet compacted", index.deleted_awaiting_compaction
      ? figure(index.deleted_awaiting_compaction) : null],
    ["pseudoquery", version],
  ];
  const pairs = facts.filter(([, value]) => value !== null).map(
    ([name, value]) => make("div", {}, make("dt", {}, name), make("dd", {}, value)),
  );
  return make("dl", {class: "facts"}, ...pairs);
}

export function size(bytes) {
  const units = ["bytes", "kB", "MB", "GB", "TB"];
  let unit = 0;
  let value = bytes;
  while (value >= 1000 && unit < units.length - 1) {
    value /= 1000;
    unit += 1;
  }
  return `${figure(value, unit && value < 10 ? 1 : 0)} ${units[unit]}`;
}

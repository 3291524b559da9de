// What the index is made of.

import {figure, make} from "./elements.js";

/** A few words for the top of the page. */
export function summary({index}) {
  return `${figure(index.documents)} ${index.documents === 1 ? "document" : "documents"}`;
}

/** All facts, as a list; `found` is the service's answer to /info. */
export function factList({index, version}) {
  const how = index.representation;
  const facts = [
    ["Documents", figure(index.documents)],
    ["Pseudo queries", `${figure(index.vectors)} (up to ${how.k} a document)`],
    ["Found by words alone", index.without_vectors ? figure(index.without_vectors) : null],
    ["Model", index.model || "one that was in memory"],
    ["Vectors", `${index.dimension} dimensions, ${index.vector_type}`],
    ["Bytes of vectors a document", figure(index.vector_bytes_per_document)],
    ["On disk", size(index.bytes)],
    ["Score", how.score === "softmax" ? `softmax of dots × ${how.scale}` : "largest dot"],
    ["Long documents", index.long === "windows" ? "read whole" : "cut at what the encoder reads"],
    ["Awaiting compaction", index.deleted_awaiting_compaction
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

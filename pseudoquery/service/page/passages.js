// A document's text with its pseudo queries as coloured stretches.
//
// Pseudo queries come in order of weight, so number 0 has the largest, and the first colour.
// The service counts in Unicode code points, which JavaScript does not, so the text is split into
// code points first. The encoder reads pieces of words. Here a word has one colour, that of its
// first letter, and punctuation between words has none. Words that match the question's are marked
// inside the colours.

import {make} from "./elements.js";

const COLOURS = 8;
const LETTER = /[\p{L}\p{M}\p{N}]/u;

export function colour(number) {
  return `c${number % COLOURS}`;
}

/**
 * Paint parts of a text: the first `shown` pseudo queries in colour, the passage in focus, and the
 * words that match, which are [{start, end, words, strength}] in order.
 */
export function paint(points, {pseudoQueries = [], passage = null, matches = []}, shown, parts) {
  const spans = stretches(points, pseudoQueries).filter(({number}) => number < shown);
  const painted = document.createDocumentFragment();
  const add = (from, to, number) => {
    for (const [first, last, inside] of cut(from, to, passage)) {
      painted.append(piece(withMatches(points, first, last, matches), number, inside));
    }
  };
  parts.forEach(({start, end}, index) => {
    if (start > 0) painted.append(index ? " … " : "… ");
    let position = start;
    for (const span of spans) {
      const [from, to] = [Math.max(span.start, start), Math.min(span.end, end)];
      if (from >= to) continue;
      add(position, from);
      add(from, to, span.number);
      position = to;
    }
    add(position, end);
  });
  if (parts.at(-1).end < points.length) painted.append(" …");
  return painted;
}

/** Join neighbouring words of one pseudo query: [{start, end, number}], in order. */
function stretches(points, pseudoQueries) {
  const owners = new Int32Array(points.length).fill(-1);
  pseudoQueries.forEach(({spans}, number) => {
    for (const {start, end} of spans) owners.fill(number, start, end);
  });
  const joined = [];
  for (const {start, end} of words(points)) {
    const number = owners[start];
    const last = joined.at(-1);
    if (number < 0) continue;
    if (last?.number === number && points.slice(last.end, start).join("").trim() === "") {
      last.end = end;
    } else {
      joined.push({start, end, number});
    }
  }
  return joined;
}

function words(points) {
  const list = [];
  let start = null;
  points.forEach((point, position) => {
    const letter = LETTER.test(point);
    if (letter) start ??= position;
    if (!letter && start !== null) {
      list.push({start, end: position});
      start = null;
    }
  });
  return start === null ? list : [...list, {start, end: points.length}];
}

/** Cut a stretch at the ends of the passage: [start, end, is it inside?]. */
function cut(from, to, passage) {
  const first = Math.min(Math.max(passage?.start ?? to, from), to);
  const last = Math.min(Math.max(passage?.end ?? to, first), to);
  return [[from, first, false], [first, last, true], [last, to, false]].filter(
    ([start, end]) => start < end,
  );
}

function piece(content, number, inside) {
  const focus = inside ? " passage" : "";
  if (number !== undefined) {
    return make("mark", {class: colour(number) + focus, "data-number": number}, content);
  }
  return inside ? make("span", {class: "passage"}, content) : content;
}

/** Write a stretch of text, with an element for each word in it that matches. */
export function withMatches(points, from, to, matches) {
  const written = document.createDocumentFragment();
  let position = from;
  for (const {start, end, words, strength} of matches) {
    const [first, last] = [Math.max(start, position), Math.min(end, to)];
    if (first >= last) continue;
    const word = points.slice(first, last).join("");
    const match = make("span", {class: "match", "data-words": words.join(" ")}, word);
    match.style.setProperty("--strength", strength);
    written.append(points.slice(position, first).join(""), match);
    position = last;
  }
  written.append(points.slice(position, to).join(""));
  return written;
}

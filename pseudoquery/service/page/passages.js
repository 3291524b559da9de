// A document's text with its pseudo queries as coloured stretches.
//
// Pseudo queries come in order of weight, so number 0 has the largest, and the first colour.
// The service counts in Unicode code points, which JavaScript does not, so the text is split into
// code points first. The encoder reads pieces of words. Here a word has one colour, that of its
// first letter, and punctuation between words has none.

import {make} from "./elements.js";

const COLOURS = 8;
const LETTER = /[\p{L}\p{M}\p{N}]/u;
const BEFORE = 160;
const LENGTH = 620;

export function colour(number) {
  return `c${number % COLOURS}`;
}

/** Choose the part of a text to show around the passage that is nearest to the question. */
export function excerpt(points, passage, wanted = LENGTH) {
  if (points.length <= wanted * 1.25) {
    return {start: 0, end: points.length};
  }
  const first = Math.min((passage?.start ?? 0) - BEFORE, points.length - wanted);
  const start = first > 0 ? nextWord(points, first) : 0;
  const last = Math.max(start + wanted, passage?.end ?? 0);
  let end = last < points.length ? nextWord(points, last) : points.length;
  while (end < points.length && /\s/u.test(points[end - 1])) end -= 1;
  return {start, end};
}

/** Paint a stretch of text: the first `shown` pseudo queries in colour, the passage in focus. */
export function paint(points, {pseudo_queries: pseudoQueries, passage}, shown, {start, end}) {
  const spans = stretches(points, pseudoQueries).filter(({number}) => number < shown);
  const painted = document.createDocumentFragment();
  const add = (from, to, number) => {
    for (const [first, last, inside] of parts(from, to, passage)) {
      painted.append(piece(points.slice(first, last).join(""), number, inside));
    }
  };
  if (start > 0) painted.append("… ");
  let position = start;
  for (const span of spans) {
    const from = Math.max(span.start, start);
    const to = Math.min(span.end, end);
    if (from >= to) continue;
    add(position, from);
    add(from, to, span.number);
    position = to;
  }
  add(position, end);
  if (end < points.length) painted.append(" …");
  return painted;
}

/** Put the stretches of one pseudo query in focus, or again those of the first. */
export function light(container, number) {
  container.classList.toggle("lit", number !== null);
  for (const mark of container.querySelectorAll("mark")) {
    mark.classList.toggle("on", Number(mark.dataset.number) === number);
  }
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
function parts(from, to, passage) {
  const first = Math.min(Math.max(passage?.start ?? to, from), to);
  const last = Math.min(Math.max(passage?.end ?? to, first), to);
  return [[from, first, false], [first, last, true], [last, to, false]].filter(
    ([start, end]) => start < end,
  );
}

function piece(text, number, inside) {
  const focus = inside ? " passage" : "";
  if (number !== undefined) {
    return make("mark", {class: colour(number) + focus, "data-number": number}, text);
  }
  return inside ? make("span", {class: "passage"}, text) : document.createTextNode(text);
}

function nextWord(points, position) {
  const limit = Math.min(position + 40, points.length);
  for (let next = position; next < limit; next += 1) {
    if (/\s/u.test(points[next])) return next + 1;
  }
  return position;
}

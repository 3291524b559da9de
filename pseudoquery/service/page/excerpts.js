// Which parts of a long text to show: the best passage, and the words that match elsewhere.

const BEFORE = 160;
const LENGTH = 620;
const AROUND = 60; // characters on either side of a word that matches
const ELSEWHERE = 4;
const NEAR = 25; // what is left out between two parts is more than this

/** Choose parts of a text: [{start, end}], in order. `matches` are as `paint` takes them. */
export function excerpts(points, {passage = null, matches = []}) {
  if (points.length <= LENGTH * 1.25) return [{start: 0, end: points.length}];
  const main = mainPart(points, passage);
  const inside = matches.filter((match) => isInside(match, main));
  const seen = new Set(inside.flatMap(({words}) => words));
  const parts = [main];
  for (const match of [...matches].sort((one, other) => other.strength - one.strength)) {
    if (parts.length <= ELSEWHERE && !match.words.every((word) => seen.has(word))) {
      parts.push(partAround(points, match));
      match.words.forEach((word) => seen.add(word));
    }
  }
  return joined(parts);
}

function mainPart(points, passage) {
  const first = Math.min((passage?.start ?? 0) - BEFORE, points.length - LENGTH);
  const start = first > 0 ? nextWord(points, first) : 0;
  return {start, end: endOfWord(points, Math.max(start + LENGTH, passage?.end ?? 0))};
}

function partAround(points, {start, end}) {
  const first = start - AROUND;
  return {
    start: first > 0 ? Math.min(nextWord(points, first), start) : 0,
    end: endOfWord(points, end + AROUND),
  };
}

/** Sort parts, and join those that touch or almost do. */
function joined(parts) {
  const list = [];
  for (const {start, end} of parts.sort((one, other) => one.start - other.start)) {
    const last = list.at(-1);
    if (last && start <= last.end + NEAR) {
      last.end = Math.max(last.end, end);
    } else {
      list.push({start, end});
    }
  }
  return list;
}

function isInside({start, end}, part) {
  return start >= part.start && end <= part.end;
}

function endOfWord(points, position) {
  let end = position < points.length ? nextWord(points, position) : points.length;
  while (end < points.length && /\s/u.test(points[end - 1])) end -= 1;
  return end;
}

function nextWord(points, position) {
  const limit = Math.min(position + 40, points.length);
  for (let next = position; next < limit; next += 1) {
    if (/\s/u.test(points[next])) return next + 1;
  }
  return position;
}

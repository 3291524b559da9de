// The words of the question that a document matches, and the words of its text that match them.

import {make} from "./elements.js";
import {wordSelector} from "./highlights.js";

const WEAK = 0.4; // unrelated words rarely are as similar as this
const STRONG = 0.65; // the same word in much the same sense; signs of vectors seldom reach more
const MOST = 20; // of each kind; a question may have hundreds of words
const LETTER = /[\p{L}\p{N}]/u;
// They match in almost every document, so they don't show why this one was found.
const COMMON = new Set((
  "a about an and any are as at be been but by can could did do does for from had has have he her "
  + "his how i if in into is it its may me might must my no not of on or our she should so some "
  + "such than that the their them then there these they this those to was we were what when "
  + "where which who whom whose why will with would you your"
).split(" "));

/** List the question's words that tell something, with their matches. */
export function tellingWords({query, document: record, matches}) {
  const [question, text] = [[...query], [...record.text]];
  const words = matches.map((match, number) => readMatch(match, number, question, text));
  const readable = words.filter(({word}) => LETTER.test(word));
  const telling = readable.filter(({word}) => !COMMON.has(word.toLowerCase()));
  return telling.length ? telling : readable;
}

/** Read a match: {number, word, similarity, strength, matched, spans, texts}. */
function readMatch({word, similarity, spans}, number, question, text) {
  const read = ({start, end}) => text.slice(start, end).join("");
  const readable = spans.filter((span) => LETTER.test(read(span)));
  return {
    number,
    word: question.slice(word.start, word.end).join(""),
    similarity,
    strength: Math.min(Math.max((similarity - WEAK) / (STRONG - WEAK), 0), 1),
    // A word without spans matches in the title; one with punctuation alone matches nothing.
    matched: similarity >= WEAK && (readable.length > 0 || !spans.length),
    spans: readable,
    texts: distinct(readable.map(read)),
  };
}

/** List the words of the text that match, in order: [{start, end, words, strength}]. */
export function matchedSpans(words) {
  const spans = new Map();
  for (const {number, strength, spans: matched} of strongest(words)) {
    for (const {start, end} of matched) {
      const span = spans.get(start) ?? {start, end, words: [], strength: 0};
      const numbers = span.words.includes(number) ? span.words : [...span.words, number];
      spans.set(start, {...span, words: numbers, strength: Math.max(span.strength, strength)});
    }
  }
  return [...spans.values()].sort((one, other) => one.start - other.start);
}

/** Show each word with its matches; one that is pinned and matches in the text calls `reveal`. */
export function wordList(words, highlights, reveal) {
  if (!words.length) return null;
  const rows = strongest(words).map((word) => make("li", {}, chip(word, highlights, reveal)));
  const missing = distinct(words.filter(({matched}) => !matched).map(({word}) => word));
  if (missing.length) {
    const rest = missing.length > MOST ? `, and ${missing.length - MOST} more` : "";
    const list = missing.slice(0, MOST).join(", ");
    rows.push(make("li", {class: "missing"}, `no close match: ${list}${rest}`));
  }
  return make(
    "div",
    {class: "words"},
    make("span", {"aria-hidden": "true"}, "Your words"),
    make("ul", {"aria-label": "Your words, and the words found"}, ...rows),
  );
}

/** Let the words that match in the title light it. */
export function connectTitle(element, words) {
  const numbers = strongest(words).filter(({spans}) => !spans.length);
  if (numbers.length) element.dataset.words = numbers.map(({number}) => number).join(" ");
}

/** Choose the words that match best, and leave them in the question's order. */
function strongest(words) {
  const matched = words.filter((word) => word.matched);
  const best = [...matched].sort((one, other) => other.similarity - one.similarity);
  const chosen = new Set(best.slice(0, MOST));
  return matched.filter((word) => chosen.has(word));
}

function chip({number, word, similarity, strength, spans, texts}, highlights, reveal) {
  const same = texts.length === 1 && texts[0].toLowerCase() === word.toLowerCase();
  const found = spans.length ? texts.join(", ") : "(in the title)";
  const shown = make("span", {class: spans.length ? "match" : "title"}, found);
  shown.style.setProperty("--strength", strength);
  return highlights.button(
    wordSelector(number),
    {
      class: "word",
      "data-words": number,
      "aria-label": `${word} matches ${spans.length ? found : "the title"}`,
      title: `Similarity ${similarity.toFixed(2)}`,
      pinned: spans.length ? reveal : undefined,
    },
    same ? null : make("span", {}, word),
    same ? null : make("span", {class: "arrow"}, "→"),
    shown,
  );
}

/** Leave out what differs from something before it in capitals alone. */
function distinct(texts) {
  const plain = texts.map((text) => text.toLowerCase());
  return texts.filter((_, index) => plain.indexOf(plain[index]) === index);
}

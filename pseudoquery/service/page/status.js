// How many documents were found, how fast, and, as a note beside them, what is proven.
//
// A proof is about scores, not about relevance: the best of a thousand documents may well be
// nonsense. So the note is small and grey, and says which of the two it means.

import {button, figure, make} from "./elements.js";

const NOT_RELEVANCE = "This is about scores only. Whether a document answers your question is for "
  + "you to judge.";

/** Describe an answer; `prove` searches again, until the ranking is proven. */
export function statusLine(answer, milliseconds, prove) {
  const {summary, explanation, certain} = proofOf(answer);
  return [
    make("span", {}, counted(answer.hits.length, "document")),
    make("span", {}, `${figure(milliseconds)} ms`),
    answer.hits.length ? make(
      "details",
      {class: "proof"},
      make("summary", {title: explanation}, summary),
      make("p", {}, `${explanation} ${NOT_RELEVANCE}`),
      certain ? null : make("p", {}, button("Compare with every document", prove)),
    ) : null,
  ].filter(Boolean);
}

/** Say in plain words what is proven of an answer: {summary, explanation, certain}. */
export function proofOf({certified, candidates, ranked_by: rankedBy, candidates_proven: proven}) {
  const by = rankedBy.split(" and ");
  const withWords = by[1] === "words";
  const tokens = by[0] === "tokens";
  const compared = counted(candidates, "document");
  if (certified && withWords) {
    return {
      summary: "Proven: both rankings, which are combined here, are exact.",
      explanation: `The ranking by meaning is exact (scored: ${compared}), and so is the ranking `
        + "by words (BM25).",
      certain: true,
    };
  }
  if (certified) {
    return {
      summary: "Proven: no other document scores higher.",
      explanation: tokens
        ? `All documents (${figure(candidates)}) were compared with your question, word by word.`
        : `Scored exactly: ${compared}. No other document can reach these scores.`,
      certain: true,
    };
  }
  if (tokens) {
    const found = proven ? "proven" : "not proven";
    const union = withWords ? `${compared}, the best by pseudo queries (${found}) and by BM25`
      : `The ${figure(candidates)} best documents by pseudo queries (${found})`;
    return {
      summary: `${union}, ordered by ${withWords ? "both" : "their words"}.`,
      explanation: (proven
        ? "No other document scores higher by its pseudo queries, and the order of these by their "
          + "words is exact."
        : "The order of these documents by their words is exact, but a document that was not "
          + "compared might score higher by its pseudo queries.")
        + " The words of the other documents were not compared.",
      certain: false,
    };
  }
  return {
    summary: "Not proven: another document might score higher.",
    explanation: `Scored exactly: ${compared}. An approximate step has passed over the others.`,
    certain: false,
  };
}

function counted(count, noun) {
  return `${figure(count)} ${noun}${count === 1 ? "" : "s"}`;
}

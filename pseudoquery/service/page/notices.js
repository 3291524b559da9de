// Notices in place of results: before the first question, and when no document was found.

import {button, make} from "./elements.js";

/** Say what the user can do; `upload` opens the dialog that adds documents. */
export function welcome(documents, upload) {
  if (documents === 0) {
    return make(
      "div",
      {class: "notice"},
      make("h2", {}, "This index has no documents yet"),
      make("p", {}, "Add text, Markdown or JSONL files, and ask a question."),
      button("Add documents", upload, "primary"),
    );
  }
  return make(
    "div",
    {class: "notice"},
    make("h2", {}, "Ask a question in your own words"),
    make(
      "p",
      {},
      "The index stores each document as the few questions it can answer: its pseudo queries. "
      + "Colours show the passages that they were made of, and bars show how much each counts for "
      + "your question. Words that match yours are underlined.",
    ),
    make(
      "p",
      {class: "keys"},
      ...keys("/"), " to ask, ", ...keys("↓", "↑"), " through the results, ",
      ...keys("Enter"), " to open one, ", ...keys("Esc"), " to go back.",
    ),
  );
}

export function nothing(documents) {
  const why = documents === 0
    ? "This index has no documents yet." : "No document can be compared with this question.";
  return make("div", {class: "notice"}, make("h2", {}, "No documents found"), make("p", {}, why));
}

function keys(...names) {
  return names.flatMap((name) => [make("kbd", {}, name), " "]).slice(0, -1);
}

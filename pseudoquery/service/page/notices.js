// What is shown where there are no results: before a question, or when nothing was found.

import {button, make} from "./elements.js";

/** Say what can be done here; `upload` opens the dialog that adds documents. */
export function welcome(documents, upload) {
  if (documents === 0) {
    return make(
      "div",
      {class: "notice"},
      make("h2", {}, "This index has no documents yet"),
      make("p", {}, "Add a text, Markdown or JSONL file, and ask it a question."),
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
      "Each document is stored as the few questions it can answer: its pseudo queries. You will "
      + "see, in colour, which passages they were made of, and how much each weighs for what you "
      + "ask.",
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
  return make("div", {class: "notice"}, make("h2", {}, "Nothing found"), make("p", {}, why));
}

function keys(...names) {
  return names.flatMap((name) => [make("kbd", {}, name), " "]).slice(0, -1);
}

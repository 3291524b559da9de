// The page: it reads the question and the switches, and shows the results or one document.

import * as address from "./address.js";
import {comparison} from "./comparison.js";
import {documentView} from "./document.js";
import {button, byId, make} from "./elements.js";
import {Explainer, forget} from "./explanations.js";
import {factList, summary} from "./facts.js";
import {hitList} from "./hits.js";
import {nothing, welcome} from "./notices.js";
import * as service from "./service.js";
import {statusLine} from "./status.js";
import {startTheme} from "./theme.js";
import {askForToken} from "./token.js";
import {startUpload} from "./upload.js";

const PAUSE = 140; // milliseconds without a key, after which a search begins
const STEP = 10;
const SWITCHES = ["hybrid", "exact", "compare"];

let state = address.read();
let top = STEP;
let facts = null;
let lastDocument = null;
let current = new AbortController();
let timer = 0;

startTheme();
startDialogs();
startControls();
startUpload(() => { forget(); loadFacts(); show(); });
service.onTokenNeeded(askForToken);
show();
loadFacts();

/** Show the state, and drop every request that is still running. */
async function show() {
  clearTimeout(timer);
  current.abort();
  current = new AbortController();
  const {signal} = current;
  writeControls();
  alertUser(null);
  main().setAttribute("aria-busy", "true");
  try {
    const shown = await view(signal);
    if (!signal.aborted) display(shown);
  } catch (error) {
    if (!signal.aborted) {
      display({});
      alertUser(error);
    }
  } finally {
    if (!signal.aborted) main().removeAttribute("aria-busy");
  }
}

/** Make the parts to display: {results, document, status}. */
async function view(signal) {
  const {query, shown} = state;
  if (state.document !== null) {
    const question = query.trim() ? query : null;
    const asked = {id: state.document, query: question};
    const [map, explanation] = await Promise.all([
      service.mapOf(asked, signal), question ? service.explain(asked, signal) : null,
    ]);
    const back = address.write({...state, document: null});
    return {document: documentView(map, explanation, {shown, back})};
  }
  if (!query.trim()) return {results: greeting()};
  const started = performance.now();
  const how = {query, top, exact: state.exact, mode: state.hybrid ? "hybrid" : "dense"};
  const explainer = new Explainer(query, signal);
  const addressOf = (id) => address.write({...state, document: id});
  if (state.compare) {
    const answers = await service.compare(how, signal);
    const results = comparison(answers, {addressOf, explainer});
    return {results, status: statusOf(answers.pseudo_queries, started)};
  }
  const {answers: [answer]} = await service.search(how, signal);
  const status = statusOf(answer, started);
  if (!answer.hits.length) return {results: nothing(facts?.index.documents), status};
  const list = hitList(answer, {shown, addressOf, explainer});
  return {results: [list, more(answer.hits.length)], status};
}

function display({results = null, document: article = null, status = []}) {
  const opened = article !== null && byId("document").hidden;
  const left = article === null && !byId("document").hidden;
  byId("results").replaceChildren(...[results].flat().filter(Boolean));
  byId("document").replaceChildren(...[article].filter(Boolean));
  byId("document").hidden = article === null;
  byId("results").hidden = article !== null;
  byId("status").replaceChildren(...status);
  document.title = state.query ? `${state.query} – pseudoquery` : "pseudoquery";
  if (opened) {
    scrollTo(0, 0);
    byId("document").focus({preventScroll: true});
  }
  if (left) linkTo(lastDocument)?.focus();
  lastDocument = state.document;
}

/** Find the link to a document, to return the focus to it. */
function linkTo(id) {
  const rows = [...document.querySelectorAll("#results li")];
  return rows.find((row) => row.dataset.id === id)?.querySelector("a");
}

function statusOf(answer, started) {
  return statusLine(answer, performance.now() - started, () => change({exact: true}));
}

function greeting() {
  return welcome(facts?.index.documents, () => openDialog("upload"));
}

function more(count) {
  const limit = facts?.limits.top ?? STEP;
  if (count < top || top >= limit) return null;
  const click = async () => {
    top = Math.min(top + STEP, limit);
    await show();
    document.querySelectorAll(".hit h2 a")[count]?.focus();
  };
  return make("p", {class: "more"}, button("Show more", click, "quiet"));
}

function alertUser(error) {
  if (!error) {
    byId("alert").replaceChildren();
    return;
  }
  const again = button("Try again", () => { loadFacts(); show(); });
  byId("alert").replaceChildren(make("p", {}, error.message, " ", again));
}

// --- controls

function change(changes) {
  state = {...state, ...changes};
  history.replaceState(null, "", address.write(state));
  show();
}

function startControls() {
  byId("form").addEventListener("submit", (event) => { event.preventDefault(); ask(); });
  byId("query").addEventListener("input", () => {
    clearTimeout(timer);
    timer = setTimeout(ask, PAUSE);
  });
  for (const name of SWITCHES) {
    byId(name).addEventListener("change", () => change({[name]: byId(name).checked}));
  }
  byId("shown").addEventListener("change", () => change({shown: Number(byId("shown").value)}));
  addEventListener("hashchange", () => {
    state = address.read();
    byId("query").value = state.query;
    show();
  });
  byId("home").addEventListener("click", () => byId("query").focus());
  addEventListener("keydown", pressed);
  byId("query").value = state.query;
  byId("query").focus();
}

function ask() {
  const query = byId("query").value;
  if (query !== state.query || state.document !== null || byId("alert").hasChildNodes()) {
    top = STEP;
    change({query, document: null});
  }
}

function writeControls() {
  for (const name of SWITCHES) byId(name).checked = state[name];
  byId("shown").value = String(state.shown);
  if (!byId("shown").value) byId("shown").value = "1000";
}

/** Handle keys: / goes to the question, arrows move through the results, Escape goes back. */
function pressed(event) {
  if (event.ctrlKey || event.metaKey || event.altKey) return;
  if (document.querySelector("dialog[open]")) return;
  const typing = event.target.matches?.("input:not([type=checkbox]), select, textarea");
  if (event.key === "/" && !typing) {
    event.preventDefault();
    byId("query").select();
  } else if (event.key === "Escape" && state.document !== null) {
    location.hash = address.write({...state, document: null});
  } else if (["ArrowDown", "ArrowUp"].includes(event.key) && !event.target.matches?.("select")) {
    const links = [byId("query"), ...document.querySelectorAll("#results h2 a, #results h3 a")];
    const card = event.target.closest?.(".hit, .comparison li");
    const from = links.indexOf(card?.querySelector("a") ?? event.target);
    const next = links[from + (event.key === "ArrowDown" ? 1 : -1)];
    if (next && from >= 0 && byId("document").hidden) {
      event.preventDefault();
      next.focus();
      next.closest("li")?.scrollIntoView({block: "nearest"});
    }
  }
}

// --- dialogs

function startDialogs() {
  byId("open-facts").addEventListener("click", () => { loadFacts(); openDialog("facts"); });
  byId("open-upload").addEventListener("click", () => openDialog("upload"));
  for (const dialog of document.querySelectorAll("dialog")) {
    dialog.addEventListener("click", (event) => { if (event.target === dialog) dialog.close(); });
  }
}

function openDialog(id) {
  byId(id).showModal();
}

async function loadFacts() {
  const body = byId("facts").querySelector(".body");
  try {
    facts = await service.info();
    byId("open-facts").textContent = summary(facts);
    body.replaceChildren(factList(facts));
    if (!state.query.trim() && state.document === null) display({results: greeting()});
  } catch (error) {
    body.replaceChildren(make("p", {class: "note"}, error.message));
    if (!byId("alert").hasChildNodes()) alertUser(error);
  }
}

function main() {
  return document.querySelector("main");
}

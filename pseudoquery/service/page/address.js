// The state of the page, in the part of its address after the #, which browsers never send. So the
// Back button works, and a search can be bookmarked.

const SHOWN = 4;

/** Read {query, document, hybrid, exact, compare, shown}. */
export function read() {
  const parameters = new URLSearchParams(location.hash.slice(1));
  return {
    query: parameters.get("q") ?? "",
    document: parameters.get("document"),
    hybrid: parameters.has("hybrid"),
    exact: parameters.has("exact"),
    compare: parameters.has("compare"),
    shown: Number(parameters.get("shown")) || SHOWN,
  };
}

/** Write the address of such a state. */
export function write({query, document, hybrid, exact, compare, shown}) {
  const parameters = new URLSearchParams();
  if (query) parameters.set("q", query);
  if (hybrid) parameters.set("hybrid", "");
  if (exact) parameters.set("exact", "");
  if (compare) parameters.set("compare", "");
  if (shown !== SHOWN) parameters.set("shown", shown);
  if (document !== null && document !== undefined) parameters.set("document", document);
  return `#${parameters}`;
}

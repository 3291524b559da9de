// What the page shows, kept in the part of its address after the #, which is never sent anywhere:
// so that the browser's Back works, and a search can be bookmarked.

const SHOWN = 4;

/** Read {query, document, hybrid, exact, compare, shown}. */
export function read() {
  const found = new URLSearchParams(location.hash.slice(1));
  return {
    query: found.get("q") ?? "",
    document: found.get("document"),
    hybrid: found.has("hybrid"),
    exact: found.has("exact"),
    compare: found.has("compare"),
    shown: Number(found.get("shown")) || SHOWN,
  };
}

/** Write the address of such a state. */
export function write({query, document, hybrid, exact, compare, shown}) {
  const written = new URLSearchParams();
  if (query) written.set("q", query);
  if (hybrid) written.set("hybrid", "");
  if (exact) written.set("exact", "");
  if (compare) written.set("compare", "");
  if (shown !== SHOWN) written.set("shown", shown);
  if (document !== null && document !== undefined) written.set("document", document);
  return `#${written}`;
}

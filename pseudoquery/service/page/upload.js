// Uploads the user's files piece by piece. The service stores a piece before the page sends the
// next one, so the progress counts documents that are on disk.

import {button, byId, figure, make} from "./elements.js";
import {size} from "./facts.js";
import {addLines, newToken, putDocument} from "./service.js";

const PIECE = 128 << 10;
const NEWLINE = 10;
const SENDERS = [
  [/\.(txt|md)$/i, sendText],
  [/\.(jsonl|ndjson)$/i, sendLines],
];

/** Let users choose or drop files; it calls `stored` when documents have changed. */
export function startUpload(stored) {
  const dialog = byId("upload");
  const input = byId("files");
  const drop = byId("drop");
  const send = (files) => sendAll([...files], stored);
  input.addEventListener("change", () => { send(input.files); input.value = ""; });
  // Files can be dropped anywhere: the browser would leave the page to open them.
  addEventListener("dragover", (event) => { event.preventDefault(); drop.classList.add("over"); });
  addEventListener("dragleave", () => drop.classList.remove("over"));
  addEventListener("drop", (event) => {
    event.preventDefault();
    drop.classList.remove("over");
    if (event.dataTransfer.files.length) {
      if (!dialog.open) dialog.showModal();
      send(event.dataTransfer.files);
    }
  });
}

async function sendAll(files, stored) {
  const transfers = files.map((file) => ({file, row: transfer(file)}));
  for (const {file, row} of transfers) {
    if (!row.stop.signal.aborted) {
      await send(file, row);
      stored();
    }
  }
}

async function send(file, row) {
  row.begin();
  try {
    const [, sender] = SENDERS.find(([ending]) => ending.test(file.name)) ?? [];
    if (!sender) {
      throw new Error("Only .txt, .md, .jsonl and .ndjson files can be added here.");
    }
    row.done(await sender(file, row));
  } catch (error) {
    row.failed(error);
  }
}

async function sendText(file, row) {
  const bytes = await file.arrayBuffer();
  let text;
  try {
    text = new TextDecoder("utf-8", {fatal: true}).decode(bytes);
  } catch {
    throw new Error("This file is not UTF-8 text; save it as UTF-8 and add it again.");
  }
  const body = {text, metadata: {path: file.name}};
  return putDocument(file.name, body, row.stop.signal);
}

async function sendLines(file, row) {
  const total = {added: 0, updated: 0, unchanged: 0, cut: 0};
  for await (const {piece, firstLine, end} of pieces(file)) {
    const stored = await addLines(piece, firstLine, row.stop.signal);
    for (const name of Object.keys(total)) total[name] += stored[name];
    row.progress(end / file.size, total);
  }
  return total;
}

/** Cut a file into pieces of whole lines, without reading more than one piece at a time. */
async function* pieces(file) {
  let start = 0;
  let firstLine = 1;
  while (start < file.size) {
    let end = Math.min(start + PIECE, file.size);
    let bytes = new Uint8Array(await file.slice(start, end).arrayBuffer());
    while (end < file.size && !bytes.includes(NEWLINE)) {
      end = Math.min(end + PIECE, file.size);
      bytes = new Uint8Array(await file.slice(start, end).arrayBuffer());
    }
    if (end < file.size) {
      end = start + bytes.lastIndexOf(NEWLINE) + 1;
    }
    const piece = file.slice(start, end);
    const lines = bytes.subarray(0, end - start).filter((byte) => byte === NEWLINE).length;
    yield {piece, firstLine, end};
    start = end;
    firstLine += lines;
  }
}

/** Make the row of one file: its progress, its outcome, and a button that stops it. */
function transfer(file) {
  const stop = new AbortController();
  const bar = make("progress", {max: 1, value: 0, "aria-label": `Progress of ${file.name}`});
  const state = make("span", {class: "said"}, "Waiting");
  const halt = button("Stop", () => end());
  const row = make(
    "li",
    {},
    make("span", {class: "name"}, file.name),
    make("span", {class: "note"}, size(file.size)),
    halt,
    bar,
    state,
  );
  const finish = (kind, message) => {
    row.className = kind;
    state.textContent = message;
    halt.remove();
  };
  const end = () => {
    stop.abort();
    if (state.textContent === "Waiting") finish("failed", "Stopped; nothing was stored.");
  };
  byId("transfers").prepend(row);
  let stored = null;
  return {
    stop,
    begin() {
      state.textContent = "Reading and storing …";
      bar.removeAttribute("value"); // it moves until the first piece is stored
    },
    progress(part, total) {
      stored = total;
      bar.value = part;
      state.textContent = `Storing … ${counts(total)}`;
    },
    done(total) {
      bar.value = 1;
      finish("done", counts(total));
    },
    failed(error) {
      bar.value = 0;
      const sofar = stored ? ` So far: ${counts(stored)}` : "";
      const message = error.name === "AbortError" ? `Stopped.${sofar}` : error.message;
      finish("failed", message);
      if (error.status === 403) {
        const reason = "Enter a write token, then add the file again.";
        row.append(button("Use another token", () => newToken(reason)));
      }
    },
  };
}

function counts({added, updated, unchanged, cut}) {
  const parts = [[added, "added"], [updated, "replaced"], [unchanged, "unchanged"], [cut, "cut"]];
  const texts = parts.filter(([count]) => count).map(([count, what]) => `${figure(count)} ${what}`);
  return texts.length ? `${texts.join(", ")}.` : "The file has no documents.";
}

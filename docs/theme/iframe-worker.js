// Search runs in a worker, and browsers start none for a page that is opened from disk. There, a
// hidden frame does the work instead: it loads the same script, and messages go back and forth.
// The theme would load such a file from another host; it looks for the name IFrameWorker.
class IFrameWorker extends EventTarget {
  constructor(url) {
    super();
    const frame = document.createElement("iframe");
    frame.hidden = true;
    document.body.appendChild(frame);
    this.frame = frame;
    const inside = frame.contentWindow;
    const script = inside.document.createElement("script");
    script.src = url;
    this.ready = new Promise((resolve) => (script.onload = resolve));
    inside.postMessage = (data) => this.receive(data);
    inside.importScripts = (...urls) => urls.reduce((before, one) => before.then(() => load(inside, one)), Promise.resolve());
    inside.document.body.appendChild(script);
  }

  receive(data) {
    const event = new MessageEvent("message", { data });
    this.dispatchEvent(event);
    this.onmessage?.(event);
  }

  postMessage(data) {
    this.ready.then(() => this.frame.contentWindow.dispatchEvent(new MessageEvent("message", { data })));
  }

  terminate() {
    this.frame.remove();
  }
}

function load(inside, url) {
  return new Promise((resolve) => {
    const script = inside.document.createElement("script");
    script.src = url;
    script.onload = resolve;
    inside.document.body.appendChild(script);
  });
}

window.IFrameWorker = IFrameWorker;
if (location.protocol === "file:") window.Worker = IFrameWorker;

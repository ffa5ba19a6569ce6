/* Browsers start no workers from files: where the site is read from files, its search runs in a frame of the page. */
if (location.protocol === "file:") {
  window.IFrameWorker = window.Worker = class extends EventTarget {
    constructor(url) {
      super();
      const frame = document.createElement("iframe");
      frame.hidden = true;
      document.body.append(frame);
      this.inside = frame.contentWindow;
      this.inside.postMessage = (data) => this.dispatchEvent(new MessageEvent("message", { data }));
      const script = this.inside.document.createElement("script");
      this.started = new Promise((resolve) => script.addEventListener("load", resolve));
      script.src = url;
      this.inside.document.body.append(script);
    }

    postMessage(data) {
      this.started.then(() => this.inside.dispatchEvent(new MessageEvent("message", { data })));
    }
  };
}

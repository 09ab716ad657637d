// Keeps a page up to date: when the control plane says that something changed that the page is about, the page is
// fetched again as its reader may see it, and the parts that differ are exchanged. Without this script it can be read.
"use strict";
(() => {
  const watches = (document.body.dataset.watches || "").split(" ").filter(Boolean);
  const status = document.getElementById("live");
  let fetching = false, again = false, lost = false;

  const say = (word, kind) => {
    if (status.textContent === word) return;
    status.textContent = word;
    status.className = kind;
  };

  // A part somebody writes in, or has marked text in, stays as it is.
  const isBusy = (part) => {
    const active = document.activeElement;
    if (part.contains(active) && active.matches("input, select, textarea")) return true;
    const marked = document.getSelection();
    return marked && !marked.isCollapsed && part.contains(marked.anchorNode);
  };

  // What goes on by itself, or was opened by the reader, is no difference.
  const bare = (part) => part.innerHTML.replace(/(<time[^>]*>)[^<]*/g, "$1").replaceAll(' open=""', "");

  const exchange = (part, fresh) => {
    if (bare(part) === bare(fresh) || isBusy(part)) return;
    const active = document.activeElement;
    const focused = part.contains(active) ? [active.id, active.getAttribute("href")] : null;
    const open = new Set([...part.querySelectorAll("details[open]")].map((one) => one.id));
    part.replaceChildren(...document.importNode(fresh, true).childNodes);
    for (const one of part.querySelectorAll("details")) if (one.id && open.has(one.id)) one.open = true;
    if (focused) {
      const links = [...part.querySelectorAll("a[href], button, summary, [tabindex]")];
      const found = links.find((one) => (focused[0] && one.id === focused[0]) || (focused[1] && one.getAttribute("href") === focused[1]));
      if (found) found.focus({ preventScroll: true });
    }
    part.classList.remove("changed");
    void part.offsetWidth;
    part.classList.add("changed");
    ages();
  };

  const look = async () => {
    if (fetching) { again = true; return; }
    fetching = true;
    try {
      const answer = await fetch(location.href, { credentials: "same-origin", redirect: "error" });
      if (!answer.ok && answer.status !== 404) throw new Error(String(answer.status));
      const fresh = new DOMParser().parseFromString(await answer.text(), "text/html");
      for (const part of document.querySelectorAll("[data-live]")) {
        const other = fresh.getElementById(part.id);
        if (other) exchange(part, other);
      }
    } catch {
      lost = true;
      say("the control plane does not answer", "off");
    } finally {
      fetching = false;
      if (again) { again = false; look(); }
    }
  };

  // How long ago something was goes on by itself.
  const units = [[31536000, "y"], [172800, "d", 86400], [7200, "h", 3600], [120, "m", 60]];
  const span = (seconds) => {
    const unit = units.find(([from]) => seconds >= from);
    return unit ? Math.floor(seconds / (unit[2] || unit[0])) + unit[1] : Math.max(0, Math.floor(seconds)) + "s";
  };
  const ages = () => {
    for (const one of document.querySelectorAll("time[data-age]")) {
      const at = Date.parse(one.dateTime);
      if (!Number.isNaN(at)) one.textContent = span((Date.now() - at) / 1000);
    }
  };
  setInterval(ages, 1000);

  const follow = () => {
    const stream = new EventSource("/gui/live");
    stream.addEventListener("hello", () => {
      say("live", "on");
      // What happened in between nobody said.
      if (lost) { lost = false; look(); }
    });
    stream.onmessage = ({ data }) => {
      const words = data.split(" ");
      if (words.includes("*") || watches.includes("*") || words.some((word) => watches.includes(word))) look();
    };
    stream.onerror = () => {
      lost = true;
      if (stream.readyState === EventSource.CLOSED) {
        say("not followed: it is as it was when it was loaded", "off");
        setTimeout(follow, 10000);
      } else {
        setTimeout(() => { if (lost) say("the control plane does not answer", "off"); }, 3000);
      }
    };
  };
  if (watches.length > 0) follow();
  else status.textContent = "";

  // A filter that is chosen holds at once.
  for (const one of document.querySelectorAll("form.filters select")) one.addEventListener("change", () => one.form.requestSubmit());
  // What cannot be taken back by a key is asked about.
  for (const form of document.querySelectorAll("form[data-ask]"))
    form.addEventListener("submit", (event) => { if (!confirm(form.dataset.ask)) event.preventDefault(); });
})();

// Keeps an open page fresh. The server says that something changed; the page is fetched again as it is, and
// those parts of it are put in place that are not what they were. Without this, everything works by reloading.
"use strict";
{
  const sign = document.getElementById("live");
  const base = location.pathname.match(/^\/~[^/]+/)?.[0] ?? "";  // the path of this session
  const parts = () => [...document.querySelectorAll("[data-live]")];
  const shown = new Map(parts().map((part) => [part.id, part.innerHTML]));
  let stream = null;
  let fetching = false;
  let again = false;

  // The user is typing there, or has: nothing of theirs is taken away.
  const isEdited = (part) =>
    [...part.querySelectorAll("input:not([type=hidden]), textarea")].some(
      (field) => field === document.activeElement || field.value !== field.defaultValue,
    );

  function place(part, fresh) {
    const open = [...part.querySelectorAll("details[open][id]")].map((each) => each.id);
    const focused = part.contains(document.activeElement) ? document.activeElement.id : "";
    const scrolled = [...part.querySelectorAll("pre")].map((each) => each.scrollTop);
    part.replaceChildren(...fresh.childNodes);
    for (const id of open) document.getElementById(id)?.setAttribute("open", "");
    part.querySelectorAll("pre").forEach((each, index) => (each.scrollTop = scrolled[index] ?? 0));
    if (focused) document.getElementById(focused)?.focus({ preventScroll: true });
  }

  async function refresh() {
    if (fetching) {
      again = true;
      return;
    }
    fetching = true;
    try {
      const answer = await fetch(location.href, { credentials: "same-origin" });
      if (answer.redirected && new URL(answer.url).pathname === "/login") {
        location.assign("/login");
        return;
      }
      if (!answer.ok) return;
      const page = new DOMParser().parseFromString(await answer.text(), "text/html");
      for (const part of parts()) {
        const fresh = page.getElementById(part.id);
        if (!fresh || fresh.innerHTML === shown.get(part.id) || isEdited(part)) continue;
        shown.set(part.id, fresh.innerHTML);
        place(part, fresh);
      }
    } catch {
      say("not connected");
    } finally {
      fetching = false;
      if (again) {
        again = false;
        refresh();
      }
    }
  }

  function say(word) {
    if (sign && sign.textContent !== word) sign.textContent = word;
    if (sign) sign.dataset.state = word;
  }

  function listen() {
    if (stream || document.hidden) return;
    stream = new EventSource(`${base}/events`);
    stream.addEventListener("open", () => {
      say("live");
      refresh();
    });
    stream.addEventListener("changed", refresh);
    stream.addEventListener("error", () => say("not connected"));
  }

  // A browser has few connections for one site, and a hidden page needs none.
  function leave() {
    stream?.close();
    stream = null;
  }

  document.addEventListener("visibilitychange", () => (document.hidden ? leave() : listen()));
  addEventListener("pagehide", leave);
  addEventListener("pageshow", listen);
  listen();
}

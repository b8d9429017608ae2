// Keeps an open page fresh. The server says that something changed; the page is fetched again as it is, and
// those parts of it are put in place that are not what they were. Without this, everything works by reloading.
"use strict";
{
  const sign = document.getElementById("live");
  const base = location.pathname.match(/^\/~[^/]+/)?.[0] ?? "";  // the path of this session
  const parts = () => [...document.querySelectorAll("[data-live]")];
  const shown = new Map(parts().map((part) => [part.id, part.innerHTML]));
  const PAUSE = 1000;  // between two updates, in milliseconds: a busy gateway changes all the time
  let stream = null;
  let fetching = false;
  let again = false;

  // The user is typing there, or has: nothing of theirs is taken away.
  const isChanged = (field) => {
    if (field.tagName === "SELECT") {
      // Where no option is marked as chosen, the first one of a list that drops down is.
      const options = [...field.options];
      const marked = options.some((each) => each.defaultSelected) || field.multiple || field.size > 1;
      return options.some((each, index) => each.selected !== (marked ? each.defaultSelected : index === 0));
    }
    if (field.type === "checkbox" || field.type === "radio") return field.checked !== field.defaultChecked;
    return field.value !== field.defaultValue;
  };
  const isEdited = (part) =>
    [...part.querySelectorAll("input:not([type=hidden]), textarea, select")].some(
      (field) => field === document.activeElement || isChanged(field),
    );

  function place(part, fresh) {
    const open = [...part.querySelectorAll("details[open][id]")].map((each) => each.id);
    const focused = part.contains(document.activeElement) ? document.activeElement.id : "";
    const scrolled = [...part.querySelectorAll("pre")].map((each) => each.scrollTop);
    const closed = [...part.querySelectorAll("details:not([open])[id]")].map((each) => each.id);
    part.replaceChildren(...fresh.childNodes);
    for (const id of closed) document.getElementById(id)?.removeAttribute("open");
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
      const answer = await fetch(location.href, { credentials: "same-origin", headers: { "Fairlead-Live": "1" } });
      if (answer.redirected && new URL(answer.url).pathname === "/login") {
        location.assign(answer.url);
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
      document.title = page.title;
      follow();
      notify();
    } catch {
      say("not connected");
    } finally {
      setTimeout(() => {
        fetching = false;
        if (again) {
          again = false;
          refresh();
        }
      }, PAUSE);
    }
  }

  // A log that is followed stays at its end.
  function follow() {
    for (const log of document.querySelectorAll("pre[data-follow]")) log.scrollTop = log.scrollHeight;
  }

  // Notifications of the browser, for those who switched them on here.
  const WANTED = "fairlead-notifications";
  const waiting = () => Number(document.querySelector("[data-waiting]")?.dataset.waiting ?? 0);
  let known = waiting();
  const notifies = () =>
    "Notification" in window && Notification.permission === "granted" && localStorage.getItem(WANTED) === "on";

  function notify() {
    const now = waiting();
    if (now > known && notifies() && !document.hasFocus()) {
      const note = new Notification("Fairlead", {
        body: now === 1 ? "1 approval or review waits for you" : `${now} approvals and reviews wait for you`,
        tag: "fairlead-waiting",
      });
      note.addEventListener("click", () => {
        window.focus();
        location.assign(`${base}/approvals`);
      });
    }
    known = now;
    offer();
  }

  function offer() {
    const button = document.getElementById("notify");
    if (!button || !("Notification" in window) || Notification.permission === "denied") return;
    button.hidden = false;
    button.textContent = notifies() ? "Stop notifications" : "Notify me in this browser";
    button.onclick = async () => {
      if (notifies()) localStorage.removeItem(WANTED);
      else if ((await Notification.requestPermission()) === "granted") localStorage.setItem(WANTED, "on");
      offer();
    };
  }

  function say(word) {
    if (sign && sign.textContent !== word) sign.textContent = word;
    if (sign) sign.dataset.state = word;
  }

  function listen() {
    if (stream || (document.hidden && !notifies())) return;
    stream = new EventSource(`${base}/events`);
    stream.addEventListener("open", () => {
      say("live");
      refresh();
    });
    stream.addEventListener("changed", refresh);
    stream.addEventListener("error", () => say("not connected"));
  }

  // A browser has few connections for one site, and a hidden page that notifies of nothing needs none.
  function leave() {
    stream?.close();
    stream = null;
  }

  document.addEventListener("visibilitychange", () => (document.hidden && !notifies() ? leave() : listen()));
  addEventListener("pagehide", leave);
  addEventListener("pageshow", listen);
  // Logs grow without a word from the server.
  setInterval(() => document.querySelector("[data-poll]") && !document.hidden && refresh(), 2000);
  document.querySelector("nav [aria-current]")?.scrollIntoView({ block: "nearest", inline: "center" });
  follow();
  offer();
  listen();
}

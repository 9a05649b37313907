// The page's behaviour; everything else is htmx (see keep.js) and HTML.
"use strict";

const body = document.body;
const byId = (id) => document.getElementById(id);

// Live updates: the feed names what changed, the parts that care fetch themselves again.
const feed = new EventSource("/feed?version=" + body.dataset.version);
const offline = document.querySelector(".offline");
let lost = false;
feed.onmessage = (event) => {
  if (event.data !== "traffic" || panelShown()) htmx.trigger(body, event.data);
};
feed.onerror = () => { lost = true; offline.textContent = "Disconnected. Reconnecting…"; };
feed.onopen = () => {
  offline.textContent = "";
  if (lost) htmx.trigger(body, "refresh");
  lost = false;
};

// A tab has its own modals, as in Slack; it keeps them over a reload.
if (!sessionStorage.tab) sessionStorage.tab = Array.from(crypto.getRandomValues(new Uint32Array(2)), (part) => part.toString(36)).join("");
body.addEventListener("htmx:configRequest", (event) => { event.detail.parameters.tab = sessionStorage.tab; });

// What did not work is said once, where it was done; it goes with the next action, or after a while.
const NOTICE_SECONDS = 12;
let noticed = 0;
const shownNotices = () => document.querySelectorAll(".notices:not([hidden])");
function notice(text) {
  hideNotices();
  const place = (modal.open ? modal : body).querySelector(".notices");
  place.querySelector("p").textContent = text;
  place.hidden = false;
  wait();
}
function hideNotices() {
  clearTimeout(noticed);
  shownNotices().forEach((place) => { place.hidden = true; });
}
function wait() {
  noticed = setTimeout(() => {
    if ([...shownNotices()].some((place) => place.matches(":hover, :focus-within"))) wait();
    else hideNotices();
  }, NOTICE_SECONDS * 1000);
}
body.addEventListener("click", (event) => { if (event.target.closest("[data-dismiss]")) hideNotices(); });
// On the request itself: its element may be gone by the time that the answer comes.
body.addEventListener("htmx:beforeSend", (event) => {
  const { xhr, pathInfo } = event.detail;
  if (!pathInfo.requestPath.startsWith("/do/")) return;
  hideNotices();
  xhr.addEventListener("load", () => {
    const said = xhr.getResponseHeader("X-Notice");
    if (said) notice(JSON.parse(said));
    else if (xhr.status >= 400) notice(`The workspace returned an error (${xhr.status}).`);
  });
  xhr.addEventListener("error", () => notice("Not sent: the workspace does not respond. Try again."));
});

// What was entered in a view stays when the view is drawn anew, as far as its fields are still there.
const fieldsOf = (view) => [...view.querySelectorAll("input[id], textarea[id], select[id]")];
let entered = new Map();
body.addEventListener("htmx:beforeSwap", (event) => {
  if (!event.detail.target.matches("#modal, #home")) return;
  entered = new Map(fieldsOf(event.detail.target).map((field) => [field.id, { value: field.value, checked: field.checked }]));
});
body.addEventListener("htmx:afterSwap", (event) => {
  if (!event.detail.target.matches("#modal, #home")) return;
  for (const field of fieldsOf(event.detail.target)) if (entered.has(field.id)) restore(field, entered.get(field.id));
});
function restore(field, { value, checked }) {
  if (/^(checkbox|radio)$/.test(field.type)) field.checked = checked;
  else if (field.tagName !== "SELECT" || [...field.options].some((option) => option.value === value)) field.value = value;
}

// Lists stay at their end while one reads there. Above it they stay where they are: a pill counts what came and leads
// to it. The live region says what is new, once, wherever it is shown.
const atEnd = (list) => list.scrollHeight - list.scrollTop - list.clientHeight < 80;
const lists = document.querySelectorAll("[data-list]");
let announced = "";
body.addEventListener("htmx:beforeSwap", (event) => {
  const list = event.detail.target.closest("[data-list]");
  if (list) list.dataset.follow = atEnd(list);
});
body.addEventListener("htmx:afterSwap", (event) => {
  const list = event.detail.target.closest("[data-list]");
  if (list) settle(list);
  if (list && panel.contains(list)) oneStop();
  if (event.detail.target === modal) showModal();
});
function settle(list) {
  if (list.dataset.follow !== "false") list.scrollTop = list.scrollHeight;
  const last = list.querySelector("[data-latest]");
  if (!last) return;
  const { latest, announce } = last.dataset;
  if (list.dataset.latest !== undefined && latest > announced && latest > list.dataset.latest) {
    byId("announcer").textContent = announce;
    announced = latest;
  }
  list.dataset.latest = latest;
  if (list.dataset.follow !== "false") list.dataset.read = latest;
  tellNews(list);
}
const newsIn = (list) => [...list.querySelectorAll(".message")].filter((each) => each.dataset.key.slice(1) > list.dataset.read);
function tellNews(list) {
  const pill = list.parentElement.querySelector(".pill");
  const news = newsIn(list);
  pill.hidden = !news.length;
  if (!news.length) return;
  pill.querySelector("span").textContent = `${news.length} new ${news.length === 1 ? "message" : "messages"}`;
  for (const each of list.querySelectorAll(".message")) each.classList.toggle("new", each === news[0]);
}
function readAll(list) {
  if (list.dataset.read === list.dataset.latest) return;
  list.dataset.read = list.dataset.latest;
  tellNews(list);
}
const sized = new ResizeObserver((changes) => {
  for (const { target } of changes) if (target.dataset.follow !== "false") target.scrollTop = target.scrollHeight;
});
for (const list of lists) {
  sized.observe(list);
  list.addEventListener("scroll", () => {
    list.dataset.follow = atEnd(list);
    if (atEnd(list)) readAll(list);
  }, { passive: true });
  list.parentElement.querySelector(".pill")?.addEventListener("click", () => {
    const [first] = newsIn(list);
    readAll(list);
    first.scrollIntoView();
    first.focus({ preventScroll: true });
  });
}

// Modals are real dialogs; Escape cancels them as the button does. Focus goes back where it was.
const modal = byId("modal");
let opener = null;
function showModal() {
  const form = modal.querySelector("form");
  if (!form) {
    if (!modal.open) return;
    modal.close();
    if (opener) backTo(opener);
    return;
  }
  if (!modal.open) {
    const from = document.activeElement;
    opener = { element: from, id: from.id, key: from.closest("[data-key]")?.dataset.key };
    modal.showModal();
  }
  const wrong = modal.querySelector('[aria-invalid="true"], .wrong');
  const first = wrong ? wrong.closest(".input").querySelector("input, select, textarea")
    : form.querySelector("[autofocus], .inside :is(input, select, textarea, button, a[href])");
  if (wrong || modal.dataset.view !== form.dataset.view || !modal.contains(document.activeElement)) (first || form.querySelector("#modal-submit, #modal-close")).focus();
  modal.dataset.view = form.dataset.view;
}
const closeModal = () => htmx.ajax("POST", "/do/close", { source: modal, swap: "none" });
function backTo({ element, id, key }) {
  const around = key && document.querySelector(`[data-key="${CSS.escape(key)}"]`);
  const target = element.isConnected && element !== body ? element : (id && byId(id)) || around;
  if (target) target.focus({ preventScroll: true });
}
modal.addEventListener("cancel", (event) => {
  event.preventDefault();
  closeModal();
});
modal.addEventListener("click", (event) => {
  if (event.target.closest("[data-close-modal]")) closeModal();
});

// A question before something is done: Slack's confirm dialogs, deleting, and the text of an edited message.
const ask = byId("ask");
function asked({ title, text = "", confirm, deny, style = "primary", input }) {
  byId("ask-title").textContent = title;
  byId("ask-text").textContent = text;
  byId("ask-confirm").textContent = confirm;
  byId("ask-confirm").className = style === "danger" ? "danger" : "primary";
  byId("ask-deny").textContent = deny;
  const field = byId("ask-input");
  field.hidden = input === undefined;
  field.value = input || "";
  ask.returnValue = "";
  ask.showModal();
  (field.hidden ? byId("ask-deny") : field).focus();
  return new Promise((resolve) => {
    ask.addEventListener("close", () => resolve(ask.returnValue === "yes" ? field.value || true : null), { once: true });
  });
}
body.addEventListener("htmx:confirm", async (event) => {
  const { elt, issueRequest } = event.detail;
  if (!elt.dataset.ask) return;
  event.preventDefault();
  keep.asking = elt;
  const yes = await asked(JSON.parse(elt.dataset.ask));
  keep.asking = null;
  if (!yes && elt.matches("form")) elt.reset();
  if (yes && elt.isConnected) issueRequest(true);
  else if (yes) notice("Not sent: this control no longer exists.");
  letGo();
});
body.addEventListener("click", async (event) => {
  const button = event.target.closest("[data-edit]");
  if (!button) return;
  const text = await asked({ title: "Edit message", confirm: "Save", deny: "Cancel", input: button.dataset.edit });
  if (typeof text === "string" && text.trim()) {
    htmx.ajax("POST", "/do/edit", { source: button, swap: "none", values: { ts: button.dataset.ts, text } });
  }
});

// Commands to copy for a visitor's own agent.
byId("connect-open")?.addEventListener("click", () => byId("connect").showModal());
byId("connect")?.addEventListener("close", () => say(""));
byId("connect")?.addEventListener("click", async (event) => {
  const button = event.target.closest("[data-copy]");
  if (!button) return;
  const text = byId(button.dataset.copy);
  say("");
  try {
    await navigator.clipboard.writeText(text.textContent);
    say("Copied", button);
  } catch {
    getSelection().selectAllChildren(text); // no access to the clipboard: the reader copies the selection
    say("Selected", button);
  }
});
// Announced inside the dialog: while it is open, screen readers hear nothing outside of it.
function say(done, button) {
  byId("connect").querySelectorAll("[data-copy]").forEach((each) => { each.textContent = each === button ? done : "Copy"; });
  byId("copied").textContent = done;
}

// Enter sends, Shift+Enter breaks the line; a sent composer is emptied.
body.addEventListener("keydown", (event) => {
  if (event.key === "Enter" && !event.shiftKey && !event.isComposing && event.target.matches("[data-composer] textarea")) {
    event.preventDefault();
    event.target.form.requestSubmit();
  }
});
body.addEventListener("keydown", (event) => {
  if (event.key === "Enter" && !event.isComposing && event.target.matches("[data-sends] input")) {
    event.preventDefault();
    htmx.trigger(event.target.closest("[data-sends]"), "entered");
  }
});
body.addEventListener("htmx:afterRequest", (event) => {
  if (!event.detail.elt.matches("[data-composer]") || !event.detail.successful) return;
  event.detail.elt.reset();
  const list = event.detail.elt.closest(".pane").querySelector("[data-list]");
  list.scrollTop = list.scrollHeight;
});
body.addEventListener("change", (event) => {
  if (event.target.matches("#as")) event.target.form.requestSubmit();
});

// A menu in a message sends what is chosen: keys open it first, so that walking through it sends nothing.
body.addEventListener("keydown", (event) => {
  const list = event.target;
  if (!list.matches("select[data-at-once], #as") || event.altKey || event.ctrlKey || event.metaKey) return;
  if (!/^(Arrow(Up|Down|Left|Right)|Home|End|PageUp|PageDown|[^ ])$/.test(event.key)) return;
  event.preventDefault();
  list.showPicker();
});

// A menu closes when one has chosen from it, goes elsewhere, or presses Escape; arrows walk through it.
// It is closed, and has given the focus back, before what was chosen opens a dialog: from there it comes back.
const closeMenus = (but) => document.querySelectorAll(".menu[open]").forEach((menu) => { if (menu !== but) menu.open = false; });
body.addEventListener("click", (event) => {
  const inside = event.target.closest(".menu");
  const chosen = event.target.closest(".menu > div > :is(button, a)");
  if (chosen) inside.querySelector("summary").focus();
  closeMenus(chosen ? null : inside);
}, true);
body.addEventListener("focusin", (event) => closeMenus(event.target.closest(".menu")));
// At the end of a list a menu opens upwards: below it would be under the composer.
body.addEventListener("toggle", (event) => {
  const menu = event.target;
  if (!menu.matches(".menu[open]")) return;
  menu.classList.remove("above");
  const items = menu.querySelector(":scope > div"), button = menu.getBoundingClientRect();
  const room = (menu.closest(".list") || document.documentElement).getBoundingClientRect();
  const { bottom, height } = items.getBoundingClientRect();
  menu.classList.toggle("above", bottom > room.bottom && button.top - height > room.top);
  items.scrollIntoView({ block: "nearest" });
}, true);
body.addEventListener("keydown", (event) => {
  const menu = event.target.closest(".menu[open]");
  if (menu && event.key === "Escape") {
    menu.open = false;
    menu.querySelector("summary").focus();
  } else if (menu && /^Arrow(Up|Down)$/.test(event.key)) {
    const items = [...menu.querySelectorAll(":scope > div > :is(button, a)")];
    const step = event.key === "ArrowDown" ? 1 : -1;
    const next = items[(items.indexOf(document.activeElement) + step + items.length) % items.length];
    if (next) { event.preventDefault(); next.focus(); }
  } else if (event.key === "Escape" && body.dataset.menu) {
    toggleSide(false);
  }
});

// On a phone the channels come in from the side.
function toggleSide(open) {
  if (open) body.dataset.menu = "open"; else delete body.dataset.menu;
  byId("menu-toggle").setAttribute("aria-expanded", String(open));
  (open ? document.querySelector("#side a") : byId("menu-toggle")).focus();
}
byId("menu-toggle").addEventListener("click", () => toggleSide(!body.dataset.menu));
body.addEventListener("click", (event) => {
  if (body.dataset.menu && !event.target.closest("#side, #menu-toggle")) toggleSide(false);
});

// The panel is one stop for the Tab key; arrows go from line to line.
const linesShown = () => [...byId("traffic").querySelectorAll(".wire > summary")].filter((line) => line.checkVisibility());
function oneStop(line) {
  const stops = [...byId("traffic").querySelectorAll('.wire > summary[tabindex="0"]')];
  const wanted = line || stops.find((stop) => stop.checkVisibility()) || linesShown().at(-1);
  for (const stop of stops) if (stop !== wanted) stop.tabIndex = -1;
  if (wanted) wanted.tabIndex = 0;
}
byId("traffic").addEventListener("focusin", (event) => { if (event.target.matches(".wire > summary")) oneStop(event.target); });
byId("traffic").addEventListener("change", () => oneStop());
byId("traffic").addEventListener("keydown", (event) => {
  if (!event.target.matches(".wire > summary")) return;
  const lines = linesShown();
  const here = lines.indexOf(event.target);
  const next = { ArrowDown: here + 1, ArrowUp: here - 1, Home: 0, End: lines.length - 1 }[event.key];
  if (next === undefined) return;
  event.preventDefault();
  lines[Math.min(Math.max(next, 0), lines.length - 1)].focus();
});

// The panel: shown or hidden as last chosen where there is room for it beside the chat; whole lines on demand.
const panel = byId("traffic");
const panelShown = () => getComputedStyle(panel).display !== "none";
const beside = matchMedia("(width >= 80rem)");
const tellPanel = () => byId("traffic-toggle").setAttribute("aria-pressed", String(panelShown()));
function togglePanel(shown) {
  body.dataset.traffic = shown ? "shown" : "hidden";
  if (beside.matches) document.cookie = `traffic=${body.dataset.traffic}; path=/; max-age=31536000; samesite=strict`;
  tellPanel();
  if (!shown) return byId("traffic-toggle").focus();
  if (!beside.matches) byId("traffic-close").focus();
  htmx.trigger(body, "traffic");
  oneStop();
  settle(panel.querySelector("[data-list]"));
}
byId("traffic-toggle").addEventListener("click", () => togglePanel(!panelShown()));
byId("traffic-close").addEventListener("click", () => togglePanel(false));
beside.addEventListener("change", tellPanel);
tellPanel();
panel.addEventListener("toggle", async (event) => {
  const line = event.target.dataset.line;
  if (!line || !event.target.open) return;
  const answer = await fetch("/traffic/" + line);
  event.target.querySelector("pre").textContent = await answer.text();
}, true);

lists.forEach(settle);
oneStop();
// A link to a message leads to it, not to the end of the list; so does leaving a thread. An open one has its message shown.
const root = new URLSearchParams(location.search).get("thread");
for (const message of document.querySelectorAll(`.found, :target, [id="mc${CSS.escape(root)}"]`)) {
  const list = message.closest("[data-list]");
  if (!list) continue;
  message.scrollIntoView({ block: message.matches(".found") ? "center" : "nearest" });
  list.dataset.follow = atEnd(list);
}
showModal();

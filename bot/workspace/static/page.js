// The page's few lines of behaviour; everything else is htmx and HTML.
"use strict";

const body = document.body;

// Live updates: the feed names what changed, the parts that care fetch themselves again.
const feed = new EventSource("/feed?version=" + body.dataset.version);
let lost = false;
feed.onmessage = (event) => htmx.trigger(body, event.data);
feed.onerror = () => { lost = true; body.dataset.offline = "true"; };
feed.onopen = () => {
  delete body.dataset.offline;
  if (lost) htmx.trigger(body, "refresh");
  lost = false;
};

// Lists stay at their end while one reads there; the live region says what is new.
const atEnd = (list) => list.scrollHeight - list.scrollTop - list.clientHeight < 80;
body.addEventListener("htmx:beforeSwap", (event) => {
  const list = event.detail.target.closest("[data-list]");
  if (list) list.dataset.follow = atEnd(list);
});
body.addEventListener("htmx:afterSwap", (event) => {
  const list = event.detail.target.closest("[data-list]");
  if (list) settle(list);
  showModal();
});
function settle(list) {
  if (list.dataset.follow !== "false") list.scrollTop = list.scrollHeight;
  const latest = list.querySelector("[data-latest]");
  if (!latest) return;
  if (list.dataset.latest !== undefined && list.dataset.latest !== latest.dataset.latest) {
    document.getElementById("announcer").textContent = latest.dataset.announce;
  }
  list.dataset.latest = latest.dataset.latest;
}

// Modals are real dialogs; Escape cancels them as the button does.
function showModal() {
  const dialog = document.querySelector("#modal dialog");
  if (!dialog || dialog.open) return;
  dialog.showModal();
  const wrong = dialog.querySelector(".wrong");
  if (wrong) wrong.closest(".input").querySelector("input, select, textarea").focus();
  dialog.addEventListener("cancel", (event) => {
    event.preventDefault();
    dialog.querySelector("[data-close]").click();
  });
}

// Enter sends, Shift+Enter breaks the line; a sent composer is emptied.
body.addEventListener("keydown", (event) => {
  if (event.key === "Enter" && !event.shiftKey && event.target.matches("[data-composer] textarea")) {
    event.preventDefault();
    event.target.form.requestSubmit();
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

// A message's menu closes when one has chosen from it, goes elsewhere, or presses Escape.
const closeMenus = (but) => document.querySelectorAll(".menu[open]").forEach((menu) => { if (menu !== but) menu.open = false; });
body.addEventListener("click", (event) => {
  closeMenus(event.target.closest("summary") ? event.target.closest(".menu") : null);
});
body.addEventListener("keydown", (event) => {
  const menu = event.key === "Escape" && event.target.closest(".menu[open]");
  if (menu) { menu.open = false; menu.querySelector("summary").focus(); }
});

document.querySelectorAll("[data-list]").forEach(settle);
// A link to a message leads to it, not to the end of the list.
document.querySelectorAll(".found").forEach((message) => {
  message.closest("[data-list]").dataset.follow = "false";
  message.scrollIntoView({ block: "center" });
});
showModal();

// hx-swap="keep": lists take what is new and leave the rest alone, so that focus, open menus, half-made choices
// and the place one reads at stay. Children go by data-key; one that the server sends as before is not touched.
"use strict";

const sentAs = new WeakMap();
const keyOf = (node) => node.dataset.key || sentAs.get(node);
// What is in use stays as it is until it is let go: a card whose confirm dialog is open, an open menu of choices.
const openMenu = CSS.supports("selector(:open)") ? "select:open" : null;
const inUse = (node) => node.contains(keep.asking) || Boolean(openMenu && node.querySelector(openMenu));
const remember = (node) => { sentAs.set(node, node.outerHTML); return node; };

keep.asking = null; // the control whose confirm dialog is open
keep.late = false; // something was not drawn because it was in use
function letGo() {
  if (keep.late) htmx.trigger(document.body, "refresh");
  keep.late = false;
}
document.addEventListener("change", (event) => { if (event.target.matches("select")) letGo(); });
document.addEventListener("focusout", (event) => { if (event.target.matches("select")) letGo(); });

function keep(target, fragment) {
  const held = new Map([...target.children].map((node) => [keyOf(node), node]));
  const fresh = [];
  const wanted = [...fragment.children].map((next) => {
    remember(next);
    const had = held.get(keyOf(next));
    if (had && sentAs.get(had) === sentAs.get(next)) return had;
    if (had && inUse(had)) { keep.late = true; return had; }
    if (had) unfold(had, next);
    fresh.push(next);
    return next;
  });
  const focused = target.contains(document.activeElement) && document.activeElement !== target ? document.activeElement : null;
  const place = focused && keyOf(focused.closest("[data-key]") || focused);
  const staying = new Set(wanted);
  for (const node of [...target.childNodes]) if (!staying.has(node)) node.remove();
  wanted.forEach((node, index) => {
    if (target.children[index] !== node) target.insertBefore(node, target.children[index] || null);
  });
  if (focused && !focused.isConnected) refocus(target, focused.id, place);
  return fresh;
}

// What one folded or unfolded in a message stays so when the message is drawn anew.
function unfold(had, next) {
  const places = new Map([...next.querySelectorAll("details > summary[id]")].map((summary) => [summary.id, summary.parentElement]));
  for (const summary of had.querySelectorAll(".container > summary[id], .grid summary[id]")) {
    const place = places.get(summary.id);
    if (place) place.open = summary.parentElement.open;
  }
}

// What had the focus was replaced: its successor gets it, else the message that it was in, else the list.
function refocus(target, id, place) {
  const same = id && document.getElementById(id);
  const around = [...target.children].find((node) => keyOf(node) === place);
  (same || around || target).focus({ preventScroll: true });
}

document.querySelectorAll('[hx-swap="keep"] > *').forEach(remember);
htmx.defineExtension("keep", {
  isInlineSwap: (style) => style === "keep",
  handleSwap: (style, target, fragment) => (style === "keep" ? keep(target, fragment) : false),
});

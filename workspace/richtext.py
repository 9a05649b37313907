"""Slack's rich text as safe HTML. Pure. Its texts are shown as they stand: no marks, no emoji names, no bare addresses.

Sources: docs.slack.dev, the pages of the rich text block and of its elements.
"""

from __future__ import annotations

from markupsafe import Markup, escape

from .mrkdwn import EMOJIS, Names, date, link, mention
from .state import Json

# The outermost tag comes last.
_STYLES = (("code", "code"), ("strike", "s"), ("underline", "u"), ("italic", "em"), ("bold", "strong"))
_SWATCH = Markup(
    '<svg class="swatch" aria-hidden="true" width="10" height="10"><rect fill="{0}" width="10" height="10"/></svg> {0}'
)


def rich_html(elements: list[Json], names: Names) -> Markup:
    """Returns the elements of a rich text block that the rules accept as HTML."""
    return Markup("").join(_part(element, names) for element in elements)


def _part(element: Json, names: Names) -> Markup:
    inner = element["elements"]
    border = Markup(' data-border="1"') if element.get("border") else Markup("")
    match element["type"]:
        case "rich_text_list":
            tag = "ol" if element["style"] == "ordered" else "ul"
            start = Markup(' start="{}"').format(element["offset"] + 1) if element.get("offset") else ""
            indent = Markup(' data-indent="{}"').format(element["indent"]) if element.get("indent") else ""
            items = Markup("").join(
                Markup('<li dir="auto">{}</li>').format(_inline(item["elements"], names)) for item in inner
            )
            return Markup("<{0}{1}{2}{3}>{4}</{0}>").format(tag, start, indent, border, items)
        case "rich_text_preformatted":
            return Markup('<pre dir="auto"{}>{}</pre>').format(border, _inline(inner, names))
        case "rich_text_quote":
            return Markup('<blockquote dir="auto"{}>{}</blockquote>').format(border, _inline(inner, names))
        case _:
            return Markup('<p dir="auto">{}</p>').format(_inline(inner, names))


def _inline(elements: list[Json], names: Names) -> Markup:
    return Markup("").join(_styled(_element(each, names), each.get("style", {})) for each in elements)


def _styled(html: Markup, style: Json) -> Markup:
    for name, tag in _STYLES:
        if style.get(name):
            html = Markup("<{0}>{1}</{0}>").format(tag, html)
    return html


def _element(element: Json, names: Names) -> Markup:
    """Returns one element within a line; of an unknown person, group or channel its id."""
    kind = element["type"]
    if kind in {"user", "usergroup", "channel"}:
        known = {"user": names.users, "usergroup": names.groups, "channel": names.channels}[kind]
        name = element[f"{kind}_id"]
        shown = mention(f"{'#' if kind == 'channel' else '@'}{known.get(name, name)}")
    elif kind in {"team", "broadcast"}:
        shown = mention(f"@{element['team_id' if kind == 'team' else 'range']}")
    elif kind == "link":
        shown = link(element["url"], element.get("text") or element["url"], names)
    elif kind == "date":
        shown = date(str(element["timestamp"]), element["format"], element.get("fallback", ""), names.now)
        shown = link(element["url"], shown, names) if element.get("url") else shown
    elif kind == "color":
        shown = _SWATCH.format(element["value"])
    else:
        shown = escape(_emoji(element) if kind == "emoji" else element["text"])
    return shown


def _emoji(element: Json) -> str:
    """Returns the characters of an emoji: `unicode` holds their code points, in hex."""
    try:
        shown = "".join(chr(int(point, 16)) for point in element.get("unicode", "").split("-") if point)
    except (ValueError, OverflowError):
        shown = ""
    return shown or EMOJIS.get(element["name"], f":{element['name']}:")

"""The words of a page outside its blocks: the top-level `text`, and what goes out through senders outside Slack.

Each stands alone. Pure.
"""

from __future__ import annotations

from bot.views import consent, inert
from bot.views.pagesheet import (
    Matter,
    Sheet,
    closing_words,
    heading,
    item_words,
    left_words,
    more_words,
    state_words,
    why_words,
)
from bot.views.parts import Words
from bot.views.readout import PIECE, open_text, whole_pieces
from bot.views.rounds import default_words, round_of, sentence, words
from core.clarification import Clarification

_WHY = 1200
_OUTSIDE = 3000
_POINTER = (
    "This is only the beginning; the whole follows in the thread, or stands in that of an earlier page."
)
_IN_SLACK = "This is only the beginning; the whole is in Slack."
_BUTTONS = {
    "live": "Take it, hand it to somebody, snooze it, or say that it is not yours, with the buttons of this message.",
    "taken": "It can be handed to somebody with the button of this message.",
    "snoozed": "Take it, or hand it to somebody, with the buttons of this message.",
}


def page_text(sheet: Sheet) -> tuple[str, tuple[str, ...]]:
    """`text` (≤ 4000, escaped) and `more`, the whole in pieces (plain) where `text` holds only the beginning."""
    head = _head(sheet)
    matter = sheet.only
    if matter is None:
        return _fitted(head, [*(item_words(each) for each in sheet.matters), *_rest(sheet)])
    if (record := _waiting(sheet, matter)) is not None:
        return _question_text(sheet, matter, record, head)
    said = matter.body
    if matter.record is not None:
        said = matter.record.question
    ending = closing_words(matter) if matter.state == "closed" or _is_settled(matter) else ""
    why = why_words(matter) if matter.state != "closed" else ""
    return _fitted(head, [words(said) if said.strip() else "", why, ending, *_buttons(sheet)])


def subject(sheet: Sheet) -> str | None:
    """What the `more` of a page's text is: of an open question what its card's is too, by the card's key; else all that
    is said of the incident. None: a list of several, which is the page's own.
    """
    matter = sheet.only
    if matter is None:
        return None
    record = _waiting(sheet, matter)
    return f"card:{record.id}:{record.round}" if record is not None else f"incident:{matter.incident}"


def outside_words(sheet: Sheet) -> tuple[str, str]:
    """A title of one line and a text, both plain, for pagers, e-mail and the like."""
    matter = sheet.only
    if matter is None:
        listed = [*(item_words(each) for each in sheet.matters), *_rest(sheet)]
        body = inert.clip("\n".join(part for part in listed if part), _OUTSIDE)
    else:
        body = _matter_outside(sheet, matter)
    links = [each.link for each in sheet.matters if each.link][:1]
    return inert.clip(heading(sheet), 120), "\n".join([body or heading(sheet), *links])


def _matter_outside(sheet: Sheet, matter: Matter) -> str:
    """All to decide it; of long parts the beginning, so that none pushes another out."""
    ends = "\n".join(filter(None, (_stakes(matter), _ends(matter, sheet))))
    parts = [part for part in (_question(matter), _context(matter), why_words(matter)) if part]
    budget = _OUTSIDE - inert.size(ends) - len(parts) - 1 - inert.size(_IN_SLACK)
    rooms = inert.shares([inert.size(part) for part in parts], budget)
    shown = [inert.clip(part, room) for part, room in zip(parts, rooms, strict=True)]
    return "\n".join(filter(None, (*shown, ends, _IN_SLACK if shown != parts else "")))


def _waiting(sheet: Sheet, matter: Matter) -> Clarification | None:
    """The question that the page shows so that it can be answered."""
    record = matter.record
    shown = record is not None and record.is_open and matter.state != "closed" and not sheet.covered
    return record if shown else None


def _question_text(
    sheet: Sheet, matter: Matter, record: Clarification, head: str
) -> tuple[str, tuple[str, ...]]:
    shown = round_of(record)
    why = inert.fallback(sentence(inert.clip(why_words(matter), _WHY)), _WHY)
    asked, more = open_text(shown, _POINTER)
    left = inert.fallback(
        " ".join(sentence(each) for each in (left_words(shown.asked.expires_at, sheet.sent_at),) if each)
    )
    tail = "\n".join(filter(None, (left, *map(inert.fallback, _buttons(sheet)))))
    around = inert.size(head) + inert.size(why) + inert.size(tail) + 3
    if around + inert.size(asked) <= inert.TEXT_LIMIT:
        return "\n".join(filter(None, (head, why, asked, tail))), more
    room = inert.TEXT_LIMIT - around - inert.size(_POINTER) - 1
    cut = inert.clip_escaped(asked, room)
    return "\n".join(filter(None, (head, why, cut, _POINTER, tail))), more or tuple(whole_pieces(shown))


def _is_settled(matter: Matter) -> bool:
    return matter.record is not None and not matter.record.is_open


def _fitted(head: str, parts: list[str]) -> tuple[str, tuple[str, ...]]:
    whole = "\n".join(part for part in parts if part)
    room = inert.TEXT_LIMIT - inert.size(head) - 1
    escaped = inert.fallback(whole, 5 * inert.size(whole) + 1)
    if inert.size(escaped) <= room:
        return f"{head}\n{escaped}".strip(), ()
    cut = inert.clip_escaped(escaped, room - inert.size(_POINTER) - 1)
    more = tuple(piece for piece in inert.split_unescaped(whole, PIECE) if piece.strip())
    return f"{head}\n{cut}\n{_POINTER}", more


def _head(sheet: Sheet) -> str:
    """Heading and standing; mentions are the only live part."""
    called = [inert.mention(user) for user in sheet.mentions if inert.is_user(user)][:20]
    for_whom = f"For {', '.join(called)}." if called and not sheet.is_closed else ""
    said = " ".join(sentence(_spoken(each)) for each in state_words(sheet))
    return " ".join(filter(None, (inert.fallback(sentence(heading(sheet)), 300), for_whom, said)))


def _spoken(part: Words) -> str:
    return inert.utc_dates(part.text) if part.live else inert.fallback(part.text, 400)


def _question(matter: Matter) -> str:
    record = matter.record
    if record is None:
        return words(matter.body) if matter.body.strip() else ""
    shown = round_of(record)
    return "\n".join(filter(None, (words(shown.question), shown.numbered)))


def _context(matter: Matter) -> str:
    context = inert.plain((matter.record.asked.context or "") if matter.record is not None else "").strip()
    return f"Context: {context}" if context else ""


def _ends(matter: Matter, sheet: Sheet) -> str:
    record = matter.record
    if record is None or record.asked.expires_at is None:
        return ""
    until = f"Answer by {inert.utc(record.asked.expires_at)} ({left_words(record.asked.expires_at, sheet.sent_at)})."
    default = "" if record.asked.confirmation else default_words(record.asked, 300)
    return f"{until} {sentence(default)}" if default else until


def _stakes(matter: Matter) -> str:
    wanted = matter.record.asked.confirmation if matter.record is not None else None
    return consent.stakes_words(wanted) if wanted else ""


def _rest(sheet: Sheet) -> list[str]:
    if sheet.only is not None:
        return []
    return [*filter(None, [more_words(sheet)]), *_buttons(sheet)]


def _buttons(sheet: Sheet) -> list[str]:
    if sheet.covered or sheet.is_closed:
        return []
    return [_BUTTONS[sheet.only.state if sheet.only is not None else "live"]]

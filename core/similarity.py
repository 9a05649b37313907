"""Judges by their words whether two texts say the same, without a model. Pure.

A wrong "the same" takes a question away from its agent and pages people; a wrong "different" costs one more round. So in
doubt two texts are different. Word order and filler do not count; what changes the meaning does:

* numbers with their units, negations, opposites (enable/disable, staging/production), proper names, identifiers and
  quantifiers have to be in both texts;
* so has what follows a word that gives a direction (from, before, than, without …);
* two words that changed places (client calls server, server calls client) make a different text.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterator
from dataclasses import dataclass

THRESHOLD = 0.8  # the Jaccard index of the word sets

_LONGEST = 8000  # characters; longer texts must be equal

_WORD = re.compile(r"(?:(?<!\w)[-$€£])?[^\W_]+(?:['._:/@\\-]+[^\W_]+)*[%+#]*")
_ENDS_SENTENCE = re.compile(r"[.!?:;\n]\s*[\"'(*_`\s-]*$")
_THOUSANDS = re.compile(r"(?<=\d)[,_'](?=\d{3}(?!\d))")
_OR_NOT = re.compile(r"\bor not\b", re.IGNORECASE)
_OPENING = re.compile(
    r"\A\s*(?:(?:(?:sorry|hi|hello|again|i ask again|asking again|once (?:more|again)|quick question|following up"
    r"|just checking|please (?:confirm|clarify|advise)|(?:just )?to (?:confirm|clarify|be (?:sure|clear)))"
    r"\s*[,:;.!–—-]+\s+)+)(?=\S)",
    re.IGNORECASE,
)
_INSIDE = frozenset("._:/@\\-#+%$€£")


def _set(words: str) -> frozenset[str]:
    return frozenset(words.split())


_NEGATIONS = _set("no not never none nobody nothing neither nor without")
_DIRECTIONS = _NEGATIONS | _set(
    "from before after than over into instead under above below unless until except since"
)
_JOINING = _set("or and vs versus nor")
_FILLER = _JOINING | _set(
    "a an the this that these those please kindly could would should can may might shall will i we you me us my our"
    " your it its is are be am to of for in on at with by do does so then also just there here"
)
# Words that change the question when another word of their kind replaces them.
_SIGNIFICANT = _DIRECTIONS | _set(
    "all only both every each any some first second last next previous when where who whom whose why how"
    " did was were have been must"
    " production staging development sandbox qa test enable disable start stop add remove delete create update"
    " read write increase decrease allow deny approve reject accept decline yes public private internal external"
    " frontend backend client server minimum maximum min max old new open close off up down left right true"
    " false optional required today tomorrow yesterday upgrade downgrade source target local remote manual"
    " automatic sync async keep drop merge rebase revert install uninstall encrypt decrypt encrypted unencrypted"
    " http https monday tuesday wednesday thursday friday saturday sunday"
)
_ALIASES = {
    "which": "what",
    "prod": "production",
    "dev": "development",
    "db": "database",
    "config": "configuration",
    "repo": "repository",
    "okay": "ok",
    "has": "have",
    "had": "have",
    "used": "use",
    "using": "use",
    "uses": "use",
    "two": "2",
    "three": "3",
    "four": "4",
    "five": "5",
    "six": "6",
    "seven": "7",
    "eight": "8",
    "nine": "9",
    "ten": "10",
}
_NO_PLURAL = _set("https does versus previous unless")


@dataclass(frozen=True, slots=True)
class Saying:
    """The parts of a text that are compared.

    `order`: all its words in order; `words`: those that are not filler; `keys`: what the other text must contain (words, and
    pairs such as "from postgres"); `has`: everything that the other text's keys may need.
    """

    plain: str
    order: tuple[str, ...]
    words: frozenset[str]
    keys: frozenset[str]
    has: frozenset[str]


def read(text: str) -> Saying:
    """The parts of `text` that count."""
    plain = " ".join(text.casefold().split())
    text = unicodedata.normalize("NFKC", text[: _LONGEST + 1])  # it may become 18 times as long
    if len(text) > _LONGEST:
        return Saying(plain, (), frozenset(), frozenset(), frozenset())
    text = _THOUSANDS.sub("", text.replace("’", "'"))
    text = _OPENING.sub("", _OR_NOT.sub(" ", text), count=1)
    order: list[str] = []
    names: set[str] = set()
    for match in _WORD.finditer(text):
        words = _canonical(match.group())
        order += words
        if _is_name(match, text):
            names.update(words)
    content = frozenset(word for word in order if word not in _FILLER)
    pairs = frozenset(_pairs(order))
    keys = frozenset(word for word in content if word in names or _is_significant(word))
    return Saying(plain, tuple(order), content, keys | pairs, content | pairs)


def says_again(a: str, b: str) -> bool:
    """Whether `b` says what `a` says."""
    return are_alike(read(a), read(b))


def are_alike(a: Saying, b: Saying) -> bool:
    """`says_again` of two read texts."""
    return similarity(a, b) >= THRESHOLD


def similarity(a: Saying, b: Saying) -> float:
    """From 0 (a key differs, or nothing in common) to 1 (the same words)."""
    if a.plain == b.plain:
        return 1.0
    common = len(a.words & b.words)
    if not common or not (a.keys <= b.has and b.keys <= a.has) or _changed_places(a.order, b.order):
        return 0.0
    return common / (len(a.words) + len(b.words) - common)


def _canonical(raw: str) -> list[str]:
    word = raw.casefold()
    if "'" in word:
        for suffix in ("'s", "'ll", "'re", "'ve", "'m", "'d"):
            word = word.removesuffix(suffix)
    if word.endswith("n't") or word == "cannot":
        stem = {"ca": "can", "wo": "will", "can": "can"}.get(word[:-3], word[:-3])
        return [_ALIASES.get(stem, stem), "not"]
    if word in _ALIASES:
        return [_ALIASES[word]]
    plural = len(word) > 3 and word.isalpha() and word.endswith("s") and not word.endswith("ss")
    word = word[:-1] if plural and word not in _NO_PLURAL else word
    return [_ALIASES.get(word, word)]


def _is_name(match: re.Match[str], text: str) -> bool:
    """Whether a word has a capital inside, or begins with one inside the sentence."""
    raw = match.group()
    if raw.islower():
        return False
    if any(letter.isupper() for letter in raw[1:]):
        return True
    before = text[max(0, match.start() - 20) : match.start()]
    return raw[0].isupper() and bool(before.strip()) and not _ENDS_SENTENCE.search(before)


def _is_significant(word: str) -> bool:
    return word in _SIGNIFICANT or not (word.isalpha() or (_INSIDE.isdisjoint(word) and not _has_digit(word)))


def _has_digit(word: str) -> bool:
    return not word.isalpha() and any(letter.isdigit() for letter in word)


def _pairs(order: list[str]) -> Iterator[str]:
    """A direction with the word it points to, a number with its unit."""
    for at, word in enumerate(order):
        if word in _DIRECTIONS:
            following = next((w for w in order[at + 1 :] if w not in _FILLER), None)
        elif word[0].isdigit():
            following = next((w for w in order[at + 1 : at + 2] if w.isalpha() and w not in _FILLER), None)
        else:
            continue
        if following is not None:
            yield f"{word} {following}"


def _changed_places(a: tuple[str, ...], b: tuple[str, ...]) -> bool:
    """Whether two texts differ only in two words that changed places, other than in an enumeration."""
    if len(a) != len(b):
        return False
    differing = [at for at, (x, y) in enumerate(zip(a, b, strict=True)) if x != y]
    if len(differing) != 2:
        return False
    first, second = differing
    swapped = a[first] == b[second] and a[second] == b[first]
    between = a[first + 1 : second]
    return swapped and bool(between) and _JOINING.isdisjoint(between)

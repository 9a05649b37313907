"""Turns the Markdown that agents write into rich text for blocks, and into plain text for everything else.

A subset counts as markup: bold, italic, strike, code, headings, lists, quotes, code blocks, tables. Everything else stays
text: links, images, HTML, entities, escapes. Text without markup stays exactly as it is.

Nothing may get lost or look like something else, as people decide on what they read:

- All of the source but its markup is shown, in order; otherwise the whole text stays as it was written. The language of a
  code block is a line before it.
- A table's rows are lines: Slack shows its own tables below all other blocks, also below the buttons.
- Asterisks and underscores are markup only around words, so that globs (`*.log`) and identifiers (`__init__`) stay whole.
- Lists whose numbers would change, and lines of a diff (`+`, `-`), stay as they were written.
- Text to approve is read more strictly (`exact`).
- A text has a bar beside it, also where its lines are wrapped, so that nothing in it looks like the bot's own lines around it.
  Where only text fits, it follows the bot's own words on their line, or each of its lines has a bar.

Slack reads the text elements of rich text literally, so all of it is inert. Sources: docs.slack.dev, "Rich text block"; spec.commonmark.org; github.github.com/gfm. Pure.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import chain

from markdown_it import MarkdownIt
from markdown_it.token import Token
from markdown_it.tree import SyntaxTreeNode

from bot.views import inert
from bot.views.blockkit import SECTION, Budget, Items, Lines, Rich, RichElement, Run, Runs

_log = logging.getLogger("clarify.render")
_IN_EXACT = [
    "backticks",
    "code",
    "emphasis",
    "fence",
    "hr",
    "list",
    "table",
]  # rules stay text; `- - -` is no list
_EXACT = MarkdownIt("zero", {"maxNesting": 12}).enable(_IN_EXACT)
_PARSER = MarkdownIt("zero", {"maxNesting": 12}).enable(
    [*_IN_EXACT, "blockquote", "heading", "strikethrough"]
)
# What every markup contains something of; most texts contain nothing.
_MARKUP = re.compile(
    r"[*_`]|~~|^[ \t]*(?:#|>|-[ \t]|\d+[.)][ \t])|^(?: {4}|\t)|^[ \t|]*:?-+:?[ \t]*\||\]\(https?:",
    re.MULTILINE,
)
_MARK = re.compile(r"[*_`~|>#]|^[ \t]*(?:-|\d+[.)])", re.MULTILINE)
_LONGEST, _MOST_LINES = 20_000, 400  # anything longer takes too long to parse
_MOST_MARKS = 700  # each may begin a run, and a section takes 1,000 of those; links make more
_MOST_PIPES = 60  # of a line: cells that a row leaves out are filled up
_ISOLATED = re.compile("([ \t]*)[\u2067\u2068]([^\u2066-\u2069]*)\u2069([ \t]*)")
_RLI, _PDI = "\u2067", "\u2069"
_LABELLED = re.compile(r"(?<!!)\[([^\[\]\n]+)\]\((https?://[^\s()<>]+)\)")
GAP = re.compile(r"… [\d,]+ more characters?(?:, [\d,]+ more lines?)? …")  # as `inert.excerpt` writes it
_GAP = re.compile(rf"\n({GAP.pattern})\n")
_FENCE = re.compile(r"^[ \t]*(?:```|~~~)", re.MULTILINE)
_LANGUAGE = re.compile(r"[A-Za-z0-9+#.-]{0,20}")
# What stands directly before and after emphasis that is not around words.
_BEFORE = re.compile(r"[A-Za-z0-9_*./\\~$-]\Z")
_AFTER = re.compile(r"[A-Za-z0-9_*/\\~]|[^\w\s][A-Za-z0-9_*/]")
_WORD = re.compile(r"\w")
_OF_MARKUP = dict.fromkeys(map(ord, "*_~`#>-|:.)[]\u2066\u2067\u2068\u2069"))
_STYLES: dict[str, str] = {"strong": "bold", "em": "italic", "s": "strike"}
# Of a table, and characters of a cell. More is easier to read as it was written.
_COLUMNS, _ROWS, _CELL = 20, 100, 1000
_DEEPEST = 8  # level of a nested list
_MOST_OFFSET = 9_999
_CUT = "…"  # where `inert` has cut a text
_SHORT = 500  # of a text on one line
_EMPTY = " "  # Slack refuses an empty text


@dataclass(frozen=True, slots=True)
class Quote:
    """An agent's text, or the beginning of one, after the bot's own `label`, such as `Action: `.

    As parts of a message it has a bar beside it, and is formatted if it has markup. Where only text fits, it stands after its
    label or in quotation marks if it is a short line, else with a bar before each line.

    `is_data`: nothing in it is markup. `exact`: signs that may be part of a command stay: for text to approve.
    """

    text: str
    label: str = ""
    is_data: bool = False
    exact: bool = False

    @property
    def whole(self) -> str:
        """The label and the text; empty without a text."""
        return f"{self.label}{self.text}" if self.text else ""

    @property
    def parts(self) -> tuple[Rich, ...]:
        """The parts of a message that show it; none if it is blank."""
        if not self.text:
            return ()
        elements, words, is_line = self._as_data() if self.is_data else self._as_markdown()
        if is_line and not self.label and "\n" not in words and inert.size(words) <= _SHORT:
            aloud = inert.quoted(words)
        else:
            aloud = _labelled(self.label, words)
        found = rich_parts(_barred(self.label, elements, is_beside="\n" not in self.whole))
        return tuple(replace(part, aloud="" if n else aloud) for n, part in enumerate(found))

    @property
    def plain(self) -> str:
        """The text without markup."""
        return plain(self.text, exact=self.exact)

    @property
    def aloud(self) -> str:
        """What is read where only text fits. It cannot be taken for the bot's own words."""
        return "".join(part.aloud for part in self.parts)

    def shortened(self, whole: str) -> Quote:
        """Returns this with `whole`, an excerpt of its label and text, in their place."""
        text = whole.removeprefix(self.label)
        return replace(self, text=text, label=self.label if text != whole else "")

    def _as_data(self) -> tuple[list[RichElement], str, bool]:
        words = inert.plain(self.text)
        return [Lines((Run(words or _EMPTY),))], words, False

    def _as_markdown(self) -> tuple[list[RichElement], str, bool]:
        """Returns its elements, their text without markup, and that a short text stands in quotation marks."""
        text, exact = self.text, self.exact
        if (gap := _GAP.search(text)) is not None:
            head = _elements(text[: gap.start()], exact, is_cut=True)
            tail = text[gap.end() :]
            rest = _elements(tail, exact, is_prose=len(_FENCE.findall(tail)) % 2 == 0)
            elements = [*head, Lines((Run(gap[1]),)), *rest]
        else:
            is_cut = text.endswith(_CUT)
            elements = _elements(text.removesuffix(_CUT), exact, is_cut=is_cut)
            elements += [Lines((Run(_CUT),))] if is_cut else []
        words = _words(elements, rtl=_RLI in text)
        if words.endswith(f"\n{_CUT}"):
            space = " " if text.endswith(f" {_CUT}") else ""
            words = f"{words.removesuffix(_CUT).rstrip()}{space}{_CUT}"
        return elements, words, True


def fit(budget: Budget, quotes: Sequence[Quote], *, at_length: Collection[int] = ()) -> list[Quote]:
    """Returns each quote or, if it is too long, its beginning and its end, where it often says what to decide. Each gets what it
    needs, up to a fair share of the room. `at_length`: the positions of those that may take any number of rows.
    """
    texts = [each.whole for each in quotes]
    rows = [inert.NO_LIMIT if n in at_length else budget.rows for n in range(len(texts))]
    shown = [inert.excerpt(text, rows=most) for text, most in zip(texts, rows, strict=True)]
    budget.left -= sum(map(_growth, shown))
    room = inert.shares(list(map(inert.size, shown)), max(budget.left, 10 * len(texts)))
    for n, text in enumerate(texts):
        if inert.size(shown[n]) > room[n]:
            shown[n] = inert.excerpt(text, room[n], rows[n])
    budget.cut |= shown != texts
    budget.spend(*shown)
    return [each.shortened(text) for each, text in zip(quotes, shown, strict=True)]


def _labelled(label: str, words: str) -> str:
    """Returns text after its label if it is a short line, else with a bar before each line."""
    if label and "\n" not in f"{label}{words}" and inert.size(words) <= _SHORT:
        return f"{label}{words}"
    return "\n".join(filter(None, (label.rstrip(), inert.with_bar(words))))


def _words(elements: Iterable[_Element], *, rtl: bool) -> str:
    """Returns the text of elements without markup."""
    return "\n".join(inert.isolate(line, rtl=rtl) for line in _plainly(elements)).strip("\n")


def _elements(
    text: str,
    exact: bool,  # noqa: FBT001 - as `_read`
    *,
    is_cut: bool = False,
    is_prose: bool = True,
) -> list[RichElement]:
    """Returns a text in elements. `is_prose`: False if it begins within code."""
    body, torn = _torn(text) if is_cut else (text, "")
    read = _read(body, exact) if is_prose else None
    if read is None:
        return [Lines((Run(inert.plain(text) or _EMPTY),))]
    return [*read, *([Lines((Run(inert.plain(torn)),))] if torn else [])]


def rich_parts(elements: Iterable[RichElement]) -> tuple[Rich, ...]:
    """Returns the elements as parts of a message or view, as many as they need."""
    found: list[Rich] = []
    room = 0
    for each in chain.from_iterable(map(_pieces, elements)):
        size = _size(each)
        if size <= room:
            found[-1] = Rich((*found[-1].elements, each))
        else:
            found.append(Rich((each,)))
            room = SECTION
        room -= size
    return tuple(each for each in found if any(run.text.strip() for run in each.runs))


def _size(element: RichElement) -> int:
    return sum(inert.size(run.text) for run in element.runs)


def _pieces(element: RichElement) -> Iterator[RichElement]:
    """Yields a long element in pieces: the reference names no limit for rich text, so a block has what a section takes."""
    if _size(element) <= SECTION:
        yield element
    elif isinstance(element, Items):
        for number, item in enumerate(element.items):
            yield replace(element, items=(item,), offset=element.offset + number)
    else:
        runs: list[Run] = []
        room = SECTION
        for run in element.runs:
            for text in inert.split(run.text, SECTION):
                if inert.size(text) > room:
                    yield replace(element, runs=tuple(runs))
                    runs, room = [], SECTION
                runs.append(replace(run, text=text))
                room -= inert.size(text)
        yield replace(element, runs=tuple(runs))


def _barred(label: str, elements: Iterable[RichElement], *, is_beside: bool) -> Iterator[RichElement]:
    """Yields the elements with a bar beside them, after the bot's own words: within the bar with a text of one line, as
    `is_beside` says, else above it, so that no line below looks like them.
    """
    for each in elements:
        if isinstance(each, Lines) and each.kind == "section":
            beside, label = (label, "") if is_beside else ("", label)
            yield from _above(label)
            yield replace(each, kind="quote", runs=_after(beside, each.runs))
        else:
            yield from _above(label)
            yield replace(each, has_bar=True)
        label = ""


def _after(label: str, runs: Runs) -> Runs:
    first, *rest = runs
    if not label or first.styles:
        return (Run(label), *runs) if label else runs
    return (replace(first, text=f"{label}{first.text}"), *rest)


def _above(label: str) -> Iterator[Lines]:
    if label:
        yield Lines((Run(label.rstrip()),))


def _torn(text: str) -> tuple[str, str]:
    """Returns a cut text, and the beginning of a table or of code at its end, as text: alone it would be no markup."""
    *before, last = text.split("\n")
    if before and last.lstrip().startswith(("```", "~~~")):
        return "\n".join(before), last
    rows: list[str] = []
    while before and last.startswith("|"):
        rows.append(last)
        last = before.pop()
    if not 0 < len(rows) <= 2 or last.startswith("|"):
        return text, ""
    return "\n".join((*before, last)), "\n".join(
        " · ".join(row.strip("| ").split("|")) for row in reversed(rows) if row.strip("|:- ")
    )


def plain(text: str, *, exact: bool = False) -> str:
    """Returns an agent's text without markup, inert. `exact` as in `Quote`."""
    read = _read(text, exact)
    return _words(read, rtl=_RLI in text) if read is not None else inert.plain(text)


def _growth(text: str) -> int:
    """Returns how much longer a text may become without its markup."""
    return max(0, inert.size(plain(text)) - inert.size(text))


@dataclass(frozen=True, slots=True)
class _MarkdownTable:
    """A table as read: the cells of its rows, the first of which is its header."""

    rows: tuple[tuple[Runs, ...], ...]


_Element = RichElement | _MarkdownTable


@lru_cache(maxsize=64)  # the card and its fallback text ask for the same
def _read(text: str, exact: bool) -> tuple[RichElement, ...] | None:  # noqa: FBT001 - cached by position
    """Returns a text with markup in elements, or None if it has none or could not be shown whole."""
    if len(text) > _LONGEST or not _MARKUP.search(text) or len(_MARK.findall(text)) > _MOST_MARKS:
        return None
    lines = text.split("\n")
    if len(lines) > _MOST_LINES or any(line.count("|") > _MOST_PIPES for line in lines):
        return None
    text = inert.cleaned(text)
    source = "\n".join(_without_isolate(line) for line in text.split("\n"))
    reader = _MarkdownReader(source, exact=exact, rtl=_RLI in text)
    try:
        read = reader.elements()
    except Exception:  # noqa: BLE001 - everything that shows this text would fail, and people could not answer
        _log.exception("cannot read Markdown; showing it as it is")
        return None
    if not reader.has_links and not any(map(_is_marked, read)):
        return None
    solid = _solid(source)
    if not solid or _solid("\n".join(_plainly(read, whole=True))) != solid:
        return None
    return _joined(_as_lines(each) if isinstance(each, _MarkdownTable) else each for each in read)


def _without_isolate(line: str) -> str:
    found = _ISOLATED.fullmatch(line)
    return "".join(found.groups()) if found else line


def _is_marked(element: _Element) -> bool:
    return (
        not isinstance(element, Lines) or element.kind != "section" or any(run.styles for run in element.runs)
    )


def _solid(text: str) -> str:
    """Returns what a text must not lose: all but blanks and characters that markup is made of."""
    return "".join(text.translate(_OF_MARKUP).split())


@dataclass
class _MarkdownReader:
    """Reads one text. `rtl`: its event says that it reads from right to left."""

    source: str
    exact: bool
    rtl: bool

    def __post_init__(self) -> None:
        self._lines = self.source.split("\n")
        self.has_links = False

    def elements(self) -> list[_Element]:
        tokens = (_EXACT if self.exact else _PARSER).parse(self.source)
        for token in tokens:  # kept out of the tree: styles may be nested deeper than calls
            if token.type == "inline":
                token.meta, token.children = {"words": token.children}, None
        root = SyntaxTreeNode(tokens)
        # Lines of a diff look like lists.
        self._is_diff = any(node.type == "bullet_list" and node.markup == "+" for node in root.walk())
        return list(self._blocks(root.children))

    def _blocks(self, nodes: Iterable[SyntaxTreeNode], level: int = 0) -> Iterator[_Element]:
        end = 0
        for node in nodes:
            start = node.map[0] if node.map else end
            is_apart = start > end > 0  # by a blank line
            end = node.map[1] if node.map else end
            match node.type:
                case "paragraph" | "heading":
                    runs = self._runs(node.children[0], bold=node.type == "heading")
                    yield Lines(runs or (Run(_EMPTY),), is_apart=is_apart)
                case "fence" | "code_block" if _LANGUAGE.fullmatch(language := node.info.strip()):
                    if language:
                        yield Lines((Run(language),), is_apart=is_apart)
                    code = inert.isolate(node.content.rstrip("\n"), rtl=self.rtl) or _EMPTY
                    yield Lines((Run(code),), "preformatted", is_apart=is_apart and not language)
                case "blockquote":
                    said = "\n".join(_plainly(self._blocks(node.children))).strip("\n")
                    yield Lines(self._isolated((Run(said or _EMPTY),)), "quote", is_apart=is_apart)
                case "bullet_list" | "ordered_list" if self._is_kept(node):
                    yield from self._list(node, min(level, _DEEPEST))
                case "table" if (table := self._table(node)) is not None:
                    yield table
                case _:
                    yield Lines(self._isolated((Run(self._written(node)),)), is_apart=is_apart)

    def _written(self, node: SyntaxTreeNode) -> str:
        """Returns the lines of a block as they were written."""
        start, end = node.map or (0, 0)
        return "\n".join(self._lines[start:end]).strip("\n") or _EMPTY

    def _is_kept(self, node: SyntaxTreeNode) -> bool:
        """Returns whether a list of Slack shows the same: it numbers its items itself."""
        if not all(item.children for item in node.children):
            return False
        if self.exact and (len(node.children) == 1 or node.markup == ")"):  # `- 5`
            return False
        if node.type == "bullet_list":
            return not self._is_diff or node.markup == "*"
        numbers = [int(item.info) for item in node.children]
        return (
            numbers == list(range(numbers[0], numbers[0] + len(numbers))) and 0 < numbers[0] <= _MOST_OFFSET
        )

    def _list(self, node: SyntaxTreeNode, level: int) -> Iterator[_Element]:
        """Yields the items; what cannot be in an item follows it, and the list goes on after that."""
        ordered = node.type == "ordered_list"
        first = int(node.children[0].info) - 1 if ordered else 0
        items: list[Runs] = []
        offset = first
        for number, item in enumerate(node.children):
            runs: list[Run] = []
            rest: list[SyntaxTreeNode] = list(item.children)
            while rest and rest[0].type in ("paragraph", "heading"):
                runs += [Run("\n")] if runs else []
                runs += self._runs(rest[0].children[0], bold=rest[0].type == "heading")
                del rest[0]
            items.append(tuple(runs) or (Run(_EMPTY),))
            if rest:
                yield Items(tuple(items), ordered, offset, level)
                yield from self._blocks(rest, level + 1)
                items, offset = [], first + number + 1
        if items:
            yield Items(tuple(items), ordered, offset, level)

    def _table(self, node: SyntaxTreeNode) -> _MarkdownTable | None:
        """Returns a table, or None if it is too large or would lose cells."""
        rows = [
            tuple(
                self._runs(cell.children[0], bold=cell.type == "th") or (Run(_EMPTY),)
                for cell in row.children
            )
            for part in node.children
            for row in part.children
        ]
        said = "".join(_said(cell) for row in rows for cell in row)
        fits = len(rows) <= _ROWS and len(rows[0]) <= _COLUMNS
        fits = fits and all(inert.size(_said(cell)) <= _CELL for row in rows for cell in row)
        return _MarkdownTable(tuple(rows)) if fits and _solid(said) == _solid(self._written(node)) else None

    def _runs(self, node: SyntaxTreeNode, *, bold: bool = False) -> Runs:
        """Returns a paragraph's text with its styles; `bold`: all of it."""
        tokens = self._words(node.meta["words"] or [])
        held: list[str] = ["bold"] if bold else []
        runs: list[Run] = []
        for token in tokens:
            kind = token.type.removesuffix("_open").removesuffix("_close")
            if token.nesting > 0:
                held.append(_STYLES[kind])
            elif token.nesting < 0:
                held.remove(_STYLES[kind])
            elif token.content:
                text = token.content if kind == "code_inline" else self._unlabelled(token.content)
                styles = frozenset((*held, "code") if kind == "code_inline" else held)
                if runs and runs[-1].styles == styles:
                    text = runs.pop().text + text
                runs.append(Run(text, styles))
        return self._isolated(tuple(runs))

    def _unlabelled(self, text: str) -> str:
        """Returns the text with the addresses of links behind their labels."""
        text, count = _LABELLED.subn(r"\1 (\2)", text)
        self.has_links = self.has_links or count > 0
        return text

    def _words(self, tokens: list[Token]) -> list[Token]:
        """Returns the tokens, with emphasis that is not around words as text."""
        found = [token.copy() for token in tokens]
        opened: list[int] = []
        for at, token in enumerate(found):
            if token.nesting > 0:
                opened.append(at)
            elif token.nesting < 0 and not self._is_emphasis(found, start := opened.pop(), at):
                for each in (found[start], token):
                    each.type, each.nesting, each.content = "text", 0, each.markup
        return found

    def _is_emphasis(self, tokens: Sequence[Token], start: int, end: int) -> bool:
        markup = tokens[start].markup
        before = tokens[start - 1].content if start else ""
        after = tokens[end + 1].content if end + 1 < len(tokens) else ""
        within = "".join(token.content for token in tokens[start + 1 : end])
        if _BEFORE.search(before) or _AFTER.match(after):
            return False
        if markup in ("*", "_"):
            is_word = _WORD.match(within) and _WORD.match(within[-1:]) and markup not in within
            return not self.exact and bool(is_word)
        return markup != "__" or " " in within

    def _isolated(self, runs: Runs) -> Runs:
        """Returns the runs with each right-to-left line in one isolate, whatever its styles."""
        if not self.rtl and all(run.text.isascii() for run in runs):
            return runs
        made: list[Run] = []
        for line in _by_line(runs):
            said = "".join(run.text for run in line)
            made += [Run("\n")] if made else []
            made += line
            if (shown := inert.isolate(said, rtl=self.rtl)) != said:
                first = len(made) - len(line)
                made[first] = replace(made[first], text=shown.lstrip()[0] + made[first].text)
                made[-1] = replace(made[-1], text=made[-1].text + _PDI)
        return tuple(made)


def _by_line(runs: Runs) -> Iterator[list[Run]]:
    line: list[Run] = []
    for run in runs:
        first, *rest = run.text.split("\n")
        line += [replace(run, text=first)] if first else []
        for text in rest:
            yield line
            line = [replace(run, text=text)] if text else []
    yield line


def _joined(elements: Iterable[RichElement]) -> tuple[RichElement, ...]:
    """Returns the elements with paragraphs that follow each other as one, apart by a blank line if they were."""
    made: list[RichElement] = []
    for each in elements:
        last = made[-1] if made else None
        if isinstance(each, Lines) and isinstance(last, Lines) and each.kind == last.kind == "section":
            made[-1] = replace(last, runs=(*last.runs, Run("\n\n" if each.is_apart else "\n"), *each.runs))
        else:
            made.append(each)
    return tuple(made)


def _plainly(elements: Iterable[_Element], *, whole: bool = False) -> Iterator[str]:
    """Yields the lines of a text without markup. `whole`: just what it shows."""
    for each in elements:
        match each:
            case _MarkdownTable():
                rows = [[_said(cell) for cell in row] for row in each.rows]
                yield from chain.from_iterable(rows) if whole else _table_lines(rows)
            case Items():
                for number, item in enumerate(each.items, each.offset + 1):
                    indent = "  " * each.level
                    mark = f"{number}. " if each.ordered else "" if whole else "• "
                    yield f"{indent}{mark}{_said(item)}".replace("\n", f"\n{indent}  ")
            case Lines():
                if each.is_apart:
                    yield ""
                said = _said(each.runs)
                yield f"> {said}".replace("\n", "\n> ") if each.kind == "quote" else said


def _as_lines(table: _MarkdownTable) -> Lines:
    return Lines((Run("\n".join(_plainly([table])) or _EMPTY),))


def _table_lines(rows: Sequence[Sequence[str]]) -> list[str]:
    """Returns a table, its header first, as lines of text that name the columns: `Region: eu-west · Cost: 3`. The header is a
    line of its own if repeating it would double the text, or if a column has no values.
    """
    head, *rest = ([cell.strip() for cell in row] for row in rows)
    named = [
        " · ".join(f"{name}: {cell}" if name else cell for name, cell in zip(head, row, strict=True) if cell)
        for row in rest
    ]
    bare = [" · ".join(filter(None, row)) for row in (head, *rest)]
    is_complete = all(map(any, zip(*rest, strict=True)))
    return named if rest and is_complete and sum(map(len, named)) <= 2 * sum(map(len, bare)) else bare


def _said(runs: Runs) -> str:
    """Returns the text of runs. What is struck out or code stays marked, as that changes what it means."""
    return "".join(_marked(run) for run in runs)


def _marked(run: Run) -> str:
    text = f"`{run.text}`" if "code" in run.styles else run.text
    return f"~~{text}~~" if "strike" in run.styles else text

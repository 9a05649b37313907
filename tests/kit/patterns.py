"""Finds the regular expressions in the code, and texts that are slow to match if anything is."""

from __future__ import annotations

import ast
import builtins
import re
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from importlib import import_module
from itertools import product
from pathlib import Path
from time import thread_time
from typing import Any

import regex

ROOT = Path(__file__).parents[2]
SIZES = (18, 24, 30, 40, 60, 100, 200, 600, 2000)  # small ones first: exponential time must not be waited for
LARGE = 32_000
_PARSER: Any = import_module("re._parser")  # whether mypy knows it depends on what it looks at before
_SUSPECTS = 6  # texts of which large ones are tried
_SCANNING = {"search", "sub", "subn", "split", "findall", "finditer", "given"}
_METHODS = _SCANNING | {"match", "fullmatch"}
_FLAGS = {
    "sub": 4,
    "subn": 4,
    "split": 3,
}  # the flags' place among the arguments; 2 elsewhere, 1 of `compile`


@dataclass(frozen=True)
class Pattern:
    """A regular expression of the code. `name`: its file, and the constant that it is. `methods`: how it is used; "given":
    handed to something else.
    """

    name: str
    line: int
    compiled: Any
    methods: frozenset[str]

    def runs(self) -> Iterator[Callable[[Any], object]]:
        """Yields what the code does with it."""
        if self.methods & _SCANNING:
            yield self.compiled.findall
        if "match" in self.methods:
            yield self.compiled.match
        if self.methods & {"fullmatch", "given"}:
            yield self.compiled.fullmatch


def in_code() -> tuple[list[Pattern], list[str]]:
    """Returns all patterns, and the names of those that are known only when the code runs, each with its file."""
    found: list[Pattern] = []
    computed: list[str] = []
    trees = {path: list(ast.walk(ast.parse(path.read_text()))) for path in _files()}
    uses = {path: _uses(nodes) for path, nodes in trees.items()}
    public = defaultdict[str, set[str]](set)
    for each in uses.values():
        for name, methods in each.items():
            public[name] |= methods
    for path, nodes in trees.items():
        file = str(path.relative_to(ROOT))
        if path.stem == "__main__":  # importing it runs it
            continue
        module = vars(import_module(".".join(path.relative_to(ROOT).with_suffix("").parts)))
        private, names = uses[path], _names(nodes)
        for call in nodes:
            match call:
                case ast.Call(ast.Attribute(ast.Name("re" | "regex" as library), method)) if (
                    method in _METHODS or method == "compile"
                ):
                    at = 1 if method == "compile" else _FLAGS.get(method, 2)
                    flags = [*call.args[at:], *(each.value for each in call.keywords if each.arg == "flags")]
                    compile_ = (re if library == "re" else regex).compile
                    name = names.get(call, "")
                    used = (private if name[:1] == "_" else public)[name] if method == "compile" else {method}
                    used = used or {
                        each.attr for each in nodes if isinstance(each, ast.Attribute) and each.value is call
                    }
                    sources = _sources(call.args[0], nodes, module)
                    if not sources:
                        computed.append(f"{file}: {ast.unparse(call.args[0])}")
                    for source in sources:
                        compiled: Any = compile_(*(_value(one, module) for one in (source, *flags)))
                        found.append(
                            Pattern(f"{file} {name}", source.lineno, compiled, frozenset(used or {"given"}))
                        )
                case ast.Call(ast.Attribute(ast.Name("re" | "regex"), method)):
                    assert method == "escape", f"{file}:{call.lineno}: what does {method} do?"
    return found, computed


def _files() -> list[Path]:
    return sorted([*ROOT.glob("bot/**/*.py"), *ROOT.glob("core/**/*.py"), ROOT / "clarify.py"])


def _names(nodes: list[ast.AST]) -> dict[ast.expr, str]:
    """Returns the name of each expression that is assigned to one."""
    found: dict[ast.expr, str] = {}
    for node in nodes:
        match node:
            case ast.Assign([ast.Name(name)], value):
                found[value] = name
            case ast.Assign([ast.Tuple(targets)], ast.Tuple(values)):
                found |= {v: t.id for t, v in zip(targets, values, strict=False) if isinstance(t, ast.Name)}
    return found


def _uses(nodes: list[ast.AST]) -> dict[str, set[str]]:
    """Returns how each name is used."""
    found = defaultdict[str, set[str]](set)
    called: set[ast.expr] = set()
    for node in nodes:
        match node:
            case ast.Attribute(ast.Name(name) | ast.Attribute(_, name) as value, method) if (
                method in _METHODS
            ):
                found[name].add(method)
                called.add(value)
    for node in nodes:
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load) and node not in called:
            found[node.id].add("given")
    return found


def _sources(expression: ast.expr, nodes: list[ast.AST], module: dict[str, Any]) -> list[ast.expr]:
    """Returns the expressions of a pattern: of a local name, those assigned to it; of a parameter, those that are passed."""
    if not isinstance(expression, ast.Name) or expression.id in module:
        return [expression]
    found: list[ast.expr] = []
    for function in nodes:
        if not isinstance(function, ast.FunctionDef) or expression not in (
            inside := list(ast.walk(function))
        ):
            continue
        for node in inside:
            match node:
                case ast.Assign([ast.Name(name)], value) if name == expression.id:
                    found.append(value)
        names = [each.arg for each in function.args.args]
        for node in nodes if expression.id in names else ():
            match node:
                case ast.Call(ast.Name(called), arguments) if called == function.name:
                    found.append(arguments[names.index(expression.id)])
    return found


class _Sample(str):
    """Stands for a value that is known only when the code runs."""

    __slots__ = ()

    def __getattr__(self, _: str) -> _Sample:
        return self

    def __index__(self) -> int:
        return 7


class _Names(dict[str, Any]):
    def __init__(self, known: Mapping[str, Any]) -> None:
        super().__init__()
        self._known = known

    def __missing__(self, name: str) -> Any:
        if name in self._known or hasattr(builtins, name):
            raise KeyError(name)
        return _Sample("U7")


def _value(expression: ast.expr, module: dict[str, Any]) -> Any:
    return eval(compile(ast.Expression(expression), "pattern", "eval"), module, _Names(module))  # noqa: S307 - our code


# Texts that are slow to match

_SOME = "aZ5 \t\n-_.:\x00é"
_ODD = (
    "\r",
    "A",
    "1",
    "*",
    "<",
    "|",
    "\u200d",
    "\ufe0f",
    "👍",
    "🏽",
    "\u20e3",
    "e\u0301",
    "\u200b",
    "ا",
    "🇩",
    "ᄀ",
)
_ENDS = ("", "\x00", "\n\x00")
_FITS: dict[str, Callable[[str], bool]] = {
    "DIGIT": str.isdigit,
    "SPACE": str.isspace,
    "WORD": lambda each: each.isalnum() or each == "_",
}


class _Shape:
    """What a pattern is made of. `characters`: some of each class; `parts`: texts that its parts match; `beginnings`: those
    that stand before its repetitions. The parser of `re` gives the structure.
    """

    def __init__(self, pattern: str, flags: int) -> None:
        self.characters: dict[str, None] = {}
        self.parts: dict[str, None] = {}
        self.beginnings: dict[str, None] = {"": None}
        whole = self._text(_PARSER.parse(pattern, flags), "")
        self.parts |= dict.fromkeys(
            [whole, whole[:-1], *(whole[:end] for end in range(1, min(len(whole), 24)))]
        )

    def _text(self, nodes: Any, before: str) -> str:
        """Returns a short text that these nodes match."""
        text = ""
        for kind, value in nodes:
            text += self._piece(str(kind), value, before + text)
        return text

    def _piece(self, kind: str, value: Any, before: str) -> str:
        text = ""
        match kind:
            case "LITERAL" | "NOT_LITERAL" | "ANY" | "IN":
                characters = _characters(kind, value)
                self.characters |= dict.fromkeys(characters)
                text = characters[0]
            case "MAX_REPEAT" | "MIN_REPEAT" | "POSSESSIVE_REPEAT":
                least, _, repeated = value
                self.beginnings[before] = None
                once = self._text(repeated, before)
                self.parts |= dict.fromkeys([once, before[-3:] + once])
                text = once * max(least, 1)
            case "BRANCH":
                ways = [self._text(each, before) for each in value[1]]
                self.parts |= dict.fromkeys(ways)
                text = ways[0]
            case "ASSERT" | "ASSERT_NOT":
                self.parts[self._text(value[1], before)] = None
            case "SUBPATTERN":
                text = self._text(value[-1], before)
            case "ATOMIC_GROUP":
                text = self._text(value, before)
        return text


def _characters(kind: str, value: Any) -> list[str]:
    """Returns some characters of a class, then some that end a run of it."""
    if kind == "LITERAL":
        return [chr(value)]
    if kind != "IN":
        return ["a", "\n" if kind == "ANY" else chr(value)]
    listed: list[tuple[int, int]] = []
    for op, each in value:
        match str(op):
            case "LITERAL":
                listed.append((each, each))
            case "RANGE":
                listed.append(each)
            case "CATEGORY":
                *_, is_not, name = f"_{each}".split("_")
                fitting = (some for some in _SOME if _FITS[name](some) != (is_not == "NOT"))
                listed += [(ord(some), ord(some)) for some in fitting]
    ends = [chr(least) for least, _ in listed]
    if str(value[0][0]) != "NEGATE":
        return ends
    return [some for some in _SOME if not any(least <= ord(some) <= most for least, most in listed)] + ends


def hostile(pattern: Any) -> Iterator[Callable[[int], Any]]:
    """Yields functions from a size to a text: repetitions, after a beginning, with an end that does not match."""
    source = pattern.pattern
    as_bytes = isinstance(source, bytes)
    try:
        shape = _Shape(
            source.decode("latin-1") if as_bytes else source, 0 if as_bytes else pattern.flags & ~32
        )
        characters, parts, beginnings = list(shape.characters), list(shape.parts), list(shape.beginnings)
    except re.error:  # one of the library `regex`
        characters, parts, beginnings = [*_SOME, *_ODD], [], [""]
    few = characters if len(characters) <= 12 else [*characters[:8], *characters[-4:]]
    singles = dict.fromkeys(filter(None, [*characters[:40], *parts, *" \n\ta1"]))
    pairs = dict.fromkeys(map("".join, product(few, repeat=2)))
    shapes = [*product([""], [*singles, *pairs], _ENDS), *product(beginnings[1:10], singles, _ENDS[:2])]
    for begin, repeated, end in shapes:

        def made(size: int, begin: str = begin, repeated: str = repeated, end: str = end) -> Any:
            text = begin + repeated * (size // len(repeated)) + end
            return text.encode("latin-1", "replace") if as_bytes else text

        yield made


def seconds(run: Callable[[Any], object], text: Any) -> float:
    """Returns the computing time."""
    began = thread_time()
    run(text)
    return thread_time() - began


def what_slows(
    run: Callable[[Any], object], texts: Iterable[Callable[[int], Any]], longest: int = LARGE
) -> str | None:
    """Returns a text of up to `longest` that takes more than linear time, shortened, and how long; None: no text does.

    Linear patterns take a few milliseconds for the largest texts, quadratic ones hundreds; so only large ones are judged by
    the time they take, and only by the shortest of several.
    """
    sizes = [*(each for each in SIZES if each < longest), longest // 4, longest]
    measured: list[tuple[float, Callable[[int], Any]]] = []
    for made in texts:
        taken = 0.0
        for size in sizes[:-2]:
            taken = seconds(run, made(size))
            if taken > 0.005:
                break
        measured.append((taken, made))
        if sum(each > 0.005 for each, _ in measured) == _SUSPECTS:
            break
    for _, made in sorted(measured, key=lambda each: -each[0])[:_SUSPECTS]:
        quick = 0.0
        for size in sizes:
            taken = seconds(run, made(size))
            if taken > 0.1:  # the shorter of two: what else the machine does makes single ones longer
                taken = min(taken, seconds(run, made(size)))
            if taken > 0.1 and (size < LARGE or taken > 8 * quick):
                return f"{made(24)!r}, {size} characters long: {taken:.2f} s"
            quick = taken
    return None

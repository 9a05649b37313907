"""The snippets of README and docs/, and how each is run."""

from __future__ import annotations

import re
import shlex
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from tests.docs.references import ROOT, pages

_BLOCK = re.compile(
    r"(?:^ *<!-- (?P<said>[^\n]*?) -->\n)?^(?P<indent> *)```(?P<kind>\S*)\n(?P<text>.*?)^(?P=indent)```$",
    re.MULTILINE | re.DOTALL,
)
_NOT_RUN = re.compile(r"not run: .{5,}")
ELSEWHERE = {"try-command", "test-command"}  # .ci/run reads these from the README
ASKS, BOLT, SHELL, AUDIT, VERIFIES, TYPESCRIPT = "asks", "bolt", "shell", "audit", "verifies", "typescript"
_FILE = "example: "  # before the name of a file of the example integration


@dataclass(frozen=True)
class Snippet:
    page: Path
    line: int
    kind: str
    text: str
    said: str  # in the comment above it

    def __str__(self) -> str:
        return f"{self.page.relative_to(ROOT)}:{self.line}"

    @property
    def is_skipped(self) -> bool:
        """Whether the page says why it cannot run, or CI runs it."""
        return self.said in ELSEWHERE or _NOT_RUN.fullmatch(self.said) is not None

    @property
    def commands(self) -> list[list[str]]:
        """The words of each command of a shell snippet, without comments."""
        lines = re.sub(r"\\\n", " ", self.text)
        found: list[list[str]] = []
        for line in _whole_lines(lines):
            words = shlex.split(line)
            if words:
                found.append(words)
        return found

    @property
    def runner(self) -> str | None:
        """What runs it; None: nothing does, and that is a fault."""
        if self.said.startswith(_FILE):
            return "integration"  # tests/integrations/test_example.py
        if self.kind in {"toml", "json"}:
            return self.kind
        if self.kind == "sh":
            first = {words[0] for words in self.commands}
            asks = first == {"curl"} or re.search(r"\bclarify(\.py)? (ask|approve) ", self.text)
            verifies = VERIFIES if "clarify log --jwt" in self.text else None
            return ASKS if asks else SHELL if first <= {"clarify", "export"} else verifies
        if self.kind not in {"python", "ts"}:
            return None
        if re.search(r"_in_slack( import|\.ts)", self.text):
            return "examples"  # tests/examples, with the frameworks
        known = {
            "import clarify": ASKS,
            'from "./clarify.ts"': TYPESCRIPT,
            "DemoProducer": "agent",
            "AsyncApp": BOLT,
            "json.load(sys.stdin)": "responder",
            "audit.jsonl": AUDIT,
        }
        return next((runner for words, runner in known.items() if words in self.text), None)


def _whole_lines(text: str) -> list[str]:
    """Lines, joined while a quote is open."""
    found: list[str] = []
    for line in text.splitlines():
        if found and found[-1].count("'") % 2:
            found[-1] += "\n" + line
        else:
            found.append(re.sub(r"(^|\s)#.*", "", line))
    return found


@cache
def snippets() -> tuple[Snippet, ...]:
    """All, in the order of pages and lines. Blocks of kind `text` are drawings."""
    found = []
    for page in pages():
        text = page.read_text()
        for match in _BLOCK.finditer(text):
            body = re.sub(rf"^{match['indent']}", "", match["text"], flags=re.MULTILINE)
            line = text.count("\n", 0, match.start("kind")) + 1
            if match["kind"] != "text":
                found.append(Snippet(page, line, match["kind"], body, match["said"] or ""))
    return tuple(found)


def example_files() -> dict[str, str]:
    """The files of the example integration, by name."""
    return {each.said.removeprefix(_FILE): each.text for each in snippets() if each.said.startswith(_FILE)}


def run_by(runner: str) -> list[Snippet]:
    """Those that something runs."""
    return [each for each in snippets() if not each.is_skipped and each.runner == runner]

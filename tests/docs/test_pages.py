"""The pages lead somewhere, are led to, and their generated parts are up to date."""

from __future__ import annotations

import re
import tomllib
from functools import cache
from pathlib import Path

import pytest

from tests.docs.references import EXAMPLE, EXAMPLES, PARTS, ROOT, examples, explained, pages, written

TOP = [ROOT / name for name in ("CHANGELOG.md", "CONTRIBUTING.md", "SECURITY.md")]
_LINK = re.compile(r'(?<!\\)\]\(([^)\s]+)\)|(?:src|srcset|href)="([^"]+)"')
_HOW = "python -m tests.docs.references"


def without_code(text: str) -> str:
    return re.sub(r"```.*?```|`[^`\n]*`", "", text, flags=re.DOTALL)


@cache
def links(page: Path) -> tuple[tuple[Path, str], ...]:
    """Where a page's links within the repository lead: file and anchor."""
    found = []
    for match in _LINK.finditer(without_code(page.read_text())):
        path, _, anchor = (match[1] or match[2]).partition("#")
        if not re.match(r"https?:|mailto:", path):
            found.append(((page.parent / path).resolve() if path else page, anchor))
    return tuple(found)


@cache
def anchors(page: Path) -> frozenset[str]:
    """Those of a page's headings, as code hosts and the site make them."""
    headings = re.findall(
        r"^#+ (.+)$", re.sub(r"```.*?```", "", page.read_text(), flags=re.DOTALL), re.MULTILINE
    )
    return frozenset(re.sub(r"[^\w\- ]", "", each.lower()).strip().replace(" ", "-") for each in headings)


@pytest.mark.parametrize("page", [*pages(), *TOP], ids=lambda page: str(page.relative_to(ROOT)))
def test_links_lead_somewhere(page: Path) -> None:
    broken = [
        f"{path.relative_to(ROOT)}#{anchor}"
        for path, anchor in links(page)
        if not path.exists() or (anchor and anchor not in anchors(path))
    ]
    assert broken == []


def test_every_page_and_picture_is_led_to() -> None:
    seen, left = set[Path](), [ROOT / "README.md"]
    while left:
        page = left.pop()
        if page not in seen:
            seen.add(page)
            left += [path for path, _ in links(page) if path.suffix == ".md" and path.is_file()]
    assert {*pages(), *TOP} <= seen
    shown = {path for page in seen for path, _ in links(page)}
    assert {*(ROOT / "docs/pictures").iterdir()} <= shown


@pytest.mark.parametrize("page", pages(), ids=lambda page: str(page.relative_to(ROOT)))
def test_generated_parts_are_up_to_date(page: Path) -> None:
    text = page.read_text()
    assert written(text) == text, f"run: {_HOW}"


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda path: path.name)
def test_example_explains_each_key_as_the_models_do(example: Path) -> None:
    assert example.read_text() == explained(EXAMPLE.read_text()), f"run: {_HOW}"


def test_site_has_every_page_and_no_link_out_of_it() -> None:
    named = re.findall(r'= "([\w/-]+\.md)"', (ROOT / "zensical.toml").read_text())
    docs = ROOT / "docs"
    assert sorted(named) == sorted(str(page.relative_to(docs)) for page in docs.rglob("*.md"))
    out = [page for page in docs.rglob("*.md") if any(docs not in path.parents for path, _ in links(page))]
    assert out == []


def test_site_has_the_apps_one_logo() -> None:
    theme = tomllib.loads((ROOT / "zensical.toml").read_text())["project"]["theme"]
    logo = (ROOT / "workspace/static/icon.svg").read_bytes()
    assert [(ROOT / "docs" / theme[use]).read_bytes() == logo for use in ("logo", "favicon")] == [True, True]


def test_every_generated_part_is_on_a_page() -> None:
    used = [
        name for page in pages() for name in re.findall(r"<!-- generated: ([a-z-]+) -->", page.read_text())
    ]
    assert sorted({*used}) == sorted(PARTS)


def test_example_has_every_key() -> None:
    """configuration.md takes its examples from there."""
    table = re.compile(
        r"^### `\[*([a-z_]+(?:\.[a-z_]+)?)[^`]*`\n(.*?)(?=^### |<!-- end)", re.MULTILINE | re.DOTALL
    )
    text = (ROOT / "docs/operate/configuration.md").read_text().partition("<!-- generated")[2]
    missing = [
        f"{name}.{key}"
        for name, rows in table.findall(text)
        for key in re.findall(r"^\| `(\w+)`", rows, re.MULTILINE)
        if key not in examples().get(name, {})
    ]
    assert missing == []


def test_nothing_is_installed_from_where_it_is_not_published() -> None:
    assert [
        page for page in [*pages(), *TOP] if re.search(r"pip install '?clarify-bot", page.read_text())
    ] == []

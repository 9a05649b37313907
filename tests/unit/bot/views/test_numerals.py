"""Numbers in the bot's own words, as their reader is used to."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest

from bot.views import numerals
from bot.views.numerals import in_words

WORDS = "1204 asked, 1.3 on average (95 % within 2 hours), 1234567 characters."
_INTL = """
const written = {};
for (const tag of process.argv.slice(1)) {
  const format = new Intl.NumberFormat(tag, {minimumFractionDigits: 1});
  written[tag] = [1, 1204, 12040, 1234567].map((each) => format.format(each + 0.5));
}
console.log(JSON.stringify(written));
"""


@pytest.mark.parametrize(
    ("locale", "said"),
    [
        ("en-US", "1,204 asked, 1.3 on average (95 % within 2 hours), 1,234,567 characters."),
        ("de-DE", "1.204 asked, 1,3 on average (95 % within 2 hours), 1.234.567 characters."),
        ("es-ES", "1204 asked, 1,3 on average (95 % within 2 hours), 1.234.567 characters."),
        ("es-LA", "1,204 asked, 1.3 on average (95 % within 2 hours), 1,234,567 characters."),
        (
            "fr_FR",
            "1\u202f204 asked, 1,3 on average (95 % within 2 hours), 1\u202f234\u202f567 characters.",
        ),
        ("de-CH", WORDS),
        ("tlh", WORDS),
        ("", WORDS),
    ],
)
def test_numbers_are_written_as_in_the_locale(locale: str, said: str) -> None:
    assert in_words(WORDS, locale) == said


@pytest.mark.parametrize("text", ["CLR-42000-001", "v1.10.2", "2026-05-24", "1,204", "sha256", "1e5000x"])
def test_what_is_no_number_stays_as_it_is(text: str) -> None:
    assert in_words(text, "de-DE") == text


def test_signs_are_those_of_cldr(node_program: Path) -> None:
    """As Node writes them, which has CLDR. Slack calls the Spanish of Latin America es-LA, which is that of Laos elsewhere."""
    tags = {tag: "es-419" if tag == "es-la" else tag for tag, signs in numerals._SIGNS.items() if signs}
    ran = subprocess.run(
        [node_program, "-e", _INTL, *tags.values()], capture_output=True, text=True, check=True
    )
    written = json.loads(ran.stdout)
    for tag, theirs in tags.items():
        ours = [in_words(text, tag) for text in ("1.5", "1204.5", "12040.5", "1234567.5")]
        assert ours == written[theirs], tag

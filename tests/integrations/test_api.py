"""`bot.api` stays small: what no integration uses is not in it, and what is in it is explained."""

from __future__ import annotations

import re
from dataclasses import fields

import pytest

from bot import api
from tests.docs.references import ROOT


def test_each_name_is_used_by_an_integration_or_the_documentation() -> None:
    users = [*(ROOT / "bot/integrations").rglob("*.py"), ROOT / "docs/develop/integrations.md"]
    words = set(re.findall(r"\w+", "\n".join(each.read_text() for each in users)))
    assert set(api.__all__) - words == set()


@pytest.mark.parametrize("kind", [api.Integration, api.OnCall, api.Paging])
def test_each_argument_is_explained(kind: type) -> None:
    explained = set(re.findall(r"^\s+(\w+): ", kind.__doc__ or "", re.MULTILINE))
    assert {field.name for field in fields(kind)} <= explained

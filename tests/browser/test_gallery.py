from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from bot.people.check import samples
from tests.browser.pictures import hang


@pytest.mark.ci
def test_picture_is_taken_of_every_sample(tmp_path: Path) -> None:
    asyncio.run(hang(tmp_path, [(390, "light")]))
    taken = {file.name for file in tmp_path.glob("*.png")}
    assert taken == {f"{name}-390-light.png" for name, _ in samples()}

"""The stories that the gallery's pictures are taken of can be played to their end. Nothing is looked at here."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.browser.gallery import ACTS, Gallery
from tests.scenario.pagers import night


@pytest.mark.ci
@pytest.mark.parametrize("act", ACTS)
async def test_act_of_the_gallery_comes_to_its_end(tmp_path: Path, act: str) -> None:
    async with night(tmp_path) as stage:
        gallery = Gallery(stage, None, tmp_path, act)
        await ACTS[act](gallery)
        gallery.close()
    assert f"## {act}: " in (tmp_path / f"{act}.txt").read_text()

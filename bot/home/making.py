"""One person's tab from the facts that all share."""

from __future__ import annotations

import asyncio
import hashlib
import json
from dataclasses import dataclass

from bot.home.facts import Viewer
from bot.home.gathering import Offload, Questions
from bot.home.layout import home
from bot.home.model import Chosen, Snapshot, chosen
from bot.home.ports import Access, Renders, View
from bot.people import Person


@dataclass(frozen=True, slots=True)
class Tab:
    """What is to be published. `digest` tells whether it says something else than another one.

    `unsure`: it is not known of all questions whether the person may answer them.
    """

    view: View
    digest: str
    unsure: bool


class Maker:
    """`offload` runs long work elsewhere: a thread."""

    def __init__(
        self, *, access: Access, questions: Questions, renderer: Renders, offload: Offload = asyncio.to_thread
    ) -> None:
        self._access = access
        self._questions = questions
        self._renderer = renderer
        self._offload = offload

    async def tab(self, viewer: Viewer, snapshot: Snapshot) -> Tab:
        """The tab of `viewer`, on the pages that they look at.

        Raises:
            RenderError: it breaks a limit of Slack's: a fault of ours.
        """
        person = Person(viewer.team, viewer.user)
        admitted = await self._access.admitted(person, snapshot.audiences)
        shown: Chosen = await self._offload(chosen, snapshot, viewer.user, admitted, viewer.pages)
        words = await self._questions.words(shown.questions)
        tab: Tab = await self._offload(self._rendered, shown, words)
        return tab

    def _rendered(self, shown: Chosen, words: dict[str, str]) -> Tab:
        view = self._renderer.home(home(shown, words))
        said = json.dumps(view, sort_keys=True).encode()
        return Tab(view, hashlib.blake2b(said, digest_size=12).hexdigest(), shown.unsure)

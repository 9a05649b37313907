"""A person at the workspace's page: with a mouse, or with the keyboard alone."""

from __future__ import annotations

from typing import Any, Literal, Protocol
from urllib.parse import urlencode

import pytest
from axe_playwright_python.async_playwright import Axe  # type: ignore[import-untyped]
from playwright.async_api import BrowserContext, Locator, Page, ViewportSize, expect

from tests.kit.world import World
from workspace.seed import ADE, AGENTS

PATIENCE = 30_000.0
WIDE: ViewportSize = {"width": 1400, "height": 900}  # with the traffic beside the chat
DESK: ViewportSize = {"width": 1200, "height": 900}
PHONE: ViewportSize = {"width": 390, "height": 800}
Scheme = Literal["light", "dark"]
expect.set_options(timeout=PATIENCE)


class Visit:
    """Pages of one workspace. Whatever a page's script complains of fails the test at `close`."""

    def __init__(self, stage: World, window: BrowserContext, web: str = "") -> None:
        """`web`: the address of the bot's own server."""
        self.stage = stage
        self.web = web
        self._window = window
        self._pages: list[Page] = []
        self.complaints: list[str] = []

    async def page(
        self,
        user: str = ADE,
        *,
        scheme: Scheme = "light",
        size: ViewportSize = DESK,
        apart: bool = False,
        **where: str,
    ) -> Page:
        """The page as `user` sees it; `where`: channel, thread, home.

        `apart`: in a window of its own, whose clock it may change. So is every page after the first: of two in one
        window the one behind draws once a second.
        """
        browser = self._window.browser
        apart = apart or bool(self._pages)
        page = await (browser if apart and browser else self._window).new_page()
        await page.emulate_media(color_scheme=scheme, reduced_motion="reduce")
        await page.set_viewport_size(size)
        self._pages.append(page)
        page.set_default_timeout(PATIENCE)
        page.on("pageerror", lambda error: self.complaints.append(str(error)))
        page.on("console", lambda said: self.complaints.append(said.text) if said.type == "error" else None)
        query = urlencode({"as": user, "channel": AGENTS} | where)
        async with page.expect_response(lambda answer: "/feed" in answer.url):
            await page.goto(f"{self.stage.workspace.url}?{query}")
        return page

    async def close(self) -> None:
        for page in self._pages:
            await page.close()
        await self._window.clear_cookies()
        assert not self.complaints, self.complaints


def card(page: Page, words: str) -> Locator:
    """The message of the channel that says `words` and has controls."""
    return page.locator("main article").filter(has_text=words).filter(has=page.locator(".actions"))


class Hand(Protocol):
    """How somebody works: each does the same things in their own way."""

    async def press(self, page: Page, control: Locator) -> None: ...
    async def choose(self, page: Page, menu: Locator, label: str) -> None: ...
    async def tick(self, page: Page, box: Locator) -> None: ...
    async def fill(self, page: Page, field: Locator, text: str) -> None: ...


class Mouse:
    async def press(self, page: Page, control: Locator) -> None:
        await control.click()

    async def choose(self, page: Page, menu: Locator, label: str) -> None:
        await menu.select_option(label=await whole(menu, label))

    async def tick(self, page: Page, box: Locator) -> None:
        await box.check()

    async def fill(self, page: Page, field: Locator, text: str) -> None:
        await field.fill(text)


class Keyboard:
    """Tab, Space, Enter, arrows and letters; nothing is clicked and nothing is focused by script."""

    async def press(self, page: Page, control: Locator) -> None:
        await tab_to(page, control)
        await page.keyboard.press("Enter")

    async def choose(self, page: Page, menu: Locator, label: str) -> None:
        await tab_to(page, menu)
        await page.keyboard.press("ArrowDown")
        await page.wait_for_function("menu => menu.matches(':open')", arg=await menu.element_handle())
        for letter in await whole(menu, label):
            await page.keyboard.press(letter)
        await page.keyboard.press("Enter")

    async def tick(self, page: Page, box: Locator) -> None:
        await tab_to(page, box)
        await page.keyboard.press("Space")

    async def fill(self, page: Page, field: Locator, text: str) -> None:
        await tab_to(page, field)
        await page.keyboard.press("Control+a")
        await page.keyboard.type(text)


HANDS: dict[str, Hand] = {"keyboard": Keyboard(), "mouse": Mouse()}
BY_HAND = pytest.mark.parametrize("way", ["keyboard", pytest.param("mouse", marks=pytest.mark.ci)])


async def whole(menu: Locator, label: str) -> str:
    """The whole words of the option that says `label`: options of a card are numbered."""
    return (await menu.locator("option", has_text=label).inner_text()).strip()


async def tab_to(page: Page, wanted: Locator, most: int = 80) -> None:
    """Press Tab until `wanted` has the focus; radio buttons of a group take arrows."""
    await expect(wanted).to_be_visible()
    for _ in range(most):
        if await wanted.evaluate("element => element === document.activeElement"):
            return
        await page.keyboard.press("Tab")
    raise AssertionError(f"{most} tabs do not lead to {wanted}")


async def serious(page: Page) -> list[str]:
    """What axe calls serious or critical on what the page shows now."""
    return await _violations(page, {"resultTypes": ["violations"]})


async def serious_in_both_schemes(page: Page) -> list[str]:
    """The same, and of the colours in the dark."""
    found = await serious(page)
    await page.emulate_media(color_scheme="dark")
    colours = {"type": "rule", "values": ["color-contrast", "link-in-text-block"]}
    found += await _violations(page, {"resultTypes": ["violations"], "runOnly": colours})
    await page.emulate_media(color_scheme="light")
    return found


async def _violations(page: Page, options: dict[str, Any]) -> list[str]:
    results = await Axe().run(page, options=options)
    return [
        f"{found['id']}: {node['html'][:160]} {node['any'] and node['any'][0]['message']}"
        for found in results.response["violations"]
        if found["impact"] in {"serious", "critical"}
        for node in found["nodes"]
    ]

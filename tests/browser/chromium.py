"""Where Chromium is, and how it is started: quiet, without a sandbox, without anything from the network."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

from playwright.async_api import Browser, Playwright

ARGUMENTS = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-dev-shm-usage",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-extensions",
    "--no-proxy-server",
    "--force-color-profile=srgb",
]
HOW_TO = "no Chromium: install the package chromium, or run `playwright install chromium`, or set CHROMIUM to its path"


def chromium(playwright: Playwright) -> Path | None:
    """The first there is: `$CHROMIUM`, the system's, playwright's own; None without any."""
    named = [os.environ.get("CHROMIUM"), "/usr/bin/chromium"]
    named += [shutil.which(name) for name in ("chromium", "chromium-browser", "google-chrome")]
    candidates = [Path(each) for each in [*named, playwright.chromium.executable_path] if each]
    return next((path for path in candidates if path.is_file()), None)


async def launch(playwright: Playwright, path: Path) -> Browser:
    return await playwright.chromium.launch(executable_path=path, args=ARGUMENTS)

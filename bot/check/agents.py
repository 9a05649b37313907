"""Looks at what agents ask each other by: their workflows, the commands that answer, the mirror on GitHub."""

from __future__ import annotations

import shutil
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import httpx

from bot.check.findings import Finding, right, wrong
from bot.http import NETWORK, open_client
from bot.settings.model import Settings
from core.workflow import Scopes

_HEADERS = {"Accept": "application/vnd.github+json"}


async def probe(settings: Settings) -> AsyncIterator[Finding]:
    """Tell of workflows, of responders that are commands, and of the repository. Nothing is asked or written."""
    for finding in (*_workflows(settings.ledger.workflows), *_commands(settings)):
        yield finding
    if settings.github is not None:
        yield await _repository(settings)


def _workflows(folder: Path) -> Iterator[Finding]:
    files = sorted(folder.glob("*.toml"))
    problems = Scopes(folder).problems
    for problem in problems:
        yield wrong("ledger.workflows", problem, "mend the file: until then its step lets nobody ask")
    if files and not problems:
        yield right("ledger.workflows", f"{len(files)} file{'s' if len(files) > 1 else ''} in {folder}")


def _commands(settings: Settings) -> Iterator[Finding]:
    for role, responder in settings.responders.items():
        if responder.command is None:
            continue
        subject, name = f"responders.{role}.command", responder.command[0]
        # As it will be run: a path counts from the configuration's folder, a bare name is looked up.
        found = shutil.which(str(settings.file.parent / name) if "/" in name else name)
        if found is None:
            yield wrong(
                subject, f"{name} is no program that can be run", "install it, or name it with its path"
            )
        else:
            yield right(subject, f"runs {found}")


async def _repository(settings: Settings) -> Finding:
    github = settings.github
    assert github is not None  # noqa: S101 - asked by `probe`
    subject, token = "github.repo", settings.secrets.by_variable[github.token_env].get_secret_value()
    try:
        async with open_client(token) as http:  # as the mirror will ask
            response = await http.get(f"{github.api_url}/repos/{github.repo}", headers=_HEADERS)
    except NETWORK as error:
        return wrong(
            subject, f"GitHub cannot be reached: {type(error).__name__}", "check the network and api_url"
        )
    if response.status_code != httpx.codes.OK:
        mend = "check the name, and that the token may read and write its issues"
        return wrong(subject, f"GitHub answers {response.status_code} for {github.repo}", mend)
    return right(subject, f"{github.repo} can be read with {github.token_env}")

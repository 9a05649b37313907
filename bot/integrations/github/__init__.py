"""Mirrors clarifications to the GitHub issues that they are about: `[github]`."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable

from bot.api import CheckResult, Consumer, Host, Integration, Secrets, Subject, Tables, Tx
from bot.integrations.github.settings import GithubSettings


def _consumer(host: Host, settings: GithubSettings) -> Consumer:
    from bot.integrations.github.github import GithubSync  # noqa: PLC0415 - a check of the settings needs none of it

    return GithubSync(settings, host)


async def _check(settings: GithubSettings, secret: Secrets) -> AsyncIterator[CheckResult]:
    from bot.integrations.github.github import check_repository  # noqa: PLC0415 - as above

    yield await check_repository(settings, secret(settings.token_env))


def _keeps(tx: Tx, subject: Subject) -> Iterable[str]:
    from bot.integrations.github.github import comments_about  # noqa: PLC0415 - as above

    return comments_about(tx, subject)


integration = Integration(
    name="github",
    settings=GithubSettings,
    follows=_consumer,
    check=_check,
    keeps=_keeps,
    tables=Tables(),
)

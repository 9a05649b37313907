"""Joins the digest to the bot."""

from __future__ import annotations

from bot.api import Integration, SlackCommand
from bot.integrations.digest.digest import Weekly, for_person, span_in
from bot.integrations.digest.settings import DigestSettings

integration = Integration(
    name="digest",
    settings=DigestSettings,
    channels=lambda settings: {"channel": settings.channel},
    job=Weekly,
    commands=(
        SlackCommand(
            word="digest",
            form="digest [7d]",
            meaning="statistics for the last days",
            help="“digest 7d” sums up the last 7 days: how many questions were asked, answered, escalated and closed without "
            "an answer, how long answers took, rounds, topics, and who asks and answers most. Tables show the questions of each "
            "day in your time zone by outcome, and the time to answer by route. The default is 7 days. Example: “/clarify "
            "digest 30d”.",
            read=span_in,
            reply=for_person,
        ),
    ),
)

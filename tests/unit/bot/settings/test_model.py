from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from tests.unit.bot.settings.parsing import parse


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("0s", timedelta(0)),
        ("30m", timedelta(minutes=30)),
        ("1h30m", timedelta(minutes=90)),
        ("1.5h", timedelta(minutes=90)),
        ("250ms", timedelta(milliseconds=250)),
        ("2w", timedelta(days=14)),
    ],
)
def test_settings_durations(text: str, expected: timedelta) -> None:
    settings = parse(f'[slack]\nfallback_channel = "C1"\n[ledger]\narchive_after = "{text}"')
    assert settings.ledger.archive_after == expected


@pytest.mark.needs("github", "pagerduty", "webhooks")
@pytest.mark.parametrize("host", ["127.0.0.1", "localhost", "[::1]"])
def test_settings_let_tokens_go_unencrypted_to_loopback(host: str) -> None:
    producer = f'[[producers]]\nname = "a"\nurl = "http://{host}:8080/base"\ntoken_env = "PLANNER_TOKEN"'
    github = f'[github]\nrepo = "o/r"\ntoken_env = "PLANNER_TOKEN"\napi_url = "http://{host}:9"\nmention = "@o/team"'
    settings = parse(f'[slack]\nfallback_channel = "C1"\n{producer}\n{github}')
    assert settings.producers[0].url == f"http://{host}:8080/base"


@pytest.mark.parametrize(
    ("configured", "category", "pages"),
    [
        (None, "requires_user", True),
        (None, None, True),
        (None, "never heard of", True),
        (None, "transient", False),
        ('["permanent"]', "permanent", True),
        ('["permanent"]', "requires_user", False),
        ('["network", "internal"]', "network", True),
        ('["network", "internal"]', "policy", False),
        ("[]", "permanent", False),
    ],
)
def test_settings_page_errors(configured: str | None, category: str | None, pages: bool) -> None:
    table = f"\n[monitor]\npage_errors = {configured}" if configured else ""
    settings = parse(f'[slack]\nfallback_channel = "C1"{table}')
    assert settings.monitor.pages_error(category) is pages


def test_settings_rotation_starts_at_midnight_of_a_date() -> None:
    settings = parse(
        """
        [slack]
        fallback_channel = "C1"
        [[on_call]]
        name = "p"
        [on_call.rotation]
        start = 2026-01-05
        shift = "7d"
        users = ["U1", "U2"]
        timezone = "Europe/Berlin"
        [[on_call]]
        name = "q"
        rotation = {start = 2026-01-05T09:00:00Z, shift = "12h", users = ["U1"]}
        """
    )
    first, second = (on_call.rotation for on_call in settings.on_call)
    assert first is not None
    assert first.start == datetime(2026, 1, 5)  # noqa: DTZ001 - local time of the rotation
    assert second is not None
    assert second.start == datetime(2026, 1, 5, 9, tzinfo=UTC)
    assert settings.on_call[0].named_users == ("U1", "U2")


@pytest.mark.parametrize(
    ("source", "zone"),
    [
        ('users = ["U1"]', "UTC"),
        ('users = ["U1"]\ntimezone = "Europe/Berlin"', "Europe/Berlin"),
        (
            'rotation = {start = 2026-01-05, shift = "7d", users = ["U1"], timezone = "Asia/Tokyo"}',
            "Asia/Tokyo",
        ),
        (
            'timezone = "UTC"\nrotation = {start = 2026-01-05, shift = "7d", users = ["U1"], timezone = "Asia/Tokyo"}',
            "UTC",
        ),
    ],
)
def test_settings_zone_of_a_policy(source: str, zone: str) -> None:
    settings = parse(f'[slack]\nfallback_channel = "C1"\n[[on_call]]\nname = "p"\n{source}\n')
    assert settings.on_call[0].zone == zone


@pytest.mark.parametrize(
    ("agent_id", "channel"),
    [
        ("retirement-planner", "C1"),
        ("Retirement-planner", "C3"),
        ("retirement-planner-2", "C1"),
        ("tax-7", "C2"),
        ("tax-x", "C3"),
        ("", "C3"),
        ("Explore, for tax-7", "C5"),
        ("Plan, for tax-7", "C2"),
        ("tax-7, for anybody", "C3"),
        ("tax-7, for retirement-planner", "C1"),
    ],
)
def test_route_for_first_match_wins(agent_id: str, channel: str) -> None:
    settings = parse(
        """
        [[routes]]
        channel = "C3"
        [[routes]]
        agent = "Explore, for *"
        channel = "C5"
        [[routes]]
        agent = "retirement-*"
        channel = "C1"
        [[routes]]
        agent = "tax-[0-9]"
        channel = "C2"
        [[routes]]
        agent = "retirement-planner-?"
        channel = "C4"
        """
    )
    assert settings.route_for(agent_id).channel == channel


def test_route_for_falls_back_to_the_fallback_channel() -> None:
    route = parse('[slack]\nfallback_channel = "C9"').route_for("anybody")
    assert (route.channel, route.answerers, route.on_call) == ("C9", ("members",), None)


@pytest.mark.parametrize(
    ("people", "channel", "answerers"),
    [
        ('"C2"', "C2", ("members",)),
        ('"S1"', "C1", ("S1",)),
        ('["C2", "S1", "U1"]', "C2", ("S1", "U1")),
    ],
)
def test_settings_route_of_a_role_that_people_answer_for(
    people: str, channel: str, answerers: tuple[str, ...]
) -> None:
    settings = parse(
        f"""
        [[routes]]
        channel = "C1"
        verbosity = "terse"
        answerers = ["U9"]
        [responders.Product-Manager]
        people = {people}
        [responders.architect]
        command = "architect --answer 'in full'"
        """
    )
    route = settings.route_for("engineer", "product-manager")
    assert (route.channel, route.answerers, route.verbosity) == (channel, answerers, "terse")
    assert settings.route_for("engineer", "architect").answerers == ("U9",)
    assert settings.route_for("engineer").answerers == ("U9",)
    assert settings.responders["architect"].command == ("architect", "--answer", "in full")

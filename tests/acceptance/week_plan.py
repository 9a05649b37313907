"""What happens in a simulated week: decided beforehand, by the seed alone. Times in seconds from its beginning."""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from hashlib import blake2b
from itertools import pairwise
from typing import Literal, get_args

MINUTE, HOUR, DAY = 60.0, 3600.0, 86400.0
WEEK = 7 * DAY
QUIET = 12 * HOUR  # at the end nothing new comes, and all that is open runs out
SLA = 30 * MINUTE
FALLBACK = "C0FALLBACK"
TEAM = "T0WEEK"
# Weeks in which Berlin's clocks are changed: back, and forward.
BEGINNINGS = (datetime(2026, 10, 22, 6, tzinfo=UTC), datetime(2027, 3, 25, 6, tzinfo=UTC))

Fate = Literal["answered", "on call", "never"]
FaultKind = Literal["dm", "channel", "unreachable", "lossy", "busy", "outside", "directory", "slow directory"]
FAULTS: tuple[FaultKind, ...] = get_args(FaultKind)


Hours = tuple[tuple[tuple[int, ...], int, int], ...]
"""Windows: on which days (0: Monday), from which hour to which; beyond 24 on the next day."""


@dataclass(frozen=True)
class Step:
    after: float
    notify: tuple[str, ...]
    every: float | None = None
    hours: Hours = ()


@dataclass(frozen=True)
class Policy:
    """`source`: users, rotation or group, with whom."""

    name: str
    source: Literal["users", "rotation", "group"]
    users: tuple[str, ...]
    take_timeout: float
    steps: tuple[Step, ...]

    @property
    def longest_pause(self) -> float:
        """Between two pages, as long as nobody has it."""
        repeats = [step.every for step in self.steps if step.every is not None]
        gaps = [after.after - step.after for step, after in pairwise(self.steps)]
        return max(*gaps, min(repeats, default=self.take_timeout), 0.0)


EVERY_DAY = (0, 1, 2, 3, 4, 5, 6)
OFFICE: Hours = ((EVERY_DAY[:5], 8, 19), ((5,), 10, 12))
POLICIES = (
    Policy(
        "platform",
        "rotation",
        ("U0PA", "U0PB", "U0PC"),
        15 * MINUTE,
        (
            Step(0, ("thread", "dm"), 30 * MINUTE),
            Step(15 * MINUTE, ("apprise:PAGER",)),
            Step(40 * MINUTE, ("channel:C0BOSSES",), HOUR),
        ),
    ),
    Policy(
        "infra",
        "group",
        ("U0IA", "U0IB", "U0IC"),
        10 * MINUTE,
        (
            Step(0, ("dm",)),
            Step(5 * MINUTE, ("group:S0BACKUP",)),
            Step(20 * MINUTE, ("apprise:OTHER",), 45 * MINUTE),
        ),
    ),
    Policy(
        "apps",
        "users",
        ("U0AA", "U0AB"),
        30 * MINUTE,
        (Step(0, ("dm",)), Step(10 * MINUTE, ("apprise:PAGER",))),
    ),
    Policy(  # at night no step may go
        "shop",
        "users",
        ("U0SA", "U0SB", "U0SC"),
        10 * MINUTE,
        (
            Step(0, ("thread", "dm"), 45 * MINUTE, ((EVERY_DAY, 7, 22),)),
            Step(10 * MINUTE, ("group:S0BACKUP",), None, ((EVERY_DAY[:5], 12, 23), ((5, 6), 4, 16))),
            Step(25 * MINUTE, ("apprise:OTHER",), None, OFFICE),
        ),
    ),
)
GROUPS = {"S0INFRA": POLICIES[1].users, "S0BACKUP": ("U0BA", "U0BB")}
# Agents by the beginning of their names: the channel, and the policy if there is one.
ROUTES = {
    "plat": ("C0PLAT", "platform"),
    "infra": ("C0INFRA", "infra"),
    "apps": ("C0APPS", "apps"),
    "shop": ("C0SHOP", "shop"),
    "lone": ("C0LONE", None),
}
_SHARES = (4, 4, 2, 4, 1)
PEOPLE = tuple(sorted({user for policy in POLICIES for user in policy.users} | {*GROUPS["S0BACKUP"]}))
ANSWERERS = ("U0ANSWERER", "U0SECOND", "U0THIRD")


@dataclass(frozen=True)
class Question:
    """`ttl`: its own timeout; `answer`: how long after it was asked somebody answers by themselves.

    `needs`: how many people have to accept it; 0: it is no confirmation. `presses`: who presses what on its card, after
    how long: take, over, letgo; accept, reject.
    """

    number: int
    at: float
    agent: str
    issue: int
    ttl: float | None
    fate: Fate
    answer: float | None
    asks_again: bool
    by_hand: float | None
    needs: int
    presses: tuple[tuple[float, str, str], ...]

    @property
    def session(self) -> str:
        return f"s{self.number}"


@dataclass(frozen=True)
class Fault:
    kind: FaultKind
    begins: float
    ends: float


@dataclass(frozen=True)
class Jump:
    at: float
    by: float


@dataclass(frozen=True)
class Restart:
    """`fuse`: how many more effects (commits, posts) it has from `at` on; None: it is stopped."""

    at: float
    down: float
    fuse: int | None


@dataclass(frozen=True)
class Absence:
    user: str
    begins: float
    ends: float


@dataclass(frozen=True)
class Plan:
    seed: int
    beginning: datetime
    questions: tuple[Question, ...]
    faults: tuple[Fault, ...]
    jumps: tuple[Jump, ...]
    restarts: tuple[Restart, ...]
    absences: tuple[Absence, ...]

    def draw(self, *parts: object) -> float:
        """A number in [0, 1) that depends on the seed and `parts` alone, whoever asks in which order."""
        digest = blake2b(repr((self.seed, *parts)).encode(), digest_size=8).digest()
        return int.from_bytes(digest, "big") / 2**64


def make(seed: int, questions: int, restarts: int) -> Plan:
    rng = random.Random(seed)  # noqa: S311 - a plan, not a secret
    beginning, asked = BEGINNINGS[seed % len(BEGINNINGS)], _questions(rng, questions)
    asked = tuple(sorted((*asked, *_nights(random.Random(-seed), questions)), key=lambda each: each.at))  # noqa: S311
    return Plan(
        seed,
        beginning,
        asked,
        _faults(rng),
        _jumps(rng),
        _restarts(rng, restarts),
        tuple(_absence(rng) for _ in range(24)),
    )


def _questions(rng: random.Random, count: int) -> tuple[Question, ...]:
    """A fifth of them comes in bursts."""
    last = WEEK - QUIET
    bursts = [rng.uniform(0, last) for _ in range(6)]
    times = [
        rng.choice(bursts) + rng.uniform(0, 90) if rng.random() < 0.2 else rng.uniform(0, last)
        for _ in range(count)
    ]
    return tuple(_question(rng, number, at) for number, at in enumerate(sorted(times)))


def _nights(rng: random.Random, first: int) -> Iterator[Question]:
    """For hours one person has many open questions of one policy."""
    for night, head in enumerate(("plat", "shop", "plat")[: max(1, first // 20)]):
        begins = rng.uniform(0, WEEK - QUIET - 8 * HOUR)
        for number in range(first + 8 * night, first + 8 * night + 7):
            asked = _question(rng, number, begins + rng.uniform(0, 20) * MINUTE)
            ttl = round(rng.uniform(3, 8) * HOUR, 1)
            fate: Fate = "never" if rng.random() < 0.6 else "on call"
            yield replace(
                asked,
                agent=f"{head}-{number}",
                issue=3000 + number // 8,
                ttl=ttl,
                fate=fate,
                answer=rng.uniform(1, 3) * HOUR if fate == "on call" else None,
                needs=0,
                presses=(),
            )


def _question(rng: random.Random, number: int, at: float) -> Question:
    fate: Fate = rng.choices(("answered", "on call", "never"), (50, 27, 23))[0]
    bounded = fate == "never" or rng.random() < 0.5
    ttl = round(rng.choice((rng.uniform(5, 60), rng.uniform(60, 300))) * MINUTE, 1) if bounded else None
    answer = {"answered": rng.choice((20, 70, 200)) * MINUTE * rng.random(), "on call": 6 * HOUR}.get(fate)
    needs = rng.choices((0, 1, 2), (70, 8, 22))[0]
    return Question(
        number,
        at,
        f"{rng.choices(tuple(ROUTES), _SHARES)[0]}-{rng.randrange(12)}",
        1000 + number // 8,
        ttl,
        fate,
        answer,
        asks_again=rng.random() < 0.25,
        by_hand=rng.uniform(1, 60) * MINUTE if rng.random() < 0.06 else None,
        needs=needs,
        presses=(*_owning(rng), *(_deciding(rng, answer) if needs and answer is not None else ())),
    )


def _owning(rng: random.Random) -> list[tuple[float, str, str]]:
    """Of a third of them somebody takes the card, often two at the same moment."""
    if rng.random() > 0.35:
        return []
    found = [(rng.uniform(0.5, 100) * MINUTE, rng.choice(ANSWERERS), "take")]
    for verb, chance, most in (("take", 0.5, 0.02), ("over", 0.3, 40), ("letgo", 0.4, 60), ("take", 0.3, 90)):
        if rng.random() < chance:
            who = found[0][1] if verb == "letgo" and rng.random() < 0.7 else rng.choice(ANSWERERS)
            found.append((found[0][0] + rng.uniform(0, most) * MINUTE, who, verb))
    return found


def _deciding(rng: random.Random, after: float) -> list[tuple[float, str, str]]:
    """The same person may press twice, and somebody may reject; in the end enough accept."""
    pressing = [(rng.choice(ANSWERERS), rng.choices(("accept", "reject"), (9, 1))[0]) for _ in range(3)]
    pressing += [(user, "accept") for user in ANSWERERS]
    return [(after + n * 20 * MINUTE * rng.random(), user, verb) for n, (user, verb) in enumerate(pressing)]


def _faults(rng: random.Random) -> tuple[Fault, ...]:
    found = []
    for kind in FAULTS:
        for _ in range(8):
            begins = rng.uniform(HOUR, WEEK - QUIET)
            found.append(Fault(kind, begins, begins + rng.choice((2, 10, 60, 180)) * MINUTE * rng.random()))
    return tuple(found)


def _jumps(rng: random.Random) -> tuple[Jump, ...]:
    """Both ways, from seconds to hours; at least half an hour apart."""
    sizes = (20.0, 90.0, 7 * MINUTE, 25 * MINUTE, HOUR, 3 * HOUR)
    times = sorted(rng.sample(range(4, int((WEEK - QUIET) / HOUR)), 2 * len(sizes)))
    signed = [sign * size * rng.uniform(0.7, 1.3) for size in sizes for sign in (1, -1)]
    rng.shuffle(signed)
    return tuple(Jump(hour * HOUR + rng.uniform(0, 1700), by) for hour, by in zip(times, signed, strict=True))


def _restarts(rng: random.Random, count: int) -> tuple[Restart, ...]:
    """One in six comes right after the one before."""
    times = sorted(rng.uniform(HOUR, WEEK - QUIET) for _ in range(count))
    for index in range(1, count):
        if rng.random() < 0.16:
            times[index] = times[index - 1] + 1
    return tuple(
        Restart(at, _down(rng), None if rng.random() < 0.15 else rng.choice((0, 3, 12, 60))) for at in times
    )


def _down(rng: random.Random) -> float:
    return rng.choice((1.0, 1.0, 10.0, 10.0, 10.0, 2 * MINUTE, 20 * MINUTE, 90 * MINUTE)) * rng.random()


def _absence(rng: random.Random) -> Absence:
    begins = rng.uniform(0, WEEK - QUIET)
    return Absence(rng.choice(PEOPLE), begins, begins + rng.uniform(1, 14) * HOUR)


def configuration() -> str:
    """The week as `clarify.toml`."""
    lines = ["[slack]", f'fallback_channel = "{FALLBACK}"', "[monitor]", f'sla = "{SLA / MINUTE:g}m"']
    lines += ["[ledger]", "directory = false"]
    for head, (channel, name) in ROUTES.items():
        lines += ["[[routes]]", f'agent = "{head}-*"', f'channel = "{channel}"']
        lines += [f'on_call = "{name}"'] if name else []
    lines += ["[[routes]]", 'channel = "C0LONE"']
    for policy in POLICIES:
        lines += ["[[on_call]]", f'name = "{policy.name}"', f'take_timeout = "{policy.take_timeout:g}s"']
        steps = ", ".join(map(_step, policy.steps))
        lines += [f"steps = [{steps}]", *_source(policy)]
    return "\n".join(lines)


_DAYS = ("Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun")


def _step(step: Step) -> str:
    every = f', every = "{step.every:g}s"' if step.every else ""
    names = ", ".join(f'"{name}"' for name in step.notify)
    windows = (
        f"{_DAYS[day]} {begins:02}:00-{ends % 24:02}:00" for days, begins, ends in step.hours for day in days
    )
    hours = f', hours = "{", ".join(windows)}"' if step.hours else ""
    return f'{{after = "{step.after:g}s", notify = [{names}]{every}{hours}}}'


def _source(policy: Policy) -> list[str]:
    users = ", ".join(f'"{user}"' for user in policy.users)
    if policy.source == "group":
        return ['group = "S0INFRA"', 'pick = "first_present"']
    if policy.source == "users":
        return [f"users = [{users}]"]
    shifts = 'start = 2026-01-05T02:30:00, shift = "12h", timezone = "Europe/Berlin"'
    return [f"rotation = {{{shifts}, users = [{users}]}}"]

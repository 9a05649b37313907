"""What happens in a simulated week: decided beforehand, by the seed alone. Times in seconds from its beginning."""

from __future__ import annotations

import random
from dataclasses import dataclass
from datetime import UTC, datetime
from hashlib import blake2b
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


@dataclass(frozen=True)
class Step:
    after: float
    notify: tuple[str, ...]
    every: float | None = None


@dataclass(frozen=True)
class Policy:
    """`source`: users, rotation or group, with whom."""

    name: str
    source: Literal["users", "rotation", "group"]
    users: tuple[str, ...]
    take_timeout: float
    steps: tuple[Step, ...]


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
)
GROUPS = {"S0INFRA": POLICIES[1].users, "S0BACKUP": ("U0BA", "U0BB")}
ROTATION_START, ROTATION_HOURS, ROTATION_ZONE = datetime(2026, 1, 5, 2, 30), 12, "Europe/Berlin"  # noqa: DTZ001 - local
# Agents by the beginning of their names: the channel, and the policy if there is one.
ROUTES = {
    "plat": ("C0PLAT", "platform"),
    "infra": ("C0INFRA", "infra"),
    "apps": ("C0APPS", "apps"),
    "lone": ("C0LONE", None),
}
PEOPLE = tuple(sorted({user for policy in POLICIES for user in policy.users} | {*GROUPS["S0BACKUP"]}))


@dataclass(frozen=True)
class Question:
    """`ttl`: its own timeout; `answer`: how long after it was asked somebody answers by themselves."""

    number: int
    at: float
    agent: str
    issue: int
    ttl: float | None
    fate: Fate
    answer: float | None
    asks_again: bool
    by_hand: float | None

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
    """`fuse`: how many more effects (commits, ledger writes, posts) it has from `at` on; None: it is stopped."""

    at: float
    down: float
    fuse: int | None


@dataclass(frozen=True)
class Absence:
    user: str
    begins: float
    ends: float


@dataclass(frozen=True)
class StandIn:
    policy: str
    user: str
    at: float
    lasts: float


@dataclass(frozen=True)
class Plan:
    seed: int
    beginning: datetime
    questions: tuple[Question, ...]
    faults: tuple[Fault, ...]
    jumps: tuple[Jump, ...]
    restarts: tuple[Restart, ...]
    absences: tuple[Absence, ...]
    stand_ins: tuple[StandIn, ...]

    def draw(self, *parts: object) -> float:
        """A number in [0, 1) that depends on the seed and `parts` alone, whoever asks in which order."""
        digest = blake2b(repr((self.seed, *parts)).encode(), digest_size=8).digest()
        return int.from_bytes(digest, "big") / 2**64


def make(seed: int, questions: int, restarts: int) -> Plan:
    rng = random.Random(seed)  # noqa: S311 - a plan, not a secret
    return Plan(
        seed,
        BEGINNINGS[seed % len(BEGINNINGS)],
        _questions(rng, questions),
        _faults(rng),
        _jumps(rng),
        _restarts(rng, restarts),
        tuple(_absence(rng) for _ in range(24)),
        tuple(_stand_in(rng) for _ in range(12)),
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


def _question(rng: random.Random, number: int, at: float) -> Question:
    fate: Fate = rng.choices(("answered", "on call", "never"), (50, 27, 23))[0]
    bounded = fate == "never" or rng.random() < 0.5
    ttl = round(rng.choice((rng.uniform(5, 60), rng.uniform(60, 300))) * MINUTE, 1) if bounded else None
    answer = {"answered": rng.choice((20, 70, 200)) * MINUTE * rng.random(), "on call": 6 * HOUR}.get(fate)
    return Question(
        number,
        at,
        f"{rng.choice(tuple(ROUTES))}-{rng.randrange(12)}",
        1000 + number // 8,
        ttl,
        fate,
        answer,
        asks_again=rng.random() < 0.25,
        by_hand=rng.uniform(1, 60) * MINUTE if rng.random() < 0.06 else None,
    )


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


def _stand_in(rng: random.Random) -> StandIn:
    return StandIn(
        rng.choice(POLICIES).name,
        rng.choice(PEOPLE),
        rng.uniform(0, WEEK - QUIET),
        rng.uniform(0.5, 8) * HOUR,
    )


def configuration() -> str:
    """The week as `clarify.toml`."""
    lines = ["[slack]", f'fallback_channel = "{FALLBACK}"', "[monitor]", f'sla = "{SLA / MINUTE:g}m"']
    for head, (channel, name) in ROUTES.items():
        lines += ["[[routes]]", f'agent = "{head}-*"', f'channel = "{channel}"']
        lines += [f'on_call = "{name}"'] if name else []
    lines += ["[[routes]]", 'channel = "C0LONE"']
    for policy in POLICIES:
        lines += ["[[on_call]]", f'name = "{policy.name}"', f'take_timeout = "{policy.take_timeout:g}s"']
        steps = ", ".join(map(_step, policy.steps))
        lines += [f"steps = [{steps}]", *_source(policy)]
    return "\n".join(lines)


def _step(step: Step) -> str:
    every = f', every = "{step.every:g}s"' if step.every else ""
    names = ", ".join(f'"{name}"' for name in step.notify)
    return f'{{after = "{step.after:g}s", notify = [{names}]{every}}}'


def _source(policy: Policy) -> list[str]:
    users = ", ".join(f'"{user}"' for user in policy.users)
    if policy.source == "group":
        return ['group = "S0INFRA"', 'pick = "first_present"']
    if policy.source == "users":
        return [f"users = [{users}]"]
    start = ROTATION_START.isoformat()
    return [
        f'rotation = {{start = {start}, shift = "{ROTATION_HOURS}h", users = [{users}], timezone = "{ROTATION_ZONE}"}}'
    ]

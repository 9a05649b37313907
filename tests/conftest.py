from __future__ import annotations

import functools
import gc
import os
import shutil
import signal
import subprocess
import sys
import threading
import warnings
from collections.abc import AsyncIterator, Generator, Iterator
from collections.abc import Set as AbstractSet
from contextlib import suppress
from pathlib import Path

import httpx
import hypothesis
import pytest
import structlog
from httpx._transports import default as _default

from bot import integrations
from bot.people import access
from bot.storage import postgres
from bot.storage.server import Terms
from bot.storage.store import Store
from core.router import Router
from tests.kit import world
from tests.kit.clocks import LeapClock
from tests.kit.databases import _running_server, bouncer, postgres_server  # noqa: F401 - fixtures of all tests
from tests.kit.node import installed
from tests.kit.served import reserved_port
from tests.kit.world import World, scene

# Where bytecode files are forbidden each process that a test starts would compile every module anew, and each worker
# would rewrite every test.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
sys.dont_write_bytecode = False

# Thousands of small files are synced and thrown away: on a disk that takes longer than much of the rest.
_MEMORY_DISK, _ROOM = "/dev/shm", 4 * 1024**3  # noqa: S108 - a folder of its own is made there
if Path(_MEMORY_DISK).is_dir() and shutil.disk_usage(_MEMORY_DISK).free > _ROOM:
    os.environ.setdefault("PYTEST_DEBUG_TEMPROOT", _MEMORY_DISK)

# What a suite in the background (`&`, nohup) ignores, each process that it starts would ignore as well; but a handler is
# not inherited.
for _number in (signal.SIGINT, signal.SIGHUP):
    if signal.getsignal(_number) is signal.SIG_IGN:
        signal.signal(_number, lambda *_: None)


_WORKERS = 4


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--postgres", action="store_true", help="scenarios run on PostgreSQL")
    parser.addoption(
        "--replicas", action="store_true", help="scenarios run on PostgreSQL, with two bots each"
    )


def pytest_xdist_auto_num_workers(config: pytest.Config) -> int:
    """Four workers for folders and for the whole suite: tests wait about as long as they compute, so four fit two cores.
    None for files and single tests, which would be over before the workers have started.
    """
    named = [Path(each.partition("::")[0]) for each in config.args]
    return 0 if all(each.is_file() for each in named) else _WORKERS


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if (marker := metafunc.definition.get_closest_marker("either_database")) is not None:
        late = [] if marker.kwargs.get("always") else [pytest.mark.ci]
        databases = ["SQLite", pytest.param("replicas", marks=late)]
        metafunc.parametrize("_database", databases, indirect=True)


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    for item in items:
        needed = {name for mark in item.iter_markers("needs") for name in mark.args}
        if missing := needed.difference(integrations.OURS):
            item.add_marker(
                pytest.mark.skip(reason=f"of an integration that was deleted: {', '.join(missing)}")
            )
    if _elsewhere(config):
        for item in items:
            if (files := item.get_closest_marker("files")) is not None:
                item.add_marker(pytest.mark.skip(reason=f"of files: {files.args[0]}"))


def _elsewhere(config: pytest.Config) -> str:
    """Where scenarios run by a flag; empty: on SQLite."""
    return next((each for each in ("replicas", "postgres") if config.getoption(f"--{each}")), "")


@pytest.fixture
def _database(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where the bots of a test keep all; on PostgreSQL each world has a database of its own."""
    where = getattr(request, "param", _elsewhere(request.config))
    server = request.getfixturevalue("postgres_server") if where not in {"", "SQLite"} else None
    if server is not None:
        monkeypatch.setattr(world, "new_database", server.new)
    monkeypatch.setattr(world, "with_replica", where == "replicas")
    # Both bots of a test stand still while a busy machine does; none of them is to take that for the end of the other.
    monkeypatch.setattr(postgres, "TERMS", Terms(lasts=2 * PATIENT))


# An example takes as long as the machine lets it. Each run tries a few others; CLARIFY_EXAMPLES says how many.
hypothesis.settings.register_profile(
    "busy machine",
    deadline=None,
    max_examples=int(os.environ.get("CLARIFY_EXAMPLES", "30")),
    suppress_health_check=[hypothesis.HealthCheck.too_slow],
)
hypothesis.settings.load_profile("busy machine")

# Tests call this machine only: the authorities of the world, 40 ms to read, are read once for all their clients.
vars(_default)["create_ssl_context"] = functools.cache(httpx.create_ssl_context)

# Each traceback with all local variables in colours takes a second. The product's own logs have plain ones, too.
vars(structlog.get_config()["processors"][-1])["_exception_formatter"] = structlog.dev.plain_traceback


# What may be stored a little later is stored at the end of a bot at the latest, which would wait for it.
Store.soon = 0.005

PATIENT = 30.0  # seconds


@pytest.fixture(scope="session")
def node_program() -> Path:
    """Node, with the packages that tests need; see `tests.kit.node`."""
    try:
        return installed()
    except (OSError, subprocess.CalledProcessError) as error:
        pytest.skip(str(error))


# A storage that a test drops ends some time later, in whichever test runs then. Here its own test fails.
_STORAGE_THREADS = ("_connection_worker_thread", "PostgreSQL")


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """Stop the garbage collector while tests are collected: it would look through all of them again and again."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.enable()


def pytest_collection_finish() -> None:
    """What was collected stays: no collection of garbage has to look through it again."""
    gc.collect()
    gc.freeze()


@pytest.fixture(autouse=True)
def _storages_are_closed() -> Iterator[None]:
    before = set(_storage_threads())
    yield
    left = [thread for thread in _storage_threads() if thread not in before]
    for thread in left:
        thread.join(timeout=5)  # it was told to end, and is about to
    assert not [thread.name for thread in left if thread.is_alive()], "a storage was opened and not closed"


_OPEN = pytest.StashKey[AbstractSet[str]]()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_setup(item: pytest.Item) -> Generator[None]:
    item.stash[_OPEN] = _sockets()
    yield


@pytest.hookimpl(wrapper=True, trylast=True)
def pytest_runtest_teardown(item: pytest.Item) -> Generator[None]:
    """What leaves a socket open is told of once it is collected, in whichever test runs then. Here its own test fails."""
    yield
    if not _sockets() <= item.stash[_OPEN]:
        with warnings.catch_warnings(record=True) as told:
            warnings.simplefilter("always", ResourceWarning)
            gc.collect()
        assert [str(each.message) for each in told if each.category is ResourceWarning] == []


def _sockets() -> AbstractSet[str]:
    """The sockets that this process has open, by their numbers; none where the system does not tell."""
    found = set[str]()
    with suppress(FileNotFoundError):
        for each in Path("/proc/self/fd").iterdir():
            with suppress(OSError):  # it is closed by now
                found.add(str(each.readlink()))
    return frozenset(name for name in found if name.startswith("socket:"))


def _storage_threads() -> list[threading.Thread]:
    return [
        thread for thread in threading.enumerate() if any(name in thread.name for name in _STORAGE_THREADS)
    ]


@pytest.fixture(autouse=True)
def _a_busy_machine_refuses_nobody(monkeypatch: pytest.MonkeyPatch) -> None:
    """One that does nothing for two seconds is no Slack that does not answer, and nobody who holds a ledger."""
    monkeypatch.setattr(access, "LOOK_UPS", PATIENT)
    monkeypatch.setattr(Router.__init__, "__defaults__", (PATIENT,))  # the ledger's lock


@pytest.fixture
async def stage(tmp_path: Path, request: pytest.FixtureRequest) -> AsyncIterator[World]:
    """Its clock runs as fast as `@pytest.mark.speed` says, for what takes seconds by the bot's clock."""
    speed = request.node.get_closest_marker("speed")
    async with scene(tmp_path, clock=LeapClock(*speed.args) if speed else None) as made:
        yield made


@pytest.fixture
def port() -> Iterator[int]:
    """See `reserved_port`."""
    with reserved_port() as reserved:
        yield reserved

"""Which tests run when: three tiers, decided here for all tests.

`make test-fast` runs those marked `fast`, `make test` those not marked `long`, `make test-all` everything; a test
marked `slow` runs in none of them. `long` is a marker at a test that is slow by nature. `fast` is given here: to a test
of FAST_FOLDERS that took little time when it was recorded in tiers.json, and whose file and fixtures start no process.

    python -m pytest -p no:xdist --record-tiers tests/nn    # record the tests of a folder again
"""

from __future__ import annotations

import json
import multiprocessing.process
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

TESTS = Path(__file__).resolve().parent
RECORD = TESTS / "tiers.json"
FAST_FOLDERS = frozenset(("checkpoints", "data", "engine", "files", "models", "nn", "render", "tasks", "text", "verbs"))
# Seconds of CPU time, which depend less on what else runs than the time of a clock: a fast test takes less, and the
# record names those that take more.
FAST = 0.5
# Fixtures that have a browser or other processes.
PROCESS_FIXTURES = frozenset(("browser", "object_server"))
# Reading a tokenizer's file starts a short process, once for a file: any test can be the first that reads it.
TOKENIZER_CHECK = ("text", "guard.py")


class Recorder:
    """Notes the CPU time of every test, and what started a process: the test, or a fixture."""

    def __init__(self) -> None:
        self.tests: dict[str, float] = {}
        self.starts: set[str] = set()
        self.now: str | None = None
        """The test or fixture that runs; None outside of both."""


_recorder = Recorder()
_forbidden = False


def _process_started(what: str) -> None:
    if _recorder.now is None:
        return
    _recorder.starts.add(_recorder.now)
    if _forbidden:
        pytest.fail(
            f"`make test-fast` is without processes, and {_recorder.now} starts one ({what}): record it with "
            "`python -m pytest -p no:xdist --record-tiers FILE`"
        )


def _audit(event: str, arguments: tuple[Any, ...]) -> None:
    if event not in ("subprocess.Popen", "os.fork", "os.posix_spawn", "os.system"):
        return
    frame = sys._getframe()
    while caller := frame.f_back:
        if Path(frame.f_code.co_filename).parts[-2:] == TOKENIZER_CHECK:
            return
        frame = caller
    _process_started(event)


def key_of(item: pytest.Item) -> str:
    """The name of a test function, without its parameters."""
    return item.nodeid.split("[", 1)[0]


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--record-tiers", action="store_true", help=f"write what the tests cost to {RECORD.relative_to(TESTS.parent)}"
    )


def _fast_only(config: pytest.Config) -> bool:
    return bool(config.option.markexpr == "fast")


def pytest_configure(config: pytest.Config) -> None:
    if not (_fast_only(config) or config.option.record_tiers):
        return
    global _forbidden
    _forbidden = _fast_only(config)
    sys.addaudithook(_audit)
    start = multiprocessing.process.BaseProcess.start

    def reported_start(process: multiprocessing.process.BaseProcess) -> None:
        _process_started("multiprocessing")
        start(process)

    multiprocessing.process.BaseProcess.start = reported_start  # type: ignore[method-assign]


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """The inner loop does not import tests that it does not run."""
    if not _fast_only(config) or TESTS not in collection_path.parents:
        return None
    return True if collection_path.relative_to(TESTS).parts[0] not in FAST_FOLDERS else None


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    record = json.loads(RECORD.read_text(encoding="utf-8"))
    slower, files = set(record["seconds"]), set(record["files that start processes"])
    fixtures = PROCESS_FIXTURES | set(record["fixtures that start processes"])
    for item in items:
        key = key_of(item)
        if (
            item.path.relative_to(TESTS).parts[0] in FAST_FOLDERS
            and key not in slower
            and key.split("::")[0] not in files
            and fixtures.isdisjoint(getattr(item, "fixturenames", ()))
            and not any(item.get_closest_marker(name) for name in ("long", "slow"))
        ):
            item.add_marker("fast")


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Iterator[None]:
    key, before = key_of(item), sum(os.times()[:4])
    _recorder.now = key
    try:
        return (yield)
    finally:
        _recorder.now = None
        _recorder.tests[key] = max(_recorder.tests.get(key, 0.0), sum(os.times()[:4]) - before)


@pytest.hookimpl(wrapper=True)
def pytest_fixture_setup(fixturedef: pytest.FixtureDef[Any]) -> Iterator[None]:
    """What a fixture of several tests starts is not the work of the test that happens to be the first."""
    before = _recorder.now
    if fixturedef.scope != "function":
        _recorder.now = fixturedef.argname
    try:
        return (yield)
    finally:
        _recorder.now = before


def pytest_sessionfinish(session: pytest.Session) -> None:
    """Update the record with the tests that ran.

    A file stays on the list once it was seen to start a process: whether a test does can depend on what ran before it,
    as with a tokenizer that is checked once.
    """
    if not session.config.option.record_tiers:
        return
    record = json.loads(RECORD.read_text(encoding="utf-8"))
    ran = _recorder.tests
    seconds = {key: value for key, value in record["seconds"].items() if key not in ran}
    seconds |= {key: round(value, 1) for key, value in ran.items() if value >= FAST}
    starts = {name.split("::")[0] for name in _recorder.starts}
    files = {name for name in starts if name.endswith(".py")}
    updated = {
        "seconds": dict(sorted(seconds.items())),
        "files that start processes": sorted(files.union(record["files that start processes"])),
        "fixtures that start processes": sorted((starts - files).union(record["fixtures that start processes"])),
    }
    RECORD.write_text(json.dumps(updated, indent=1) + "\n", encoding="utf-8")

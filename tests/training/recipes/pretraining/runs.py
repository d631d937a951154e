"""Small runs for tests: a text with simple rules, and settings for runs of about a second.

`Launcher` runs `regard` in separate processes, which tests can kill. They are forked from a process that has already
imported everything, because the imports take longer than such a run.
"""

from __future__ import annotations

import itertools
import json
import os
import random
import socket
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from regard.training import speed, trainer
from regard.training.recipes.pretraining.config import PretrainingConfig
from regard.training.recipes.pretraining.recipe import LanguageModelRecipe
from regard.training.settings import parse_budget

__all__ = [
    "SMALL",
    "STEPS",
    "Launcher",
    "Process",
    "command",
    "config",
    "events",
    "exit_codes",
    "ignore_preparation",
    "losses",
    "settings",
    "start_processes",
    "step_clock",
    "story",
    "use_fast_run_settings",
    "wait_for_steps",
]

NOUNS = ["river", "city", "teacher", "garden", "engine", "letter", "winter", "market", "village", "painter"]
VERBS = ["follows", "remembers", "paints", "crosses", "builds", "forgets", "answers", "watches"]
STEPS = 12
PROCESS_TIMEOUT = 100.0  # timeout of a process in seconds

SMALL = {
    "model.hidden_size": 32,
    "model.num_hidden_layers": 2,
    "model.num_attention_heads": 2,
    "model.intermediate_size": 64,
    "model.max_position_embeddings": 32,
    "vocabulary.vocab_size": 120,
    "data.max_length": 32,
    "data.tokens_per_batch": 256,
    "objective.sentence_pairs": "order",  # evaluating "next" would take longer than everything else
    "optimizer.learning_rate": 0.01,
    "schedule.max_steps": STEPS,
    "run.checkpoint_every": "4 steps",
    "run.evaluate_every": "",
}


def story(documents: int = 120, *, seed: int = 0) -> str:
    """Documents of a few paragraphs. The subject determines the verb, and the verb determines the object."""
    rng = random.Random(seed)

    def sentence() -> str:
        actor = rng.randrange(len(NOUNS))
        act = (actor + rng.randrange(2)) % len(VERBS)
        return f"The {NOUNS[actor]} {VERBS[act]} the {NOUNS[-1 - act]}."

    def paragraph() -> str:
        return " ".join(sentence() for _ in range(rng.randrange(2, 6)))

    return "\n\n".join("\n".join(paragraph() for _ in range(rng.randrange(1, 4))) for _ in range(documents)) + "\n"


def settings(family: str = "bert", **changed: object) -> list[str]:
    """SMALL as values of --set, with changes such as `data_tokens_per_micro_batch=128`."""
    values = {key: value for key, value in SMALL.items() if family == "bert" or not key.startswith("objective.")}
    if family == "elmo":
        del values["model.num_attention_heads"]
    values |= {"vocabulary.vocab_size": {"gpt": 300, "t5": 400}[family]} if family in ("gpt", "t5") else {}
    values |= {key.replace("_", ".", 1): value for key, value in changed.items()}
    return [f"{key}={value}" for key, value in values.items()]


def config(family: str = "bert", **changed: object) -> PretrainingConfig:
    return PretrainingConfig.read(family=family, overrides=settings(family, **changed))


def command(sources: Path, output: Path, *more: str, family: str = "bert", **changed: object) -> list[str]:
    """The arguments of `regard` for a run on the CPU."""
    values = [part for value in settings(family, **changed) for part in ("--set", value)]
    return ["pretrain", family, "-c", str(sources), "-o", str(output), "--device", "cpu", *values, *more]


def use_fast_run_settings() -> None:
    """Shorten the measurements before a run and log every step."""
    speed.SECONDS, trainer.LOG_EVERY = 0.0, 0.0
    speed.SIDE["cpu"] = 64


def ignore_preparation(monkeypatch: pytest.MonkeyPatch) -> None:
    """Leave the whole budget to the training, however long the preparation takes on a busy machine."""

    def seconds_left(self: LanguageModelRecipe) -> float:
        return parse_budget(self.config.schedule.budget)

    monkeypatch.setattr(LanguageModelRecipe, "seconds_left", seconds_left)


def step_clock(monkeypatch: pytest.MonkeyPatch, seconds: float = 0.005) -> None:
    """A clock that goes on by so many seconds whenever it is read, as on a machine that is never busy."""
    ticks = itertools.count()
    monkeypatch.setattr(time, "perf_counter", lambda: next(ticks) * seconds)


def events(output: Path, kind: str | None = None) -> list[dict[str, Any]]:
    """All events in the log of a run, or those of one kind; a line that is being written is not read."""
    path = output / "events.jsonl"
    written = path.read_text(encoding="utf-8") if path.is_file() else ""
    found = [json.loads(line) for line in written.splitlines(keepends=True) if line.endswith("\n")]
    return [event for event in found if kind in (None, event["type"])]


def losses(output: Path) -> dict[int, list[tuple[float, ...]]]:
    """The logged losses of each step; a resumed run may log a step more than once."""
    found: dict[int, list[tuple[float, ...]]] = {}
    for event in events(output, "step"):
        values = (event["loss"], *event["losses"].values(), event["grad_norm"], event["learning_rate"])
        found.setdefault(event["step"], []).append(values)
    return found


def wait_for_steps(output: Path, count: int, before: int = 0) -> None:
    """Wait until the log has `count` steps more than `before`, or the run has ended."""
    deadline = time.monotonic() + PROCESS_TIMEOUT
    while len(events(output, "step")) < before + count and not events(output, "finished"):
        assert time.monotonic() < deadline, "the run does not begin"
        time.sleep(0.005)


SERVER = """
import importlib, json, os, resource, signal, sys
import regard.cli.app
import torch._dynamo  # the first optimizer would import it
from tests.crashes import kill_after
from tests.training.recipes.pretraining.runs import use_fast_run_settings

def serve(arguments, errors, environment, largest, actions, counted):
    signal.signal(signal.SIGINT, signal.default_int_handler)
    os.environ.update(environment)
    if largest:
        resource.setrlimit(resource.RLIMIT_FSIZE, (largest, largest))
    null, file = os.open(os.devnull, os.O_RDWR), os.open(errors, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
    for mine, theirs in ((null, 0), (file, 1), (file, 2)):
        os.dup2(mine, theirs)
    count = kill_after(actions) if counted else None
    code = regard.cli.app.run(arguments)
    if count is not None:
        with open(counted, "w") as file:
            print(count(), file=file)
    return code

use_fast_run_settings()
for module in sys.argv[1:]:
    importlib.import_module(module)
running = set()
for line in sys.stdin:
    request = json.loads(line)
    if isinstance(request, int):
        ended, status = os.waitpid(request, os.WNOHANG)
        running.discard(ended)
        print(json.dumps(os.waitstatus_to_exitcode(status) if ended else None), flush=True)
        continue
    child = os.fork()
    if not child:
        code = 99
        try:
            code = serve(**request)
        finally:
            os._exit(code)
    running.add(child)
    print(child, flush=True)
for child in running:  # left over by a failed test
    os.kill(child, signal.SIGKILL)
"""


class Process:
    """A process that runs `regard`; `printed` is its output."""

    def __init__(self, launcher: Launcher, pid: int, errors: Path) -> None:
        self.launcher, self.pid, self.errors = launcher, pid, errors

    @property
    def printed(self) -> str:
        return self.errors.read_text(encoding="utf-8")

    def wait(self) -> int:
        """Wait for the exit code; it is the negative signal number if the process was killed."""
        deadline = time.monotonic() + PROCESS_TIMEOUT
        while (code := self.launcher.request(self.pid)) is None:
            assert time.monotonic() < deadline, f"the process does not end; its output: {self.printed}"
            time.sleep(0.005)
        return code


class Launcher:
    """Starts single-threaded processes that have `modules` imported already. Call `close` at the end."""

    def __init__(self, folder: Path, *modules: str) -> None:
        self.folder, self.count = folder, 0
        self.server = subprocess.Popen(
            [sys.executable, "-c", SERVER, *modules],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env=_environment(),
        )

    def start(
        self,
        arguments: Sequence[str],
        *,
        environment: Mapping[str, str] | None = None,
        largest: int = 0,
        actions: int | None = None,
        counted: Path | None = None,
    ) -> Process:
        """Run `regard` with these arguments; `largest` is the maximum file size in bytes.

        With `counted`, a process that ends normally writes its number of disk operations to that file; after `actions`
        operations it is killed.
        """
        self.count += 1
        errors = self.folder / f"printed-{self.count}.txt"
        request: dict[str, Any] = {
            "arguments": list(arguments),
            "errors": str(errors),
            "environment": dict(environment or {}),
        }
        request |= {"actions": actions, "counted": str(counted or "")}
        pid = self.request({**request, "largest": largest})
        assert pid is not None
        return Process(self, pid, errors)

    def run(self, arguments: Sequence[str], **options: Any) -> tuple[int, str]:
        process = self.start(arguments, **options)
        return process.wait(), process.printed

    def request(self, message: object) -> int | None:
        assert self.server.stdin is not None and self.server.stdout is not None
        self.server.stdin.write(json.dumps(message) + "\n")
        self.server.stdin.flush()
        answer: int | None = json.loads(self.server.stdout.readline())
        return answer

    def close(self) -> None:
        assert self.server.stdin is not None
        self.server.stdin.close()
        self.server.wait()


def _environment() -> dict[str, str]:
    paths = [str(Path(__file__).parents[4]), os.environ.get("PYTHONPATH", "")]
    return {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": os.pathsep.join(filter(None, paths))}


def start_processes(
    launcher: Launcher, arguments: Sequence[str], *, size: int = 2, largest: Sequence[int] = ()
) -> list[Process]:
    """Start processes with the environment variables of `torchrun`; `largest` is the file size limit of each."""
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        common = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(found.getsockname()[1]), "WORLD_SIZE": str(size)}
    return [
        launcher.start(
            arguments,
            environment={**common, "RANK": str(rank), "LOCAL_RANK": str(rank)},
            largest=largest[rank] if largest else 0,
        )
        for rank in range(size)
    ]


def exit_codes(processes: Sequence[Process]) -> list[int]:
    return [process.wait() for process in processes]

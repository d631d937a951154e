"""Resuming runs that were killed and whose files were damaged at random.

Each trial starts a run of a verb, kills it at some disk operation, flips a bit of up to three of its files or
truncates them, and resumes it; a corpus may also be damaged before the run starts. The result must equal that of an
undisturbed run, bit for bit, or be an error that names a damaged file; in the latter case the run must continue once
that file is restored.

    REGARD_DAMAGE_SECONDS=600   duration of the test; the default is 60
    REGARD_DAMAGE_SEED=1234     repeats the trials of an earlier run; 1234:7 repeats one of them
"""

from __future__ import annotations

import json
import os
import random
import shutil
import signal
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from regard.files.disk import COMMITTED
from tests.inference.translation.conftest import SMALL as SMALL_TRANSLATOR
from tests.inference.translation.conftest import sentences
from tests.training.recipes.finetuning.conftest import reviews
from tests.training.recipes.pretraining.runs import Launcher, command, story

SECONDS = float(os.environ.get("REGARD_DAMAGE_SECONDS", "60"))
SEED = os.environ.get("REGARD_DAMAGE_SEED", "")
MODULES = (
    "regard.training.recipes.pretraining.run",
    "regard.training.recipes.finetuning.run",
    "regard.training.recipes.translation.recipe",
    "regard.inference.embedding",
)


@dataclass(frozen=True)
class Scenario:
    """A verb with its arguments. `begin` fills an empty folder with the inputs that may be damaged."""

    arguments: Callable[[Path], list[str]]
    resumes: Callable[[Path], bool]  # whether the command needs --resume now
    results: tuple[str, ...]  # files that must be the same, below the folder
    begin: Callable[[Path], object] = lambda folder: None

    def command(self, folder: Path) -> list[str]:
        return self.arguments(folder) + (["--resume"] if self.resumes(folder) else [])

    def result(self, folder: Path) -> dict[str, Any]:
        return {name: _content(folder / name) for name in self.results}


def _content(path: Path) -> object:
    """The bytes of a file; for a report, everything except durations."""
    if path.name != "report.json":
        return path.read_bytes()
    return json.loads(path.read_bytes(), object_hook=lambda found: {k: v for k, v in found.items() if k != "seconds"})


def has_checkpoint(folder: Path) -> bool:
    return bool(list(folder.glob("run/checkpoints/step-*")))


def has_begun(folder: Path) -> bool:
    run = folder / "run"
    return (run / "regard.json").is_file() and any((run / name).exists() for name in ("seeds", "work", "report.json"))


@pytest.fixture(scope="module")
def scenarios(tmp_path_factory: pytest.TempPathFactory, tiny_bert_folder: Path) -> dict[str, Scenario]:
    inputs = tmp_path_factory.mktemp("inputs")
    (inputs / "story.txt").write_text(story(60), encoding="utf-8")
    (inputs / "train.tsv").write_text(reviews(48), encoding="utf-8")
    (inputs / "dev.tsv").write_text(reviews(16, seed=1), encoding="utf-8")
    (inputs / "texts.txt").write_text("".join(f"{pair.source}\n" for pair in sentences(60)), encoding="utf-8")
    for name, pairs in (("train", sentences(60)), ("dev", sentences(12, seed=1))):
        (inputs / f"{name}.de").write_text("".join(f"{pair.target}\n" for pair in pairs), encoding="utf-8")
        (inputs / f"{name}.en").write_text("".join(f"{pair.source}\n" for pair in pairs), encoding="utf-8")

    def build(folder: Path) -> None:
        from regard.data.corpus import build_corpus, train_tokenizer

        lines = (inputs / "story.txt").read_text(encoding="utf-8").splitlines()
        tokenizer = train_tokenizer(lines, size=120, max_length=32)
        build_corpus(inputs / "story.txt", folder, tokenizer=tokenizer, shard_bytes=3000)

    build(inputs / "corpus")
    tuning = [
        "training.num_epochs=2",
        "training.batch_size=8",
        "training.learning_rate=3e-3",
        "training.max_length=32",
        "run.num_seeds=2",
    ]
    tuning += ["run.checkpoint_every=4 steps"]
    translating = [*SMALL_TRANSLATOR, "training.num_epochs=2", "run.checkpoint_every=3 steps"]

    def sets(values: list[str]) -> list[str]:
        return [part for value in values for part in ("--set", value)]

    pair = [str(inputs / "train.en"), str(inputs / "train.de")]
    dev_files = [str(inputs / "dev.en"), str(inputs / "dev.de")]
    pretrained = ("run/model.safetensors", "run/config.json", "run/tokenizer.json", "run/report.json")
    pretrained += ("run/checkpoints/step-000000012/model.safetensors",)
    return {
        "pretrain": Scenario(
            lambda folder: command(inputs / "story.txt", folder / "run"),
            has_checkpoint,
            (*pretrained, "run/corpus/shard-000000/tokens.bin"),
        ),
        "pretrain on a corpus": Scenario(
            lambda folder: command(folder / "corpus", folder / "run"),
            has_checkpoint,
            pretrained,
            lambda folder: shutil.copytree(inputs / "corpus", folder / "corpus"),
        ),
        "train classify": Scenario(
            lambda folder: [
                *("train", "classify", "--train", str(inputs / "train.tsv"), "--dev", str(inputs / "dev.tsv")),
                *("--model", str(tiny_bert_folder), "--output", str(folder / "run"), "--device", "cpu", *sets(tuning)),
            ],
            has_begun,
            ("run/model.safetensors", "run/config.json", "run/tokenizer.json", "run/task.json", "run/report.json"),
        ),
        "train translate": Scenario(
            lambda folder: [
                *("train", "translate", "--train", *pair, "--dev", *dev_files, "--output", str(folder / "run")),
                *("--device", "cpu", *sets(translating)),
            ],
            has_begun,
            ("run/model.safetensors", "run/config.json", "run/tokenizer.json", "run/translate.json", "run/report.json"),
        ),
        "embed": Scenario(
            lambda folder: [
                *("embed", str(inputs / "texts.txt"), "--model", str(tiny_bert_folder), "--shard-size", "9"),
                *("--output", str(folder / "out.npz"), "--device", "cpu"),
            ],
            lambda folder: False,
            ("out.npz", "out.npz.regard.json"),
        ),
    }


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Launcher]:
    launcher = Launcher(tmp_path_factory.mktemp("output"), *MODULES)
    yield launcher
    launcher.close()


@dataclass(frozen=True)
class Undisturbed:
    """The result of an undisturbed run and its number of disk operations."""

    result: dict[str, Any]
    actions: int


@dataclass
class Trial:
    """One run that is killed, damaged and resumed; `story` lists what happened, for the failure message."""

    launcher: Launcher
    scenario: Scenario
    undisturbed: Undisturbed
    folder: Path
    chance: random.Random
    story: list[str]

    def run(self, actions: int | None = None) -> tuple[int, str]:
        counted = self.folder.with_name("actions")
        code, output = self.launcher.run(self.scenario.command(self.folder), actions=actions, counted=counted)
        self.story.append(f"killed at action {actions}" if code == -signal.SIGKILL else f"ended with {code}: {output}")
        return code, output

    def damage(self) -> dict[Path, bytes]:
        """Flips one bit of some files or truncates them; returns their original contents.

        Files with the same name count as one: otherwise many small files of a folder would dominate the choice.
        """
        files: dict[str, list[Path]] = {}
        for path in sorted(self.folder.rglob("*")):
            if path.is_file() and path.name != "lock":
                files.setdefault(path.name, []).append(path)
        names = self.chance.sample(sorted(files), min(self.chance.randrange(1, 4), len(files)))
        chosen = [self.chance.choice(files[name]) for name in names]
        return {path: self._damage(path) for path in chosen}

    def _damage(self, path: Path) -> bytes:
        good = path.read_bytes()
        offset = self.chance.randrange(max(len(good), 1))
        if good and self.chance.random() < 0.6:
            bit = self.chance.randrange(8)
            path.write_bytes(good[:offset] + bytes([good[offset] ^ 1 << bit]) + good[offset + 1 :])
            self.story.append(f"flipped bit {bit} of byte {offset:,} of {path}")
        else:
            path.write_bytes(good[:offset])
            self.story.append(f"cut {path} from {len(good):,} to {offset:,} bytes")
        return good

    def go(self) -> str:
        """Runs the trial and returns its outcome: "equal" or "refused"."""
        self.scenario.begin(self.folder)
        early = any(self.folder.iterdir()) and self.chance.random() < 0.5
        for _ in range(0 if early else self.chance.randrange(1, 3)):
            # Sometimes to its end: a finished run can be damaged too.
            code, _ = self.run(self.chance.randrange(int(1.15 * self.undisturbed.actions)))
            assert code in (0, -signal.SIGKILL), "a run that was only killed must go on"
        ended = "equal"
        damaged = self.damage() if early or self.chance.random() < 0.9 else {}
        while (code_and_output := self.run())[0]:
            code, output = code_and_output
            assert code in (1, 2) and "Traceback" not in output, "damage must be an error message"
            # What a killed process had saved beside the folder's files, the next one has moved into their places.
            named = {path: place for path in damaged for place in (moved(path), path) if str(place) in output}
            assert named, "the error must name a damaged file"
            for path, place in named.items():
                place.parent.mkdir(parents=True, exist_ok=True)
                place.write_bytes(damaged.pop(path))
                self.story.append(f"put {place} back")
            ended = "refused"
        result = self.scenario.result(self.folder)
        different = [name for name, content in self.undisturbed.result.items() if result[name] != content]
        assert not different, f"not what an undisturbed run writes: {', '.join(different)}"
        return ended


def moved(path: Path) -> Path:
    """Where a file is moved to when a save is completed."""
    return path if COMMITTED not in path.parts else Path(*(part for part in path.parts if part != COMMITTED))


@pytest.mark.long
@pytest.mark.timeout(SECONDS + 300)
def test_killed_and_damaged_runs_give_the_same_result_or_name_the_damage(
    runs: Launcher, scenarios: dict[str, Scenario], tmp_path: Path
) -> None:
    seed, _, only = (SEED or str(random.SystemRandom().randrange(10**9))).partition(":")
    print(f"REGARD_DAMAGE_SEED={seed}")
    undisturbed: dict[str, Undisturbed] = {}
    ends: list[tuple[str, str]] = []
    deadline, number = time.monotonic() + SECONDS, int(only or 0)
    while not ends or (time.monotonic() < deadline and not only):
        chance = random.Random(f"{seed}:{number}")
        # All verbs in turn, so that a short test covers each of them; the first one is random.
        names = random.Random(seed).sample(sorted(scenarios), len(scenarios))
        name = names[number % len(names)]
        scenario, folder = scenarios[name], tmp_path / f"{number}" / "trial"
        folder.mkdir(parents=True)
        if name not in undisturbed:
            whole = tmp_path / name.replace(" ", "-")
            whole.mkdir()
            scenario.begin(whole)
            code, output = runs.run(scenario.command(whole), counted=tmp_path / "actions")
            assert code == 0, output
            undisturbed[name] = Undisturbed(scenario.result(whole), int((tmp_path / "actions").read_text()))
        trial = Trial(runs, scenario, undisturbed[name], folder, chance, [])
        try:
            ends.append((name, trial.go()))
        except BaseException as error:  # also a time limit
            error.add_note("\n  ".join([f"repeat it with REGARD_DAMAGE_SEED={seed}:{number}", name, *trial.story]))
            raise
        shutil.rmtree(folder.parent)
        number += 1
    print({name: [end for one, end in ends if one == name] for name in scenarios})

"""Runs that are killed and whose files are damaged at random, and then resumed.

Each trial starts a run of some verb, kills it at some action on the disk, flips a bit of up to three of its files or
cuts them short, and resumes it; where a run reads a corpus, that may be damaged before the run begins. The result must
be that of an undisturbed run, bit for bit, or an error that names a damaged file; in the latter case the run must go on
once that file is put back.

    REGARD_DAMAGE_SECONDS=600   how long to go on; by default 60
    REGARD_DAMAGE_SEED=1234     the trials of an earlier run; 1234:7 is one of them
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

from tests.inference.translation.conftest import SMALL as SMALL_TRANSLATOR
from tests.inference.translation.conftest import sentences
from tests.training.finetuning.conftest import reviews
from tests.training.pretraining.runs import Launcher, command, story

SECONDS = float(os.environ.get("REGARD_DAMAGE_SECONDS", "60"))
SEED = os.environ.get("REGARD_DAMAGE_SEED", "")
MODULES = (
    "regard.training.pretraining.run",
    "regard.training.finetuning.run",
    "regard.training.translation.run",
    "regard.inference.embedding",
)


@dataclass(frozen=True)
class Scenario:
    """A verb with its arguments. `begin` puts into an empty folder what the run may have damaged, beside its output."""

    arguments: Callable[[Path], list[str]]
    resumes: Callable[[Path], bool]  # whether the command needs --resume now
    results: tuple[str, ...]  # files that must be the same, below the folder
    begin: Callable[[Path], object] = lambda folder: None

    def command(self, folder: Path) -> list[str]:
        return self.arguments(folder) + (["--resume"] if self.resumes(folder) else [])

    def result(self, folder: Path) -> dict[str, Any]:
        return {name: _content(folder / name) for name in self.results}


def _content(path: Path) -> object:
    """The bytes of a file; of a report all but the seconds that things took."""
    if path.name != "report.json":
        return path.read_bytes()
    return json.loads(path.read_bytes(), object_hook=lambda found: {k: v for k, v in found.items() if k != "seconds"})


def has_checkpoint(folder: Path) -> bool:
    return bool(list(folder.glob("run/checkpoints/step-*")))


def has_begun(folder: Path) -> bool:
    run = folder / "run"
    return (run / "run.json").is_file() and any((run / name).exists() for name in ("seeds", "work", "report.json"))


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
    judged = [str(inputs / "dev.en"), str(inputs / "dev.de")]
    pretrained = ("run/model.safetensors", "run/config.json", "run/tokenizer.json", "run/checksums.json")
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
                *("train", "translate", "--train", *pair, "--dev", *judged, "--output", str(folder / "run")),
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
    launcher = Launcher(tmp_path_factory.mktemp("said"), *MODULES)
    yield launcher
    launcher.close()


@dataclass(frozen=True)
class Undisturbed:
    """What a run comes to that nothing happens to, and how many actions on the disk it takes."""

    result: dict[str, Any]
    actions: int


@dataclass
class Trial:
    """One run that is killed, damaged and resumed; `story` is what happened, for the message of a failure."""

    launcher: Launcher
    scenario: Scenario
    undisturbed: Undisturbed
    folder: Path
    chance: random.Random
    story: list[str]

    def run(self, actions: int | None = None) -> tuple[int, str]:
        counted = self.folder.with_name("actions")
        code, said = self.launcher.run(self.scenario.command(self.folder), actions=actions, counted=counted)
        self.story.append(f"killed at action {actions}" if code == -signal.SIGKILL else f"ended with {code}: {said}")
        return code, said

    def damage(self) -> dict[Path, bytes]:
        """Flip one bit of some files or cut them short; returns what they were before.

        Files of one name count as one: else the many small files of a folder would keep the others from being chosen.
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
        place = self.chance.randrange(max(len(good), 1))
        if good and self.chance.random() < 0.6:
            bit = self.chance.randrange(8)
            path.write_bytes(good[:place] + bytes([good[place] ^ 1 << bit]) + good[place + 1 :])
            self.story.append(f"flipped bit {bit} of byte {place:,} of {path}")
        else:
            path.write_bytes(good[:place])
            self.story.append(f"cut {path} from {len(good):,} to {place:,} bytes")
        return good

    def go(self) -> str:
        """Returns how it ended: "equal" or "refused"."""
        self.scenario.begin(self.folder)
        early = any(self.folder.iterdir()) and self.chance.random() < 0.5
        for _ in range(0 if early else self.chance.randrange(1, 3)):
            # Now and then to its end: a finished run can be damaged too.
            code, _ = self.run(self.chance.randrange(int(1.15 * self.undisturbed.actions)))
            assert code in (0, -signal.SIGKILL), "a run that was only killed must go on"
        ended = "equal"
        damaged = self.damage() if early or self.chance.random() < 0.9 else {}
        while (code_said := self.run())[0]:
            code, said = code_said
            assert code in (1, 2) and "Traceback" not in said, "damage must be an error in words"
            named = [path for path in damaged if str(path) in said]
            assert named, "the error must name a damaged file"
            for path in named:
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_bytes(damaged.pop(path))
                self.story.append(f"put {path} back")
            ended = "refused"
        result = self.scenario.result(self.folder)
        different = [name for name, content in self.undisturbed.result.items() if result[name] != content]
        assert not different, f"not what an undisturbed run writes: {', '.join(different)}"
        return ended


@pytest.mark.timeout(SECONDS + 300)
def test_killed_and_damaged_runs_come_to_the_same_or_name_the_damage(
    runs: Launcher, scenarios: dict[str, Scenario], tmp_path: Path
) -> None:
    seed, _, only = (SEED or str(random.SystemRandom().randrange(10**9))).partition(":")
    print(f"REGARD_DAMAGE_SEED={seed}")
    undisturbed: dict[str, Undisturbed] = {}
    ends: list[tuple[str, str]] = []
    deadline, number = time.monotonic() + SECONDS, int(only or 0)
    while not ends or (time.monotonic() < deadline and not only):
        chance = random.Random(f"{seed}:{number}")
        # All verbs in turn, so that a short run sees each of them; which one comes first is chance too.
        names = random.Random(seed).sample(sorted(scenarios), len(scenarios))
        name = names[number % len(names)]
        scenario, folder = scenarios[name], tmp_path / f"{number}" / "trial"
        folder.mkdir(parents=True)
        if name not in undisturbed:
            whole = tmp_path / name.replace(" ", "-")
            whole.mkdir()
            scenario.begin(whole)
            code, said = runs.run(scenario.command(whole), counted=tmp_path / "actions")
            assert code == 0, said
            undisturbed[name] = Undisturbed(scenario.result(whole), int((tmp_path / "actions").read_text()))
        trial = Trial(runs, scenario, undisturbed[name], folder, chance, [])
        try:
            ends.append((name, trial.go()))
        except AssertionError as error:
            told = "\n  ".join([name, *trial.story])
            pytest.fail(f"{error}\nrepeat it with REGARD_DAMAGE_SEED={seed}:{number}\n  {told}")
        shutil.rmtree(folder.parent)
        number += 1
    print({name: [end for one, end in ends if one == name] for name in scenarios})

"""Complete translation runs: output files, learning, and bit-identical results after interruptions."""

from __future__ import annotations

import json
import os
import re
import signal
from collections.abc import Callable, Mapping
from dataclasses import asdict
from itertools import islice
from pathlib import Path
from typing import Any
from zipfile import ZipFile

import pytest

import regard
from regard.data.readers import ExampleSet
from regard.data.translation_pairs import TranslationPair, read_translation_pairs
from regard.errors import InputError, RegardError
from regard.inference.generation.beam_search import Beam
from regard.inference.translation.translator import bleu, load_translator
from regard.training.recipes.translation.recipe import TranslationReport
from tests.inference.translation.conftest import sentences

Tune = Callable[..., TranslationReport]


class Crash(BaseException):
    """Stands for a power failure."""


def crash_after(after: int, *, kind: str = "step") -> Callable[[Mapping[str, Any]], None]:
    count = 0

    def on_event(event: Any) -> None:
        nonlocal count
        count += event.type == kind
        if count == after:
            raise Crash

    return on_event


def weights(folder: Path) -> bytes:
    return (folder / "model.safetensors").read_bytes()


def history(report: TranslationReport) -> tuple[Any, ...]:
    outcome = report.outcome
    return outcome.scores, outcome.epochs, outcome.steps, outcome.history, outcome.average


def test_a_translator_is_trained_and_saved(tune: Tune, tmp_path: Path) -> None:
    pairs = sentences(420)
    data = {"train": ExampleSet(pairs[:400], "train", "generated"), "dev": ExampleSet(pairs[400:], "dev", "generated")}
    settings = (
        "vocabulary.vocab_size=330",
        "model.hidden_size=32",
        "model.intermediate_size=64",
        "model.dropout=0.0",
        "training.num_epochs=9",
    )
    steps = ("training.tokens_per_batch=120", "training.learning_rate=8e-3", "training.warmup_steps=60")
    report = tune(tmp_path / "run", *settings, *steps, **data)
    assert report.outcome.scores["bleu"] > 30
    translator = load_translator(tmp_path / "run")
    found = translator.translate([pair.source for pair in pairs[400:]])
    score = bleu([one[0].text for one in found], [pair.target for pair in pairs[400:]])
    assert score.scores == report.outcome.scores
    assert report.signature == {"bleu": score.signature, "bleu_lowercase": score.signature_lowercase}


def test_files_of_a_run_folder(tune: Tune, tmp_path: Path, data: dict[str, ExampleSet[TranslationPair]]) -> None:
    events: list[Any] = []
    report = tune(tmp_path / "run", on_event=events.append)
    names = {path.name for path in (tmp_path / "run").iterdir()}
    assert {"config.json", "model.safetensors", "tokenizer.json", "translate.json", "report.json"} <= names
    assert {"config.toml", "regard.json", "events.jsonl"} <= names and "work" not in names
    document = json.loads((tmp_path / "run" / "report.json").read_text())
    assert (
        report.to_dict() == {"output": str(tmp_path / "run"), **document} and document["data"]["train"]["pairs"] == 80
    )
    assert TranslationReport(output=str(tmp_path / "run"), **document) == report
    logged = [json.loads(line) for line in (tmp_path / "run" / "events.jsonl").read_text().splitlines()]
    emitted = [event.model_dump(exclude_none=True) for event in events]
    assert [{k: v for k, v in line.items() if k != "time"} for line in logged] == emitted[-len(logged) :]
    evaluations = [event.scores["bleu"] for event in events if event.type == "evaluation"]
    assert evaluations == [scores["bleu"] for scores in report.outcome.history] and len(evaluations) == 3
    [average] = [event for event in events if event.type == "average"]
    assert average.epochs == [2, 3] and average.scores["bleu"] == report.outcome.average["bleu"]
    steps = [event for event in events if event.type == "step"]
    assert [event.step for event in steps] == list(range(1, report.outcome.steps + 1))
    assert steps[-1].steps == len(steps)
    assert steps[4].learning_rate < steps[5].learning_rate > steps[-1].learning_rate


def test_the_better_of_best_and_average_is_saved(tune: Tune, tmp_path: Path) -> None:
    best = tune(tmp_path / "best", "training.num_epochs=4")
    average = tune(tmp_path / "average", "training.num_epochs=4", "training.select=average")
    assert average.outcome.history == best.outcome.history
    assert average.outcome.epochs == [3, 4] and average.outcome.scores == average.outcome.average
    highest = max(scores["bleu"] for scores in best.outcome.history)
    assert best.outcome.scores["bleu"] == max(highest, best.outcome.average["bleu"])


@pytest.mark.parametrize("kind", ["transformer", "lstm"])
def test_a_crashed_run_resumes_bit_for_bit(tune: Tune, tmp_path: Path, kind: str) -> None:
    settings = (f"model.family={kind}", "run.checkpoint_every=3 steps")
    whole = tune(tmp_path / "whole", *settings)
    for after, what in ((4, "step"), (9, "step"), (2, "evaluation"), (1, "average")):
        with pytest.raises(Crash):
            tune(
                tmp_path / "cut", *settings, on_event=crash_after(after, kind=what), resume=(after, what) != (4, "step")
            )
    again = tune(tmp_path / "cut", *settings, resume=True)
    assert weights(tmp_path / "cut") == weights(tmp_path / "whole")
    assert history(again) == history(whole)
    assert tune(tmp_path / "cut", *settings, resume=True) == again  # the run is finished: nothing to do


def flip(path: Path) -> None:
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)


def test_a_damaged_checkpoint_is_reported_and_the_previous_one_is_used(tune: Tune, tmp_path: Path) -> None:
    settings = ("run.checkpoint_every=3 steps",)
    whole = tune(tmp_path / "whole", *settings)
    with pytest.raises(Crash):
        tune(tmp_path / "cut", *settings, on_event=crash_after(2, kind="evaluation"))
    newest = max((tmp_path / "cut" / "work" / "checkpoints").iterdir())
    flip(newest / "model.safetensors")
    events: list[Any] = []
    again = tune(tmp_path / "cut", *settings, resume=True, on_event=events.append)
    [passed] = [event for event in events if event.type == "note" and "damaged" in event.message]
    assert str(newest / "model.safetensors") in passed.message
    assert weights(tmp_path / "cut") == weights(tmp_path / "whole") and history(again) == history(whole)


def test_other_damage_is_reported(tune: Tune, tmp_path: Path) -> None:
    with pytest.raises(Crash):
        tune(tmp_path / "cut", on_event=crash_after(1, kind="average"))
    work = tmp_path / "cut" / "work"
    good = (work / "subwords" / "tokenizer.json").read_bytes()
    flip(work / "subwords" / "tokenizer.json")
    with pytest.raises(InputError, match=r"subwords/tokenizer\.json.*--resume"):
        tune(tmp_path / "cut", resume=True)
    (work / "subwords" / "tokenizer.json").write_bytes(good)
    for saved in (work / "checkpoints").iterdir():
        flip(saved / "model.safetensors")
    with pytest.raises(RegardError, match=r"checkpoints/step-\d+/model\.safetensors"):
        tune(tmp_path / "cut", resume=True)


@pytest.mark.usefixtures("default_sigint")
def test_ctrl_c_saves_and_reports_it(tune: Tune, tmp_path: Path) -> None:
    seen: list[str] = []

    def on_event(event: Any) -> None:
        seen.append(event.type)
        if event.type == "step" and seen.count("step") == 5:
            os.kill(os.getpid(), signal.SIGINT)

    with pytest.raises(KeyboardInterrupt):
        tune(tmp_path / "run", on_event=on_event)
    assert seen[-1] == "interrupted" and seen.count("step") == 5
    resumed: list[Any] = []
    tune(tmp_path / "run", resume=True, on_event=resumed.append)
    assert [event.step for event in resumed if event.type == "resume"] == [5]
    tune(tmp_path / "whole")
    assert weights(tmp_path / "run") == weights(tmp_path / "whole")


def test_held_out_pairs_are_scored_once(tune: Tune, tmp_path: Path) -> None:
    held_out = ExampleSet(sentences(6, seed=9), "aside", "generated")
    report = tune(tmp_path / "run", test=held_out)
    found = load_translator(tmp_path / "run").translate([pair.source for pair in held_out.examples], beam=Beam())
    score = bleu([one[0].text for one in found], [pair.target for pair in held_out.examples])
    assert report.test == {"pairs": 6, "beam": 5, **asdict(score)}
    document = json.loads((tmp_path / "run" / "report.json").read_text())
    assert TranslationReport(output=str(tmp_path / "run"), **document) == report
    assert read_translation_pairs(tmp_path / "run" / "test.tsv").examples == held_out.examples


def test_patience_ends_a_run(tune: Tune, tmp_path: Path) -> None:
    report = tune(
        tmp_path / "run", "training.learning_rate=1e-6", "training.num_epochs=9", "training.early_stopping_patience=2"
    )
    assert len(report.outcome.history) == 3  # the first of equal epochs is the best


def test_folders_that_cannot_be_resumed(
    tune: Tune, tmp_path: Path, data: dict[str, ExampleSet[TranslationPair]]
) -> None:
    with pytest.raises(Crash):
        tune(tmp_path / "run", on_event=crash_after(1, kind="checkpoint"))
    with pytest.raises(InputError, match="unfinished run: continue it with --resume"):
        tune(tmp_path / "run")
    with pytest.raises(InputError, match=r"other settings or data: training\.num_epochs was 3 and is 4"):
        tune(tmp_path / "run", "training.num_epochs=4", resume=True)
    other = ExampleSet(data["dev"].examples[:-1], "dev", "generated")
    with pytest.raises(InputError, match="other settings or data: data was"):
        tune(tmp_path / "run", resume=True, dev=other)
    tune(tmp_path / "run", resume=True)
    with pytest.raises(InputError, match="holds a model, which this run would write over"):
        tune(tmp_path / "run")


def test_long_pairs_are_skipped_and_counted(
    tune: Tune, tmp_path: Path, data: dict[str, ExampleSet[TranslationPair]]
) -> None:
    events: list[Any] = []
    long = TranslationPair("dog " * 60, "Hund " * 60)
    train = ExampleSet([*data["train"].examples, long], "train", "generated")
    tune(tmp_path / "run", "training.max_length=50", train=train, on_event=events.append)
    [gone] = [event for event in events if event.type == "note" and "left out" in event.message]
    assert "1 of 81 pairs are longer than 50 tokens" in gone.message
    with pytest.raises(InputError, match="none of the 1 pairs has at most 50 tokens a side"):
        tune(
            tmp_path / "other",
            "training.max_length=50",
            "vocabulary.vocab_size=260",
            train=ExampleSet([long], "train", "generated"),
        )


def test_divergence_is_reported(tune: Tune, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from regard.training.recipes.translation.recipe import TranslationObjective

    plain = TranslationObjective.forward
    monkeypatch.setattr(
        TranslationObjective,
        "forward",
        lambda self, batch, **options: {"loss": plain(self, batch, **options)["loss"] * float("inf")},
    )
    with pytest.raises(RegardError, match=r"diverged.*training\.learning_rate"):
        tune(tmp_path / "run")


def test_subwords_of_each_language(tune: Tune, tmp_path: Path) -> None:
    tune(tmp_path / "run", "vocabulary.joint=false", "vocabulary.vocab_size=280")
    translator = load_translator(tmp_path / "run")
    assert not translator.subwords.joint
    assert translator.translate(["the dog"])[0][0].finished in (True, False)


@pytest.mark.parametrize("count", [10, 300])
def test_few_pairs_get_a_vocabulary_of_their_size(
    shared_data: Callable[[str], Path], tmp_path: Path, one_thread: None, count: int
) -> None:
    """Pairs of Tatoeba: the vocabulary shrinks, and an exact size that is too large can be corrected."""
    with ZipFile(shared_data("tatoeba-en-de/deu-eng.zip")) as archive, archive.open("deu.txt") as lines:
        rows = [line.decode().strip().split("\t") for line in islice(lines, 20_000, 20_000 + count)]
    (tmp_path / "pairs.tsv").write_text("".join(f"{row[0]}\t{row[1]}\n" for row in rows), encoding="utf-8")
    small = {"model.hidden_size": 16, "model.intermediate_size": 16, "model.num_hidden_layers": 1}
    options: dict[str, Any] = {"train": [str(tmp_path / "pairs.tsv")], "output": tmp_path / "run"}
    notes: list[str] = []
    settings = {**small, "training.num_epochs": 1}
    with pytest.raises(InputError, match=r"supports ([\d,]+) .* --set vocabulary.vocab_size=") as error:
        exact = {"vocabulary.vocab_size": 8000, "vocabulary.exact": True}
        regard.train_translator(**options, settings={**settings, **exact})
    assert not (tmp_path / "run").exists()
    size = int(re.search(r"vocab_size=(\d+)$", str(error.value))[1])  # type: ignore[index]
    regard.train_translator(**options, settings=settings, on_event=lambda event: notes.append(event.line() or ""))
    assert [note for note in notes if note.startswith(f"subwords: {size:,}, shared by both languages; the text supp")]
    assert load_translator(tmp_path / "run").subwords.target.size == size
    again = {**options, "output": tmp_path / "again"}
    regard.train_translator(**again, settings={**settings, "vocabulary.vocab_size": size})

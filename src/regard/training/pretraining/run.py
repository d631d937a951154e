"""A pretraining run from text files to a model folder: prepared, planned, trained, evaluated, and resumed at will.

Knows the order of the work and what lies in the output folder. Prints nothing: the caller is told of events.

    regard.json    the manifest: which files of the folder are the run's own
    config.toml    the settings, all of them
    events.jsonl   what happened, a line an event
    vocabulary/ corpus/ heldout/   what the text was made into
    checkpoints/   the state of the run between two steps
    config.json model.safetensors tokenizer.json ...   the model, once it is finished
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path

import torch

from regard.checkpoints import loading
from regard.checkpoints.files import refuse_foreign_files
from regard.checkpoints.files import verify as verify_folder
from regard.data.corpus import CorpusProgress as Built
from regard.data.corpus.manifest import MANIFEST as CORPUS_MANIFEST
from regard.errors import InputError
from regard.files.checksums import Verify, written_files
from regard.files.disk import atomic_write, finish_save
from regard.files.folder_lock import LOCK, lock_folder
from regard.files.output_folder import OutputManifest, foreign_entries, refuse_foreign_content
from regard.settings import check_saved_settings
from regard.text.tokenizer import TOKENIZER_FILES
from regard.training.checkpoint import Checkpoints
from regard.training.events import Events
from regard.training.pretraining.config import PretrainingConfig
from regard.training.pretraining.dataset import (
    CORPUS,
    HELD_OUT,
    ORIGIN,
    VOCABULARY,
    Dataset,
    Said,
    open_dataset,
    prepare,
)
from regard.training.pretraining.scores import refuse_short
from regard.training.pretraining.trainer import CHECKPOINTS, Pretrainer, PretrainingResult
from regard.training.run_folder import model_saved
from regard.training.world import joined

__all__ = ["CONFIG", "PretrainingResult", "pretrain"]

CONFIG, EVENTS, MODEL = "config.toml", "events.jsonl", "config.json"
FILES = OutputManifest(
    "pretraining run",
    (
        LOCK,
        CONFIG,
        EVENTS,
        f"{VOCABULARY}/",
        *(f"{VOCABULARY}/{name}" for name in (ORIGIN, *TOKENIZER_FILES)),
        f"{CORPUS}/",
        f"{HELD_OUT}/",
        f"{CHECKPOINTS}/step-*/",
    ),
)


def pretrain(
    config: PretrainingConfig,
    sources: Sequence[str],
    output: Path,
    *,
    held_out: Sequence[str] = (),
    start: str = "",
    resume: bool = False,
    verify: Verify = "auto",
    device: torch.device,
    say: Said = lambda text: None,
    on_event: Callable[[Mapping[str, object]], None] = lambda event: None,
    on_built: Callable[[Built], None] | None = None,
) -> PretrainingResult:
    """Train a new model, or the one named by `start`, on text.

    `resume` goes on with the run in `output`: from its last checkpoint, from the beginning where there is none yet, and
    of a finished one it returns the result. The token shards are compared with their checksums before the first step,
    as `verify` says: see `Corpus.open`.
    """
    if bool(config.schedule.max_steps) == bool(config.schedule.budget):
        raise InputError(
            "how long to train? give a budget such as --budget 20min, or --set schedule.max_steps=N, one of them"
        )
    with ExitStack() as stack:
        world = stack.enter_context(joined())
        say = say if world.first else lambda text: None

        def begin() -> None:
            _open(output, config, resume=resume)
            if start:
                loading.find_folder(start)  # a wrong name should not be found after hours
            stack.enter_context(lock_folder(output))
            FILES.write(output)  # before the first file that it lists
            prepare(config, sources, output, held_out=held_out, verify=verify, say=say, on_progress=on_built)
            atomic_write(output / CONFIG, config.saved())

        world.first_does(begin)
        material = open_dataset(config, sources, output, held_out=bool(held_out))
        if resume and (done := _finished(output, material, say if world.first else lambda text: None)):
            return done
        events = stack.enter_context(Events(output / EVENTS)) if world.first else None

        def note(event: str, **values: object) -> None:
            if events is not None:
                on_event(events.add(event, **values))

        run = Pretrainer(
            config, material, output, world=world, device=world.device(device), start=start, say=say, note=note
        )
        _refuse_short(config, material, given=bool(held_out))
        result = run.go(resume=resume)
        if events is not None:
            with model_saved(output):
                events.close()
        return result


def _open(output: Path, config: PretrainingConfig, *, resume: bool) -> None:
    """Refuse a folder that is not this run's or cannot be written, before any work."""
    finish_save(output)
    saved = output / CONFIG
    if OutputManifest.read(output, kind=FILES.kind) is None and not _is_earlier(output):
        if (output / MODEL).exists():
            raise InputError(f"{output} holds a model, which this run would write over; choose another --output")
        refuse_foreign_content(output)
    begun = saved.is_file() and Checkpoints(output / CHECKPOINTS).any()
    if begun and not resume:
        raise InputError(f"{output} holds a run that was begun: go on with --resume, or choose another --output")
    if resume and saved.is_file():
        check_saved_settings(saved)
        before = PretrainingConfig.read(saved, family=config.model.family, saved=True)
        if differences := before.differences(config):
            raise InputError(
                f"{output} was begun with other settings: {'; '.join(differences)}. "
                "Resume with those, or choose another --output"
            )
    if not resume and (output / MODEL).exists():
        raise InputError(f"{output} holds a model, which this run would write over; choose another --output")
    refuse_foreign_files(output, dict.fromkeys((MODEL, *TOKENIZER_FILES)))
    try:
        output.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InputError(f"{output} cannot be written: {error.strerror}; choose another --output") from None


def _is_earlier(output: Path) -> bool:
    """Whether a version of Regard without manifests made the folder: by its vocabulary, corpus or checkpoints."""
    ours = {entry.partition("/")[0] for entry in FILES.files} | written_files(output)
    known = (f"{VOCABULARY}/{ORIGIN}", f"{CORPUS}/{CORPUS_MANIFEST}", f"{HELD_OUT}/{CORPUS_MANIFEST}")
    made = any((output / name).is_file() for name in known) or Checkpoints(output / CHECKPOINTS).any()
    return made and set(foreign_entries(output)) <= ours


def _finished(output: Path, material: Dataset, say: Said) -> PretrainingResult | None:
    """The result of a run that is over: its model is saved and intact, and the last event is its end.

    Where the model or the last checkpoint is damaged, the run is not over: it goes on and saves them again.
    """
    if MODEL not in written_files(output) or not (output / EVENTS).is_file():
        return None
    *_, last = ["", *(output / EVENTS).read_text(encoding="utf-8").splitlines()]
    try:
        event = json.loads(last)
    except ValueError:
        return None
    if event.pop("event") != "end":
        return None
    text = event.pop("text", None)
    if text is None and (found := Checkpoints(output / CHECKPOINTS).latest()):  # of an earlier version
        text = found.state["text"]
    if text not in (None, material.digest):
        raise InputError(
            f"{output} was trained on another text: resume with the same --corpus and, where it was given, --heldout"
        )
    checkpoints = Checkpoints(output / CHECKPOINTS)
    if not checkpoints.newest_is_good():
        return None
    try:
        verify_folder(output)
    except InputError as error:
        if not checkpoints.any():
            raise
        say(f"{error}. The model is saved again from the last checkpoint")
        return None
    event.pop("time")
    return PretrainingResult(output, event.pop("steps"), event.pop("tokens"), event.pop("seconds"), event)


def _refuse_short(config: PretrainingConfig, material: Dataset, *, given: bool) -> None:
    """Find before the training, not behind it, that the text to evaluate on is too short for its questions."""
    try:
        refuse_short(config, material)
    except InputError as error:
        raise error if given else InputError(f"{error}; or name a text to evaluate on with --heldout") from None

"""A pretraining run from text files to a model folder: prepare, plan, train, evaluate; resumable at any point.

Beside the files of every run (`regard.training.run_folder`, without run.json) the folder holds

vocabulary/ corpus/ heldout/   the tokenizer and the encoded text
checkpoints/   the state of the run between two steps
config.json model.safetensors tokenizer.json ...   the model, when it is finished
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Sequence
from contextlib import ExitStack
from functools import partial
from pathlib import Path

import torch

from regard.checkpoints import loading
from regard.checkpoints.files import refuse_foreign_files
from regard.checkpoints.files import verify as verify_folder
from regard.data.corpus.folder import ORIGIN, VOCABULARY
from regard.data.corpus.shard_cache import CACHE_BYTES
from regard.errors import InputError
from regard.events import Note, drain
from regard.files.checksums import Verify, written_files
from regard.files.disk import atomic_write
from regard.files.durable_folder import LOCK, FolderRecord, any_files, lock_folder
from regard.text.tokenizer import TOKENIZER_FILES
from regard.training.checkpoint import Checkpoints
from regard.training.distributed.world import join_world
from regard.training.events import Events
from regard.training.recipes.pretraining.config import PretrainingConfig
from regard.training.recipes.pretraining.corpus import (
    CORPUS,
    HELD_OUT,
    open_dataset,
    prepare,
)
from regard.training.recipes.pretraining.objectives import PretrainingDataset, objective_class
from regard.training.recipes.pretraining.recipe import (
    CHECKPOINTS,
    OTHER_TEXT,
    LanguageModelRecipe,
    PretrainingResult,
    train_and_save,
)
from regard.training.run_folder import (
    CONFIG,
    EVENTS,
    HOLDS_MODEL,
    MODEL,
    create_folder,
    discarded_unless,
    log_events,
    read_record,
    saved_config,
)
from regard.training.tensorboard import TensorBoardLog

FILES = FolderRecord(
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
    tensorboard: str | os.PathLike[str] | None = None,
    cache_bytes: int = CACHE_BYTES,
    device: torch.device,
) -> Events[PretrainingResult]:
    """Train a new model, or continue the one named by `start`, on text. Only the main process yields events.

    `resume` continues the run in `output` from its last checkpoint, or from the beginning if there is none; for a
    finished run it returns the result. Token shards are compared with their checksums before the first step, as
    `verify` says: see `Corpus.open`; of a corpus on an object store, `cache_bytes` are kept on the disk. `tensorboard`
    is a folder. A budget includes what comes before the first step.
    """
    begin = time.perf_counter()
    board = None if tensorboard is None else TensorBoardLog(tensorboard)
    if bool(config.schedule.max_steps) == bool(config.schedule.budget):
        raise InputError(
            "how long to train? give a budget such as --budget 20min, or --set schedule.max_steps=N, one of them"
        )
    with join_world() as world, ExitStack() as stack:
        with world.main_only() as is_main:
            if is_main:
                if start:
                    loading.find_folder(start)  # a wrong name is an error before the text is prepared
                created = _open(output, config, resume=resume)
                stack.enter_context(lock_folder(output))
                usable = {*FILES.files, MODEL} - {LOCK, CONFIG, EVENTS}  # prepared text, a checkpoint or a model
                begun = partial(any_files, output, usable)
                stack.enter_context(discarded_unless(begun, output, FILES, created=created))
                FILES.write(output)  # before the first file it lists
                fresh = not _is_trained(output)
                yield from prepare(
                    config, sources, output, held_out=held_out, verify=verify, rebuild=fresh, cache_bytes=cache_bytes
                )
                atomic_write(output / CONFIG, config.saved())
        dataset = open_dataset(config, sources, output, held_out=bool(held_out), cache_bytes=cache_bytes)
        done, problem = _finished(output, dataset) if resume else (None, "")
        if problem and world.is_main:
            yield Note(message=problem)
        if done is not None:
            return done
        recipe = LanguageModelRecipe(config, dataset, output, processes=world.size, start=start, begin=begin)
        try:
            objective_class(config).check_held_out(config, dataset)
        except InputError as error:
            raise error if held_out else InputError(f"{error}; or name a text to evaluate on with --heldout") from None
        events = train_and_save(recipe, device=world.device(device), world=world)
        return (yield from log_events(events, output, tensorboard=board)) if world.is_main else drain(events)


def _open(output: Path, config: PretrainingConfig, *, resume: bool) -> bool:
    """Refuse a folder that belongs to something else or cannot be written, before any work.

    Returns whether the folder was created.
    """
    read_record(output, FILES.kind)
    if not resume and (output / CONFIG).is_file() and Checkpoints(output / CHECKPOINTS).any():
        raise InputError(f"{output} holds an unfinished run: continue it with --resume, or choose another --output")
    if _is_trained(output) and (saved := saved_config(output, resume=resume)):
        before = PretrainingConfig.read(saved, family=config.model.family)
        if differences := before.differences(config):
            raise InputError(
                f"{output} was started with other settings: {'; '.join(differences)}. "
                "Resume with those, or choose another --output"
            )
    if not resume and (output / MODEL).exists():
        raise InputError(HOLDS_MODEL.format(output))
    refuse_foreign_files(output, dict.fromkeys((MODEL, *TOKENIZER_FILES)))
    return create_folder(output)


def _is_trained(output: Path) -> bool:
    return Checkpoints(output / CHECKPOINTS).any() or (output / MODEL).exists()


def _finished(output: Path, dataset: PretrainingDataset) -> tuple[PretrainingResult | None, str]:
    """The result of a finished run: its model is saved and intact, and the last event says that it finished.

    If the model or the last checkpoint is damaged, the run continues from a checkpoint and saves them again; the text
    describes the damage.
    """
    if MODEL not in written_files(output) or not (output / EVENTS).is_file():
        return None, ""
    *_, last = ["", *(output / EVENTS).read_text(encoding="utf-8", errors="replace").splitlines()]
    try:
        event = json.loads(last)
    except ValueError:
        return None, ""
    if event.get("type") != "finished":
        return None, ""
    checkpoints = Checkpoints(output / CHECKPOINTS)
    if event["text_digest"] != dataset.digest:
        raise InputError(OTHER_TEXT.format(output))
    if not checkpoints.newest_is_good():
        return None, ""
    try:
        verify_folder(output)
    except InputError as error:
        if not checkpoints.any():
            raise
        return None, f"{error}. The model is saved again from the last checkpoint"
    figures = {name: event[name] for name in ("steps", "tokens", "seconds", "scores")}
    return PretrainingResult(output=str(output), **figures), ""

"""A pretraining run from text files to a model folder: prepared, planned, trained, evaluated, and resumed at will.

Knows the order of the work and what lies in the output folder. Prints nothing: the caller is told of events.

    config.toml    the settings, all of them
    events.jsonl   what happened, a line an event
    vocabulary/ corpus/ heldout/   what the text was made into
    checkpoints/   the state of the run between two steps
    config.json model.safetensors tokenizer.json ...   the model, once it is finished
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path

import torch

from regard import loading
from regard.corpus import Progress as Built
from regard.disk import atomic_write
from regard.errors import InputError
from regard.pretrain.config import Config
from regard.pretrain.prepare import Material, Said, open_material, prepare
from regard.pretrain.scores import refuse_short
from regard.pretrain.trainer import CHECKPOINTS, Result, Trainer
from regard.settings import check_saved
from regard.train.checkpoint import Checkpoints
from regard.train.events import Events
from regard.train.world import joined
from regard.unfinished import locked
from regard.weights.checksums import Verify

__all__ = ["CONFIG", "Result", "pretrain"]

CONFIG, EVENTS = "config.toml", "events.jsonl"


def pretrain(
    config: Config,
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
) -> Result:
    """Train a new model, or the one named by `start`, on text. `resume` goes on with the run in `output`.

    The token shards are compared with their checksums before the first step, as `verify` says: see `Corpus.open`.
    """
    if bool(config.schedule.steps) == bool(config.schedule.budget):
        raise InputError(
            "how long to train? give a budget such as --budget 20min, or --set schedule.steps=N, one of them"
        )
    with ExitStack() as stack:
        world = stack.enter_context(joined())
        say = say if world.first else lambda text: None

        def begin() -> None:
            _open(output, config, resume=resume)
            if start:
                loading.find(start)  # a wrong name should not be found after hours
            stack.enter_context(locked(output))
            prepare(config, sources, output, held_out=held_out, verify=verify, say=say, on_progress=on_built)
            atomic_write(output / CONFIG, config.saved())

        world.first_does(begin)
        material = open_material(config, sources, output, held_out=bool(held_out))
        events = stack.enter_context(Events(output / EVENTS)) if world.first else None

        def note(event: str, **values: object) -> None:
            if events is not None:
                on_event(events.add(event, **values))

        run = Trainer(
            config, material, output, world=world, device=world.device(device), start=start, say=say, note=note
        )
        _refuse_short(config, material, given=bool(held_out))
        return run.go(resume=resume)


def _open(output: Path, config: Config, *, resume: bool) -> None:
    """Refuse a folder that cannot be written or gone on with, before any work."""
    saved = output / CONFIG
    begun = saved.is_file() and Checkpoints(output / CHECKPOINTS).any()
    if begun and not resume:
        raise InputError(f"{output} holds a run that was begun: go on with --resume, or choose another --output")
    if resume and not begun:
        raise InputError(f"{output} holds no run to resume: it has no checkpoint; leave --resume out to begin one")
    if begun:
        check_saved(saved)
        before = Config.read(saved, family=config.model.family)
        if differences := before.differences(config):
            raise InputError(
                f"{output} was begun with other settings: {'; '.join(differences)}. "
                "Resume with those, or choose another --output"
            )
    elif (output / "config.json").exists():
        raise InputError(f"{output} holds a model, which this run would write over; choose another --output")
    try:
        output.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InputError(f"{output} cannot be written: {error.strerror}; choose another --output") from None


def _refuse_short(config: Config, material: Material, *, given: bool) -> None:
    """Find before the training, not behind it, that the text to evaluate on is too short for its questions."""
    try:
        refuse_short(config, material)
    except InputError as error:
        raise error if given else InputError(f"{error}; or name a text to evaluate on with --heldout") from None

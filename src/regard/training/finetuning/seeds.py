"""The seeds of a run, one after the other: each is tuned, judged and written down before the next begins.

Knows the report of each seed and the folder of the best model; both are compared with their checksums before any work.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch

from regard.checkpoints.files import verify
from regard.data.readers import ExampleSet
from regard.errors import InputError
from regard.files.disk import atomic_write
from regard.files.json_files import json_bytes, read_checked_json, read_json, with_checksum
from regard.files.output_folder import remove_files
from regard.tasks.encoder_with_head import EncoderWithHead
from regard.tasks.image_classification import ImageClassifier
from regard.tasks.predict import calibrate
from regard.tasks.task_folder import FineTunedModel, save_fine_tuned
from regard.training.finetuning.config import FineTuningConfig
from regard.training.finetuning.model_factory import ModelFactory
from regard.training.finetuning.trainer import FineTuner, Note, SeedResult
from regard.training.stopping import stopping

__all__ = ["BEST", "seed_files", "tune_seeds"]

BEST, SEED = "best", "seed.json"


def seed_files(config: FineTuningConfig) -> list[str]:
    """What `tune_seeds` writes into its folder, as entries of a manifest."""
    seeds = range(config.run.seed, config.run.seed + config.run.num_seeds)
    return [f"{BEST}/", *(entry for seed in seeds for entry in (f"{seed}.json", f"checkpoints-{seed}/step-*/"))]


def tune_seeds(
    start: ModelFactory,
    data: Mapping[str, ExampleSet[Any]],
    config: FineTuningConfig,
    folder: Path,
    *,
    device: torch.device,
    note: Note,
) -> list[SeedResult]:
    """Tune once a seed, and leave the best model in `folder`; a seed that is done is not done again."""
    seeds = range(config.run.seed, config.run.seed + config.run.num_seeds)
    done = {seed: _report(folder, seed) for seed in seeds if _path(folder, seed).is_file()}
    _check_best(folder, done, start.task.main_metric)
    task = start.task
    items = task.preprocess(data["train"].examples, start.rows)
    if cut := sum(any(row.num_truncated for row in item.sequences) for item in items):
        note("cut", texts=cut, of=len(items), length=start.length)
    dev = data["dev"].examples

    def judged(model: EncoderWithHead | ImageClassifier) -> tuple[FineTunedModel, dict[str, float]]:
        return calibrate(start.solved(model, precision=config.run.precision), dev, device=device)

    for seed in seeds:
        if seed in done:
            continue
        trainer = FineTuner(
            start.new(seed),
            task,
            items,
            config,
            seed=seed,
            device=device,
            folder=folder / f"checkpoints-{seed}",
            judge=lambda model: judged(model)[1],
            objective=start.objective,
            note=note,
        )
        with stopping() as stop:
            outcome = trainer.go(stop)
            if outcome is None:
                note("stopped", seed=seed)
                stop.now()
        assert outcome is not None
        done[seed] = outcome
        if _best(done, task.main_metric) == seed:
            best_model = trainer.model.eval()
            # A run that was resumed does not know what an earlier epoch settled, so that is found once more.
            solved = (
                judged(best_model)[0]
                if task.has_calibration
                else start.solved(best_model, precision=config.run.precision)
            )
            if task.has_calibration:
                note("settled", seed=seed, **solved.task.to_dict())
            save_fine_tuned(solved, folder / BEST, files={SEED: json_bytes({"seed": seed})}, overwrite=True)
        atomic_write(_path(folder, seed), json_bytes(with_checksum(asdict(outcome))))
        remove_files(folder, [f"checkpoints-{seed}/step-*/"])
    best = _best(done, task.main_metric)
    if not (folder / BEST).is_dir() or _seed_of(folder / BEST) not in (None, best):
        raise InputError(
            f"{folder / BEST} is not the model of seed {best}, which is the best. Put a copy of that back; or delete "
            f"{_path(folder, best)} and go on with --resume: that seed is trained again"
        )
    return [done[seed] for seed in seeds]


def _best(done: Mapping[int, SeedResult], score: str) -> int:
    """The seed with the highest score; of equal ones the first, in whatever order they were trained."""
    return max(sorted(done), key=lambda seed: done[seed].scores[score])


def _path(folder: Path, seed: int) -> Path:
    return folder / f"{seed}.json"


def _seed_of(best: Path) -> object:
    """The seed of a model; None where older software wrote it."""
    return read_json(best / SEED).get("seed") if (best / SEED).is_file() else None


def _report(folder: Path, seed: int) -> SeedResult:
    path = _path(folder, seed)
    try:
        return SeedResult(**read_checked_json(path))  # type: ignore[arg-type]
    except (InputError, TypeError) as error:
        raise InputError(
            f"{error if isinstance(error, InputError) else f'{path} is damaged: {error}'}. Put a copy of it back; or "
            f"delete it and go on with --resume: seed {seed} is trained again"
        ) from None


def _check_best(folder: Path, done: Mapping[int, SeedResult], score: str) -> None:
    """Compare the best model so far with its checksums, before hours are spent on the next seed."""
    if not done or not (folder / BEST).is_dir():
        return
    try:
        verify(folder / BEST)
    except InputError as error:
        seed = _best(done, score)
        raise InputError(
            f"{error}. Or delete {folder / BEST} and {_path(folder, seed)} and go on with --resume: seed {seed} is "
            "trained again"
        ) from None

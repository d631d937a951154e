"""The seeds of a run, one after the other: each is tuned, judged and written down before the next begins."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch

from regard.data.readers import Read
from regard.disk import atomic_write
from regard.finetune.config import Config
from regard.finetune.start import Start
from regard.finetune.trainer import Note, Outcome, Trainer
from regard.output_folder import remove_files
from regard.tasks.folder import Solved, write_task
from regard.tasks.model import Tuned
from regard.tasks.pictures import Seen
from regard.tasks.solve import settle
from regard.train.stopping import stopping
from regard.weights.documents import json_bytes, read_json

__all__ = ["BEST", "seed_files", "tune_seeds"]

BEST = "best"


def seed_files(config: Config) -> list[str]:
    """What `tune_seeds` writes into its folder, as entries of a manifest."""
    seeds = range(config.run.seed, config.run.seed + config.run.seeds)
    return [f"{BEST}/", *(entry for seed in seeds for entry in (f"{seed}.json", f"checkpoints-{seed}/step-*/"))]


def tune_seeds(
    start: Start,
    data: Mapping[str, Read[Any]],
    config: Config,
    folder: Path,
    *,
    device: torch.device,
    note: Note,
) -> list[Outcome]:
    """Tune once a seed, and leave the best model in `folder`; a seed that is done is not done again."""
    task = start.task
    items = task.items(data["train"].examples, start.rows)
    if cut := sum(any(row.cut for row in item.rows) for item in items):
        note("cut", texts=cut, of=len(items), length=start.length)
    dev = data["dev"].examples

    def judged(model: Tuned | Seen) -> tuple[Solved, dict[str, float]]:
        return settle(start.solved(model, precision=config.run.precision), dev, device=device)

    outcomes: list[Outcome] = []
    for seed in range(config.run.seed, config.run.seed + config.run.seeds):
        result = folder / f"{seed}.json"
        if result.is_file():
            outcomes.append(Outcome(**read_json(result)))  # type: ignore[arg-type]
            continue
        trainer = Trainer(
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
        best = max((one.scores[task.main] for one in outcomes), default=float("-inf"))
        if outcome.scores[task.main] > best or not (folder / BEST).is_dir():
            best_model = trainer.model.eval()
            # A run that was resumed does not know what an earlier epoch settled, so that is found once more.
            solved = judged(best_model)[0] if task.settles else start.solved(best_model, precision=config.run.precision)
            if task.settles:
                note("settled", seed=seed, **solved.task.document())
            write_task(solved, folder / BEST, overwrite=True)
        outcomes.append(outcome)
        atomic_write(result, json_bytes(asdict(outcome)))
        remove_files(folder, [f"checkpoints-{seed}/step-*/"])
    return outcomes

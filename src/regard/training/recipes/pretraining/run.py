"""A pretraining run from text files to a model folder: prepare, plan, train, evaluate; resumable at any point.

Beside the files of every run (`regard.training.run_folder`) the folder holds, also when the run is finished,

vocabulary/ corpus/ heldout/   the tokenizer and the encoded text
checkpoints/   the state of the run between two steps
config.json model.safetensors tokenizer.json ...   the model, when it is finished
"""

from __future__ import annotations

import os
import time
from collections.abc import Sequence
from typing import Any

from regard.checkpoints import loading
from regard.checkpoints.files import verify as verify_folder
from regard.data.corpus.folder import ORIGIN, VOCABULARY
from regard.data.corpus.shard_cache import CACHE_BYTES
from regard.errors import InputError
from regard.events import Note
from regard.files.checksums import Verify, written_files
from regard.files.durable_folder import FolderRecord
from regard.files.json_files import json_bytes, read_json
from regard.text.tokenizer import TOKENIZER_FILES
from regard.training.checkpoint import Checkpoints
from regard.training.distributed.world import World
from regard.training.events import Events, Finished
from regard.training.recipe import TrainingRun
from regard.training.recipes.pretraining.config import PretrainingConfig
from regard.training.recipes.pretraining.corpus import CORPUS, HELD_OUT, open_dataset, prepare
from regard.training.recipes.pretraining.objectives import PretrainingDataset
from regard.training.recipes.pretraining.recipe import OTHER_TEXT, LanguageModelRecipe, PretrainingResult
from regard.training.run import CHECKPOINTS, Session, run
from regard.training.run_folder import MODEL, REPORT

TEXT = "text_digest"  # of the text that a model was trained on, in its report


class Pretraining(TrainingRun):
    """Trains a new model, or the one named `start`, on text: see `pretrain`."""

    kind = "pretraining"
    work = ""
    keeps_work = True
    report_class = PretrainingResult
    config: PretrainingConfig

    def __init__(
        self,
        config: PretrainingConfig,
        sources: Sequence[str],
        *,
        held_out: Sequence[str] = (),
        start: str = "",
        verify: Verify = "auto",
        cache_bytes: int = CACHE_BYTES,
    ) -> None:
        self.config, self.sources, self.held_out, self.start = config, sources, held_out, start
        self.verify, self.cache_bytes, self.begin = verify, cache_bytes, time.perf_counter()
        self.dataset: PretrainingDataset

    def open(self, world: World) -> Events[None]:
        if bool(self.config.schedule.max_steps) == bool(self.config.schedule.budget):
            raise InputError(
                "how long to train? give a budget such as --budget 20min, or --set schedule.max_steps=N, one of them"
            )
        with world.main_only() as is_main:
            if is_main and self.start:
                loading.find_folder(self.start)  # a wrong name is an error before the text is prepared
        yield from ()

    def identity(self) -> dict[str, Any]:
        return {"task": "pretrain"}  # on a text that is compared when it is prepared

    def prepared_files(self) -> list[str]:
        vocabulary = (f"{VOCABULARY}/{name}" for name in (ORIGIN, *TOKENIZER_FILES))
        return [f"{VOCABULARY}/", *vocabulary, f"{CORPUS}/", f"{HELD_OUT}/"]

    def prepare(self, session: Session) -> Events[PretrainingResult | None]:
        config, output = self.config, session.output
        with session.world.main_only() as is_main:
            if is_main:
                fresh = not (Checkpoints(session.work / CHECKPOINTS).any() or (output / MODEL).exists())
                yield from prepare(
                    config,
                    self.sources,
                    session.work,
                    held_out=self.held_out,
                    verify=self.verify,
                    rebuild=fresh,
                    cache_bytes=self.cache_bytes,
                )
        self.dataset = open_dataset(
            config, self.sources, session.work, held_out=bool(self.held_out), cache_bytes=self.cache_bytes
        )
        return (yield from self._finished(session))

    def _finished(self, session: Session) -> Events[PretrainingResult | None]:
        """The result of a finished run whose model and last checkpoint are intact; others are saved again."""
        output, record = session.output, FolderRecord.read(session.output)
        if not (record and record.finished and MODEL in written_files(output) and (output / REPORT).is_file()):
            return None
        checkpoints = Checkpoints(session.work / CHECKPOINTS)
        try:
            verify_folder(output)
        except InputError as error:
            if not checkpoints.any():
                raise
            yield Note(message=f"{error}. The model is saved again from the last checkpoint")
            return None
        done: dict[str, Any] = read_json(output / REPORT)
        if done.pop(TEXT) != self.dataset.digest:
            raise InputError(OTHER_TEXT.format(output))
        return PretrainingResult(output=str(output), **done) if checkpoints.newest_is_good() else None

    def train(self, session: Session) -> Events[PretrainingResult | None]:
        dataset, world = self.dataset, session.world
        recipe = LanguageModelRecipe(
            self.config, dataset, session.output, processes=world.size, start=self.start, begin=self.begin
        )
        try:
            recipe.objective_class.check_held_out(self.config, dataset)
        except InputError as error:
            raise (
                error if self.held_out else InputError(f"{error}; or name a text to evaluate on with --heldout")
            ) from None
        trainer = session.trainer(recipe)
        outcome = yield from trainer.train()
        model = trainer.whole_model().eval()
        cost: dict[str, Any] = {"steps": outcome.steps, "tokens": outcome.tokens, "seconds": outcome.seconds}
        report = PretrainingResult(output=str(session.output), scores=outcome.scores, **cost)
        saved = json_bytes({**cost, "scores": outcome.scores, TEXT: dataset.digest})
        with world.main_only() as is_main:
            if is_main:
                for name, trained in recipe.objective_class.trained_models(model).items():
                    files = dataset.tokenizer.files() | ({} if name else {REPORT: saved})
                    loading.write_model(trained, session.output / name, files=files)
        yield Finished(scores=outcome.scores, **cost)
        return report


def pretrain(
    config: PretrainingConfig,
    sources: Sequence[str],
    output: str | os.PathLike[str],
    *,
    held_out: Sequence[str] = (),
    start: str = "",
    verify: Verify = "auto",
    cache_bytes: int = CACHE_BYTES,
    **options: Any,
) -> Events[PretrainingResult]:
    """Train a new model, or continue the one named by `start`, on text; `options` are those of `run`.

    Token shards are compared with their checksums before the first step, as `verify` says: see `Corpus.open`; of a
    corpus on an object store, `cache_bytes` are kept on the disk. A budget includes what comes before the first step.
    """
    job = Pretraining(config, sources, held_out=held_out, start=start, verify=verify, cache_bytes=cache_bytes)
    return run(job, output, **options)

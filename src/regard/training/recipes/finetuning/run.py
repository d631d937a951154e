"""A fine-tuning run from files to a model folder: read, train once per seed, compare, write; resumable at any point.

Beside the files of every run (`regard.training.run_folder`) the folder holds

seeds/                 the result of each finished seed, the best model so far, and checkpoints of the next seed
config.json model.safetensors task.json report.json ...   the best seed's model, when all seeds are finished
"""

from __future__ import annotations

import hashlib
import os
import warnings
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from regard.checkpoints import loading
from regard.checkpoints.files import verify
from regard.checkpoints.reading import reading_count, stated_language
from regard.data.examples import ImageExample, split_examples
from regard.data.image_processor import ImageProcessor, image_processor_of
from regard.data.labels import similar_labels
from regard.data.readers import ExampleSet, TableOptions
from regard.errors import InputError
from regard.events import Note
from regard.files.disk import atomic_write, finish_save
from regard.files.durable_folder import remove_files
from regard.files.json_files import json_bytes, read_checked_json, read_json, with_checksum
from regard.known import DEFAULT_EMBEDDING_MODEL, MULTILINGUAL
from regard.models.family import can, describe_model
from regard.tasks.encoder_with_head import TaskModel
from regard.tasks.fine_tuned_model import (
    FineTunedModel,
    calibrate,
    is_published,
    load_fine_tuned,
    save_fine_tuned,
    score,
)
from regard.tasks.image_classification import ImageTask
from regard.tasks.inputs import InputBuilder
from regard.tasks.registry import DataSource, check_labels, get_task, read_examples
from regard.tasks.task import LossFunction, Task
from regard.training.distributed.world import World, join_world
from regard.training.doctor import examine_data, problems
from regard.training.doctor.data import classes, texts_of
from regard.training.events import Events, Finished, ThresholdChosen
from regard.training.recipe import TrainingRun
from regard.training.recipes.finetuning import baseline
from regard.training.recipes.finetuning.config import DISTILLATION_DEFAULTS, FineTuningConfig
from regard.training.recipes.finetuning.linear_head import FrozenTrainer
from regard.training.recipes.finetuning.model_factory import (
    ImageModelFactory,
    ModelFactory,
    PublishedModelFactory,
    StudentFactory,
)
from regard.training.recipes.finetuning.recipe import FineTuningInputs, FineTuningRecipe
from regard.training.recipes.finetuning.report import BaselineResult, FineTuningReport, SeedResult, summarize
from regard.training.run import Session, in_main, run
from regard.training.run_folder import REPORT, RunFolder
from regard.training.stopping import Callback, Callbacks
from regard.training.trainer import Trainer

DEFAULT_SPLIT = "90/10"


def read_source(task: str, source: DataSource, table: TableOptions | None) -> ExampleSet[Any]:
    """The labeled examples of a file, or those that were already read."""
    return source if isinstance(source, ExampleSet) else read_examples(task, source, table=table, labeled=True)


def read_splits(
    task: str, train: DataSource, dev: DataSource | None, *, table: TableOptions | None, split_sizes: str | None
) -> dict[str, ExampleSet[Any]]:
    """The examples by split: train, dev, and test if `split_sizes` has three parts. Without `dev`, train is split."""
    whole = read_source(task, train, table)
    if dev is not None:
        if split_sizes is not None:
            raise InputError("--dev and --split both choose the dev data; use one of them")
        return {"train": whole, "dev": read_source(task, dev, table)}
    sizes = split_sizes or DEFAULT_SPLIT
    return {
        name: replace(
            whole,
            examples=[whole.examples[index] for index in indices],
            description=f"{whole.description}; {name} part of {sizes}",
            dropped=whole.dropped if name == "train" else {},
            lines=[whole.lines[index] for index in indices] if whole.lines else [],
            notes=(),
        )
        for name, indices in zip(("train", "dev", "test"), split_examples(whole.examples, sizes), strict=False)
    }


def digest(read: ExampleSet[Any]) -> str:
    """A hash of the examples in their order."""
    result = hashlib.sha256()
    for example in read.examples:
        result.update(repr(example).encode("utf-8", "surrogatepass"))
        if isinstance(example, ImageExample):
            result.update(example.pixels.tobytes())
    return result.hexdigest()[:16]


SEEDS, FROZEN = "seeds", "frozen"
BEST, SEED = "best", "seed.json"


class FineTuning(TrainingRun):
    """Trains once per seed and writes the best seed's model, or the baseline if it is better.

    `prepare` reads the data and finds the model. `beside` has the scores of another run for the report.
    """

    kind = "fine-tuning"
    work = SEEDS
    report_class = FineTuningReport
    config: FineTuningConfig
    is_open = False

    def __init__(
        self,
        prepare: Callable[[World], Events[FineTuningInputs]],
        *,
        loss: LossFunction | None = None,
    ) -> None:
        self._prepare, self.loss = prepare, loss
        self.beside: dict[str, Any] = {}

    def open(self, world: World) -> Events[None]:
        if self.is_open:
            return
        self._use((yield from self._prepare(world)))
        for read in self.data.values():
            check_labels(self.factory.task, read)

    def _use(self, inputs: FineTuningInputs) -> None:
        self.inputs, self.config, self.factory, self.data = inputs, inputs.config, inputs.factory, inputs.data
        self.is_open = True

    def with_frozen_encoder(self) -> FineTuning:
        """The same with a frozen encoder and without a baseline; of a job that is opened."""
        training = self.config.training.model_copy(update={"frozen": True})
        config = self.config.model_copy(update={"training": training})
        job = FineTuning(self._prepare, loss=self.loss)
        job._use(replace(self.inputs, config=config, baselines=()))
        return job

    @property
    def seeds(self) -> range:
        return range(self.config.run.seed, self.config.run.seed + self.config.run.num_seeds)

    def identity(self) -> dict[str, Any]:
        digests = {name: digest(read) for name, read in self.data.items()}
        run: dict[str, Any] = {"task": self.factory.task.name, "model": self.inputs.model, "data": digests}
        if self.loss is not None:
            run["loss"] = getattr(self.loss, "__qualname__", type(self.loss).__qualname__)
        return run

    def work_files(self) -> list[str]:
        seeds = (f"{seed}.json" for seed in self.seeds)
        checkpoints = (f"checkpoints-{seed}/step-*/" for seed in self.seeds)
        folds = [f"fold-{number}.json" for number in range(baseline.FOLDS)]
        return [f"{BEST}/", *folds, *(entry for both in zip(seeds, checkpoints, strict=True) for entry in both)]

    def train(self, session: Session) -> Events[FineTuningReport | None]:
        """Train once per seed and keep the best model in the work folder; finished seeds are not repeated."""
        task, world, folder = self.factory.task, session.world, session.work
        done = self._finished_seeds(session)
        items = task.preprocess(self.data["train"].examples, self.factory.rows)
        if cut := sum(any(row.num_truncated for row in item.sequences) for item in items):
            message = f"{cut:,} of {len(items):,} texts are longer than {self.factory.length} tokens and are truncated"
            yield Note(message=message)
        options: dict[str, Any] = {
            "evaluate": lambda model: self._evaluate(model, session)[1],
            "loss": self.loss,
            "dev_examples": len(self.data["dev"].examples),
        }
        examples = self.data["train"].examples
        frozen = baseline.frozen_trainer(self.factory, examples, self.config, device=session.device, **options)
        if frozen is not None:
            message = (
                "the head is fitted to convergence on vectors of the frozen encoder; epochs and steps do not apply"
            )
            yield Note(message=message)
        for seed in self.seeds:
            if seed in done:
                continue
            session.callbacks.stop = False
            trainer: Trainer | FrozenTrainer
            if frozen is None:
                makers: dict[str, Any] = {"new_model": self.factory.new_model, "objective": self.factory.objective}
                recipe = FineTuningRecipe(task, items, self.config, **makers, **options)
                trainer = session.trainer(recipe, seed=seed, checkpoints=f"checkpoints-{seed}")
            else:
                trainer, frozen.seed = frozen, seed
            outcome = yield from trainer.train()
            done[seed] = SeedResult.from_outcome(seed, outcome)
            is_best = _best_seed(done, task.main_metric) == seed
            model = trainer.whole_model().eval() if is_best else None
            with world.main_only() as is_main:
                if is_main and model is not None:
                    if task.has_calibration:
                        # A resumed run does not know what an earlier epoch chose, so it is computed again.
                        fine_tuned = self._evaluate(model, session)[0]
                        yield ThresholdChosen(seed=seed, values=fine_tuned.task.to_dict())
                    else:
                        fine_tuned = self.factory.fine_tuned_model(model, precision=self.config.run.precision)
                    save_fine_tuned(fine_tuned, folder / BEST, files={SEED: json_bytes({"seed": seed})}, overwrite=True)
                if is_main:
                    atomic_write(_result_path(folder, seed), json_bytes(with_checksum(asdict(done[seed]))))
                    remove_files(folder, [f"checkpoints-{seed}/step-*/"])
        best = _best_seed(done, task.main_metric)
        if not (folder / BEST).is_dir() or read_json(folder / BEST / SEED).get("seed") != best:
            raise InputError(
                f"{folder / BEST} is not the model of seed {best}, which is the best. Put a copy of that back; or "
                f"delete {_result_path(folder, best)} and continue with --resume: that seed is trained again"
            )
        with world.main_only() as is_main:
            if is_main:
                compared = None
                if self.inputs.baselines:
                    comparison = baseline.Comparison(self.inputs, folder, session.device)
                    compared = yield from comparison.run(done[best].scores, processes=world.size)
                seeds = [done[seed] for seed in self.seeds]
                return (yield from self._save(session, seeds, *(compared or (None, None))))
        return None

    def _finished_seeds(self, session: Session) -> dict[int, SeedResult]:
        """The results of the seeds that an earlier process has finished, in all processes."""
        folder, world, done = session.work, session.world, dict[int, SeedResult]()
        if (batch_size := self.config.training.batch_size) < world.size:
            raise InputError(
                f"training.batch_size is {batch_size}, fewer examples than the {world.size} processes; use a larger "
                "one, or fewer processes"
            )
        with world.main_only() as is_main:
            if is_main:
                done = {seed: _read_result(folder, seed) for seed in self.seeds if _result_path(folder, seed).is_file()}
                _check_best(folder, done, self.factory.task.main_metric)
        if world.size > 1:
            known = world.broadcast_json({str(seed): asdict(result) for seed, result in done.items()})
            done = {int(seed): SeedResult(**result) for seed, result in known.items()}
        return done

    def _evaluate(self, model: TaskModel, session: Session) -> tuple[FineTunedModel, dict[str, float]]:
        fine_tuned = self.factory.fine_tuned_model(model, precision=self.config.run.precision)
        return calibrate(fine_tuned, self.data["dev"].examples, device=session.device)

    def _save(
        self,
        session: Session,
        seeds: list[SeedResult],
        result: BaselineResult | None,
        better: FineTunedModel | None,
    ) -> Events[FineTuningReport]:
        about: dict[str, dict[str, Any]] = {
            name: {"path": read.path, "examples": len(read.examples), "how": read.description}
            for name, read in self.data.items()
        }
        task = self.factory.task
        best = better or load_fine_tuned(session.work / BEST, device=session.device)
        best = replace(best, text_columns=self.data["train"].text_columns)
        if "test" in self.data:
            about["test"]["scores"] = score(best, self.data["test"].examples, device=session.device)
        report = FineTuningReport(
            output=os.fspath(session.output),
            task=task.name,
            model=self.inputs.model,
            score=task.main_metric,
            data=about,
            settings=self.config.model_dump(mode="json"),
            beside=self.beside,
            baseline=result,
            **summarize(seeds, task.main_metric),
        )
        save_fine_tuned(best, session.output, files={REPORT: report.file(), "report.md": report.markdown().encode()})
        yield Finished(scores=report.scores)
        return report


def fine_tune(
    task: str,
    train: DataSource,
    dev: DataSource | None = None,
    *,
    model: str | None = None,
    output: str | os.PathLike[str],
    config: FineTuningConfig | None = None,
    table: TableOptions | None = None,
    split: str | None = None,
    limit: int | None = None,
    both: bool = False,
    loss: LossFunction | None = None,
    callbacks: Sequence[Callback] = (),
    **options: Any,
) -> Events[FineTuningReport]:
    """Fine-tune `model` for a task on labeled examples, and write the best seed's model to `output`.

    Without a `model`, `baseline.start_model` chooses one. Unless training.baseline is false, a linear model on vectors
    of texts is fitted too (`baseline`), and the better of the two is written.

    `train` and `dev` are files, or examples from a reader. Without `dev`, `train` is split ("90/10" by default); the
    last of three parts is scored once, as "test". A `limit` samples so many examples of `train`. With `both`, the model
    is also trained with a frozen encoder, in `output`/frozen, and both results are reported. `loss` is a function of
    `Task.logits_and_targets`; `callbacks` are described in `regard.training.stopping`; `options` are those of `run`.
    """

    def prepare(world: World) -> Events[FineTuningInputs]:
        get_task(task)  # an unknown task is an error before anything is read
        data = yield from _read(task, train, dev, table, split, limit)
        images = isinstance(data["train"].examples[0], ImageExample)
        defaults = {"training": get_task(task, images=images).training_defaults}
        settings = config or FineTuningConfig.load(defaults=defaults)
        start = model
        if start is None and not images:
            start = baseline.start_model(get_task(task), data, settings)
            yield Note(message=f"model: {start}, as none is given (--model)")
        if baseline.has_few_rows(get_task(task), data) and not images:
            settings = settings.for_few_rows()
        with world.main_only() as is_main:
            if is_main and not images:
                loading.find_folder(start or "")  # downloads it once
        if images:
            factory: ModelFactory = yield from _image_factory(data["train"].examples, start, settings)
        else:
            learned = get_task(task).from_examples(data["train"].examples)
            folder = loading.find_folder(start or "")
            factory = yield from _text_factory(learned, folder, length=settings.training.max_length)
            factory.folder = folder
            factory.language = stated_language(factory.folder)
        name = start or "a new ViT"
        yield from _data_problems(factory, data, name)
        models: tuple[str, ...] = ()
        if settings.training.baseline and baseline.applies_to(factory.task, data["train"].examples):
            if loss is None:
                given = [] if model is None or settings.training.frozen else [model]
                models = tuple(dict.fromkeys([DEFAULT_EMBEDDING_MODEL, *given]))
            else:
                yield Note(message="no baseline: it would not have the loss function that is given")
        return FineTuningInputs(factory, name, data, settings, models, refit=dev is None)

    job = FineTuning(prepare, loss=loss)
    return (_run_both if both else run)(job, output, callbacks=Callbacks(callbacks), **options)


def _text_factory(learned: Task[Any], folder: Path, *, length: int) -> Events[ModelFactory]:
    """New heads on the model in a folder; a published model with a head for these labels goes on with it."""
    if is_published(folder):
        start = load_fine_tuned(folder)
        task = start.task.continued(learned)
        if task is not None and can(start.model.encoder, "fine-tuning"):
            reason = ": it has the labels of the data" if start.labels else ""
            yield Note(message=f"the head of {folder.name} goes on{reason}")
            return PublishedModelFactory(task, start, length=length)
        labels = f" of {', '.join(start.task.labels[:10])}" if start.task.labels else ""
        yield Note(message=f"the head is new: that of {folder.name} is for the task {start.task.name}{labels}")
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message=".*not used: ")  # the head, as the note says
        return ModelFactory(learned, *loading.load(folder), length=length)


def _run_both(
    job: FineTuning,
    output: str | os.PathLike[str],
    *,
    resume: bool = False,
    tensorboard: str | os.PathLike[str] | None = None,
    callbacks: Callbacks,
    **options: Any,
) -> Events[FineTuningReport]:
    """Run a job with a frozen encoder, in a folder beside, and then as it is, with the scores of both."""
    options["callbacks"] = callbacks
    with join_world() as world:
        yield from in_main(job.open(world), world, callbacks)
        with ExitStack() as stack:
            with world.main_only() as is_main:
                if is_main:
                    folder = RunFolder(job, Path(output), beside=[FROZEN])
                    held = [name for name in ("config.json", FROZEN) if (folder.path / name).exists()]
                    if held and not resume:
                        raise InputError(
                            f"{folder.path} holds a run or a model ({held[0]}): continue it with --resume, or choose "
                            "another --output"
                        )
                    if not (resume and folder.finished()):
                        folder.open(resume=resume)
                        stack.enter_context(folder.owned())
            board = None if tensorboard is None else Path(tensorboard, FROZEN)
            head_only = job.with_frozen_encoder()
            frozen = yield from run(head_only, Path(output, FROZEN), resume=resume, tensorboard=board, **options)
        job.beside = {FROZEN: {"mean": frozen.mean, "deviation": frozen.deviation}}
        # The folder belongs to this run by now, so `resume` allows both a new and an unfinished run.
        report: FineTuningReport = yield from run(job, output, resume=True, tensorboard=tensorboard, **options)
        return report


def distill(
    teacher: str | os.PathLike[str],
    train: DataSource,
    dev: DataSource | None = None,
    *,
    layers: int,
    output: str | os.PathLike[str],
    config: FineTuningConfig | None = None,
    table: TableOptions | None = None,
    split: str | None = None,
    limit: int | None = None,
    **options: Any,
) -> Events[FineTuningReport]:
    """Train a student with fewer `layers` on labeled examples and the predictions of a fine-tuned teacher.

    `options` are those of `run`.
    """

    def prepare(world: World) -> Events[FineTuningInputs]:
        fine_tuned = load_fine_tuned(teacher)
        if fine_tuned.published is not None:
            raise InputError(
                f"{os.fspath(teacher)}: expected a teacher that `regard train` wrote, found a published model; train "
                f"it on your data first: regard train {fine_tuned.task.name} --model {os.fspath(teacher)}"
            )
        settings = config or FineTuningConfig.load(defaults=DISTILLATION_DEFAULTS)
        data = yield from _read(fine_tuned.task.name, train, dev, table, split, limit)
        student = StudentFactory(fine_tuned, layers=layers, length=settings.training.max_length)
        student.language = stated_language(loading.find_folder(teacher))
        yield from _data_problems(student, data, os.fspath(teacher))
        name = f"{os.fspath(teacher)}, {layers} of {fine_tuned.model.encoder.config.num_hidden_layers} layers"
        return FineTuningInputs(student, name, data, settings)

    return run(FineTuning(prepare), output, **options)


def _read(
    task: str,
    train: DataSource,
    dev: DataSource | None,
    table: TableOptions | None,
    split: str | None,
    limit: int | None,
) -> Events[dict[str, ExampleSet[Any]]]:
    whole = read_source(task, train, table)
    if limit is not None and limit < len(whole.examples):
        yield Note(message=f"{limit:,} of {len(whole.examples):,} examples were sampled")
        whole = whole.sample(limit)
    data = read_splits(task, whole, dev, table=table, split_sizes=split)
    for name, read in data.items():
        yield Note(message=f"{name}: {len(read.examples):,} examples of {read.path} ({read.description})")
        for reason, count in read.dropped.items():
            yield Note(message=f"{name}: {count:,} left out: {reason}")
        for note in read.notes:
            yield Note(message=f"{name}: {note}")
    labels = Counter(name for example in data["train"].examples for name in classes(example))
    for message in similar_labels(labels):
        yield Note(message=f"warning: {message}. To fix it: write them in one way, if they mean the same")
    return data


def _image_factory(images: Sequence[Any], model: str | None, config: FineTuningConfig) -> Events[ImageModelFactory]:
    """Factory of a Vision Transformer: a new one unless a model is named (the default model reads text)."""
    learned = ImageTask.from_examples(images)
    patch = config.vision.patch_size
    if model is None:
        factory = ImageModelFactory(learned, ImageProcessor.for_images(images, patch=patch), config.vision)
        hint = f", in patches of {patch} (larger images fit with a larger vision.patch_size)"
    else:
        encoder, _ = loading.load(model)
        if not can(encoder, "image"):
            raise InputError(f"{model} is not a Vision Transformer; name one, or leave --model out for a new one")
        if not can(encoder, "fine-tuning"):
            raise InputError(f"{model} is {describe_model(encoder)}, which takes no classes; name a ViT or a DeiT")
        factory, hint = ImageModelFactory(learned, image_processor_of(encoder), config.vision, encoder=encoder), ""
    if other := factory.processor.count_resized(images):
        size = "{} x {}".format(*factory.processor.image_size)
        message = f"train: {other:,} of {len(images):,} images have another size than {size} and are resized{hint}"
        yield Note(message=message)
    return factory


def _data_problems(factory: ModelFactory, data: Mapping[str, ExampleSet[Any]], model: str) -> Iterator[Note]:
    for finding in problems(examine_data(factory.task, data["train"], data["dev"], factory.rows)):
        # The run goes on, so nothing here is an error.
        yield Note(message=f"warning: {finding.check}: {finding.evidence}. To fix it: {finding.remedy}")
    if isinstance(factory.rows, InputBuilder):
        count = reading_count(loading.find_folder(model))
        factory.rows.tokenizer.counting(count).encode_ids(texts_of(data["train"].examples))
        if (note := count.note(model)) is not None:
            yield Note(message=f"warning: {note}. A model that reads many languages: {MULTILINGUAL['masked-lm']}")


def _best_seed(done: Mapping[int, SeedResult], score: str) -> int:
    """The seed with the highest score; of equal ones the first, in whatever order they were trained."""
    return max(sorted(done), key=lambda seed: done[seed].scores[score])


def _result_path(folder: Path, seed: int) -> Path:
    return folder / f"{seed}.json"


def _read_result(folder: Path, seed: int) -> SeedResult:
    path = _result_path(folder, seed)
    try:
        return SeedResult(**read_checked_json(path))  # type: ignore[arg-type]
    except (InputError, TypeError) as error:
        raise InputError(
            f"{error if isinstance(error, InputError) else f'{path} is damaged: {error}'}. Put a copy of it back; or "
            f"delete it and continue with --resume: seed {seed} is trained again"
        ) from None


def _check_best(folder: Path, done: Mapping[int, SeedResult], score: str) -> None:
    """Compare the best model so far with its checksums, before the next seed is trained."""
    if not done or not (folder / BEST).is_dir():
        return
    finish_save(folder / BEST)  # which a killed process may have left half moved
    try:
        verify(folder / BEST)
    except InputError as error:
        seed = _best_seed(done, score)
        raise InputError(
            f"{error}. Or delete {folder / BEST} and {_result_path(folder, seed)} and continue with --resume: seed "
            f"{seed} is trained again"
        ) from None

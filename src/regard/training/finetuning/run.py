"""A fine-tuning run from files to a folder: read, tuned once a seed, compared, and resumed at will.

Knows the order of the work and what lies in the output folder. Prints nothing: the caller is told of events.

    regard.json            the manifest: which files of the folder are the run's own
    config.toml run.json   the settings, and what the run was made from
    events.jsonl           what happened, a line an event
    seeds/                 the result of each seed that is done, the best model of them, and checkpoints of the next
    config.json model.safetensors task.json report.json ...   the best seed's model, once all are done
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from regard.checkpoints import loading
from regard.data.examples import ImageExample
from regard.data.readers import ExampleSet, TableOptions
from regard.device import choose_device
from regard.errors import InputError
from regard.files.json_files import json_bytes
from regard.known import DEFAULT_MODEL
from regard.models import Vit
from regard.tasks.image_classification import ImageTask, ImageTransform
from regard.tasks.predict import score
from regard.tasks.read_examples import check_labels
from regard.tasks.registry import get_task
from regard.tasks.task_folder import FineTunedModel, load_fine_tuned, save_fine_tuned
from regard.training.doctor import examine_data, problems
from regard.training.finetuning.config import DEFAULTS, FineTuningConfig
from regard.training.finetuning.data import Source, digest, read_data
from regard.training.finetuning.model_factory import ImageModelFactory, ModelFactory, StudentFactory
from regard.training.finetuning.report import FineTuningReport
from regard.training.finetuning.seeds import BEST, seed_files, tune_seeds
from regard.training.run_folder import CONFIG, REPORT, RUN, RunFolder, Told, model_saved

__all__ = ["CONFIG", "distill", "fit"]

SEEDS, FROZEN = "seeds", "frozen"
Said = Callable[[str], None]


def fit(
    task: str,
    train: Source,
    dev: Source | None = None,
    *,
    model: str = DEFAULT_MODEL,
    output: str | os.PathLike[str],
    config: FineTuningConfig | None = None,
    table: TableOptions | None = None,
    parts: str | None = None,
    resume: bool = False,
    both: bool = False,
    device: torch.device | str = "auto",
    say: Said = lambda text: None,
    on_event: Told = lambda event: None,
) -> FineTuningReport:
    """Tune `model` for a task on labeled examples, and write the best seed's into `output`.

    `train` and `dev` are files or what a reader made of them. Without `dev`, one is taken out of `train` by `parts`
    ("90/10" where none are given); of three parts the last is set aside and scored once, as "test". `both` does it
    once more with the model frozen, in `output`/frozen, and reports that beside.
    """
    get_task(task)  # a wrong name should not be found after all has been read
    output = Path(output)
    data = _told(read_data(task, train, dev, table=table, parts=parts), say)
    pictures = isinstance(data["train"].examples[0], ImageExample)
    config = config or FineTuningConfig.load(defaults=DEFAULTS["pictures" if pictures else task])
    start = (_looking if pictures else _reading)(task, data, model, config, say)
    called = "a new ViT" if isinstance(start, ImageModelFactory) and start.given is None else model

    def run(settings: FineTuningConfig, folder: Path, *, resume: bool, beside: Mapping[str, Any]) -> FineTuningReport:
        return _run(
            start, called, data, settings, folder, resume=resume, beside=beside, device=device, on_event=on_event
        )

    if not both:
        return run(config, output, resume=resume, beside={})
    held = [name for name in (RUN, "config.json", FROZEN) if (output / name).exists()]
    if held and not resume:
        raise InputError(
            f"{output} holds a run or a model ({held[0]}): go on with --resume, or choose another --output"
        )
    folder = _folder(start, called, data, config, output)
    if not (resume and folder.finished()):
        folder.open(resume=resume, beside=[FROZEN])
        folder.claim(f"{FROZEN}/")
    training = config.training.model_copy(update={"frozen": True})
    settings = config.model_copy(update={"training": training})
    frozen = run(settings, output / FROZEN, resume=resume, beside={}).document()
    beside = {FROZEN: {key: frozen[key] for key in ("mean", "deviation")}}
    # The folder is this run's own by now, so that "resume" means: whether or not it was begun before.
    return run(config, output, resume=True, beside=beside)


def distill(
    teacher: str | os.PathLike[str],
    train: Source,
    dev: Source | None = None,
    *,
    layers: int,
    output: str | os.PathLike[str],
    config: FineTuningConfig | None = None,
    table: TableOptions | None = None,
    parts: str | None = None,
    resume: bool = False,
    device: torch.device | str = "auto",
    say: Said = lambda text: None,
    on_event: Told = lambda event: None,
) -> FineTuningReport:
    """Teach a student of fewer `layers` what a tuned model says of labeled examples."""
    solved = load_fine_tuned(teacher)
    config = config or FineTuningConfig.load(defaults=DEFAULTS["distill"])
    data = _told(read_data(solved.task.name, train, dev, table=table, parts=parts), say)
    student = StudentFactory(solved, layers=layers, length=config.training.max_length)
    _examined(student, data, say)
    name = f"{os.fspath(teacher)}, {layers} of {solved.model.encoder.config.num_hidden_layers} layers"
    return _run(student, name, data, config, Path(output), resume=resume, device=device, on_event=on_event)


def _reading(
    task: str, data: Mapping[str, ExampleSet[Any]], model: str, config: FineTuningConfig, say: Said
) -> ModelFactory:
    """A model that reads text, once the data has been looked at."""
    learned = get_task(task).from_examples(data["train"].examples)
    encoder, tokenizer = loading.load(model)
    start = ModelFactory(learned, encoder, tokenizer, length=config.training.max_length)
    _examined(start, data, say)
    return start


def _examined(start: ModelFactory, data: Mapping[str, ExampleSet[Any]], say: Said) -> None:
    """Tell what the doctor finds in the data."""
    for finding in problems(examine_data(start.task, data["train"], data["dev"], start.rows)):
        say(f"{finding.status}: {finding.check}: {finding.evidence}. Remedy: {finding.remedy}")


def _looking(
    task: str, data: Mapping[str, ExampleSet[Any]], model: str, config: FineTuningConfig, say: Said
) -> ModelFactory:
    """A model that looks at pictures. The default model reads text, so then it is a new one."""
    pictures = data["train"].examples
    learned = ImageTask.from_examples(pictures)
    if model == DEFAULT_MODEL:
        start = ImageModelFactory(
            learned, ImageTransform.for_images(pictures, patch=config.vision.patch_size), config.vision
        )
        hint = (
            f", in patches of {config.vision.patch_size} (vision.patch_size; with larger patches, larger pictures fit)"
        )
    else:
        encoder, _ = loading.load(model)
        if not isinstance(encoder, Vit):
            raise InputError(f"{model} is no VisionSection Transformer; name one, or leave --model out for a new one")
        frame, hint = ImageTransform(*encoder.config.image_size, encoder.config.num_channels), ""
        start = ImageModelFactory(learned, frame, config.vision, encoder=encoder)
    if other := start.frame.count_resized(pictures):
        size = f"{start.frame.height} x {start.frame.width}"
        say(f"train: {other:,} of {len(pictures):,} pictures have another size than {size} and are resized{hint}")
    _examined(start, data, say)
    return start


def _told(data: dict[str, ExampleSet[Any]], say: Said) -> dict[str, ExampleSet[Any]]:
    for name, read in data.items():
        say(f"{name}: {len(read.examples):,} examples of {read.path} ({read.description})")
        for reason, count in read.dropped.items():
            say(f"{name}: {count:,} left out: {reason}")
    return data


def _run(
    start: ModelFactory,
    model: str,
    data: dict[str, ExampleSet[Any]],
    config: FineTuningConfig,
    output: Path,
    *,
    resume: bool,
    device: torch.device | str,
    on_event: Told,
    beside: Mapping[str, Any] | None = None,
) -> FineTuningReport:
    place = choose_device(device) if isinstance(device, str) else device
    task = start.task
    for read in data.values():
        check_labels(task, read)
    folder = _folder(start, model, data, config, output)
    if resume and (done := folder.finished()):
        return FineTuningReport.restore(done)
    folder.open(resume=resume)
    with folder.running(on_event) as note:
        outcomes = tune_seeds(start, data, config, output / SEEDS, device=place, note=note)
        about = {
            name: {"path": read.path, "examples": len(read.examples), "how": read.description}
            for name, read in data.items()
        }
        settings = {name: dict(getattr(config, name)) for name in config.sections()}
        report = FineTuningReport(task.name, model, task.main_metric, about, settings, outcomes, dict(beside or {}))
        best = load_fine_tuned(output / SEEDS / BEST, device=place)
        if "test" in data:
            report = _tested(report, best, data["test"], device=place)
        files = {REPORT: json_bytes(report.document()), "report.md": report.markdown().encode()}
        save_fine_tuned(best, output, files=files)
        with model_saved(output):
            note("end", **report.mean)
    return report


def _folder(
    start: ModelFactory, model: str, data: Mapping[str, ExampleSet[Any]], config: FineTuningConfig, output: Path
) -> RunFolder:
    run = {"task": start.task.name, "model": model, "data": {name: digest(read) for name, read in data.items()}}
    return RunFolder(output, config, run, work=SEEDS, work_files=seed_files(config), kind="fine-tuning run")


def _tested(
    report: FineTuningReport, best: FineTunedModel, read: ExampleSet[Any], *, device: torch.device
) -> FineTuningReport:
    scores = score(best, read.examples, device=device)
    data = {**report.data, "test": {**report.data["test"], "scores": scores}}
    return replace(report, data=data)

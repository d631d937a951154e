"""A run from a file of texts to a folder that Regard and sentence-transformers load; resumable at any point.

regard.json            the manifest: which files of the folder belong to the run
config.toml run.json   the settings, and the data and models of the run
events.jsonl           the events, one line each
work/                  the tokenized texts, the teacher's vectors and checkpoints
config.json model.safetensors modules.json 1_Pooling/ report.json ...   the model, when it is finished
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from regard.checkpoints import loading
from regard.checkpoints.files import verify
from regard.checkpoints.loaded_model import require_tokenizer
from regard.device import choose_device
from regard.errors import InputError
from regard.events import Note
from regard.files.disk import replace_file
from regard.inference.embedding.engine import EmbeddingEngine, load_engine
from regard.inference.embedding.sentence_transformers import sentence_files
from regard.known import DEFAULT_EMBEDDING_MODEL, DEFAULT_MODEL
from regard.models.family import build, can, family_name, get_family
from regard.render.result import Table
from regard.tasks.metrics import value_scores
from regard.text import Tokenizer
from regard.training.embedding.config import EmbeddingConfig
from regard.training.embedding.data import EmbeddingDataset, TextRows, TokenizedTexts, text_keys, tokenize
from regard.training.embedding.trainer import EmbeddingOutcome, EmbeddingTrainer, teacher_vectors
from regard.training.events import Events, Finished, TrainingStarted, describe_scores
from regard.training.run_folder import REPORT, RunFolder, RunReport, log_events
from regard.training.tensorboard import TensorBoardLog
from regard.training.world import refuse_several_processes
from regard.wording import count_of, duration

WORK, CHECKPOINTS = "work", "checkpoints"
TARGETS = "targets.npy"
MIN_SPLIT = 20  # scored pairs from which on a tenth is held out
CANDIDATES = 1024  # rows whose similarities are computed at once


class EmbeddingReport(RunReport):
    """The result of a run; scores are those on dev, in percent."""

    task: Literal["embed"] = "embed"
    model: str
    teacher: str | None
    objective: str
    parameters: int
    device: str
    data: dict[str, dict[str, Any]]
    settings: dict[str, dict[str, Any]]
    outcome: EmbeddingOutcome

    def to_text(self) -> str:
        outcome = self.outcome
        cost = f"{outcome.steps:,} steps, {outcome.tokens:,} tokens in {duration(outcome.seconds)}"
        lines = [f"{self.output}: {self.parameters:,} parameters, {self.objective}, {cost}"]
        if outcome.start:
            lines.append("dev before training " + "  ".join(describe_scores(outcome.start)))
        if outcome.scores:
            kept = ", the model before training is kept: no epoch was better" if not outcome.epoch else ""
            lines.append("dev " + "  ".join(describe_scores(outcome.scores)) + kept)
        return "\n".join(lines)

    def to_table(self) -> Table:
        names = list(self.outcome.scores)
        rows = [[epoch, *(scores[name] for name in names)] for epoch, scores in enumerate(self.outcome.history, 1)]
        return ["epoch", *names], rows


def train_embedder(
    train: TextRows,
    dev: TextRows | None = None,
    *,
    model: str | os.PathLike[str] | None = None,
    teacher: str | os.PathLike[str] | None = None,
    output: str | os.PathLike[str],
    config: EmbeddingConfig | None = None,
    resume: bool = False,
    tensorboard: str | os.PathLike[str] | None = None,
    device: torch.device | str = "auto",
) -> Events[EmbeddingReport]:
    """Train a sentence-embedding model from `model` on rows of texts and write it to `output`.

    Pairs and triplets are trained with in-batch negatives, scored pairs with CoSENT, and texts with a `teacher`, an
    embedding model whose vectors are the targets. `dev`, pairs or scored pairs, is evaluated before training and after
    each epoch; the start model is kept if no epoch is better. Without `dev`, a tenth of scored pairs is held out.
    Without a `model`, training starts from regard-embed, or from regard-bert with a teacher. `tensorboard` is a folder.
    """
    refuse_several_processes("regard train embed")
    board = TensorBoardLog.open(tensorboard)
    output, config = Path(output), config or EmbeddingConfig.load()
    device = choose_device(device) if isinstance(device, str) else device
    _check_data(train, dev, teacher)
    if model is None:
        model = DEFAULT_EMBEDDING_MODEL if teacher is None else DEFAULT_MODEL
        yield Note(message=f"model: {model}, as none is given (--model)")
    if dev is None and train.scores is not None and len(train) >= MIN_SPLIT:
        train, dev = train.split(10)
    data = {"train": train, **({"dev": dev} if dev is not None else {})}
    for name, rows in data.items():
        yield Note(message=f"{name}: {count_of(len(rows), 'row')} of {rows.path} ({rows.kind}; {rows.description})")
        for reason, count in rows.dropped.items():
            yield Note(message=f"{name}: {count:,} left out: {reason}")
    folders = {"model": loading.find_folder(model), **({"teacher": loading.find_folder(teacher)} if teacher else {})}
    run = {
        "task": "embed",
        "data": {name: rows.digest() for name, rows in data.items()},
        **{name: _digest(folder) for name, folder in folders.items()},
    }
    folder = RunFolder(
        output,
        config,
        run,
        work=WORK,
        work_files=[f"{CHECKPOINTS}/step-*/"],
        prepared_files=[*(name for index in range(len(train.columns)) for name in _array_names(index)), TARGETS],
        kind="embedding run",
    )
    if resume and (done := folder.finished()):
        return EmbeddingReport(output=os.fspath(output), **done)
    folder.open(resume=resume)
    student, tokenizer = start_model(folders["model"], config)
    max_length = min(config.model.max_length, student.config.max_position_embeddings)
    sizes = config.objective.matryoshka
    if sizes and max(sizes) > student.config.hidden_size:
        raise InputError(
            f"objective.matryoshka has the size {max(sizes)}, and this model's vectors have the size "
            f"{student.config.hidden_size}"
        )

    def train_and_save() -> Events[EmbeddingReport]:
        prepared = _prepare(train, tokenizer, folders.get("teacher"), output / WORK, max_length, device)
        dataset = yield from prepared
        judge = None if dev is None else Evaluation(student, tokenizer, dev, max_length=max_length, device=device)
        start = None
        if judge is not None:
            start = judge()
            yield Note(message=f"dev before training, {os.fspath(model)}: {'  '.join(describe_scores(start))}")
        trainer = EmbeddingTrainer(
            student,
            dataset,
            config,
            max_length=max_length,
            device=device,
            folder=output / WORK / CHECKPOINTS,
            evaluate=judge,
            main_score=None if judge is None else judge.main_score,
        )
        parameters = sum(parameter.numel() for parameter in student.parameters())
        steps = None if trainer.budget is not None else trainer.steps
        yield TrainingStarted(steps=steps, examples=len(train), parameters=parameters)
        outcome = yield from trainer.run_interruptible()
        outcome = replace(outcome, start=start or {})
        if judge is not None and start is not None and start[judge.main_score] > outcome.scores[judge.main_score]:
            message = f"training did not improve {judge.main_score} on dev ({outcome.scores[judge.main_score]:.2f}): "
            if config.training.select == "best":
                student.load_state_dict(start_model(folders["model"], config)[0].state_dict())
                outcome = replace(outcome, scores=start, epoch=0.0)
                yield Note(message=f"{message}the model is kept as it was before training")
            else:
                yield Note(message=f"warning: {message}it was {start[judge.main_score]:.2f} before training")
        report = EmbeddingReport(
            output=os.fspath(output),
            model=os.fspath(model),
            teacher=None if teacher is None else os.fspath(teacher),
            objective=_objective_name(train, teacher),
            parameters=parameters,
            device=device.type,
            data={
                name: {"path": rows.path, "rows": len(rows), "kind": rows.kind, "how": rows.description}
                for name, rows in data.items()
            },
            settings=config.model_dump(mode="json"),
            outcome=outcome,
        )
        save_embedder(
            student,
            tokenizer,
            output,
            max_length=max_length,
            normalize=config.model.normalize,
            files={REPORT: report.file()},
        )
        yield Finished(scores=outcome.scores, steps=outcome.steps, tokens=outcome.tokens, seconds=outcome.seconds)
        return report

    with folder.running():
        return (yield from log_events(train_and_save(), output, tensorboard=board))


def save_embedder(
    model: nn.Module,
    tokenizer: Tokenizer,
    folder: Path,
    *,
    max_length: int,
    normalize: bool,
    files: dict[str, bytes] | None = None,
) -> None:
    """Write a model folder that Regard and sentence-transformers load: mean pooling, and normalized if asked for."""
    size: int = model.config.hidden_size  # type: ignore[union-attr, assignment]
    stated = sentence_files(hidden_size=size, max_length=max_length, normalize=normalize)
    loading.write_model(model.eval(), folder, files={**tokenizer.files(), **stated, **(files or {})})


def start_model(folder: Path, config: EmbeddingConfig) -> tuple[Any, Tokenizer]:
    """The encoder of a pretrained model, with as many layers as the settings say, and its tokenizer."""
    found: Any
    found, tokenizer = loading.load(folder)
    family = get_family(family_name(found))
    if not (can(found, "text-encoder") and can(found, "fine-tuning")) or can(found, "recurrent"):
        raise InputError(f"{folder}: this {family.name} model cannot become an embedding model; use a BERT or the like")
    layers = config.model.num_hidden_layers or found.config.num_hidden_layers
    if layers > found.config.num_hidden_layers:
        raise InputError(
            f"model.num_hidden_layers is {layers}, and {folder} has {found.config.num_hidden_layers} layers"
        )
    # transformers expects a pooler in a BERT; it is kept, but not trained.
    heads = [head for head in family.output_heads if head == "pooler" and found.pooler is not None]
    changes: dict[str, Any] = {"num_hidden_layers": layers}
    if config.model.dropout >= 0:
        changes |= dict.fromkeys(("dropout", "attention_dropout"), config.model.dropout)
    model: Any = build(replace(found.config, **changes), output_heads=heads)
    model.load_state_dict({name: found.state_dict()[name] for name in model.state_dict()})
    for head in heads:
        getattr(model, head).requires_grad_(False)
    return model, require_tokenizer(model, tokenizer)


class Evaluation:
    """Scores on dev in percent: Spearman's and Pearson's correlation of cosines and scores for scored pairs; for pairs
    how often an anchor is closest to its positive among all positives (recall@1), within 10, and the mean reciprocal
    rank."""

    def __init__(
        self, model: nn.Module, tokenizer: Tokenizer, dev: TextRows, *, max_length: int, device: torch.device
    ) -> None:
        self.model, self.tokenizer, self.dev, self.max_length, self.device = model, tokenizer, dev, max_length, device
        self.main_score = "recall@1" if dev.scores is None else "spearman"

    def __call__(self) -> dict[str, float]:
        training = self.model.training
        try:
            engine = EmbeddingEngine(
                self.model, self.tokenizer, normalize=True, max_length=self.max_length, device=self.device
            )
            if self.dev.scores is None:
                return retrieval_scores(engine.embed, self.dev.columns[0], self.dev.columns[1])
            first, second = (engine.embed(column) for column in self.dev.columns)
            scores = value_scores(self.dev.scores, (first * second).sum(1).tolist())
            return {"spearman": scores["spearman"], "pearson": scores["pearson"]}
        finally:
            self.model.train(training)


def retrieval_scores(embed: Any, queries: Sequence[str], documents: Sequence[str]) -> dict[str, float]:
    """How well each query finds its document among all different documents: recall@1, recall@10 and MRR in percent.

    `embed` returns normalized vectors. A document that is equally close counts as closer.
    """
    indices = {text: index for index, text in enumerate(dict.fromkeys(documents))}
    right = np.array([indices[text] for text in documents])
    vectors, candidates = embed(list(queries)), embed(list(indices))
    ranks = np.empty(len(right))
    for start in range(0, len(right), CANDIDATES):
        similarities = vectors[start : start + CANDIDATES] @ candidates.T
        own = similarities[np.arange(len(similarities)), right[start : start + CANDIDATES]]
        ranks[start : start + CANDIDATES] = (similarities >= own[:, None]).sum(1)
    return {
        "recall@1": 100 * float((ranks <= 1).mean()),
        "recall@10": 100 * float((ranks <= 10).mean()),
        "mrr": 100 * float((1 / ranks).mean()),
    }


def _check_data(train: TextRows, dev: TextRows | None, teacher: object) -> None:
    if teacher is None and train.kind == "texts":
        raise InputError(
            f"{train.path} has one text per row, which says nothing about similarity: give pairs, triplets or scored "
            "pairs, or a model to learn from with --teacher"
        )
    if teacher is not None and train.kind != "texts":
        raise InputError(f"--teacher gives the targets of single texts, and {train.path} has {train.kind}")
    if dev is not None and dev.kind not in ("pairs", "scored pairs"):
        raise InputError(f"{dev.path} has {dev.kind}; expected pairs or scored pairs to evaluate on")


def _objective_name(train: TextRows, teacher: object) -> str:
    if teacher is not None:
        return "distillation"
    return "CoSENT" if train.scores is not None else "in-batch negatives"


def _digest(folder: Path) -> str:
    """The checksum of a model's weights, or its name if it has no checksums."""
    sums = verify(folder)
    return next((sums[name] for name in sorted(sums) if name.endswith(".safetensors")), folder.name)


def _array_names(index: int) -> tuple[str, str]:
    return f"ids-{index}.npy", f"offsets-{index}.npy"


def _prepare(
    train: TextRows, tokenizer: Tokenizer, teacher: Path | None, work: Path, max_length: int, device: torch.device
) -> Events[EmbeddingDataset]:
    """The tokenized rows with their targets; a resumed run reads them from the work folder."""
    columns = []
    for index, texts in enumerate(train.columns):
        ids, offsets = (work / name for name in _array_names(index))
        if not (ids.is_file() and offsets.is_file()):
            tokenized = yield from tokenize(texts, tokenizer, max_length=max_length)
            _write_array(ids, tokenized.ids)
            _write_array(offsets, tokenized.offsets)
        columns.append(TokenizedTexts(np.load(ids), np.load(offsets)))
    if teacher is None:
        scores = None if train.scores is None else np.array(train.scores, dtype=np.float32)
        keys = text_keys(train.columns) if train.scores is None else None
        return EmbeddingDataset(tuple(columns), scores=scores, keys=keys)
    path = work / TARGETS
    if not path.is_file():
        engine = load_engine(teacher, device="cpu")
        limit = engine.max_length or max_length
        tokenized = yield from tokenize(
            train.columns[0], engine.tokenizer, max_length=limit, stage="tokenizing for the teacher"
        )
        vectors = yield from teacher_vectors(
            engine.model, tokenized, pooling=engine.pooling, max_length=limit, device=device
        )
        engine.model.to("cpu")
        _write_array(path, vectors)
    return EmbeddingDataset(tuple(columns), targets=np.load(path))


def _write_array(path: Path, array: NDArray[Any]) -> None:
    with replace_file(path) as temporary, open(temporary, "wb") as file:
        np.save(file, array)

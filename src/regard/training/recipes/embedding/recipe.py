"""The recipe of a sentence-embedding model: pairs, triplets, scored pairs, or the vectors of a teacher.

work/   the tokenized texts and the teacher's vectors
config.json model.safetensors modules.json 1_Pooling/ report.json ...   the model, when it is finished
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, ClassVar, Literal

import numpy as np
import torch
from numpy.typing import NDArray
from pydantic import Field
from torch import Tensor, nn

from regard.checkpoints import loading
from regard.checkpoints.files import verify
from regard.checkpoints.loaded_model import require_tokenizer
from regard.errors import InputError
from regard.events import Note
from regard.files.disk import replace_file
from regard.inference.embedding.engine import EmbeddingEngine, load_engine
from regard.inference.embedding.sentence_transformers import SentenceSettings, read_sentence_settings, sentence_files
from regard.known import DEFAULT_EMBEDDING_MODEL, DEFAULT_MODEL
from regard.models.family import build, can, family_name, family_of
from regard.nn.masks import MAX_SEQUENCES
from regard.render.result import Table
from regard.tasks.metrics import value_scores
from regard.text import Tokenizer
from regard.training.distributed.world import World
from regard.training.events import Events, Finished, describe_scores
from regard.training.optimizer import default_learning_rate
from regard.training.recipe import (
    Capability,
    Evaluation,
    Recipe,
    Share,
    StepBatch,
    TrainingOutcome,
    TrainingRun,
    epochs_from,
)
from regard.training.recipes.embedding.config import EmbeddingConfig
from regard.training.recipes.embedding.data import (
    EmbeddingDataset,
    TextRows,
    TokenizedTexts,
    pack,
    text_keys,
    tokenize,
)
from regard.training.recipes.embedding.objective import EmbeddingObjective, teacher_vectors
from regard.training.run import Session, run, started
from regard.training.run_folder import REPORT, RunReport
from regard.wording import count_of, duration

TARGETS = "targets.npy"
MIN_SPLIT = 20  # scored pairs from which on a tenth is held out
CANDIDATES = 1024  # rows whose similarities are computed at once
PADDING = 512  # compiled batches are padded to a multiple of this number of tokens
SAMPLED_EPOCHS = 32  # whose largest batch is the size of compiled batches
NEGATIVES = "what a row is compared with are all other rows of its batch, of which a part would see only some"


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
    outcome: TrainingOutcome
    start: dict[str, float] = Field(default_factory=dict)  # scores before training

    def to_text(self) -> str:
        outcome = self.outcome
        cost = f"{outcome.steps:,} steps, {outcome.tokens:,} tokens in {duration(outcome.seconds)}"
        lines = [f"{self.output}: {self.parameters:,} parameters, {self.objective}, {cost}"]
        if self.start:
            lines.append("dev before training " + "  ".join(describe_scores(self.start)))
        if outcome.scores:
            kept = ", the model before training is kept: no epoch was better" if not outcome.epochs else ""
            lines.append("dev " + "  ".join(describe_scores(outcome.scores)) + kept)
        return "\n".join(lines)

    def to_table(self) -> Table:
        names = list(self.outcome.scores)
        rows = [[epoch, *(scores[name] for name in names)] for epoch, scores in enumerate(self.outcome.history, 1)]
        return ["epoch", *names], rows


class EmbeddingRecipe(Recipe, TrainingRun):
    """Trains a sentence-embedding model from `model` on rows of texts, or on a `teacher`'s vectors of texts.

    The start model is kept if no epoch is better on `dev`. Rows that do not fill a batch at the end of an epoch are
    left out of it.
    """

    kind = "embedding"
    report_class = EmbeddingReport
    refuses: ClassVar[Mapping[Capability, str]] = {
        "processes": NEGATIVES,
        "gradient accumulation": NEGATIVES,
    }
    constant_shapes = True
    config: EmbeddingConfig

    def __init__(
        self,
        train: TextRows,
        dev: TextRows | None,
        config: EmbeddingConfig,
        *,
        model: str | os.PathLike[str] | None = None,
        teacher: str | os.PathLike[str] | None = None,
    ) -> None:
        _check_data(train, dev, teacher)
        self.is_default = model is None
        if model is None:
            model = DEFAULT_EMBEDDING_MODEL if teacher is None else DEFAULT_MODEL
        self.model, self.teacher = os.fspath(model), None if teacher is None else os.fspath(teacher)
        if dev is None and train.scores is not None and len(train) >= MIN_SPLIT:
            train, dev = train.split(10)
        self.data = {"train": train, **({"dev": dev} if dev is not None else {})}
        models = {"model": self.model, **({"teacher": self.teacher} if self.teacher else {})}
        self.folders = {name: loading.find_folder(each) for name, each in models.items()}
        self.stated = {name: _trainable_settings(folder) for name, folder in self.folders.items()}
        self.pooling = self.stated["model"].pooling or "mean"
        self.config, self.training, self.run = config, config.training, config.run
        self.evaluates = dev is not None
        self.main_score = "recall@1" if dev is None or dev.scores is None else "spearman"
        self.capacity = 0  # tokens of compiled batches
        self.pins_memory = False
        self.student: Any
        self.tokenizer: Tokenizer
        self.dataset: EmbeddingDataset

    def open(self, world: World) -> Events[None]:
        if self.is_default:
            yield Note(message=f"model: {self.model}, as none is given (--model)")
        for name, rows in self.data.items():
            yield Note(message=f"{name}: {count_of(len(rows), 'row')} of {rows.path} ({rows.kind}; {rows.description})")
            for reason, count in rows.dropped.items():
                yield Note(message=f"{name}: {count:,} left out: {reason}")

    def identity(self) -> dict[str, Any]:
        return {
            "task": "embed",
            "data": {name: rows.digest() for name, rows in self.data.items()},
            **{name: _digest(folder) for name, folder in self.folders.items()},
        }

    def prepared_files(self) -> list[str]:
        return [*(name for index in range(len(self.data["train"].columns)) for name in _array_names(index)), TARGETS]

    def train(self, session: Session) -> Events[EmbeddingReport]:
        self._load_student()
        teacher = self.folders.get("teacher")
        rows, device = self.data["train"], session.device
        dataset = yield from _prepare(rows, self.tokenizer, teacher, session.work, self.max_length, device)
        self._divide(dataset)
        start: dict[str, float] = {}
        if self.evaluates:
            start = self._scores(self.student, session.device)
            yield Note(message=f"dev before training, {self.model}: {'  '.join(describe_scores(start))}")
        trainer = session.trainer(self)
        yield started(trainer, examples=len(self.data["train"]))
        outcome = yield from trainer.train()
        if start and start[self.main_score] > outcome.scores[self.main_score]:
            message = f"training did not improve {self.main_score} on dev ({outcome.scores[self.main_score]:.2f}): "
            if self.training.select == "best":
                trainer.model.load_state_dict(start_model(self.folders["model"], self.config)[0].state_dict())
                outcome = replace(outcome, scores=start, epochs=[])
                yield Note(message=f"{message}the model is kept as it was before training")
            else:
                yield Note(message=f"warning: {message}it was {start[self.main_score]:.2f} before training")
        report = EmbeddingReport(
            output=os.fspath(session.output),
            model=self.model,
            teacher=self.teacher,
            objective="distillation" if self.teacher else "in-batch negatives" if rows.scores is None else "CoSENT",
            parameters=sum(parameter.numel() for parameter in trainer.model.parameters()),
            device=session.device.type,
            data={
                name: {"path": rows.path, "rows": len(rows), "kind": rows.kind, "how": rows.description}
                for name, rows in self.data.items()
            },
            settings=self.config.model_dump(mode="json"),
            outcome=outcome,
            start=start,
        )
        size, normalize = self.student.config.hidden_size, self.config.model.normalize
        stated = sentence_files(
            hidden_size=size,
            max_length=self.max_length,
            normalize=normalize,
            pooling=self.pooling,
            settings=SentenceSettings(prompts=self.stated["model"].prompts),
        )
        files = {**self.tokenizer.files(), **stated, REPORT: report.file()}
        loading.write_model(trainer.model.eval(), session.output, files=files)
        yield Finished(scores=outcome.scores, steps=outcome.steps, tokens=outcome.tokens, seconds=outcome.seconds)
        return report

    def _load_student(self) -> None:
        self.student, self.tokenizer = start_model(self.folders["model"], self.config)
        encoder, sizes = self.student.config, self.config.objective.matryoshka
        self.max_length = min(self.config.model.max_length, encoder.max_position_embeddings)
        if sizes and max(sizes) > encoder.hidden_size:
            raise InputError(
                f"objective.matryoshka has the size {max(sizes)}, and this model's vectors have the size "
                f"{encoder.hidden_size}"
            )
        rate = self.training.learning_rate or default_learning_rate(encoder.hidden_size)
        self.training = self.training.model_copy(update={"learning_rate": rate})

    def _divide(self, dataset: EmbeddingDataset) -> None:
        """Divide the epochs of a data set into batches."""
        self.dataset, given = dataset, self.config.training.batch_size
        self.batch_size = min(given, len(dataset))
        if self.batch_size < 2:
            raise InputError("one row has no negatives: expected at least 2 different rows to train on")
        if self.batch_size * len(dataset.columns) > MAX_SEQUENCES:
            raise InputError(
                f"training.batch_size is {given:,}: {len(dataset.columns)} texts per row are more than the "
                f"{MAX_SEQUENCES:,} texts that a batch can hold"
            )
        self.steps_per_epoch = len(dataset) // self.batch_size

    def build_model(self, seed: int) -> nn.Module:
        model: nn.Module = self.student
        return model

    def objective(self, model: nn.Module, device: torch.device) -> nn.Module:
        self.capacity = self._largest_batch() if self.compiles(device) else 0
        self.pins_memory = device.type == "cuda"
        columns = len(self.dataset.columns)
        options: dict[str, Any] = {"columns": columns, "max_length": self.max_length, "pooling": self.pooling}
        return EmbeddingObjective(model, self.config.objective, **options)

    def batches(self, step: int, position: Any, share: Share) -> Iterator[StepBatch]:
        assert self.steps_per_epoch is not None
        for epoch, first in epochs_from(step, self.steps_per_epoch):
            for rows in self._epoch(epoch)[first:]:
                batch = self._batch(rows)
                if self.pins_memory:
                    batch = {name: tensor.pin_memory() for name, tensor in batch.items()}
                yield StepBatch([batch], tokens=int(batch["lengths"].sum()))

    def inputs(self, part: dict[str, Tensor], device: torch.device) -> dict[str, Any]:
        return {name: tensor.to(device, non_blocking=True) for name, tensor in part.items()}

    def evaluate(self, model: nn.Module, *, final: bool) -> Evaluation:
        yield 0, 0
        return self._scores(model, next(model.parameters()).device)

    def _scores(self, model: nn.Module, device: torch.device) -> dict[str, float]:
        """Scores on dev in percent: Spearman's and Pearson's correlation of cosines and scores for scored pairs; for
        pairs how often an anchor is closest to its positive among all positives (recall@1), within 10, and the mean
        reciprocal rank."""
        training, dev = model.training, self.data["dev"]
        try:
            options: dict[str, Any] = {"pooling": self.pooling, "normalize": True, "max_length": self.max_length}
            engine = EmbeddingEngine(model, self.tokenizer, device=device, **options)
            if dev.scores is None:
                return retrieval_scores(engine.embed, dev.columns[0], dev.columns[1])
            first, second = (engine.embed(column) for column in dev.columns)
            scores = value_scores(dev.scores, (first * second).sum(1).tolist())
            return {"spearman": scores["spearman"], "pearson": scores["pearson"]}
        finally:
            model.train(training)

    def _epoch(self, epoch: int) -> NDArray[np.int64]:
        """The rows of each batch, (steps, batch size): groups of neighboring rows in random order."""
        generator, size = np.random.default_rng([self.run.seed, epoch]), self.config.training.group_size
        starts = generator.permutation(-(-len(self.dataset) // size)) * size
        order = (starts[:, None] + np.arange(size)).flatten()
        order = order[order < len(self.dataset)]
        return order[: len(order) // self.batch_size * self.batch_size].reshape(-1, self.batch_size)

    def _batch(self, rows: NDArray[np.int64]) -> dict[str, Tensor]:
        dataset = self.dataset
        inputs = pack(dataset.columns, rows, capacity=self.capacity, max_length=self.max_length)
        if dataset.scores is not None:
            inputs["scores"] = torch.from_numpy(dataset.scores[rows])
        if dataset.targets is not None:
            inputs["targets"] = torch.from_numpy(dataset.targets[rows])
        if dataset.keys is not None:
            inputs["keys"] = torch.from_numpy(dataset.keys[:, rows])
        return inputs

    def _largest_batch(self) -> int:
        """The tokens of the largest batch, rounded up: all compiled batches have this size."""
        training, lengths = self.training, self.dataset.lengths
        epochs = SAMPLED_EPOCHS if training.budget or training.max_steps else training.num_epochs
        most = (int(lengths[self._epoch(epoch)].sum(1).max()) for epoch in range(min(SAMPLED_EPOCHS, epochs)))
        return -(-max(most) // PADDING) * PADDING


def train_embedder(
    train: TextRows,
    dev: TextRows | None = None,
    *,
    model: str | os.PathLike[str] | None = None,
    teacher: str | os.PathLike[str] | None = None,
    output: str | os.PathLike[str],
    config: EmbeddingConfig | None = None,
    **options: Any,
) -> Events[EmbeddingReport]:
    """Train a sentence-embedding model from `model` on rows of texts and write it to `output`.

    Pairs and triplets are trained with in-batch negatives, scored pairs with CoSENT, and texts with a `teacher`, an
    embedding model whose vectors are the targets. `dev`, pairs or scored pairs, is evaluated before training and after
    each epoch; the start model is kept if no epoch is better. Without `dev`, a tenth of scored pairs is held out.
    Without a `model`, training starts from regard-embed, or from regard-bert with a teacher. `options` are those of
    `run`.
    """
    recipe = EmbeddingRecipe(train, dev, config or EmbeddingConfig.load(), model=model, teacher=teacher)
    return run(recipe, output, **options)


def _trainable_settings(folder: Path) -> SentenceSettings:
    """What the files of a start model or a teacher state; InputError for what training would not keep."""
    settings = read_sentence_settings(folder)
    found = [f"the module {type(module).__name__}" for module in settings.modules]
    if settings.pooling not in (None, "cls", "mean", "max"):
        found.append(f"the pooling {settings.pooling}")
    if settings.find_prompt():
        found.append(f"the prompt {settings.find_prompt()!r} before every text")
    found += [name for name in ("truncate_dim", "do_lower_case") if getattr(settings, name)]
    if found:
        raise InputError(
            f"{folder} has {', '.join(found)}, which `regard train embed` cannot train with; expected an embedding "
            "model of a Transformer and a pooling (cls, mean or max)"
        )
    return settings


def start_model(folder: Path, config: EmbeddingConfig) -> tuple[Any, Tokenizer]:
    """The encoder of a pretrained model, with as many layers as the settings say, and its tokenizer."""
    found: Any
    found, tokenizer = loading.load(folder)
    family = family_of(found)
    if family is None or not (can(found, "text-encoder") and can(found, "fine-tuning")) or can(found, "recurrent"):
        name = family_name(found)
        raise InputError(f"{folder}: this {name} model cannot become an embedding model; use a BERT or the like")
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

"""A fine-tuned model: its predictions and metrics, and its folder, which transformers reads too.

The folder has the layout of transformers, and task.json with the task.
"""

from __future__ import annotations

import os
from collections.abc import Generator, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from itertools import islice
from pathlib import Path
from typing import Any, get_args

import torch
from torch import Tensor

from regard.checkpoints import loading
from regard.checkpoints.configs import has_task_head, parse_config
from regard.checkpoints.cross_encoder import cross_encoder_files, read_cross_encoder
from regard.checkpoints.file_format import format_of
from regard.checkpoints.files import TASK as TASK_FILE
from regard.checkpoints.loaded_model import LoadedModel
from regard.checkpoints.loading import output_heads_of, read_parts, write_model
from regard.checkpoints.reading import CountedModel, stated_language
from regard.data.examples import Example, without_label
from regard.data.files import refuse_file_name
from regard.data.image_processor import ImageProcessor, image_processor_of
from regard.data.readers import TableOptions
from regard.engine.batches import check_finite
from regard.engine.precision import PRECISION_NAMES, InferencePrecision, PrecisionChoice, resolve_precision
from regard.errors import InputError, check_choice
from regard.events import drain
from regard.files.json_files import json_bytes, read_json
from regard.models.family import can, describe_model, family_name
from regard.nn.pooling import POOLINGS
from regard.settings import Precision
from regard.tasks.encoder_with_head import EncoderWithHead, choose_precision, compute_logits
from regard.tasks.image_classification import ImageClassifier
from regard.tasks.inputs import MIN_LENGTH, InputBuilder, PublishedInputs, VectorSettings
from regard.tasks.published import check_head, head_config, published_task
from regard.tasks.registry import get_task
from regard.tasks.sequence_classification import SequenceScoring
from regard.tasks.task import Prediction, Task, TaskInput
from regard.text import Tokenizer

MIX = "mix."
MAX_LENGTH = 1 << 16  # maximum tokens per sequence of a model without position embeddings
CHUNK_SIZE = 512  # examples
STEP = 64  # inputs between reports of progress
EXPECTED = "a folder that `regard train` wrote, or a model whose config.json names a class such as " + (
    "BertForSequenceClassification"
)


@dataclass(frozen=True, eq=False)
class FineTunedModel:
    """A model fine-tuned for a task; `length` is the maximum sequence length. Image models have no tokenizer.

    Predictions use the `precision` of training, auto, bf16 or fp32, unless `inference_precision` is set. `text_columns`
    names the texts of an example in the training data, such as premise and hypothesis; empty if that is not known.
    `folder` is where the model was read from, `language` the one that its start model states, if any. `published` are
    the keys of config.json that describe the head of a model that others trained; its inputs are those of transformers.
    `trained` says whether Regard trained the model, maybe on from a published one. Unpacks to the encoder and the
    tokenizer, as `regard.load` returns them for a pretrained model.
    """

    task: Task[Any]
    model: EncoderWithHead | ImageClassifier
    tokenizer: Tokenizer | None
    length: int
    precision: Precision = "auto"
    text_columns: tuple[str, ...] = ()
    folder: Path | None = None
    inference_precision: InferencePrecision | None = None
    language: str = ""
    published: Mapping[str, Any] | None = None
    trained: bool = True
    _chosen_precision: list[PrecisionChoice] = field(default_factory=list, init=False, repr=False)
    report: Any = None  # of the training, if this process trained it with `regard.fit`

    def __iter__(self) -> Iterator[Any]:
        return iter((self.model.encoder, self.tokenizer))

    def __repr__(self) -> str:
        name = "" if self.folder is None else f"{str(self.folder)!r}, "
        labels = f", labels={list(self.labels)!r}" if self.labels else ""
        length = "" if self.tokenizer is None else f", length={self.length}"
        return f"FineTunedModel({name}{self.task.name}, {family_name(self.model.encoder)}{labels}{length})"

    @property
    def name(self) -> str:
        return "model" if self.folder is None else str(self.folder)

    @property
    def labels(self) -> tuple[str, ...]:
        """The classes, or the tags, that the model predicts."""
        return self.task.classes

    @property
    def device(self) -> torch.device:
        return next(self.model.parameters()).device

    def counted(self) -> CountedModel:
        """The model of one job, which counts the texts that it cannot read."""
        return CountedModel(LoadedModel(self.name, self.model.encoder, self.tokenizer, self, folder=self.folder))

    def predict(
        self,
        data: Any,
        second: str | None = None,
        *,
        columns: Sequence[str] | str | None = None,
        keep: Sequence[str] | str = (),
        aggregation: str | None = None,
    ) -> Any:
        """Predict a text, a text and a second one, the path of a file, a list of texts or pairs, or a DataFrame.

        Returns a `PredictResult`; for a DataFrame, a DataFrame with the columns of the predictions added: a name that
        it has already gets the prefix `predicted_`. `columns` are those of the texts, `keep` those to copy to the
        result, or ["all"]; `aggregation` is as for `with_aggregation`.
        """
        from regard.tasks.prediction.inputs import open_input
        from regard.tasks.prediction.predict import predict_input

        for text in (data, second):
            if isinstance(text, str):
                refuse_file_name(text)
        table = TableOptions(columns=_names(columns))
        counted = self.with_aggregation(aggregation).counted()
        result = predict_input(
            counted.loaded.fine_tuned,
            open_input(self.task, data, second, table=table, keep=_names(keep) or (), names=self.text_columns),
        )
        counted.warn(self.name)
        result._frame = data if hasattr(data, "columns") else None
        return result.to_python()

    def evaluate(self, data: Any, *, columns: Sequence[str] | str | None = None, **options: Any) -> Any:
        """The metrics on labeled data, as an `EvaluationResult`: a file, a DataFrame, dicts, tuples or examples.

        `columns` are those of the texts and the label; `options` are `top` (worst errors) and `seed` (bootstrap).
        """
        from regard.tasks.evaluation.evaluate import evaluate_model

        table = TableOptions(columns=_names(columns))
        return drain(evaluate_model(self, data, name=self.name, table=table, **options))

    def save(self, folder: str | os.PathLike[str]) -> None:
        """Write a folder that `regard.load` and transformers can read."""
        save_fine_tuned(self, Path(folder))

    def computing_precision(self, device: torch.device) -> str:
        """The precision of predictions on a device: the requested one, or that of training."""
        if self.inference_precision is None and self.precision != "auto":
            return self.precision
        return resolve_precision(self.inference_precision, device)

    def choose_precision(self, inputs: Sequence[TaskInput]) -> str:
        """What precision auto is: the first inputs decide, so that all predictions of a file have the same."""
        if not self._chosen_precision:
            self._chosen_precision.append(choose_precision(self.model, inputs))
        return self._chosen_precision[0].precision

    def precision_notes(self) -> list[str]:
        """What precision auto was and why, once it is known."""
        return list(map(str, self._chosen_precision))

    def with_threshold(self, threshold: float | None) -> FineTunedModel:
        """The model with another margin by which an answer must exceed "no answer"; None keeps the trained one."""
        return self if threshold is None else replace(self, task=self.task.with_threshold(threshold))

    def with_aggregation(self, aggregation: str | None) -> FineTunedModel:
        """The model with another way of joining tokens to entities; None keeps its own."""
        return self if aggregation is None else replace(self, task=self.task.with_aggregation(aggregation))

    def with_precision(self, precision: InferencePrecision | None) -> FineTunedModel:
        """The model with another precision of predictions; None keeps that of training."""
        return self if precision is None else replace(self, inference_precision=precision)

    @property
    def input_builder(self) -> InputBuilder | ImageProcessor:
        return image_processor_of(self.model.encoder) if can(self.model.encoder, "image") else self.text_inputs

    @property
    def text_inputs(self) -> InputBuilder:
        """The builder of inputs of a model that reads text."""
        config: Any = self.model.encoder.config
        assert self.tokenizer is not None
        vectors = self.model.vectors if isinstance(self.model, EncoderWithHead) else None
        published = None
        if self.published is not None:
            pad = self.published.get("pad_token_id", getattr(config, "pad_token_id", None))
            end = config.eos_token_id if can(self.model.encoder, "encoder-decoder") else None
            published = PublishedInputs(pad, end)
        return InputBuilder(
            self.tokenizer, family=config.family, max_length=self.length, vectors=vectors, published=published
        )


def _names(value: Sequence[str] | str | None) -> tuple[str, ...] | None:
    return (value,) if isinstance(value, str) else None if value is None else tuple(value)


def predict(model: FineTunedModel, examples: Sequence[Example], *, device: torch.device) -> list[Prediction]:
    """One prediction per example; labels of the examples are ignored."""
    return drain(predict_steps(model, examples, device=device))[0]


def predict_steps(
    model: FineTunedModel, examples: Sequence[Example], *, device: torch.device
) -> Generator[int, None, tuple[list[Prediction], int]]:
    """`predict` in steps: yields the number of finished examples from time to time.

    Returns the predictions and the number of examples that did not fit and were truncated.
    """
    if not examples:
        return [], 0
    inputs = model.task.preprocess([without_label(example) for example in examples], model.input_builder)
    logits: list[Tensor] = [torch.empty(0)] * len(inputs)
    precision = model.computing_precision(device)
    if precision == "auto":
        precision = model.choose_precision(inputs)
    outputs = compute_logits(model.model, inputs, device, precision=precision)
    for finished, (index, part) in enumerate(outputs, start=1):
        logits[index] = part
        if finished % STEP == 0:
            yield len(examples) * finished // len(inputs)
    check_finite(logits, model.name)
    truncated = {item.example for item in inputs if any(sequence.num_truncated for sequence in item.sequences)}
    return model.task.postprocess(examples, inputs, logits), len(truncated)


def predict_stream(
    model: FineTunedModel, examples: Iterable[Example], *, device: torch.device, chunk_size: int = CHUNK_SIZE
) -> Iterator[Prediction]:
    """Predictions for any number of examples, with `chunk_size` of them in memory at a time."""
    source = iter(examples)
    while chunk := list(islice(source, chunk_size)):
        yield from predict(model, chunk, device=device)


def score(model: FineTunedModel, examples: Sequence[Example], *, device: torch.device) -> dict[str, float]:
    """The metrics on labeled examples, in percent."""
    return model.task.compute_metrics(examples, list(predict_stream(model, examples, device=device)))


def calibrate(
    model: FineTunedModel, examples: Sequence[Example], *, device: torch.device
) -> tuple[FineTunedModel, dict[str, float]]:
    """Choose the parameters of the task, such as the no-answer threshold, on labeled examples, and return its metrics.

    These metrics are slightly optimistic, as SQuAD's "best F1" is.
    """
    task, predictions = model.task.calibrate(examples, list(predict_stream(model, examples, device=device)))
    return replace(model, task=task), task.compute_metrics(examples, predictions)


def describe_compute(model: FineTunedModel, device: torch.device) -> str:
    """A sentence with the device and the data type of predictions."""
    chosen = model.computing_precision(device)
    stated = model.inference_precision or not model.trained
    reason = "" if stated else f", as run.precision was {model.precision} in training"
    return f"computing on {device} in {PRECISION_NAMES[chosen]}{reason}"


def read_task(folder: Path) -> Task[Any]:
    """The task of a fine-tuned model, without its weights."""
    if not (folder / TASK_FILE).is_file():
        path = folder / "config.json"
        return published_task(read_json(path), path)
    return _read(folder / TASK_FILE)[0]


def is_published(folder: Path) -> bool:
    """Whether a folder has a model with a task head that Regard did not train."""
    return has_task_head(folder) and not (folder / TASK_FILE).is_file()


def is_fine_tuned(folder: str | os.PathLike[str]) -> bool:
    """Whether a folder has a model with a task head."""
    return has_task_head(Path(folder))


def save_fine_tuned(
    fine_tuned: FineTunedModel, folder: Path, *, files: Mapping[str, bytes] | None = None, overwrite: bool = False
) -> None:
    """Write a folder, all or nothing, with additional `files`. `overwrite` as for `write_folder`."""
    model = fine_tuned.model
    contents, about = fine_tuned_files(fine_tuned)
    rest = None
    if not isinstance(model, ImageClassifier):
        names = _head_names(model.encoder.config.family, fine_tuned.task, model.vectors)
        rest = {_renamed(name, names): tensor for name, tensor in _state(model).items()}
    contents = {**(files or {}), **contents}
    write_model(model.encoder, folder, files=contents, rest=rest, about=about, overwrite=overwrite)


def fine_tuned_files(fine_tuned: FineTunedModel) -> tuple[dict[str, bytes], dict[str, object]]:
    """The files of a folder beside config.json and the weights, and the keys of config.json that describe the task."""
    task, model = fine_tuned.task, fine_tuned.model
    document: dict[str, object] = {"task": task.name, "length": fine_tuned.length, "precision": fine_tuned.precision}
    if fine_tuned.text_columns:
        document["texts"] = list(fine_tuned.text_columns)
    if fine_tuned.language:
        document["language"] = fine_tuned.language
    document |= task.to_dict()
    if isinstance(model, EncoderWithHead) and model.vectors is not None:
        document["vectors"] = asdict(model.vectors)
    if fine_tuned.published is not None:
        document["published"] = dict(fine_tuned.published)
    files = {TASK_FILE: json_bytes(document)} if fine_tuned.trained else {}  # config.json of others says all
    if isinstance(model, ImageClassifier):
        return files, _classes(task.labels)
    assert fine_tuned.tokenizer is not None
    if not fine_tuned.trained:
        kept = {} if fine_tuned.folder is None else cross_encoder_files(fine_tuned.folder)
        return {**fine_tuned.tokenizer.files(), **kept}, dict(fine_tuned.published or {})
    architecture = _transformers_class(model, task)
    about: dict[str, object] = dict(fine_tuned.published or {})
    if architecture:  # for other families, task.json is enough
        about["architectures"] = [architecture]
        if task.transformers_labels:
            about |= _classes(task.transformers_labels)
        if task.problem_type is not None:
            about["problem_type"] = task.problem_type
        pad = fine_tuned.tokenizer.pad_token_id
        if can(model.encoder, "causal-lm") and pad not in (None, fine_tuned.tokenizer.eos_token_id):
            # transformers predicts from the last token that is not padding, which must not be our end token.
            about["pad_token_id"] = pad
    return {**fine_tuned.tokenizer.files(), **files}, about


def require_fine_tuned(name_or_path: str | os.PathLike[str]) -> Path:
    """The folder of a model with a task head, by its path or name; raises InputError for anything else."""
    folder = loading.find_folder(name_or_path)
    if not is_fine_tuned(folder):
        raise InputError(f"{folder}: {_no_head(folder)}; expected {EXPECTED}")
    return folder


def _no_head(folder: Path) -> str:
    """Why a folder has no model with a task head."""
    if not (folder / "config.json").is_file():
        return f"neither {TASK_FILE} nor config.json is in this folder"
    return (
        f"no {TASK_FILE}, and config.json names no class for a task, architectures is "
        + str(read_json(folder / "config.json").get("architectures"))[:100]
    )


def fine_tuned_of(loaded: LoadedModel) -> FineTunedModel:
    """The task and its head; InputError if the model is not fine-tuned."""
    if loaded.fine_tuned is None:
        raise InputError(f"{loaded.name} is not fine-tuned for a task; expected {EXPECTED}")
    found: FineTunedModel = loaded.fine_tuned
    return found


def load_fine_tuned(name_or_path: str | os.PathLike[str], *, device: torch.device | str = "cpu") -> FineTunedModel:
    """Load what `save_fine_tuned` wrote, or a published model whose config.json names a class with a task head."""
    folder = require_fine_tuned(name_or_path)
    if not (folder / TASK_FILE).is_file():
        return _load_published(folder, device)
    task, length, precision, text_columns, vectors, language, published = _read(folder / TASK_FILE)
    encoder: Any
    encoder, rest = _read_parts(folder, task, vectors)
    if can(encoder, "image") and task.reads_images:
        return FineTunedModel(task, ImageClassifier(encoder).to(device).eval(), None, 0, precision, folder=folder)
    _check_text_model(encoder, folder)
    longest = getattr(encoder.config, "max_position_embeddings", MAX_LENGTH)
    if not MIN_LENGTH <= length <= longest:
        raise InputError(
            f"{folder / TASK_FILE}: length is {length}, and this model reads from {MIN_LENGTH} to {longest} "
            "tokens; correct it there"
        )
    mean_pooled = _is_mean_pooled(encoder, task, published or {})
    model = _with_head(folder, encoder, rest, task, vectors=vectors, mean_pooled=mean_pooled)
    tokenizer = Tokenizer.open(folder, rows=encoder.config.vocab_size)
    model = model.to(device).eval()
    return FineTunedModel(
        task, model, tokenizer, length, precision, text_columns, folder, language=language, published=published
    )


def _load_published(folder: Path, device: torch.device | str) -> FineTunedModel:
    path = folder / "config.json"
    document = read_json(path)
    task, settings = published_task(document, path), read_cross_encoder(folder)
    if isinstance(task, SequenceScoring) and settings.activation is not None:
        try:
            task = task.with_activation(settings.activation)
        except InputError as error:
            raise InputError(f"{folder}: sentence-transformers' files state an activation: {error}") from None
    file = check_head(document, path)
    encoder: Any
    encoder, rest = _read_parts(folder, task)
    published = head_config(document, file)
    if task.reads_images:
        loading.warn_unused(folder, rest)
        if not output_heads_of(encoder):
            raise InputError(f"{folder}: the weights lack the classifier that config.json names; copy the folder again")
        return FineTunedModel(
            task, ImageClassifier(encoder).to(device).eval(), None, 0, folder=folder, published=published, trained=False
        )
    if not can(encoder, "encoder-decoder"):
        _check_text_model(encoder, folder)
    mean_pooled = _is_mean_pooled(encoder, task, published)
    model = _with_head(folder, encoder, rest, task, mean_pooled=mean_pooled).to(device).eval()
    tokenizer = Tokenizer.open(folder, rows=encoder.config.vocab_size)
    positions = getattr(encoder.config, "max_position_embeddings", MAX_LENGTH)
    length = min(tokenizer.max_length or positions, settings.max_length or positions, positions)
    language = stated_language(folder)
    return FineTunedModel(
        task, model, tokenizer, length, folder=folder, language=language, published=published, trained=False
    )


def _read_parts(folder: Path, task: Task[Any], vectors: VectorSettings | None = None) -> tuple[Any, dict[str, Tensor]]:
    """The encoder of a folder and its other tensors, which should be those of the head."""
    path = folder / "config.json"
    family = str(parse_config(read_json(path), path).family)
    return read_parts(folder, others=_head_names(family, task, vectors).values())


def _is_mean_pooled(encoder: Any, task: Task[Any], published: Mapping[str, Any]) -> bool:
    """Whether the head of a published model reads the mean over the tokens."""
    file = format_of(encoder.config.family)
    return task.pooled and file is not None and published.get(file.pooling_key) == "mean"


def _check_text_model(encoder: Any, folder: Path) -> None:
    if not can(encoder, "fine-tuning") or can(encoder, "image"):
        raise InputError(f"{folder}: expected a text model that takes a task head, found {describe_model(encoder)}")


def _with_head(
    folder: Path,
    encoder: Any,
    rest: Mapping[str, Tensor],
    task: Task[Any],
    *,
    vectors: VectorSettings | None = None,
    mean_pooled: bool = False,
) -> EncoderWithHead:
    """The encoder of a folder with the head of a task, whose weights are in the `rest` of the file."""
    pooled = can(encoder, "pooling")  # the pooler becomes part of the head
    with next(encoder.parameters()).device:  # also meta, of outlines
        if can(encoder, "encoder-decoder"):
            model = EncoderWithHead.from_encoder_decoder(encoder, task)
        else:
            model = EncoderWithHead.from_encoder(encoder, task, vectors, mean_pooled=mean_pooled)
    names = _head_names(encoder.config.family, task, vectors)
    state = _state(model)
    for ours, expected in list(state.items()):
        theirs = _renamed(ours, names)
        if theirs in rest:
            state[ours] = rest[theirs]
            if state[ours].shape != expected.shape:
                shapes = f"{tuple(state[ours].shape)}, expected {tuple(expected.shape)}"
                raise InputError(f"{folder}: {theirs} has shape {shapes}")
        elif not (pooled and ".pooler." in theirs):
            raise InputError(f"{folder}: the weights lack {theirs}, which {task.name} needs; copy the folder again")
    # A head that reads the tokens leaves the pooler of its base model.
    used = {_renamed(ours, names) for ours in state}
    loading.warn_unused(folder, {name for name in rest if name not in used and "pooler" not in name.split(".")})
    model.head.load_state_dict({name: tensor for name, tensor in state.items() if not name.startswith(MIX)})
    if model.mix is not None:
        model.mix.load_state_dict({name: state[MIX + name] for name in model.mix.state_dict()})
    return model


def _state(model: EncoderWithHead) -> dict[str, Tensor]:
    """The weights of the head and of the layer mix."""
    mix = {} if model.mix is None else model.mix.state_dict()
    return {**model.head.state_dict(), **{MIX + name: tensor for name, tensor in mix.items()}}


def _read(
    path: Path,
) -> tuple[Task[Any], int, Precision, tuple[str, ...], VectorSettings | None, str, dict[str, Any] | None]:
    document = read_json(path)
    try:
        kind = get_task(str(document["task"]), images=bool(document.get("pictures")))
        precision: Any = document.get("precision", "auto")  # older folders do not have it
        check_choice("precision", str(precision), get_args(Precision))
        texts = document.get("texts", [])
        if not isinstance(texts, list) or not all(isinstance(name, str) for name in texts):
            raise ValueError("texts should be a list of names")
        vectors: Any = document.get("vectors")
        if vectors is not None:
            vectors = VectorSettings(**vectors)
            check_choice("pooling", vectors.pooling, POOLINGS)
            if vectors.num_texts not in (1, 2):
                raise ValueError("num_texts should be 1 or 2")
        length, language = int(str(document["length"])), str(document.get("language", ""))
        published: Any = document.get("published")
        if published is not None and not isinstance(published, dict):
            raise ValueError("published should be an object")
        return kind.from_dict(document), length, precision, tuple(texts), vectors, language, published
    except InputError as error:
        raise InputError(f"{path}: {error}") from None
    except KeyError as error:
        raise InputError(f"{path}: {error} is missing; copy the folder again, or train again") from None
    except (TypeError, ValueError) as error:
        raise InputError(f"{path}: unexpected content: {error}; copy the folder again, or train again") from None


def _classes(labels: Sequence[str]) -> dict[str, object]:
    """The labels as config.json lists them."""
    return {
        "id2label": {str(i): label for i, label in enumerate(labels)},
        "label2id": {label: i for i, label in enumerate(labels)},
    }


def _transformers_class(model: EncoderWithHead, task: Task[Any]) -> str:
    """The class of transformers for a family and a task; empty if it does not have the family, or no such class."""
    family_format = format_of(model.encoder.config.family)
    if model.vectors is not None or family_format is None or not family_format.task_heads:
        return ""
    head = task.transformers_head
    head = "SequenceClassification" if task.pooled and head not in family_format.task_heads else head
    return f"{family_format.class_prefix}For{head}"


def _head_names(family: str, task: Task[Any], vectors: VectorSettings | None) -> dict[str, str]:
    """Our names of the head's layers -> those of transformers; similar names if it has no class for the task.

    A `VectorHead` has a name that transformers does not mistake for a layer of its own.
    """
    family_format = format_of(family)
    if vectors is not None:
        return {"output": "vector_head", "mix": "mix"}
    if family_format is None or not family_format.task_heads:
        return {"pool.0": "classifier.dense", "output": "classifier", "mix": "mix"}
    head, known = task.transformers_head, family_format.task_heads
    if not task.pooled:
        return dict(known.get(head, {"output": task.output_layer}))
    return dict(known[head if head in known else "SequenceClassification"])


def _renamed(name: str, layers: Mapping[str, str]) -> str:
    layer, _, parameter = name.rpartition(".")
    return f"{layers[layer]}.{parameter}"

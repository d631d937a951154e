"""Exports a text encoder, or a model fine-tuned from one, to a folder that other programs read.

onnx                    model.onnx, config.json, the tokenizer; task.json of a fine-tuned model
sentence-transformers   a folder that `SentenceTransformer` loads

The folder is checked before it gets its name: its outputs for a few texts are compared with those of Regard. A model is
converted as a function of padded tensors, which can be traced. The packages for ONNX are imported when they are needed.
"""

from __future__ import annotations

import logging
import warnings
from collections.abc import Generator, Iterator, Mapping, Sequence
from contextlib import contextmanager
from copy import deepcopy
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.export import Dim
from torch.nn.utils.rnn import pad_sequence

from regard.checkpoints.loaded_model import LoadedModel
from regard.checkpoints.loading import config_file, write_model
from regard.errors import InputError, RegardError
from regard.events import Event, Note
from regard.files.disk import finish_save, replace_folder
from regard.files.durable_folder import FolderRecord, refuse_foreign_content
from regard.inference.embedding.engine import EmbeddingEngine, load_engine
from regard.inference.embedding.sentence_transformers import SentenceSettings, read_sentence_settings, sentence_files
from regard.models.family import can, describe_model, families, get_family
from regard.nn.masks import Padded
from regard.nn.pooling import pool_padded
from regard.render.result import Result
from regard.tasks.encoder_with_head import EncoderWithHead, compute_logits
from regard.tasks.fine_tuned_model import FineTunedModel, fine_tuned_files
from regard.tasks.inputs import InputSequence
from regard.tasks.task import Task
from regard.wording import count_of

ExportFormat = Literal["onnx", "sentence-transformers"]
KIND = "converted model"  # in the manifest of the folder
MODEL = "model.onnx"
TOLERANCE: Mapping[ExportFormat, float] = {"onnx": 1e-4, "sentence-transformers": 1e-5}
OPSET = 20  # the first with GELU as an operator
LOGGERS = ("torch.onnx", "torch.export", "onnxscript", "onnx_ir")
# Texts of different lengths, each with a second text. It has two lines for tasks that read a text and its endings.
SAMPLES = (
    ("Good.", "It was.\nIt was not, they say."),
    ("The music was better than the film.", "Who wrote the music of this film?\nNobody knows."),
    ("After a long day at the sea, 3 of us went home by train; the others stayed.", "Home.\nThey went by train at 7."),
)


class ExportResult(Result):
    """An exported folder: its files and their size, the names of the model's inputs and outputs, and the largest
    absolute difference between its outputs and those of Regard for a few sample texts."""

    output: str
    format: str
    files: list[str]
    size_in_bytes: int
    inputs: list[str]
    outputs: list[str]
    largest_difference: float

    def to_text(self) -> str:
        size = f"{count_of(len(self.files), 'file')}, {self.size_in_bytes / 1e6:,.1f} MB"
        return (
            f"{self.output}: {size}, for {self.format}\n"
            f"{', '.join(self.inputs)} -> {', '.join(self.outputs)}\n"
            f"largest difference from Regard: {self.largest_difference:.1e}"
        )


def export(
    loaded: LoadedModel,
    output: Path,
    *,
    format: ExportFormat = "onnx",
    pooling: str | None = None,
    normalize: bool | None = None,
    max_length: int | None = None,
) -> Generator[Event, None, ExportResult]:
    """Write the folder `output`: complete and checked, or not at all. An earlier export in it is replaced.

    `pooling`, `normalize` and `max_length` are those of the sentence embeddings; the defaults are those of `regard
    embed`. The model in memory is not changed.
    """
    _check(loaded, format, options=(pooling, normalize, max_length))
    earlier = _earlier_files(output)
    ours = _copy(loaded)
    options: dict[str, Any] = {"pooling": pooling, "normalize": normalize, "max_length": max_length}
    with replace_folder(output, remove=earlier) as staging:
        yield Note(message=f"converting {describe_model(ours.model)} for {format}")
        if format == "sentence-transformers":
            outputs, difference = _write_sentence_transformers(load_engine(ours, **options), staging)
        elif isinstance(ours.fine_tuned, FineTunedModel):
            outputs, difference = _write_task(ours.fine_tuned, staging)
        else:
            chosen = pooling is not None
            stated = None if ours.folder is None or chosen else read_sentence_settings(ours.folder).pooling
            pooled = any(value is not None for value in (*options.values(), stated))
            outputs, difference = _write_encoder(load_engine(ours, **options), staging, pooled=pooled)
        if not difference <= TOLERANCE[format]:  # also for NaN
            raise RegardError(
                f"{output}: not written: the outputs of the converted model differ from Regard's by up to "
                f"{difference:.2g}, expected at most {TOLERANCE[format]:g}; try another version of torch or onnxruntime"
            )
        files = sorted(str(path.relative_to(staging).as_posix()) for path in staging.rglob("*") if path.is_file())
        size = sum((staging / name).stat().st_size for name in files)
        FolderRecord(KIND, tuple(files), finished=True).write(staging)
        earlier[:] = [name for name in earlier if name not in files]
    return ExportResult(
        output=str(output),
        format=format,
        files=files,
        size_in_bytes=size,
        inputs=list(input_names(ours.model)),
        outputs=outputs,
        largest_difference=difference,
    )


def _check(loaded: LoadedModel, format: ExportFormat, *, options: tuple[object, ...]) -> None:
    if not can(loaded.model, "text-encoder"):
        titles = [family.title for family in families().values() if family.can("text-encoder")]
        raise InputError(
            f"{loaded.name} is {describe_model(loaded.model)}, which cannot be exported; expected "
            f"{', '.join(titles[:-1])} or {titles[-1]}, fine-tuned or not"
        )
    if format == "onnx":
        require_onnx()
        model: Any = None if loaded.fine_tuned is None else loaded.fine_tuned.model
        if model is not None and model.vectors is not None and model.vectors.num_texts == 2:
            raise InputError(
                f"{loaded.name} encodes the two texts of a pair separately and compares their vectors, which the "
                "format onnx has no inputs for; train with --no-baseline and without --frozen"
            )
        if loaded.fine_tuned is not None and any(option is not None for option in options):
            raise InputError(
                f"{loaded.name} is fine-tuned and exports logits; pooling, normalize and max_length are for "
                "embeddings: leave them out, or choose the format sentence-transformers"
            )


def _earlier_files(output: Path) -> list[str]:
    """The files of an earlier export in the folder; InputError if it holds something else."""
    finish_save(output)
    manifest = FolderRecord.read(output, kind=KIND)
    if manifest is None:
        refuse_foreign_content(output)
        return []
    return list(manifest.files)


def _copy(loaded: LoadedModel) -> LoadedModel:
    """The model in float32 on the CPU, without its pretraining heads, for this export alone."""

    def copied(module: Any) -> Any:
        return deepcopy(getattr(module, "_orig_mod", module)).to("cpu", torch.float32).eval()

    fine_tuned = loaded.fine_tuned
    if fine_tuned is not None:
        fine_tuned = replace(fine_tuned, model=copied(fine_tuned.model))
    encoder = copied(loaded.model) if fine_tuned is None else fine_tuned.model.encoder
    for head in get_family(encoder.config.family).output_heads:
        if head != "pooler":  # which transformers expects in a BERT
            setattr(encoder, head, None)
    return replace(loaded, model=encoder, fine_tuned=fine_tuned, cache=None)


def _write_encoder(engine: EmbeddingEngine, folder: Path, *, pooled: bool) -> tuple[list[str], float]:
    """Write an encoder as ONNX; return the names of its outputs and their largest difference."""
    model: Any = engine.model
    traceable = traceable_encoder(engine, pooled=pooled)
    files = {**engine.tokenizer.files(max_length=engine.max_length), "config.json": config_file(model)}
    if pooled:
        files |= _sentence_files(engine)
    _write_files(folder, files)
    write_onnx(traceable, folder / MODEL, max_length=model.config.max_position_embeddings)
    return list(traceable.outputs), largest_difference(traceable.outputs, run_onnx(folder / MODEL, traceable.inputs))


def _write_task(fine_tuned: FineTunedModel, folder: Path) -> tuple[list[str], float]:
    """Write a fine-tuned model as ONNX; return the names of its outputs and their largest difference."""
    encoder: Any = fine_tuned.model.encoder
    traceable = traceable_task(fine_tuned)
    files, about = fine_tuned_files(fine_tuned)
    assert fine_tuned.tokenizer is not None
    files |= {**fine_tuned.tokenizer.files(max_length=fine_tuned.length), "config.json": config_file(encoder, about)}
    _write_files(folder, files)
    write_onnx(traceable, folder / MODEL, max_length=encoder.config.max_position_embeddings)
    return list(traceable.outputs), largest_difference(traceable.outputs, run_onnx(folder / MODEL, traceable.inputs))


def _write_sentence_transformers(engine: EmbeddingEngine, folder: Path) -> tuple[list[str], float]:
    """Write a folder of sentence-transformers; return the name of its output and the largest difference."""
    tokenizer_files = engine.tokenizer.files(max_length=engine.max_length)
    write_model(engine.model, folder, files={**tokenizer_files, **_sentence_files(engine)})
    texts = [text for text, _ in SAMPLES]
    name = "sentence_embedding"
    written = load_engine(folder, device="cpu").embed(texts)
    return [name], largest_difference({name: torch.from_numpy(engine.embed(texts))}, {name: torch.from_numpy(written)})


def _sentence_files(engine: EmbeddingEngine) -> dict[str, bytes]:
    assert engine.max_length is not None  # a text encoder has position embeddings
    return sentence_files(
        hidden_size=engine.pooled_width // len(engine.pooling.split("+")),
        max_length=engine.max_length,
        normalize=engine.normalize,
        pooling=engine.pooling,
        settings=engine.settings,
    )


def _write_files(folder: Path, files: Mapping[str, bytes]) -> None:
    for name, data in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)


def largest_difference(expected: Mapping[str, Tensor], found: Mapping[str, Tensor]) -> float:
    """The largest absolute difference over all outputs; NaN in `expected` is not compared."""
    differences = [(found[name] - tensor)[~tensor.isnan()].abs().max() for name, tensor in expected.items()]
    return float(torch.stack(differences).max())


@dataclass(frozen=True, eq=False)
class TraceableModel:
    """A network of tensors, a batch of `inputs` for it, and the `outputs` that Regard computes for this batch.

    NaN in `outputs` stands where there is nothing to compare, such as padding. `axes` are those of the inputs.
    """

    network: nn.Module
    inputs: dict[str, Tensor]
    outputs: dict[str, Tensor]
    axes: tuple[str, ...]


class PaddedEncoder(nn.Module):
    """The last hidden states (B, T, W) and, with a pooling, the sentence embeddings (B, W)."""

    def __init__(
        self, encoder: nn.Module, *, pooling: str | None, normalize: bool, settings: SentenceSettings | None = None
    ) -> None:
        super().__init__()
        settings = settings or SentenceSettings()
        self.encoder, self.pooling, self.normalize = encoder, pooling, normalize
        self.modules_after, self.truncate_dim = nn.Sequential(*settings.modules), settings.truncate_dim

    def forward(
        self, input_ids: Tensor, attention_mask: Tensor, token_type_ids: Tensor | None = None
    ) -> tuple[Tensor, ...]:
        mask = attention_mask.bool()
        hidden: Tensor = self.encoder(input_ids, Padded(mask), token_type_ids)
        if self.pooling is None:
            return (hidden,)
        pooled = self.modules_after(pool_padded(hidden, mask[..., None], self.pooling))[:, : self.truncate_dim]
        return hidden, F.normalize(pooled, dim=-1) if self.normalize else pooled


class PaddedTask(nn.Module):
    """The logits of a task as transformers returns them.

    They are (B, labels); for a choice (B, choices), with inputs (B, choices, T); for tags (B, T, labels); for answers
    two tensors (B, T): the logits of the first and the last token.
    """

    def __init__(self, model: EncoderWithHead, task: Task[Any]) -> None:
        super().__init__()
        self.model, self.task = model, task

    def forward(
        self, input_ids: Tensor, attention_mask: Tensor, token_type_ids: Tensor | None = None
    ) -> tuple[Tensor, ...]:
        segments = None if token_type_ids is None else token_type_ids.flatten(0, -2)
        mask = attention_mask.bool().flatten(0, -2)
        hidden = self.model.encoder(input_ids.flatten(0, -2), Padded(mask), segments)
        if self.model.vectors is not None:
            pooled = pool_padded(hidden, mask[..., None], self.model.vectors.pooling)
            return self.arrange(self.model.head(pooled[:, None])[:, None], input_ids)
        if self.model.mean_pooled:
            return self.arrange(self.model.head(pool_padded(hidden, mask[..., None], "mean")[:, None]), input_ids)
        return self.arrange(self.model.head(hidden[:, :1] if self.task.pooled else hidden), input_ids)

    def arrange(self, logits: Tensor, input_ids: Tensor) -> tuple[Tensor, ...]:
        """The outputs, from the logits (sequences, positions, labels) of all sequences of `input_ids`."""
        if self.task.softmax_over_tokens:
            return logits.unbind(-1)
        if not self.task.single_sequence:
            return (logits.view(input_ids.shape[:-1]),)
        return (logits[:, 0] if self.task.pooled else logits,)


def traceable_encoder(engine: EmbeddingEngine, *, pooled: bool) -> TraceableModel:
    """The encoder of an engine; `pooled` adds the sentence embeddings."""
    texts = [text for text, _ in SAMPLES]
    encodings = engine.tokenizer.encode_batch(texts, max_length=engine.max_length)
    sequences = [InputSequence(encoding.ids, encoding.segments, None) for encoding in encodings]
    tokens = EmbeddingEngine(engine.model, engine.tokenizer, pooling="none", max_length=engine.max_length)
    hidden = [torch.from_numpy(one.vectors) for one in tokens.embed_tokens(texts)]
    outputs = {"last_hidden_state": pad_sequence(hidden, batch_first=True, padding_value=torch.nan)}
    if pooled:
        engine.use_prompt("")  # who runs the network puts it before the texts
        outputs["sentence_embedding"] = torch.from_numpy(engine.embed(texts))
    network = PaddedEncoder(
        engine.model,
        pooling=engine.pooling if pooled else None,
        normalize=engine.normalize and pooled,
        settings=engine.settings if pooled else None,
    )
    return TraceableModel(network, pad_inputs(engine.model, sequences), outputs, ("batch_size", "sequence_length"))


def traceable_task(fine_tuned: FineTunedModel) -> TraceableModel:
    """A fine-tuned model with its head."""
    task, model = fine_tuned.task, fine_tuned.model
    assert isinstance(model, EncoderWithHead)
    examples = [task.example(text, None if task.num_texts == 1 else second) for text, second in SAMPLES]
    inputs = task.preprocess(examples, fine_tuned.input_builder)
    sequences = [sequence for item in inputs for sequence in item.sequences]
    tensors = pad_inputs(model.encoder, sequences)
    axes: tuple[str, ...] = ("batch_size", "sequence_length")
    if not task.single_sequence:
        tensors = {name: tensor.view(len(inputs), -1, tensor.shape[-1]) for name, tensor in tensors.items()}
        axes = ("batch_size", "num_choices", "sequence_length")
    parts = dict(compute_logits(model, inputs, torch.device("cpu"), precision="fp32"))
    rows = torch.cat([parts[index] for index in range(len(inputs))])
    logits = torch.full((len(sequences), max(map(len, sequences)), task.num_outputs), torch.nan)
    positions = [range(len(one)) if one.positions is None else one.positions for one in sequences]
    row = torch.tensor([number for number, chosen in enumerate(positions) for _ in chosen])
    logits[row, torch.tensor([position for chosen in positions for position in chosen])] = rows
    network = PaddedTask(model, task)
    outputs = network.arrange(logits[:, :1] if task.pooled else logits, tensors["input_ids"])
    names = ("start_logits", "end_logits") if task.softmax_over_tokens else ("logits",)
    return TraceableModel(network, tensors, dict(zip(names, outputs, strict=True)), axes)


def input_names(encoder: Any) -> tuple[str, ...]:
    """The names of the tensors that an encoder reads, as in transformers."""
    segments = can(encoder, "segments") and encoder.embedding.num_segments > 0
    return ("input_ids", "attention_mask", *(("token_type_ids",) if segments else ()))


def pad_inputs(encoder: Any, sequences: Sequence[InputSequence]) -> dict[str, Tensor]:
    """The sequences as tensors (sequences, T), padded on the right."""
    rows = {
        "input_ids": [sequence.ids for sequence in sequences],
        "attention_mask": [[1] * len(sequence) for sequence in sequences],
        "token_type_ids": [sequence.segments for sequence in sequences],
    }
    padding = {"input_ids": encoder.config.pad_token_id}
    return {
        name: pad_sequence(
            [torch.tensor(row) for row in rows[name]], batch_first=True, padding_value=padding.get(name, 0)
        )
        for name in input_names(encoder)
    }


def require_onnx() -> Any:
    """onnxruntime; raises InputError if it or a package that writes ONNX files is missing."""
    try:
        import onnx  # noqa: F401
        import onnxruntime
        import onnxscript  # noqa: F401
    except ImportError:
        raise InputError(
            "ONNX needs onnx, onnxscript and onnxruntime, which are not all installed: pip install 'regard[onnx]'"
        ) from None
    return onnxruntime


def write_onnx(model: TraceableModel, path: Path, *, max_length: int) -> None:
    """Write a network in evaluation mode; the file reads batches of any size and sequences up to `max_length`.

    Weights of more than 2 GB go to a second file beside it.
    """
    axes = {name: Dim(name, max=max_length if name == "sequence_length" else None) for name in model.axes}
    shapes = {name: {index: axes[axis] for index, axis in enumerate(model.axes)} for name in model.inputs}
    with _quiet():
        try:
            program = torch.onnx.export(
                model.network.eval(),
                kwargs=model.inputs,
                input_names=list(model.inputs),
                output_names=list(model.outputs),
                dynamic_shapes=shapes,
                opset_version=OPSET,
                dynamo=True,
                verbose=False,
            )
        except torch.onnx.OnnxExporterError as error:
            reason = next(iter(str(error).splitlines()), type(error).__name__)
            raise RegardError(f"torch {torch.__version__} cannot convert this model to ONNX: {reason}") from error
        assert program is not None
        for node in program.model.graph.all_nodes():  # the lines of source code that it comes from
            node.metadata_props.clear()
        program.save(path)


def run_onnx(path: Path, inputs: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """The outputs of an ONNX file on the CPU, by name."""
    onnxruntime = require_onnx()
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = torch.get_num_threads()
    options.log_severity_level = 3  # errors
    session = onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])
    outputs = session.run(None, {name: tensor.numpy() for name, tensor in inputs.items()})
    names = [output.name for output in session.get_outputs()]
    return {name: torch.from_numpy(array) for name, array in zip(names, outputs, strict=True)}


@contextmanager
def _quiet() -> Iterator[None]:
    """Hide warnings and log messages about the conversion, which are for its developers."""
    loggers = [logging.getLogger(name) for name in LOGGERS]
    levels = [logger.level for logger in loggers]
    for logger in loggers:
        logger.setLevel(logging.ERROR)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        for logger, level in zip(loggers, levels, strict=True):
            logger.setLevel(level)

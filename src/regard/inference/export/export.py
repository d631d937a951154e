"""Exports a text encoder, or a model fine-tuned from one, to a folder that other programs read.

onnx                    model.onnx, config.json, the tokenizer; task.json of a fine-tuned model
sentence-transformers   a folder that `SentenceTransformer` loads

The folder is checked before it gets its name: its outputs for a few texts are compared with those of Regard.
"""

from __future__ import annotations

from collections.abc import Generator, Mapping
from copy import deepcopy
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal

import torch
from torch import Tensor

from regard.checkpoints.loaded_model import LoadedModel
from regard.checkpoints.loading import config_file, write_model
from regard.errors import InputError, RegardError
from regard.events import Event, Note
from regard.files.disk import finish_save, replace_folder
from regard.files.durable_folder import FolderRecord, refuse_foreign_content
from regard.inference.embedding.engine import EmbeddingEngine, load_engine
from regard.inference.embedding.sentence_transformers import read_sentence_settings, sentence_files
from regard.inference.export.onnx import require_onnx, run_onnx, write_onnx
from regard.inference.export.result import ExportResult
from regard.inference.export.traceable import SAMPLES, input_names, traceable_encoder, traceable_task
from regard.models.family import can, describe_model, families, get_family
from regard.tasks.fine_tuned_model import FineTunedModel, fine_tuned_files

ExportFormat = Literal["onnx", "sentence-transformers"]
KIND = "converted model"  # in the manifest of the folder
MODEL = "model.onnx"
TOLERANCE: Mapping[ExportFormat, float] = {"onnx": 1e-4, "sentence-transformers": 1e-5}


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
            pooled = any(value is not None for value in options.values()) or _states_pooling(ours)
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


def _states_pooling(loaded: LoadedModel) -> bool:
    return loaded.folder is not None and read_sentence_settings(loaded.folder).pooling is not None


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
        hidden_size=engine.width, max_length=engine.max_length, normalize=engine.normalize, pooling=engine.pooling
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

"""A fine-tuned model and its folder: the layout that transformers reads, and task.json with the task."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, get_args

import torch
from torch import Tensor

from regard.checkpoints import loading
from regard.checkpoints.load import read_parts, write_model
from regard.checkpoints.loaded_model import LoadedModel
from regard.device import autocast_dtype
from regard.errors import InputError, check_choice
from regard.files.json_files import json_bytes, read_json
from regard.known import builtin_names
from regard.models import Bert, Elmo, Gpt, Vit, VitConfig
from regard.settings import Precision
from regard.tasks.encoder_with_head import EncoderWithHead
from regard.tasks.image_classification import ImageClassifier, ImageTransform
from regard.tasks.inputs import MIN_LENGTH, InputBuilder
from regard.tasks.question_answering import QuestionAnswering
from regard.tasks.registry import get_task
from regard.tasks.task import Task
from regard.text import Tokenizer

TASK_FILE = "task.json"
MIX = "mix."
MAX_LENGTH = 1 << 16  # maximum tokens per sequence of a model without position embeddings
MODELS = {"bert": "Bert", "distilbert": "DistilBert", "roberta": "Roberta", "gpt2": "GPT2"}


@dataclass(frozen=True, eq=False)
class FineTunedModel:
    """A model fine-tuned for a task; `length` is the maximum sequence length. Image models have no tokenizer.

    Predictions use the `precision` of training: auto, bf16 or fp32.
    """

    task: Task[Any]
    model: EncoderWithHead | ImageClassifier
    tokenizer: Tokenizer | None
    length: int
    precision: Precision = "auto"

    def with_threshold(self, threshold: float | None) -> FineTunedModel:
        """The model with another margin by which an answer must exceed "no answer"; None keeps the trained one."""
        if threshold is None:
            return self
        if not isinstance(self.task, QuestionAnswering):
            raise InputError(
                f"only the task answer has a threshold for no answer, and the task of this model is {self.task.name}"
            )
        return replace(self, task=QuestionAnswering(threshold))

    @property
    def input_builder(self) -> InputBuilder | ImageTransform:
        """Converts examples to model inputs."""
        config = self.model.encoder.config
        if isinstance(config, VitConfig):
            return ImageTransform(*config.image_size, config.num_channels)
        assert self.tokenizer is not None
        return InputBuilder(self.tokenizer, family=config.family, max_length=self.length)


def describe_compute(model: FineTunedModel, device: torch.device) -> str:
    """A sentence with the device and the data type of predictions."""
    dtype = "bfloat16" if autocast_dtype(model.precision, device) is not None else "float32"
    return f"computing on {device} in {dtype}, as run.precision was {model.precision} in training"


def is_fine_tuned(folder: str | os.PathLike[str]) -> bool:
    return Path(folder, TASK_FILE).is_file()


def save_fine_tuned(
    fine_tuned: FineTunedModel, folder: Path, *, files: Mapping[str, bytes] | None = None, overwrite: bool = False
) -> None:
    """Write a folder, all or nothing, with additional `files`. `overwrite` as for `write_folder`."""
    task, model = fine_tuned.task, fine_tuned.model
    if isinstance(model, ImageClassifier):
        contents = {**(files or {}), TASK_FILE: json_bytes(_document(fine_tuned))}
        contents["preprocessor_config.json"] = json_bytes(_processor(model.encoder.config))
        write_model(model.encoder, folder, files=contents, about=_classes(task.labels), overwrite=overwrite)
        return
    assert fine_tuned.tokenizer is not None
    family = model.encoder.config.family
    names = _names(family, task)
    state = _state(model)
    rest = {names[name.rpartition(".")[0]] + "." + name.rpartition(".")[2]: tensor for name, tensor in state.items()}
    contents = {**fine_tuned.tokenizer.files(), **(files or {}), TASK_FILE: json_bytes(_document(fine_tuned))}
    if family not in MODELS:  # a family that transformers does not have; task.json is enough
        write_model(model.encoder, folder, files=contents, rest=rest, overwrite=overwrite)
        return
    about: dict[str, object] = {"architectures": [f"{MODELS[family]}For{_kind(family, task)}"]}
    if task.labels:
        about |= _classes(task.labels)
    elif task.transformers_head == "MultipleChoice":
        about |= {"id2label": {"0": "fits"}, "label2id": {"fits": 0}}
    if task.problem_type is not None:
        about["problem_type"] = task.problem_type
    if family == "gpt2" and fine_tuned.tokenizer.pad_token_id not in (None, fine_tuned.tokenizer.eos_token_id):
        # transformers predicts from the last token that is not padding, which must not be our end token.
        about["pad_token_id"] = fine_tuned.tokenizer.pad_token_id
    write_model(model.encoder, folder, files=contents, rest=rest, about=about, overwrite=overwrite)


def require_fine_tuned(name_or_path: str | os.PathLike[str]) -> Path:
    """The folder of a fine-tuned model; raises InputError for anything else. Nothing is downloaded."""
    name = os.fspath(name_or_path)
    if not os.path.isdir(os.path.expanduser(name)) and name not in builtin_names():
        raise InputError(f"{name}: no such folder; expected one that `regard train` wrote")
    folder = loading.find_folder(name_or_path)
    if not is_fine_tuned(folder):
        raise InputError(f"{folder}: no {TASK_FILE}; expected a folder that `regard train` wrote")
    return folder


def fine_tuned_of(loaded: LoadedModel) -> FineTunedModel:
    """The task and its head; InputError if the model is not fine-tuned."""
    if loaded.fine_tuned is None:
        raise InputError(f"{loaded.name} is not fine-tuned for a task; expected a folder that `regard train` wrote")
    found: FineTunedModel = loaded.fine_tuned
    return found


def load_fine_tuned(name_or_path: str | os.PathLike[str], *, device: torch.device | str = "cpu") -> FineTunedModel:
    """Load what `save_fine_tuned` wrote."""
    folder = require_fine_tuned(name_or_path)
    task, length, precision = _read(folder / TASK_FILE)
    encoder, rest = read_parts(folder)
    if isinstance(encoder, Vit) and task.reads_images:
        return FineTunedModel(task, ImageClassifier(encoder).to(device).eval(), None, 0, precision)
    if not isinstance(encoder, Bert | Gpt | Elmo):
        raise InputError(f"{folder}: expected a BERT, a GPT or an ELMo, found a {type(encoder).__name__}")
    longest = MAX_LENGTH if isinstance(encoder, Elmo) else encoder.config.max_position_embeddings
    if not MIN_LENGTH <= length <= longest:
        raise InputError(
            f"{folder / TASK_FILE}: length is {length}, and this model reads from {MIN_LENGTH} to {longest} "
            "tokens; correct it there"
        )
    pooled = isinstance(encoder, Bert) and encoder.pooler is not None  # it becomes part of the head
    model = EncoderWithHead.from_encoder(encoder, task)
    names = _names(encoder.config.family, task)
    state = _state(model)
    wanted = {name: names[name.rpartition(".")[0]] + "." + name.rpartition(".")[2] for name in state}
    for ours, theirs in wanted.items():
        if theirs in rest:
            state[ours] = _check_shape(rest[theirs], state[ours], theirs, folder)
        elif not (pooled and ".pooler." in theirs):
            raise InputError(f"{folder}: the weights lack {theirs}, which {task.name} needs; copy the folder again")
    model.head.load_state_dict({name: tensor for name, tensor in state.items() if not name.startswith(MIX)})
    if model.mix is not None:
        model.mix.load_state_dict({name: state[MIX + name] for name in model.mix.state_dict()})
    tokenizer = Tokenizer.open(folder, rows=encoder.config.vocab_size)
    return FineTunedModel(task, model.to(device).eval(), tokenizer, length, precision)


def _state(model: EncoderWithHead) -> dict[str, Tensor]:
    """The weights of the head and of the layer mix."""
    mix = {} if model.mix is None else model.mix.state_dict()
    return {**model.head.state_dict(), **{MIX + name: tensor for name, tensor in mix.items()}}


def _document(fine_tuned: FineTunedModel) -> dict[str, Any]:
    about = {"task": fine_tuned.task.name, "length": fine_tuned.length, "precision": fine_tuned.precision}
    return about | fine_tuned.task.to_dict()


def _read(path: Path) -> tuple[Task[Any], int, Precision]:
    document = read_json(path)
    try:
        kind = get_task(str(document["task"]), images=bool(document.get("pictures")))
        precision: Any = document.get("precision", "auto")  # older folders do not have it
        check_choice("precision", str(precision), get_args(Precision))
        return kind.from_dict(document), int(str(document["length"])), precision
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


def _processor(config: VitConfig) -> dict[str, object]:
    """The image processor of transformers that prepares images as this model expects them."""
    half = [0.5] * config.num_channels
    return {
        "image_processor_type": "ViTImageProcessor",
        "size": {"height": config.image_size[0], "width": config.image_size[1]},
        "do_rescale": True,
        "rescale_factor": 1 / 255,
        "do_normalize": True,
        "image_mean": half,
        "image_std": half,
    }


def _check_shape(tensor: Tensor, expected: Tensor, name: str, folder: Path) -> Tensor:
    if tensor.shape != expected.shape:
        raise InputError(f"{folder}: {name} has shape {tuple(tensor.shape)}, expected {tuple(expected.shape)}")
    return tensor


def _kind(family: str, task: Task[Any]) -> str:
    """The suffix of the transformers class; GPT-2 has none for multiple choice, which is a class with one logit."""
    return "SequenceClassification" if family == "gpt2" and task.pooled else task.transformers_head


def _names(family: str, task: Task[Any]) -> dict[str, str]:
    """Our names of the head's layers -> those of transformers, or similar ones for ELMo, which it does not have."""
    if family == "elmo":
        return {"output": "classifier", MIX.removesuffix("."): "mix"}
    if task.transformers_head == "QuestionAnswering":
        return {"output": "qa_outputs"}
    if not task.pooled:
        return {"output": "classifier"}
    if family == "gpt2":
        return {"output": "score"}
    if family == "distilbert":
        return {"pool.0": "pre_classifier", "output": "classifier"}
    if family == "roberta" and task.transformers_head == "SequenceClassification":
        return {"pool.0": "classifier.dense", "output": "classifier.out_proj"}
    return {"pool.0": f"{family}.pooler.dense", "output": "classifier"}

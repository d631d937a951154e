"""A tuned model's folder: the layout that transformers reads, and task.json with what the task is.

Knows how other software names the tensors of a head. Knows no examples and no training.
"""

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
from regard.device import autocast_dtype
from regard.errors import InputError, check_choice
from regard.files.json_files import json_bytes, read_json
from regard.known import builtin_names
from regard.models import Bert, Elmo, Gpt, Vit, VitConfig
from regard.settings import Precision
from regard.tasks.encoder_with_head import EncoderWithHead
from regard.tasks.image_classification import ImageClassifier, ImageTask, ImageTransform
from regard.tasks.inputs import MIN_LENGTH, InputBuilder
from regard.tasks.question_answering import QuestionAnswering
from regard.tasks.registry import get_task
from regard.tasks.task import Task
from regard.text import Tokenizer

__all__ = [
    "MAX_LENGTH",
    "TASK_FILE",
    "FineTunedModel",
    "describe_compute",
    "is_fine_tuned",
    "load_fine_tuned",
    "save_fine_tuned",
]

TASK_FILE = "task.json"
MIX = "mix."
MAX_LENGTH = 1 << 16  # tokens of a row for a model without positions
MODELS = {"bert": "Bert", "distilbert": "DistilBert", "roberta": "Roberta", "gpt2": "GPT2"}


@dataclass(frozen=True, eq=False)
class FineTunedModel:
    """A model that was tuned for a task; `length` is the most tokens of its rows. Pictures need no tokenizer.

    It is asked in the `precision` it was tuned in: auto, bf16 or fp32.
    """

    task: Task[Any]
    model: EncoderWithHead | ImageClassifier
    tokenizer: Tokenizer | None
    length: int
    precision: Precision = "auto"

    def with_threshold(self, threshold: float | None) -> FineTunedModel:
        """The same, but an answer must beat no answer by so much; None leaves it as it was trained."""
        if threshold is None:
            return self
        if not isinstance(self.task, QuestionAnswering):
            raise InputError(f"a threshold for no answer is for the task answer, and this model does {self.task.name}")
        return replace(self, task=QuestionAnswering(threshold))

    @property
    def input_builder(self) -> InputBuilder | ImageTransform:
        """What makes of examples that which the model reads."""
        config = self.model.encoder.config
        if isinstance(config, VitConfig):
            return ImageTransform(*config.image_size, config.num_channels)
        assert self.tokenizer is not None
        return InputBuilder(self.tokenizer, family=config.family, limit=self.length)


def describe_compute(solved: FineTunedModel, device: torch.device) -> str:
    """Where a model is asked and in which numbers, for people."""
    numbers = "bfloat16" if autocast_dtype(solved.precision, device) is not None else "float32"
    return f"computing on {device} in {numbers}, as run.precision was {solved.precision} in training"


def is_fine_tuned(folder: str | os.PathLike[str]) -> bool:
    return Path(folder, TASK_FILE).is_file()


def save_fine_tuned(
    solved: FineTunedModel, folder: Path, *, files: Mapping[str, bytes] | None = None, overwrite: bool = False
) -> None:
    """Write a folder, all or nothing; `files` go beside it. `overwrite` as for `write_folder`."""
    task, model = solved.task, solved.model
    if isinstance(model, ImageClassifier):
        contents = {**(files or {}), TASK_FILE: json_bytes(_document(solved))}
        contents["preprocessor_config.json"] = json_bytes(_processor(model.encoder.config))
        write_model(model.encoder, folder, files=contents, about=_classes(task.labels), overwrite=overwrite)
        return
    assert solved.tokenizer is not None
    family = model.encoder.config.family
    names = _names(family, task)
    state = _state(model)
    rest = {names[name.rpartition(".")[0]] + "." + name.rpartition(".")[2]: tensor for name, tensor in state.items()}
    contents = {**solved.tokenizer.files(), **(files or {}), TASK_FILE: json_bytes(_document(solved))}
    if family not in MODELS:  # a family that no other software reads: all that is to be said is in task.json
        write_model(model.encoder, folder, files=contents, rest=rest, overwrite=overwrite)
        return
    about: dict[str, object] = {"architectures": [f"{MODELS[family]}For{_kind(family, task)}"]}
    if task.labels:
        about |= _classes(task.labels)
    elif task.transformers_head == "MultipleChoice":
        about |= {"id2label": {"0": "fits"}, "label2id": {"fits": 0}}
    if task.transformers_head == "SequenceClassification":
        about["problem_type"] = _problem(task)
    if family == "gpt2" and solved.tokenizer.pad not in (None, solved.tokenizer.eos):
        # transformers asks the last token that is no padding: were that our last one's id, it would ask another.
        about["pad_token_id"] = solved.tokenizer.pad
    write_model(model.encoder, folder, files=contents, rest=rest, about=about, overwrite=overwrite)


def load_fine_tuned(name_or_path: str | os.PathLike[str], *, device: torch.device | str = "cpu") -> FineTunedModel:
    """What `write_task` wrote."""
    name = os.fspath(name_or_path)
    if not os.path.isdir(os.path.expanduser(name)) and name not in builtin_names():
        raise InputError(f"{name}: no such folder; expected one that `regard train` wrote")
    folder = loading.find_folder(name_or_path)
    if not is_fine_tuned(folder):
        raise InputError(f"{folder}: no {TASK_FILE}; expected a folder that `regard train` wrote")
    task, length, precision = _read(folder / TASK_FILE)
    encoder, rest = read_parts(folder)
    if isinstance(encoder, Vit) and isinstance(task, ImageTask):
        return FineTunedModel(task, ImageClassifier(encoder).to(device).eval(), None, 0, precision)
    if not isinstance(encoder, Bert | Gpt | Elmo):
        raise InputError(f"{folder}: expected a BERT, a GPT or an ELMo, found a {type(encoder).__name__}")
    longest = MAX_LENGTH if isinstance(encoder, Elmo) else encoder.config.max_position_embeddings
    if not MIN_LENGTH <= length <= longest:
        raise InputError(
            f"{folder / TASK_FILE}: length is {length}, and this model reads from {MIN_LENGTH} to {longest} "
            "tokens; mend it there"
        )
    pooled = isinstance(encoder, Bert) and encoder.pooler is not None  # which the new head takes over
    model = EncoderWithHead.from_encoder(encoder, task)
    names = _names(encoder.config.family, task)
    state = _state(model)
    wanted = {name: names[name.rpartition(".")[0]] + "." + name.rpartition(".")[2] for name in state}
    for ours, theirs in wanted.items():
        if theirs in rest:
            state[ours] = _shaped(rest[theirs], state[ours], theirs, folder)
        elif not (pooled and ".pooler." in theirs):
            raise InputError(f"{folder}: the weights lack {theirs}, which {task.name} needs; copy the folder again")
    model.head.load_state_dict({name: tensor for name, tensor in state.items() if not name.startswith(MIX)})
    if model.mix is not None:
        model.mix.load_state_dict({name: state[MIX + name] for name in model.mix.state_dict()})
    tokenizer = Tokenizer.open(folder, rows=encoder.config.vocab_size)
    return FineTunedModel(task, model.to(device).eval(), tokenizer, length, precision)


def _state(model: EncoderWithHead) -> dict[str, Tensor]:
    """What a task has learned beside the encoder."""
    mix = {} if model.mix is None else model.mix.state_dict()
    return {**model.head.state_dict(), **{MIX + name: tensor for name, tensor in mix.items()}}


def _document(solved: FineTunedModel) -> dict[str, Any]:
    about = {"task": solved.task.name, "length": solved.length, "precision": solved.precision}
    return about | solved.task.to_dict()


def _read(path: Path) -> tuple[Task[Any], int, Precision]:
    document = read_json(path)
    try:
        kind = ImageTask if document.get("pictures") else get_task(str(document["task"]))
        precision: Any = document.get("precision", "auto")  # which older folders do not say
        check_choice("precision", str(precision), get_args(Precision))
        return kind.from_dict(document), int(str(document["length"])), precision
    except InputError as error:
        raise InputError(f"{path}: {error}") from None
    except KeyError as error:
        raise InputError(f"{path}: {error} is missing; copy the folder again, or train again") from None
    except (TypeError, ValueError) as error:
        raise InputError(f"{path}: not as it was written: {error}; copy the folder again, or train again") from None


def _classes(labels: Sequence[str]) -> dict[str, object]:
    """As config.json names them."""
    return {
        "id2label": {str(i): label for i, label in enumerate(labels)},
        "label2id": {label: i for i, label in enumerate(labels)},
    }


def _processor(config: VitConfig) -> dict[str, object]:
    """How transformers makes of a picture what this model looks at."""
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


def _shaped(found: Tensor, wanted: Tensor, name: str, folder: Path) -> Tensor:
    if found.shape != wanted.shape:
        raise InputError(f"{folder}: {name} has shape {tuple(found.shape)}, expected {tuple(wanted.shape)}")
    return found


def _kind(family: str, task: Task[Any]) -> str:
    """GPT-2 has no class of its own for multiple choice elsewhere; its numbers are those of one class."""
    return "SequenceClassification" if family == "gpt2" and task.pooled else task.transformers_head


def _names(family: str, task: Task[Any]) -> dict[str, str]:
    """What transformers calls the layers of our heads; of an ELMo, which it does not know, names like its own."""
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


def _problem(task: Task[Any]) -> str:
    if task.name == "regress":
        return "regression"
    return "multi_label_classification" if getattr(task, "multi_label", False) else "single_label_classification"

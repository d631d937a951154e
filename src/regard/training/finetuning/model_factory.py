"""What every seed of a run begins with, and what it minimises: a pretrained model, or a student of a tuned one.

Knows models and losses. Knows no files, no optimizer and no order of examples.
"""

from __future__ import annotations

import copy
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from regard.checkpoints.loaded_model import require_tokenizer
from regard.errors import InputError
from regard.models import Bert, Vit, VitConfig
from regard.models.family import family_name
from regard.nn import init as initial
from regard.settings import Precision
from regard.tasks.encoder_with_head import EncoderWithHead, TaskBatch
from regard.tasks.image_classification import ImageClassifier, ImageTransform
from regard.tasks.inputs import InputBuilder
from regard.tasks.task import Task, TaskInput
from regard.tasks.task_folder import MAX_LENGTH, FineTunedModel
from regard.text import Tokenizer
from regard.training.finetuning.config import VisionSection

__all__ = ["DistillationObjective", "ImageModelFactory", "ModelFactory", "StudentFactory", "TaskObjective"]

SOFTNESS = 2.0  # the temperature at which a student compares itself with its teacher
SOFT, HIDDEN = 5.0, 1.0  # how much the teacher's numbers and its hidden states count, as in DistilBERT; labels count 1


class TaskObjective(nn.Module):
    """What `train` minimises: the task's loss."""

    def __init__(self, model: EncoderWithHead | ImageClassifier, task: Task[Any]) -> None:
        super().__init__()
        self.model, self.task = model, task
        self.frozen = not any(parameter.requires_grad for parameter in model.encoder.parameters())

    def train(self, mode: bool = True) -> TaskObjective:
        super().train(mode)
        if self.frozen:  # what does not learn is not disturbed either
            self.model.encoder.eval()
        return self

    def forward(self, inputs: Any, items: Sequence[TaskInput]) -> dict[str, Tensor]:
        return {"loss": self.task.loss(self.model(inputs).float(), items)}


class DistillationObjective(TaskObjective):
    """Labels, and what a teacher says beside them: its numbers, softened, and the direction of its hidden states."""

    def __init__(self, model: EncoderWithHead, task: Task[Any], teacher: EncoderWithHead) -> None:
        super().__init__(model, task)
        self.teacher = [teacher.eval()]  # in a list: it does not learn and is not saved

    def forward(self, inputs: TaskBatch, items: Sequence[TaskInput]) -> dict[str, Tensor]:
        assert isinstance(self.model, EncoderWithHead)
        teacher = self.teacher[0].to(inputs.segments.device)
        with torch.no_grad():
            wanted, wanted_numbers = teacher.forward_with_hidden(inputs)
        hidden, numbers = self.model.forward_with_hidden(inputs)
        losses = {
            "labels": self.task.loss(numbers.float(), items),
            "soft": self.task.distillation_loss(numbers.float(), wanted_numbers.float(), items, SOFTNESS),
            "hidden": (1 - F.cosine_similarity(hidden.float(), wanted.float(), dim=-1)).mean(),
        }
        return losses | {"loss": losses["labels"] + SOFT * losses["soft"] + HIDDEN * losses["hidden"]}


class ModelFactory:
    """A pretrained model; every seed draws another head."""

    tokenizer: Tokenizer | None

    def __init__(self, task: Task[Any], encoder: nn.Module, tokenizer: Tokenizer | None, *, length: int) -> None:
        positions: int = getattr(encoder.config, "positions", MAX_LENGTH)
        self.task, self.encoder, self.tokenizer = task, encoder, require_tokenizer(encoder, tokenizer)
        self.length = min(length or task.max_length, positions)

    @property
    def rows(self) -> InputBuilder | ImageTransform:
        """What makes of examples that which the models read."""
        assert self.tokenizer is not None
        return InputBuilder(self.tokenizer, family=family_name(self.encoder), max_length=self.length)

    def new(self, seed: int) -> EncoderWithHead | ImageClassifier:
        torch.manual_seed(seed)
        model = EncoderWithHead.from_encoder(copy.deepcopy(self.encoder), self.task)
        if self.task.initial_bias is not None and model.head.output.bias is not None:
            nn.init.constant_(model.head.output.bias, self.task.initial_bias)
        return model

    def objective(self, model: EncoderWithHead | ImageClassifier) -> TaskObjective:
        return TaskObjective(model, self.task)

    def solved(self, model: EncoderWithHead | ImageClassifier, *, precision: Precision = "auto") -> FineTunedModel:
        return FineTunedModel(self.task, model, self.tokenizer, self.length, precision)


class ImageModelFactory(ModelFactory):
    """A VisionSection Transformer with new weights, or one that is given with a new layer for the classes on it."""

    def __init__(
        self, task: Task[Any], frame: ImageTransform, vision: VisionSection, *, encoder: Vit | None = None
    ) -> None:
        self.task, self.tokenizer, self.length = task, None, 0
        self.frame, self.vision, self.given = frame, vision, encoder

    @property
    def rows(self) -> ImageTransform:
        return self.frame

    def new(self, seed: int) -> ImageClassifier:
        torch.manual_seed(seed)
        if self.given is None:
            return ImageClassifier(Vit(self._config()), shift=self.vision.max_shift)
        model = copy.deepcopy(self.given)
        model.classifier = nn.Linear(model.config.hidden_size, self.task.num_outputs)
        model.config = replace(model.config, num_labels=self.task.num_outputs)
        initial.normal_init(model.classifier)
        return ImageClassifier(model, shift=self.vision.max_shift)

    def _config(self) -> VitConfig:
        vision, frame = self.vision, self.frame
        if vision.hidden_size % vision.num_attention_heads:
            raise InputError(
                f"vision.num_attention_heads is {vision.num_attention_heads}, which does not divide "
                f"vision.hidden_size, {vision.hidden_size}"
            )
        return VitConfig(
            hidden_size=vision.hidden_size,
            num_hidden_layers=vision.num_hidden_layers,
            num_attention_heads=vision.num_attention_heads,
            intermediate_size=vision.intermediate_size,
            image_size=(frame.height, frame.width),
            patch_size=(vision.patch_size, vision.patch_size),
            num_channels=frame.channels,
            num_labels=self.task.num_outputs,
        )


class StudentFactory(ModelFactory):
    """Some of a tuned model's layers, evenly chosen, under its own embeddings and head."""

    def __init__(self, teacher: FineTunedModel, *, layers: int, length: int) -> None:
        encoder = teacher.model.encoder
        depth = encoder.config.num_hidden_layers
        if not isinstance(encoder, Bert) or not isinstance(teacher.model, EncoderWithHead):
            raise InputError("only a BERT can be distilled; train the teacher from one")
        if not 1 <= layers < depth:
            raise InputError(f"--layers is {layers}; expected fewer layers than the teacher has, 1 to {depth - 1}")
        super().__init__(teacher.task, encoder, teacher.tokenizer, length=length or teacher.length)
        self.teacher, self.layers = teacher.model, layers

    def new(self, seed: int) -> EncoderWithHead:
        student = copy.deepcopy(self.teacher)
        encoder = student.encoder
        assert isinstance(encoder, Bert)
        depth = encoder.config.num_hidden_layers
        # Evenly spread, the first among them: 0, 2, 4, 6 of 8.
        kept = [number * depth // self.layers for number in range(self.layers)]
        encoder.encoder.layers = nn.ModuleList([encoder.encoder.layers[number] for number in kept])
        encoder.config = replace(encoder.config, num_hidden_layers=self.layers)
        return student

    def objective(self, model: EncoderWithHead | ImageClassifier) -> TaskObjective:
        assert isinstance(model, EncoderWithHead)
        return DistillationObjective(model, self.task, self.teacher)

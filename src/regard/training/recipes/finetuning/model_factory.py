"""The model each seed starts from and its loss: a pretrained model, a Vision Transformer, or a student of a teacher."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from regard.checkpoints.loaded_model import require_tokenizer
from regard.checkpoints.loading import output_heads_of
from regard.data.image_processor import ImageProcessor
from regard.errors import InputError
from regard.models import Vit, VitConfig
from regard.models.family import can, family_name
from regard.nn.training import normal_init
from regard.settings import Precision
from regard.tasks.encoder_with_head import EncoderWithHead, TaskBatch, TaskModel, TaskObjective
from regard.tasks.fine_tuned_model import MAX_LENGTH, FineTunedModel
from regard.tasks.image_classification import ImageClassifier
from regard.tasks.inputs import InputBuilder, VectorSettings
from regard.tasks.task import LossFunction, Task, TaskInput
from regard.text import Tokenizer
from regard.training.recipes.finetuning.config import VisionSection

TEMPERATURE = 2.0
SOFT_WEIGHT, HIDDEN_WEIGHT = 5.0, 1.0  # of the teacher's logits and hidden states, as in DistilBERT; labels have 1


class DistillationObjective(TaskObjective):
    """The task's loss, the loss against the teacher's softened logits, and the cosine loss of the hidden states."""

    def __init__(
        self, model: EncoderWithHead, task: Task[Any], teacher: EncoderWithHead, loss: LossFunction | None = None
    ) -> None:
        super().__init__(model, task, loss)
        self.teacher = [teacher.eval()]  # in a list: not a submodule, so neither trained nor saved

    def forward(self, inputs: TaskBatch, items: Sequence[TaskInput], share: float = 1.0) -> dict[str, Tensor]:
        assert isinstance(self.model, EncoderWithHead)
        teacher = self.teacher[0].to(inputs.segments.device)
        with torch.no_grad():
            teacher_hidden, teacher_logits = teacher.forward_with_hidden(inputs)
        hidden, logits = self.model.forward_with_hidden(inputs)
        losses = {
            "labels": self.task.loss(logits.float(), items, self.loss),
            "soft": self.task.distillation_loss(logits.float(), teacher_logits.float(), items, TEMPERATURE),
            "hidden": (1 - F.cosine_similarity(hidden.float(), teacher_hidden.float(), dim=-1)).mean(),
        }
        losses["loss"] = losses["labels"] + SOFT_WEIGHT * losses["soft"] + HIDDEN_WEIGHT * losses["hidden"]
        return {name: loss * share for name, loss in losses.items()}


class ModelFactory:
    """Makes models from a pretrained encoder; each seed gets a new head."""

    tokenizer: Tokenizer | None
    vectors: VectorSettings | None = None  # of a teacher that predicts from vectors
    folder: Path | None = None  # of the encoder, which may state a pooling
    language: str = ""  # that the encoder states

    def __init__(self, task: Task[Any], encoder: nn.Module, tokenizer: Tokenizer | None, *, length: int) -> None:
        positions: int = getattr(encoder.config, "max_position_embeddings", MAX_LENGTH)
        self.task, self.encoder, self.tokenizer = task, encoder, require_tokenizer(encoder, tokenizer)
        self.length = min(length or task.max_length, positions)

    @property
    def rows(self) -> InputBuilder | ImageProcessor:
        """Converts examples to model inputs."""
        assert self.tokenizer is not None
        return InputBuilder(
            self.tokenizer, family=family_name(self.encoder), max_length=self.length, vectors=self.vectors
        )

    def new_model(self, seed: int) -> TaskModel:
        torch.manual_seed(seed)
        model = EncoderWithHead.from_encoder(copy.deepcopy(self.encoder), self.task)
        if self.task.initial_bias is not None and model.head.output.bias is not None:
            nn.init.constant_(model.head.output.bias, self.task.initial_bias)
        return model

    def objective(self, model: TaskModel, loss: LossFunction | None = None) -> TaskObjective:
        return TaskObjective(model, self.task, loss)

    def fine_tuned_model(self, model: TaskModel, *, precision: Precision = "auto") -> FineTunedModel:
        return FineTunedModel(self.task, model, self.tokenizer, self.length, precision, language=self.language)


class PublishedModelFactory(ModelFactory):
    """Makes copies of a published model with its head, which reads the inputs that it was published for."""

    def __init__(self, task: Task[Any], start: FineTunedModel, *, length: int) -> None:
        super().__init__(
            task, start.model.encoder, start.tokenizer, length=min(length or task.max_length, start.length)
        )
        self.start = start

    @property
    def rows(self) -> InputBuilder:
        return replace(self.start, length=self.length).text_inputs

    def new_model(self, seed: int) -> TaskModel:
        torch.manual_seed(seed)  # of dropout
        return copy.deepcopy(self.start.model)

    def fine_tuned_model(self, model: TaskModel, *, precision: Precision = "auto") -> FineTunedModel:
        return replace(super().fine_tuned_model(model, precision=precision), published=self.start.published)


class ImageModelFactory(ModelFactory):
    """Makes Vision Transformers: with new weights, or a pretrained one with a new layer for the classes."""

    def __init__(
        self, task: Task[Any], processor: ImageProcessor, vision: VisionSection, *, encoder: Vit | None = None
    ) -> None:
        self.task, self.tokenizer, self.length = task, None, 0
        self.processor, self.vision, self.pretrained = processor, vision, encoder

    @property
    def rows(self) -> ImageProcessor:
        return self.processor

    def new_model(self, seed: int) -> ImageClassifier:
        torch.manual_seed(seed)
        if self.pretrained is None:
            return ImageClassifier(Vit(self._config()), shift=self.vision.max_shift)
        model = copy.deepcopy(self.pretrained)
        for head in output_heads_of(model):  # those of another task
            setattr(model, head, None)
        model.classifier = nn.Linear(model.config.hidden_size, self.task.num_outputs)
        model.config = replace(model.config, num_labels=self.task.num_outputs)
        normal_init(model.classifier)
        return ImageClassifier(model, shift=self.vision.max_shift)

    def _config(self) -> VitConfig:
        vision, processor = self.vision, self.processor
        if vision.hidden_size % vision.num_attention_heads:
            raise InputError(
                f"vision.num_attention_heads is {vision.num_attention_heads}, which does not divide "
                f"vision.hidden_size, {vision.hidden_size}"
            )
        return VitConfig(
            **vision.model_dump(exclude={"patch_size", "max_shift"}),
            image_size=processor.image_size,
            patch_size=(vision.patch_size, vision.patch_size),
            num_channels=processor.num_channels,
            num_labels=self.task.num_outputs,
        )


class StudentFactory(ModelFactory):
    """Makes students: evenly chosen layers of a fine-tuned model, with its embeddings and head."""

    def __init__(self, teacher: FineTunedModel, *, layers: int, length: int) -> None:
        encoder = teacher.model.encoder
        depth = encoder.config.num_hidden_layers
        if not can(encoder, "text-encoder") or not isinstance(teacher.model, EncoderWithHead):
            raise InputError("only a BERT can be distilled; fine-tune a BERT as the teacher")
        if not 1 <= layers < depth:
            raise InputError(f"--layers is {layers}; expected fewer layers than the teacher has, 1 to {depth - 1}")
        super().__init__(teacher.task, encoder, teacher.tokenizer, length=length or teacher.length)
        self.teacher, self.layers, self.vectors = teacher.model, layers, teacher.model.vectors

    def new_model(self, seed: int) -> EncoderWithHead:
        student = copy.deepcopy(self.teacher)
        encoder = student.encoder
        assert can(encoder, "text-encoder")
        depth = encoder.config.num_hidden_layers
        # Evenly spaced, starting with the first: 0, 2, 4, 6 of 8.
        kept = [number * depth // self.layers for number in range(self.layers)]
        encoder.encoder.layers = nn.ModuleList([encoder.encoder.layers[number] for number in kept])
        encoder.config = replace(encoder.config, num_hidden_layers=self.layers)
        return student

    def objective(self, model: TaskModel, loss: LossFunction | None = None) -> TaskObjective:
        assert isinstance(model, EncoderWithHead)
        return DistillationObjective(model, self.task, self.teacher, loss)

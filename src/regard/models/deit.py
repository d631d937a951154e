"""DeiT: a ViT with a distillation token, whose output learned from the predictions of a teacher.

A DeiT that was trained without a teacher is a ViT, also in transformers' files.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, replace

from torch import Tensor, nn

from regard.models import vit
from regard.models.family import Checkpoint, shape
from regard.nn.training import normal_init

DISTILLED = ("cls_classifier", "distillation_classifier")


@dataclass(frozen=True)
class DeitConfig(vit.VitConfig):
    """DeiT base with 16x16 patches by default."""

    family: str = "deit"


class Deit(vit.Vit):
    """`model(pixels)` returns the last hidden state (B, 2 + patches, W): [CLS], the distillation token, the patches.

    `model.logits(hidden)` averages the classifiers of both tokens. A fine-tuned model has one, `classifier` on [CLS].
    """

    def __init__(self, config: DeitConfig, *, output_heads: Collection[str] = DISTILLED) -> None:
        super().__init__(config, output_heads=output_heads, distillation=True)
        for head in DISTILLED:
            classifier = nn.Linear(config.hidden_size, config.num_labels) if head in output_heads else None
            setattr(self, head, classifier)
            if classifier is not None:
                normal_init(classifier)

    def logits(self, hidden: Tensor) -> Tensor:
        classifiers = [getattr(self, head) for head in DISTILLED]
        if self.classifier is not None or None in classifiers:
            return super().logits(hidden)
        of_cls, of_distillation = (classifier(hidden[:, token]) for token, classifier in enumerate(classifiers))
        result: Tensor = (of_cls + of_distillation) / 2
        return result


FAMILY = replace(
    vit.FAMILY,
    name="deit",
    title="a DeiT",
    year=2021,
    description="ViT with a distillation token; heads: classifiers of [CLS] and of the distillation token",
    model_class=Deit,
    config_class=DeitConfig,
    output_heads=("pooler", "classifier", *DISTILLED),
    image_processor={"resample": 3, "do_center_crop": True},
    checkpoints=(
        Checkpoint("facebook/deit-tiny-distilled-patch16-224", 5_910_800, shape(192, 12, 3)),
        Checkpoint("facebook/deit-small-distilled-patch16-224", 22_436_432, shape(384, 12, 6)),
        Checkpoint("facebook/deit-base-distilled-patch16-224", 87_338_192),
    ),
)

"""Parts of the last chapter: an image as a sequence of patches, and one attention map as the reason for two classes."""

from __future__ import annotations

from typing import TYPE_CHECKING

from regard.checkpoints.models import Models
from regard.lessons.course.chapter import DeckRow, ExerciseAnswer, beside_deck
from regard.render.story import Paragraph, PatchSequence, StoryBlock, StoryTable

if TYPE_CHECKING:
    from regard.interpret.attribution.image_probe import ImageProbe
    from regard.interpret.faithfulness import FaithfulnessResult

MODEL = "regard-digits"
SEVEN, DOUBTFUL = "digit-7", "digit-4-or-9"
DRAWS = 20  # orders of the patches


def _probe(models: Models, image: str) -> ImageProbe:
    from regard.interpret.attribution.image_probe import image_probe
    from regard.interpret.images import read_image

    with models.use(MODEL) as loaded:
        return image_probe(loaded, read_image(image))


def patches(models: Models) -> list[StoryBlock]:
    from regard.models.vit import VitConfig

    probe, base = _probe(models, SEVEN), VitConfig()
    config = probe.encoder.config
    rows, columns = probe.grid
    count = (base.image_size[0] // base.patch_size[0]) * (base.image_size[1] // base.patch_size[1])
    return [
        PatchSequence.of_image(f"{SEVEN} as {MODEL} reads it", probe.picture(), probe.grid),
        beside_deck(
            [
                DeckRow("pixels of an image", "224 x 224", f"{config.image_size[0]} x {config.image_size[1]}"),
                DeckRow("pixels of a patch, a word", "16 x 16", f"{config.patch_size[0]} x {config.patch_size[1]}"),
                DeckRow("patches", f"{count}", f"{rows * columns}", "computed for both"),
                DeckRow("tokens with [CLS]", f"{count + 1}", f"{len(probe.ids)}", "one learned position each"),
                DeckRow(
                    "numbers in a patch",
                    f"{16 * 16 * 3}",
                    f"{config.patch_size[0] * config.patch_size[1] * config.num_channels}",
                ),
                DeckRow(
                    "width, layers, heads",
                    f"{base.hidden_size}, {base.num_hidden_layers}, {base.num_attention_heads}",
                    f"{config.hidden_size}, {config.num_hidden_layers}, {config.num_attention_heads}",
                ),
            ],
            caption='"An image is worth 16 x 16 words": ViT base beside our model',
        ),
    ]


def tokens_answer(models: Models) -> ExerciseAnswer:
    from regard.models.vit import VitConfig

    config = VitConfig()
    rows, columns = (size // patch for size, patch in zip(config.image_size, config.patch_size, strict=True))
    tokens = rows * columns + 1
    choices = (196, 197, 224, 256)
    return ExerciseAnswer(
        choices.index(tokens), f"{rows} x {columns} patches and [CLS]: {tokens} tokens, each with a learned position."
    )


def shuffled(models: Models) -> float:
    """The share of example images and random orders whose class stays the same when patches change places."""
    import torch

    from regard.data.example_images import example_images

    generator, same, total = torch.Generator().manual_seed(0), 0, 0
    for name in example_images():
        probe = _probe(models, name)
        with probe.evaluation_mode():
            whole = int(probe.logits()[0, 0].argmax())
            count = len(probe.ids) - 1
            orders = torch.stack([torch.randperm(count, generator=generator) + 1 for _ in range(DRAWS)])
            orders = torch.cat([torch.zeros(DRAWS, 1, dtype=torch.long), orders], 1)
            found = probe.logits(probe.token_embeddings()[orders])[:, 0].argmax(-1)
        same, total = same + int((found == whole).sum()), total + DRAWS
    return same / total


def order_answer(models: Models) -> ExerciseAnswer:
    share = shuffled(models)
    return ExerciseAnswer(
        0 if share > 0.8 else 1,
        f"The class stays the same in {share:.0%} of {DRAWS} random orders of the patches of each example image. "
        "Attention "
        "alone knows no order: only the learned positions say where a patch was.",
    )


def _faithfulness(models: Models, image: str, label: str | None = None) -> FaithfulnessResult:
    from regard.interpret.faithfulness import measure_faithfulness

    probe = _probe(models, image)
    with models.use(MODEL) as loaded:
        return loaded.cached(("course", "faithfulness", image, label), lambda: measure_faithfulness(probe, label=label))


def class_swap(models: Models) -> list[StoryBlock]:
    """The map and the attributions shown for two classes: how much changes between the two?"""
    import numpy as np

    first = _faithfulness(models, DOUBTFUL)
    assert first.other is not None and first.integrated_other is not None
    second = _faithfulness(models, DOUBTFUL, first.other)
    rows = []
    for name, a, b in (
        ("attention map", first.weights, second.weights),
        ("gradient x input", first.gradient.scores, second.gradient.scores),
        ("integrated gradients", first.integrated.scores, second.integrated.scores),
    ):
        correlation = float(np.corrcoef(a[1:], b[1:])[0, 1])
        changed = sum(x != y for x, y in zip(a, b, strict=True))
        rows.append((name, f"{changed} of {len(a)}", f"{correlation:.3f}"))
    headers = ("evidence", "values that differ", "correlation of the two")
    classes = f"{first.label} ({first.probability:.0%}) and for {first.other} ({second.probability:.0%})"
    caption = f"{DOUBTFUL}: evidence for {classes}"
    return [
        StoryTable(headers=headers, rows=rows, caption=caption),
        Paragraph(
            text=f"The verdict on the map is {first.verdict} for {first.label} and {second.verdict} for {first.other}: "
            f"{sum(one.passed for one in first.checks)} and {sum(one.passed for one in second.checks)} of six tests "
            "passed."
        ),
    ]


def swap_answer(models: Models) -> ExerciseAnswer:
    first = _faithfulness(models, DOUBTFUL)
    second = _faithfulness(models, DOUBTFUL, first.other)
    changed = sum(a != b for a, b in zip(first.weights, second.weights, strict=True))
    choice = 0 if changed == 0 else 1 if changed < len(first.weights) / 2 else 2
    return ExerciseAnswer(
        choice,
        f"{changed} of {len(first.weights)} weights change between {first.label!r} and {first.other!r}. The map is "
        "computed "
        "before the classifier reads [CLS], so it cannot depend on the class it is shown for.",
    )


def verdict_answer(models: Models) -> ExerciseAnswer:
    found = _faithfulness(models, SEVEN)
    check = next(one for one in found.checks if one.name == found.decisive)
    choices = ("faithful", "doubtful", "unfaithful")
    assert found.verdict is not None
    return ExerciseAnswer(
        choices.index(found.verdict),
        f"{sum(one.passed for one in found.checks)} of {len(found.checks)} tests passed. Permuting the map's weights "
        "moves the "
        f"prediction by {check.value or 0:.3f} in the median; {check.threshold:.2f} is needed. Verdict: "
        f"{found.verdict}.",
    )

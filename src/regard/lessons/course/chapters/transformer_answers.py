"""Computed answers to the exercises of the chapter on the Transformer."""

from __future__ import annotations

from regard.checkpoints.models import Models
from regard.lessons.course.chapter import ExerciseAnswer
from regard.lessons.course.chapters.transformer_examples import (
    COUNT,
    STUDENT,
    TRANSLATOR,
    WIDTH,
    figure_for,
    use_network,
)


def answer_position_zero(models: Models) -> ExerciseAnswer:
    import torch

    from regard.nn.embedding import sinusoids

    row = sinusoids(torch.tensor([0]), WIDTH)[0]
    return ExerciseAnswer(
        2 if row.tolist() == [0.0, 1.0] * (WIDTH // 2) else 0,
        f"sin 0 = 0 and cos 0 = 1, so the row is {', '.join(f'{value:g}' for value in row[:6])}, ... and its length "
        f"√{WIDTH // 2} = {row.norm():.0f}.",
    )


def answer_shift(models: Models) -> ExerciseAnswer:
    import torch

    from regard.nn.embedding import sinusoids

    p = sinusoids(torch.arange(COUNT), WIDTH).double()
    near, far = (float((p[a] - p[a + 5]).norm()) for a in (0, 40))
    choice = 0 if abs(near - far) < 1e-5 else 1 if near < far else 2
    return ExerciseAnswer(choice, f"Positions 0 and 5 are {near:.4f} apart, positions 40 and 45 {far:.4f}.")


def answer_norm(models: Models) -> ExerciseAnswer:
    import torch

    row = torch.tensor([2.0, 4.0, 6.0])
    doubled = torch.nn.functional.layer_norm(2 * row, (3,), eps=0.0)
    plain = torch.nn.functional.layer_norm(row, (3,), eps=0.0)
    choice = 0 if torch.allclose(plain, doubled) else 1
    numbers = ", ".join(f"{value:.3f}" for value in plain)
    return ExerciseAnswer(choice, f"Both give {numbers}: mean and standard deviation double as well, and cancel.")


def answer_feed_forward(models: Models) -> ExerciseAnswer:
    import torch

    figure = figure_for(models, STUDENT)
    one = figure.box("encoder.ffn").in_layer(1)
    with use_network(models, TRANSLATOR) as model, torch.inference_mode():
        changed = one["x"].clone()
        changed[0] += 1
        out = model.encoder.layers[0].ffn(changed)
    effect = (out - one["out"]).abs().amax(-1)
    return ExerciseAnswer(
        0 if float(effect[1:].max()) < 1e-4 < float(effect[0]) else 1,
        f"The first row changes by {effect[0]:.2f}, the others by {effect[1:].max():.1e}: the network sees one row at "
        "a time.",
    )


def answer_memory(models: Models) -> ExerciseAnswer:
    figure = figure_for(models, STUDENT)
    passes = figure.box("decoder.cross").passes
    same = max(float((one["memory"] - passes[0]["memory"]).abs().max()) for one in passes)
    return ExerciseAnswer(
        2 if same == 0 else 0,
        f"All {len(passes)} layers read the same {passes[0]['memory'].shape[0]} vectors; the largest difference is "
        f"{same:g}.",
    )


def answer_first_input(models: Models) -> ExerciseAnswer:
    figure = figure_for(models, STUDENT)
    first = figure.tokens["decoder"][0]
    return ExerciseAnswer(
        1 if first.startswith("<|begin") else 0,
        f"{first}: the outputs are shifted to the right by one, so that the first word is predicted from the source "
        "alone.",
    )


def answer_removed(models: Models) -> ExerciseAnswer:
    figure = figure_for(models, STUDENT, ablation=True)
    assert figure.ablation is not None
    losses = {one.without[0]: one.sentences_loss or 0.0 for one in figure.ablation.outcomes if one.without}
    worst = max(losses, key=lambda name: losses[name])
    order = ("mask", "positions", "scaling", "residual")
    numbers = ", ".join(f"{name} {losses[name]:.2f}" for name in order)
    return ExerciseAnswer(order.index(worst), f"Loss over five sentences without each part: {numbers}.")


def answer_initial_loss(models: Models) -> ExerciseAnswer:
    import math

    from regard.lessons.six_words import PAIRS

    outputs = sum(len(words.split()) for _, words in PAIRS)
    expected = outputs * math.log(6)
    choices = (math.log(6), expected, outputs * 6.0)
    return ExerciseAnswer(
        choices.index(expected), f"{outputs} outputs, each ln 6 = {math.log(6):.3f}: {expected:.2f} in all."
    )

"""Computed answers to the exercises of the chapter on self-attention."""

from __future__ import annotations

from regard.checkpoints.models import Models
from regard.lessons.course.chapter import ExerciseAnswer
from regard.lessons.course.chapters.self_attention_examples import (
    COREFERENCE,
    DECODER,
    ENCODER,
    THINKING,
    car_attention,
    favorite_tokens,
    figure_for,
    masked_weights,
    shape_text,
    shuffled_states,
    strongest_head,
    translator_attentions,
)


def answer_scale(models: Models) -> ExerciseAnswer:
    _, one = car_attention(models)
    width = one["q"].shape[-1]
    return ExerciseAnswer(1, f"√{width} = {width**0.5:g}: the square root of the width of a key, {width} in {ENCODER}.")


def answer_concatenation(models: Models) -> ExerciseAnswer:
    figure = figure_for(models, ENCODER, THINKING)
    one = figure.box("encoder.attention").in_layer(1)
    shape = list(one["concatenated"].shape)
    choices = [[4, 64], [4, 384], [24, 64]]
    heads = len(one["z"])
    return ExerciseAnswer(
        choices.index(shape),
        f"{heads} heads of {shape_text(one['z'][0])} stand side by side: {shape_text(one['concatenated'])}.",
    )


def answer_tiny(models: Models) -> ExerciseAnswer:
    _, one = car_attention(models)
    share = float((one["weights"] < 0.01).float().mean())
    choice = 0 if share < 0.05 else 1 if share < 0.5 else 2
    return ExerciseAnswer(choice, f"{share:.0%} of all weights of layer 1 are below 0.01.")


def answer_order(models: Models) -> ExerciseAnswer:
    _, _, states = shuffled_states(models)
    without, complete = (float((a - b.flip(0)).abs().max()) for a, b in states)
    return ExerciseAnswer(
        0 if without < 1e-3 < complete else 1,
        f"The largest difference is {without:.1e} without positions, which is rounding, and {complete:.2f} with them.",
    )


def answer_animal(models: Models) -> ExerciseAnswer:
    layer, head, weight = strongest_head(models, DECODER, "animal")
    choice = 0 if weight < 0.2 else 1 if weight < 0.5 else 2
    return ExerciseAnswer(choice, f"Layer {layer}, head {head} of {DECODER} puts {weight:.0%} of “it” on “animal”.")


def answer_all_heads(models: Models) -> ExerciseAnswer:
    counts, total = favorite_tokens(models)
    share = counts["animal"] / total
    choice = 0 if share < 0.15 else 1 if share < 0.6 else 2
    return ExerciseAnswer(
        choice,
        f"In {counts['animal']} of {total} heads of {COREFERENCE[1]}. The most frequent favorite is "
        f"“{counts.most_common(1)[0][0]}”, in {counts.most_common(1)[0][1]}.",
    )


def answer_first_row(models: Models) -> ExerciseAnswer:
    _, _, _, masked, _ = masked_weights(models)
    return ExerciseAnswer(
        2 if float(masked[0, 0]) == 1 else 0,
        f"It may attend to itself only, so softmax has a single score to share out: the weight is {masked[0, 0]:.3f}.",
    )


def answer_last_row(models: Models) -> ExerciseAnswer:
    _, _, plain, masked, _ = masked_weights(models)
    changes = (plain - masked).abs().amax(-1)
    return ExerciseAnswer(
        2 if int(changes.argmin()) == len(changes) - 1 else 0,
        f"No word comes after the last one, so the mask hides nothing from it: its row changes by {changes[-1]:.1e}, "
        f"the first row by {changes[0]:.2f}.",
    )


def answer_cross_shape(models: Models) -> ExerciseAnswer:
    figure, kinds = translator_attentions(models)
    rows, columns = kinds[2][-1]["weights"].shape[1:]
    sizes = len(figure.tokens["decoder"]), len(figure.tokens["encoder"])
    return ExerciseAnswer(
        1 if (rows, columns) == sizes else 0,
        f"One row for each of {rows} decoder tokens and one column for each of {columns} source tokens: {rows} x "
        f"{columns}.",
    )

"""Computed answers to the exercises of the chapter on decoding."""

from __future__ import annotations

import math

from regard.checkpoints.models import Models
from regard.lessons.course.chapter import ExerciseAnswer
from regard.lessons.course.chapters import decoding_examples as examples
from regard.lessons.course.chapters.decoding_examples import CERTAIN, LEAVE, MEET, STORY, STUDENT, TOP_P


def answer_greedy(models: Models) -> ExerciseAnswer:
    greedy, beam = (examples.translations(models, MEET, beams=beams)[0] for beams in (1, 5))
    better = beam.log_probability > greedy.log_probability
    return ExerciseAnswer(
        1 if better else 0,
        f"“{greedy.text}” has ln p = {greedy.log_probability:.2f}, and five beams find “{beam.text}” with "
        f"{beam.log_probability:.2f}, which is {math.exp(beam.log_probability - greedy.log_probability):.1f} times as "
        "probable.",
    )


def answer_one_beam(models: Models) -> ExerciseAnswer:
    from regard.inference.translation.translator import translator_of

    with models.use(examples.TRANSLATOR) as loaded:
        greedy = translator_of(loaded).translate([MEET])[0][0]
    one = examples.translations(models, MEET, beams=1)[0]
    return ExerciseAnswer(
        0 if greedy.ids == one.ids else 1, f"Both give “{one.text}”: with one prefix, only its likeliest token is kept."
    )


def answer_length(models: Models) -> ExerciseAnswer:
    free, normalized = (examples.translations(models, LEAVE, beams=5, penalty=penalty)[0] for penalty in (0.0, 1.0))
    return ExerciseAnswer(
        0 if len(free.ids) < len(normalized.ids) else 1,
        f"“{free.text}” ({len(free.ids) + 1} tokens) wins without a penalty, “{normalized.text}” "
        f"({len(normalized.ids) + 1} tokens) with a penalty of 1.",
    )


def answer_temperature(models: Models) -> ExerciseAnswer:
    logits, _ = examples.next_logits(models, STORY)
    best = int(logits.argmax())
    cold, plain = (float((logits / value).softmax(-1)[best]) for value in (0.5, 1.0))
    return ExerciseAnswer(
        0 if cold > plain else 1,
        f"From {plain:.1%} at temperature 1 to {cold:.1%} at 0.5: the distribution gets sharper.",
    )


def answer_nucleus(models: Models) -> ExerciseAnswer:
    story, certain = (examples.nucleus_size(models, prompt, TOP_P) for prompt in (STORY, CERTAIN))
    return ExerciseAnswer(
        1 if certain < story else 0, f"{certain:,} tokens after “{CERTAIN}”, {story:,} after “{STORY}”."
    )


def answer_samples(models: Models) -> ExerciseAnswer:
    best = examples.translations(models, STUDENT, beams=10)[0]
    share = examples.sampled_translations(models)[best.text] / examples.NUM_SAMPLES
    choice = 0 if share < 0.05 else 1 if share < 0.5 else 2
    return ExerciseAnswer(
        choice,
        f"“{best.text}” came in {share:.0%} of {examples.NUM_SAMPLES} samples; the model gives it "
        f"{math.exp(best.log_probability):.0%}.",
    )


def answer_repetition(models: Models) -> ExerciseAnswer:
    repeated = {name: examples.repeated_share(text) for name, text in examples.repetition_runs(models).items()}
    names = list(repeated)
    most = max(names, key=lambda name: repeated[name])
    numbers = ", ".join(f"{name} {ratio:.0%}" for name, ratio in repeated.items())
    return ExerciseAnswer(1 if most == "sampled" else 0, f"Repeated sequences of three words: {numbers}.")
